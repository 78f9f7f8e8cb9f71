// Functions that are not inlined, one with more arguments than registers hold, and one that calls itself.
#include "device.h"

NOINLINE static u32 fibonacci(u32 n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

struct many {
    u32 value[20];
};

NOINLINE static u64 weigh(many m, u64 factor)
{
    u64 sum = factor;
    for (u32 k = 0; k < 20; k++) sum = sum * 31 + m.value[k];
    return sum;
}

KERNEL calls(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    many m;
    for (u32 k = 0; k < 20; k++) m.value[k] = in[(i + k) % 64];
    const u64 sum = weigh(m, in[i]);
    out[2 * i] = (u32)(sum ^ sum >> 32);
    out[2 * i + 1] = fibonacci(in[i] % 9);
}
