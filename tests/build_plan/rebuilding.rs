//! What is compiled again when something changes, and what is not.

use std::fs;
use std::time::{Duration, SystemTime};

use crate::parts::table;
use crate::workplace::{VERSION, Workplace};

fn build(place: &Workplace) -> Vec<String> {
    let plan = place.build().expect("it compiles");
    table::write(&place.settings.out, &plan.built).expect("out can be written to");
    place.compiled()
}

#[test]
fn only_what_changed_is_compiled_again() {
    let mut place = Workplace::new("rebuilding", &["gfx1151", "gfx1100"]);
    let program = place.compiler("bin/clang++-19", VERSION, "");
    let (all, none) = (["gfx1100", "gfx1151"], [""; 0]);
    assert_eq!(build(&place), all, "the first time");
    assert_eq!(build(&place), none, "nothing changed");

    place.settings.archs = Some("gfx1151".to_owned());
    assert_eq!(build(&place), none, "one target less");
    place.settings.archs = Some("gfx1153;gfx1151".to_owned());
    assert_eq!(build(&place), ["gfx1153"], "one target more");
    place.settings.archs = None;
    assert_eq!(build(&place), none, "the list of before: its objects are still there");

    for name in ["root/gpu/abi.h", "root/gpu/arithmetic.h", "root/hip/wave32.h", "root/hip/ssm_update.hip"] {
        let text = fs::read(place.path(name)).expect("it is there");
        place.write(name, &[&text[..], b"\n"].concat());
        assert_eq!(build(&place), all, "{name} changed");
        assert_eq!(build(&place), none, "nothing changed since");
    }
    for folder in ["hip", "gpu"] {
        place.write(&format!("root/{folder}/new.h"), b"");
        assert_eq!(build(&place), all, "a new header in {folder}/");
        place.write(&format!("root/{folder}/notes.md"), b"");
        assert_eq!(build(&place), none, "not a source in {folder}/");
    }

    let object = place.path("out/gfx1100.co");
    let good = fs::read(&object).expect("it was written");
    for bad in [&b"damaged"[..], &good[..good.len() - 1]] {
        fs::write(&object, bad).expect("it can be written to");
        assert_eq!(build(&place), ["gfx1100"], "the object is damaged");
        assert_eq!(fs::read(&object).expect("it was written"), good);
    }
    fs::remove_file(&object).expect("it is there");
    assert_eq!(build(&place), ["gfx1100"], "the object is gone");

    let file = fs::File::open(&program).expect("it is there");
    file.set_modified(SystemTime::now() + Duration::from_secs(60)).expect("it is ours");
    assert_eq!(build(&place), all, "the compiler was installed again");
    place.compiler("bin/clang++-19", "Test clang version 19.1.8", "");
    assert_eq!(build(&place), all, "another version of the compiler");
    place.compiler("bin/clang++-22", "Test clang version 22.1.8", "");
    assert_eq!(build(&place), all, "another compiler");
}

/// Cargo is told of exactly what the result depends on.
#[test]
fn the_inputs_are_those_that_were_used() {
    let mut place = Workplace::new("inputs", &["gfx1151"]);
    place.fill_prebuilt(VERSION);
    let [gpu, hip, prebuilt] = ["gpu", "hip", "prebuilt"].map(|name| place.path(&format!("root/{name}")));
    assert_eq!(place.build().expect("prebuilt").inputs, [gpu.clone(), hip.clone(), prebuilt]);
    let program = place.compiler("bin/clang++-19", VERSION, "");
    assert_eq!(place.build().expect("compiled").inputs, [gpu, hip, program]);
    place.settings.target_os = "macos".to_owned();
    assert_eq!(place.build().expect("absent").inputs, [place.path("root/build.rs")]);
}

/// An object that was kept is checked like one that was made: the list of kernels may have changed since.
#[test]
fn what_is_kept_is_checked() {
    let place = Workplace::new("kept", &["gfx1151"]);
    place.compiler("bin/clang++-19", VERSION, "");
    build(&place);
    let stamp = fs::read_to_string(place.path("out/gfx1151.stamp")).expect("it was written");
    let (key, _) = stamp.split_once(' ').expect("key and hash");
    let wrong = b"not a code object";
    place.write("out/gfx1151.co", wrong);
    place.write("out/gfx1151.stamp", format!("{key} {}\n", crate::parts::files::sha256(wrong)).as_bytes());
    assert!(place.failure().contains("is refused: not a code object"));
}

/// Whatever the line ends of a checkout are, the sources are the same; anything else makes them others, a name and a folder too.
#[test]
fn line_ends_do_not_count() {
    let place = Workplace::new("lines", &["gfx1151"]);
    let hash = place.sources().sha256;
    for (name, others) in [
        ("root/hip/wave32.h", ["root/hip/wave33.h", "root/gpu/wave32.h"]),
        ("root/gpu/abi.h", ["root/gpu/abj.h", "root/hip/abi.h"]),
    ] {
        let text = fs::read_to_string(place.path(name)).expect("it is there");
        place.write(name, text.replace('\n', "\r\n").as_bytes());
        assert_eq!(place.sources().sha256, hash, "{name}");
        place.write(name, text.replace('\n', " \n").as_bytes());
        assert_ne!(place.sources().sha256, hash, "{name}");
        place.write(name, text.as_bytes());
        assert_eq!(place.sources().sha256, hash, "{name}");
        for other in others {
            fs::rename(place.path(name), place.path(other)).expect("it is there");
            assert_ne!(place.sources().sha256, hash, "{name} as {other}");
            fs::rename(place.path(other), place.path(name)).expect("it is there");
            assert_eq!(place.sources().sha256, hash, "{name}");
        }
    }
}
