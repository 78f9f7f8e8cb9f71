// The scalar arithmetic of the step: exponential, logarithm, softplus, gate. One text for the kernels in every language, and for
// the test that compiles it for the host and measures its errors (tests/hip_arithmetic.rs; docs/hip-kernel.md has the results).
//
// Included once, by a file that has these before it:
//
//     DEVICE                   what stands in front of a function
//     f32, uint32_t            types; for the second one nothing is included here, since NVRTC has no system headers
//     as_f32(uint32_t)         the number that has these bits
//     as_bits(f32)             its bits
//     fused(a, b, c)           a * b + c with one rounding
//     reciprocal_estimate(x)   1 / x for x of 1 or more within 1 ulp, as the hardware has it: 0 for infinity, NaN for NaN; a
//                              result below the normal numbers may be 0
//
// C++11, since Metal is C++14. Every result has the same bits in every language and on every device, up to what
// `reciprocal_estimate` makes of it, if the compiler neither reorders operations nor takes NaN and infinity for impossible
// (-ffast-math, MTLMathModeFast), and keeps numbers below the normal ones; where a device makes them zero, only such results
// change. Contraction may be on or off: a product that is added to something is either written as `fused`, or it has a power
// of two as a factor, and then fusing changes nothing.
//
// Metal has a `clamp` of its own, which may lose NaN: after `using namespace metal`, this one is `::clamp`.

#ifndef SSM_UPDATE_ARITHMETIC_H
#define SSM_UPDATE_ARITHMETIC_H

// e^x, also where it is below the normal numbers or not finite; NaN stays. With x = n ln 2 + r, n whole: 2^n e^r.
DEVICE f32 exponential(f32 x)
{
    // Beyond these, the result is 0 or infinity. Comparisons instead of min and max, which would turn NaN into a limit.
    x = x < -105.0f ? -105.0f : x;
    x = x > 89.0f ? 89.0f : x;
    // Adding 1.5 * 2^23 rounds to a whole number, which then stands in the low bits. Here that is n + 254.
    const f32 shift = 12582912.0f + 254.0f;
    const f32 shifted = fused(x, 1.44269502f, shift);
    const f32 n = shifted - shift;
    // ln 2 in two parts. The first step is exact: where n is not 0, x and the product are multiples of 2^-25, and what is left
    // of them is below 2^-1.
    f32 r = fused(n, -0.693147182f, x);
    r = fused(n, 1.90465421e-9f, r);
    // Of degree 6, with 1 + r given and the largest relative error on [-0.3466, 0.3466] as small as it can be: 3.8e-9 with rounded
    // coefficients, where the Taylor polynomial of degree 7 has 5.2e-9.
    f32 p = 1.38146023e-3f;
    p = fused(p, r, 8.36871564e-3f);
    p = fused(p, r, 4.16683890e-2f);
    p = fused(p, r, 0.166665211f);
    p = fused(p, r, 0.499999940f);
    p = fused(p, r, 1.0f);
    p = fused(p, r, 1.0f);
    // 2^n as two factors, since n reaches from -151 to 128 and an exponent field does not: with the two halves of n + 254, each
    // of which has the bias 127 in it. The shift leaves no other bit. The first product is exact, the second is rounded where it
    // is below the normal numbers.
    const uint32_t sum = as_bits(shifted), lower = sum >> 1; // `half` is a type in Metal
    return p * as_f32(lower << 23) * as_f32((sum - lower) << 23);
}

// 1 / x with one Newton step on the hardware's approximation. 1 / inf is 0, to which no Newton step applies; NaN stays.
DEVICE f32 reciprocal(f32 x)
{
    const f32 infinity = as_f32(0x7f800000u);
    const f32 r = reciprocal_estimate(x);
    const f32 refined = fused(fused(-x, r, 1.0f), r, r);
    return x < infinity ? refined : r;
}

// ln(1 + e) for e in [0, 1] as 2 atanh(s), s = e / (2 + e) <= 1/3, by its series: the first term left out is below 4e-9
// relative. Better than the hardware's logarithm, whose error near 1 is absolute.
DEVICE f32 log1p_unit(f32 e)
{
    const f32 s = e * reciprocal(2.0f + e), q = s * s;
    f32 p = 1.0f / 15.0f;
    p = fused(p, q, 1.0f / 13.0f);
    p = fused(p, q, 1.0f / 11.0f);
    p = fused(p, q, 1.0f / 9.0f);
    p = fused(p, q, 1.0f / 7.0f);
    p = fused(p, q, 1.0f / 5.0f);
    p = fused(p, q, 1.0f / 3.0f);
    return 2.0f * fused(s * q, p, s);
}

// ln(1 + e^x): no overflow for large x, no loss for very negative ones. NaN stays.
DEVICE f32 softplus(f32 x)
{
    const f32 magnitude = x < 0.0f ? -x : x;
    return (x > 0.0f ? x : 0.0f) + log1p_unit(exponential(-magnitude));
}

// NaN stays, unless a limit is NaN.
DEVICE f32 clamp(f32 x, f32 low, f32 high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

// z * sigmoid(z)
DEVICE f32 silu(f32 z) { return z * reciprocal(1.0f + exponential(-z)); }

#endif
