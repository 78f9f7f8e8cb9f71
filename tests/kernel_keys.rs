//! Every tensor's dtype decides which kernel runs or is told to it: no two combinations of dtypes look the same to the device.
//! A key that lacks one would run a kernel on data of another width, and nothing would say so.
#![cfg(feature = "rocm")]

#[path = "common/addresses.rs"]
mod addresses;
#[path = "common/dtypes.rs"]
mod dtypes;

use std::collections::HashMap;

use addresses::addresses;
use dtypes::{combinations, place_of_each_tensor, places};
use ssm_update::ports::rocm::plan::Plan;
use ssm_update::ports::rocm::{BUILT, variant};
use ssm_update::{Dims, Dtype, Dtypes, Pointers, Problem, validate};

/// Kernels of one code object. Whoever adds a dtype or a class of d_state changes it here, and looks at the size budget, the
/// docs and the tests that go with it.
const KERNELS: usize = 35;

/// What the device gets to know of the dtypes: which kernel, and the tags in the parameters.
type Seen = (usize, [u8; 4]);

/// Plans a small step with every optional tensor, and gives what the device sees of the dtypes.
fn seen(dtypes: Dtypes, d_state: usize) -> (Plan, Seen) {
    let dims = Dims { batch: 2, heads: 6, head_dim: 5, groups: 3, d_state, slots: 4 };
    let launch = validate(&Problem::contiguous(dims, dtypes), &addresses()).expect("a legal combination");
    let plan = Plan::new(&launch).expect("a small step");
    let params = plan.params;
    (plan, (plan.kernel, [params.dt_dtype, params.a_log_dtype, params.d_dtype, params.dt_bias_dtype]))
}

/// Two combinations that look the same through `see`.
fn confused(combinations: &[Dtypes], see: impl Fn(&Seen) -> Seen) -> Option<(Dtypes, Dtypes)> {
    let mut first: HashMap<Seen, Dtypes> = HashMap::new();
    combinations.iter().find_map(|&dtypes| first.insert(see(&seen(dtypes, 128).1), dtypes).map(|other| (other, dtypes)))
}

#[test]
fn ssm_update_kernel_keys_hold_every_dtype() {
    let all = combinations();
    assert_eq!(all.len(), 5 * 3_usize.pow(5), "T with B and C, and five dtypes of their own");
    assert_eq!(confused(&all, |seen| *seen), None);
    for (tensor, place) in place_of_each_tensor(Pointers::NULL) {
        let Some(place) = place else { continue };
        // Each place really varies, and with it what the device sees: x and B and C only together, where one follows the other.
        let values: Vec<Dtype> = all
            .iter()
            .filter_map(|&dtypes| places(dtypes).into_iter().find(|(name, _)| *name == place).map(|(_, dtype)| dtype))
            .collect();
        assert!(Dtype::ALL.iter().all(|dtype| values.contains(dtype)), "{tensor}: its dtype has a place, {place}");
    }
}

#[test]
fn ssm_update_kernel_keys_without_a_part_are_found_out() {
    let all = combinations();
    // A key without one of the tags, and one without the kernel.
    for tag in 0..4 {
        let without = confused(&all, |&(kernel, mut tags)| {
            tags[tag] = 0;
            (kernel, tags)
        });
        assert!(without.is_some(), "tag {tag}");
    }
    assert!(confused(&all, |&(_, tags)| (0, tags)).is_some());
    // A kernel chosen by the width of the state instead of its dtype.
    let by_width = |&(kernel, tags): &Seen| {
        let name = variant::names()[kernel].replace("_bf16_k", "_f16_k");
        (variant::names().iter().position(|other| *other == name).expect("it exists"), tags)
    };
    assert!(confused(&all, by_width).is_some());
}

#[test]
fn ssm_update_kernel_keys_name_the_kernel_they_choose() {
    for dtypes in combinations() {
        for d_state in (16..=512).step_by(16) {
            let (plan, (kernel, _)) = seen(dtypes, d_state);
            let name = &variant::names()[kernel];
            let prefix = format!("ssm_update_{}_{}_{}_k", dtypes.x, dtypes.bc, dtypes.state);
            let chunks: u32 = name.strip_prefix(&prefix).expect("the dtypes' kernel").parse().expect("a number");
            // The lanes of a row, with their pieces, cover its columns, and no smaller variant would.
            let row = (dtypes.state.size() * d_state) as u32;
            let lanes = 1 << plan.params.row_lanes_log2;
            assert!(lanes <= 32 && lanes * chunks * 16 >= row, "{name}, d_state {d_state}");
            let smaller = variant::STATES.iter().find(|(state, _)| *state == dtypes.state.name()).expect("a state");
            let smaller = smaller.1.iter().rfind(|&&other| other < chunks);
            assert!(smaller.is_none_or(|&other| 32 * other * 16 < row), "{name}, d_state {d_state}");
        }
    }
}

/// The pin on the number of kernels.
fn check_pin(names: &[String]) -> Result<(), String> {
    let distinct: std::collections::HashSet<&String> = names.iter().collect();
    match names.len() {
        KERNELS if distinct.len() == KERNELS => Ok(()),
        count => Err(format!("{count} kernels, {} of them distinct; {KERNELS} are in scope", distinct.len())),
    }
}

#[test]
fn ssm_update_kernel_keys_are_as_many_as_pinned() {
    assert_eq!(check_pin(&variant::names()), Ok(()));
    for image in BUILT.images {
        let on_board: Vec<String> = image.kernels.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(check_pin(&on_board), Ok(()), "{}", image.target);
    }
    // One more, one less, one twice.
    let names = variant::names();
    assert!(check_pin(&[names.clone(), vec!["another".to_owned()]].concat()).is_err());
    assert!(check_pin(&names[1..]).is_err());
    assert!(check_pin(&[&names[1..], &names[1..2]].concat()).is_err());
}
