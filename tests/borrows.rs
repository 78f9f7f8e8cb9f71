//! Every way in which a step can be handed over, with sizes that Miri gets through. It interprets the program, and knows of each pointer
//! which borrow it came from and what may still be done with it, and of each access which thread's it was: `scripts/sanitize.sh miri`.
//! What comes out is held to the reference elsewhere; here all ways have to give the same.

mod common;

use common::case::{Case, DT_MODES, Optional, Slots, StateMode, T_AND_BC};
use common::fixture::Fixture;
use common::ports::cpu_kernel;
use common::run::{Level, run_checked};
use ssm_update::ports::cpu::Isa;
use ssm_update::{Dims, Dtype, Dtypes, Kernel, State, Step};

/// The instruction sets that are tried. They share everything but the arithmetic, and Miri needs minutes for each.
fn isas() -> impl Iterator<Item = Isa> {
    Isa::available().into_iter().take(if cfg!(miri) { 1 } else { usize::MAX })
}

/// What stands in for a dtype where Miri does not know its instructions.
fn known(dtype: Dtype) -> Dtype {
    if cfg!(all(miri, target_feature = "f16c")) && dtype == Dtype::F16 { Dtype::Bf16 } else { dtype }
}

/// All kinds of state and of slots at all levels, in turns with the dtypes and with what may be left out; with rows of no vector's length.
#[test]
fn every_way_of_handing_over() {
    let ways = StateMode::ALL.into_iter().flat_map(|state| Slots::ALL.map(|slots| (state, slots)));
    for (number, (state, slots)) in ways.enumerate() {
        let (x, bc) = T_AND_BC[number % T_AND_BC.len()];
        let (x, bc) = (known(x), known(bc));
        let nth = |nth: usize| known(Dtype::ALL[(number + nth) % Dtype::ALL.len()]);
        let dtypes = Dtypes { x, bc, dt: nth(1), a_log: nth(2), d: nth(0), dt_bias: nth(1), state: nth(number / 3) };
        let base = Case { dtypes, optional: Optional::nth(number % 8), state, gap: 3, ..Case::new(2, 1, 3, 1, 16) };
        let fixture = Fixture::new(&base.dt(DT_MODES[number % DT_MODES.len()]).slots(slots));
        for isa in isas() {
            let kernel = cpu_kernel(isa, 1, 1);
            let [first, others @ ..] = Level::ALL.map(|level| {
                run_checked(&kernel, &fixture, level)
                    .unwrap_or_else(|why| panic!("{} at {level:?}: {why}\n{:?}", isa.name(), fixture.case))
            });
            for (other, level) in others.iter().zip(&Level::ALL[1..]) {
                assert!(other.same_results(&first), "{} at {level:?}: {:?}", isa.name(), fixture.case);
            }
        }
    }
}

/// A state that is just large enough to be cut into pieces, for threads that write into the same tensors.
#[test]
fn pieces_of_one_launch_do_not_meet() {
    let dims = Dims { batch: 1, heads: 3, head_dim: 32, groups: 1, d_state: 512, slots: 1 };
    let (x, b, per_head) = (vec![0.5_f32; 3 * 32], vec![0.25_f32; 512], [0.1_f32; 3]);
    for isa in isas() {
        let [one, several] = [1, 3].map(|threads| {
            let (mut state, mut y) = (vec![1.0_f32; 3 * 32 * 512], vec![0.0_f32; 3 * 32]);
            let step = Step::new(dims, &x, &b, &b, &per_head[..], &per_head[..], State::in_place(&mut state), &mut y);
            cpu_kernel(isa, threads, threads).step(step).expect("a legal step");
            (state, y)
        });
        assert!(one == several, "{}", isa.name());
        assert!(one.0.iter().all(|&value| value != 1.0) && one.1.iter().all(|&value| value != 0.0));
    }
}
