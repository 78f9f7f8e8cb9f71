//! Code objects: what compilers write is read in full, and what is damaged is refused.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use hip_sim::code_object::{CodeObject, LoadError, UserSgpr};
use hip_sim::isa::Arch;
use support::{compile, compilers, list, package, scratch, text};

fn kernel_source() -> PathBuf {
    package().join("../hip/ssm_update.hip")
}

fn programs() -> PathBuf {
    package().join("tests/programs/all.hip")
}

/// A code object, or none where no compiler is installed, which was printed.
fn object(source: &Path, arch: Arch, options: &[&str]) -> Option<Vec<u8>> {
    let version = *compilers().first()?;
    let object = compile(version, arch, source, options)?;
    Some(std::fs::read(object).expect("it was just written"))
}

#[test]
fn every_target_and_compiler_is_read() {
    let mut read = 0;
    for version in compilers() {
        for arch in Arch::all() {
            let Some(path) = compile(version, arch, &programs(), &["-O3"]) else { continue };
            let bytes = std::fs::read(path).expect("it was just written");
            let object = CodeObject::read(&bytes, arch).expect("a compiler wrote it");
            assert_eq!(object.arch, arch, "clang {version}");
            assert_eq!(object.kernels.len(), list("tests/programs/list.h", "PROGRAM").len(), "clang {version}");
            for kernel in &object.kernels {
                let (metadata, descriptor) = (&kernel.metadata, &kernel.descriptor);
                let name = &*metadata.name;
                assert!(descriptor.wave32 && metadata.wavefront_size == 32, "{name}");
                assert_eq!(metadata.kernarg_size, descriptor.kernarg_size as usize, "{name}");
                assert!(descriptor.user_sgprs.contains(&UserSgpr::KernargSegmentPtr), "{name}");
                assert_eq!(object.image.function_at(kernel.entry_offset), Some((name, 0)));
            }
            read += 1;
        }
    }
    println!("code objects: {read} read");
}

#[test]
fn descriptor_and_metadata_of_the_shipped_kernel() {
    let Some(bytes) = object(&kernel_source(), Arch::Gfx1151, &["-O3"]) else { return };
    let object = CodeObject::read(&bytes, Arch::Gfx1151).expect("a compiler wrote it");
    assert_eq!(object.kernels.len(), 35);
    for kernel in &object.kernels {
        let descriptor = &kernel.descriptor;
        assert_eq!((descriptor.lds, descriptor.scratch, descriptor.kernarg_size), (0, 0, 208));
        assert_eq!(descriptor.workgroup_ids, [true; 3]);
        assert!((24..=64).contains(&descriptor.vgprs), "{}", descriptor.vgprs);
        // Round to nearest, denormals kept, as HIP compiles.
        assert_eq!(descriptor.float_mode, 0xf0);
    }
}

#[test]
fn version_6_is_read_and_4_is_not() {
    let arch = Arch::Gfx1151;
    let Some(&version) = compilers().first() else { return };
    let Some(path) = compile(version, arch, &programs(), &["-O3", "-mcode-object-version=6"]) else { return };
    assert!(CodeObject::read(&std::fs::read(path).expect("written"), arch).is_ok());
    let Some(path) = compile(version, arch, &programs(), &["-O3", "-mcode-object-version=4"]) else { return };
    let refused = CodeObject::read(&std::fs::read(path).expect("written"), arch).expect_err("version 4");
    assert!(refused.to_string().contains("code objects 5 and 6"), "{refused}");
}

#[test]
fn hidden_arguments_and_relocations_are_read() {
    let Some(bytes) = object(&programs(), Arch::Gfx1151, &["-O0"]) else { return };
    let object = CodeObject::read(&bytes, Arch::Gfx1151).expect("a compiler wrote it");
    let grid = &object.kernel("grid3").expect("it is a program").metadata;
    assert_eq!(grid.explicit().count(), 3);
    assert!(grid.arguments.len() > 3 && grid.kernarg_size > 20, "{grid:?}");
    assert!(!object.image.relocations.is_empty(), "a table of addresses needs relocations");
    assert!(object.kernels.iter().any(|kernel| kernel.descriptor.dynamic_stack), "a program calls itself");
    assert!(object.kernels.iter().any(|kernel| kernel.descriptor.scratch > 0 && kernel.descriptor.lds > 0));
}

#[test]
fn bundles_are_searched() {
    let Some(&version) = compilers().first() else { return };
    let bundle = scratch("objects").join("bundle.hipfb");
    let output = Command::new(format!("clang++-{version}"))
        .args(["-x", "hip", "-std=c++17", "-O3", "-nogpulib", "-nogpuinc", "--cuda-device-only", "--gpu-bundle-output"])
        .args(["-mcode-object-version=5", "--offload-arch=gfx1151", "--offload-arch=gfx1100", "-c"])
        .arg(programs())
        .arg("-o")
        .arg(&bundle)
        .output()
        .expect("the compiler starts");
    assert!(output.status.success(), "{}", text(&output));
    let bytes = std::fs::read(bundle).expect("it was just written");
    for arch in [Arch::Gfx1151, Arch::Gfx1100] {
        assert_eq!(CodeObject::read(&bytes, arch).map(|object| object.arch), Ok(arch));
    }
    let refused = CodeObject::read(&bytes, Arch::Gfx1030).expect_err("it is not in the bundle").to_string();
    assert!(refused.contains("gfx1030") && refused.contains("gfx1100") && refused.contains("gfx1151"), "{refused}");
    for cut in [25, 40, 100, bytes.len() / 2] {
        assert!(matches!(CodeObject::read(&bytes[..cut], Arch::Gfx1100), Err(LoadError::Malformed(_))), "{cut}");
    }
}

#[test]
fn other_architectures_and_other_files_are_told_apart() {
    let Some(bytes) = object(&programs(), Arch::Gfx1151, &["-O3"]) else { return };
    let refused = CodeObject::read(&bytes, Arch::Gfx1100).expect_err("another architecture");
    assert_eq!(refused, LoadError::OtherArchitecture { wanted: Arch::Gfx1100, found: "gfx1151".into() });
    let host = std::fs::read(std::env::current_exe().expect("a test is a file")).expect("it can be read");
    assert!(matches!(CodeObject::read(&host, Arch::Gfx1151), Err(LoadError::Malformed(_))));
    assert!(matches!(CodeObject::read(b"no image at all", Arch::Gfx1151), Err(LoadError::NotAnImage(_))));
    assert!(matches!(CodeObject::read(&[], Arch::Gfx1151), Err(LoadError::NotAnImage(_))));
}

/// A damaged byte or a missing end is refused or does not matter, and never a panic.
#[test]
fn damage_does_not_panic() {
    let Some(bytes) = object(&programs(), Arch::Gfx1151, &["-O3"]) else { return };
    for cut in (0..bytes.len()).step_by(bytes.len() / 200 + 1) {
        let _ = CodeObject::read(&bytes[..cut], Arch::Gfx1151);
    }
    let tables = (0..0x1000).chain(bytes.len() - 0x400..bytes.len());
    for at in tables.step_by(7) {
        for value in [0, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = CodeObject::read(&damaged, Arch::Gfx1151);
        }
    }
}
