//! What fuzz targets share.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use tempfile::TempDir;

/// A size or a stride: mostly small, sometimes one whose products overflow, sometimes anything.
#[derive(Clone, Copy, Debug)]
pub struct Size(pub usize);

impl<'a> Arbitrary<'a> for Size {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        Ok(Self(match input.int_in_range(0..=15)? {
            0 => input.arbitrary()?,
            1 => usize::MAX - usize::from(input.arbitrary::<u8>()?),
            2 => 1 << input.int_in_range(0..=63)?,
            _ => input.int_in_range(0..=5)?,
        }))
    }
}

/// A folder of this process, in memory where the system has such a place: an input is a few files, many thousand times a second.
pub fn folder() -> PathBuf {
    thread_local!(static FOLDER: OnceCell<TempDir> = const { OnceCell::new() });
    let make = || {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        made.expect("a folder can be made")
    };
    FOLDER.with(|folder| folder.get_or_init(make).path().to_owned())
}

/// The code object that the crate ships for gfx1151.
pub fn shipped() -> &'static [u8] {
    static BUNDLE: &[u8] = include_bytes!("../../prebuilt/ssm_update-gfx1151.hipfb");
    static IMAGE: LazyLock<&[u8]> =
        LazyLock::new(|| ssm_update::code_object::find_in_bundle(BUNDLE, "gfx1151").expect("it has one"));
    *IMAGE
}

/// The bytes of a file, written over here and there and cut off, as the input says: 5 bytes for each change. Most of the places lie in the
/// first bytes, where the headers are.
pub fn damaged(whole: &[u8], input: &[u8]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let (changes, rest) = input.as_chunks::<5>();
    for &[low, middle, high, value, how] in changes {
        let at = usize::from(u16::from_le_bytes([low, middle])) + (usize::from(high & 3) << 16);
        let at = if how & 1 == 0 { at % bytes.len().min(4096) } else { at % bytes.len() };
        bytes[at] = match how >> 1 & 3 {
            0 => value,
            1 => bytes[at].wrapping_add(value),
            2 => bytes[at] ^ 1 << (value & 7),
            _ => 0xff,
        };
    }
    if let [high, low, ..] = *rest {
        bytes.truncate(bytes.len() * usize::from(u16::from_be_bytes([high, low])) / usize::from(u16::MAX));
    }
    bytes
}
