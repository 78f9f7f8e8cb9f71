// A sum over a work-group of 256, by halves, through LDS.
#include "device.h"

KERNEL reduce_lds(const u32 *in, u32 *out, u32 n)
{
    SHARED u32 partial[256];
    const u32 t = thread_x(), i = block_x() * 256 + t;
    partial[t] = i < n ? in[i] : 0;
    barrier();
    for (u32 half = 128; half > 0; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        barrier();
    }
    if (t == 0) out[block_x()] = partial[0];
}
