//! The only reader of the environment. A variable that people set is declared at the moment it is read: the build script tells
//! Cargo, so that a change of it, and of nothing else, runs the script again. Values are judged in `settings.rs`.

use std::env;
use std::ffi::OsString;

use crate::parts::settings::Variables;

const HIPCC: &str = "HIPCC";
const ROCM_PATH: &str = "ROCM_PATH";
const PATH: &str = "PATH";
const ARCHS: &str = "SSM_UPDATE_ARCHS";
const REQUIRE_HIPCC: &str = "SSM_UPDATE_REQUIRE_HIPCC";
const DOCS_RS: &str = "DOCS_RS";

/// Every variable that the build script depends on. `declare` gets the names of those that people set.
pub fn read(declare: fn(&str)) -> Variables {
    let watched = |name, value: Option<OsString>| {
        declare(name);
        value
    };
    Variables {
        hipcc: watched(HIPCC, env::var_os(HIPCC)),
        rocm_path: watched(ROCM_PATH, env::var_os(ROCM_PATH)),
        path: watched(PATH, env::var_os(PATH)),
        archs: watched(ARCHS, env::var_os(ARCHS)),
        require_hipcc: watched(REQUIRE_HIPCC, env::var_os(REQUIRE_HIPCC)),
        docs_rs: watched(DOCS_RS, env::var_os(DOCS_RS)),
        // Set by Cargo, which runs the script again by itself where it has to.
        jobs: env::var_os("NUM_JOBS"),
        target_os: env::var_os("CARGO_CFG_TARGET_OS"),
        root: env::var_os("CARGO_MANIFEST_DIR"),
        out: env::var_os("OUT_DIR"),
    }
}
