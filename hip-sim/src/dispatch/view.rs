//! Memory as one wave sees it: every access is checked, noted and counted.

use std::cell::Cell;

use super::aperture::{PRIVATE_BASE, SHARED_BASE};
use crate::counters::Traffic;
use crate::exec::{Access, Memory, MemoryFault, MemoryFaultKind, Space};
use crate::memory::{Allocation, DeviceMemory, Local, LocalRefusal, Party, Refusal, Role, Touched};

/// A byte that a launch raced on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In device memory.
    Device(u64),
    /// In the LDS of a work-group.
    Lds(u32, u64),
}

/// An access to the watched byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Witness {
    pub party: Party,
    pub role: Role,
    pub pc: u64,
    pub lane: Option<u8>,
}

/// A race that was found: where, and with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Race {
    pub place: Place,
    pub other: Party,
    pub role: Role,
}

/// What one thread notes while it runs work-groups.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Pages of allocations that were touched first by this thread.
    pub touched: Vec<(u64, Touched)>,
    /// What moved, by the allocation's address.
    pub traffic: Vec<(u64, Traffic)>,
    /// Accesses to the watched byte, in order.
    pub witnesses: Vec<Witness>,
    /// The race that ended the launch.
    pub race: Option<Race>,
    /// An atomic operation on device memory was met where work-groups run side by side.
    pub atomic_met: bool,
}

/// How accesses are treated in this attempt of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// Work-groups run side by side, so that the order of atomics would be left to chance.
    pub parallel: bool,
    /// Accesses to this byte are kept.
    pub watch: Option<Place>,
}

/// Bytes that the lanes of one store instruction wrote.
#[derive(Debug, Default)]
struct Stores {
    step: u64,
    end: u64,
    ranges: Vec<(u64, u64, u8)>,
}

impl Stores {
    /// Notes a lane's store; answers another lane that wrote some of the bytes with the same instruction.
    fn note(&mut self, step: u64, address: u64, size: u64, lane: u8) -> Option<u8> {
        if self.step != step {
            *self = Self { step, end: 0, ranges: std::mem::take(&mut self.ranges) };
            self.ranges.clear();
        }
        let end = address + size;
        // Lanes mostly go upwards: then no earlier one can overlap.
        let overlaps = |(from, to, other): &&(u64, u64, u8)| *from < end && address < *to && *other != lane;
        let other = if address < self.end { self.ranges.iter().find(overlaps).map(|range| range.2) } else { None };
        self.end = self.end.max(end);
        self.ranges.push((address, end, lane));
        other
    }
}

/// The memory of a wave while it runs from one barrier to the next.
pub(super) struct View<'a> {
    pub memory: &'a DeviceMemory,
    pub mode: Mode,
    pub me: Party,
    pub group: u32,
    pub lds: &'a mut Local,
    /// A block for each lane.
    pub scratch: &'a mut [Local],
    /// Instructions executed, counted by the probe: tells the accesses of one from those of the next.
    pub step: &'a Cell<u64>,
    pub notes: &'a mut Notes,
    stores: Stores,
    last: Option<(&'a Allocation, usize)>,
}

fn fault(kind: MemoryFaultKind, detail: impl Into<String>) -> MemoryFault {
    MemoryFault { kind, detail: detail.into() }
}

fn verb(role: Role) -> &'static str {
    match role {
        Role::Reader => "load",
        Role::Writer => "store",
        Role::Atomic => "atomic",
    }
}

/// Where an access really goes.
enum Target {
    Device,
    Lds(u64),
    Scratch(u64, usize),
}

impl<'a> View<'a> {
    /// The memory of a wave.
    pub fn new(
        (memory, mode): (&'a DeviceMemory, Mode),
        (me, group): (Party, u32),
        lds: &'a mut Local,
        scratch: &'a mut [Local],
        step: &'a Cell<u64>,
        notes: &'a mut Notes,
    ) -> Self {
        Self { memory, mode, me, group, lds, scratch, step, notes, stores: Stores::default(), last: None }
    }

    fn target(&self, access: &Access) -> Target {
        let lane = usize::from(access.lane.unwrap_or(0));
        match access.space {
            Space::Global | Space::Scalar => Target::Device,
            Space::Lds => Target::Lds(access.address),
            Space::Scratch => Target::Scratch(access.address, lane),
            Space::Flat => match (access.address >> 32) as u32 {
                SHARED_BASE => Target::Lds(access.address & 0xffff_ffff),
                PRIVATE_BASE => Target::Scratch(access.address & 0xffff_ffff, lane),
                _ => Target::Device,
            },
        }
    }

    fn aligned(access: &Access, role: Role) -> Result<(), MemoryFault> {
        // The driver runs compute waves with unaligned access mode on, which covers LDS: compilers use dword accesses there
        // for packed structures.
        if access.space == Space::Lds && role != Role::Atomic {
            return Ok(());
        }
        if access.align > 1 && !access.address.is_multiple_of(access.align.into()) {
            let detail =
                format!("{} bytes at {:#x}, a multiple of {} needed", access.size, access.address, access.align);
            return Err(fault(MemoryFaultKind::Misaligned, detail));
        }
        Ok(())
    }

    /// The allocation of an access, with its place among the notes on traffic.
    fn locate(&mut self, access: &Access, role: Role) -> Result<(&'a Allocation, usize), MemoryFault> {
        let (address, size) = (access.address, u64::from(access.size));
        let (holder, slot) = match self.last {
            Some((last, slot)) if last.holds(address, size) => (last, slot),
            _ => {
                let holder = self.memory.find(address).filter(|holder| holder.holds(address, size));
                let holder = holder.ok_or_else(|| self.outside(access, role))?;
                let known = self.notes.traffic.iter().position(|(start, _)| *start == holder.start);
                let slot = known.unwrap_or_else(|| {
                    self.notes.traffic.push((holder.start, Traffic::default()));
                    self.notes.traffic.len() - 1
                });
                self.last = Some((holder, slot));
                (holder, slot)
            }
        };
        let offset = address - holder.start;
        if role != Role::Reader && holder.read_only.iter().any(|part| part.start < offset + size && offset < part.end) {
            return Err(fault(MemoryFaultKind::ReadOnly, self.words(access, role)));
        }
        Ok((holder, slot))
    }

    fn words(&self, access: &Access, role: Role) -> String {
        format!("{} of {} bytes {}", verb(role), access.size, self.memory.describe(access.address))
    }

    fn outside(&self, access: &Access, role: Role) -> MemoryFault {
        let freed = self.memory.was_freed(access.address);
        let kind = if freed { MemoryFaultKind::UseAfterFree } else { MemoryFaultKind::OutOfBounds };
        fault(kind, self.words(access, role))
    }

    fn witness(&mut self, place: Place, size: u64, access: &Access, role: Role) {
        let hit = match (self.mode.watch, place) {
            (Some(Place::Device(byte)), Place::Device(at)) => (at..at + size).contains(&byte),
            (Some(Place::Lds(group, byte)), Place::Lds(mine, at)) => group == mine && (at..at + size).contains(&byte),
            _ => false,
        };
        if hit {
            self.notes.witnesses.push(Witness { party: self.me, role, pc: access.pc, lane: access.lane });
        }
    }

    fn race(&mut self, place: Place, other: Party, role: Role) -> MemoryFault {
        self.notes.race = Some(Race { place, other, role });
        let whose = match (other.group(), other.wave()) {
            (Some(group), Some(wave)) if group == self.group => format!("wave {wave} of this work-group"),
            (Some(group), _) if group == self.group => "several waves of this work-group".to_owned(),
            (Some(group), _) => format!("work-group {group} in linear order"),
            _ => "several work-groups".to_owned(),
        };
        let place = match place {
            Place::Device(address) => format!("{address:#x} {}", self.memory.describe(address)),
            Place::Lds(_, offset) => format!("byte {offset} of LDS"),
        };
        fault(MemoryFaultKind::Race, format!("nothing orders it behind the {} by {whose}: {place}", verb(role)))
    }

    /// Finds two lanes of one store that write the same byte.
    fn lanes(&mut self, access: &Access, address: u64, place: String) -> Result<(), MemoryFault> {
        let Some(lane) = access.lane else { return Ok(()) };
        match self.stores.note(self.step.get(), address, access.size.into(), lane) {
            Some(other) => {
                let detail = format!("lane {other} writes some of the same bytes with the same instruction: {place}");
                Err(fault(MemoryFaultKind::Race, detail))
            }
            None => Ok(()),
        }
    }

    fn local(&mut self, refusal: LocalRefusal, access: &Access, role: Role, name: &str, offset: u64) -> MemoryFault {
        let size = if name == "LDS" { self.lds.size() } else { self.scratch[0].size() };
        match refusal {
            LocalRefusal::OutOfBounds => {
                let what =
                    format!("{} of {} bytes at byte {offset} of {name}, which has {size}", verb(role), access.size);
                fault(MemoryFaultKind::OutOfBounds, what)
            }
            LocalRefusal::Unwritten(byte) => {
                let what = format!("byte {byte} of {name}, in a {} of {} bytes at {offset}", verb(role), access.size);
                fault(MemoryFaultKind::Uninitialised, what)
            }
            LocalRefusal::Race(other, role, byte) => self.race(Place::Lds(self.group, byte), other, role),
        }
    }

    fn device(&mut self, refusal: Refusal, holder: &Allocation, access: &Access, role: Role) -> MemoryFault {
        match refusal {
            Refusal::Unwritten(offset) => {
                let words = self.words(access, role);
                let what = format!("byte {offset} of the {} was never written: {words}", holder.kind);
                fault(MemoryFaultKind::Uninitialised, what)
            }
            Refusal::Race(conflict) => {
                self.race(Place::Device(holder.start + conflict.offset), conflict.other, conflict.role)
            }
        }
    }
}

impl Memory for View<'_> {
    fn load(&mut self, access: &Access, out: &mut [u8]) -> Result<(), MemoryFault> {
        Self::aligned(access, Role::Reader)?;
        let (me, role) = (self.me, Role::Reader);
        match self.target(access) {
            Target::Device => {
                let (holder, slot) = self.locate(access, role)?;
                self.witness(Place::Device(access.address), access.size.into(), access, role);
                let notes = &mut *self.notes;
                let touched = &mut |page| notes.touched.push((holder.start, page));
                let done = holder.pages.load(access.address - holder.start, out, me, touched);
                done.map_err(|refusal| self.device(refusal, holder, access, role))?;
                self.notes.traffic[slot].1.read += u64::from(access.size);
            }
            Target::Lds(offset) => {
                self.witness(Place::Lds(self.group, offset), access.size.into(), access, role);
                let done = self.lds.load(offset, out, me);
                done.map_err(|refusal| self.local(refusal, access, role, "LDS", offset))?;
            }
            Target::Scratch(offset, lane) => {
                let done = self.scratch[lane].load(offset, out, me);
                done.map_err(|refusal| self.local(refusal, access, role, "scratch", offset))?;
            }
        }
        Ok(())
    }

    fn store(&mut self, access: &Access, bytes: &[u8]) -> Result<(), MemoryFault> {
        Self::aligned(access, Role::Writer)?;
        let (me, role) = (self.me, Role::Writer);
        match self.target(access) {
            Target::Device => {
                let (holder, slot) = self.locate(access, role)?;
                self.lanes(access, access.address, String::new()).map_err(|fault| MemoryFault {
                    detail: fault.detail + &self.memory.describe(access.address),
                    ..fault
                })?;
                self.witness(Place::Device(access.address), access.size.into(), access, role);
                let notes = &mut *self.notes;
                let touched = &mut |page| notes.touched.push((holder.start, page));
                let done = holder.pages.store(access.address - holder.start, bytes, me, touched);
                done.map_err(|refusal| self.device(refusal, holder, access, role))?;
                self.notes.traffic[slot].1.written += u64::from(access.size);
            }
            Target::Lds(offset) => {
                // Offsets of LDS do not meet addresses: instructions that reach both have them in different apertures.
                let flat = u64::from(SHARED_BASE) << 32 | offset;
                self.lanes(access, flat, format!("byte {offset} of LDS"))?;
                self.witness(Place::Lds(self.group, offset), access.size.into(), access, role);
                let done = self.lds.store(offset, bytes, me);
                done.map_err(|refusal| self.local(refusal, access, role, "LDS", offset))?;
            }
            Target::Scratch(offset, lane) => {
                let done = self.scratch[lane].store(offset, bytes, me);
                done.map_err(|refusal| self.local(refusal, access, role, "scratch", offset))?;
            }
        }
        Ok(())
    }

    fn atomic(&mut self, access: &Access, update: &mut dyn FnMut(&mut [u8])) -> Result<(), MemoryFault> {
        Self::aligned(access, Role::Atomic)?;
        let (me, role, size) = (self.me, Role::Atomic, access.size as usize);
        match self.target(access) {
            Target::Device => {
                if self.mode.parallel {
                    self.notes.atomic_met = true;
                    return Err(fault(MemoryFaultKind::Race, "atomics are run in order"));
                }
                let (holder, slot) = self.locate(access, role)?;
                self.witness(Place::Device(access.address), access.size.into(), access, role);
                let notes = &mut *self.notes;
                let touched = &mut |page| notes.touched.push((holder.start, page));
                let done = holder.pages.atomic(access.address - holder.start, size, update, me, touched);
                done.map_err(|refusal| self.device(refusal, holder, access, role))?;
                self.notes.traffic[slot].1.read += u64::from(access.size);
                self.notes.traffic[slot].1.written += u64::from(access.size);
            }
            Target::Lds(offset) => {
                self.witness(Place::Lds(self.group, offset), access.size.into(), access, role);
                let done = self.lds.atomic(offset, size, update, me);
                done.map_err(|refusal| self.local(refusal, access, role, "LDS", offset))?;
            }
            Target::Scratch(offset, lane) => {
                let done = self.scratch[lane].atomic(offset, size, update, me);
                done.map_err(|refusal| self.local(refusal, access, role, "scratch", offset))?;
            }
        }
        Ok(())
    }
}
