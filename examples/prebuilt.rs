//! For those who change the kernel: makes `prebuilt/` from the sources in `hip/` and `gpu/`, or proves that it comes from them. `make
//! prebuilt` and `make verify-prebuilt` run this.

use std::process::ExitCode;

#[path = "../build/environment.rs"]
mod environment;
#[path = "../build/mod.rs"]
#[allow(dead_code, reason = "the rest of it is the build script's")]
mod parts;

use parts::failure::Failure;
use parts::remake::{Verified, make, verify};
use parts::settings::{Settings, Variables};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make"] => settings().and_then(|settings| make(&settings)).map(|manifest| print!("{}", manifest.render())),
        ["verify"] => settings().and_then(|settings| verify(&settings)).map(report),
        _ => {
            eprintln!("usage: prebuilt make | verify");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn settings() -> Result<Settings, Failure> {
    Settings::parse(Variables {
        root: Some(env!("CARGO_MANIFEST_DIR").into()),
        out: Some(concat!(env!("OUT_DIR"), "/prebuilt").into()),
        ..environment::read(|_| ())
    })
}

fn report(verified: Verified) {
    match verified {
        Verified::Reproduced(compiler) => {
            println!("prebuilt/ comes from hip/ and gpu/: {compiler} makes the same bytes")
        }
        Verified::HashesOnly(compiler) => {
            println!(
                "prebuilt/ was made from hip/ and gpu/, by the hashes; NOT COMPILED AGAIN, since {compiler} is not installed"
            );
        }
    }
}
