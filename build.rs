//! Compiles the HIP kernel into one code object per GPU architecture, or takes the committed ones where there is no compiler,
//! and writes the table of them that `src/ports/rocm/built.rs` includes. The work is done in `build/`.

#[cfg(feature = "rocm")]
#[path = "build/environment.rs"]
mod environment;
#[cfg(feature = "rocm")]
#[path = "build/mod.rs"]
#[allow(dead_code, reason = "the rest of it makes and verifies prebuilt/: examples/prebuilt.rs")]
mod parts;

#[cfg(not(feature = "rocm"))]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
}

#[cfg(feature = "rocm")]
fn main() -> std::process::ExitCode {
    match make(environment::read(|name| println!("cargo::rerun-if-env-changed={name}"))) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            std::process::ExitCode::FAILURE
        }
    }
}

#[cfg(feature = "rocm")]
fn make(variables: parts::settings::Variables) -> Result<(), parts::failure::Failure> {
    let settings = parts::settings::Settings::parse(variables)?;
    let plan = parts::plan::run(&settings)?;
    for input in &plan.inputs {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    for warning in &plan.warnings {
        println!("cargo::warning={warning}");
    }
    parts::table::write(&settings.out, &plan.built)
}
