//! The clang offload bundle: several code objects in one file, found by target triple.
//!
//! Layout: LLVM's "Clang Offload Bundler", "Bundled Binary File Layout". Compressed bundles (magic `CCOB`) are not read.

use super::{LoadError, malformed};
use crate::isa::Arch;

/// What an uncompressed bundle begins with.
pub const BUNDLE_MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";

/// An entry: where its code object lies, and what it is for.
struct Entry<'a> {
    offset: u64,
    size: u64,
    id: &'a str,
}

fn word(bytes: &[u8], at: usize) -> Result<u64, LoadError> {
    let end = at.checked_add(8).ok_or_else(|| malformed("bundle header"))?;
    let word = bytes.get(at..end).ok_or_else(|| malformed("the bundle's header is cut off"))?;
    Ok(u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

fn entries(bytes: &[u8]) -> Result<Vec<Entry<'_>>, LoadError> {
    let mut at = BUNDLE_MAGIC.len();
    let count = word(bytes, at)?;
    at += 8;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (offset, size, length) = (word(bytes, at)?, word(bytes, at + 8)?, word(bytes, at + 16)?);
        at += 24;
        let id = usize::try_from(length).ok().and_then(|length| bytes.get(at..at.checked_add(length)?));
        let id = id.and_then(|id| std::str::from_utf8(id).ok()).ok_or_else(|| malformed("bundle entry's name"))?;
        at += id.len();
        entries.push(Entry { offset, size, id });
    }
    Ok(entries)
}

/// The architecture of an entry such as `hipv4-amdgcn-amd-amdhsa--gfx1151:xnack-`, or none for the host's part.
fn processor(id: &str) -> Option<&str> {
    // Features follow a colon; between the operating system and the processor there may be an environment, or nothing.
    let target = id.split(':').next()?;
    let processor = target.split_once("amdgcn-amd-amdhsa-")?.1.rsplit('-').next()?;
    Some(processor).filter(|name| !name.is_empty())
}

/// The code object for an architecture.
///
/// # Errors
///
/// When the bundle is cut off, or has none for it.
pub fn from_bundle(bytes: &[u8], arch: Arch) -> Result<&[u8], LoadError> {
    let entries = entries(bytes)?;
    let Some(entry) = entries.iter().find(|entry| processor(entry.id) == Some(arch.name())) else {
        let found: Vec<&str> = entries.iter().map(|entry| entry.id).collect();
        return Err(LoadError::OtherArchitecture { wanted: arch, found: found.join(", ") });
    };
    let part = usize::try_from(entry.offset).ok().zip(usize::try_from(entry.size).ok());
    let part = part.and_then(|(offset, size)| bytes.get(offset..offset.checked_add(size)?));
    part.ok_or_else(|| malformed(format!("the bundle ends before its entry {} does", entry.id)))
}

/// Bytes of a bundle, of which the first `read(n)` answers the first n bytes.
///
/// For `hipModuleLoadData`, which is given an address and no length.
///
/// # Errors
///
/// When the header makes no sense.
pub fn bundle_length<'a>(read: &mut dyn FnMut(usize) -> &'a [u8]) -> Result<usize, LoadError> {
    /// More entries than any compiler writes, and names longer than any: the header is no header.
    const SANE: u64 = 4096;
    let mut at = BUNDLE_MAGIC.len();
    let count = word(read(at + 8), at)?;
    if count > SANE {
        return Err(malformed(format!("a bundle of {count} entries")));
    }
    at += 8;
    let mut end = at;
    for _ in 0..count {
        let header = read(at + 24);
        let (offset, size, length) = (word(header, at)?, word(header, at + 8)?, word(header, at + 16)?);
        if length > SANE {
            return Err(malformed(format!("a bundle entry with a name of {length} bytes")));
        }
        at += 24 + length as usize;
        let last = offset.checked_add(size).and_then(|last| usize::try_from(last).ok());
        end = end.max(at).max(last.ok_or_else(|| malformed("a bundle entry beyond the address space"))?);
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_entries() {
        for (id, expected) in [
            ("hipv4-amdgcn-amd-amdhsa--gfx1151", Some("gfx1151")),
            ("hip-amdgcn-amd-amdhsa-unknown-gfx1100", Some("gfx1100")),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", Some("gfx90a")),
            ("host-x86_64-unknown-linux-gnu-", None),
            ("hipv4-amdgcn-amd-amdhsa--", None),
        ] {
            assert_eq!(processor(id), expected, "{id}");
        }
    }
}
