//! Buffers by the addresses at which the CPU sees them: how a pointer of the launch level becomes a buffer with an offset.

use std::collections::BTreeMap;

use super::bindings::NAMES;
use crate::Error;

/// Buffers that do not overlap.
#[derive(Debug)]
pub struct Table<B> {
    /// By first address: length and buffer.
    buffers: BTreeMap<usize, (usize, B)>,
}

impl<B> Default for Table<B> {
    fn default() -> Self {
        Self { buffers: BTreeMap::new() }
    }
}

impl<B> Table<B> {
    /// Adds a buffer. `false` where one of its bytes is in the table already, and it was not added.
    pub fn insert(&mut self, address: usize, length: usize, buffer: B) -> bool {
        let Some(end) = address.checked_add(length.max(1)) else { return false };
        let before = self.buffers.range(..end).next_back();
        if before.is_some_and(|(start, (length, _))| start + (*length).max(1) > address) {
            return false;
        }
        self.buffers.insert(address, (length, buffer));
        true
    }

    /// Removes the buffer that begins there.
    pub fn remove(&mut self, address: usize) -> Option<B> {
        self.buffers.remove(&address).map(|(_, buffer)| buffer)
    }

    /// The buffer that holds these bytes, with their offset.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] with the name of the tensor of this number: in no buffer, or reaching beyond its end.
    pub fn find(&self, number: usize, address: usize, bytes: usize) -> Result<(&B, usize), Error> {
        let (start, (length, buffer)) = self
            .buffers
            .range(..=address)
            .next_back()
            .filter(|(start, (length, _))| address - *start < (*length).max(1))
            .ok_or_else(|| {
                let expected = "an address in a buffer that this port allocated or that was registered with it";
                Error::invalid(NAMES[number], expected, format!("{address:#x}"))
            })?;
        super::bindings::check_room(number, address - start, bytes, *length)?;
        Ok((buffer, address - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_finds_its_buffer_and_offset() {
        let mut table = Table::default();
        assert!(table.insert(1000, 100, "a") && table.insert(2000, 50, "b") && table.insert(1100, 10, "c"));
        assert_eq!(table.find(0, 1000, 100), Ok((&"a", 0)));
        assert_eq!(table.find(0, 1099, 1), Ok((&"a", 99)));
        assert_eq!(table.find(0, 1100, 10), Ok((&"c", 0)));
        assert_eq!(table.find(0, 2049, 1), Ok((&"b", 49)));
        assert_eq!(table.remove(1100), Some("c"));
        assert_eq!(table.remove(1100), None);
        assert!(table.find(0, 1100, 1).is_err());
    }

    #[test]
    fn what_is_in_no_buffer_is_refused_by_name() {
        let mut table = Table::default();
        assert!(table.insert(1000, 100, ()));
        for (address, bytes, part) in [
            (999, 1, "0x3e7"),
            (1100, 1, "0x44c"),
            (1000, 101, "offset 0 in a buffer of 100 bytes"),
            (1090, 11, "offset 90"),
            (1090, usize::MAX, "offset 90"),
        ] {
            let error = table.find(8, address, bytes).expect_err("not there");
            assert_eq!(error.mismatch().map(|mismatch| mismatch.field), Some("state_in"));
            assert!(error.to_string().contains(part), "{part} in: {error}");
        }
    }

    #[test]
    fn buffers_do_not_overlap() {
        let mut table = Table::default();
        assert!(table.insert(1000, 100, ()));
        for (address, length) in [(1000, 100), (1099, 1), (901, 100), (900, 1000), (1050, 10), (usize::MAX, 2)] {
            assert!(!table.insert(address, length, ()), "{address}, {length}");
        }
        assert!(table.insert(900, 100, ()) && table.insert(1100, 1, ()));
    }
}
