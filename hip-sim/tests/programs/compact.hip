// Items that pass a test move together, by ballots within a wave.
#include "device.h"

KERNEL compact(const u32 *in, u32 *out, u32)
{
    SHARED u32 totals[4];
    const u32 t = thread_x(), wave = t / 32, value = in[block_x() * 128 + t];
    const bool keep = value % 3 != 0;
    const u32 mask = ballot(keep);
    if (lane() == 0) totals[wave] = (u32)__builtin_popcount(mask);
    barrier();
    u32 place = (u32)__builtin_popcount(mask & ((1u << lane()) - 1));
    for (u32 w = 0; w < wave; w++) place += totals[w];
    if (keep) out[block_x() * 128 + place] = value;
}
