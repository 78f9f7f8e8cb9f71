//! The MODE register: rounding, denormals, and what clamping does to NaN.

/// Direction of rounding, as the fields of MODE number them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// To nearest, ties to even.
    Even,
    /// Towards +infinity.
    Up,
    /// Towards -infinity.
    Down,
    /// Towards zero.
    Zero,
}

impl Round {
    fn from_bits(bits: u32) -> Self {
        match bits & 3 {
            0 => Self::Even,
            1 => Self::Up,
            2 => Self::Down,
            _ => Self::Zero,
        }
    }
}

/// What one width of floats does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FloatMode {
    pub round: Round,
    /// Denormal operands count as zero.
    pub flush_in: bool,
    /// Denormal results become zero.
    pub flush_out: bool,
}

impl FloatMode {
    /// As bf16 arithmetic and the approximations of f32 have it, whatever MODE says.
    pub const FLUSHED: Self = Self { round: Round::Even, flush_in: true, flush_out: true };

    fn new(round: u32, denormals: u32) -> Self {
        // Bit 0 lets denormal operands through, bit 1 denormal results.
        Self { round: Round::from_bits(round), flush_in: denormals & 1 == 0, flush_out: denormals & 2 == 0 }
    }
}

/// MODE, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// The register, as `s_getreg` reads it.
    pub bits: u32,
    /// f32.
    pub single: FloatMode,
    /// f16 and f64.
    pub other: FloatMode,
    /// Clamping turns NaN to zero.
    pub dx10_clamp: bool,
    /// Minimum and maximum make signalling NaN quiet instead of passing over it.
    pub ieee: bool,
}

const DX10_CLAMP: u32 = 1 << 8;
const IEEE: u32 = 1 << 9;

impl Mode {
    /// From the register. RDNA4 has neither of the two switches: it clamps NaN to zero always.
    pub fn new(bits: u32, has_switches: bool) -> Self {
        Self {
            bits,
            single: FloatMode::new(bits, bits >> 4),
            other: FloatMode::new(bits >> 2, bits >> 6),
            dx10_clamp: !has_switches || bits & DX10_CLAMP != 0,
            ieee: has_switches && bits & IEEE != 0,
        }
    }

    /// The register as the kernel descriptor sets it up.
    pub fn initial(float_mode: u8, dx10_clamp: bool, ieee: bool) -> u32 {
        u32::from(float_mode) | if dx10_clamp { DX10_CLAMP } else { 0 } | if ieee { IEEE } else { 0 }
    }
}
