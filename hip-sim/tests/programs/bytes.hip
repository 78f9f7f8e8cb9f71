// Loads and stores of bytes and halves, also at odd addresses.
#include "device.h"

struct __attribute__((packed)) odd {
    u8 tag;
    u32 word;
    i16 half;
};

KERNEL bytes(const u32 *in, u32 *out, u32 n)
{
    const u32 i = block_x() * 32 + thread_x();
    if (i >= n) return;
    const odd *from = (const odd *)in;
    odd *to = (odd *)out;
    to[i].tag = (u8)(from[i].tag + 3);
    to[i].word = from[i].word ^ 0x01020304;
    to[i].half = (i16)(from[i].half * (i8)from[i].tag);
}
