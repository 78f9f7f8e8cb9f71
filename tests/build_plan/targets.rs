//! The list of architectures.

use crate::parts::targets::targets;
use crate::workplace::repository;

const LISTED: &str = "# a comment\n\n gfx1151 \ngfx1030\n";

fn names(archs: Option<&str>) -> Vec<String> {
    targets(LISTED, archs).expect("a good list").names
}

#[test]
fn the_list_is_the_files_or_the_variables() {
    assert_eq!(names(None), ["gfx1151", "gfx1030"]);
    assert!(!targets(LISTED, None).expect("a good list").asked);
    assert_eq!(names(Some("gfx1100")), ["gfx1100"]);
    assert!(targets(LISTED, Some("gfx1100")).expect("a good list").asked);
    assert_eq!(names(Some("gfx1100;gfx1151, gfx1100")), ["gfx1100", "gfx1151"]);
}

#[test]
fn a_bad_name_is_refused_with_its_reason() {
    for (archs, item, reason) in [
        ("gfx1151;gfx11x1", "\"gfx11x1\"", "is no name of an architecture"),
        ("sm_90", "\"sm_90\"", "is no name of an architecture"),
        ("GFX1151", "\"GFX1151\"", "is no name of an architecture"),
        ("gfx", "\"gfx\"", "is no name of an architecture"),
        ("gfx\u{e9}\u{e9}", "\"gfx\u{e9}\u{e9}\"", "is no name of an architecture"),
        ("gfx11-generic", "\"gfx11-generic\"", "is no name of an architecture"),
        ("gfx1151 gfx1100", "\"gfx1151 gfx1100\"", "is no name of an architecture"),
        ("gfx1151:xnack+", "\"gfx1151:xnack+\"", "names features"),
        ("gfx1151;;gfx1100", "\"\"", "is an empty entry"),
        ("gfx1151;", "\"\"", "is an empty entry"),
        (",", "\"\"", "is an empty entry"),
        ("gfx90a", "\"gfx90a\"", "runs waves of 64 lanes"),
        ("gfx1151,gfx942", "\"gfx942\"", "runs waves of 64 lanes"),
        ("gfx803", "\"gfx803\"", "runs waves of 64 lanes"),
        ("gfx1999", "\"gfx1999\"", "is not known to this version"),
    ] {
        let failure = targets(LISTED, Some(archs)).expect_err(archs).to_string();
        assert!(failure.starts_with(&format!("SSM_UPDATE_ARCHS: {item} {reason}")), "{archs}: {failure}");
    }
    let failure = targets("gfx1151\ngfx90a\n", None).expect_err("waves of 64").to_string();
    assert!(failure.starts_with("hip/targets.txt: \"gfx90a\" runs waves of 64 lanes"), "{failure}");
    assert!(targets("# nothing\n", None).is_err());
}

#[test]
fn the_committed_list_is_good() {
    let text = std::fs::read_to_string(repository().join("hip/targets.txt")).expect("it is there");
    assert_eq!(targets(&text, None).expect("every line is an architecture").names[0], "gfx1151");
}
