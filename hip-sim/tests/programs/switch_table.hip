// A switch of many cases, which compilers make a table of.
#include "device.h"

DEVICE static u32 choose(u32 which, u32 value)
{
    switch (which) {
    case 0: return value + 11;
    case 1: return value * 13;
    case 2: return value ^ 0x5555;
    case 3: return value >> 3;
    case 4: return value << 5;
    case 5: return ~value;
    case 6: return value - 17;
    case 7: return value | 0x8001;
    case 8: return value & 0xff00ff;
    case 9: return value * value;
    case 12: return value / 3;
    case 13: return value % 1001;
    default: return 99;
    }
}

KERNEL switch_table(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    // The same case for a whole group, then one for each lane.
    out[2 * i] = choose(in[block_x()] % 16, in[i]);
    out[2 * i + 1] = choose(in[i] % 16, in[i]);
}
