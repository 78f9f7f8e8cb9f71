//! A case on every port under test, and lists of cases.

use rayon::prelude::*;

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
            let Some(outcome) = run_checked(&*subject.kernel, fixture, level) else { continue };
            let outcome = outcome.map_err(told)?;
            match first_of_group.iter().find(|(group, _)| *group == subject.group) {
                Some((_, first)) => {
                    if !outcome.y.same_bits(&first.y) || !outcome.state_after().same_bits(first.state_after()) {
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
    let failures: Vec<String> = cases.par_iter().filter_map(|case| check_case(case).err()).collect();
    println!("{what}: {} cases", cases.len());
    if !failures.is_empty() {
        let shown = failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
        panic!("{what}: {} of {} cases failed, the first of them:\n{shown}", failures.len(), cases.len());
    }
}
