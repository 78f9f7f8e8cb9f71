//! A C struct as a compiler lays it out: every field's offset, size and kind, and the constants of its header.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What is compared of a field. Pointers are addresses in Rust, integers of 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // what the names say
pub struct Field {
    pub name: String,
    pub offset: usize,
    pub size: usize,
    pub kind: String,
}

impl Field {
    /// A field of a Rust struct, from its value.
    pub fn of<T: Kind>(name: &str, offset: usize, _: T) -> Self {
        Self { name: name.to_owned(), offset, size: size_of::<T>(), kind: T::KIND.to_owned() }
    }
}

/// What kind of number a Rust type is.
pub trait Kind {
    /// As the measuring program says it.
    const KIND: &'static str;
}

macro_rules! kinds {
    ($($type:ty = $kind:literal),*) => { $(impl Kind for $type { const KIND: &'static str = $kind; })* };
}
kinds!(
    u64 = "unsigned",
    usize = "unsigned",
    i64 = "signed",
    u32 = "unsigned",
    i32 = "signed",
    f32 = "float",
    u8 = "unsigned"
);

impl<T> Kind for *const T {
    const KIND: &'static str = "unsigned";
}

impl<T> Kind for *mut T {
    const KIND: &'static str = "unsigned";
}

/// The header without its comments.
pub fn without_comments(header: &str) -> String {
    let mut parts = header.split("/*");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += part.split_once("*/").expect("a comment ends").1;
    }
    text
}

/// The names of the struct's fields, in order: the last word of each declaration.
fn declared_fields(header: &str, of: &str) -> Vec<String> {
    let text = without_comments(header);
    let body = text.split_once(&format!("typedef struct {of} {{")).expect("the struct is there").1;
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
    // With a name or without; a mere mention of an enum has no body before its statement ends.
    let enums = text.split("enum ").skip(1).filter_map(|rest| {
        let (head, body) = rest.split_once('{')?;
        (!head.contains(';')).then(|| body.split_once('}').expect("the enum ends").0)
    });
    let constants = enums.flat_map(|body| body.split(',')).filter_map(|constant| constant.split_once('='));
    constants.map(|(name, _)| name.trim().to_owned()).collect()
}

/// What a C compiler makes of a header.
#[allow(missing_docs)] // what the names say
pub struct Measured {
    pub size: usize,
    pub alignment: usize,
    pub fields: Vec<Field>,
    pub constants: BTreeMap<String, u64>,
}

/// Measures the struct `of` and the constants of a header. `compile` makes a program with a compiler's arguments.
///
/// # Panics
///
/// When the header does not compile.
pub fn measure(name: &str, header: &str, of: &str, compile: impl Fn(&[&OsStr])) -> Measured {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("abi-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the test's folder can be made");
    let (source, program) = (folder.join("measure.c"), folder.join("measure"));
    fs::write(folder.join("abi.h"), header).expect("a file can be written");
    fs::write(&source, measuring_program(header, of)).expect("a file can be written");
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

fn measuring_program(header: &str, of: &str) -> String {
    let mut text = format!(
        "#include \"abi.h\"\n#include <stddef.h>\n#include <stdio.h>\n\
         #define KIND(f) _Generic((({of} *)0)->f, float: \"float\", int64_t: \"signed\", \\\n\
         int32_t: \"signed\", uint64_t: \"unsigned\", uint32_t: \"unsigned\", uint8_t: \"unsigned\", const void *: \"unsigned\", \\\n\
         void *: \"unsigned\", const int32_t *: \"unsigned\", default: \"struct\")\n\
         int main(void)\n{{\n\
         printf(\"struct %zu %zu\\n\", sizeof({of}), _Alignof({of}));\n",
    );
    for field in declared_fields(header, of) {
        let place = format!("offsetof({of}, {field}), sizeof((({of} *)0)->{field})");
        let _ = writeln!(text, "printf(\"field {field} %zu %zu %s\\n\", {place}, KIND({field}));");
    }
    for constant in declared_constants(header) {
        let _ = writeln!(text, "printf(\"constant {constant} %d\\n\", {constant});");
    }
    text + "return 0;\n}\n"
}
