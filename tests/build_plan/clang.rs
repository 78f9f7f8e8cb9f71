//! The compilers that are installed: same bytes in any folder, bundles that hold the bare object, and waves of 64 lanes refused
//! where the compiler itself has nothing against them.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::parts::code_object::find_in_bundle;
use crate::parts::command::Form;
use crate::parts::compile::Job;
use crate::parts::compiler::{Compiler, version};
use crate::parts::image::Image;
use crate::workplace::Workplace;

/// A kernel without anything that asks for waves of 32 lanes.
const SMALL: &[u8] = b"extern \"C\" __attribute__((global)) void small(int *out) { *out = 1; }\n";

/// The compilers whose checks differ, and those of them that are absent are said.
fn compilers() -> Vec<Compiler> {
    let mut found = Vec::new();
    for name in ["clang++-22", "clang++-19"] {
        let program = PathBuf::from(name);
        match version(&program) {
            Ok(version) => found.push(Compiler { program, version }),
            Err(why) => {
                assert_ne!(env::var("SSM_UPDATE_REQUIRE_HIPCC").as_deref(), Ok("1"), "{name}: {why}");
                println!("{name}: NOT RUN ({why})");
            }
        }
    }
    found
}

/// Compiles the small kernel in a folder of its own.
fn small(test: &str, compiler: &Compiler, form: Form) -> Vec<u8> {
    let place = Workplace::new(test, &["gfx1151"]);
    place.write("root/hip/ssm_update.hip", SMALL);
    let (sources, out) = (place.sources(), place.path("out"));
    let job = Job { compiler, sources: &sources, out: &out };
    job.run("gfx1151", form).unwrap_or_else(|failure| panic!("{failure}")).expect("gfx1151 is known")
}

#[test]
fn the_bytes_do_not_depend_on_the_folder() {
    for compiler in compilers() {
        let one = small("folder-one", &compiler, Form::Bare);
        assert!(one == small("folder/two", &compiler, Form::Bare), "{compiler}");
        let bundle = small("folder-bundle", &compiler, Form::Bundle);
        assert!(find_in_bundle(&bundle, "gfx1151").expect("a bundle") == one, "{compiler}");
    }
}

/// Layer 3 alone: the source has none of the first two layers, and the compiler does as it is told.
#[test]
fn waves_of_64_lanes_are_refused_after_the_fact() {
    for compiler in compilers() {
        let place = Workplace::new("clang-wave64", &["gfx1151"]);
        place.write("root/hip/ssm_update.hip", SMALL);
        let object = place.path("out/wave64.co");
        let (sources, out) = (place.sources(), place.path("out"));
        let job = Job { compiler: &compiler, sources: &sources, out: &out };
        let flags = job.origin(Form::Bare).flags;
        let status = Command::new(&compiler.program)
            .args(flags.split(' '))
            .args(["-mwavefrontsize64", "--offload-arch=gfx1151", "-c"])
            .arg(place.path("root/hip/ssm_update.hip"))
            .arg("-o")
            .arg(&object)
            .status();
        assert!(status.expect("clang starts").success());
        let made = std::fs::read(&object).expect("clang wrote it");
        let failure = Image::check("gfx1151", made, &job.origin(Form::Bare)).expect_err("waves of 64").to_string();
        assert!(failure.contains("kernel small has waves of 64 lanes"), "{failure}");
    }
}
