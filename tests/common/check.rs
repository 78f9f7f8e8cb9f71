//! A case on every port under test, and lists of cases.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::case::Case;
use super::expect::Expected;
use super::fixture::Fixture;
use super::ports;
use super::run::{Level, run_checked};

/// Runs a fixture on every kernel at every level, holds the results to the reference, and asks for the same bits at
/// each level and from each kernel of one group.
///
/// # Errors
///
/// Kernel, level and what was wrong.
pub fn check_fixture(fixture: &Fixture) -> Result<(), String> {
    let expected = Expected::of(fixture);
    let mut first_of_group: Vec<(&str, Fixture)> = Vec::new();
    for subject in &ports::under_test().subjects {
        for level in Level::ALL {
            let told = |why: String| format!("{} at {level:?}: {why}\n  {:?}", subject.label, fixture.case);
            let outcome = run_checked(&*subject.kernel, fixture, level).map_err(told)?;
            match first_of_group.iter().find(|(group, _)| *group == subject.group) {
                Some((_, first)) => {
                    if !outcome.same_results(first) {
                        return Err(told("not the bits of the first run in its group".to_owned()));
                    }
                }
                None => {
                    expected.check(&outcome).map_err(told)?;
                    first_of_group.push((&subject.group, outcome));
                }
            }
        }
    }
    Ok(())
}

/// [`check_fixture`] on a case's own data.
///
/// # Errors
///
/// As [`check_fixture`].
pub fn check_case(case: &Case) -> Result<(), String> {
    check_fixture(&Fixture::new(case))
}

/// Checks every case of a list on all processors and says how many there were.
///
/// # Panics
///
/// When a case fails, with the first few that did.
pub fn check_cases(what: &str, cases: &[Case]) {
    ports::under_test();
    // Threads of our own: a worker of rayon that waits for a kernel's pool begins another case meanwhile, and another, and
    // the largest of them would all be in memory at once.
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = check_case(case) {
                        failures.lock().expect("no thread panics with it").push(why);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no thread panics with it");
    println!("{what}: {} cases", cases.len());
    if !failures.is_empty() {
        let shown = failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
        panic!("{what}: {} of {} cases failed, the first of them:\n{shown}", failures.len(), cases.len());
    }
}
