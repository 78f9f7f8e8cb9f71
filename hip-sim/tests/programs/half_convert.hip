// Conversions between half and single precision, and arithmetic in half precision.
#include "device.h"

KERNEL half_convert(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const f32 wide = unit(in[i]) * (in[i] % 5 == 0 ? 1e-6f : in[i] % 5 == 1 ? 9e4f : 8.0f);
    const f16 narrow = (f16)wide;
    const f16 other = bits<f16>((u16)(in[i] % 0x7c00));
    const f16 sum = narrow + other, product = narrow * other;
    const f32 back = (f32)narrow;
    out[3 * i] = bits<u16>(narrow) | (u32)bits<u16>(sum == sum ? sum : (f16)0) << 16;
    out[3 * i + 1] = bits<u32>(back);
    out[3 * i + 2] = bits<u16>(product == product ? product : (f16)0) | (u32)(narrow < other) << 16 | (u32)(narrow == other) << 17;
}
