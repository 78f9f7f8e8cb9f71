//! `docs/environment-variables.md` names every environment variable that the code reads, and no other.
//!
//! The sources are read as text. That is coarse, so the rules are strict where the text does not tell: a name is a literal
//! or a constant, or the file is listed in [`THROUGH_A_VARIABLE`]; and within the library only `src/switches.rs` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What is scanned: files and folders, of which some come with later ports or are not in the published package.
const SCANNED: &[&str] = &[
    "build.rs",
    "build",
    "src",
    "tests",
    "benches",
    "bindings",
    "candle/src",
    "candle/tests",
    "capi/build.rs",
    "capi/src",
    "capi/tests",
    "capi/examples",
    "include",
    "examples",
    "scripts",
    "engine/build.rs",
    "engine/src",
    "engine/tests",
    "engine/benches",
    "engine/examples",
];

/// Not scanned: this file, whose own text is full of names that nobody reads.
const SELF: &str = "tests/environment.rs";

/// The one file of the library that may read the environment.
const EDGE: &str = "src/switches.rs";

/// Every name that begins like this is a variable of ours, wherever it stands.
const PREFIXES: &[&str] = &["SSM_UPDATE_", "MLXCEL_"];

/// Files that read through a variable, and where its values come from: the file's own string constants, or ones with the
/// [`PREFIXES`].
const THROUGH_A_VARIABLE: &[(&str, &str)] = &[
    (EDGE, "non_empty is called with this file's constants"),
    ("engine/src/commands/doctor.rs", "an array of the constants in ssm_update::switches"),
];

/// Set by Cargo for every crate or build script, not by people.
const SET_BY_CARGO: &[&str] = &["OUT_DIR", "TARGET", "HOST", "PROFILE", "OPT_LEVEL", "NUM_JOBS", "RUSTC", "CARGO"];
const SET_BY_CARGO_PREFIXES: &[&str] = &[
    "CARGO_PKG_",
    "CARGO_BIN_",
    "CARGO_CFG_",
    "CARGO_CRATE_NAME",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_TARGET_TMP",
];

/// The heading of the page under which the variables of other projects stand.
const FOREIGN: &str = "## Not read by this project";

/// One place where the environment is read.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// By this name.
    Name(String),
    /// By a name that the text does not give: the argument, or the function's name where it is not called.
    Unclear(String),
}

fn is_name(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

fn is_identifier(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The text after each occurrence of `pattern` that does not continue an identifier.
fn after<'a>(text: &'a str, pattern: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(pattern)
        .filter(|&(at, _)| !text[..at].ends_with(is_identifier))
        .map(move |(at, _)| &text[at + pattern.len()..])
}

/// The constants that a header in C defines. Those of our interface begin as our variables do, and are none.
fn constants_in_c(header: &str) -> BTreeSet<String> {
    let words: Vec<&str> = header.split_whitespace().collect();
    let defined = words.windows(2).filter_map(|pair| match pair {
        ["#define", name] => Some(*name),
        [name, "="] => Some(*name),
        _ => None,
    });
    defined.map(str::to_owned).collect()
}

/// Names with one of our prefixes, in code, strings and comments alike.
fn mentioned(text: &str) -> BTreeSet<String> {
    let of = |prefix: &'static str| {
        after(text, prefix).filter_map(move |rest| {
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            (end > 0).then(|| format!("{prefix}{}", &rest[..end]))
        })
    };
    PREFIXES.iter().copied().flat_map(of).collect()
}

/// String constants: name and value.
fn constants(text: &str) -> BTreeMap<&str, &str> {
    after(text, "const ")
        .filter_map(|rest| {
            let (name, rest) = rest.split_once(':')?;
            let (kind, rest) = rest.split_once('=')?;
            let value = rest.trim_start().strip_prefix('"')?;
            matches!(kind.trim(), "&str" | "&'static str").then_some((name, value.split_once('"')?.0))
        })
        .collect()
}

/// The name that an argument stands for. `rest` begins at the argument.
fn argument(rest: &str, constants: &BTreeMap<&str, &str>) -> Read {
    let text = rest[..rest.find([',', ')', ']']).unwrap_or(rest.len())].trim();
    if let Some(name) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        return Read::Name(name.to_owned());
    }
    let last = text.rsplit("::").next().unwrap_or(text);
    match constants.get(last) {
        Some(name) if last.chars().all(is_name) => Read::Name((*name).to_owned()),
        _ => Read::Unclear(text.to_owned()),
    }
}

fn rust_reads(text: &str, constants: &BTreeMap<&str, &str>) -> Vec<Read> {
    let macros = ["env!(", "option_env!("].into_iter().flat_map(|start| after(text, start));
    let mut reads: Vec<_> = macros.map(|rest| argument(rest, constants)).collect();
    for rest in text.match_indices("env::var").map(|(at, _)| &text[at + "env::".len()..]) {
        let function = &rest[..rest.find(|c| !is_identifier(c)).unwrap_or(rest.len())];
        reads.push(match (function, rest[function.len()..].strip_prefix('(')) {
            ("var" | "var_os", Some(rest)) => argument(rest, constants),
            _ => Read::Unclear(function.to_owned()),
        });
    }
    reads
}

fn python_reads(text: &str) -> Vec<Read> {
    let none = BTreeMap::new();
    ["os.environ.get(", "os.environ[", "os.getenv("]
        .into_iter()
        .flat_map(|start| after(text, start))
        .map(|rest| argument(rest, &none))
        .collect()
}

fn c_reads(text: &str) -> Vec<Read> {
    after(text, "getenv(").map(|rest| argument(rest, &BTreeMap::new())).collect()
}

/// `${NAME-…}`, `${NAME:-…}` and so on: how a script under `set -u` reads what may be unset.
fn shell_reads(text: &str) -> Vec<Read> {
    text.match_indices("${")
        .filter_map(|(at, _)| {
            let rest = &text[at + 2..];
            let end = rest.find(|c| !is_name(c))?;
            (end > 1 && rest[end..].starts_with([':', '-', '=', '?', '+'])).then(|| Read::Name(rest[..end].to_owned()))
        })
        .collect()
}

/// A source file: its path from the repository's root, and its text.
type Source = (String, String);

/// What the sources read, and what is wrong with how they do it.
fn survey(sources: &[Source]) -> (BTreeSet<String>, Vec<String>) {
    let mut everywhere = BTreeMap::new();
    let mut of_the_interface = BTreeSet::new();
    for (path, text) in sources {
        everywhere.extend(constants(text));
        if path.ends_with(".h") {
            of_the_interface.extend(constants_in_c(text));
        }
    }
    let mut names = BTreeSet::new();
    let mut wrong = Vec::new();
    let mut unclear_files = BTreeSet::new();
    for (path, text) in sources {
        // A file's own constants before those of the same name elsewhere.
        let mut known = everywhere.clone();
        known.extend(constants(text));
        let reads = match path.rsplit('.').next() {
            Some("rs") => rust_reads(text, &known),
            Some("py") => python_reads(text),
            Some("c" | "cpp" | "h") => c_reads(text),
            _ => shell_reads(text),
        };
        for read in reads {
            if let Read::Name(name) = &read
                && (SET_BY_CARGO.contains(&name.as_str())
                    || SET_BY_CARGO_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            {
                continue;
            }
            if path.starts_with("src/") && path != EDGE {
                wrong.push(format!("{path} reads {read:?}: within src/ only {EDGE} reads the environment"));
            }
            match read {
                Read::Name(name) => _ = names.insert(name),
                Read::Unclear(_) if THROUGH_A_VARIABLE.iter().any(|(file, _)| path == file) => {
                    unclear_files.insert(path.as_str());
                    names.extend(constants(text).into_values().map(str::to_owned));
                }
                Read::Unclear(what) => wrong.push(format!(
                    "{path} reads the environment by `{what}`: use a literal or a constant, or list the file with the reason"
                )),
            }
        }
        names.extend(mentioned(text).into_iter().filter(|name| !of_the_interface.contains(name)));
    }
    for (path, _) in THROUGH_A_VARIABLE {
        if sources.iter().any(|(source, _)| source == path) && !unclear_files.contains(path) {
            wrong.push(format!("{path} is listed as reading through a variable, and does not any more"));
        }
    }
    (names, wrong)
}

/// The page's variables in order: ours, and those of other projects.
fn page_names(page: &str) -> (Vec<&str>, Vec<&str>) {
    let (ours, foreign) = page.split_once(FOREIGN).unwrap_or((page, ""));
    let rows = |part| str::lines(part).filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    (rows(ours), rows(foreign))
}

/// Every disagreement between the sources and the page.
fn disagreements(sources: &[Source], page: &str) -> Vec<String> {
    let (read, mut wrong) = survey(sources);
    let (ours, foreign) = page_names(page);
    for name in read.iter().filter(|name| !ours.contains(&name.as_str())) {
        wrong.push(format!("{name} is read, or named like a variable of ours, and missing on the page"));
    }
    for name in ours.iter().filter(|name| !read.contains(**name)) {
        wrong.push(format!("{name} is on the page, and nothing reads it"));
    }
    for name in foreign.iter().filter(|name| read.contains(**name)) {
        wrong.push(format!("{name} is on the page under `{FOREIGN}`, and is read"));
    }
    let mut listed = BTreeSet::new();
    for name in ours.iter().chain(&foreign).filter(|name| !listed.insert(**name)) {
        wrong.push(format!("{name} is on the page twice"));
    }
    wrong
}

/// Adds a file, or the files of a folder; nothing where there is neither.
fn collect(root: &Path, path: &str, sources: &mut Vec<Source>) {
    let full = root.join(path);
    if let Ok(entries) = fs::read_dir(&full) {
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("a folder lists").file_name().into_string().expect("UTF-8")).collect();
        names.sort();
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            collect(root, &format!("{path}/{name}"), sources);
        }
    } else if path != SELF
        && matches!(path.rsplit('.').next(), Some("rs" | "py" | "sh" | "c" | "cpp" | "h"))
        && full.is_file()
    {
        let text = fs::read_to_string(&full).unwrap_or_else(|error| panic!("{path}: {error}"));
        sources.push((path.to_owned(), text));
    }
}

fn read_page(root: &Path) -> String {
    fs::read_to_string(root.join("docs/environment-variables.md")).expect("the page is there")
}

#[test]
fn page_and_code_agree() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for path in SCANNED {
        collect(root, path, &mut sources);
    }
    assert!(sources.iter().any(|(path, _)| path == EDGE), "{EDGE} was not scanned");
    // The published package has neither the engine nor the benchmarks; their variables would be on the page alone.
    if !root.join("engine").is_dir() {
        println!("engine/ is absent: page and code are not compared");
        return;
    }
    let wrong = disagreements(&sources, &read_page(root));
    assert!(wrong.is_empty(), "docs/environment-variables.md and the code disagree:\n  {}", wrong.join("\n  "));
}

#[test]
fn page_begins_with_the_switch_and_its_alias() {
    let page = read_page(Path::new(env!("CARGO_MANIFEST_DIR")));
    let (ours, _) = page_names(&page);
    assert_eq!(ours[..2], ["MLXCEL_SSM_KERNEL", "MLXCEL_SSM_CUDA_KERNEL"]);
}

/// Each rule has to be able to fail: small sources with one thing wrong, and a part of the message they have to cause.
#[test]
fn each_disagreement_is_found() {
    let edge = "pub const A: &str = \"SSM_UPDATE_A\";\nfn f(name: &str) { env::var_os(name); }";
    let edge_reads_another = format!("pub const B: &str = \"PLAIN\";\n{edge}");
    let page = "| `SSM_UPDATE_A` | x |\n\n## Not read by this project\n\n| `OTHERS` | y |\n";
    let with = |path: &str, text: &str| {
        let sources = [(EDGE.to_owned(), edge.to_owned()), (path.to_owned(), text.to_owned())];
        disagreements(&sources, page)
    };
    assert_eq!(with("src/lib.rs", "fn nothing() {}"), [""; 0], "nothing is wrong here");
    assert_eq!(
        with("include/h.h", "#define SSM_UPDATE_C 1\nenum { SSM_UPDATE_D = 2 };"),
        [""; 0],
        "constants are no variables"
    );
    assert_eq!(with("tests/t.rs", "env!(\"CARGO_MANIFEST_DIR\"); env::var(a::A);"), [""; 0], "nor here");

    for (path, text, expected) in [
        ("tests/t.rs", "// SSM_UPDATE_B", "SSM_UPDATE_B is read"),
        ("tests/t.rs", "env::var(\"PLAIN\")", "PLAIN is read"),
        ("tests/t.rs", "const C: &str = \"MLXCEL_C\"; std::env::var_os(C)", "MLXCEL_C is read"),
        ("tests/t.rs", "const C: &'static str = \"PLAIN\"; std::env::var_os(C)", "PLAIN is read"),
        ("build.rs", "option_env!(\"PLAIN\")", "PLAIN is read"),
        ("engine/src/main.rs", "env!(\"PLAIN\", \"why\")", "PLAIN is read"),
        ("scripts/s.py", "os.environ.get(\"PLAIN\", 1)", "PLAIN is read"),
        ("scripts/s.py", "os.environ[\"PLAIN\"]", "PLAIN is read"),
        ("scripts/s.sh", "echo \"${PLAIN-}\"", "PLAIN is read"),
        ("scripts/s.sh", "echo \"${PLAIN:-7}\"", "PLAIN is read"),
        ("capi/examples/e.c", "getenv(\"PLAIN\")", "PLAIN is read"),
        ("include/h.h", "/* SSM_UPDATE_B */\n#define SSM_UPDATE_C 1", "SSM_UPDATE_B is read"),
        ("tests/t.rs", "env::var(name)", "use a literal or a constant"),
        ("tests/t.rs", "names.map(env::var_os)", "use a literal or a constant"),
        ("tests/t.rs", "env::vars()", "use a literal or a constant"),
        ("tests/t.rs", "use std::env::var;", "use a literal or a constant"),
        ("src/port.rs", "env::var(switches::A)", "only src/switches.rs reads"),
        ("src/port.rs", "option_env!(\"SSM_UPDATE_A\")", "only src/switches.rs reads"),
        ("tests/t.rs", "env::var(\"OTHERS\")", "under `## Not read by this project`"),
        ("engine/src/commands/doctor.rs", "fn nothing() {}", "does not any more"),
    ] {
        let wrong = with(path, text);
        assert!(
            wrong.iter().any(|line| line.contains(expected)),
            "{path}: {text}: expected {expected:?}, got {wrong:?}"
        );
    }

    let other = disagreements(&[(EDGE.to_owned(), edge_reads_another)], page);
    assert!(other.iter().any(|line| line.contains("PLAIN is read")), "{other:?}");
    let sources = [(EDGE.to_owned(), edge.to_owned())];
    let twice = disagreements(&sources, &format!("| `SSM_UPDATE_A` | x |\n{page}"));
    assert!(twice.iter().any(|line| line.contains("SSM_UPDATE_A is on the page twice")), "{twice:?}");
    let stale = disagreements(&sources, &format!("| `SSM_UPDATE_OLD` | x |\n{page}"));
    assert!(stale.iter().any(|line| line.contains("SSM_UPDATE_OLD is on the page, and nothing reads it")), "{stale:?}");
}
