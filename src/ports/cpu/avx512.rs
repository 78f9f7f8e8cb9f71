//! x86-64 with AVX-512 F, BW, DQ and VL: sixteen lanes. With BF16 too, rounding to bf16 is one instruction instead of eight.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::avx2;
use super::vector::{GROUP, Vector};

#[derive(Clone, Copy)]
pub(super) struct Avx512<const BF16: bool>(__m512);

/// To nearest, ties to even, in integer arithmetic: as in `avx2`.
#[inline(always)]
unsafe fn round_bf16(v: __m512) -> __m256i {
    // SAFETY: the instruction set is the caller's promise.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let cut = _mm512_srli_epi32::<16>(bits);
        let odd = _mm512_and_si512(cut, _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let words = _mm512_mask_or_epi32(_mm512_srli_epi32::<16>(rounded), is_nan, cut, _mm512_set1_epi32(0x40));
        _mm512_cvtepi32_epi16(words)
    }
}

/// The upper eight lanes added to the lower eight.
#[inline(always)]
unsafe fn fold(v: __m512) -> __m256 {
    // SAFETY: the instruction set is the caller's promise.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
}

impl<const BF16: bool> Vector for Avx512<BF16> {
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract, as for every block below.
        unsafe { Self(_mm512_set1_ps(value)) }
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_mul_ps(self.0, by.0)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, by: Self, plus: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_fmadd_ps(self.0, by.0, plus.0)) }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe { avx2::sum(fold(self.0)) }
    }
    #[inline(always)]
    unsafe fn sums(group: [Self; GROUP]) -> [f32; GROUP] {
        // SAFETY: the trait's contract.
        unsafe {
            let [a, b, c, d, e, f, g, h] = group;
            avx2::sums([fold(a.0), fold(b.0), fold(c.0), fold(d.0), fold(e.0), fold(f.0), fold(g.0), fold(h.0)])
        }
    }

    #[inline(always)]
    fn prefetch_read(at: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[inline(always)]
    fn prefetch_write(at: *const u8) {
        avx2::prefetch_write(at);
    }

    #[inline(always)]
    unsafe fn load_f32(at: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_loadu_ps(at)) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const f16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm512_cvtph_ps(_mm256_loadu_si256(at.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const bf16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            Self(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn store_f32(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { _mm512_storeu_ps(at, self.0) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut f16) {
        // SAFETY: the trait's contract.
        unsafe { _mm256_storeu_si256(at.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(self.0)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16) {
        // SAFETY: the trait's contract; BF16 says that its instruction is there too.
        unsafe {
            /// Immediate of vfpclassps: subnormal.
            const SUBNORMAL: i32 = 0x20;
            let words = if BF16 && _mm512_fpclass_ps_mask::<SUBNORMAL>(self.0) == 0 {
                // It takes subnormals for zero, and there are none.
                std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(self.0))
            } else {
                round_bf16(self.0)
            };
            _mm256_storeu_si256(at.cast(), words);
        }
    }
}
