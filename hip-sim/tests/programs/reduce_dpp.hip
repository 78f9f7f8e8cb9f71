// Sums over a wave by data-parallel primitives, in floating point: the order of additions shows.
#include "device.h"

KERNEL reduce_dpp(const u32 *in, u32 *out, u32 n)
{
    const u32 i = block_x() * 64 + thread_x();
    f32 sum = i < n ? unit(in[i]) : 0.0f;
    sum += bits<f32>(row_xor<1>(bits<u32>(sum)));
    sum += bits<f32>(row_xor<2>(bits<u32>(sum)));
    sum += bits<f32>(row_xor<4>(bits<u32>(sum)));
    sum += bits<f32>(row_xor<8>(bits<u32>(sum)));
    sum += bits<f32>(other_row(bits<u32>(sum)));
    out[i] = bits<u32>(sum);
}
