//! The build script's parts, called with small compilers that misbehave in one way each: what is searched, what is taken, what
//! is refused and with which words, what is compiled again, and what is done without a compiler.
//!
//! Most compilers here are shell scripts that write a code object made before; where clang is installed, it is used too.

#![cfg(all(unix, feature = "rocm"))]

#[path = "../../build/environment.rs"]
mod environment;
#[path = "../../build/mod.rs"]
mod parts;

mod choice;
mod clang;
mod committed;
mod compiling;
mod guard;
mod rebuilding;
mod settings;
mod table;
mod targets;
mod without;
mod workplace;
