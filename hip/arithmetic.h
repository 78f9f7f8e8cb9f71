// The scalar arithmetic of the step: element types, exponential, logarithm, softplus and gate. Apart from the kernel so that a
// test can compile this very text for the host, with functions in place of the two instructions that it rests on, and measure
// its errors over everything that the instructions may return (tests/hip_arithmetic.rs; the results are in docs/hip-kernel.md).
// Included once, by whoever defines DEVICE: what stands in front of a function.
//
// Those two, v_exp_f32 and v_rcp_f32, have errors of up to 1 ulp and flush subnormal numbers to zero (AMD, "RDNA3.5
// Instruction Set Architecture", V_EXP_F32 and V_RCP_F32; LLVM's AMDGPUCodeGenPrepare.cpp and AMDGPUISelLowering.cpp reckon
// with the same).

#ifndef SSM_UPDATE_ARITHMETIC_H
#define SSM_UPDATE_ARITHMETIC_H

#include <stdint.h>

// Products and sums are fused where the code says so and nowhere else, here and in the file that includes this: every compiler
// gives the same bits.
#pragma clang fp contract(off)

typedef float f32;
typedef _Float16 f16;
// The bits of a bfloat16. An enumeration, since a class cannot be read through an address space.
enum class bf16 : uint16_t {};

// --- element types ---------------------------------------------------------------------------------------------------

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

// --- arithmetic ------------------------------------------------------------------------------------------------------

// e^x from the hardware's 2^x, which is good to 1 ulp of its argument's rounding: the part of x / ln 2 that does not fit the
// argument is put back as a factor 1 + rest * ln 2. Over- and underflow as they should be; NaN stays.
DEVICE f32 exp_accurate(f32 x)
{
    const f32 log2e = 1.44269502f, log2e_rest = 1.92596303e-8f, ln2 = 0.693147182f;
    const f32 scaled = x * log2e;
    const f32 rest = __builtin_fmaf(x, log2e_rest, __builtin_fmaf(x, log2e, -scaled));
    const f32 power = __builtin_amdgcn_exp2f(scaled);
    // Where the power is 0 or infinite, the rest may be NaN (infinite x).
    return power > 0.0f && power < __builtin_inff() ? __builtin_fmaf(power, rest * ln2, power) : power;
}

// 1 / x with one Newton step on the hardware's approximation. 1 / inf is 0, to which no Newton step applies; NaN stays.
DEVICE f32 reciprocal(f32 x)
{
    const f32 r = __builtin_amdgcn_rcpf(x);
    const f32 refined = __builtin_fmaf(__builtin_fmaf(-x, r, 1.0f), r, r);
    return x < __builtin_inff() ? refined : r;
}

// ln(1 + e) for e in [0, 1] as 2 atanh(s), s = e / (2 + e) <= 1/3, by its series: the first term left out is below 4e-9
// relative. Better than the hardware's logarithm, whose error near 1 is absolute.
DEVICE f32 log1p_unit(f32 e)
{
    const f32 s = e * reciprocal(2.0f + e), q = s * s;
    f32 p = 1.0f / 15.0f;
    p = __builtin_fmaf(p, q, 1.0f / 13.0f);
    p = __builtin_fmaf(p, q, 1.0f / 11.0f);
    p = __builtin_fmaf(p, q, 1.0f / 9.0f);
    p = __builtin_fmaf(p, q, 1.0f / 7.0f);
    p = __builtin_fmaf(p, q, 1.0f / 5.0f);
    p = __builtin_fmaf(p, q, 1.0f / 3.0f);
    return 2.0f * __builtin_fmaf(s * q, p, s);
}

// ln(1 + e^x): no overflow for large x, no loss for very negative ones. NaN stays.
DEVICE f32 softplus(f32 x)
{
    const f32 magnitude = x < 0.0f ? -x : x;
    return (x > 0.0f ? x : 0.0f) + log1p_unit(exp_accurate(-magnitude));
}

// Comparisons instead of min and max, which would turn NaN into a limit.
DEVICE f32 clamp(f32 x, f32 low, f32 high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

// z * sigmoid(z)
DEVICE f32 silu(f32 z) { return z * reciprocal(1.0f + exp_accurate(-z)); }

#endif
