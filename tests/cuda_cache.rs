//! Compiled kernels: each key is compiled once, several at once, and kept on disk, so that only the first process on a machine
//! compiles; and nothing that may be wrong with the folder or its files is an error. Against a scripted NVRTC.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Barrier;

use common::addresses::addresses;
use common::child;
use common::folder::Folder;
use common::log::take_warnings;
use common::scripted_cuda::{NVRTC, Script, library};
use ssm_update::ports::cuda::{CudaKernel, cache};
use ssm_update::switches::{CACHE_DIR, CUDA_HOME, CUDA_LIBRARY, Cuda, NVRTC_LIBRARY};
use ssm_update::{Dims, Dtype, Dtypes, Kernel, Launch, Problem, Stream, validate};

fn open_with(script: &Script, cache_dir: impl AsRef<OsStr>) -> CudaKernel {
    let switches = Cuda { cache_dir: Some(cache_dir.as_ref().to_owned()), ..script.switches() };
    CudaKernel::open(&switches, None).unwrap_or_else(|why| panic!("{why}"))
}

/// A launch whose key no other number has: 0 to 44.
fn launch(number: usize) -> Launch {
    let nth = |place: u32| Dtype::ALL[number / 3_usize.pow(place) % 3];
    let dims = Dims { batch: 2, heads: 2, head_dim: 3, groups: 1, d_state: 16 << (number / 9), slots: 2 };
    let dtypes = Dtypes { dt: nth(0), state: nth(1), ..Dtypes::uniform(Dtype::F32) };
    validate(&Problem::contiguous(dims, dtypes), &addresses()).expect("a legal launch")
}

/// Launches on this thread, so that what is logged is logged here.
fn run(kernel: &CudaKernel, number: usize) {
    // SAFETY: the script reads none of the tensors.
    unsafe { kernel.launch(&launch(number), Stream::DEFAULT) }.unwrap_or_else(|error| panic!("{number}: {error}"));
}

fn compiled(script: &Script) -> usize {
    script.calls_of("nvrtcCompileProgram").len()
}

// --- in one process -----------------------------------------------------------------------------------------------------

#[test]
fn the_launches_of_these_tests_have_keys_of_their_own() {
    let keys: std::collections::HashSet<_> =
        (0..45).map(|number| ssm_update::ports::cuda::key::Key::of(&launch(number))).collect();
    assert_eq!(keys.len(), 45);
}

#[test]
fn each_key_is_a_file_and_the_second_handle_compiles_nothing() {
    let folder = Folder::new("files");
    let within = folder.0.join("made/on/demand");
    let script = Script::new();
    let kernel = open_with(&script, &within);
    assert!(kernel.describe().contains(&within.display().to_string()), "{}", kernel.describe());
    assert_eq!((folder.names().len(), compiled(&script)), (1, 1), "the small kernel that is tried");
    for number in 0..12 {
        run(&kernel, number);
        assert_eq!((folder.names().len(), compiled(&script)), (2 + number, 2 + number));
        run(&kernel, number);
        assert_eq!(compiled(&script), 2 + number, "once");
    }
    drop(kernel);
    let first = folder.everything();
    for name in first.keys() {
        assert_eq!(name.extension(), Some("cubin".as_ref()), "{}", name.display());
    }
    let images = |script: &Script| -> Vec<u64> {
        script.calls_of("cuModuleLoadData").iter().map(|call| call.arguments[2]).collect()
    };
    let loaded = images(&script);

    // As another process has it: another driver, another compiler, of the same versions.
    let other = Script::new();
    let kernel = open_with(&other, &within);
    (0..12).for_each(|number| run(&kernel, number));
    assert_eq!(other.calls_of("nvrtcCreateProgram"), []);
    assert_eq!(images(&other), loaded, "the same images");
    assert_eq!(folder.everything(), first);
    drop(kernel);
    script.assert_clean("after the first");
    other.assert_clean("after the second");
}

/// Source, headers, options and version, and nothing else: all that NVRTC is handed.
#[test]
fn the_name_of_a_file_is_made_of_everything_that_the_kernel_depends_on() {
    let folder = Folder::new("names");
    let script = Script::new();
    let kernel = open_with(&script, &folder.0);
    run(&kernel, 5);
    let created = script.calls_of("nvrtcCreateProgram");
    let compiled = script.calls_of("nvrtcCompileProgram");
    let expected: BTreeSet<PathBuf> = created
        .iter()
        .zip(&compiled)
        .map(|(created, compiled)| {
            let parts = ["NVRTC", "12.4"].into_iter().chain(created.notes()).chain(compiled.notes());
            PathBuf::from(format!("{}.cubin", cache::name(parts)))
        })
        .collect();
    assert_eq!(expected.len(), 2);
    assert_eq!(folder.names(), expected);
    let kernel = &created[1].notes();
    assert!(kernel[1].contains("ssm_update") && kernel.len() >= 6, "the source and its headers");

    // The parts are kept apart, each of them counts, and so does their order.
    let names =
        [vec!["ab", "c"], vec!["a", "bc"], vec!["abc"], vec!["c", "ab"], vec!["ab", "c", ""], vec!["ab", "d"], vec![]];
    let distinct: BTreeSet<String> = names.iter().map(|parts| cache::name(parts.iter().copied())).collect();
    assert_eq!(distinct.len(), names.len());
    assert!(distinct.iter().all(|name| name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())));
}

#[test]
fn another_architecture_or_another_nvrtc_has_files_of_its_own() {
    let folder = Folder::new("versions");
    let mut names = BTreeSet::new();
    for (capability, nvrtc) in [
        ((9, 0), (12, 4)),
        ((8, 0), (12, 4)),
        ((8, 6), (12, 4)),
        ((7, 0), (12, 4)),
        ((9, 0), (12, 5)),
        ((9, 0), (12, 14)),
        ((9, 0), (11, 4)),
        ((8, 6), (11, 4)),
    ] {
        let script = Script::new();
        script.set_devices(&[capability]);
        script.set_nvrtc(nvrtc);
        let kernel = open_with(&script, &folder.0);
        run(&kernel, 0);
        assert_eq!(compiled(&script), 2, "{capability:?}, {nvrtc:?}");
        let now = folder.names();
        assert_eq!(now.len(), names.len() + 2, "{capability:?}, {nvrtc:?}");
        names = now;
    }
    // What a file does not depend on: the driver, and the device where the architecture is the same.
    let script = Script::new();
    script.set_driver(13_000);
    script.set_devices(&[(9, 1), (9, 0)]);
    let kernel = open_with(&script, &folder.0);
    run(&kernel, 0);
    assert_eq!((compiled(&script), folder.names()), (0, names));
}

/// Ways in which a file that was whole is not.
fn damages(whole: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut damages = vec![
        ("empty".to_owned(), Vec::new()),
        ("another file".to_owned(), b"this is no compiled kernel\n".repeat(100)),
        ("zeros".to_owned(), vec![0; whole.len()]),
        ("one byte more".to_owned(), [whole, b"\0"].concat()),
        ("twice".to_owned(), [whole, whole].concat()),
    ];
    let magic = whole.iter().position(|&byte| byte == b'\n').expect("the first line names the format") + 1;
    // Of the magic line, of the checksum, of the image.
    let places = [0, magic - 2, magic, magic + 31, magic + 32, magic + 33, whole.len() / 2, whole.len() - 1];
    for at in places {
        let mut flipped = whole.to_vec();
        flipped[at] ^= 1;
        damages.push((format!("byte {at} flipped"), flipped));
        damages.push((format!("cut at {at}"), whole[..at].to_vec()));
    }
    // A layout of another version: the rest is in order.
    let mut other = whole.to_vec();
    let number = whole[..magic].iter().rposition(u8::is_ascii_digit).expect("the layout has a number");
    other[number] += 1;
    damages.push(("another layout".to_owned(), other));
    damages
}

#[test]
fn a_damaged_file_is_replaced() {
    let folder = Folder::new("damaged");
    let script = Script::new();
    drop(open_with(&script, &folder.0));
    let probe = folder.names();
    run(&open_with(&script, &folder.0), 3);
    let whole = folder.everything();
    assert_eq!(whole.len(), 2);
    for name in whole.keys() {
        let path = folder.0.join(name);
        let bytes = fs::read(&path).expect("it is there");
        for (what, damaged) in damages(&bytes) {
            fs::write(&path, &damaged).expect("a file can be written");
            let mut before = fs::File::open(&path).expect("it is there");
            script.forget();
            take_warnings();
            let kernel = open_with(&script, &folder.0);
            run(&kernel, 3);
            assert_eq!(compiled(&script), 1, "{what}: the damaged one alone");
            let warnings = take_warnings();
            assert!(warnings.len() == 1 && warnings[0].contains(&path.display().to_string()), "{what}: {warnings:?}");
            assert_eq!(folder.everything(), whole, "{what}: as it was, and nothing beside it");
            // Who has opened the old file reads that to its end: the new one is another file, which came to be at once.
            let mut still = Vec::new();
            before.read_to_end(&mut still).expect("it reads");
            assert!(still == damaged, "{what}: the old file has changed");
            let inode = |metadata: fs::Metadata| metadata.ino();
            let (old, new) = (before.metadata().expect("there"), fs::metadata(&path).expect("there"));
            assert_ne!(inode(old), inode(new), "{what}: written in place");
            drop(kernel);
            // And whole from then on.
            script.forget();
            run(&open_with(&script, &folder.0), 3);
            assert_eq!((compiled(&script), take_warnings()), (0, vec![]), "{what}");
        }
        let kind = if probe.contains(name) { "the small kernel that is tried" } else { "a kernel" };
        println!("{kind}: {} damages", damages(&bytes).len());
    }
    script.assert_clean("after all damages");
}

/// An empty folder in a file's place is replaced like a damaged file. One with something in it is somebody's, and stays.
#[test]
fn a_folder_in_the_place_of_a_file_is_no_error() {
    let folder = Folder::new("folders");
    let script = Script::new();
    run(&open_with(&script, &folder.0), 3);
    let whole = folder.everything();
    for name in whole.keys() {
        let path = folder.0.join(name);
        fs::remove_file(&path).expect("it is there");
        fs::create_dir(&path).expect("its name is free");
        script.forget();
        run(&open_with(&script, &folder.0), 3);
        assert_eq!(compiled(&script), 1);
        assert_eq!(folder.everything(), whole, "replaced");

        fs::remove_file(&path).expect("it is there");
        fs::create_dir(&path).expect("its name is free");
        fs::write(path.join("somebodys"), "own").expect("a file can be written");
        for _ in 0..2 {
            script.forget();
            run(&open_with(&script, &folder.0), 3);
            assert_eq!(compiled(&script), 1, "each time");
        }
        let expected: BTreeSet<PathBuf> =
            whole.keys().map(|other| if other == name { name.join("somebodys") } else { other.clone() }).collect();
        assert_eq!(folder.names(), expected, "nothing is removed, and nothing is left beside it");
        fs::remove_dir_all(&path).expect("it is there");
        run(&open_with(&script, &folder.0), 3);
        assert_eq!(folder.everything(), whole);
    }
}

#[test]
fn a_folder_that_cannot_be_is_no_error() {
    let folder = Folder::new("cannot");
    let file = folder.0.join("file");
    fs::write(&file, "a file").expect("a file can be written");
    // Below a file, a file itself, and in file systems where nobody makes files, not even root.
    let below = file.join("below/it");
    for cannot in
        [below.as_path(), &file, Path::new("/proc/ssm-update"), Path::new("/sys/ssm-update"), Path::new("/proc")]
    {
        for _ in 0..2 {
            let script = Script::new();
            let kernel = open_with(&script, cannot);
            run(&kernel, 1);
            run(&kernel, 1);
            kernel.prepare(&[launch(1), launch(2)]).expect("compiles");
            assert_eq!(compiled(&script), 3, "{}: each handle compiles, once", cannot.display());
            drop(kernel);
            script.assert_clean(&cannot.display().to_string());
        }
    }
    assert_eq!(folder.names(), BTreeSet::from(["file".into()]));
    assert_eq!(fs::read(&file).expect("it is there"), b"a file");
}

#[test]
fn a_folder_that_can_only_be_read_serves_what_it_has() {
    let folder = Folder::new("read-only");
    let script = Script::new();
    run(&open_with(&script, &folder.0), 1);
    let kept = folder.everything();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o555)).expect("it is ours");
    // Whether the permissions bind this user.
    let binds = fs::write(folder.0.join("tried"), "x").is_err();
    let _ = fs::remove_file(folder.0.join("tried"));
    script.forget();
    let kernel = open_with(&script, &folder.0);
    run(&kernel, 1);
    assert_eq!(compiled(&script), 0, "what is there is read");
    run(&kernel, 2);
    assert_eq!(compiled(&script), 1, "what is not there is compiled");
    let now = folder.everything();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).expect("it is ours");
    if binds {
        assert_eq!(now, kept);
    } else {
        // For root, `a_folder_that_cannot_be_is_no_error` has the folders in which nothing can be made.
        println!("permissions do not bind this user: the folder was written to");
        assert_eq!(now.len(), kept.len() + 1);
    }
}

/// A file that may not be read. Root reads it all the same.
#[test]
fn a_file_that_cannot_be_read_is_no_error() {
    let folder = Folder::new("unreadable");
    let script = Script::new();
    run(&open_with(&script, &folder.0), 1);
    for name in folder.names() {
        fs::set_permissions(folder.0.join(name), fs::Permissions::from_mode(0o000)).expect("it is ours");
    }
    run(&open_with(&script, &folder.0), 1);
    assert_eq!(folder.names().len(), 2);
}

#[test]
fn without_a_cache_each_handle_compiles_and_nothing_is_written() {
    let script = Script::new();
    for _ in 0..2 {
        script.forget();
        let kernel = open_with(&script, "");
        assert!(kernel.describe().contains("not kept"), "{}", kernel.describe());
        run(&kernel, 0);
        run(&kernel, 0);
        assert_eq!(compiled(&script), 2);
    }
}

// --- several at once ----------------------------------------------------------------------------------------------------

#[test]
fn several_keys_are_compiled_at_once() {
    const KEYS: usize = 4;
    let script = Script::new();
    let kernel = open_with(&script, "");
    // Threads of its own: the machine may have one processor.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(KEYS).build().expect("a pool");
    script.forget();
    script.set_meeting(KEYS as u32, 8_000);
    pool.install(|| kernel.prepare(&(0..KEYS).map(launch).collect::<Vec<_>>())).expect("compiles");
    assert_eq!(script.most_compiling(), KEYS as u32, "all of them were under way at the same time");
    assert_eq!(compiled(&script), KEYS);
    let threads: BTreeSet<u64> = script.calls_of("nvrtcCompileProgram").iter().map(|call| call.thread).collect();
    assert_eq!(threads.len(), KEYS);
    // The others have no context of their own, and had none afterwards.
    pool.broadcast(|_| assert_eq!(script.stack(), (0, 0)));
    // Launches of different kernels do not wait for each other's compilation either.
    script.set_meeting(2, 8_000);
    std::thread::scope(|scope| {
        for number in [10, 11] {
            let kernel = &kernel;
            scope.spawn(move || run(kernel, number));
        }
    });
    assert_eq!(script.most_compiling(), 2);
    drop(kernel);
    script.assert_clean("after closing");
}

#[test]
fn a_key_that_several_threads_want_is_compiled_once() {
    const THREADS: usize = 8;
    let script = Script::new();
    let kernel = open_with(&script, "");
    script.forget();
    // A compilation takes longer than it takes the other threads to want the same.
    script.set_meeting(u32::MAX, 300);
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (kernel, start) = (&kernel, &start);
            scope.spawn(move || {
                start.wait();
                match thread % 2 {
                    0 => run(kernel, 0),
                    _ => kernel.prepare(&[launch(0), launch(0)]).expect("compiles"),
                }
            });
        }
    });
    assert_eq!((compiled(&script), script.most_compiling()), (1, 1));
    assert_eq!(script.calls_of("cuModuleLoadData").len(), 1);
    assert_eq!(script.calls_of("cuLaunchKernelEx").len(), THREADS / 2);
    drop(kernel);
    script.assert_clean("after closing");
}

#[test]
fn handles_of_several_threads_share_a_folder() {
    let folder = Folder::new("threads");
    let script = Script::new();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (script, folder) = (&script, &folder);
            scope.spawn(move || {
                take_warnings();
                for round in 0..4 {
                    let kernel = open_with(script, &folder.0);
                    (0..6).for_each(|number| run(&kernel, (number + thread + round) % 6));
                }
                assert_eq!(take_warnings(), [""; 0], "nobody saw half a file");
            });
        }
    });
    assert_eq!(folder.names().len(), 7);
    let after = Script::new();
    let kernel = open_with(&after, &folder.0);
    (0..6).for_each(|number| run(&kernel, number));
    assert_eq!(compiled(&after), 0);
    script.assert_clean("after all threads");
}

// --- in processes of their own ------------------------------------------------------------------------------------------

/// Keys that a child makes.
const OF_A_CHILD: usize = 8;

/// Not a test of its own: opens the port as the environment has it and makes kernels.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_makes_kernels() {
    take_warnings();
    let kernel = CudaKernel::open(&Cuda::from_env(), None).unwrap_or_else(|why| panic!("{why}"));
    (0..OF_A_CHILD).for_each(|number| run(&kernel, number));
    println!("\nANSWER {:?} {}", take_warnings(), kernel.describe());
}

/// Starts a child in a folder of its own, whose environment names no cache but what is given.
fn start(home: &Folder, variables: &[(&str, &OsStr)]) -> Child {
    let library = library(&[], NVRTC);
    let mut command = child::command("child_makes_kernels");
    for variable in [CACHE_DIR, CUDA_HOME, "XDG_CACHE_HOME"] {
        command.env_remove(variable);
    }
    command.env(CUDA_LIBRARY, &library).env(NVRTC_LIBRARY, &library).env("HOME", &home.0);
    command.current_dir(&home.0).envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the test binary starts")
}

fn answer(child: Child) -> String {
    child::answer(&child.wait_with_output().expect("the child ends"), "ANSWER ")
}

#[test]
fn the_switch_says_where_the_files_are() {
    let home = Folder::new("home");
    let named = Folder::new("named");
    let xdg = Folder::new("xdg");
    let (none, all) = (BTreeSet::new(), 1 + OF_A_CHILD);
    let count = |folder: &Folder| folder.names().len();
    let xdg_variable: (&str, &OsStr) = ("XDG_CACHE_HOME", xdg.0.as_os_str());
    let named_variable: (&str, &OsStr) = (CACHE_DIR, named.0.as_os_str());

    // Empty is a value: nothing is written anywhere.
    let text = answer(start(&home, &[xdg_variable, (CACHE_DIR, "".as_ref())]));
    assert!(text.contains("not kept"), "{text}");
    assert_eq!((home.names(), xdg.names(), named.names()), (none.clone(), none.clone(), none.clone()));

    // Named: there and nowhere else.
    let text = answer(start(&home, &[xdg_variable, named_variable]));
    assert!(text.contains(&named.0.display().to_string()), "{text}");
    assert_eq!((home.names(), xdg.names(), count(&named)), (none.clone(), none.clone(), all));

    // Unset: the user's cache folder.
    let text = answer(start(&home, &[xdg_variable]));
    assert!(text.contains(&xdg.0.join("ssm-update").display().to_string()), "{text}");
    assert_eq!((home.names(), count(&xdg)), (none, all));
    assert!(xdg.names().iter().all(|name| name.starts_with("ssm-update")), "{:?}", xdg.names());
    let text = answer(start(&home, &[]));
    let cache = home.0.join(".cache/ssm-update");
    assert!(text.contains(&cache.display().to_string()), "{text}");
    assert_eq!(count(&home), all);
    assert!(home.names().iter().all(|name| name.starts_with(".cache/ssm-update")), "{:?}", home.names());

    // A path from the folder that the process is in.
    answer(start(&home, &[(CACHE_DIR, "here/it is".as_ref())]));
    assert_eq!(count(&home), 2 * all);
    // Wherever they are, the files are the same.
    let files = |folder: &Folder| -> BTreeMap<OsString, (usize, u64)> {
        let everything = folder.everything().into_iter();
        everything.map(|(path, contents)| (path.file_name().expect("a file").to_owned(), contents)).collect()
    };
    assert_eq!((files(&home), files(&xdg)), (files(&named), files(&named)));
}

#[test]
fn several_processes_fill_a_folder_at_once() {
    let home = Folder::new("processes-home");
    let shared = Folder::new("processes");
    for round in 0..3 {
        let children: Vec<Child> =
            (0..6).map(|_| start(&home, &[(CACHE_DIR, shared.0.join(round.to_string()).as_os_str())])).collect();
        for child in children {
            let text = answer(child);
            assert!(text.starts_with("[] "), "nobody saw half a file: {text}");
        }
    }
    let names = shared.names();
    assert_eq!(names.len(), 3 * (1 + OF_A_CHILD), "nothing else is left: {names:?}");
    // What they made is whole.
    let script = Script::new();
    for round in 0..3 {
        let kernel = open_with(&script, shared.0.join(round.to_string()));
        (0..OF_A_CHILD).for_each(|number| run(&kernel, number));
    }
    assert_eq!(compiled(&script), 0);
    assert_eq!(home.names(), BTreeSet::new());
}

/// A process that ends in the middle leaves nothing that keeps others from working.
#[test]
fn what_a_process_leaves_behind_that_was_ended_does_not_matter() {
    let home = Folder::new("ended-home");
    let shared = Folder::new("ended");
    let variables: [(&str, &OsStr); 1] = [(CACHE_DIR, shared.0.as_os_str())];
    for _ in 0..8 {
        let mut child = start(&home, &variables);
        let is_empty = || fs::read_dir(&shared.0).expect("a folder lists").next().is_none();
        while child.try_wait().expect("a child of ours").is_none() && is_empty() {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");
        let text = answer(start(&home, &variables));
        assert!(text.starts_with("[] "), "no file under its name is half of one: {text}");
        for name in shared.names() {
            fs::remove_file(shared.0.join(name)).expect("it is there");
        }
    }
}
