// Counting, reversing, rotating, and fields of bits.
#include "device.h"

KERNEL bit_tricks(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const u32 a = in[i], b = in[i ^ 1] | 1;
    u32 r = (u32)__builtin_popcount(a) | (u32)__builtin_clz(b) << 8 | (u32)__builtin_ctz(b) << 16;
    r ^= __builtin_bitreverse32(a) + __builtin_bswap32(b);
    r += (a << b % 32 % 31 | a >> (31 - b % 32 % 31)) ^ (a >> 5 & 0x3ff);
    r ^= (u32)((i32)(a << 7) >> 20) + (a & ~b) + ~(a ^ b) + (a | ~b);
    r += a > 0x7fffffff ? 1 : 0;
    out[i] = r + (u32)((u64)a * b >> 32) + (u32)((i64)(i32)a * (i32)b >> 32);
}
