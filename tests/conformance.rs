//! The conformance list: every case that a port must compute, on every port that opens.
//!
//! `cargo test --release ssm_update_parity` runs it, together with the properties. Each list below says whether it is a
//! full product or a pairwise cover, in which every value of a factor meets every value of each other factor.

mod common;

use common::buffer::Buffer;
use common::case::{Case, DT_MODES, Optional, Slots, StateMode, T_AND_BC, Values};
use common::check::check_cases;
use common::expect::Expected;
use common::fixture::Fixture;
use common::models::MODELS;
use common::pairwise::cover;
use common::ports;
use common::run::{Level, run_checked};
use ssm_update::{Dtype, Dtypes};

/// Prints what runs and what does not, with the reason. It is also the test that fails where a required port is absent.
#[test]
fn ssm_update_parity_ports() {
    let ports = ports::under_test();
    // Printed here too: which test opens the ports first is not known, and its output may be captured.
    println!("ports under test:\n{}", ports.summary.join("\n"));
    assert!(!ports.subjects.is_empty(), "the CPU port opens everywhere, and another one where it is the only one");
    assert_eq!(ports.summary.iter().filter(|line| line.starts_with("port ")).count(), ssm_update::SSM_PORTS.len());
}

/// Every model shape, pairwise with dtypes, optional tensors, treatments of dt and states. Batch 1; 2 on the small
/// ones.
#[test]
fn ssm_update_parity_model_shapes() {
    let rows = cover(&[MODELS.len(), T_AND_BC.len(), 3, 8, 3, 3, 2, 4]);
    let cases: Vec<Case> = rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let [heads, head_dim, d_state, groups] = MODELS[row[0]].1;
            let batch = if heads * head_dim * d_state <= 48 * 64 * 128 { 1 + row[6] } else { 1 };
            let (x, bc) = T_AND_BC[row[1]];
            let per_head = Dtype::ALL[number % 3];
            let case = Case {
                dtypes: Dtypes { x, bc, dt: x, a_log: per_head, d: per_head, dt_bias: x, state: Dtype::ALL[row[2]] },
                optional: Optional::nth(row[3]),
                state: StateMode::ALL[row[5]],
                gap: 8 * row[6],
                seed: number as u64,
                ..Case::new(batch, heads, head_dim, groups, d_state)
            };
            case.dt(DT_MODES[row[4]]).slots([Slots::Absent, Slots::Permuted, Slots::Moved, Slots::OnlyIn][row[7]])
        })
        .collect();
    check_cases("model shapes (pairwise)", &cases);
}

/// Every combination of dtypes: the full product of T with B and C, state, dt, A_log, D and dt_bias.
#[test]
fn ssm_update_parity_dtypes() {
    let mut cases = Vec::new();
    for (x, bc) in T_AND_BC {
        for combination in 0..3_usize.pow(5) {
            let dtype = |place: u32| Dtype::ALL[combination / 3_usize.pow(place) % 3];
            let dtypes =
                Dtypes { x, bc, state: dtype(0), dt: dtype(1), a_log: dtype(2), d: dtype(3), dt_bias: dtype(4) };
            let number = cases.len();
            cases.push(Case {
                dtypes,
                state: StateMode::ALL[number % 3],
                gap: number % 2,
                seed: number as u64,
                ..Case::new(2, 6, 5, 2, [16, 32, 80][number % 3])
            });
        }
    }
    check_cases("dtypes (full product)", &cases);
}

/// Every combination of optional tensors with treatments of dt, states, slots, strides and T: the full product.
#[test]
fn ssm_update_parity_options() {
    let mut cases = Vec::new();
    for optional in (0..8).map(Optional::nth) {
        for dt in DT_MODES {
            for state in StateMode::ALL {
                for slots in Slots::ALL {
                    for gap in [0, 3] {
                        for dtype in Dtype::ALL {
                            let number = cases.len();
                            let base = Case {
                                dtypes: Dtypes { state: Dtype::ALL[number / 7 % 3], ..Dtypes::uniform(dtype) },
                                optional,
                                state,
                                gap,
                                seed: number as u64,
                                ..Case::new(3, 4, 7, 2, 48)
                            };
                            cases.push(base.dt(dt).slots(slots));
                        }
                    }
                }
            }
        }
    }
    check_cases("options (full product)", &cases);
}

/// Edges of every size: the full product of head_dim, batch, groups and d_state, in every state mode.
#[test]
fn ssm_update_parity_edges() {
    const HEADS: usize = 16;
    let mut cases = Vec::new();
    for head_dim in [1, 3, 60, 80] {
        for batch in [0, 1, 3] {
            for groups in [1, 2, 8, HEADS] {
                for d_state in [16, 48, 96, 256, 512] {
                    for state in StateMode::ALL {
                        let number = cases.len();
                        let (x, bc) = T_AND_BC[number % 5];
                        let base = Case {
                            dtypes: Dtypes { x, bc, state: Dtype::ALL[number % 3], ..Dtypes::uniform(x) },
                            state,
                            seed: number as u64,
                            ..Case::new(batch, HEADS, head_dim, groups, d_state)
                        };
                        cases.push(base.slots(Slots::ALL[number % 8]));
                    }
                }
            }
        }
    }
    check_cases("edges (full product)", &cases);
}

/// Every d_state that is promised, with a head_dim around the widths in which ports may work: the full product.
#[test]
fn ssm_update_parity_d_states() {
    let mut cases = Vec::new();
    for d_state in (16..=512).step_by(16) {
        for head_dim in [1, 2, 4, 7, 8, 9, 15, 16, 17, 31, 33] {
            for dtype in Dtype::ALL {
                let number = cases.len();
                cases.push(Case {
                    dtypes: Dtypes { state: Dtype::ALL[number / 3 % 3], ..Dtypes::uniform(dtype) },
                    optional: Optional::nth(number % 8),
                    state: StateMode::ALL[number % 2],
                    seed: number as u64,
                    ..Case::new(1, 3, head_dim, 3, d_state)
                });
            }
        }
    }
    check_cases("d_states (full product)", &cases);
}

/// Ratios of heads to groups that models have, powers of two or not, as single heads and with more.
#[test]
fn ssm_update_parity_group_ratios() {
    let mut cases = Vec::new();
    for ratio in [1, 2, 3, 6, 12, 16, 24, 48, 80, 128] {
        for groups in [1, 2, 3, 8] {
            cases.push(Case { seed: ratio as u64, ..Case::new(2, ratio * groups, 3, groups, 16) });
        }
    }
    check_cases("group ratios (full product)", &cases);
}

/// Values at the ends of the number range, against every dtype of T and of the state: the full product.
#[test]
fn ssm_update_parity_values() {
    let mut cases = Vec::new();
    for values in [Values::Tiny, Values::Huge, Values::Special] {
        for (x, bc) in T_AND_BC {
            for state_dtype in Dtype::ALL {
                for dt in DT_MODES {
                    for repeat in 0..4 {
                        let base = Case {
                            dtypes: Dtypes { x, bc, state: state_dtype, ..Dtypes::uniform(x) },
                            optional: Optional::nth(7 - repeat),
                            state: StateMode::ALL[repeat % 3],
                            values,
                            seed: cases.len() as u64,
                            ..Case::new(2, 6, 5, 3, 64)
                        };
                        cases.push(base.dt(dt));
                    }
                }
            }
        }
    }
    check_cases("values (full product)", &cases);
}

/// The comparison notices what it is there for: a wrong class, a wrong sign, two ulps in a 16-bit result, and some
/// multiples of the f32 budget in an f32 one, in one element of y or of the state.
#[test]
fn the_comparison_notices() {
    for dtype in Dtype::ALL {
        let case = Case { dtypes: Dtypes { state: dtype, ..Dtypes::uniform(dtype) }, ..Case::new(2, 3, 5, 1, 32) };
        let before = Fixture::new(&case);
        let kernel = &*ports::under_test().subjects[0].kernel;
        let after = run_checked(kernel, &before, Level::Slices).expect("a legal step");
        let expected = Expected::of(&before);
        assert_eq!(expected.check(&after), Ok(()));
        // In f32, y has the errors of a whole sum, whose terms may be larger than it is.
        let (off_y, off_state) = if dtype == Dtype::F32 { (2048, 64) } else { (2, 2) };
        let changes: [fn(u32, u32) -> u32; 5] = [
            |bits, off| bits + off,
            |bits, off| bits - off,
            |bits, _| bits ^ if bits > 0xffff { 1 << 31 } else { 1 << 15 },
            |bits, _| if bits > 0xffff { 0x7fc0_0000 } else { 0x7fff },
            |_, _| 0,
        ];
        for change in changes {
            for at in [0, 7, 29] {
                let mut wrong = after.clone();
                wrong.y.set_bits(at, change(after.y.bits(at), off_y));
                assert!(expected.check(&wrong).is_err(), "{dtype}: y {at} is {}", wrong.y.get(at));
                let mut wrong = after.clone();
                let state = wrong.state_out.as_mut().expect("out of place");
                state.set_bits(32 * at + 3, change(after.state_after().bits(32 * at + 3), off_state));
                assert!(expected.check(&wrong).is_err(), "{dtype}: state {at} is {}", wrong.state_after().get(at));
            }
        }
    }
}

/// Guards, gaps, inputs and state rows that are not written: a write to any of them is seen, at either end.
#[test]
fn the_guards_notice() {
    let case = Case { gap: 2, state: StateMode::InPlace, ..Case::new(2, 3, 5, 1, 32) }.slots(Slots::Permuted);
    let before = Fixture::new(&case);
    assert_eq!(before.clone().stray_write(&before), None);
    type Write = fn(&mut Fixture);
    let writes: [(&str, Write); 7] = [
        ("behind y", |fixture| poke(&mut fixture.y, 37 + 2 * 15 + 22)),
        ("in front of y", |fixture| poke(&mut fixture.y, 36)),
        ("a gap of y", |fixture| poke(&mut fixture.y, 37 + 15)),
        ("an input", |fixture| poke(&mut fixture.x, 37)),
        ("behind an input", |fixture| poke(&mut fixture.a_log, 37 + 3)),
        ("behind the state", |fixture| poke(&mut fixture.state_in, 37 + 4 * 480)),
        ("a slot that no row has", |fixture| {
            let used: Vec<usize> = (0..2).filter_map(|row| fixture.row_slots(row)).map(|(_, to)| to).collect();
            let free = (0..4).find(|slot| !used.contains(slot)).expect("a pool larger than the batch");
            poke(&mut fixture.state_in, 37 + free * 480 + 479);
        }),
    ];
    for (what, write) in writes {
        let mut after = before.clone();
        write(&mut after);
        assert!(after.stray_write(&before).is_some(), "{what}");
    }
}

/// Writes to an element counted from the start of the guard in front.
fn poke(buffer: &mut Buffer, at: usize) {
    match buffer {
        Buffer::F32(guarded) => guarded.all_mut()[at] = 1.0,
        other => panic!("an f32 fixture, not {:?}", other.dtype()),
    }
}

/// The pairwise generator does what the lists above rely on: every value meets every value of each other factor.
#[test]
fn pairwise_covers_every_pair() {
    for levels in [vec![2, 2, 2], vec![3, 1, 4, 5], vec![MODELS.len(), T_AND_BC.len(), 3, 8, 3, 3, 2, 4], vec![7]] {
        let rows = cover(&levels);
        for (f, &f_levels) in levels.iter().enumerate() {
            for (g, &g_levels) in levels.iter().enumerate().skip(f + 1) {
                for (v, w) in (0..f_levels).flat_map(|v| (0..g_levels).map(move |w| (v, w))) {
                    assert!(rows.iter().any(|row| row[f] == v && row[g] == w), "{f}={v} never meets {g}={w}");
                }
            }
        }
        assert!(rows.iter().all(|row| row.iter().zip(&levels).all(|(value, levels)| value < levels)));
        let mut largest = levels.clone();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let least = largest.iter().take(2).product::<usize>();
        assert!(rows.len() <= 2 * least, "{} rows, where {least} are needed", rows.len());
    }
}
