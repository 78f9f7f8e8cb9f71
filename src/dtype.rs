//! The element types a tensor can have.

use half::{bf16, f16};

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE single precision, 4 bytes.
    F32,
    /// IEEE half precision, 2 bytes.
    F16,
    /// bfloat16, 2 bytes.
    Bf16,
}

impl Dtype {
    /// Every dtype, for tables and tests.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Bf16];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The name used in messages, kernel keys and the C interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A Rust type that is one of the [`Dtype`]s: `f32`, `half::f16` or `half::bf16`.
///
/// All-zero bytes are the value 0 in each of them; ports rely on it.
pub trait Element: sealed::Sealed + Copy + Default + Send + Sync + 'static {
    /// The tag of this type.
    const DTYPE: Dtype;

    /// Exact widening.
    fn to_f32(self) -> f32;

    /// Rounds to nearest, ties to even. The only narrowing in the crate: `half`'s own `from_f64` rounds differently from
    /// one processor to the next.
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
}

impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    /// The same bits as `bf16::from_f32`, without its branch, so that loops over it become vectors.
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        Self::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_half_does() {
        // Every upper half with lower halves around the ties, NaN and infinities among them.
        for upper in 0..=u16::MAX {
            for lower in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(upper) << 16 | lower);
                let (ours, halfs) = (<bf16 as Element>::from_f32(value), bf16::from_f32(value));
                assert_eq!(ours.to_bits(), halfs.to_bits(), "{:#x}", value.to_bits());
            }
        }
    }

    #[test]
    fn bf16_widens_exactly() {
        for bits in 0..=u16::MAX {
            let (ours, halfs) = (Element::to_f32(bf16::from_bits(bits)), bf16::from_bits(bits).to_f32());
            assert!(ours == halfs || ours.is_nan() && halfs.is_nan(), "{bits:#x}");
        }
    }
}
