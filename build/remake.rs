//! Makes `prebuilt/` again, and proves that it comes from the sources beside it.

use std::fs;
use std::path::{Path, PathBuf};

use super::code_object::find_in_bundle;
use super::command::{self, Form};
use super::compile::{Job, Outcome};
use super::compiler::{self, Compiler};
use super::failure::Failure;
use super::files;
use super::prebuilt::{Entry, FOLDER, MANIFEST, Manifest};
use super::settings::Settings;
use super::sources::Sources;

/// The architectures that binaries are committed for.
const TARGETS: &[&str] = &["gfx1151"];
/// The compiler that they are made with, where `HIPCC` names no other: prebuilt/README.md says why this one.
const COMPILER: &str = "clang++-22";

/// How far the committed binaries could be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verified {
    /// The compiler of the manifest makes the same bytes.
    Reproduced(String),
    /// Sources and hashes agree. The compiler of the manifest, which is named here, is not installed.
    HashesOnly(String),
}

/// Compiles the kernel and writes bundles and manifest.
///
/// # Errors
///
/// The compiler is not there or fails, or a file cannot be written.
pub fn make(settings: &Settings) -> Result<Manifest, Failure> {
    let sources = Sources::read(&settings.root)?;
    let mut search = settings.search.clone();
    let named = search.hipcc.get_or_insert_with(|| COMPILER.into()).clone();
    let compiler = compiler::choose(&search, TARGETS[0], &settings.out)?
        .map_err(|tried| Failure::Named { program: named, why: tried.into_iter().map(|one| one.why).collect() })?;
    let folder = settings.root.join(FOLDER);
    fs::create_dir_all(&folder).map_err(Failure::file("made", &folder))?;
    let mut manifest = Manifest {
        sources: sources.sha256.clone(),
        compiler: compiler.version.clone(),
        flags: command::flags(Form::Bundle),
        entries: Vec::new(),
    };
    for target in TARGETS {
        let bundle = bundle(&Job { compiler: &compiler, sources: &sources, out: &settings.out }, target)?;
        let object = find_in_bundle(&bundle, target).map_err(|fault| disagree(&folder, fault.to_string()))?;
        let entry = Entry {
            target: (*target).to_owned(),
            bundle_bytes: bundle.len(),
            bundle_sha256: files::sha256(&bundle),
            object_bytes: object.len(),
            object_sha256: files::sha256(object),
        };
        files::write(&folder.join(entry.file()), &bundle)?;
        manifest.entries.push(entry);
    }
    files::write(&folder.join(MANIFEST), manifest.render().as_bytes())?;
    Ok(manifest)
}

/// Compares `prebuilt/` with the sources: hashes always, bytes where the very compiler of the manifest is installed.
///
/// # Errors
///
/// The first disagreement; and an absent compiler, where the settings require one.
pub fn verify(settings: &Settings) -> Result<Verified, Failure> {
    let sources = Sources::read(&settings.root)?;
    let folder = settings.root.join(FOLDER);
    let manifest = Manifest::read(&folder)?;
    let wrong = |why| disagree(&folder.join(MANIFEST), why);
    if manifest.sources != sources.sha256 {
        let (expected, got) = (&manifest.sources, &sources.sha256);
        return Err(wrong(format!("made from sources with the hash {expected}, those in hip/ and gpu/ have {got}")));
    }
    let flags = command::flags(Form::Bundle);
    if manifest.flags != flags {
        return Err(wrong(format!("made with {:?}, the build uses {flags:?}", manifest.flags)));
    }
    let described: Vec<&str> = manifest.entries.iter().map(|entry| entry.target.as_str()).collect();
    if described != TARGETS {
        return Err(wrong(format!("describes {described:?}, {TARGETS:?} are committed")));
    }
    for entry in &manifest.entries {
        manifest.load(&folder, entry)?;
    }
    let Some(compiler) = installed(settings, &manifest.compiler) else {
        if settings.require_hipcc {
            return Err(Failure::OtherCompiler { compiler: manifest.compiler });
        }
        return Ok(Verified::HashesOnly(manifest.compiler));
    };
    fs::create_dir_all(&settings.out).map_err(Failure::file("made", &settings.out))?;
    let job = Job { compiler: &compiler, sources: &sources, out: &settings.out };
    for entry in &manifest.entries {
        let file = folder.join(entry.file());
        if bundle(&job, &entry.target)? != files::read(&file)? {
            return Err(disagree(&file, format!("{compiler} makes other bytes from the same sources")));
        }
    }
    Ok(Verified::Reproduced(compiler.to_string()))
}

/// The compiler whose version is exactly this one.
fn installed(settings: &Settings, version: &str) -> Option<Compiler> {
    let mut programs = compiler::candidates(&settings.search).into_iter().filter_map(|one| one.program.ok());
    let program: PathBuf = programs.find(|program| compiler::version(program).is_ok_and(|found| found == version))?;
    Some(Compiler { program, version: version.to_owned() })
}

/// A bundle, in which the code object is the very one that the build makes.
fn bundle(job: &Job<'_>, target: &str) -> Result<Vec<u8>, Failure> {
    let unknown = || Failure::UnknownTarget { target: target.to_owned(), compiler: job.compiler.to_string() };
    let bundle = job.run(target, Form::Bundle)?.ok_or_else(unknown)?;
    let Outcome::Compiled(image) = job.compile(target)? else { return Err(unknown()) };
    let refused = |fault| Failure::Image { target: target.to_owned(), origin: job.compiler.to_string(), fault };
    if find_in_bundle(&bundle, target).map_err(refused)? == image.bytes {
        Ok(bundle)
    } else {
        let why = format!("{} puts another code object into a bundle than it makes alone", job.compiler);
        Err(disagree(&job.out.join(target), why))
    }
}

fn disagree(file: &Path, why: String) -> Failure {
    Failure::Prebuilt { file: file.to_owned(), why }
}
