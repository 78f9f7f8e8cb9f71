//! One wave with a little memory, for tests of single instructions.

use hip_sim::exec::{
    Access, AccessKind, Event, Fault, LaneAccess, Memory, MemoryFault, MemoryFaultKind, Probe, Program, Step, Wave,
    WaveSetup,
};
use hip_sim::isa::Arch;

/// Bytes from an address on, each of them written or not. All spaces are the same.
pub struct Ram {
    base: u64,
    bytes: Vec<Option<u8>>,
}

impl Ram {
    pub fn new(base: u64, size: usize) -> Self {
        Self { base, bytes: vec![None; size] }
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        let at = (address - self.base) as usize;
        for (slot, byte) in self.bytes[at..].iter_mut().zip(bytes) {
            *slot = Some(*byte);
        }
    }

    pub fn get(&self, address: u64, size: usize) -> Vec<u8> {
        let at = (address - self.base) as usize;
        self.bytes[at..at + size].iter().map(|byte| byte.unwrap_or(0)).collect()
    }

    fn slots(&mut self, access: &Access) -> Result<&mut [Option<u8>], MemoryFault> {
        let at = access.address.checked_sub(self.base).map(|at| at as usize);
        let slots = at.and_then(|at| self.bytes.get_mut(at..at + access.size as usize));
        slots.ok_or(MemoryFault { kind: MemoryFaultKind::OutOfBounds, detail: String::new() })
    }
}

impl Memory for Ram {
    fn load(&mut self, access: &Access, out: &mut [u8]) -> Result<(), MemoryFault> {
        for (slot, out) in self.slots(access)?.iter().zip(out) {
            let fault = || MemoryFault { kind: MemoryFaultKind::Uninitialised, detail: String::new() };
            *out = slot.ok_or_else(fault)?;
        }
        Ok(())
    }

    fn store(&mut self, access: &Access, bytes: &[u8]) -> Result<(), MemoryFault> {
        for (slot, byte) in self.slots(access)?.iter_mut().zip(bytes) {
            *slot = Some(*byte);
        }
        Ok(())
    }

    fn atomic(&mut self, access: &Access, update: &mut dyn FnMut(&mut [u8])) -> Result<(), MemoryFault> {
        let mut bytes = vec![0; access.size as usize];
        self.load(access, &mut bytes)?;
        update(&mut bytes);
        self.store(access, &bytes)
    }
}

/// Remembers accesses.
#[derive(Default)]
struct Recorder(Vec<LaneAccess>);

impl Probe for Recorder {
    fn executed(&mut self, step: &Step<'_>) {
        assert!(step.accesses.iter().all(|seen| seen.kind != AccessKind::Load || seen.access.size > 0));
        self.0.extend(step.accesses);
    }
}

/// A wave and its code.
pub struct Machine {
    pub wave: Wave,
    program: Program,
}

/// Where the code begins.
const START: u64 = 0x100;

impl Machine {
    pub fn new(arch: Arch, code: &[u32]) -> Self {
        Self::with(arch, code, |_| {})
    }

    /// With another setup than the usual one: all lanes, 64 VGPRs, round to nearest, denormals kept.
    pub fn with(arch: Arch, code: &[u32], change: impl FnOnce(&mut WaveSetup)) -> Self {
        let mut setup = WaveSetup {
            arch,
            pc: START,
            sgprs: Vec::new(),
            vgprs: Vec::new(),
            vgpr_count: 64,
            exec: u32::MAX,
            ttmps: [0; 16],
            float_mode: 0xf0,
            ieee: true,
            dx10_clamp: true,
            shared_base: 0x10,
            private_base: 0x20,
            hardware_error_ulp: 0,
        };
        change(&mut setup);
        Self { wave: Wave::new(setup), program: Program::new(arch, START, code.to_vec()) }
    }

    /// Runs to the end; what was accessed.
    pub fn run(&mut self, ram: &mut Ram) -> Result<Vec<LaneAccess>, Box<Fault>> {
        let mut recorder = Recorder::default();
        let event = self.wave.run(&self.program, ram, &mut recorder, 1000)?;
        assert_eq!(event, Event::End);
        Ok(recorder.0)
    }

    /// Runs some instructions.
    pub fn step(&mut self, ram: &mut Ram, budget: u64) -> Result<Event, Box<Fault>> {
        self.wave.run(&self.program, ram, &mut (), budget)
    }
}
