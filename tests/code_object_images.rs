//! What is read of a code object before a driver gets it: the ones on board are right, and an image with anything wrong is
//! refused with the fault that it has. No driver here.

#![cfg(feature = "rocm")]

mod common;

use common::images::{self, at, bundle, entry, good, on_board};
use proptest::prelude::*;
use ssm_update::code_object::{CodeObject, Fault, find_in_bundle, is_known_target};
use ssm_update::ports::gpu::abi::Params;
use ssm_update::ports::rocm::variant;

/// What the loader does with an image for an architecture.
fn load(image: &[u8], target: &str) -> Result<CodeObject, Fault> {
    let object = CodeObject::read(image)?;
    object.check(target, &variant::names(), size_of::<Params>() as u64)?;
    Ok(object)
}

#[test]
fn every_code_object_on_board_passes() {
    for image in on_board() {
        let object = load(image.bytes, image.target).unwrap_or_else(|fault| panic!("{image:?}: {fault}"));
        assert_eq!(object.target, image.target);
        assert_eq!(object.version, 5, "{image:?}");
        let mut names = variant::names();
        names.sort();
        assert_eq!(
            object.kernels.iter().map(|kernel| &kernel.name).collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>()
        );
        for kernel in &object.kernels {
            assert_eq!((kernel.wavefront, &kernel.arguments[..]), (Some(32), &[208][..]), "{image:?}: {kernel:?}");
            assert_eq!((kernel.spills, kernel.scratch, kernel.lds), (0, 0, 0), "{image:?}: {kernel:?}");
            assert_eq!(kernel.work_group, u64::from(variant::WORK_GROUP), "{image:?}: {kernel:?}");
            assert!((1..=64).contains(&kernel.vgprs) && kernel.sgprs > 0, "{image:?}: {kernel:?}");
        }
    }
}

#[test]
fn the_flags_name_the_machine() {
    for (architecture, machine) in images::MACHINES {
        assert!(is_known_target(architecture), "{architecture}");
        let image = images::for_machine(good().bytes, machine);
        let object = CodeObject::read(&image).unwrap_or_else(|fault| panic!("{architecture}: {fault}"));
        assert_eq!(object.target, architecture);
        let beginning = &architecture[..architecture.len() - 1];
        for other in images::MACHINES.into_iter().map(|(name, _)| name).chain([beginning, "gfx1", ""]) {
            let fault = object.check(other, &variant::names(), 208).err();
            let expected = Fault::Target { wanted: other.to_owned(), got: architecture.to_owned() };
            assert_eq!(fault, (other != architecture).then_some(expected));
        }
    }
    for unknown in ["gfx115", "gfx11510", "GFX1151", "gfx1151:xnack-", "gfx11-generic", ""] {
        assert!(!is_known_target(unknown), "{unknown}");
    }
}

#[test]
fn every_broken_image_has_the_fault_that_it_has() {
    let target = good().target;
    for broken in images::broken() {
        let fault = load(&broken.bytes, target).expect_err(broken.what);
        assert!((broken.is)(&fault), "{}: {fault:?}", broken.what);
        assert!(fault.to_string().len() > 10, "{}: words, not only a name: {fault}", broken.what);
    }
}

/// The text is what a person gets: it names the compiler's option that would have been right.
#[test]
fn faults_that_an_option_avoids_name_it() {
    let of = |what: &str| {
        let broken = images::broken().into_iter().find(|broken| broken.what == what).expect("in the list");
        load(&broken.bytes, good().target).expect_err(what).to_string()
    };
    for (what, option) in [
        ("a compressed bundle", "--no-offload-compress"),
        ("a bundle", "--no-gpu-bundle-output"),
        ("waves of 64 lanes in one kernel", "-mwavefrontsize64"),
    ] {
        assert!(of(what).contains(option), "{what}: {}", of(what));
    }
    assert!(of("waves of 64 lanes in one kernel").contains("64 lanes"));
    assert!(of("xnack on").contains("xnack+") && of("sramecc off").contains("sramecc-"));
}

#[test]
fn an_image_that_ends_early_is_truncated_wherever_it_ends() {
    let image = good();
    let mut ends: Vec<usize> = (0..image.bytes.len()).step_by(977).collect();
    ends.extend(0..=at::END);
    ends.extend(images::boundaries(image.bytes).into_iter().flat_map(|end| [end.saturating_sub(1), end, end + 1]));
    ends.retain(|&end| end < image.bytes.len());
    assert!(ends.len() > 200, "{} ends", ends.len());
    for end in ends {
        let fault = load(&image.bytes[..end], image.target).expect_err("it ends early");
        let right = match end {
            0 => matches!(fault, Fault::Empty),
            1..4 => matches!(fault, Fault::Unknown(_)),
            _ => matches!(fault, Fault::Truncated(_)),
        };
        assert!(right, "the first {end} of {} bytes: {fault:?}", image.bytes.len());
    }
}

#[test]
fn a_code_object_is_found_in_a_bundle_by_its_exact_architecture() {
    let image = good();
    let other = images::for_machine(image.bytes, images::machine("gfx1030"));
    let (name, other_name) = (entry(image.target), entry("gfx1030") + ":xnack+");
    let whole = bundle(&[("host-x86_64-unknown-linux-gnu--", b""), (&other_name, &other), (&name, image.bytes)]);
    assert_eq!(find_in_bundle(&whole, image.target), Ok(image.bytes));
    assert_eq!(find_in_bundle(&whole, "gfx1030"), Ok(&other[..]), "its features stand behind a colon");
    for absent in ["gfx103", "gfx10300", "x86_64", "", "gfx90a"] {
        let fault = find_in_bundle(&whole, absent).expect_err(absent);
        let Fault::NotInBundle { wanted, present } = &fault else { panic!("{absent}: {fault:?}") };
        assert_eq!((&wanted[..], present.len()), (absent, 3), "{fault}");
        assert!(fault.to_string().contains(image.target), "names what there is: {fault}");
    }
    assert!(matches!(find_in_bundle(image.bytes, image.target), Err(Fault::Header { field: "magic", .. })));
    assert_eq!(find_in_bundle(b"", image.target), Err(Fault::Empty));
    assert_eq!(find_in_bundle(b"CCOB", image.target), Err(Fault::Compressed));

    // Wherever the bundle ends, it is an error or what it was.
    for end in (0..whole.len()).step_by(1013).chain(0..300) {
        match find_in_bundle(&whole[..end], image.target) {
            Ok(found) => panic!("{} of {} bytes in the first {end}", found.len(), image.bytes.len()),
            Err(fault) => assert!(matches!(fault, Fault::Empty | Fault::Unknown(_) | Fault::Truncated(_)), "{fault:?}"),
        }
    }
    // Offsets and lengths that no file has.
    for position in (24..whole.len().min(160)).step_by(8) {
        let mut wrong = whole.clone();
        wrong[position..position + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        let _ = find_in_bundle(&wrong, image.target);
    }
}

#[test]
fn missing_and_unknown_kernels_are_named_each_alone_and_both() {
    let object = CodeObject::read(good().bytes).expect("on board");
    let check = |wanted: &[String]| object.check(good().target, wanted, 208);
    let mut wanted = variant::names();
    assert_eq!(check(&wanted), Ok(()));
    wanted.push("ssm_update_of_tomorrow".to_owned());
    let tomorrow = vec!["ssm_update_of_tomorrow".to_owned()];
    assert_eq!(check(&wanted), Err(Fault::Kernels { missing: tomorrow.clone(), unknown: vec![] }));
    let gone = vec![wanted.remove(3)];
    assert_eq!(check(&wanted), Err(Fault::Kernels { missing: tomorrow, unknown: gone.clone() }));
    wanted.pop();
    assert_eq!(check(&wanted), Err(Fault::Kernels { missing: vec![], unknown: gone }));
}

/// Places that decide how the rest is read, and with them any place.
fn positions() -> impl Strategy<Value = usize> {
    let bytes = good().bytes;
    let headers: Vec<usize> = (0..at::END + 56 * 10).collect();
    let note: Vec<usize> = images::note(bytes).collect();
    let tail: Vec<usize> = (bytes.len() - 64 * 16..bytes.len()).collect();
    prop_oneof![
        3 => proptest::sample::select(headers),
        4 => proptest::sample::select(note),
        2 => proptest::sample::select(tail),
        1 => 0..bytes.len(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000)
    ))]

    /// Whatever the bytes, reading ends in a value: an object whose kernels pass or not, or a fault with a text.
    #[test]
    fn flipped_bytes_never_panic(
        flips in prop::collection::vec((positions(), any::<u8>()), 1..6),
        end in prop_oneof![4 => Just(usize::MAX), 1 => 0_usize..400_000],
    ) {
        let mut image = good().bytes.to_vec();
        for (position, value) in flips {
            image[position] = value;
        }
        image.truncate(end);
        if let Err(fault) = load(&image, good().target) {
            prop_assert!(fault.to_string().len() > 10);
        }
    }

    #[test]
    fn any_bytes_behind_a_magic_never_panic(
        magic in prop::sample::select(vec![&b"\x7fELF\x02\x01\x01\x40\x03"[..], b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b""]),
        rest in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let image = [magic, &rest].concat();
        prop_assert!(load(&image, good().target).is_err());
        let _ = find_in_bundle(&image, good().target);
    }
}
