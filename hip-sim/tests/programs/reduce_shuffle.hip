// A maximum over each wave by exchanges through ds_bpermute, then over the work-group.
#include "device.h"

KERNEL reduce_shuffle(const u32 *in, u32 *out, u32 n)
{
    SHARED u32 of_wave[4];
    const u32 t = thread_x(), i = block_x() * 128 + t;
    u32 value = i < n ? in[i] : 0;
    for (u32 step = 16; step > 0; step /= 2) {
        const u32 other = shuffle(value, lane() ^ step);
        value = other > value ? other : value;
    }
    if (lane() == 0) of_wave[t / 32] = value;
    barrier();
    if (t == 0) {
        for (u32 wave = 1; wave < 4; wave++) value = of_wave[wave] > value ? of_wave[wave] : value;
        out[block_x()] = value;
    }
}
