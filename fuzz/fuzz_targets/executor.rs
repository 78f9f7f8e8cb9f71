//! The simulator on any instructions: a wave ends, faults or uses up its budget. Once with a little memory around a single wave, and
//! once as a launch of a whole device, whose kernel's code is replaced.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use hip_sim::code_object::CodeObject;
use hip_sim::dispatch::{Geometry, Hidden, Launch, Limits, LoadedCode, pack};
use hip_sim::exec::{Access, Event, Memory, MemoryFault, MemoryFaultKind, Program, Wave, WaveSetup};
use hip_sim::isa::Arch;
use hip_sim::memory::{AllocationKind, DeviceMemory};
use libfuzzer_sys::fuzz_target;
use rayon::ThreadPool;
use ssm_update_fuzz::shipped;

const ARCHS: [Arch; 4] = [Arch::Gfx1030, Arch::Gfx1100, Arch::Gfx1151, Arch::Gfx1201];

#[derive(Debug, Arbitrary)]
struct Input {
    device: bool,
    arch: u8,
    vgprs: u8,
    exec: u32,
    modes: u8,
    ulp: u8,
    /// Filled into the registers in turn.
    values: [u32; 8],
    code: Vec<u32>,
}

fuzz_target!(|input: Input| if input.device { launch(&input) } else { wave(&input) });

/// Bytes from this address on; every space is the same.
struct Ram(Vec<u8>);

const BASE: u64 = 0x1_0000;
const START: u64 = 0x100;
const BUDGET: u64 = 2000;

impl Ram {
    fn at(&mut self, access: &Access) -> Result<&mut [u8], MemoryFault> {
        let at = access.address.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
        let place = at.and_then(|at| self.0.get_mut(at..at.checked_add(access.size as usize)?));
        place.ok_or(MemoryFault { kind: MemoryFaultKind::OutOfBounds, detail: String::new() })
    }
}

impl Memory for Ram {
    fn load(&mut self, access: &Access, out: &mut [u8]) -> Result<(), MemoryFault> {
        out.copy_from_slice(self.at(access)?);
        Ok(())
    }

    fn store(&mut self, access: &Access, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.at(access)?.copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(&mut self, access: &Access, update: &mut dyn FnMut(&mut [u8])) -> Result<(), MemoryFault> {
        update(self.at(access)?);
        Ok(())
    }
}

fn wave(input: &Input) {
    let arch = ARCHS[usize::from(input.arch) % ARCHS.len()];
    // Every second pair of scalar registers is an address of the memory's, so that accesses meet some.
    let sgprs = (0..104).map(|at| match at % 4 {
        0 => BASE as u32 + (input.values[at / 4 % 8] & 0xfff),
        1 => 0,
        _ => input.values[at / 4 % 8],
    });
    let count = usize::from(input.vgprs) + 1;
    let vgprs = (0..count.min(16)).map(|register| {
        std::array::from_fn(|lane| match register % 3 {
            0 => BASE as u32 + lane as u32 * 4,
            1 => 0,
            _ => input.values[(register + lane) % 8],
        })
    });
    let mut wave = Wave::new(WaveSetup {
        arch,
        pc: START,
        sgprs: sgprs.collect(),
        vgprs: vgprs.collect(),
        vgpr_count: count,
        exec: input.exec,
        ttmps: [7; 16],
        float_mode: input.modes,
        ieee: input.modes & 1 != 0,
        dx10_clamp: input.modes & 2 != 0,
        shared_base: 0x10,
        private_base: 0x20,
        hardware_error_ulp: u32::from(input.ulp % 5),
    });
    let program = Program::new(arch, START, input.code.clone());
    let mut ram = Ram(vec![1; 0x2000]);
    let mut left = BUDGET;
    while left > 0 {
        match wave.run(&program, &mut ram, &mut (), left.min(100)) {
            Ok(Event::End) => return,
            Ok(Event::Barrier | Event::Budget) => left = left.saturating_sub(100),
            Err(fault) => return assert!(!fault.to_string().is_empty()),
        }
    }
}

fn launch(input: &Input) {
    static OBJECT: LazyLock<CodeObject> =
        LazyLock::new(|| CodeObject::read(shipped(), Arch::Gfx1151).expect("it is whole"));
    static POOL: LazyLock<ThreadPool> =
        LazyLock::new(|| rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread starts"));
    let mut object = OBJECT.clone();
    object.kernels.truncate(1);
    let kernel = object.kernels[0].clone();
    let entry = kernel.entry_offset as usize;
    let code = object.image.segments.iter().find(|part| part.executable && part.range().contains(&(entry as u64)));
    let room = code.expect("an entry is in code").range().end as usize - entry;
    for (place, word) in object.image.bytes[entry..entry + room].as_chunks_mut().0.iter_mut().zip(&input.code) {
        *place = word.to_le_bytes();
    }
    let mut memory = DeviceMemory::new(0, 1 << 24);
    let code = LoadedCode::load(&mut memory, object).expect("there is room");
    // Every eight bytes of the arguments are an address.
    let buffers: Vec<u64> = (0..4)
        .map(|number| {
            let buffer = memory.allocate(4096, AllocationKind::Buffer).expect("there is room");
            memory.write(buffer, &[number; 2048]).expect("in bounds");
            buffer
        })
        .collect();
    let size = kernel.metadata.explicit().map(|argument| argument.offset + argument.size).max().unwrap_or(0);
    let explicit: Vec<u8> = buffers.iter().cycle().flat_map(|buffer| buffer.to_le_bytes()).take(size).collect();
    let block = [u32::from(input.modes % 65).max(1), 1, 1];
    let geometry = Geometry::of_blocks([u32::from(input.ulp % 3) + 1, 1, 1], block).expect("a legal shape");
    let arguments = pack(&kernel.metadata, &explicit, &Hidden { geometry, dynamic_lds: 1024 }).expect("they fit");
    let limits = Limits { wave: BUDGET, turn: 64 };
    let (arguments, error_ulp) = (&arguments[..], u32::from(input.ulp % 5));
    let launch =
        Launch { code: &code, kernel: &kernel, geometry, dynamic_lds: 1024, arguments, limits, error_ulp, trace: None };
    let outcome = launch.run(&mut memory, &POOL).expect("there is room for arguments");
    if let Some(report) = outcome.report {
        assert!(!report.to_string().is_empty());
    }
}
