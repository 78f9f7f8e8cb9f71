// A matrix of 64 by 64, in tiles of 16 by 16 through LDS.
#include "device.h"

KERNEL transpose(const u32 *in, u32 *out, u32 n)
{
    SHARED u32 tile[16][17];
    const u32 x = block_x() * 16 + thread_x(), y = block_y() * 16 + thread_y();
    tile[thread_y()][thread_x()] = in[y * n + x];
    barrier();
    out[(block_x() * 16 + thread_y()) * n + block_y() * 16 + thread_x()] = tile[thread_x()][thread_y()];
}
