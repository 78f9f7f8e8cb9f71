// Prefix sums within a wave, with shifts of rows and one value from the lower row.
#include "device.h"

KERNEL prefix_lanes(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    u32 sum = in[i];
    sum += row_up<1>(sum);
    sum += row_up<2>(sum);
    sum += row_up<4>(sum);
    sum += row_up<8>(sum);
    const u32 lower = lane_of<15>(sum);
    out[i] = lane() >= 16 ? sum + lower : sum;
}
