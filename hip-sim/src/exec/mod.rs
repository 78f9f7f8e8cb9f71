//! Execution: one wave of 32 lanes at a time.
//!
//! [`Wave`] holds the registers and runs until the next barrier or its end. Code comes from a [`Program`], which
//! decodes each instruction once; memory and observers are the traits [`Memory`] and [`Probe`].
//!
//! What instructions do is from AMD's "RDNA 2", "RDNA3", "RDNA3.5" and "RDNA4 Instruction Set Architecture" reference
//! guides: the chapters on scalar and vector ALU operations, memory and the data share, and the pseudocode of the
//! instruction lists. Where that leaves something open, the module says what was chosen, and why:
//!
//! - An operand that is NaN passes its payload on, made quiet, the first one first; an invalid operation without one
//!   gives the positive quiet NaN.
//! - Approximated functions are rounded correctly, unless told to be off by some ulp.
//! - Registers that nobody wrote may be copied and computed with, since compilers do both where the result is not used.
//!   They are reported where they become an address, data that leaves the wave, or the condition of a branch on VCC.
//! - Timing, caches and the order of outstanding memory accesses are not modelled: each instruction is done when the
//!   next begins.
#![deny(unsafe_code)]

mod approximate;
mod atomics;
mod carry;
mod compare;
mod convert;
mod fault;
mod float;
mod lanes;
mod local;
mod machine;
mod mode;
mod packed;
mod program;
mod registers;
mod salu;
mod salu_float;
mod scalar_memory;
mod valu;
mod valu_double;
mod valu_half;
mod valu_integer;
mod valu_single;
mod vector_memory;
mod wave;

pub use fault::{Fault, FaultKind};
pub use machine::{Access, AccessKind, LaneAccess, Memory, MemoryFault, MemoryFaultKind, Probe, Space, Step};
pub use program::Program;
pub use wave::{Event, Wave, WaveSetup};
