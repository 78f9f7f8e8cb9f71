// An array of each item, indexed by its data.
#include "device.h"

KERNEL scratch(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    u32 heap[32];
    for (u32 k = 0; k < 32; k++) heap[k] = k;
    u32 seed = in[i];
    for (u32 k = 31; k > 0; k--) {
        seed = seed * 1664525 + 1013904223;
        const u32 j = (seed >> 16) % (k + 1), kept = heap[k];
        heap[k] = heap[j];
        heap[j] = kept;
    }
    u32 hash = 0;
    for (u32 k = 0; k < 32; k++) hash = hash * 33 + heap[k];
    out[i] = hash;
}
