//! How the shared library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Threads that run work-groups wait for the next launch as long as the process lives: a program that unloads the library
    // must not take their code away.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
