//! Which addresses are allocated, which were, and how far an address is from them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;

use super::page::PAGE;
use super::pages::Pages;

/// First address of the first device, and the addresses that each device has. See the head of [`super`] for why here: bit 47
/// is set, which no user address of x86-64 has, and AArch64 processes keep their memory at the ends of their 48 bits.
const FIRST: u64 = 0x9000_0000_0000;
const PER_DEVICE: u64 = 12 << 40;
/// Devices that fit.
pub(crate) const DEVICES_MAX: usize = 8;

/// Bytes at least between two allocations: farther than the strides that kernels run over the end with.
const RED_ZONE: u64 = 1 << 20;
/// What an allocation of several pages is laid across.
const LINE: u64 = 1 << 32;
/// Freed allocations that reports can still name.
const FREED_MAX: usize = 4096;

/// What an allocation is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationKind {
    /// The program asked for it.
    Buffer,
    /// A loaded code object.
    Code,
    /// The arguments of a launch.
    Arguments,
}

impl fmt::Display for AllocationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Buffer => "allocation",
            Self::Code => "code object",
            Self::Arguments => "kernel arguments",
        })
    }
}

/// A live allocation.
#[derive(Debug)]
pub struct Allocation {
    /// Its first address.
    pub start: u64,
    /// Bytes.
    pub size: u64,
    /// What it is for.
    pub kind: AllocationKind,
    /// Parts that kernels may not write, as offsets.
    pub read_only: Vec<Range<u64>>,
    /// Its contents.
    pub pages: Pages,
}

impl Allocation {
    fn end(&self) -> u64 {
        self.start + self.size
    }

    /// Whether it holds all of these bytes.
    pub fn holds(&self, address: u64, size: u64) -> bool {
        address >= self.start && address - self.start <= self.size && size <= self.size - (address - self.start)
    }
}

/// Why the host was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The device has less memory than that.
    #[error("{wanted} bytes of device memory asked for, {free} free")]
    OutOfMemory {
        /// What was asked for.
        wanted: u64,
        /// What is left.
        free: u64,
    },
    /// These bytes are not one live allocation's.
    #[error("{size} bytes at {address:#x}: {place}")]
    OutOfBounds {
        /// First address.
        address: u64,
        /// Bytes.
        size: u64,
        /// What lies there.
        place: String,
    },
    /// No allocation begins there.
    #[error("{address:#x} is not the start of an allocation: {place}")]
    NotAnAllocation {
        /// The address.
        address: u64,
        /// What lies there.
        place: String,
    },
}

/// The memory of one device.
#[derive(Debug)]
pub struct DeviceMemory {
    space: Range<u64>,
    next: u64,
    limit: u64,
    used: u64,
    live: BTreeMap<u64, Allocation>,
    freed: VecDeque<(u64, u64, AllocationKind)>,
}

impl DeviceMemory {
    /// The memory of the device of a number, with that many bytes.
    ///
    /// # Panics
    ///
    /// When the number is above what the address space has room for.
    pub fn new(device: usize, limit: u64) -> Self {
        assert!(device < DEVICES_MAX, "device {device}");
        let start = FIRST + device as u64 * PER_DEVICE;
        let space = start..start + PER_DEVICE;
        Self { next: space.start, space, limit, used: 0, live: BTreeMap::new(), freed: VecDeque::new() }
    }

    /// Bytes of the device, and those that are free.
    pub fn sizes(&self) -> (u64, u64) {
        (self.limit, self.limit - self.used)
    }

    /// Whether an address is of the range that device memory of any device lies in.
    pub fn is_device_address(address: u64) -> bool {
        (FIRST..FIRST + DEVICES_MAX as u64 * PER_DEVICE).contains(&address)
    }

    /// Every live allocation, by address.
    pub fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.live.values()
    }

    /// Makes an allocation and answers its address, a multiple of the page size.
    ///
    /// # Errors
    ///
    /// When the device has not that much memory left.
    pub fn allocate(&mut self, size: u64, kind: AllocationKind) -> Result<u64, HostError> {
        let free = self.limit - self.used;
        let refused = HostError::OutOfMemory { wanted: size, free };
        if size > free {
            return Err(refused);
        }
        let start = self.place(size).ok_or(refused)?;
        self.next = start + size;
        self.used += size;
        self.freed.retain(|&(other, other_size, _)| other + other_size <= start || other >= start + size);
        self.live.insert(start, Allocation { start, size, kind, read_only: Vec::new(), pages: Pages::new(size) });
        Ok(start)
    }

    /// The next address with enough room behind the last one, so that freed addresses are used again as late as possible.
    fn place(&self, size: u64) -> Option<u64> {
        let page = PAGE as u64;
        let half = size / 2 / page * page;
        let mut from = self.next;
        let mut wrapped = false;
        loop {
            let mut start = (from + RED_ZONE).next_multiple_of(page);
            if half > 0 {
                start = (start + half).next_multiple_of(LINE) - half;
            }
            let end = start.checked_add(size)?.checked_add(RED_ZONE)?;
            if end > self.space.end {
                if wrapped {
                    return None;
                }
                wrapped = true;
                from = self.space.start;
                continue;
            }
            // The last live allocation that begins before the end; all earlier ones end before it begins.
            match self.live.range(..end).next_back() {
                Some((_, other)) if other.end() + RED_ZONE > start => from = other.end(),
                _ => return Some(start),
            }
        }
    }

    /// Ends an allocation; its addresses are not used again for a long time.
    ///
    /// # Errors
    ///
    /// When none begins at the address.
    pub fn free(&mut self, address: u64) -> Result<(), HostError> {
        let Some(gone) = self.live.remove(&address) else {
            return Err(HostError::NotAnAllocation { address, place: self.describe(address) });
        };
        self.used -= gone.size;
        if self.freed.len() == FREED_MAX {
            self.freed.pop_front();
        }
        self.freed.push_back((gone.start, gone.size, gone.kind));
        Ok(())
    }

    /// The allocation that holds an address.
    pub fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, candidate) = self.live.range(..=address).next_back()?;
        (address < candidate.end()).then_some(candidate)
    }

    /// The allocation that begins at an address.
    pub fn starting_at(&mut self, address: u64) -> Option<&mut Allocation> {
        self.live.get_mut(&address)
    }

    /// Whether the address is of an allocation that was freed.
    pub fn was_freed(&self, address: u64) -> bool {
        self.freed.iter().any(|&(start, size, _)| (start..start + size).contains(&address))
    }

    /// Where an address lies, in words.
    pub fn describe(&self, address: u64) -> String {
        if let Some(inside) = self.find(address) {
            let (offset, kind, size, start) = (address - inside.start, &inside.kind, inside.size, inside.start);
            return format!("at byte {offset} of the {kind} of {size} bytes at {start:#x}");
        }
        if let Some((start, size, kind)) = self.freed.iter().rev().find(|(s, n, _)| (*s..s + n).contains(&address)) {
            return format!("at byte {} of the {kind} of {size} bytes at {start:#x}, which was freed", address - start);
        }
        let below = self.live.range(..=address).next_back().map(|(_, below)| (address - below.end(), below));
        let above = self.live.range(address..).next().map(|(_, above)| (above.start - address, above));
        let words = |(distance, near): (u64, &Allocation), where_to: &str| {
            format!("{distance} bytes {where_to} the {} of {} bytes at {:#x}", near.kind, near.size, near.start)
        };
        match (below, above) {
            (None, None) => "there is no allocation".into(),
            (Some(below), above) if above.is_none_or(|above| below.0 <= above.0) => words(below, "behind the end of"),
            (_, Some(above)) => words(above, "before"),
            (Some(below), None) => words(below, "behind the end of"),
        }
    }

    /// The allocation that holds a range, for the host.
    fn range(&self, address: u64, size: u64) -> Result<(&Pages, u64), HostError> {
        let refused = || HostError::OutOfBounds { address, size, place: self.describe(address) };
        let holder = self.find(address).filter(|holder| holder.holds(address, size)).ok_or_else(refused)?;
        Ok((&holder.pages, address - holder.start))
    }

    /// Copies from the host.
    ///
    /// # Errors
    ///
    /// When the range is not within one live allocation.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), HostError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (pages, offset) = self.range(address, bytes.len() as u64)?;
        pages.host_write(offset, bytes);
        Ok(())
    }

    /// Copies to the host; bytes that nobody wrote read as 0xff.
    ///
    /// # Errors
    ///
    /// When the range is not within one live allocation.
    pub fn read(&self, address: u64, out: &mut [u8]) -> Result<(), HostError> {
        if out.is_empty() {
            return Ok(());
        }
        let (pages, offset) = self.range(address, out.len() as u64)?;
        pages.host_read(offset, out);
        Ok(())
    }

    /// Fills bytes.
    ///
    /// # Errors
    ///
    /// When the range is not within one live allocation.
    pub fn fill(&self, address: u64, size: u64, value: u8) -> Result<(), HostError> {
        if size == 0 {
            return Ok(());
        }
        let (pages, offset) = self.range(address, size)?;
        pages.host_fill(offset, size, value);
        Ok(())
    }

    /// Checks that a range may be read or written by the host.
    ///
    /// # Errors
    ///
    /// When the range is not within one live allocation.
    pub fn check(&self, address: u64, size: u64) -> Result<(), HostError> {
        if size == 0 { Ok(()) } else { self.range(address, size).map(|_| ()) }
    }

    /// Copies within the device, and whether the bytes were written.
    ///
    /// # Errors
    ///
    /// When a range is not within one live allocation.
    pub fn copy(&self, to: u64, from: u64, size: u64) -> Result<(), HostError> {
        if size == 0 || to == from {
            return self.check(to, size);
        }
        let ((pages, offset), (source, source_offset)) = (self.range(to, size)?, self.range(from, size)?);
        pages.host_copy(offset, source, source_offset, size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> DeviceMemory {
        DeviceMemory::new(0, 64 << 30)
    }

    #[test]
    fn allocations_are_apart_and_across_lines() {
        let mut memory = memory();
        let mut last = 0;
        for size in [1, 100, 4096, 8192, 1 << 20, 3 << 20, 5 << 30] {
            let start = memory.allocate(size, AllocationKind::Buffer).expect("there is room");
            assert_eq!(start % PAGE as u64, 0);
            assert!(start >= last + RED_ZONE, "{size}: {start:#x} after {last:#x}");
            last = start + size;
            assert_eq!(start / LINE != (last - 1) / LINE, size >= 8192, "{size}: {start:#x}");
        }
    }

    #[test]
    fn an_edge_is_an_edge() {
        let mut memory = memory();
        let start = memory.allocate(100, AllocationKind::Buffer).expect("there is room");
        assert_eq!(memory.write(start + 96, &[0; 4]), Ok(()));
        let refused = memory.write(start + 97, &[0; 4]).expect_err("one byte too many").to_string();
        assert!(refused.contains("at byte 97 of the allocation of 100 bytes"), "{refused}");
        assert!(memory.write(start - 1, &[0; 2]).is_err());
        assert!(memory.read(u64::MAX - 1, &mut [0; 4]).is_err());
        assert_eq!(
            memory.describe(start + 110),
            format!("10 bytes behind the end of the allocation of 100 bytes at {start:#x}")
        );
        assert_eq!(memory.describe(start - 2), format!("2 bytes before the allocation of 100 bytes at {start:#x}"));
    }

    #[test]
    fn freed_addresses_are_remembered_and_not_used_again() {
        let mut memory = memory();
        let first = memory.allocate(5000, AllocationKind::Buffer).expect("there is room");
        memory.free(first).expect("it is live");
        for _ in 0..5000 {
            let next = memory.allocate(8192, AllocationKind::Buffer).expect("addresses are found again and again");
            memory.free(next).expect("it is live");
        }
        let place = memory.free(first).expect_err("freed twice").to_string();
        assert!(place.contains("not the start of an allocation"), "{place}");
        let again = memory.allocate(100, AllocationKind::Buffer).expect("there is room");
        memory.free(again).expect("it is live");
        assert!(memory.was_freed(again + 99) && !memory.was_freed(again + 100));
        assert!(memory.describe(again).ends_with("which was freed"));
    }

    #[test]
    fn the_limit_is_kept() {
        let mut memory = DeviceMemory::new(1, 1000);
        let first = memory.allocate(600, AllocationKind::Buffer).expect("there is room");
        let refused = memory.allocate(401, AllocationKind::Buffer);
        assert_eq!(refused, Err(HostError::OutOfMemory { wanted: 401, free: 400 }));
        memory.free(first).expect("it is live");
        assert_eq!(memory.sizes(), (1000, 1000));
        assert!(memory.allocate(u64::MAX, AllocationKind::Buffer).is_err());
    }

    #[test]
    fn copies_keep_what_was_written() {
        let mut memory = memory();
        let [from, to] = [0; 2].map(|_| memory.allocate(3 * PAGE as u64, AllocationKind::Buffer).expect("room"));
        let bytes: Vec<u8> = (0..=250).cycle().take(PAGE + 77).collect();
        memory.write(from + 5, &bytes).expect("in bounds");
        memory.copy(to + 1000, from + 4, bytes.len() as u64 + 2).expect("in bounds");
        let mut out = vec![0; bytes.len() + 2];
        memory.read(to + 1000, &mut out).expect("in bounds");
        assert_eq!((out[0], &out[1..=bytes.len()], out[bytes.len() + 1]), (0xff, &bytes[..], 0xff));
    }
}
