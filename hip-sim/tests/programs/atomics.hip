// Atomics on device memory whose order does not show, and one whose order does.
#include "device.h"

KERNEL atomics(const u32 *in, u32 *out, u32 n)
{
    const u32 i = block_x() * 64 + thread_x();
    if (i >= n) return;
    const u32 value = in[i];
    atomic_add(&out[0], value);
    atomic_max(&out[1], value);
    atomic_min((i32 *)&out[2], (i32)value);
    atomic_or(&out[3], value & 0x11111111);
    atomic_and(&out[4], value | 0x0000ffff);
    atomic_xor(&out[5], value);
    atomic_add((u64 *)&out[6], (u64)value << 4);
    u32 seen = 0;
    while (!atomic_replace(&out[8], &seen, seen + (value & 0xff) + 1)) {
    }
    // A place of its own for each item: which one is the device's choice.
    const u32 place = atomic_add(&out[9], 1u);
    atomic_add(&out[10 + place % 4], 1u);
}
