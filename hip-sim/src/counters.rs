//! What a launch did: instructions by class, lanes that were active, and bytes and cache lines that moved.
//!
//! Lines are counted per instruction, so that their number over that of instructions tells whether the lanes' accesses were
//! coalesced: 32 lanes that read 4 neighbouring bytes each are two lines of 64 bytes, 32 scattered ones are 32. Bytes of an
//! allocation are counted twice: how many moved, and how many different ones.
#![deny(unsafe_code)]

use crate::exec::{AccessKind, Space, Step};
use crate::isa::Class;

/// Every class, in the order of [`Counters::instructions`].
pub const CLASSES: [(Class, &str); 9] = [
    (Class::Salu, "salu"),
    (Class::Valu, "valu"),
    (Class::ScalarMemory, "scalar memory"),
    (Class::Global, "global"),
    (Class::Flat, "flat"),
    (Class::Scratch, "scratch"),
    (Class::Lds, "lds"),
    (Class::Branch, "branch"),
    (Class::Control, "control"),
];

/// Every memory space, in the order of [`Counters::spaces`].
pub const SPACES: [(Space, &str); 5] = [
    (Space::Global, "global"),
    (Space::Flat, "flat"),
    (Space::Scratch, "scratch"),
    (Space::Lds, "lds"),
    (Space::Scalar, "scalar"),
];

/// One direction of the traffic of a memory space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Direction {
    /// Instructions, of a wave each.
    pub instructions: u64,
    /// Accesses of lanes; a scalar load is one.
    pub accesses: u64,
    /// Bytes, of all lanes.
    pub bytes: u64,
    /// Lines of 64 bytes, the distinct ones of each instruction.
    pub lines64: u64,
    /// Lines of 128 bytes, the distinct ones of each instruction.
    pub lines128: u64,
}

/// Traffic of a memory space. An atomic operation is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SpaceTraffic {
    /// What was read.
    pub read: Direction,
    /// What was written.
    pub written: Direction,
}

/// Traffic of an allocation, whatever instructions it was reached by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Traffic {
    /// Bytes that were read.
    pub read: u64,
    /// Bytes that were written.
    pub written: u64,
    /// Different bytes that were read.
    pub distinct_read: u64,
    /// Different bytes that were written.
    pub distinct_written: u64,
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Work-groups that ran.
    pub groups: u64,
    /// Waves that ran.
    pub waves: u64,
    /// Instructions by class, in the order of [`CLASSES`].
    pub instructions: [u64; CLASSES.len()],
    /// Lanes that were active, summed over the instructions of the vector classes.
    pub active_lanes: u64,
    /// Traffic by space, in the order of [`SPACES`].
    pub spaces: [SpaceTraffic; SPACES.len()],
    /// Traffic by allocation, with its address; those that were not touched are not listed.
    pub allocations: Vec<(u64, Traffic)>,
}

/// Distinct lines of one instruction.
#[derive(Debug, Default)]
struct Lines(Vec<u64>);

impl Lines {
    /// Lines of `1 << shift` bytes among the noted 64-byte ones.
    fn distinct(&self, shift: u32) -> u64 {
        let lines = self.0.iter().map(|line| line >> (shift - 6));
        let mut last = None;
        lines.filter(|&line| last.replace(line) != Some(line)).count() as u64
    }
}

/// Counts while a launch runs.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub counters: Counters,
    lines: Lines,
}

impl Counting {
    /// Counts an instruction.
    pub fn step(&mut self, step: &Step<'_>) {
        let class = step.inst.class();
        self.counters.instructions[class as usize] += 1;
        if matches!(class, Class::Valu | Class::Global | Class::Flat | Class::Scratch | Class::Lds) {
            self.counters.active_lanes += u64::from(step.exec.count_ones());
        }
        let Some(first) = step.accesses.first() else { return };
        let space = &mut self.counters.spaces[first.access.space as usize];
        self.lines.0.clear();
        for access in step.accesses {
            let (from, size) = (access.access.address, u64::from(access.access.size));
            self.lines.0.extend(from / 64..=from.saturating_add(size - 1) / 64);
        }
        self.lines.0.sort_unstable();
        let bytes = step.accesses.iter().map(|access| u64::from(access.access.size)).sum();
        let moved = Direction {
            instructions: 1,
            accesses: step.accesses.len() as u64,
            bytes,
            lines64: self.lines.distinct(6),
            lines128: self.lines.distinct(7),
        };
        if first.kind != AccessKind::Store {
            space.read.add(&moved);
        }
        if first.kind != AccessKind::Load {
            space.written.add(&moved);
        }
    }
}

impl Direction {
    fn add(&mut self, other: &Self) {
        self.instructions += other.instructions;
        self.accesses += other.accesses;
        self.bytes += other.bytes;
        self.lines64 += other.lines64;
        self.lines128 += other.lines128;
    }
}

impl Traffic {
    pub(crate) fn add(&mut self, other: &Self) {
        self.read += other.read;
        self.written += other.written;
        self.distinct_read += other.distinct_read;
        self.distinct_written += other.distinct_written;
    }
}

impl Counters {
    /// Instructions of a class.
    pub fn of_class(&self, class: Class) -> u64 {
        self.instructions[class as usize]
    }

    /// Traffic of a space.
    pub fn of_space(&self, space: Space) -> &SpaceTraffic {
        &self.spaces[space as usize]
    }

    /// Traffic of the allocation that begins at an address.
    pub fn of_allocation(&self, address: u64) -> Traffic {
        self.allocations.iter().find(|(start, _)| *start == address).map_or_else(Traffic::default, |found| found.1)
    }

    /// Adds what another thread counted, its allocations not included.
    pub(crate) fn add(&mut self, other: &Self) {
        self.groups += other.groups;
        self.waves += other.waves;
        self.active_lanes += other.active_lanes;
        for (mine, theirs) in self.instructions.iter_mut().zip(other.instructions) {
            *mine += theirs;
        }
        for (mine, theirs) in self.spaces.iter_mut().zip(&other.spaces) {
            mine.read.add(&theirs.read);
            mine.written.add(&theirs.written);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_those_of_the_tables() {
        for (index, (class, _)) in CLASSES.iter().enumerate() {
            assert_eq!(*class as usize, index);
        }
        for (index, (space, _)) in SPACES.iter().enumerate() {
            assert_eq!(*space as usize, index);
        }
    }

    #[test]
    fn lines_are_counted_once() {
        let lines = Lines(vec![0, 0, 1, 2, 5, 5, 6]);
        assert_eq!((lines.distinct(6), lines.distinct(7)), (5, 4));
    }
}
