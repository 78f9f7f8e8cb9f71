//! `include/ssm_update.h` is what cbindgen makes of `src/`, and compilers of C and C++ take it without a warning.

mod common;

use std::fs;
use std::path::Path;

use common::{compile, folder, header};

/// The sources in the order in which the header speaks of them.
const SOURCES: [&str; 6] = ["abi_version", "status", "launch", "ports", "fault", "kernel"];

fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("the configuration reads");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(folder().join(format!("src/{name}.rs")));
    }
    let mut text = Vec::new();
    builder.generate().expect("the sources read").write(&mut text);
    String::from_utf8(text).expect("UTF-8")
}

/// The first line in which two texts differ, with its number.
fn difference(committed: &str, generated: &str) -> Option<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (old, new) = (lines(committed), lines(generated));
    let at = (0..old.len().max(new.len())).find(|&at| old.get(at) != new.get(at))?;
    Some(format!("line {}: {:?} is committed, {:?} is generated", at + 1, old.get(at), new.get(at)))
}

#[test]
fn the_header_is_that_of_the_sources() {
    let committed = fs::read_to_string(header()).expect("the header is there");
    let difference = difference(&committed, &generated());
    assert_eq!(difference, None, "include/ssm_update.h is stale: run `make header`");
}

/// The comparison is able to fail, and no source is forgotten.
#[test]
fn a_stale_header_is_noticed() {
    let generated = generated();
    for (find, replace) in
        [("size_t heads;", "size_t head;"), ("} ssm_update_launch;", ""), ("negative for padding", "negative")]
    {
        assert!(generated.contains(find), "{find}");
        assert!(difference(&generated.replace(find, replace), &generated).is_some(), "{find}");
    }
    for entry in fs::read_dir(folder().join("src")).expect("a folder lists") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a source reads");
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
        assert!(
            !text.contains("no_mangle") || SOURCES.contains(&&name[..]),
            "{name} exports functions and is not in SOURCES"
        );
    }
}

/// `make header`.
#[test]
#[ignore = "writes the header instead of comparing it"]
fn write_the_header() {
    fs::write(header(), generated()).expect("the header can be written");
}

/// Compiles a file that includes the header, twice, and nothing else.
fn compiles(extension: &str) {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("header-{extension}"));
    fs::create_dir_all(&out).expect("a folder can be made");
    let source = out.join(format!("includes.{extension}"));
    fs::write(&source, "#include <ssm_update.h>\n#include <ssm_update.h>\n").expect("a file can be written");
    let include = header().parent().expect("a folder").to_owned();
    compile(extension == "cpp", &["-fsyntax-only".as_ref(), "-I".as_ref(), include.as_os_str(), source.as_os_str()]);
}

#[test]
fn c11_takes_the_header_without_a_warning() {
    compiles("c");
}

#[test]
fn cpp17_takes_the_header_without_a_warning() {
    if common::has_cpp() {
        compiles("cpp");
    }
}
