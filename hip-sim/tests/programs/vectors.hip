// Loads and stores of 8 and 16 bytes.
#include "device.h"

typedef u32 pair __attribute__((ext_vector_type(2)));
typedef u32 quad __attribute__((ext_vector_type(4)));

KERNEL vectors(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    const quad a = ((const quad *)in)[i];
    const pair b = ((const pair *)in)[i];
    ((quad *)out)[i] = a * 3u + quad{b.x, b.y, a.w, b.x ^ a.z};
}
