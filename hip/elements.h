// The element types of tensors and their conversions to and from f32, by builtins of clang. Apart from the kernel so that a test
// can compile this very text for the host (tests/hip_arithmetic.rs).
// Included once, by whoever defines DEVICE: what stands in front of a function.

#ifndef SSM_UPDATE_ELEMENTS_H
#define SSM_UPDATE_ELEMENTS_H

#include <stdint.h>

typedef float f32;
typedef _Float16 f16;
// The bits of a bfloat16. An enumeration, since a class cannot be read through an address space.
enum class bf16 : uint16_t {};

DEVICE f32 as_f32(uint32_t bits) { return __builtin_bit_cast(f32, bits); }
DEVICE uint32_t as_bits(f32 value) { return __builtin_bit_cast(uint32_t, value); }

DEVICE f32 widen(f32 value) { return value; }
DEVICE f32 widen(f16 value) { return (f32)value; }
DEVICE f32 widen(bf16 value) { return as_f32((uint32_t)value << 16); }

// To nearest, ties to even; NaN stays NaN and becomes quiet.
template <typename T> DEVICE T narrow(f32 value)
{
    if constexpr (__is_same(T, bf16)) {
        const uint32_t bits = as_bits(value);
        const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
        return (bf16)((value != value ? bits | 0x400000u : rounded) >> 16);
    } else {
        return (T)value;
    }
}

#endif
