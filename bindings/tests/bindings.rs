//! The committed declarations agree with HIP's headers, where there are some; and whatever could differ is found.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ssm_update_bindings::{DRIVER, Error, Headers, SETS, compare, generate, read};

const BINDINGS: &str = DRIVER.bindings;

// The assertions of the layouts hold where this compiles.
#[path = "../../src/driver/hip/bindings.rs"]
mod bindings;

/// Says why a test has no answer here; in continuous integration there is no such reason.
fn not_run(what: &str, reason: &dyn std::fmt::Display) {
    assert!(env::var_os("CI").is_none(), "{what} has to run where CI is set, and does not: {reason}");
    println!("{what}: NOT RUN ({reason})");
}

#[test]
fn the_committed_declarations_agree_with_the_headers_found() {
    let compared: [&[&str]; 3] = [
        &["fn hipModuleLaunchKernel", "layout of hipDeviceProp_tR0000", "const hipError_t::hipErrorNoDevice"],
        &[
            "fn hipStreamBeginCapture",
            "type hipGraphExec_t",
            "const hipStreamCaptureMode::hipStreamCaptureModeThreadLocal",
        ],
        &["fn hiprtcCompileProgram", "struct hiprtcResult"],
    ];
    for (set, expected) in SETS.iter().zip(compared) {
        let generated = Headers::find(None).and_then(|headers| Ok((generate(set, &headers)?, headers)));
        let (generated, headers) = match generated {
            Ok(found) => found,
            Err(Error::Absent(reason)) => {
                not_run(&format!("comparison of {} with HIP's headers", set.bindings), &reason);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let found = compare(&read(set.bindings).unwrap(), generated.items, headers.complete()).unwrap();
        println!("HIP {}: compared {:?}, not compared {:?}", headers.version, found.compared, found.not_compared);
        assert!(found.differences.is_empty(), "{}", found.differences.join("\n"));
        for name in expected {
            assert!(found.compared.iter().any(|compared| compared == name), "{name} was not compared");
        }
        // HIP 5 lacks the device properties of HIP 6, and nothing else.
        let expected = |name: &String| name.contains("R0600") || name.contains("hipUUID");
        assert!(found.not_compared.iter().all(expected), "{:?}", found.not_compared);
    }
}

#[test]
fn each_layout_of_the_device_properties_has_its_own_offsets() {
    use bindings::{hipDeviceProp_tR0000 as Old, hipDeviceProp_tR0600 as New};
    use std::mem::{offset_of, size_of};
    assert_eq!((offset_of!(Old, gcnArchName), size_of::<Old>()), (396, 792));
    assert_eq!((offset_of!(New, gcnArchName), size_of::<New>()), (1160, 1472));
    assert_eq!((offset_of!(Old, warpSize), offset_of!(New, warpSize)), (276, 308));
}

/// A value that no constant has is a value like any other.
#[test]
fn statuses_are_integers() {
    assert_eq!(bindings::hipError_t::hipErrorSharedObjectInitFailed, bindings::hipError_t(303));
    assert_ne!(bindings::hipError_t(916), bindings::hipError_t::hipSuccess);
}

/// One change at a time to the committed text, and the lines that have to be named.
#[test]
fn each_kind_of_difference_is_found() {
    let committed = read(BINDINGS).unwrap();
    let generated = || syn::parse_file(&committed).unwrap().items;
    let same = compare(&committed, generated(), true).unwrap();
    assert!(same.differences.is_empty() && same.compared.len() > 60, "{same:?}");
    let reformatted = committed.replace('\n', " \n  ").replace("//", "// other words, ");
    assert!(compare(&reformatted, generated(), true).unwrap().differences.is_empty(), "the format is no difference");

    for (what, from, to, expected) in [
        ("signature", "hipFree(ptr: *mut", "hipFree(ptr: *const", "+ pub fn hipFree(ptr: *mut"),
        (
            "result",
            "kname: *const ::core::ffi::c_char,\n    ) -> hipError_t",
            "kname: *const ::core::ffi::c_char,\n    )",
            "fn hipModuleGetFunction:",
        ),
        ("field", "pub gcnArch: ::core::ffi::c_int", "pub gcnArch: usize", "- pub gcnArch: usize,"),
        ("field gone", "    pub tccDriver: ::core::ffi::c_int,\n", "", "+ pub tccDriver: ::core::ffi::c_int,"),
        ("offset", "gcnArchName) - 396usize", "gcnArchName) - 1160usize", "layout of hipDeviceProp_tR0000:"),
        ("constant", "hipError_t(303)", "hipError_t(304)", "const hipError_t::hipErrorSharedObjectInitFailed:"),
        (
            "status type",
            "pub struct hipError_t(pub ::core::ffi::c_uint)",
            "pub struct hipError_t(pub u8)",
            "struct hipError_t:",
        ),
        ("handle", "pub type hipModule_t = *mut", "pub type hipModule_t = *const", "type hipModule_t:"),
        ("calling convention", "extern \"C\"", "extern \"system\"", "fn hipInit:"),
        (
            "too little",
            "pub fn hipInit(flags: ::core::ffi::c_uint) -> hipError_t;",
            "",
            "fn hipInit: in the headers alone",
        ),
        ("too much", "pub type hipUUID =", "pub type mine = u8;\npub type hipUUID =", "type mine: not in the headers"),
    ] {
        let changed = committed.replacen(from, to, if what == "field gone" { 2 } else { 1 });
        assert_ne!(changed, committed, "{what}: the text has no {from:?}");
        let found = compare(&changed, generated(), true).unwrap();
        let text = found.differences.join("\n");
        assert!(text.contains(expected), "{what}: {text}");
    }
}

/// Incomplete headers excuse what they lack, and nothing else.
#[test]
fn incomplete_headers_are_compared_in_what_they_have() {
    let committed = read(BINDINGS).unwrap();
    let lacking = || {
        let mut items = syn::parse_file(&committed).unwrap().items;
        items.retain(|item| !matches!(item, syn::Item::Struct(item) if item.ident == "hipDeviceProp_tR0600"));
        items
    };
    let found = compare(&committed, lacking(), false).unwrap();
    assert!(found.differences.is_empty(), "{:?}", found.differences);
    assert_eq!(found.not_compared, ["struct hipDeviceProp_tR0600"]);
    assert_eq!(
        compare(&committed, lacking(), true).unwrap().differences,
        ["struct hipDeviceProp_tR0600: not in the headers"]
    );
    let changed = committed.replacen("hipError_t(303)", "hipError_t(304)", 1);
    assert_eq!(compare(&changed, lacking(), false).unwrap().differences.len(), 1);
}

/// Headers made up for a test, removed at its end.
struct MadeUp(PathBuf);

impl MadeUp {
    fn new(name: &str, major: u32, api: &str) -> Self {
        let root = env::temp_dir().join(format!("ssm-update-bindings-{name}-{}", std::process::id()));
        let hip = root.join("hip");
        fs::create_dir_all(&hip).unwrap();
        let number = |name, value| format!("#define HIP_VERSION_{name} {value}\n");
        let version = number("MAJOR", major) + &number("MINOR", 0) + &number("PATCH", 0);
        fs::write(hip.join("hip_version.h"), version).unwrap();
        fs::write(hip.join("hip_runtime_api.h"), api).unwrap();
        fs::write(hip.join("hip_deprecated.h"), "").unwrap();
        Self(root)
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        // Best effort: what is left lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the command, with LIBCLANG_PATH where it is given.
fn command(include: &Path, more: &[&str], libclang: Option<&Path>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ssm-update-bindings"));
    command.args([OsStr::new("--include"), include.as_os_str()]).args(more);
    command.envs(libclang.map(|path| ("LIBCLANG_PATH", path)));
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

#[test]
fn what_is_absent_has_a_status_and_a_remedy() {
    let empty = env::temp_dir().join("ssm-update-bindings-no-such-folder");
    let (status, text) = command(&empty, &[], None);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("--include") && text.contains("libamdhip64-dev"), "{text}");

    let headers = MadeUp::new("no-libclang", 5, "");
    let (status, text) = command(&headers.0, &[], Some(&empty));
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("libclang1-19") && text.contains("LIBCLANG_PATH"), "{text}");

    let (status, text) = command(&headers.0, &["--unknown"], None);
    assert_eq!(status, Some(2), "{text}");
}

/// From the headers to the exit status: bindgen sees each change.
#[test]
fn changed_headers_have_a_status_and_their_lines() {
    let before = read(BINDINGS).unwrap();
    let api = "typedef enum hipError_t { hipSuccess = 1, hipErrorNew = 5000 } hipError_t;\n\
               typedef struct hipDeviceProp_t { char gcnArchName[256]; } hipDeviceProp_t;\n\
               hipError_t hipInit(unsigned char flags);\n\
               hipError_t hipGetDeviceProperties(hipDeviceProp_t* prop, int deviceId);\n";
    let old = MadeUp::new("old", 5, api);
    let (status, text) = command(&old.0, &[], None);
    if status == Some(3) {
        return not_run("comparison with made-up headers", &text);
    }
    assert_eq!(status, Some(1), "{text}");
    for line in [
        "+ pub const hipSuccess: hipError_t = hipError_t(1);",
        "+ pub fn hipInit(flags: ::core::ffi::c_uchar) -> hipError_t;",
        "- pub name: [::core::ffi::c_char; 256usize],",
        "layout of hipDeviceProp_tR0000:",
        "  fn hipMalloc\n", // among the ones that are not compared
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("hipErrorNew") && !text.contains("fn hipGetDeviceProperties:"), "{text}");

    let (status, text) = command(&old.0, &["--write"], None);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("too old to write from"), "{text}");

    // Of complete headers everything is asked.
    let new = MadeUp::new("new", 7, &format!("{api}typedef hipDeviceProp_t hipDeviceProp_tR0000;\n"));
    let (status, text) = command(&new.0, &["--write"], None);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("which the headers of HIP 7.0.0 do not have"), "{text}");

    let broken = MadeUp::new("broken", 7, "#include \"gone.h\"\n");
    let (status, text) = command(&broken.0, &[], None);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("'gone.h' file not found"), "{text}");
    assert_eq!(read(BINDINGS).unwrap(), before, "nothing was written");
}
