//! One work-group: its waves, from barrier to barrier.

use std::cell::Cell;

use super::launch::Limits;
use super::registers::Template;
use super::view::{Mode, Notes, View};
use crate::code_object::Image;
use crate::counters::Counting;
use crate::exec::{Event, Fault, Probe, Program, Step, Wave};
use crate::memory::{DeviceMemory, Local, Party};
use crate::trace::Trace;

/// Lanes of a wave.
const LANES: usize = super::geometry::WAVE as usize;

/// What stopped a work-group.
#[derive(Clone, Debug)]
pub(super) enum Stopped {
    /// A wave met a fault.
    Fault(Box<Fault>),
    /// A wave does not end; it was at this address.
    Endless(u64),
}

/// What all work-groups of a launch share.
#[derive(Clone, Copy)]
pub(super) struct Stage<'a> {
    pub template: &'a Template<'a>,
    pub program: &'a Program,
    pub image: &'a Image,
    /// Address of the image.
    pub base: u64,
    pub memory: &'a DeviceMemory,
    pub mode: Mode,
    pub limits: Limits,
    /// Bytes of LDS, and of scratch per lane.
    pub local: (usize, usize),
    /// The wave that is traced.
    pub traced: Option<(u32, u32)>,
}

/// What a thread gathers over its work-groups.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub counting: Counting,
    pub notes: Notes,
    pub trace: Option<Trace>,
}

/// Counts every instruction, and writes those of the traced wave down.
struct Observer<'a> {
    counting: &'a mut Counting,
    step: &'a Cell<u64>,
    trace: Option<&'a mut Trace>,
    image: &'a Image,
    base: u64,
}

impl Probe for Observer<'_> {
    fn executed(&mut self, step: &Step<'_>) {
        self.step.set(self.step.get() + 1);
        self.counting.step(step);
        if let Some(trace) = &mut self.trace {
            trace.step(step, self.image.function_at(step.pc.wrapping_sub(self.base)));
        }
    }
}

/// A wave and what it has done.
struct Runner {
    wave: Wave,
    scratch: Vec<Local>,
    executed: u64,
    ended: bool,
    waits: bool,
}

impl Stage<'_> {
    /// Runs a work-group to its end.
    ///
    /// # Errors
    ///
    /// With the number of the wave that could not go on.
    pub fn run(&self, linear: u32, gathered: &mut Gathered) -> Result<(), (u32, Stopped)> {
        let geometry = &self.template.geometry;
        let group = geometry.group(linear);
        let mut lds = Local::shared(self.local.0);
        let mut runners: Vec<Runner> = (0..geometry.waves(group))
            .map(|wave| Runner {
                wave: Wave::new(self.template.wave(group, wave)),
                scratch: (0..LANES).map(|_| Local::private(self.local.1)).collect(),
                executed: 0,
                ended: false,
                waits: false,
            })
            .collect();
        gathered.counting.counters.groups += 1;
        gathered.counting.counters.waves += runners.len() as u64;
        let mut epoch = 0;
        while runners.iter().any(|runner| !runner.ended) {
            for (number, runner) in runners.iter_mut().enumerate() {
                let number = number as u32;
                if !runner.ended && !runner.waits {
                    let party = Party::new(linear, number, epoch);
                    self.advance(runner, (linear, number), party, &mut lds, gathered).map_err(|why| (number, why))?;
                }
            }
            // A wave that has ended is not waited for.
            if runners.iter().all(|runner| runner.ended || runner.waits) {
                epoch += 1;
                runners.iter_mut().for_each(|runner| runner.waits = false);
            }
        }
        Ok(())
    }

    /// Runs a wave up to the next barrier, its end, or its turn's.
    fn advance(
        &self,
        runner: &mut Runner,
        place: (u32, u32),
        me: Party,
        lds: &mut Local,
        gathered: &mut Gathered,
    ) -> Result<(), Stopped> {
        let step = Cell::new(1);
        let traced = self.traced == Some(place);
        let trace = traced.then(|| gathered.trace.get_or_insert_default());
        let counting = &mut gathered.counting;
        let mut observer = Observer { counting, step: &step, trace, image: self.image, base: self.base };
        let shared = (self.memory, self.mode);
        let mut view = View::new(shared, (me, place.0), lds, &mut runner.scratch, &step, &mut gathered.notes);
        let turn = self.limits.turn.min(self.limits.wave - runner.executed);
        let mut event = Event::Budget;
        if traced {
            // One by one, so that the registers can be read behind each.
            while event == Event::Budget && step.get() <= turn {
                let (pc, exec) = (runner.wave.pc(), runner.wave.exec());
                event = runner.wave.run(self.program, &mut view, &mut observer, 1).map_err(Stopped::Fault)?;
                if let (Some(trace), Some(Ok(inst))) = (&mut observer.trace, self.program.fetch(pc)) {
                    trace.results(inst, &runner.wave, exec);
                }
            }
        } else {
            event = runner.wave.run(self.program, &mut view, &mut observer, turn).map_err(Stopped::Fault)?;
        }
        runner.executed += step.get() - 1;
        match event {
            Event::End => runner.ended = true,
            Event::Barrier => runner.waits = true,
            Event::Budget if runner.executed >= self.limits.wave => return Err(Stopped::Endless(runner.wave.pc())),
            Event::Budget => {}
        }
        Ok(())
    }
}
