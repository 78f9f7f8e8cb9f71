//! How the shared library is linked.

#[path = "src/abi_version.rs"]
mod abi_version;

use abi_version::SSM_UPDATE_ABI_VERSION as ABI;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/abi_version.rs");
    match std::env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("linux") => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libssm_update.so.{ABI}");
            // Threads that run steps wait for the next one as long as the process lives: a program that unloads the library must
            // not take their code away.
            println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
        }
        Ok("macos" | "ios") => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libssm_update.{ABI}.dylib");
        }
        _ => {}
    }
}
