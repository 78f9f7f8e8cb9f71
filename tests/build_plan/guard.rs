//! What the build refuses to ship, whatever the compiler says: layer 3 of the guard against waves of 64 lanes, and the rest of
//! what is checked in a code object.

use crate::parts::image::{Image, Origin, SIZE_MAX};
use crate::workplace::{VERSION, Workplace, committed_object, replaced};

/// A compiler that compiles the probe as it should, and writes this instead of the kernel.
fn build_of(test: &str, object: &[u8]) -> String {
    let place = Workplace::new(test, &["gfx1151"]);
    place.write("wrong.co", object);
    let body = format!("[ $source = probe.hip ] || {{ cp '{}' $out; exit 0; }}", place.path("wrong.co").display());
    place.compiler("bin/clang++-19", VERSION, &body);
    let failure = place.failure();
    assert_eq!(place.written(), [""; 0], "{failure}");
    failure
}

/// The key of the metadata and its value, a small number in MessagePack.
fn wavefront(lanes: u8) -> Vec<u8> {
    [&b".wavefront_size"[..], &[lanes]].concat()
}

#[test]
fn waves_of_64_in_the_note_are_refused() {
    let failure = build_of("wave64", &replaced(&committed_object(), &wavefront(32), &wavefront(64)));
    let expected = format!(
        "the code object for gfx1151 ({VERSION}) is refused: kernel ssm_update_bf16_bf16_bf16_k1 has waves of 64"
    );
    assert!(failure.starts_with(&expected), "{failure}");
}

#[test]
fn a_note_without_the_width_is_refused() {
    let failure = build_of("nowave", &replaced(&committed_object(), b".wavefront_size", b".wavefront_sizy"));
    assert!(failure.contains("has waves of unknown lanes"), "{failure}");
}

#[test]
fn other_kernels_are_refused() {
    let failure =
        build_of("kernels", &replaced(&committed_object(), b"ssm_update_f16_f16_f16_k2", b"ssm_update_f16_f16_f16_k9"));
    assert!(failure.contains("kernels missing: [\"ssm_update_f16_f16_f16_k2\"]"), "{failure}");
}

#[test]
fn another_parameter_struct_is_refused() {
    // `.size` is written with one byte behind its marker.
    let failure = build_of("parameters", &replaced(&committed_object(), b".size\xcc\xd0", b".size\xcc\xc8"));
    assert!(failure.contains("takes arguments of [200] bytes, expected one of 208"), "{failure}");
}

#[test]
fn a_truncated_object_is_refused() {
    let object = committed_object();
    let failure = build_of("truncated", &object[..object.len() / 2]);
    assert!(failure.contains("is refused: truncated"), "{failure}");
}

#[test]
fn the_budget_holds() {
    let origin = Origin { compiler: VERSION.to_owned(), flags: String::new() };
    let mut object = committed_object();
    object.resize(SIZE_MAX, 0);
    Image::check("gfx1151", object.clone(), &origin).expect("as much as may be");
    object.push(0);
    let failure = Image::check("gfx1151", object, &origin).expect_err("one byte more").to_string();
    assert_eq!(
        failure,
        format!("the code object for gfx1151 ({VERSION}) has 524289 bytes, at most 524288 are allowed")
    );
}
