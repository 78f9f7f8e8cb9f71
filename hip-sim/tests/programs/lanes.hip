// Mirrors, shifts and permutations of rows, swizzles, and single lanes.
#include "device.h"

KERNEL lanes(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    const u32 value = in[i];
    u32 mixed = row_mirror(value) ^ quad_reverse(value) * 3;
    mixed += row_up<1>(value) + row_up<3>(mixed) * 5;
    mixed ^= swizzle_xor<16>(mixed) + swizzle_xor<5>(value);
    mixed += first(value) * 7 + lane_of<19>(value);
    out[i] = mixed;
}
