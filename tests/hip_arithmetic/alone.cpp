// gpu/arithmetic.h with what its head asks for and nothing else: C++11 and no header at all, as run-time compilers have it.

typedef float f32;
typedef unsigned int uint32_t;

#define DEVICE static inline

DEVICE f32 as_f32(uint32_t bits)
{
    f32 value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

DEVICE uint32_t as_bits(f32 value)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

DEVICE f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
DEVICE f32 reciprocal_estimate(f32 x) { return 1.0f / x; }

#include "../../gpu/arithmetic.h"

// Whoever includes it calls these.
f32 all_of_it(f32 x) { return clamp(softplus(x), 0.0f, 1.0f) + silu(x); }
