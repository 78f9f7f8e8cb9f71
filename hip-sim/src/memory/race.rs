//! Who touched a byte in this launch: enough to tell whether the next access is ordered behind it.
//!
//! Ordered are: instructions of one wave, since the hardware keeps the accesses of one wave to one address in order; waves of
//! one work-group when a barrier lies between them. Nothing orders two work-groups of a launch. Two atomics do not race.
//! Lanes of one instruction that write the same byte are found elsewhere, where the instruction is known.

/// A wave of a work-group between two barriers; none, several waves of that group, or several groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party(u64);

/// Bits of a [`Party`]: work-group, wave within it, barriers it has passed, and two marks.
const GROUP_BITS: u32 = 32;
const WAVE_BITS: u32 = 6;
const EPOCH_BITS: u32 = 24;
const WAVE: u64 = ((1 << WAVE_BITS) - 1) << GROUP_BITS;
const EPOCH: u64 = ((1 << EPOCH_BITS) - 1) << (GROUP_BITS + WAVE_BITS);
const SEVERAL_GROUPS: u64 = 1 << 62;
const PRESENT: u64 = 1 << 63;
/// A wave number that no wave has: a work-group of 1024 has 32 waves.
const SEVERAL_WAVES: u64 = WAVE;

impl Party {
    /// A wave of a group, after so many barriers.
    pub fn new(group: u32, wave: u32, epoch: u64) -> Self {
        let epoch = epoch << (GROUP_BITS + WAVE_BITS) & EPOCH;
        Self(PRESENT | epoch | u64::from(wave) << GROUP_BITS | u64::from(group))
    }

    fn present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// The work-group, if it is one.
    pub fn group(self) -> Option<u32> {
        (self.present() && self.0 & SEVERAL_GROUPS == 0).then_some(self.0 as u32)
    }

    /// The wave, if it is one.
    pub fn wave(self) -> Option<u32> {
        let wave = self.0 & WAVE;
        (self.group().is_some() && wave != SEVERAL_WAVES).then_some((wave >> GROUP_BITS) as u32)
    }

    /// Whether an access of this party and one of `me` have no order.
    fn unordered(self, me: Self) -> bool {
        if self.0 == me.0 || !self.present() {
            return false;
        }
        let differ = self.0 ^ me.0;
        self.0 & SEVERAL_GROUPS != 0 || differ as u32 != 0 || (differ & EPOCH == 0 && differ & WAVE != 0)
    }

    /// This party and `me`, as one.
    fn join(self, me: Self) -> Self {
        if self.0 == me.0 || !self.present() {
            me
        } else if self.group() != me.group() {
            Self(self.0 | SEVERAL_GROUPS)
        } else if (self.0 ^ me.0) & EPOCH != 0 {
            // Behind a barrier: whoever is unordered with the earlier one, another group, is so with `me`.
            me
        } else {
            Self(self.0 | SEVERAL_WAVES)
        }
    }
}

/// What an access does, as far as races are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It reads.
    Reader,
    /// It writes.
    Writer,
    /// It reads and writes in one step.
    Atomic,
}

/// Bytes of a cell as a shift: a dword until an access needs more detail, then one byte.
const DWORD: u32 = 2;
const BYTE: u32 = 0;

/// The parties of a stretch of memory.
#[derive(Clone, Debug)]
pub(super) struct Shadow {
    shift: u32,
    bytes: usize,
    readers: Vec<Party>,
    writers: Vec<Party>,
    atomics: Vec<Party>,
}

impl Shadow {
    /// Of that many bytes, which nobody touched.
    pub(super) fn new(bytes: usize) -> Self {
        let cells = bytes >> DWORD;
        let (readers, writers) = (vec![Party::default(); cells], vec![Party::default(); cells]);
        Self { shift: DWORD, bytes, readers, writers, atomics: Vec::new() }
    }

    fn refine(&mut self) {
        let finer = |cells: &[Party]| cells.iter().flat_map(|&cell| [cell; 1 << DWORD]).collect();
        for cells in [&mut self.readers, &mut self.writers, &mut self.atomics] {
            *cells = finer(cells);
        }
        self.shift = BYTE;
    }

    /// Notes an access, or tells with which earlier one it races: whose, what it did, and the first byte concerned.
    pub(super) fn access(&mut self, at: usize, size: usize, me: Party, role: Role) -> Result<(), (Party, Role, usize)> {
        if self.shift != BYTE && ((at | size) & 3 != 0 || at + size > self.readers.len() << DWORD) {
            self.refine();
            let none = Party::default();
            for cells in [&mut self.readers, &mut self.writers] {
                cells.resize(self.bytes, none);
            }
            if !self.atomics.is_empty() {
                self.atomics.resize(self.bytes, none);
            }
        }
        let cells = at >> self.shift..(at + size) >> self.shift;
        let race = |list: &[Party], other: Role| {
            let found = list[cells.clone()].iter().position(|party| party.unordered(me));
            found.map(|index| (list[cells.start + index], other, (cells.start + index) << self.shift))
        };
        let mut found = race(&self.writers, Role::Writer);
        if role != Role::Reader {
            found = found.or_else(|| race(&self.readers, Role::Reader));
        }
        if role != Role::Atomic && !self.atomics.is_empty() {
            found = found.or_else(|| race(&self.atomics, Role::Atomic));
        }
        if let Some(found) = found {
            return Err(found);
        }
        let list = match role {
            Role::Reader => &mut self.readers,
            Role::Writer => &mut self.writers,
            Role::Atomic => {
                self.atomics.resize(self.readers.len(), Party::default());
                &mut self.atomics
            }
        };
        for party in &mut list[cells] {
            *party = party.join(me);
        }
        Ok(())
    }

    /// Bytes that were read, and bytes that were written, each counted once; atomics do both.
    pub(super) fn distinct(&self) -> (u64, u64) {
        let atomic = |index: usize| self.atomics.get(index).is_some_and(|party| party.present());
        let count = |list: &[Party]| {
            let cells = list.iter().enumerate().filter(|(index, party)| party.present() || atomic(*index)).count();
            (cells as u64) << self.shift
        };
        (count(&self.readers), count(&self.writers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (u32, u32) = (0, 0);
    const B: (u32, u32) = (0, 1);
    const OTHER_GROUP: (u32, u32) = (7, 0);

    fn race(first: (u32, u32), then: (u32, u32), epochs: (u64, u64), roles: (Role, Role)) -> bool {
        let mut shadow = Shadow::new(64);
        let party = |(group, wave), epoch| Party::new(group, wave, epoch);
        shadow.access(8, 4, party(first, epochs.0), roles.0).expect("the first access is alone");
        shadow.access(8, 4, party(then, epochs.1), roles.1).is_err()
    }

    #[test]
    fn a_race_needs_a_writer_and_no_order() {
        use Role::{Atomic, Reader, Writer};
        for (roles, races) in [
            ((Reader, Reader), false),
            ((Reader, Writer), true),
            ((Writer, Reader), true),
            ((Writer, Writer), true),
            ((Atomic, Atomic), false),
            ((Atomic, Reader), true),
            ((Reader, Atomic), true),
            ((Atomic, Writer), true),
            ((Writer, Atomic), true),
        ] {
            assert_eq!(race(A, B, (3, 3), roles), races, "two waves between the same barriers: {roles:?}");
            assert_eq!(race(A, OTHER_GROUP, (3, 4), roles), races, "two groups: {roles:?}");
            assert!(!race(A, B, (3, 4), roles), "two waves with a barrier between them: {roles:?}");
            assert!(!race(A, A, (3, 3), roles), "one wave: {roles:?}");
        }
    }

    #[test]
    fn readers_are_not_forgotten() {
        let mut shadow = Shadow::new(64);
        for wave in [0, 1] {
            shadow.access(0, 16, Party::new(0, wave, 0), Role::Reader).expect("readers do not race");
        }
        let writer = shadow.access(4, 4, Party::new(0, 1, 0), Role::Writer).expect_err("wave 0 read it");
        assert_eq!((writer.1, writer.2), (Role::Reader, 4));
        // A reader of another group stays known, whatever this group reads behind its barriers.
        let mut shadow = Shadow::new(64);
        for (group, epoch) in [(1, 0), (0, 0), (0, 1)] {
            shadow.access(0, 4, Party::new(group, 0, epoch), Role::Reader).expect("readers do not race");
        }
        assert!(shadow.access(0, 4, Party::new(0, 0, 1), Role::Writer).is_err());
    }

    #[test]
    fn neighbouring_bytes_do_not_race() {
        let mut shadow = Shadow::new(7);
        shadow.access(0, 2, Party::new(0, 0, 0), Role::Writer).expect("alone");
        shadow.access(2, 2, Party::new(0, 1, 0), Role::Writer).expect("beside it");
        shadow.access(6, 1, Party::new(0, 1, 0), Role::Writer).expect("the last byte");
        assert_eq!(shadow.access(1, 2, Party::new(0, 1, 0), Role::Writer).expect_err("one byte too low").2, 1);
        assert_eq!(shadow.distinct(), (0, 5));
    }
}
