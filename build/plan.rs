//! The build from beginning to end: compile where there is a compiler, take `prebuilt/` where there is none, and stop where
//! something that is there does not work.

use std::path::PathBuf;

use super::compile::{Job, Outcome};
use super::compiler::{self, Compiler, Rejected};
use super::failure::{Failure, INSTALL};
use super::prebuilt::{self, Manifest};
use super::settings::Settings;
use super::sources::Sources;
use super::table::{Built, Source};
use super::targets::{Wanted, targets};

/// Systems that ROCm exists for, as Cargo names them.
const SYSTEMS: &[&str] = &["linux", "windows"];

/// What the build script tells Cargo, and what it writes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What comes into the table.
    pub built: Built,
    /// Files and folders, a change of which makes this result wrong.
    pub inputs: Vec<PathBuf>,
    /// What the person who builds should know. One line each.
    pub warnings: Vec<String>,
}

/// Does all of it, except for writing the table.
///
/// # Errors
///
/// What stops the build.
pub fn run(settings: &Settings) -> Result<Plan, Failure> {
    if !SYSTEMS.contains(&settings.target_os.as_str()) {
        let why = format!("ROCm exists for {}, and this was built for {}", SYSTEMS.join(" and "), settings.target_os);
        let built = Built { source: Source::Absent(why), images: Vec::new(), passed_over: Vec::new() };
        return Ok(Plan { built, inputs: vec![settings.root.join("build.rs")], warnings: Vec::new() });
    }
    let sources = Sources::read(&settings.root)?;
    let wanted = targets(&sources.targets()?, settings.archs.as_deref())?;
    let mut inputs = sources.folders.clone();
    if settings.docs_rs {
        inputs.push(settings.root.join(prebuilt::FOLDER));
        let built = from_prebuilt(settings, &sources, &wanted, "this is a build of the documentation".to_owned(), &[])?;
        return Ok(Plan { built, inputs, warnings: Vec::new() });
    }
    match compiler::choose(&settings.search, &wanted.names[0], &settings.out.join("probe"))? {
        Ok(compiler) => {
            inputs.push(compiler.program.clone());
            let built = compiled(settings, &sources, &wanted, &compiler)?;
            let warnings = built.passed_over.iter().map(|(target, why)| format!("{target} is passed over: {why}"));
            let warnings = warnings.collect();
            Ok(Plan { built, inputs, warnings })
        }
        Err(tried) if settings.require_hipcc => {
            let because = "SSM_UPDATE_REQUIRE_HIPCC=1 forbids the binaries of prebuilt/ in its place.".to_owned();
            Err(Failure::NoCompiler { because, tried })
        }
        Err(tried) => {
            inputs.push(settings.root.join(prebuilt::FOLDER));
            let places: Vec<String> = tried.iter().map(ToString::to_string).collect();
            let why = format!("no compiler for the HIP kernel was found ({})", places.join("; "));
            let built = from_prebuilt(settings, &sources, &wanted, why.clone(), &tried)?;
            let on_board: Vec<&str> = built.images.iter().map(|image| image.target.as_str()).collect();
            let warning = format!(
                "{why}: the binaries of prebuilt/ are taken, for {} alone. For the other targets {INSTALL}; then \
                 `cargo clean -p ssm-update` makes Cargo look again.",
                on_board.join(", ")
            );
            Ok(Plan { built, inputs, warnings: vec![warning] })
        }
    }
}

fn compiled(settings: &Settings, sources: &Sources, wanted: &Wanted, compiler: &Compiler) -> Result<Built, Failure> {
    let job = Job { compiler, sources, out: &settings.out };
    let outcomes = job.compile_all(&wanted.names, settings.jobs)?;
    let (mut images, mut passed_over) = (Vec::new(), Vec::new());
    for (target, outcome) in wanted.names.iter().zip(outcomes) {
        match outcome {
            Outcome::Compiled(image) => images.push(image),
            Outcome::Unknown if wanted.asked => {
                return Err(Failure::UnknownTarget { target: target.clone(), compiler: compiler.to_string() });
            }
            Outcome::Unknown => passed_over.push((target.clone(), format!("{compiler} does not know it"))),
        }
    }
    Ok(Built { source: Source::Compiled, images, passed_over })
}

fn from_prebuilt(
    settings: &Settings,
    sources: &Sources,
    wanted: &Wanted,
    why: String,
    tried: &[Rejected],
) -> Result<Built, Failure> {
    let folder = settings.root.join(prebuilt::FOLDER);
    let manifest = Manifest::read(&folder)?;
    // Whoever changed the kernel must not get the one from before in silence.
    if manifest.sources != sources.sha256 {
        return Err(Failure::OtherSources { why, got: sources.sha256.clone(), expected: manifest.sources });
    }
    let (mut images, mut passed_over) = (Vec::new(), Vec::new());
    for target in &wanted.names {
        match manifest.entries.iter().find(|entry| entry.target == *target) {
            Some(entry) => images.push(manifest.load(&folder, entry)?),
            None if wanted.asked => {
                let because = format!("SSM_UPDATE_ARCHS asks for {target}, which prebuilt/ does not have.");
                return Err(Failure::NoCompiler { because, tried: tried.to_vec() });
            }
            None => passed_over.push((target.clone(), "prebuilt/ does not have it".to_owned())),
        }
    }
    Ok(Built { source: Source::Prebuilt(why), images, passed_over })
}
