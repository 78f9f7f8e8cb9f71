// A histogram through atomics on LDS, then on device memory.
#include "device.h"

KERNEL histogram(const u32 *in, u32 *out, u32 n)
{
    SHARED u32 bins[64];
    const u32 t = thread_x();
    if (t < 64) bins[t] = 0;
    barrier();
    for (u32 i = block_x() * 128 + t; i < n; i += items_x()) atomic_add(&bins[in[i] >> 26], 1u);
    barrier();
    if (t < 64) atomic_add(&out[t], bins[t]);
}
