//! The command behind `make bindings`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use ssm_update_bindings::{Error, Headers, SETS, Set, compare, generate, read, write};

/// Generates the declarations of the HIP library anew and compares them with src/driver/hip/bindings.rs and those in benches/hip/
///
/// Headers are taken from --include, else from $HIP_PATH/include, else $ROCM_PATH/include, else /opt/rocm/include, else
/// /usr/include. Those of HIP 5 lack a part of the declarations; the rest is compared, and the part is named.
#[derive(Parser)]
#[command(name = "make bindings ARGS=...", after_help = STATUSES)]
struct Arguments {
    /// Folder that holds hip/hip_runtime_api.h
    #[arg(long, value_name = "DIR")]
    include: Option<PathBuf>,
    /// Write the file instead of comparing it; takes headers of HIP 6 or newer
    #[arg(long)]
    write: bool,
}

const STATUSES: &str = "\
Exit status:
  0  the declarations agree with the headers, or were written
  1  they differ: each difference is printed, with - the committed lines and + those of the headers
  2  the command line is wrong, or the headers cannot be read or are too old to write from
  3  there are no headers or no libclang here; what to install is printed
`make` itself answers 2 for each that is not 0.";

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(agree) => ExitCode::from(u8::from(!agree)),
        Err(error) => {
            eprintln!("bindings: {error}");
            ExitCode::from(if matches!(error, Error::Absent(_)) { 3 } else { 2 })
        }
    }
}

/// Whether the headers agree with every file, which they do after it was written.
fn run(arguments: &Arguments) -> Result<bool, Error> {
    let headers = Headers::find(arguments.include.as_deref())?;
    let mut agree = true;
    for set in &SETS {
        match one(set, &headers, arguments.write) {
            Ok(same) => agree &= same,
            // hipRTC's header comes in a package of its own.
            Err(Error::Absent(reason)) if !headers.include.join(set.header).is_file() => {
                println!("bindings: {}: NOT RUN ({reason})", set.bindings);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(agree)
}

fn one(set: &Set, headers: &Headers, to_write: bool) -> Result<bool, Error> {
    let file = set.bindings;
    let source = format!("the headers of HIP {} in {}", headers.version, headers.include.display());
    let generated = generate(set, headers)?;
    if to_write {
        write(set, generated, headers)?;
        println!("bindings: {file} is written from {source}");
        return Ok(true);
    }
    let found = compare(&read(file)?, generated.items, headers.complete())?;
    if !found.not_compared.is_empty() {
        println!("bindings: {file}: not compared, since HIP {} does not have it:", headers.version);
        for name in &found.not_compared {
            println!("  {name}");
        }
    }
    if found.differences.is_empty() {
        println!("bindings: {file}: {} declarations agree with {source}", found.compared.len());
        return Ok(true);
    }
    println!("bindings: {file} differs from {source}:");
    for difference in &found.differences {
        println!("{difference}");
    }
    Ok(false)
}
