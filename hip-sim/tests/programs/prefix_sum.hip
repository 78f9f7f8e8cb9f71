// Inclusive prefix sums of 256 values, by doubling steps with two buffers.
#include "device.h"

KERNEL prefix_sum(const u32 *in, u32 *out, u32)
{
    SHARED u32 sums[2][256];
    const u32 t = thread_x();
    u32 from = 0;
    sums[0][t] = in[block_x() * 256 + t];
    barrier();
    for (u32 step = 1; step < 256; step *= 2) {
        sums[1 - from][t] = sums[from][t] + (t >= step ? sums[from][t - step] : 0);
        from = 1 - from;
        barrier();
    }
    out[block_x() * 256 + t] = sums[from][t];
}
