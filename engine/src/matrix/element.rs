//! The element types that weights are stored in, read from little-endian bytes at any alignment: safetensors files align
//! nothing beyond the byte, and vector loads need no more.

use half::f16;

/// Elements that are widened at a time.
pub(super) const BLOCK: usize = 64;

/// An element type. The types that implement it only name it.
pub(super) trait Element {
    /// One element as it is stored.
    type Bytes: Copy + Sync;

    /// The whole elements in `bytes`.
    fn elements(bytes: &[u8]) -> &[Self::Bytes];

    /// Exact, for finite values. Others are refused when a checkpoint is read.
    fn widen(element: Self::Bytes) -> f32;

    /// The value, if it is NaN or infinite.
    fn not_finite(element: Self::Bytes) -> Option<f32>;

    /// `wide` filled with as many elements.
    // A plain loop over the bits: it becomes vector instructions of whatever width the caller was compiled for.
    #[inline(always)]
    fn widen_all(elements: &[Self::Bytes], wide: &mut [f32]) {
        for (wide, element) in wide.iter_mut().zip(elements) {
            *wide = Self::widen(*element);
        }
    }
}

/// IEEE single precision.
pub(super) struct F32;
/// IEEE half precision.
pub(super) struct F16;
/// bfloat16.
pub(super) struct Bf16;

impl Element for F32 {
    type Bytes = [u8; 4];

    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[[u8; 4]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn widen(element: [u8; 4]) -> f32 {
        f32::from_le_bytes(element)
    }

    #[inline(always)]
    fn not_finite(element: [u8; 4]) -> Option<f32> {
        let value = f32::from_le_bytes(element);
        (!value.is_finite()).then_some(value)
    }
}

impl Element for F16 {
    type Bytes = [u8; 2];

    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }

    // `half` asks for the CPU's conversion instruction at every element, which keeps a loop from becoming vector
    // instructions.
    #[inline(always)]
    fn widen(element: [u8; 2]) -> f32 {
        let bits = u32::from(u16::from_le_bytes(element));
        let (sign, rest) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
        // Exponents are biased by 15 in f16 and by 127 in f32.
        let normal = rest + ((127 - 15) << 23);
        // An exponent of 0 means the mantissa times 2^-24. Put behind the leading 1 of 2^-14, that is what exceeds 2^-14.
        let least_normal = (127 - 14) << 23;
        let subnormal = (f32::from_bits(rest | least_normal) - f32::from_bits(least_normal)).to_bits();
        f32::from_bits(sign | if bits & 0x7c00 == 0 { subnormal } else { normal })
    }

    #[inline(always)]
    fn not_finite(element: [u8; 2]) -> Option<f32> {
        let value = f16::from_le_bytes(element);
        (!value.is_finite()).then(|| f32::from(value))
    }
}

impl Element for Bf16 {
    type Bytes = [u8; 2];

    #[inline(always)]
    fn elements(bytes: &[u8]) -> &[[u8; 2]] {
        bytes.as_chunks().0
    }

    #[inline(always)]
    fn widen(element: [u8; 2]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes(element)) << 16)
    }

    #[inline(always)]
    fn not_finite(element: [u8; 2]) -> Option<f32> {
        let value = half::bf16::from_le_bytes(element);
        (!value.is_finite()).then(|| f32::from(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finite_16_bit_value_is_widened_as_half_does() {
        for bits in 0..=u16::MAX {
            let (bytes, half, bf) = (bits.to_le_bytes(), f16::from_bits(bits), half::bf16::from_bits(bits));
            assert_eq!(F16::not_finite(bytes).is_none(), half.is_finite());
            assert_eq!(Bf16::not_finite(bytes).is_none(), bf.is_finite());
            if half.is_finite() {
                assert_eq!(F16::widen(bytes).to_bits(), half.to_f32().to_bits(), "{bits:#06x}");
            }
            if bf.is_finite() {
                assert_eq!(Bf16::widen(bytes).to_bits(), bf.to_f32().to_bits(), "{bits:#06x}");
            }
        }
    }
}
