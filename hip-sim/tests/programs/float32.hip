// Single precision: fused and separate products, division, roots, rounding, limits.
#include "device.h"

KERNEL float32(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const f32 a = unit(in[3 * i]) * 1000.0f, b = unit(in[3 * i + 1]), c = unit(in[3 * i + 2]) * 1e-3f;
    f32 r = __builtin_fmaf(a, b, c);
    r += a / (b == 0.0f ? 1.0f : b);
    r -= __builtin_sqrtf(a < 0.0f ? -a : a);
    r = r * c - b;
    const f32 whole = __builtin_floorf(a) + __builtin_ceilf(b * 10.0f) + __builtin_truncf(c * 1e4f) + __builtin_rintf(a * b);
    out[4 * i] = bits<u32>(r);
    out[4 * i + 1] = bits<u32>(whole);
    out[4 * i + 2] = bits<u32>(a < b ? a : b) ^ bits<u32>(a > c ? a : c);
    out[4 * i + 3] = (u32)(i32)a ^ (u32)(b < 0.0f ? 0.0f : b * 4e9f) + bits<u32>((f32)in[i]) + bits<u32>((f32)(i32)in[i]);
}
