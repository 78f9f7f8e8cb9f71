//! What a device says of itself: published figures of one product per architecture. Programs size launches by them; the
//! simulator does not use them.

use crate::isa::Arch;

/// Figures of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Its name.
    pub name: &'static str,
    /// Compute units; HIP counts their pairs as multiprocessors.
    pub compute_units: i32,
    /// Highest clock, in MHz.
    pub clock_mhz: i32,
    /// Clock of the memory, in MHz.
    pub memory_mhz: i32,
    /// Width of the memory bus in bits.
    pub bus_bits: i32,
    /// Bytes of the second-level cache.
    pub l2_bytes: i32,
    /// It shares the processor's memory.
    pub integrated: bool,
}

const MIB: i32 = 1 << 20;

const fn model(name: &'static str, numbers: [i32; 5], integrated: bool) -> Model {
    let [compute_units, clock_mhz, memory_mhz, bus_bits, l2_mib] = numbers;
    Model { name, compute_units, clock_mhz, memory_mhz, bus_bits, l2_bytes: l2_mib * MIB, integrated }
}

impl Model {
    /// The product that stands for an architecture.
    pub fn of(arch: Arch) -> Self {
        match arch {
            Arch::Gfx1030 => model("AMD Radeon RX 6900 XT", [80, 2250, 1000, 256, 4], false),
            Arch::Gfx1100 => model("AMD Radeon RX 7900 XTX", [96, 2500, 1250, 384, 6], false),
            Arch::Gfx1101 => model("AMD Radeon RX 7800 XT", [60, 2430, 1219, 256, 4], false),
            Arch::Gfx1102 => model("AMD Radeon RX 7600", [32, 2655, 1125, 128, 2], false),
            Arch::Gfx1103 => model("AMD Radeon 780M", [12, 2700, 800, 128, 2], true),
            Arch::Gfx1150 => model("AMD Radeon 890M", [16, 2900, 937, 128, 2], true),
            Arch::Gfx1151 => model("AMD Radeon 8060S", [40, 2900, 1000, 256, 2], true),
            Arch::Gfx1152 => model("AMD Radeon 860M", [8, 3000, 1000, 128, 1], true),
            Arch::Gfx1153 => model("AMD Radeon 840M", [4, 2900, 1000, 128, 1], true),
            Arch::Gfx1200 => model("AMD Radeon RX 9060 XT", [32, 3130, 1250, 128, 4], false),
            Arch::Gfx1201 => model("AMD Radeon RX 9070 XT", [64, 2970, 1250, 256, 8], false),
        }
    }

    /// Multiprocessors as HIP counts them: pairs of compute units.
    pub fn multiprocessors(&self) -> i32 {
        self.compute_units / 2
    }
}
