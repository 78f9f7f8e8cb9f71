//! A folder of a test's own with a copy of the sources, a place for compilers, and code objects for them to write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::parts::code_object::find_in_bundle;
use crate::parts::command::{self, Form};
use crate::parts::failure::Failure;
use crate::parts::files;
use crate::parts::plan::{self, Plan};
use crate::parts::prebuilt::{Entry, Manifest};
use crate::parts::settings::{Search, Settings};
use crate::parts::sources::Sources;

/// What a compiler of these tests calls itself, unless a test wants another name.
pub const VERSION: &str = "Test clang version 19.1.7";

/// Architectures that code objects are made for, with their number in the ELF header's flags.
const MACHINES: [(&str, u8); 3] = [("gfx1151", 0x4a), ("gfx1100", 0x41), ("gfx1153", 0x58)];

/// The repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The committed code object of gfx1151.
pub fn committed_object() -> Vec<u8> {
    let bundle = fs::read(repository().join("prebuilt/ssm_update-gfx1151.hipfb")).expect("prebuilt/ is committed");
    find_in_bundle(&bundle, "gfx1151").expect("it has gfx1151").to_vec()
}

/// The bytes with the one place where `from` stands in them replaced, or every place of several.
pub fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = bytes.to_vec();
    let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "{} is not there", String::from_utf8_lossy(from));
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    bytes
}

/// The folder, with `root/hip`, `root/gpu`, `root/prebuilt`, `out` and `bin`.
pub struct Workplace {
    folder: PathBuf,
    /// What the build is asked for. Compilers are looked for in `bin`, and nowhere else.
    pub settings: Settings,
}

impl Workplace {
    /// An empty one, for the test of this name, with `targets` as the list of architectures.
    pub fn new(test: &str, targets: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build_plan").join(test);
        let _ = fs::remove_dir_all(&folder); // often there is none
        for name in ["root/hip", "root/gpu", "root/prebuilt", "out", "bin", "objects"] {
            fs::create_dir_all(folder.join(name)).expect("a folder can be made");
        }
        for sources in ["hip", "gpu"] {
            for entry in fs::read_dir(repository().join(sources)).expect("the sources are there") {
                let path = entry.expect("a folder lists").path();
                let copy = folder.join("root").join(sources).join(path.file_name().expect("a file"));
                fs::copy(&path, copy).expect("it can be copied");
            }
        }
        let place = Self {
            settings: Settings {
                root: folder.join("root"),
                out: folder.join("out"),
                target_os: "linux".to_owned(),
                search: Search { hipcc: None, rocm_path: Some(folder.join("rocm")), path: vec![folder.join("bin")] },
                archs: None,
                require_hipcc: false,
                docs_rs: false,
                jobs: 2,
            },
            folder,
        };
        place.write("root/hip/targets.txt", targets.join("\n").as_bytes());
        for (target, machine) in MACHINES {
            let mut object = committed_object();
            object[48] = machine; // e_flags of a 64-bit ELF header
            place.write(&format!("objects/{target}.co"), &object);
        }
        place
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Makes a shell script of this name.
    ///
    /// By another process, since a script that this one has just written may still be open for writing in a child that another
    /// thread is starting at the moment, and could then not be run.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
        let beside = path.with_added_extension("text");
        fs::write(&beside, format!("#!/bin/sh\n{text}")).expect("a script can be written");
        let status = Command::new("install").args(["-m", "755"]).args([&beside, &path]).status();
        assert!(status.expect("install starts").success());
        fs::remove_file(&beside).expect("it was written");
        path
    }

    /// Makes a compiler that notes what it compiles, runs the lines of `body` and writes the code object of the architecture.
    /// `$target`, `$source` and `$out` are set in `body`.
    pub fn compiler(&self, name: &str, version: &str, body: &str) -> PathBuf {
        let (log, objects) = (self.path("log"), self.path("objects"));
        let text = format!(
            "for argument; do\n\
             case $argument in\n\
             --version) echo '{version}'; exit ;;\n\
             --offload-arch=*) target=${{argument#*=}} ;;\n\
             esac\n\
             case $last in -c) source=$argument ;; -o) out=$argument ;; esac\n\
             last=$argument\n\
             done\n\
             echo \"$source $target\" >>'{}'\n\
             {body}\n\
             cp '{}'/\"$target\".co \"$out\"\n",
            log.display(),
            objects.display()
        );
        self.script(name, &text)
    }

    /// The architectures that the kernel was compiled for since the last call, in alphabetical order. Probes do not count.
    pub fn compiled(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        let _ = fs::remove_file(self.path("log")); // there is none where nothing was run
        let mut targets: Vec<String> =
            log.lines().filter_map(|line| line.strip_prefix("ssm_update.hip ")).map(str::to_owned).collect();
        targets.sort();
        targets
    }

    /// The sources.
    pub fn sources(&self) -> Sources {
        Sources::read(&self.settings.root).expect("the sources are there")
    }

    /// Fills `prebuilt/` with a bundle that was made from the sources as they are now, by a compiler of this version.
    pub fn fill_prebuilt(&self, version: &str) {
        let bundle = fs::read(repository().join("prebuilt/ssm_update-gfx1151.hipfb")).expect("prebuilt/ is committed");
        let object = committed_object();
        let entry = Entry {
            target: "gfx1151".to_owned(),
            bundle_bytes: bundle.len(),
            bundle_sha256: files::sha256(&bundle),
            object_bytes: object.len(),
            object_sha256: files::sha256(&object),
        };
        let manifest = Manifest {
            sources: self.sources().sha256,
            compiler: version.to_owned(),
            flags: command::flags(Form::Bundle),
            entries: vec![entry],
        };
        self.write("root/prebuilt/ssm_update-gfx1151.hipfb", &bundle);
        self.write("root/prebuilt/manifest.toml", manifest.render().as_bytes());
    }

    /// Builds.
    pub fn build(&self) -> Result<Plan, Failure> {
        plan::run(&self.settings)
    }

    /// The text with which the build stops.
    pub fn failure(&self) -> String {
        self.build().map(|plan| plan.built).expect_err("the build has to stop").to_string()
    }

    /// What is in `out`, apart from the probe.
    pub fn written(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).expect("out is there");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("a folder lists").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "probe")
            .collect();
        names.sort();
        names
    }
}
