// Whole waves that leave before a barrier the others wait at.
#include "device.h"

KERNEL early_exit(const u32 *in, u32 *out, u32)
{
    SHARED u32 values[64];
    const u32 t = thread_x();
    if (t >= 64) {
        out[block_x() * 128 + t] = 7;
        return;
    }
    values[t] = in[block_x() * 64 + t];
    barrier();
    out[block_x() * 128 + t] = values[63 - t];
}
