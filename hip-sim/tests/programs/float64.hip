// Double precision: sums, products, division, roots, conversions.
#include "device.h"

KERNEL float64(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    const f64 a = (f64)unit(in[2 * i]) * 1e10, b = (f64)(i32)in[2 * i + 1] / 65536.0;
    f64 r = __builtin_fma(a, b, 1.0) + (b == 0.0 ? 0.0 : a / b);
    r += __builtin_sqrt(a < 0.0 ? -a : a) + __builtin_floor(b) + (f64)(f32)a;
    const u64 word = bits<u64>(r);
    out[4 * i] = (u32)word;
    out[4 * i + 1] = (u32)(word >> 32);
    out[4 * i + 2] = (u32)(i32)b ^ bits<u32>((f32)r);
    out[4 * i + 3] = (u32)(a < b) | (u32)(a >= r) << 1;
}
