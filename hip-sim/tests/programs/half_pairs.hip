// Packed arithmetic: two halves, two short integers at a time.
#include "device.h"

typedef f16 half_pair __attribute__((ext_vector_type(2)));
typedef u16 short_pair __attribute__((ext_vector_type(2)));

KERNEL half_pairs(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const short_pair a = bits<short_pair>(in[2 * i]), b = bits<short_pair>(in[2 * i + 1]);
    const short_pair shifts = b & (u16)15;
    const short_pair r = (a + b) * (u16)3 - (a << shifts) + (b >> (a & (u16)15));
    // Small whole numbers, so that every result is exact or a tie.
    const half_pair x = {(f16)(a.x % 64), (f16)(a.y % 32)}, y = {(f16)(b.x % 16), (f16)((i16)b.y % 64)};
    const half_pair s = x * y + y, q = s - x * (f16)0.5f;
    out[2 * i] = bits<u32>(r);
    out[2 * i + 1] = bits<u32>(q);
}
