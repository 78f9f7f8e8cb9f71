// Products of matrices of 32 by 32, in tiles through LDS, summed in a fixed order.
#include "device.h"

KERNEL matmul(const u32 *in, u32 *out, u32 n)
{
    SHARED f32 left[8][8], right[8][8];
    const u32 x = thread_x(), y = thread_y(), column = block_x() * 8 + x, row = block_y() * 8 + y;
    f32 sum = 0.0f;
    for (u32 k = 0; k < n; k += 8) {
        left[y][x] = unit(in[row * n + k + x]);
        right[y][x] = unit(in[(k + y) * n + column]);
        barrier();
        for (u32 j = 0; j < 8; j++) sum = __builtin_fmaf(left[y][j], right[j][x], sum);
        barrier();
    }
    out[row * n + column] = bits<u32>(sum);
}
