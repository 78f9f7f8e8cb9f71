//! A simulator of AMD RDNA GPUs that runs shipped code objects on the CPU, as a correctness instrument.
//!
//! Built as a shared library it stands in for the HIP library ([`api`]): a program loads it instead, and cannot tell, except
//! that mistakes are found that hardware hides. From Rust, [`device`] is the same without C in between.
//!
//! - [`code_object`] reads what a compiler wrote;
//! - [`memory`] is device memory, LDS and scratch, with who wrote and touched each byte;
//! - [`isa`] decodes instructions, [`exec`] runs them, a wave at a time;
//! - [`dispatch`] makes waves of a launch and checks what they do;
//! - [`report`], [`counters`] and [`trace`] tell what happened.

pub mod api;
pub mod code_object;
pub mod counters;
pub mod device;
pub mod dispatch;
pub mod exec;
pub mod isa;
pub mod memory;
pub mod report;
pub mod trace;
