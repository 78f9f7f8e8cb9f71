// Functions chosen by the data, through their addresses.
#include "device.h"

NOINLINE static u32 twice(u32 value) { return 2 * value; }
NOINLINE static u32 square(u32 value) { return value * value; }
NOINLINE static u32 flip(u32 value) { return ~value; }

typedef u32 (*step)(u32);

KERNEL indirect(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const step choice[3] = {twice, square, flip};
    u32 value = in[i];
    for (u32 k = 0; k < 3; k++) value = choice[(value >> 4) % 3](value);
    out[i] = value;
}
