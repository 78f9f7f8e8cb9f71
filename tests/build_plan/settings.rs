//! The environment's values.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::environment;
use crate::parts::settings::{Settings, Variables};

fn variables() -> Variables {
    Variables { root: Some("/crate".into()), out: Some("/out".into()), ..Variables::default() }
}

fn refused(variables: Variables) -> String {
    Settings::parse(variables).expect_err("a bad value").to_string()
}

#[test]
fn empty_counts_as_unset() {
    let empty = || Some(OsString::new());
    let with = Variables {
        hipcc: empty(),
        rocm_path: empty(),
        archs: empty(),
        require_hipcc: empty(),
        jobs: empty(),
        ..variables()
    };
    let settings = Settings::parse(with).expect("nothing is set");
    assert_eq!((settings.search.hipcc, settings.search.rocm_path, settings.archs), (None, None, None));
    assert_eq!((settings.require_hipcc, settings.docs_rs, settings.jobs), (false, false, 1));
}

#[test]
fn requiring_a_compiler_is_0_or_1() {
    for (value, required) in [("0", false), ("1", true)] {
        let with = Variables { require_hipcc: Some(value.into()), ..variables() };
        assert_eq!(Settings::parse(with).expect(value).require_hipcc, required);
    }
    for value in ["yes", "2", "true", " 1"] {
        let failure = refused(Variables { require_hipcc: Some(value.into()), ..variables() });
        assert_eq!(failure, format!("SSM_UPDATE_REQUIRE_HIPCC is {value:?}, expected 0, 1 or nothing"));
    }
}

#[test]
fn other_values_are_refused_by_name() {
    let raw = || Some(OsString::from_vec(vec![0xff]));
    assert!(refused(Variables { archs: raw(), ..variables() }).starts_with("SSM_UPDATE_ARCHS is "));
    assert!(refused(Variables { jobs: Some("many".into()), ..variables() }).starts_with("NUM_JOBS is \"many\""));
    assert!(refused(Variables { out: None, ..variables() }).starts_with("OUT_DIR is "));
}

/// The compiler runs in another folder, where a relative path would name something else.
#[test]
fn paths_become_absolute() {
    let with = Variables {
        hipcc: Some("tools/hipcc".into()),
        rocm_path: Some("rocm".into()),
        path: Some("bin:/usr/bin".into()),
        ..variables()
    };
    let search = Settings::parse(with).expect("good values").search;
    assert_eq!(search.hipcc, Some(PathBuf::from("/crate/tools/hipcc")));
    assert_eq!(search.rocm_path, Some(PathBuf::from("/crate/rocm")));
    assert_eq!(search.path, [PathBuf::from("/crate/bin"), PathBuf::from("/usr/bin")]);
    let with = Variables { hipcc: Some("hipcc".into()), ..variables() };
    assert_eq!(Settings::parse(with).expect("a name").search.hipcc, Some(PathBuf::from("hipcc")));
}

/// Every variable that people set is declared to Cargo.
#[test]
fn what_is_read_is_declared() {
    use std::sync::Mutex;
    static DECLARED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    environment::read(|name| DECLARED.lock().expect("no panic").push(name.to_owned()));
    let expected = ["HIPCC", "ROCM_PATH", "PATH", "SSM_UPDATE_ARCHS", "SSM_UPDATE_REQUIRE_HIPCC", "DOCS_RS"];
    assert_eq!(*DECLARED.lock().expect("no panic"), expected);
}
