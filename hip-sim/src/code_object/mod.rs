//! Code objects: from the bytes that a compiler wrote to an image with kernels in it.
//!
//! A code object is an ELF shared object for the machine `EM_AMDGPU`, bare or in a clang offload bundle. Versions 5 and 6
//! of the ABI are read. The layouts are those of LLVM's "User Guide for AMDGPU Backend", section "Code Object".
#![deny(unsafe_code)]

mod bundle;
mod descriptor;
mod elf;
mod metadata;

pub use bundle::{BUNDLE_MAGIC, bundle_length, from_bundle};
pub use descriptor::{Descriptor, UserSgpr};
pub use elf::{Image, Relocation, Segment, Symbol, elf_length};
pub use metadata::{Argument, ArgumentKind, KernelMetadata};

use crate::isa::Arch;

/// Why a code object cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The bytes are neither an ELF file nor an offload bundle.
    #[error("neither an ELF file nor an uncompressed offload bundle: {0}")]
    NotAnImage(String),
    /// They are one, for another machine or architecture.
    #[error("no code for {wanted}: the code object has {found}")]
    OtherArchitecture {
        /// The device.
        wanted: Arch,
        /// What is there instead.
        found: String,
    },
    /// They are one, and broken.
    #[error("malformed code object: {0}")]
    Malformed(String),
}

fn malformed(what: impl Into<String>) -> LoadError {
    LoadError::Malformed(what.into())
}

/// One kernel of a code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// What the metadata note says.
    pub metadata: KernelMetadata,
    /// What the hardware is told.
    pub descriptor: Descriptor,
    /// Offset of the descriptor in the image.
    pub descriptor_offset: u64,
    /// Offset of the first instruction in the image.
    pub entry_offset: u64,
}

/// A code object that was read and checked, before it has a place in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeObject {
    /// The architecture it was built for.
    pub arch: Arch,
    /// What is loaded.
    pub image: Image,
    /// Its kernels, in the order of the metadata note.
    pub kernels: Vec<Kernel>,
}

impl CodeObject {
    /// Reads a bare ELF file, or the entry for `arch` of an offload bundle.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says whether the bytes are no image at all, one for another architecture, or a broken one.
    pub fn read(bytes: &[u8], arch: Arch) -> Result<Self, LoadError> {
        let file = if bytes.starts_with(BUNDLE_MAGIC) { from_bundle(bytes, arch)? } else { bytes };
        let (found, image, note) = elf::read(file)?;
        if found != Some(arch) {
            let found =
                found.map_or_else(|| "code for an architecture that is not simulated".into(), |a| a.to_string());
            return Err(LoadError::OtherArchitecture { wanted: arch, found });
        }
        let kernels = metadata::read(&note)?;
        let kernels = kernels.into_iter().map(|metadata| kernel(&image, metadata, arch)).collect::<Result<_, _>>()?;
        Ok(Self { arch, image, kernels })
    }

    /// The kernel of a name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.metadata.name == name)
    }
}

/// Puts a kernel's metadata and its descriptor together.
fn kernel(image: &Image, metadata: KernelMetadata, arch: Arch) -> Result<Kernel, LoadError> {
    let missing = || malformed(format!("no symbol {}", metadata.symbol));
    let offset = image.symbols.iter().find(|symbol| symbol.name == metadata.symbol).ok_or_else(missing)?.offset;
    let outside = || malformed(format!("{} lies outside the loaded segments", metadata.symbol));
    let bytes = image.bytes_at(offset, descriptor::SIZE).ok_or_else(outside)?;
    let descriptor = Descriptor::read(bytes, arch).map_err(|why| malformed(format!("{}: {why}", metadata.symbol)))?;
    let entry_offset = offset.wrapping_add_signed(descriptor.entry_offset);
    let in_code = image.segments.iter().any(|segment| segment.executable && segment.range().contains(&entry_offset));
    if !in_code {
        return Err(malformed(format!("{}: its entry {entry_offset:#x} is not in code", metadata.symbol)));
    }
    Ok(Kernel { metadata, descriptor, descriptor_offset: offset, entry_offset })
}
