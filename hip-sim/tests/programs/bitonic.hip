// A sort of 128 words in LDS.
#include "device.h"

KERNEL bitonic(const u32 *in, u32 *out, u32)
{
    SHARED u32 keys[128];
    const u32 t = thread_x();
    keys[t] = in[block_x() * 128 + t];
    barrier();
    for (u32 size = 2; size <= 128; size *= 2)
        for (u32 step = size / 2; step > 0; step /= 2) {
            const u32 other = t ^ step;
            if (other > t) {
                const u32 a = keys[t], b = keys[other];
                if ((a > b) == ((t & size) == 0)) {
                    keys[t] = b;
                    keys[other] = a;
                }
            }
            barrier();
        }
    out[block_x() * 128 + t] = keys[t];
}
