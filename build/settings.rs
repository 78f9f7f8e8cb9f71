//! What the environment asks for, judged. A value that cannot be honoured is refused by name; an empty one counts as unset.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use super::failure::Failure;

/// The variables as they stand in the environment.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// `HIPCC`
    pub hipcc: Option<OsString>,
    /// `ROCM_PATH`
    pub rocm_path: Option<OsString>,
    /// `PATH`
    pub path: Option<OsString>,
    /// `SSM_UPDATE_ARCHS`
    pub archs: Option<OsString>,
    /// `SSM_UPDATE_REQUIRE_HIPCC`
    pub require_hipcc: Option<OsString>,
    /// `DOCS_RS`
    pub docs_rs: Option<OsString>,
    /// `NUM_JOBS`
    pub jobs: Option<OsString>,
    /// `CARGO_CFG_TARGET_OS`
    pub target_os: Option<OsString>,
    /// `CARGO_MANIFEST_DIR`
    pub root: Option<OsString>,
    /// `OUT_DIR`
    pub out: Option<OsString>,
}

/// Where a compiler may be.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The one that has to be used, if one is named: a path, or the name of a program on `PATH`.
    pub hipcc: Option<PathBuf>,
    /// The folder of a ROCm installation.
    pub rocm_path: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
}

/// What the build script is asked to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The package's folder.
    pub root: PathBuf,
    /// The folder for everything that is written.
    pub out: PathBuf,
    /// The system that the crate is built for, as Cargo names it.
    pub target_os: String,
    /// Where to look for a compiler.
    pub search: Search,
    /// The list of architectures that replaces `hip/targets.txt`.
    pub archs: Option<String>,
    /// Whether doing without a compiler is an error.
    pub require_hipcc: bool,
    /// Whether only the documentation is built, on docs.rs.
    pub docs_rs: bool,
    /// Compilers that may run at once.
    pub jobs: usize,
}

impl Settings {
    /// Judges the variables.
    ///
    /// # Errors
    ///
    /// The variable whose value is none that it may have.
    pub fn parse(variables: Variables) -> Result<Self, Failure> {
        let require_hipcc = match text("SSM_UPDATE_REQUIRE_HIPCC", variables.require_hipcc)?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(variable("SSM_UPDATE_REQUIRE_HIPCC", other, "0, 1 or nothing")),
        };
        let jobs = match text("NUM_JOBS", variables.jobs)? {
            None => 1,
            Some(jobs) => jobs.parse().map_err(|_| variable("NUM_JOBS", &jobs, "a whole number"))?,
        };
        let root = PathBuf::from(set_by_cargo("CARGO_MANIFEST_DIR", variables.root)?);
        // The compiler runs in another folder than this.
        let absolute = |path: PathBuf| root.join(path);
        Ok(Self {
            out: set_by_cargo("OUT_DIR", variables.out)?.into(),
            target_os: text("CARGO_CFG_TARGET_OS", variables.target_os)?.unwrap_or_default(),
            search: Search {
                hipcc: non_empty(variables.hipcc).map(|value| {
                    let program = PathBuf::from(value);
                    if program.components().count() == 1 { program } else { absolute(program) }
                }),
                rocm_path: non_empty(variables.rocm_path).map(|value| absolute(value.into())),
                path: variables.path.iter().flat_map(env::split_paths).map(absolute).collect(),
            },
            root: root.clone(),
            archs: text("SSM_UPDATE_ARCHS", variables.archs)?,
            require_hipcc,
            docs_rs: variables.docs_rs.is_some(),
            jobs,
        })
    }
}

fn non_empty(value: Option<OsString>) -> Option<OsString> {
    value.filter(|value| !value.is_empty())
}

fn set_by_cargo(name: &'static str, value: Option<OsString>) -> Result<OsString, Failure> {
    non_empty(value).ok_or_else(|| variable(name, "", "what Cargo sets it to for a build script"))
}

fn text(name: &'static str, value: Option<OsString>) -> Result<Option<String>, Failure> {
    let text = |value: OsString| value.into_string().map_err(|raw| variable(name, &raw.to_string_lossy(), "UTF-8"));
    non_empty(value).map(text).transpose()
}

fn variable(name: &'static str, value: &str, expected: &'static str) -> Failure {
    Failure::Variable { name, value: value.to_owned(), expected }
}
