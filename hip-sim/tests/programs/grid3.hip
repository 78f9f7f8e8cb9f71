// Ids and sizes in three dimensions.
#include "device.h"

KERNEL grid3(const u32 *in, u32 *out, u32)
{
    const u32 x = block_x() * size_x() + thread_x(), y = block_y() * size_y() + thread_y();
    const u32 z = block_z() * size_z() + thread_z(), i = (z * items_y() + y) * items_x() + x;
    out[i] = in[i] + x + (y << 8) + (z << 16) + thread_z() * 7 + block_y() * 11 + size_x() * 13 + items_z() * 17;
}
