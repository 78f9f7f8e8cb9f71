// Integer division and remainder of 64 bits.
#include "device.h"

KERNEL divide64(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    const u64 a = (u64)in[4 * i] << 32 | in[4 * i + 1];
    const u64 b = (((u64)in[4 * i + 2] << 32 | in[4 * i + 3]) >> in[4 * i + 2] % 64) | 1;
    const i64 sa = (i64)a, sb = -(i64)(b >> 1) - 2;
    const u64 r[4] = {a / b, a % b, (u64)(sa / sb), (u64)(sa % sb)};
    for (u32 k = 0; k < 4; k++) {
        out[8 * i + 2 * k] = (u32)r[k];
        out[8 * i + 2 * k + 1] = (u32)(r[k] >> 32);
    }
}
