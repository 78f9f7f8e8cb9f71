// Floats of any bits: infinities, NaN and denormal ones in comparisons and products.
#include "device.h"

KERNEL float_bits(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const u32 special[8] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 1, 0x807fffff, 0x3f800000};
    const u32 raw = in[2 * i], other = in[2 * i + 1];
    const f32 a = bits<f32>(raw % 3 ? raw : special[other % 8]), b = bits<f32>(other % 3 ? other : special[raw % 8]);
    u32 flags = (a < b) | (a <= b) << 1 | (a == b) << 2 | (a != b) << 3 | (a > b) << 4 | (a >= b) << 5;
    flags |= (u32) !(a < b) << 6 | (u32)__builtin_isnan(a) << 7 | (u32)__builtin_isinf(b) << 8;
    const f32 product = a * b, sum = a + b;
    out[3 * i] = flags;
    // Which NaN comes out is not defined.
    out[3 * i + 1] = product != product ? 0x7fc00000 : bits<u32>(product);
    out[3 * i + 2] = sum != sum ? 0x7fc00000 : bits<u32>(sum);
}
