//! The folder of compiled kernels at the worst moment: a process is ended at each of its writes, the disk is full from each of them on,
//! the user's folder cannot be written, somebody else could have written there. Nothing corrupt is ever taken, and every process computes
//! all the same. Against a scripted NVRTC.

#![cfg(all(feature = "cuda", target_os = "linux"))]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use common::child;
use common::folder::Folder;
use common::launches::{contiguous, dims};
use common::log::take_warnings;
use common::scripted_cuda::{NVRTC, Script, library};
use common::scripting::compile;
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::switches::{CACHE_DIR, CUDA_LIBRARY, Cuda, NVRTC_LIBRARY};
use ssm_update::{Dtype, Dtypes, Kernel, Stream};

/// Kernels that a child makes, beside the one that is tried when the port opens.
const OF_A_CHILD: usize = 3;

/// Makes or loads every kernel of a child's.
fn run_all(kernel: &CudaKernel) {
    for number in 1..=OF_A_CHILD {
        let launch = contiguous(dims(1, 2, 3, 1, 16 << number), Dtypes::uniform(Dtype::F32));
        // SAFETY: the script reads none of the tensors.
        unsafe { kernel.launch(&launch, Stream::DEFAULT) }.unwrap_or_else(|error| panic!("{number}: {error}"));
    }
}

/// Not a test of its own: opens the port as the environment has it and runs everything.
#[test]
#[ignore = "run by other tests as a child process with an environment of its own"]
fn child_runs_all() {
    take_warnings();
    let kernel = CudaKernel::open(&Cuda::from_env(), None).unwrap_or_else(|why| panic!("{why}"));
    run_all(&kernel);
    println!("\nANSWER {:?}", take_warnings());
}

fn child(cache: &OsStr) -> Command {
    let library = library(&[], NVRTC);
    let mut command = child::command("child_runs_all");
    command.env(CUDA_LIBRARY, &library).env(NVRTC_LIBRARY, &library).env(CACHE_DIR, cache);
    command
}

/// What a process finds that opens a folder after another one: its warnings, and how much it compiles.
fn afterwards(cache: &OsStr) -> (Vec<String>, usize) {
    let script = Script::new();
    take_warnings();
    let switches = Cuda { cache_dir: Some(cache.to_owned()), ..script.switches() };
    let kernel = CudaKernel::open(&switches, None).unwrap_or_else(|why| panic!("{why}"));
    run_all(&kernel);
    (take_warnings(), script.calls_of("nvrtcCompileProgram").len())
}

/// Files that are not whole, and those that are.
fn parts_and_whole(folder: &Folder) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let ends = |name: &PathBuf, end: &str| name.to_string_lossy().ends_with(end);
    let (parts, whole): (Vec<_>, Vec<_>) = folder.names().into_iter().partition(|name| ends(name, ".part"));
    assert!(whole.iter().all(|name| ends(name, ".cubin")), "{whole:?}");
    (parts, whole)
}

/// `tests/failing_disk/shim.c`, compiled.
struct Shim {
    folder: Folder,
}

impl Shim {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/failing_disk/shim.c");
        let library = folder.0.join("shim.so");
        compile(&["-shared".as_ref(), source.as_ref(), "-o".as_ref(), library.as_ref(), "-ldl".as_ref()]);
        Self { folder }
    }

    /// Runs a child whose calls on its cache fail from one on, and gives how many there were.
    fn run(&self, cache: &OsStr, call: usize, errno: i32) -> (Output, usize) {
        let count = self.folder.0.join("count");
        let _ = fs::remove_file(&count);
        let output = child(cache)
            .env("LD_PRELOAD", self.folder.0.join("shim.so"))
            .env("FAILING_DISK_FOLDER", cache)
            .env("FAILING_DISK_CALL", call.to_string())
            .env("FAILING_DISK_ERRNO", errno.to_string())
            .env("FAILING_DISK_COUNT", &count)
            .output()
            .expect("the test binary starts");
        (output, fs::read(&count).map_or(0, |bytes| bytes.len()))
    }
}

/// Calls for one file: its folder is made or found, it is made itself, written in three parts, and synchronised. Its last name it gets
/// by a call to the system that no shim sees: that happens or not, and what is ended at the next call shows both.
const PER_FILE: usize = 6;
const CALLS: usize = (1 + OF_A_CHILD) * PER_FILE;
const NEVER: usize = 1_000_000;

#[test]
fn a_process_that_ends_at_any_write_leaves_nothing_corrupt() {
    let shim = Shim::new("killed-shim");
    let mut found = 0;
    for call in 1..=CALLS + 1 {
        let folder = Folder::new("killed");
        let cache = folder.0.join("cache");
        let (output, calls) = shim.run(cache.as_os_str(), call, 0);
        if call > CALLS {
            // One beyond the last: so many calls there are, each of which ended a process above.
            assert_eq!(child::answer(&output, "ANSWER "), "[]");
            assert_eq!(calls, CALLS);
        } else {
            assert_eq!(output.status.signal(), Some(9), "call {call}: {output:?}");
        }
        let (parts, whole) = parts_and_whole(&folder);
        assert!(parts.len() <= 1, "{parts:?}");
        let (warnings, compiled) = afterwards(cache.as_os_str());
        assert_eq!(warnings, Vec::<String>::new(), "call {call}: no file under its name is half of one");
        assert_eq!(compiled, 1 + OF_A_CHILD - whole.len(), "call {call}: what is there is whole and is used");
        assert_eq!(afterwards(cache.as_os_str()), (vec![], 0), "call {call}: and now everything is there");
        found += parts.len();

        // What the ended process left goes with the next file that is written after an hour.
        let (still, mut whole) = parts_and_whole(&folder);
        assert_eq!(still, parts, "call {call}: a young one may be another process's");
        for part in &parts {
            let file = fs::File::options().write(true).open(folder.0.join(part)).expect("it is there");
            file.set_modified(SystemTime::now() - Duration::from_secs(3601)).expect("it is ours");
        }
        fs::remove_file(folder.0.join(whole.pop().expect("files"))).expect("it is there");
        assert_eq!(afterwards(cache.as_os_str()), (vec![], 1));
        assert_eq!(parts_and_whole(&folder).0, Vec::<PathBuf>::new(), "call {call}");
    }
    assert_eq!(found, 4 * (1 + OF_A_CHILD), "each file was met in each state before its last name");
}

#[test]
fn a_disk_that_fails_from_any_write_on_keeps_nobody_from_computing() {
    const ENOSPC: i32 = 28;
    const EIO: i32 = 5;
    const EROFS: i32 = 30;
    const EDQUOT: i32 = 122;
    let shim = Shim::new("full-shim");
    for call in 1..=CALLS {
        let folder = Folder::new("full");
        let cache = folder.0.join("cache");
        let errno = [ENOSPC, EIO, EDQUOT, EROFS][call % 4];
        let (output, _) = shim.run(cache.as_os_str(), call, errno);
        assert_eq!(child::answer(&output, "ANSWER "), "[]", "call {call}: every kernel was compiled and launched");
        let (parts, whole) = parts_and_whole(&folder);
        assert_eq!(parts, Vec::<PathBuf>::new(), "call {call}: a file that cannot be finished is removed");
        assert_eq!(whole.len(), (call - 1) / PER_FILE, "call {call}: those before are there");
        assert_eq!(afterwards(cache.as_os_str()), (vec![], 1 + OF_A_CHILD - whole.len()));
    }
    // The shim fails nothing where it is not asked to.
    let folder = Folder::new("not-full");
    let (output, calls) = shim.run(folder.0.join("cache").as_os_str(), NEVER, EIO);
    assert_eq!((child::answer(&output, "ANSWER "), calls), ("[]".to_owned(), CALLS));
}

/// A file system of one's own, which only root can make.
struct Small(Folder);

impl Small {
    fn new(options: &str) -> Option<Self> {
        let folder = Folder::new("small");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&folder.0).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(folder)),
            other => {
                println!("NOT RUN: a file system with {options} cannot be mounted here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.0.display());
    }
}

/// A disk that is really full, and one that can really only be read; where they can be had.
#[test]
fn a_real_full_disk_and_a_real_read_only_home() {
    // Room for the folder, and for fewer pages than there are files.
    if let Some(small) = Small::new("size=12k,mode=700") {
        let cache = small.0.0.join("cache");
        for _ in 0..2 {
            let output = child(cache.as_os_str()).output().expect("the test binary starts");
            assert_eq!(child::answer(&output, "ANSWER "), "[]");
            let (parts, whole) = parts_and_whole(&small.0);
            assert_eq!(parts, Vec::<PathBuf>::new());
            assert!((1..=OF_A_CHILD).contains(&whole.len()), "some fit and some do not: {whole:?}");
        }
    }
    if let Some(read_only) = Small::new("ro,mode=700") {
        let mut command = child(OsStr::new(""));
        command.env_remove(CACHE_DIR).env_remove("XDG_CACHE_HOME").env("HOME", &read_only.0.0);
        assert_eq!(child::answer(&command.output().expect("the test binary starts"), "ANSWER "), "[]");
        assert!(read_only.0.names().is_empty());
    }
}

// --- whose folder it is -------------------------------------------------------------------------------------------------

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o7777
}

#[test]
fn folder_and_files_are_the_user_s_alone() {
    let home = Folder::new("modes");
    let cache = home.0.join("a/b/cache");
    assert_eq!(afterwards(cache.as_os_str()), (vec![], 1 + OF_A_CHILD));
    assert_eq!([mode(&cache), mode(&home.0.join("a/b")), mode(&home.0.join("a"))], [0o700; 3]);
    for name in home.names() {
        assert_eq!(mode(&home.0.join(name)), 0o600);
    }
}

/// A folder in which somebody else could have put a kernel is neither read nor written, and that is told.
#[track_caller]
fn assert_distrusted(folder: &Folder, part: &str) {
    let before = folder.everything();
    let (warnings, compiled) = afterwards(folder.0.as_os_str());
    assert_eq!(compiled, 1 + OF_A_CHILD, "nothing is taken");
    assert_eq!(folder.everything(), before, "nothing is written");
    assert_eq!(warnings.len(), 1 + OF_A_CHILD, "{warnings:?}");
    for warning in warnings {
        assert!(warning.contains("neither taken") && warning.contains(part), "{part:?} in: {warning}");
        assert!(warning.contains(&*folder.0.to_string_lossy()), "{warning}");
    }
}

#[test]
fn a_folder_that_others_may_write_to_is_not_trusted() {
    let folder = Folder::new("writable");
    assert_eq!(afterwards(folder.0.as_os_str()), (vec![], 1 + OF_A_CHILD));
    let set = |mode| fs::set_permissions(&folder.0, fs::Permissions::from_mode(mode)).expect("it is ours");
    for open in [0o770, 0o707, 0o777, 0o1777, 0o720, 0o702] {
        set(open);
        assert_distrusted(&folder, &format!("{open:03o}"));
    }
    // Others may read: a kernel is no secret.
    for closed in [0o755, 0o700, 0o711] {
        set(closed);
        assert_eq!(afterwards(folder.0.as_os_str()), (vec![], 0), "{closed:o}");
    }
}

#[test]
fn a_folder_of_another_user_is_not_trusted() {
    let folder = Folder::new("anothers");
    assert_eq!(afterwards(folder.0.as_os_str()), (vec![], 1 + OF_A_CHILD));
    let own = fs::metadata(&folder.0).expect("it is there").uid();
    if let Err(error) = std::os::unix::fs::chown(&folder.0, Some(own + 65_533), None) {
        println!("NOT RUN: this user cannot give a folder away: {error}");
        return;
    }
    assert_distrusted(&folder, &format!("belongs to user {}", own + 65_533));
    std::os::unix::fs::chown(&folder.0, Some(own), None).expect("it was given away above");
    assert_eq!(afterwards(folder.0.as_os_str()), (vec![], 0));
}

/// A link to a folder is as good as the folder.
#[test]
fn a_link_is_followed() {
    let folder = Folder::new("linked");
    let link = folder.0.join("link");
    fs::create_dir(folder.0.join("real")).expect("its name is free");
    std::os::unix::fs::symlink("real", &link).expect("its name is free");
    fs::set_permissions(folder.0.join("real"), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let (warnings, compiled) = afterwards(link.as_os_str());
    assert_eq!((warnings.len(), compiled), (1 + OF_A_CHILD, 1 + OF_A_CHILD), "{warnings:?}");
    fs::set_permissions(folder.0.join("real"), fs::Permissions::from_mode(0o700)).expect("it is ours");
    assert_eq!(afterwards(link.as_os_str()), (vec![], 1 + OF_A_CHILD));
    assert_eq!(afterwards(link.as_os_str()), (vec![], 0));
}
