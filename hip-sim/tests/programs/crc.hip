// A checksum of each item's bytes, by a table that the work-group makes.
#include "device.h"

KERNEL crc(const u32 *in, u32 *out, u32)
{
    SHARED u32 table[256];
    const u32 t = thread_x();
    u32 entry = t;
    for (u32 k = 0; k < 8; k++) entry = entry & 1 ? entry >> 1 ^ 0xedb88320 : entry >> 1;
    table[t] = entry;
    barrier();
    if (t >= 64) return;
    const u32 i = block_x() * 64 + t;
    u32 sum = ~0u;
    const u8 *bytes = (const u8 *)(in + 4 * i);
    for (u32 k = 0; k < 16; k++) sum = table[(sum ^ bytes[k]) & 0xff] ^ sum >> 8;
    out[i] = ~sum;
}
