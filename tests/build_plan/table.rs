//! The generated source is Rust that the loader's types accept, with what it has to say.

use std::process::Command;

use crate::parts::table;
use crate::workplace::{VERSION, Workplace, repository};

/// Compiles the table within the loader's own file, and returns what it prints about itself.
fn print(place: &Workplace) -> String {
    let plan = place.build().expect("it builds");
    table::write(&place.settings.out, &plan.built).expect("out can be written to");
    let program = format!(
        "#![allow(dead_code)]\n#[path = {:?}]\nmod built;\nfn main() {{\n\
         for image in built::BUILT.images {{\n\
         assert_eq!(image.bytes.as_ptr().addr() % 4096, 0);\n\
         println!(\"{{}} {{}} {{}} {{}}\", image.target, image.bytes.len(), image.sha256, image.kernels.len());\n\
         }}\n\
         println!(\"{{}}\", built::BUILT);\n\
         }}\n",
        repository().join("src/ports/rocm/built.rs")
    );
    place.write("program.rs", program.as_bytes());
    let mut rustc = Command::new("rustc");
    let output = rustc.args(["--edition", "2024", "-o"]).args([place.path("program"), place.path("program.rs")]);
    let output = output.env("OUT_DIR", &place.settings.out).output().expect("rustc starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(place.path("program")).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_table_is_what_the_loader_reads() {
    let mut place = Workplace::new("table", &["gfx1151", "gfx1100", "gfx1153"]);
    // A version with what a literal has to escape.
    let version = r#"Test "clang" clang version 19 \n {x}"#;
    place.fill_prebuilt(version);
    let prebuilt = print(&place);
    assert!(prebuilt.contains(" 35\nprebuilt (by "), "{prebuilt}");
    assert!(prebuilt.contains(version) && prebuilt.contains("; not gfx1100: prebuilt/ does not have it"), "{prebuilt}");

    place.compiler(
        "bin/clang++-19",
        VERSION,
        "[ $target != gfx1153 ] || { echo \"invalid target ID 'gfx1153'\" >&2; exit 1; }",
    );
    let compiled = print(&place);
    let expected = format!("compiled by {VERSION} for gfx1151, gfx1100; not gfx1153: ");
    assert!(compiled.contains(&expected), "{compiled}");

    place.settings.target_os = "macos".to_owned();
    assert_eq!(print(&place), "none: ROCm exists for linux and windows, and this was built for macos\n");
}
