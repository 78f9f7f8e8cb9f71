//! `prebuilt/` comes from `hip/` and `gpu/`: what `make verify-prebuilt` proves, on the repository and on copies with one thing changed.

use std::fs;

use crate::environment;
use crate::parts::failure::Failure;
use crate::parts::remake::{Verified, make, verify};
use crate::parts::settings::{Settings, Variables};
use crate::workplace::{VERSION, Workplace, repository};

#[test]
fn the_committed_binaries_come_from_the_sources() {
    let out = Workplace::new("committed", &["gfx1151"]).path("out");
    let variables = Variables { root: Some(repository().into()), out: Some(out.into()), ..environment::read(|_| ()) };
    let verified = Settings::parse(variables).and_then(|settings| verify(&settings));
    match verified.unwrap_or_else(|failure| panic!("{failure}")) {
        Verified::Reproduced(compiler) => println!("prebuilt/: {compiler} makes the same bytes"),
        Verified::HashesOnly(compiler) => {
            println!("prebuilt/: hashes agree; NOT COMPILED AGAIN ({compiler} is not installed)")
        }
    }
}

/// A copy with binaries that its compiler makes. The script bundles what it is asked to bundle.
fn copy(test: &str) -> Workplace {
    let mut place = Workplace::new(test, &["gfx1151"]);
    place.fill_prebuilt(VERSION);
    let bundle = repository().join("prebuilt/ssm_update-gfx1151.hipfb");
    let body = format!("case $* in *' --gpu-bundle-output '*) cp '{}' $out; exit 0 ;; esac", bundle.display());
    place.settings.search.hipcc = Some(place.compiler("bin/clang", VERSION, &body));
    place
}

fn wrong(verified: Result<Verified, Failure>) -> String {
    verified.expect_err("something was changed").to_string()
}

#[test]
fn what_was_made_is_verified() {
    let place = copy("made");
    let before = fs::read(place.path("root/prebuilt/manifest.toml")).expect("it is there");
    fs::remove_dir_all(place.path("root/prebuilt")).expect("it is there");
    let manifest = make(&place.settings).expect("the compiler is good");
    assert_eq!(manifest.render().into_bytes(), before);
    assert_eq!(fs::read(place.path("root/prebuilt/manifest.toml")).expect("it was written"), before);
    let Verified::Reproduced(by) = verify(&place.settings).expect("nothing was changed") else {
        panic!("its compiler is there")
    };
    assert!(by.contains(VERSION), "{by}");
}

#[test]
fn a_changed_byte_is_found() {
    let place = copy("source-byte");
    let mut kernel = fs::read(place.path("root/hip/ssm_update.hip")).expect("it is there");
    kernel[100] ^= 1;
    place.write("root/hip/ssm_update.hip", &kernel);
    let why = wrong(verify(&place.settings));
    assert!(why.contains("manifest.toml: made from sources with the hash"), "{why}");
    assert!(why.contains("make prebuilt"), "{why}");

    let place = copy("bundle-byte");
    let file = "root/prebuilt/ssm_update-gfx1151.hipfb";
    let mut bundle = fs::read(place.path(file)).expect("it is there");
    bundle[150_000] ^= 1;
    place.write(file, &bundle);
    let why = wrong(verify(&place.settings));
    assert!(why.contains(file) && why.contains("the bundle has the SHA-256"), "{why}");
}

/// Hashes that agree among themselves are no proof: the compiler has to make the same bytes.
#[test]
fn other_bytes_of_the_same_compiler_are_found() {
    let place = copy("other-bytes");
    let body = |change: &str| {
        let bundle = repository().join("prebuilt/ssm_update-gfx1151.hipfb");
        // One byte of the first kernel's code is different, in the bundle, the object, or both.
        format!(
            "case $* in *' --gpu-bundle-output '*) cp '{}' $out; at=4096 ;; \
             *) cp '{}'/$target.co $out; at=0 ;; esac\n{change}\nexit 0",
            bundle.display(),
            place.path("objects").display()
        )
    };
    let flip = "printf x | dd of=$out bs=1 seek=$((at + 150000)) conv=notrunc 2>/dev/null";
    place.compiler("bin/clang", VERSION, &body(flip));
    let why = wrong(verify(&place.settings));
    assert!(why.contains("hipfb") && why.contains("makes other bytes from the same sources"), "{why}");

    fs::remove_dir_all(place.path("out")).expect("it is there");
    place.compiler("bin/clang", VERSION, &body(&format!("[ $at = 0 ] || {flip}")));
    let why = wrong(verify(&place.settings));
    assert!(why.contains("puts another code object into a bundle than it makes alone"), "{why}");
}

#[test]
fn without_its_compiler_the_hashes_are_compared() {
    let mut place = copy("absent");
    place.compiler("bin/clang", "Test clang version 19.1.8", "");
    assert_eq!(verify(&place.settings).expect("the hashes agree"), Verified::HashesOnly(VERSION.to_owned()));
    place.settings.require_hipcc = true;
    let why = wrong(verify(&place.settings));
    assert!(why.contains(&format!("prebuilt/ was made by {VERSION}, which is not among the compilers found")), "{why}");
    assert!(why.contains("SSM_UPDATE_REQUIRE_HIPCC=1"), "{why}");
}

#[test]
fn other_flags_and_other_targets_are_found() {
    for (test, from, to, reason) in [
        ("flags", " -O3 ", " -O2 ", "the build uses"),
        ("target", "target = \"gfx1151\"", "target = \"gfx1150\"", "[\"gfx1151\"] are committed"),
    ] {
        let place = copy(&format!("manifest-{test}"));
        let manifest = fs::read_to_string(place.path("root/prebuilt/manifest.toml")).expect("it is there");
        assert!(manifest.contains(from));
        place.write("root/prebuilt/manifest.toml", manifest.replace(from, to).as_bytes());
        let why = wrong(verify(&place.settings));
        assert!(why.contains(reason), "{why}");
    }
}

/// The compiler of the committed binaries is named; another one only on request.
#[test]
fn making_them_needs_that_compiler() {
    let mut place = copy("maker");
    place.settings.search.hipcc = None;
    let failure = make(&place.settings).expect_err("there is no such compiler here").to_string();
    assert!(failure.contains("clang++-22") && failure.contains("not on PATH"), "{failure}");
    place.compiler("bin/clang++-22", VERSION, "exit 1");
    let failure = make(&place.settings).expect_err("it does not work").to_string();
    assert!(failure.contains("fails to compile a small kernel"), "{failure}");
}
