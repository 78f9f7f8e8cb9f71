// bfloat16 by hand: widening, and rounding to nearest with ties to even.
#include "device.h"

DEVICE static u16 to_bfloat(f32 value)
{
    const u32 word = bits<u32>(value);
    return (u16)(value != value ? (word | 0x400000) >> 16 : (word + 0x7fff + (word >> 16 & 1)) >> 16);
}
DEVICE static f32 from_bfloat(u32 word) { return bits<f32>(word << 16); }

KERNEL bfloat(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 64 + thread_x();
    const f32 a = from_bfloat(in[i] & 0x3fff), b = unit(in[i] * 7);
    const u16 *halves = (const u16 *)in;
    u16 *result = (u16 *)out;
    result[2 * i] = to_bfloat(a * b + 1.0f);
    result[2 * i + 1] = to_bfloat(b + from_bfloat(halves[i] & 0x3fff));
}
