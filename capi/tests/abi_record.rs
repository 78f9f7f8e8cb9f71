//! `abi/VERSION.txt`, the record of what programs that are compiled already rely on, and what a change of the header may do to it: add
//! functions, constants, and fields at the end of a struct that begins with its own size. Everything else is a new
//! `SSM_UPDATE_ABI_VERSION`, with a record of its own.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;
#[path = "../../tests/common/layout.rs"]
#[allow(dead_code, reason = "the rest of it is for structs of Rust")]
mod layout;
#[path = "common/prototypes.rs"]
mod prototypes;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use ssm_update_capi::SSM_UPDATE_ABI_VERSION as VERSION;

/// The structs that programs fill.
const STRUCTS: [&str; 2] = ["ssm_update_dims", "ssm_update_launch"];
/// With this as its first field a struct may grow: the library sees what the program knew of it.
const OWN_SIZE: &str = "struct_size";

/// What is relied on, by name: a kind and a name in front, and what must not change about it.
type Record = BTreeMap<String, String>;

fn record(name: &str, header: &str) -> Record {
    let mut record = Record::new();
    for of in STRUCTS {
        let measured = layout::measure(name, header, of, |arguments| common::compile(false, arguments));
        record.insert(format!("struct {of}"), format!("{} bytes aligned to {}", measured.size, measured.alignment));
        for field in measured.fields {
            let key = format!("field {of}.{}", field.name);
            record.insert(key, format!("{} bytes at {}, {}", field.size, field.offset, field.kind));
        }
        let constants = measured.constants.into_iter();
        record.extend(constants.map(|(name, value)| (format!("constant {name}"), value.to_string())));
    }
    let plain = layout::without_comments(header);
    record.extend(prototypes::functions(&plain).into_iter().map(|(name, text)| (format!("function {name}"), text)));
    record.extend(prototypes::typedefs(&plain).into_iter().map(|(name, text)| (format!("type {name}"), text)));
    record
}

fn file() -> PathBuf {
    common::folder().join(format!("abi/{VERSION}.txt"))
}

fn header() -> String {
    fs::read_to_string(common::header()).expect("the header is there")
}

fn text(record: &Record) -> String {
    let about = format!(
        "# Version {VERSION} of the binary interface: what programs that are compiled already rely on. Written by `make abi`, which\n\
         # takes additions and refuses everything else: docs/packagers.md.\n"
    );
    record.iter().fold(about, |text, (key, value)| format!("{text}{key}: {value}\n"))
}

fn parse(text: &str) -> Record {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no key and value: {line}")));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The number in front of `bytes`, or behind `at`.
fn number(value: &str, behind: &str) -> usize {
    let at = value.find(behind).map_or(0, |at| at + behind.len());
    let digits = value[at..].split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or_else(|_| panic!("a number in {value:?}"))
}

fn grows(published: &Record, of: &str) -> bool {
    published.get(&format!("field {of}.{OWN_SIZE}")).is_some_and(|value| number(value, " at ") == 0)
}

/// What of the published interface a program would miss or find changed.
fn breaks(published: &Record, now: &Record) -> Vec<String> {
    let mut found = Vec::new();
    for (key, was) in published {
        match now.get(key) {
            None => found.push(format!("{key} is gone, and was: {was}")),
            Some(is) if is == was => {}
            Some(is) => {
                let larger = key.strip_prefix("struct ").is_some_and(|of| {
                    let alignment = |value: &str| number(value, "aligned to ");
                    grows(published, of) && number(is, "") > number(was, "") && alignment(is) == alignment(was)
                });
                if !larger {
                    found.push(format!("{key} is {is}, and was: {was}"));
                }
            }
        }
    }
    for (key, is) in now.iter().filter(|(key, _)| !published.contains_key(*key)) {
        let Some((of, _)) = key.strip_prefix("field ").and_then(|name| name.split_once('.')) else { continue };
        let Some(before) = published.get(&format!("struct {of}")) else { continue };
        let at_the_end = number(is, " at ") >= number(before, "");
        if !grows(published, of) || !at_the_end {
            found.push(format!("{key} is new, and not behind the end of a struct that begins with its own size: {is}"));
        }
    }
    found
}

/// What a record lacks.
fn additions<'a>(published: &Record, now: &'a Record) -> Vec<&'a String> {
    now.keys().filter(|key| !published.contains_key(*key)).collect()
}

fn published() -> Record {
    let text = fs::read_to_string(file());
    parse(&text.unwrap_or_else(|error| panic!("{}: {error}; `make abi` writes it", file().display())))
}

#[test]
fn what_programs_rely_on_is_as_it_was() {
    let (published, now) = (published(), record("record", &header()));
    let breaks = breaks(&published, &now);
    assert!(
        breaks.is_empty(),
        "programs that are compiled already would break; take the change back, or raise SSM_UPDATE_ABI_VERSION \
         (capi/src/abi_version.rs) and run `make header abi`:\n{}",
        breaks.join("\n")
    );
    assert_eq!(additions(&published, &now), Vec::<&String>::new(), "not in the record yet: run `make abi`");
    assert_eq!(fs::read_to_string(file()).expect("it was read before"), text(&now), "run `make abi`");
}

/// The comparison is able to fail, and to tell what breaks programs from what does not.
#[test]
fn what_a_change_means_is_told() {
    let header = header();
    let published = record("published", &header);
    let changed = |name: &str, find: &str, replace: &str| {
        assert_eq!(header.matches(find).count(), 1, "{name}: {find}");
        record(name, &header.replace(find, replace))
    };
    for (name, find, replace, said) in [
        ("field-removed", "    int32_t dt_mode;", "", "field ssm_update_launch.dt_mode is gone"),
        (
            "field-between",
            "    int32_t dt_mode;",
            "int32_t dt_mode; size_t more;",
            "field ssm_update_launch.more is new",
        ),
        ("field-wider", "    float dt_min;", "uint64_t dt_min;", "field ssm_update_launch.dt_min is"),
        ("field-of-other-kind", "    float dt_min;", "uint32_t dt_min;", "field ssm_update_launch.dt_min is"),
        (
            "field-in-closed-struct",
            "    size_t slots;",
            "size_t slots; size_t more;",
            "field ssm_update_dims.more is new",
        ),
        ("other-value", "SSM_UPDATE_DTYPE_F16 = 1,", "SSM_UPDATE_DTYPE_F16 = 3,", "constant SSM_UPDATE_DTYPE_F16 is 3"),
        ("constant-removed", "SSM_UPDATE_DT_PREPARED = 1,", "", "constant SSM_UPDATE_DT_PREPARED is gone"),
        ("function-removed", "uint32_t ssm_update_abi_version(void);", "", "function ssm_update_abi_version is gone"),
        (
            "other-result",
            "size_t ssm_update_port_count(void);",
            "int ssm_update_port_count(void);",
            "function ssm_update_port_count is int",
        ),
        (
            "other-parameter",
            "bool ssm_update_available(const char *port);",
            "bool ssm_update_available(int port);",
            "function ssm_update_available is bool (int)",
        ),
        (
            "other-type",
            "typedef int32_t ssm_update_status;",
            "typedef int64_t ssm_update_status;",
            "type ssm_update_status is",
        ),
    ] {
        let found = breaks(&published, &changed(name, find, replace));
        assert!(found.iter().any(|line| line.starts_with(said)), "{name}: {found:?}");
    }
    for (name, find, replace) in [
        ("field-added", "    void *stream;\n", "    void *stream;\n    size_t more;\n"),
        ("constant-added", "SSM_UPDATE_DTYPE_BF16 = 2,", "SSM_UPDATE_DTYPE_BF16 = 2, ssm_update_more = 3,"),
        (
            "function-added",
            "uint32_t ssm_update_abi_version(void);",
            "uint32_t ssm_update_abi_version(void); int ssm_update_more(int);",
        ),
    ] {
        let now = changed(name, find, replace);
        assert_eq!(breaks(&published, &now), Vec::<String>::new(), "{name}");
        assert_eq!(additions(&published, &now).len(), 1, "{name}");
    }
    let renamed = changed(
        "parameter-renamed",
        "bool ssm_update_available(const char *port);",
        "bool ssm_update_available(const char *name);",
    );
    assert_eq!(renamed, published);
    assert_eq!(parse(&text(&published)), published);
}

/// `make abi`.
#[test]
#[ignore = "writes the record instead of comparing it"]
fn write_the_record() {
    let now = record("written", &header());
    if file().exists() {
        let breaks = breaks(&published(), &now);
        assert!(breaks.is_empty(), "the record of version {VERSION} stays as it is:\n{}", breaks.join("\n"));
    }
    fs::create_dir_all(file().parent().expect("a folder")).expect("a folder can be made");
    fs::write(file(), text(&now)).expect("the record can be written");
}
