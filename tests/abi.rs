//! `gpu/abi.h` as a C compiler lays it out, beside `ssm_update::ports::rocm::abi`: every field's offset, size and kind, and the
//! constants.

#![cfg(all(feature = "rocm", target_os = "linux"))]

mod common;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::scripted::compile;
use ssm_update::ports::rocm::abi::{self, Params};

/// What is compared of a field. Pointers are addresses in Rust, integers of 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    offset: usize,
    size: usize,
    kind: String,
}

/// The Rust side. The pattern makes the list complete: it does not compile with a field missing.
fn rust_fields() -> Vec<Field> {
    trait Kind {
        const KIND: &'static str;
    }
    macro_rules! kinds {
        ($($type:ty = $kind:literal),*) => { $(impl Kind for $type { const KIND: &'static str = $kind; })* };
    }
    kinds!(u64 = "unsigned", i64 = "signed", u32 = "unsigned", f32 = "float", u8 = "unsigned");

    fn field<T: Kind>(name: &str, offset: usize, _: T) -> Field {
        Field { name: name.to_owned(), offset, size: size_of::<T>(), kind: T::KIND.to_owned() }
    }
    macro_rules! fields {
        ($($name:ident)*) => {{
            let Params { $($name),* } = Params::default();
            vec![$(field(stringify!($name), std::mem::offset_of!(Params, $name), $name)),*]
        }};
    }
    fields!(
        x z b c dt a_log d dt_bias state_in state_out slots_in slots_out y
        x_stride z_stride b_stride c_stride dt_stride y_stride slots
        heads head_dim heads_per_group d_state row_lanes_log2 dt_min dt_max
        dt_dtype a_log_dtype d_dtype dt_bias_dtype flags first_batch
    )
}

fn rust_constants() -> BTreeMap<String, u64> {
    [
        ("SSM_F32", u64::from(abi::dtype::F32)),
        ("SSM_F16", abi::dtype::F16.into()),
        ("SSM_BF16", abi::dtype::BF16.into()),
        ("SSM_PREPARED_DT", abi::flags::PREPARED_DT.into()),
        ("SSM_WRITE_STATE", abi::flags::UPDATE_STATE.into()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// The header without its comments.
fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once("*/").expect("a comment ends").1;
    }
    text
}

/// The names of the struct's fields, in order: the last word of each declaration.
fn declared_fields(header: &str) -> Vec<String> {
    let text = without_comments(header);
    let body = text.split_once("typedef struct ssm_update_params {").expect("the struct is there").1;
    let body = body.split_once('}').expect("the struct ends").0;
    let declarations = body.split(';').map(str::trim).filter(|declaration| !declaration.is_empty());
    declarations
        .map(|declaration| {
            assert!(!declaration.contains([',', '[', ':']), "one plain field per declaration: {declaration}");
            let start = declaration.rfind([' ', '*']).expect("a type and a name") + 1;
            declaration[start..].to_owned()
        })
        .collect()
}

/// The names of the header's constants.
fn declared_constants(header: &str) -> Vec<String> {
    let text = without_comments(header);
    let enums = text.split("enum {").skip(1).map(|rest| rest.split_once('}').expect("the enum ends").0);
    let constants = enums.flat_map(|body| body.split(',')).filter_map(|constant| constant.split_once('='));
    constants.map(|(name, _)| name.trim().to_owned()).collect()
}

/// What a C compiler makes of a header.
struct Measured {
    size: usize,
    alignment: usize,
    fields: Vec<Field>,
    constants: BTreeMap<String, u64>,
}

fn measure(name: &str, header: &str) -> Measured {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abi-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the test's folder can be made");
    let (source, program) = (folder.join("measure.c"), folder.join("measure"));
    fs::write(folder.join("abi.h"), header).expect("a file can be written");
    fs::write(&source, measuring_program(header)).expect("a file can be written");
    compile(&[source.as_os_str(), "-o".as_ref(), program.as_os_str()]);
    let output = Command::new(&program).output().expect("the program runs");
    fs::remove_dir_all(&folder).expect("the test's folder is its own");

    let text = String::from_utf8(output.stdout).expect("plain text");
    let mut measured = Measured { size: 0, alignment: 0, fields: Vec::new(), constants: BTreeMap::new() };
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |word: &str| word.parse().expect("a number");
        match words[..] {
            ["struct", size, alignment] => (measured.size, measured.alignment) = (number(size), number(alignment)),
            ["field", name, offset, size, kind] => measured.fields.push(Field {
                name: name.to_owned(),
                offset: number(offset),
                size: number(size),
                kind: kind.to_owned(),
            }),
            ["constant", name, value] => _ = measured.constants.insert(name.to_owned(), number(value) as u64),
            _ => panic!("{line}"),
        }
    }
    measured
}

fn measuring_program(header: &str) -> String {
    let mut text = String::from(
        "#include \"abi.h\"\n#include <stddef.h>\n#include <stdio.h>\n\
         #define KIND(f) _Generic(((ssm_update_params *)0)->f, float: \"float\", int64_t: \"signed\", \\\n\
         int32_t: \"signed\", uint32_t: \"unsigned\", uint8_t: \"unsigned\", const void *: \"unsigned\", \\\n\
         void *: \"unsigned\", const int32_t *: \"unsigned\")\n\
         int main(void)\n{\n\
         printf(\"struct %zu %zu\\n\", sizeof(ssm_update_params), _Alignof(ssm_update_params));\n",
    );
    for field in declared_fields(header) {
        let place = format!("offsetof(ssm_update_params, {field}), sizeof(((ssm_update_params *)0)->{field})");
        let _ = writeln!(text, "printf(\"field {field} %zu %zu %s\\n\", {place}, KIND({field}));");
    }
    for constant in declared_constants(header) {
        let _ = writeln!(text, "printf(\"constant {constant} %d\\n\", {constant});");
    }
    text + "return 0;\n}\n"
}

fn header() -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("gpu/abi.h");
    fs::read_to_string(path).expect("gpu/abi.h is there")
}

#[test]
fn every_field_of_the_parameter_struct_is_where_rust_has_it() {
    let measured = measure("fields", &header());
    assert_eq!(measured.fields, rust_fields());
    assert_eq!((measured.size, measured.alignment), (size_of::<Params>(), align_of::<Params>()));
    // No padding: every byte that is passed to the kernel was set.
    assert_eq!(measured.fields.iter().map(|field| field.size).sum::<usize>(), measured.size);
}

#[test]
fn every_constant_has_the_value_that_rust_has() {
    assert_eq!(measure("constants", &header()).constants, rust_constants());
}

/// The comparison is able to fail: changes of the header that somebody could make.
#[test]
fn a_changed_header_is_noticed() {
    let header = header();
    let (first, second) = ("    uint32_t heads;\n", "    uint32_t head_dim;\n");
    for (name, find, replace) in [
        ("swapped", format!("{first}{second}"), format!("{second}{first}")),
        ("narrower", "int64_t slots;".to_owned(), "int32_t slots;".to_owned()),
        ("other-kind", "float dt_min;".to_owned(), "uint32_t dt_min;".to_owned()),
        ("removed", first.to_owned(), String::new()),
        ("added", first.to_owned(), format!("{first}    uint32_t more;\n")),
    ] {
        assert_eq!(header.matches(&find).count(), 1, "{name}: {find}");
        assert_ne!(measure(name, &header.replace(&find, &replace)).fields, rust_fields(), "{name}");
    }
    let constants = header.replace("SSM_F16 = 1, SSM_BF16 = 2", "SSM_F16 = 2, SSM_BF16 = 1");
    assert_ne!(constants, header);
    assert_ne!(measure("constants-swapped", &constants).constants, rust_constants());
}
