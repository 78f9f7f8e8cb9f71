//! A code object of the kernel. There is no way to one that leaves out the check of the wave width, layer 3 of the guard that
//! `hip/wave32.h` begins.

use super::abi::Params;
use super::code_object::CodeObject;
use super::failure::Failure;
use super::{files, variant};

/// Bytes that the code objects of one architecture may have.
pub const SIZE_MAX: usize = 512 * 1024;

/// Who made a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name and version of the compiler.
    pub compiler: String,
    /// Its flags.
    pub flags: String,
}

/// A code object that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The architecture.
    pub target: String,
    /// The code object.
    pub bytes: Vec<u8>,
    /// SHA-256 of the bytes, in hexadecimal.
    pub sha256: String,
    /// Who made it.
    pub origin: Origin,
    /// The kernels within, in the order of their names.
    pub kernels: Vec<String>,
}

impl Image {
    /// Checks the bytes: a whole code object for this architecture, with exactly the kernels that belong there, each for waves
    /// of 32 lanes and with the parameter struct as its argument, within the budget.
    ///
    /// # Errors
    ///
    /// The first of these that does not hold.
    pub fn check(target: &str, bytes: Vec<u8>, origin: &Origin) -> Result<Self, Failure> {
        let (name, made_by) = (|| target.to_owned(), || origin.compiler.clone());
        let refused = |fault| Failure::Image { target: name(), origin: made_by(), fault };
        let object = CodeObject::read(&bytes).map_err(refused)?;
        object.check(target, &variant::names(), size_of::<Params>() as u64).map_err(refused)?;
        if bytes.len() > SIZE_MAX {
            return Err(Failure::Size { target: name(), origin: made_by(), got: bytes.len(), limit: SIZE_MAX });
        }
        let sha256 = files::sha256(&bytes);
        let kernels = object.kernels.into_iter().map(|kernel| kernel.name).collect();
        Ok(Self { target: name(), bytes, sha256, origin: origin.clone(), kernels })
    }
}
