//! x86-64 with AVX2, FMA and F16C: eight lanes.

use std::arch::asm;
use std::arch::x86_64::*;

use half::{bf16, f16};

use super::vector::{GROUP, Vector};

#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256);

/// Sums of the lanes of eight vectors, by adding while transposing: 7 shuffled additions instead of 8 times 3.
#[inline(always)]
pub(super) unsafe fn sums(v: [__m256; GROUP]) -> [f32; GROUP] {
    // SAFETY: the instruction set is the caller's promise; the store goes to an array of eight.
    unsafe {
        let (ab, cd) = (_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        let (ef, gh) = (_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
        let (abcd, efgh) = (_mm256_hadd_ps(ab, cd), _mm256_hadd_ps(ef, gh));
        let low = _mm256_permute2f128_ps::<0x20>(abcd, efgh);
        let high = _mm256_permute2f128_ps::<0x31>(abcd, efgh);
        let mut sums = [0.0; GROUP];
        _mm256_storeu_ps(sums.as_mut_ptr(), _mm256_add_ps(low, high));
        sums
    }
}

/// Asks for a cache line for writing. By hand, since the intrinsic asks for reading unless the target has a feature for it;
/// every x86-64 processor takes the instruction, older ones as a hint without effect. Miri has no inline assembly.
#[inline(always)]
pub(super) fn prefetch_write(at: *const u8) {
    if cfg!(miri) {
        return;
    }
    // SAFETY: a prefetch never faults and changes nothing that a program can see.
    unsafe { asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly)) }
}

/// Sum of the lanes, in the order of [`sums`].
#[inline(always)]
pub(super) unsafe fn sum(v: __m256) -> f32 {
    // SAFETY: the instruction set is the caller's promise.
    unsafe {
        let pairs = _mm256_hadd_ps(v, v);
        let quads = _mm256_hadd_ps(pairs, pairs);
        _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads)))
    }
}

impl Vector for Avx2 {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract, as for every block below.
        unsafe { Self(_mm256_set1_ps(value)) }
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_mul_ps(self.0, by.0)) }
    }
    #[inline(always)]
    unsafe fn mul_add(self, by: Self, plus: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_fmadd_ps(self.0, by.0, plus.0)) }
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        unsafe { sum(self.0) }
    }
    #[inline(always)]
    unsafe fn sums(group: [Self; GROUP]) -> [f32; GROUP] {
        // SAFETY: the trait's contract.
        unsafe {
            let [a, b, c, d, e, f, g, h] = group;
            sums([a.0, b.0, c.0, d.0, e.0, f.0, g.0, h.0])
        }
    }

    #[inline(always)]
    fn prefetch_read(at: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }
    #[inline(always)]
    fn prefetch_write(at: *const u8) {
        prefetch_write(at);
    }

    #[inline(always)]
    unsafe fn load_f32(at: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_loadu_ps(at)) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const f16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(_mm256_cvtph_ps(_mm_loadu_si128(at.cast()))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const bf16) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            Self(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide)))
        }
    }
    #[inline(always)]
    unsafe fn store_f32(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { _mm256_storeu_ps(at, self.0) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut f16) {
        // SAFETY: the trait's contract.
        unsafe { _mm_storeu_si128(at.cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(self.0)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16) {
        // To nearest, ties to even: add 0x7fff plus the lowest bit kept, then cut. NaN instead keeps its upper bits and is
        // made quiet.
        // SAFETY: the trait's contract.
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            let cut = _mm256_srli_epi32::<16>(bits);
            let odd = _mm256_and_si256(cut, _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let quiet = _mm256_or_si256(cut, _mm256_set1_epi32(0x40));
            let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
            let words = _mm256_blendv_epi8(_mm256_srli_epi32::<16>(rounded), quiet, is_nan);
            let packed = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(at.cast(), packed);
        }
    }
}
