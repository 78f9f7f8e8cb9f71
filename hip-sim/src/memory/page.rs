//! One page: its bytes, which of them were written, and what the running launch needs to know of it.

use super::race::Shadow;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// What bytes read as that nobody wrote, where the host may read them: NaN in each float format, and -1.
pub(super) const UNWRITTEN: u8 = 0xff;

/// A bit for each byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

impl Bits {
    pub(super) fn new(bits: usize, value: bool) -> Self {
        Self(vec![if value { u64::MAX } else { 0 }; bits.div_ceil(64)])
    }

    /// Words that a range touches, with the bits of it.
    fn words(at: usize, size: usize) -> impl Iterator<Item = (usize, u64)> {
        let end = at + size;
        (at / 64..end.div_ceil(64)).map(move |word| {
            let low = at.saturating_sub(word * 64).min(63) as u32;
            let high = (end - word * 64).min(64) as u32;
            (word, (u64::MAX >> (64 - high)) & (u64::MAX << low))
        })
    }

    pub(super) fn set(&mut self, at: usize, size: usize, value: bool) {
        for (word, mask) in Self::words(at, size) {
            if value { self.0[word] |= mask } else { self.0[word] &= !mask }
        }
    }

    /// The first bit of the range that is not set.
    pub(super) fn first_unset(&self, at: usize, size: usize) -> Option<usize> {
        Self::words(at, size).find_map(|(word, mask)| {
            let unset = !self.0[word] & mask;
            (unset != 0).then(|| word * 64 + unset.trailing_zeros() as usize)
        })
    }

    pub(super) fn get(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }
}

/// A page as it was before the launch.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) data: Vec<u8>,
    pub(super) written: Bits,
}

/// A page that exists.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) data: Vec<u8>,
    pub(super) written: Bits,
    /// Who touched it in this launch; none while nobody did.
    pub(super) shadow: Option<Box<Shadow>>,
    /// What it was before this launch wrote it.
    pub(super) before: Option<Box<Before>>,
}

impl Page {
    /// A page that nobody wrote, or one that was filled with a value.
    pub(super) fn new(fill: Option<u8>) -> Self {
        let data = vec![fill.unwrap_or(UNWRITTEN); PAGE];
        Self { data, written: Bits::new(PAGE, fill.is_some()), shadow: None, before: None }
    }

    /// Keeps the page as it is, for a launch that may have to be undone.
    pub(super) fn remember(&mut self) {
        if self.before.is_none() {
            self.before = Some(Box::new(Before { data: self.data.clone(), written: self.written.clone() }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_any_range() {
        for (at, size) in [(0, 1), (0, 64), (63, 2), (1, 63), (60, 190), (64, 64), (127, 1), (0, 256)] {
            let mut bits = Bits::new(256, false);
            bits.set(at, size, true);
            for bit in 0..256 {
                assert_eq!(bits.get(bit), (at..at + size).contains(&bit), "bit {bit} of {at}+{size}");
            }
            assert_eq!(bits.first_unset(at, size), None);
            bits.set(at + size - 1, 1, false);
            assert_eq!(bits.first_unset(at, size), Some(at + size - 1));
        }
    }
}
