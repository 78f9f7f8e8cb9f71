//! Any processor: eight lanes as an array, which the compiler maps to what the target has (SSE2, NEON).

use half::{bf16, f16};

use super::vector::{GROUP, Vector};
use crate::Element;

#[derive(Clone, Copy)]
pub(super) struct Portable([f32; 8]);

/// Fused on AArch64, where it is one instruction. Elsewhere `mul_add` may be a call into the C library per lane.
#[inline(always)]
fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
}

impl Portable {
    #[inline(always)]
    unsafe fn load<T: Element>(at: *const T) -> Self {
        // SAFETY: valid for eight elements by the contract of `Vector`.
        Self(std::array::from_fn(|lane| unsafe { at.add(lane).read() }.to_f32()))
    }

    #[inline(always)]
    unsafe fn store<T: Element>(self, at: *mut T) {
        for (lane, value) in self.0.into_iter().enumerate() {
            // SAFETY: valid for eight elements by the contract of `Vector`.
            unsafe { at.add(lane).write(T::from_f32(value)) };
        }
    }
}

impl Vector for Portable {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] * by.0[lane]))
    }
    #[inline(always)]
    unsafe fn mul_add(self, by: Self, plus: Self) -> Self {
        Self(std::array::from_fn(|lane| mul_add(self.0[lane], by.0[lane], plus.0[lane])))
    }
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.0;
        ((a + e) + (c + g)) + ((b + f) + (d + h))
    }
    #[inline(always)]
    unsafe fn sums(group: [Self; GROUP]) -> [f32; GROUP] {
        // SAFETY: this function's own contract.
        group.map(|vector| unsafe { vector.sum() })
    }

    #[inline(always)]
    unsafe fn load_f32(at: *const f32) -> Self {
        // SAFETY: as above; the same holds for the five functions below.
        unsafe { Self::load(at) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const f16) -> Self {
        // SAFETY: as above.
        unsafe { Self::load(at) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const bf16) -> Self {
        // SAFETY: as above.
        unsafe { Self::load(at) }
    }
    #[inline(always)]
    unsafe fn store_f32(self, at: *mut f32) {
        // SAFETY: as above.
        unsafe { self.store(at) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut f16) {
        // SAFETY: as above.
        unsafe { self.store(at) }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut bf16) {
        // SAFETY: as above.
        unsafe { self.store(at) }
    }
}
