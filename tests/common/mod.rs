//! What the parity tests share: cases, guarded buffers, the ports under test, and the comparison with the reference.
//!
//! A case ([`case::Case`]) becomes a fixture ([`fixture::Fixture`]: seeded data in guarded buffers), the fixture runs
//! on a kernel at one level of the interface ([`run::run`]), and the outcome is held to the reference
//! ([`expect::Expected`]).

#![allow(dead_code)] // every test binary compiles this folder and uses its own part of it

pub mod addresses;
pub mod buffer;
pub mod case;
pub mod check;
pub mod child;
pub mod drift;
pub mod expect;
#[cfg(all(any(feature = "cuda", feature = "rocm"), target_os = "linux"))]
pub mod faults;
pub mod fixture;
pub mod folder;
#[cfg(feature = "rocm")]
pub mod images;
#[cfg(all(any(feature = "cuda", feature = "rocm"), target_os = "linux"))]
pub mod launches;
#[cfg(target_os = "linux")]
pub mod layout;
pub mod log;
pub mod memory;
#[cfg(all(feature = "metal", target_os = "linux"))]
pub mod metal_shim;
pub mod models;
pub mod pairwise;
pub mod ports;
pub mod rng;
pub mod run;
#[cfg(all(feature = "rocm", target_os = "linux"))]
pub mod scripted;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub mod scripted_cuda;
#[cfg(all(any(feature = "cuda", feature = "rocm"), target_os = "linux"))]
pub mod scripting;
