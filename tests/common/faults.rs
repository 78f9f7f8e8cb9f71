//! Faults of a driver's calls: each call of a good run fails in turn, in every way that the test's table of codes has.

use std::fmt;

use ssm_update::{Dtype, Dtypes, Error, Kernel, Launch, Problem, validate};

use super::addresses::addresses;
use super::case::{Case, Slots, StateMode};
use super::fixture::Fixture;
use super::log::take_warnings;
use super::run::slices;
use super::scripting::{Base, Call};

/// What a driver answers to everything once a kernel has faulted, and a part of the advice that comes with it.
const DEVICE_LOST: (i32, &str) = (719, "start the process anew");

/// A call that fails, and how.
#[derive(Clone, Copy)]
pub struct Fault<'a> {
    /// The call of the good run.
    pub call: &'a Call,
    /// What it returns.
    pub code: i32,
    /// A part of the advice that comes with the code; empty where there is none.
    pub advice: &'static str,
    /// All calls after it fail too.
    pub lasting: bool,
}

impl fmt::Debug for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call: Call { function, arguments, text, .. }, code, lasting, .. } = self;
        let lasting = if *lasting { " and all after it" } else { "" };
        write!(f, "{function}({arguments:?} {text}) returns {code}{lasting}")
    }
}

/// Each call of a good run with each of its codes, and each with a device that is lost from then on. Gives the number of faults.
///
/// `codes` has those of a call, with a part of the advice for each.
pub fn each_fault(
    good: &[Call],
    codes: impl Fn(&Call) -> Vec<(i32, &'static str)>,
    mut test: impl FnMut(usize, Fault<'_>),
) -> usize {
    let mut count = 0;
    for (number, call) in (1..).zip(good) {
        for (code, advice) in codes(call) {
            test(number, Fault { call, code, advice, lasting: false });
            count += 1;
        }
        let (code, advice) = DEVICE_LOST;
        test(number, Fault { call, code, advice, lasting: true });
        count += 1;
    }
    count
}

/// Makes the call of this number fail, counted from now on.
pub fn arm(script: &Base, number: usize, fault: Fault<'_>) {
    script.forget();
    take_warnings();
    if fault.lasting {
        script.fail_from(number, fault.code);
    } else {
        script.fail(None, number, fault.code);
    }
}

/// Steps that use everything there is: all optional tensors, slots, gaps, 16 bits; in place; state only read.
pub fn step_cases() -> [Case; 3] {
    let dtypes =
        Dtypes { x: Dtype::Bf16, bc: Dtype::Bf16, dt: Dtype::F16, state: Dtype::F16, ..Dtypes::uniform(Dtype::F32) };
    let out_of_place = Case { dtypes, gap: 3, ..Case::new(3, 4, 5, 2, 48).slots(Slots::Moved) };
    let in_place = Case { state: StateMode::InPlace, ..Case::new(2, 3, 4, 1, 16).slots(Slots::Permuted) };
    [out_of_place, in_place, Case { state: StateMode::ReadOnly, ..Case::new(2, 2, 3, 1, 32) }]
}

/// A launch that takes two calls, since its batch is larger than a grid.
pub fn large_launch() -> Launch {
    let case = Case::new(70_000, 2, 3, 1, 16);
    validate(&Problem::contiguous(case.dims, case.dtypes), &addresses()).expect("a legal launch")
}

/// A step in memory that does not suffice, for each number of bytes that is too small: an error that says so, nothing written and
/// nothing kept.
pub fn assert_lack_of_memory_is_told(script: &Base, kernel: &dyn Kernel) {
    let before = Fixture::new(&step_cases()[0]);
    let mut after = before.clone();
    let mut limits = 0;
    // A little more each time than what was enough for one more allocation, until it is enough for all.
    for bytes in (0..).step_by(64) {
        script.forget();
        script.set_memory(bytes);
        match kernel.step(slices(&mut after)) {
            Ok(()) => break,
            Err(error) => {
                assert!(matches!(&error, Error::Driver(error) if error.code == 2), "{error}");
                assert!(error.to_string().contains("smaller pool"), "{error}");
                assert_eq!(after.any_write(&before), None);
                assert_eq!(script.live_allocations(), 0, "{bytes} bytes");
                limits += 1;
            }
        }
    }
    assert!(limits > 20, "{limits} limits were too small");
}
