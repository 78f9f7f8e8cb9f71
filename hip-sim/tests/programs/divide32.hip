// Integer division and remainder of 32 bits, signed and unsigned, with small and large divisors.
#include "device.h"

KERNEL divide32(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const u32 a = in[2 * i], raw = in[2 * i + 1], b = (raw >> raw % 32) | 1;
    const i32 sa = (i32)a, sb = (i32)(raw % 2 ? b : 0u - b);
    out[4 * i] = a / b;
    out[4 * i + 1] = a % b;
    out[4 * i + 2] = (u32)(sb == -1 ? 0 : sa / sb);
    out[4 * i + 3] = (u32)(sb == -1 ? 0 : sa % sb) + a / 7 + a % 10 + (u32)(sa / 3);
}
