// Each lane loops as often as its number needs, with breaks and nested conditions.
#include "device.h"

KERNEL divergent_loops(const u32 *in, u32 *out, u32 n)
{
    const u32 i = block_x() * 64 + thread_x();
    if (i >= n) return;
    u32 value = in[i] % 1000 + 1, steps = 0, odd = 0;
    while (value != 1) {
        if (value % 2) {
            value = 3 * value + 1;
            if (++odd > 40) break;
        } else {
            value /= 2;
        }
        steps++;
    }
    for (u32 k = 0; k < i % 7; k++) {
        if (k == 3) continue;
        steps += k * odd;
    }
    out[i] = steps << 16 | odd << 8 | (value & 0xff);
}
