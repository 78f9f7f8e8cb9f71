//! From a kernel and its arguments to counters or a report.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::ThreadPool;

use super::geometry::Geometry;
use super::group::{Gathered, Stage, Stopped};
use super::registers::{Addresses, Template, packet};
use super::view::{Mode, Race};
use crate::code_object::{CodeObject, Kernel, UserSgpr};
use crate::counters::{Counters, Traffic};
use crate::exec::{MemoryFaultKind, Program};
use crate::memory::{AllocationKind, DeviceMemory, HostError};
use crate::report::{Other, Place, Problem, Report};
use crate::trace::TraceTarget;

/// Scratch of a lane beside the known size, where the compiler could not know it.
const DYNAMIC_STACK: usize = 16 << 10;

/// Bounds of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Instructions that a wave may execute before it counts as endless.
    pub wave: u64,
    /// Instructions that a wave executes before the next one has its turn, so that one may wait for another.
    pub turn: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { wave: 1 << 28, turn: 1 << 16 }
    }
}

/// A code object at its place in device memory.
#[derive(Debug)]
pub struct LoadedCode {
    /// What was loaded.
    pub object: CodeObject,
    /// Address of the image.
    pub base: u64,
    programs: Vec<Program>,
    /// Entries of kernels that were seen to use atomics on device memory: their work-groups run in order at once.
    ordered: Mutex<BTreeSet<u64>>,
}

impl LoadedCode {
    /// Puts a code object into memory.
    ///
    /// # Errors
    ///
    /// When there is no room.
    pub fn load(memory: &mut DeviceMemory, object: CodeObject) -> Result<Self, HostError> {
        let base = memory.allocate(object.image.bytes.len() as u64, AllocationKind::Code)?;
        let mut bytes = object.image.bytes.clone();
        for relocation in &object.image.relocations {
            let (shift, size) = relocation.part;
            let value = base.wrapping_add(relocation.target) >> shift;
            let at = relocation.at as usize;
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        }
        let mut programs = Vec::new();
        for segment in &object.image.segments {
            let range = segment.range().start as usize..segment.range().end as usize;
            memory.write(base + segment.offset, &bytes[range.clone()])?;
            if segment.executable {
                let dwords = bytes[range].chunks_exact(4);
                let words = dwords.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect();
                programs.push(Program::new(object.arch, base + segment.offset, words));
            }
            if !segment.writable {
                let holder = memory.starting_at(base).expect("it was allocated above");
                holder.read_only.push(segment.range());
            }
        }
        Ok(Self { object, base, programs, ordered: Mutex::default() })
    }

    /// The code that holds an address.
    fn program(&self, pc: u64) -> Option<&Program> {
        self.programs.iter().find(|program| program.fetch(pc).is_some())
    }

    /// An instruction's place.
    fn place(&self, pc: u64, text: Option<String>) -> Place {
        let offset = pc.wrapping_sub(self.base);
        let function = self.object.image.function_at(offset);
        let decoded = || self.program(pc)?.fetch(pc)?.ok().map(ToString::to_string);
        Place {
            function: function.map(|(name, _)| name.to_owned()),
            offset: function.map_or(offset, |(_, within)| within),
            text: text.or_else(decoded).unwrap_or_else(|| "?".into()),
        }
    }
}

/// A launch that is ready to run.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The code.
    pub code: &'a LoadedCode,
    /// The kernel of it.
    pub kernel: &'a Kernel,
    /// Grid and work-group.
    pub geometry: Geometry,
    /// Bytes of LDS beside those that the kernel asks for.
    pub dynamic_lds: u32,
    /// The argument segment, from [`pack`](super::pack).
    pub arguments: &'a [u8],
    /// Bounds.
    pub limits: Limits,
    /// Units in the last place by which approximated functions are off.
    pub error_ulp: u32,
    /// The wave to trace.
    pub trace: Option<&'a TraceTarget>,
}

/// What came of a launch.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What it did, up to its end or the fault.
    pub counters: Counters,
    /// Why it did not come to its end.
    pub report: Option<Box<Report>>,
    /// The trace, if the traced wave ran.
    pub trace: Option<String>,
}

/// An attempt at a launch.
struct Attempt {
    gathered: Vec<Gathered>,
    stopped: Option<(u32, u32, Stopped)>,
}

impl Attempt {
    fn race(&self) -> Option<Race> {
        self.gathered.iter().find_map(|gathered| gathered.notes.race)
    }

    /// Ends the launch's hold on the pages it touched, and answers its counters.
    fn settle(&mut self, memory: &DeviceMemory, undo: bool) -> Counters {
        let mut counters = Counters::default();
        let mut allocations: Vec<(u64, Traffic)> = Vec::new();
        let mut add = |start: u64, traffic: &Traffic| match allocations.iter_mut().find(|(known, _)| *known == start) {
            Some((_, known)) => known.add(traffic),
            None => allocations.push((start, *traffic)),
        };
        for gathered in &mut self.gathered {
            counters.add(&gathered.counting.counters);
            for (start, traffic) in &gathered.notes.traffic {
                add(*start, traffic);
            }
            for (start, page) in gathered.notes.touched.drain(..) {
                let Some(holder) = memory.find(start) else { continue };
                let (distinct_read, distinct_written) = holder.pages.settle(page, undo);
                add(start, &Traffic { distinct_read, distinct_written, ..Traffic::default() });
            }
        }
        allocations.sort_unstable_by_key(|(start, _)| *start);
        counters.allocations = allocations;
        counters
    }
}

impl Launch<'_> {
    /// Bytes of LDS of a work-group.
    pub fn lds(&self) -> u64 {
        u64::from(self.kernel.descriptor.lds) + u64::from(self.dynamic_lds)
    }

    /// Runs the launch on the threads of a pool.
    ///
    /// # Errors
    ///
    /// When there is no memory for its arguments. A fault of the kernel is part of the outcome.
    pub fn run(&self, memory: &mut DeviceMemory, pool: &ThreadPool) -> Result<Outcome, HostError> {
        let kernarg = memory.allocate(self.arguments.len().max(1) as u64, AllocationKind::Arguments)?;
        let outcome = self.with_arguments(memory, pool, kernarg);
        memory.free(kernarg)?;
        outcome
    }

    fn with_arguments(&self, memory: &mut DeviceMemory, pool: &ThreadPool, kernarg: u64) -> Result<Outcome, HostError> {
        memory.write(kernarg, self.arguments)?;
        let holder = memory.starting_at(kernarg).expect("it was allocated above");
        holder.read_only.push(0..holder.size);
        let descriptor = &self.kernel.descriptor;
        let mut addresses = Addresses { entry: self.code.base + self.kernel.entry_offset, kernarg, packet: 0 };
        if !descriptor.user_sgprs.contains(&UserSgpr::DispatchPtr) {
            return Ok(self.attempts(memory, pool, addresses));
        }
        let object = self.code.base + self.kernel.descriptor_offset;
        let packet = packet(&self.geometry, descriptor, self.lds() as u32, object, kernarg);
        addresses.packet = memory.allocate(packet.len() as u64, AllocationKind::Arguments)?;
        memory.write(addresses.packet, &packet)?;
        let outcome = self.attempts(memory, pool, addresses);
        memory.free(addresses.packet)?;
        Ok(outcome)
    }

    /// Side by side first; in order where that shows; and once more with an eye on the byte of a race.
    fn attempts(&self, memory: &DeviceMemory, pool: &ThreadPool, addresses: Addresses) -> Outcome {
        let entry = self.kernel.entry_offset;
        let ordered = || self.code.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parallel = pool.current_num_threads() > 1 && self.geometry.count() > 1 && !ordered().contains(&entry);
        let mut watch = None;
        loop {
            let mut attempt = self.attempt(memory, pool, addresses, Mode { parallel, watch });
            let race = attempt.race().filter(|_| watch.is_none());
            let again = attempt.stopped.is_some() && (parallel || race.is_some());
            let counters = attempt.settle(memory, again);
            if again {
                if attempt.gathered.iter().any(|gathered| gathered.notes.atomic_met) {
                    ordered().insert(entry);
                }
                watch = race.filter(|_| !parallel).map(|race| race.place);
                parallel = false;
                continue;
            }
            let report = attempt.stopped.as_ref().map(|stopped| Box::new(self.report(stopped, &attempt)));
            let trace = attempt.gathered.into_iter().find_map(|gathered| gathered.trace).map(|trace| trace.text);
            return Outcome { counters, report, trace };
        }
    }

    fn attempt(&self, memory: &DeviceMemory, pool: &ThreadPool, addresses: Addresses, mode: Mode) -> Attempt {
        let (arch, descriptor) = (self.code.object.arch, &self.kernel.descriptor);
        let (count, first) = descriptor.kernarg_preload;
        let dwords = self.arguments.chunks_exact(4).skip(first).take(count);
        let preloaded = dwords.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect();
        let template =
            Template { arch, descriptor, geometry: self.geometry, addresses, preloaded, error_ulp: self.error_ulp };
        let scratch = descriptor.scratch as usize + if descriptor.dynamic_stack { DYNAMIC_STACK } else { 0 };
        let stage = Stage {
            template: &template,
            program: self.code.program(addresses.entry).expect("the entry was found in code when it was loaded"),
            image: &self.code.object.image,
            base: self.code.base,
            memory,
            mode,
            limits: self.limits,
            local: (self.lds() as usize, scratch),
            traced: self.trace.map(|trace| (trace.group, trace.wave)),
        };
        let (next, stop, stopped) = (AtomicU32::new(0), AtomicBool::new(false), Mutex::new(None));
        let work = || {
            let mut gathered = Gathered::default();
            loop {
                let linear = next.fetch_add(1, Ordering::Relaxed);
                // Far fewer threads than 2^32 - 1 can pass the end, so that the number does not come round.
                if linear >= self.geometry.count() || stop.load(Ordering::Relaxed) {
                    return gathered;
                }
                if let Err((wave, why)) = stage.run(linear, &mut gathered) {
                    stop.store(true, Ordering::Relaxed);
                    *stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some((linear, wave, why));
                    return gathered;
                }
            }
        };
        let gathered = if mode.parallel { pool.broadcast(|_| work()) } else { vec![work()] };
        Attempt { gathered, stopped: stopped.into_inner().unwrap_or_else(PoisonError::into_inner) }
    }

    fn report(&self, (linear, wave, why): &(u32, u32, Stopped), attempt: &Attempt) -> Report {
        let group = self.geometry.group(*linear);
        let (problem, pc, text, lane, address) = match why {
            Stopped::Fault(fault) => {
                let text = Some(fault.text.clone());
                (Problem::Fault(fault.kind.clone()), fault.pc, text, fault.lane, fault.address)
            }
            Stopped::Endless(pc) => (Problem::Endless(self.limits.wave), *pc, None, None, None),
        };
        let is_race = problem.memory() == Some(MemoryFaultKind::Race);
        Report {
            problem,
            kernel: self.kernel.metadata.name.clone(),
            arch: self.code.object.arch,
            shape: (self.geometry.grid, self.geometry.block),
            place: self.code.place(pc, text),
            group,
            wave: *wave,
            lane,
            item: lane.and_then(|lane| self.geometry.item(group, *wave, lane.into())),
            address,
            other: if is_race { self.other_side(attempt) } else { None },
        }
    }

    /// The latest access of the kind that the race was found with.
    fn other_side(&self, attempt: &Attempt) -> Option<Other> {
        let race = attempt.race()?;
        // In order, so by one thread; the last access is the one that was refused.
        let (last, earlier) = attempt.gathered.first()?.notes.witnesses.split_last()?;
        let witness = earlier.iter().rev().find(|other| other.role == race.role && other.party != last.party)?;
        Some(Other {
            place: self.code.place(witness.pc, None),
            group: self.geometry.group(witness.party.group()?),
            wave: witness.party.wave()?,
            lane: witness.lane,
        })
    }
}
