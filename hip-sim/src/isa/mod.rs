//! The instruction sets: architectures, tables of opcodes, decoding, and disassembly.
#![deny(unsafe_code)]

mod arch;
mod decode;
mod format;
mod inst;
mod op;
mod table;

pub use arch::{Arch, Generation};
pub use decode::{Unknown, decode};
pub use format::{Dialect, Text};
pub(crate) use inst::inline;
pub use inst::{Class, Dpp, Encoding, Inst, Mem, Mods, Operand, Sdwa};
pub use op::Op;
pub use table::Ty;
