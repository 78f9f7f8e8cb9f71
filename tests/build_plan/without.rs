//! Machines without a compiler, and systems without ROCm.

use std::fs;

use crate::parts::files;
use crate::parts::table::Source;
use crate::workplace::{VERSION, Workplace, committed_object, replaced};

fn without(test: &str) -> Workplace {
    let place = Workplace::new(test, &["gfx1151", "gfx1100"]);
    place.fill_prebuilt("Some clang version 22");
    place
}

#[test]
fn the_committed_objects_are_taken_aloud() {
    let place = without("taken");
    place.script("bin/hipcc", "exit 1");
    let plan = place.build().expect("prebuilt/ is good");
    let places = [
        "rocm/bin/hipcc: not there",
        "hipcc on PATH: --version fails (exit status: 1): without a word",
        "amdclang++ on PATH: not there",
        "clang++-N on PATH, N from 18: not there",
        "clang++ on PATH: not there",
    ];
    let Source::Prebuilt(why) = &plan.built.source else { panic!("{:?}", plan.built.source) };
    let [warning] = &plan.warnings[..] else { panic!("one warning, not {:?}", plan.warnings) };
    for place in places {
        assert!(why.contains(place) && warning.contains(place), "{place:?} is missing in {warning}");
    }
    assert!(!warning.contains('\n') && warning.contains("for gfx1151 alone"), "{warning}");
    assert_eq!(plan.built.images[0].bytes, committed_object());
    assert_eq!(plan.built.images[0].origin.compiler, "Some clang version 22");
    assert_eq!(plan.built.passed_over, [("gfx1100".to_owned(), "prebuilt/ does not have it".to_owned())]);
}

#[test]
fn requiring_a_compiler_makes_its_absence_an_error() {
    let mut place = without("required");
    place.settings.require_hipcc = true;
    let failure = place.failure();
    for part in [
        "SSM_UPDATE_REQUIRE_HIPCC=1",
        "\n  hipcc on PATH: not there\n",
        "What helps: install ROCm",
        "clang-19 and lld-19",
    ] {
        assert!(failure.contains(part), "{part:?} is missing in: {failure}");
    }
    place.compiler("bin/clang++-19", VERSION, "");
    place.build().expect("a compiler is there");
}

#[test]
fn a_target_that_is_not_committed_is_an_error() {
    let mut place = without("uncommitted");
    place.settings.archs = Some("gfx1151;gfx1100".to_owned());
    let failure = place.failure();
    assert!(failure.contains("SSM_UPDATE_ARCHS asks for gfx1100, which prebuilt/ does not have"), "{failure}");
    assert!(failure.contains("\n  clang++ on PATH: not there\n"), "{failure}");
    place.settings.archs = Some("gfx1151".to_owned());
    assert_eq!(place.build().expect("this one is committed").built.passed_over, []);
}

/// Whoever changed the kernel must not get the one from before.
#[test]
fn changed_sources_are_an_error() {
    let place = without("changed");
    let kernel = fs::read(place.path("root/hip/ssm_update.hip")).expect("it is there");
    place.write("root/hip/ssm_update.hip", &[&kernel[..], b"//\n"].concat());
    let failure = place.failure();
    for part in
        ["are not those that prebuilt/ was made from", "no compiler for the HIP kernel was found", "Undo the change"]
    {
        assert!(failure.contains(part), "{part:?} is missing in: {failure}");
    }
}

/// Each damage, and a part of the message; the file is always named.
#[test]
fn damaged_files_are_refused() {
    let bundle = "root/prebuilt/ssm_update-gfx1151.hipfb";
    let manifest = "root/prebuilt/manifest.toml";
    let edit = |name: &str, file: &str, change: Change<'_>, reason: &str| {
        let place = without(&format!("damaged-{name}"));
        let bytes = fs::read(place.path(file)).expect("it is there");
        place.write(file, &change(bytes));
        let failure = place.failure();
        assert!(failure.contains(file) && failure.contains(reason), "{name}: {failure}");
    };
    let text = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("text");
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1).into_bytes()
        }
    };
    edit(
        "flipped",
        bundle,
        &|mut bytes| {
            bytes[100_000] ^= 1;
            bytes
        },
        "the bundle has the SHA-256",
    );
    edit("truncated", bundle, &|bytes| bytes[..100_000].to_vec(), "the bundle has 100000 bytes");
    edit("empty", bundle, &|_| Vec::new(), "the bundle has 0 bytes");
    edit("no-toml", manifest, &|_| b"sources = ".to_vec(), "TOML parse error");
    edit("missing-key", manifest, &text("compiler = ", "# compiler = "), "the manifest has no compiler");
    edit("unknown-key", manifest, &text("flags = ", "more = 1\nflags = "), "has a key \"more\"");
    edit("no-bundle", manifest, &text("[[bundle]]", "[bundle]"), "bundle is no list of tables");
    edit(
        "no-number",
        manifest,
        &text("bundle_bytes = ", "bundle_bytes = -"),
        "bundle_bytes of a bundle is no whole number",
    );
    edit("no-text", manifest, &text("compiler = \"", "compiler = 1 #"), "compiler of the manifest is no text");

    let place = without("damaged-gone");
    fs::remove_file(place.path(bundle)).expect("it is there");
    assert!(place.failure().contains(bundle), "{}", place.failure());
    fs::remove_file(place.path(manifest)).expect("it is there");
    assert!(place.failure().contains(manifest), "{}", place.failure());
}

/// What happens to a file.
type Change<'a> = &'a dyn Fn(Vec<u8>) -> Vec<u8>;

/// A bundle whose hash is right may still hold the wrong thing, if the manifest was made from it.
#[test]
fn the_committed_objects_are_checked_too() {
    let wavefront = |lanes: u8| [&b".wavefront_size"[..], &[lanes]].concat();
    let wave64 = |bytes: Vec<u8>| replaced(&bytes, &wavefront(32), &wavefront(64));
    // The machine's number, 0x1000 for the bundle's own header into the file.
    let machine = |mut bytes: Vec<u8>| {
        bytes[0x1000 + 48] = 0x41;
        bytes
    };
    let entry = |bytes: Vec<u8>| replaced(&bytes, b"gfx1151", b"gfx1150");
    let cases: [(_, Change<'_>, _); 3] = [
        ("wave64", &wave64, "has waves of 64 lanes"),
        ("machine", &machine, "made for gfx1100, not for gfx1151"),
        ("entry", &entry, "the bundle has no code object for gfx1151"),
    ];
    for (name, change, reason) in cases {
        let place = without(&format!("wrong-{name}"));
        let file = "root/prebuilt/ssm_update-gfx1151.hipfb";
        let before = fs::read(place.path(file)).expect("it is there");
        let after = change(before.clone());
        let object = |bundle: &[u8]| files::sha256(&bundle[0x1000..]);
        let manifest = fs::read_to_string(place.path("root/prebuilt/manifest.toml")).expect("it is there");
        let manifest = manifest.replace(&files::sha256(&before), &files::sha256(&after));
        let manifest = manifest.replace(&object(&before), &object(&after));
        place.write(file, &after);
        place.write("root/prebuilt/manifest.toml", manifest.as_bytes());
        let failure = place.failure();
        assert!(failure.contains(reason) && failure.contains(file), "{name}: {failure}");
    }
}

#[test]
fn documentation_needs_no_compiler() {
    let mut place = without("docs");
    place.compiler("bin/clang++-19", VERSION, "");
    place.settings.docs_rs = true;
    let plan = place.build().expect("prebuilt/ is good");
    assert_eq!(plan.built.source, Source::Prebuilt("this is a build of the documentation".to_owned()));
    assert!(!place.path("log").exists(), "nothing was run");
    assert_eq!(plan.warnings, [""; 0]);
}

#[test]
fn systems_without_rocm_get_nothing() {
    let mut place = without("macos");
    for (system, there) in [("linux", true), ("windows", true), ("macos", false), ("freebsd", false), ("", false)] {
        place.settings.target_os = system.to_owned();
        let built = place.build().expect("nothing can fail").built;
        assert_eq!(!built.images.is_empty(), there, "{system}");
        if !there {
            let why = format!("ROCm exists for linux and windows, and this was built for {system}");
            assert_eq!(built.source, Source::Absent(why));
        }
    }
}
