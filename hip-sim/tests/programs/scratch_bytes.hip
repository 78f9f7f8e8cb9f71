// An array of bytes and halves of each item.
#include "device.h"

KERNEL scratch_bytes(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    u8 count[16];
    i16 sum[16];
    for (u32 k = 0; k < 16; k++) {
        count[k] = 0;
        sum[k] = -5;
    }
    for (u32 k = 0; k < 64; k++) {
        const u32 value = in[(i + k) % 64], slot = value >> 28;
        count[slot]++;
        sum[slot] = (i16)(sum[slot] + (i16)value);
    }
    u32 hash = 0;
    for (u32 k = 0; k < 16; k++) hash = hash * 31 + count[k] * 257u + (u32)(i32)sum[k];
    out[i] = hash;
}
