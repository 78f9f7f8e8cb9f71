//! The parts of the build script. Everything here is a function of values: the environment is read in `environment.rs` alone,
//! which only the build script includes, and nothing is printed. `tests/build_plan.rs` calls the same functions with compilers
//! that misbehave, and `make prebuilt` makes the committed binaries with them.
//!
//! ```text
//! settings   what the environment asks for        targets   which architectures
//! sources    hip/ and gpu/, and their hash        compiler  search, probe, choice
//! command    the command line                     compile   one code object per architecture, those of last time kept
//! image      a code object, checked               prebuilt  the committed ones, for machines without a compiler
//! plan       all of it in order                   table     the generated Rust source
//! remake     makes and verifies the committed ones
//! ```

#[path = "../src/ports/gpu/abi.rs"]
#[allow(
    dead_code,
    reason = "of the loader's files, the build needs the size of the struct and the names of the kernels"
)]
pub mod abi;
#[path = "../src/code_object.rs"]
#[allow(dead_code, reason = "see abi")]
pub mod code_object;
#[path = "../src/hash.rs"]
pub mod hash;
#[path = "../src/ports/rocm/variant.rs"]
#[allow(dead_code, reason = "see abi")]
pub mod variant;

pub mod command;
pub mod compile;
pub mod compiler;
pub mod failure;
pub mod files;
pub mod image;
pub mod plan;
pub mod prebuilt;
pub mod remake;
pub mod settings;
pub mod sources;
pub mod table;
pub mod targets;
