//! What an instruction set has to offer to the step: f32 arithmetic on a few lanes, and loads and stores that convert.

use half::{bf16, f16};

use crate::Element;

/// Rows whose lane sums are added up together.
pub(super) const GROUP: usize = 8;

/// A vector of f32 lanes in a register.
///
/// # Safety
///
/// Of every function: the processor has the instruction set (the functions are inlined into one that enables it), and
/// pointers are valid for `LANES` elements, aligned to the element only.
///
/// Everything down to the intrinsics has to be inlined into the function that enables the instruction set. A closure is
/// not: no vector may pass through `map`, `from_fn` and the like, or each intrinsic becomes a call.
pub(super) trait Vector: Copy {
    /// f32 values in one vector; divides 16.
    const LANES: usize;

    unsafe fn splat(value: f32) -> Self;
    /// `self * by`
    unsafe fn mul(self, by: Self) -> Self;
    /// `self * by + plus`, rounded once where the instruction set can.
    unsafe fn mul_add(self, by: Self, plus: Self) -> Self;
    /// Sum of the lanes.
    unsafe fn sum(self) -> f32;
    /// Sums of the lanes of each vector.
    unsafe fn sums(group: [Self; GROUP]) -> [f32; GROUP];

    /// Asks for a cache line that will be read soon. Any address is allowed.
    fn prefetch_read(_at: *const u8) {}
    /// Asks for a cache line that will be written soon. Any address is allowed.
    fn prefetch_write(_at: *const u8) {}

    unsafe fn load_f32(at: *const f32) -> Self;
    unsafe fn load_f16(at: *const f16) -> Self;
    unsafe fn load_bf16(at: *const bf16) -> Self;
    unsafe fn store_f32(self, at: *mut f32);
    /// Rounds to nearest, ties to even; bit for bit [`Element::from_f32`].
    unsafe fn store_f16(self, at: *mut f16);
    /// Rounds to nearest, ties to even; bit for bit [`Element::from_f32`].
    unsafe fn store_bf16(self, at: *mut bf16);
}

/// An element type whose conversion happens between memory and register.
///
/// # Safety
///
/// As [`Vector`].
pub(super) trait Lanes: Element {
    unsafe fn load<V: Vector>(at: *const Self) -> V;
    unsafe fn store<V: Vector>(vector: V, at: *mut Self);
}

macro_rules! lanes {
    ($element:ty, $load:ident, $store:ident) => {
        impl Lanes for $element {
            #[inline(always)]
            unsafe fn load<V: Vector>(at: *const Self) -> V {
                // SAFETY: this function's own contract.
                unsafe { V::$load(at) }
            }
            #[inline(always)]
            unsafe fn store<V: Vector>(vector: V, at: *mut Self) {
                // SAFETY: this function's own contract.
                unsafe { vector.$store(at) }
            }
        }
    };
}

lanes!(f32, load_f32, store_f32);
lanes!(f16, load_f16, store_f16);
lanes!(bf16, load_bf16, store_bf16);
