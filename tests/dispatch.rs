//! One gate: predicate and dispatch give the same answer whatever the switches and ports, and nothing else in the code compares
//! back ends or asks a driver whether it is there.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use ssm_update::switches::Selection;
use ssm_update::{Error, Kernel, Launch, Port, Step, Stream, Unavailable, has_kernel_port, select_with};

#[derive(Debug)]
struct Fake(&'static str);

impl Kernel for Fake {
    fn port(&self) -> &'static str {
        self.0
    }

    fn describe(&self) -> String {
        self.0.to_owned()
    }

    unsafe fn launch(&self, _launch: &Launch, _stream: Stream) -> Result<(), Error> {
        Ok(())
    }

    fn step(&self, _step: Step<'_>) -> Result<(), Error> {
        Ok(())
    }
}

/// Whether each fake port opens just now: each bit of a combination.
static OPENS: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];

fn open<const PORT: usize>() -> Result<Box<dyn Kernel>, Unavailable> {
    if OPENS[PORT].load(Ordering::SeqCst) {
        Ok(Box::new(Fake(NAMES[PORT])))
    } else {
        Err(Unavailable::NotBuilt(format!("{} is away", NAMES[PORT])))
    }
}

const NAMES: [&str; 4] = ["rocm", "cuda", "metal", "cpu"];
const TABLE: [Port; 4] = [
    Port { name: NAMES[0], open: open::<0> },
    Port { name: NAMES[1], open: open::<1> },
    Port { name: NAMES[2], open: open::<2> },
    Port { name: NAMES[3], open: open::<3> },
];

/// What has to come out, said again in one line each: the name of the port, or none.
fn wanted(kernel: Option<&str>, alias: Option<&str>, port: Option<&str>) -> Option<&'static str> {
    if kernel == Some("0") || alias == Some("0") {
        return None;
    }
    let opens = |at: &usize| OPENS[*at].load(Ordering::SeqCst);
    match port {
        None => (0..4).find(opens).map(|at| NAMES[at]),
        Some(name) => NAMES.iter().position(|other| *other == name).filter(opens).map(|at| NAMES[at]),
    }
}

/// Every combination of switches and of ports that open: 5 * 5 * 6 * 16 of them.
fn combinations(mut check: impl FnMut(&Selection, Option<&'static str>)) -> usize {
    const VALUES: [Option<&str>; 5] = [None, Some("0"), Some("1"), Some(""), Some("00")];
    let mut count = 0;
    for opens in 0..16_u8 {
        for (at, port) in OPENS.iter().enumerate() {
            port.store(opens >> at & 1 == 1, Ordering::SeqCst);
        }
        for kernel in VALUES {
            for alias in VALUES {
                for port in [None, Some("rocm"), Some("cuda"), Some("metal"), Some("cpu"), Some("vulkan")] {
                    let value = |value: Option<&str>| value.map(OsString::from);
                    let switches = Selection { kernel: value(kernel), cuda_kernel: value(alias), port: value(port) };
                    check(&switches, wanted(kernel, alias, port));
                    count += 1;
                }
            }
        }
    }
    count
}

/// Both in one test, since the fake ports are shared.
#[test]
fn ssm_update_dispatch_agrees_with_the_predicate() {
    let count = combinations(|switches, wanted| {
        let taken = select_with(&TABLE, switches);
        assert_eq!(taken.as_ref().ok().map(|kernel| kernel.port()), wanted, "{switches:?}");
        if let Err(why) = taken {
            assert!(why.to_string().len() > 20, "a reason: {why}");
        }
        // The predicate reads the environment itself, whatever is set there.
        assert_eq!(has_kernel_port(&TABLE), select_with(&TABLE, &Selection::from_env()).is_ok());
    });
    assert_eq!(count, 16 * 5 * 5 * 6);
    println!("predicate and dispatch: {count} combinations of switches and ports");

    // A dispatch that ignored a switch, or fell back from a named port, would be found.
    let first_that_opens = |_: &Selection| (0..4).find(|&at| OPENS[at].load(Ordering::SeqCst)).map(|at| NAMES[at]);
    let mut differs = 0;
    combinations(|switches, wanted| differs += usize::from(first_that_opens(switches) != wanted));
    assert!(differs > 0);
}

/// What only the gate may do: compare the name of a port, or ask a driver for its presence.
const ONLY_THE_GATE: &[&str] = &[
    ".port() ==",
    ".port() !=",
    "port.name ==",
    "port.name !=",
    "match kernel.port()",
    "hipGetDeviceCount",
    "device_count()",
    "is_culib_present",
    "cuDeviceGetCount",
    "MTLCreateSystemDefaultDevice",
    "MTLCopyAllDevices",
    "libamdhip64",
    "libcuda",
];

/// Where these are at home: the gate itself, and the drivers that a port's `open` asks.
const ALLOWED: &[&str] = &["src/port.rs", "src/driver/", "src/ports/rocm/mod.rs", "src/ports/cuda/mod.rs"];

/// Lines of code (not comments) that do what only the gate may do.
fn offenders(path: &str, text: &str) -> Vec<String> {
    if ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
        return Vec::new();
    }
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.filter(|(_, line)| ONLY_THE_GATE.iter().any(|pattern| line.contains(pattern)))
        .map(|(number, line)| format!("{path}:{}: {}", number + 1, line.trim()))
        .collect()
}

fn walk(root: &Path, folder: &str, found: &mut Vec<String>, files: &mut usize) {
    let mut entries: Vec<_> =
        fs::read_dir(root.join(folder)).expect("a folder lists").map(|entry| entry.expect("an entry")).collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            walk(root, &path, found, files);
        } else if path.ends_with(".rs") {
            *files += 1;
            found.extend(offenders(&path, &fs::read_to_string(entry.path()).expect("a source is text")));
        }
    }
}

#[test]
fn ssm_update_dispatch_is_the_only_place_that_compares_back_ends() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut files) = (Vec::new(), 0);
    // The published package is `src` alone.
    for folder in
        ["src", "candle/src", "capi/src", "engine/src"].into_iter().filter(|folder| root.join(folder).is_dir())
    {
        walk(root, folder, &mut found, &mut files);
    }
    assert!(files > 20, "{files} sources were read");
    assert!(found.is_empty(), "only the gate compares back ends or asks for a driver:\n  {}", found.join("\n  "));

    for line in [
        "if kernel.port() == \"rocm\" {",
        "    let gpu = hip.device_count()? > 0;",
        "let there = Path::new(\"/opt/rocm/lib/libamdhip64.so\").exists();",
    ] {
        assert_eq!(offenders("engine/src/ssm/select.rs", line).len(), 1, "{line}");
        assert_eq!(offenders("src/port.rs", line).len(), 0, "at home there");
    }
    assert_eq!(offenders("engine/src/lib.rs", "// kernel.port() == what?").len(), 0, "a comment");
}
