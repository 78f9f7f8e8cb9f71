// 64-bit arithmetic: carries, products, shifts, comparisons.
#include "device.h"

KERNEL int64(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    const u64 a = (u64)in[4 * i] << 32 | in[4 * i + 1], b = (u64)in[4 * i + 2] << 32 | in[4 * i + 3];
    const u32 shift = in[4 * i] % 64;
    u64 r = a + b;
    r ^= a * b;
    r += (a << shift) ^ (b >> shift) ^ (u64)((i64)a >> shift);
    r -= a > b ? a - b : b - a;
    r ^= (i64)a < (i64)b ? 0x123456789abcdefull : ~0ull;
    r += (u64)((unsigned __int128)a * b >> 64);
    r += (u64)__builtin_popcountll(a) << 7;
    out[2 * i] = (u32)r;
    out[2 * i + 1] = (u32)(r >> 32);
}
