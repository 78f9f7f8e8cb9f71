// Iterations of a point until it escapes: floats decide how long each lane runs.
#include "device.h"

KERNEL mandelbrot(const u32 *, u32 *out, u32 n)
{
    const u32 x = block_x() * 8 + thread_x(), y = block_y() * 8 + thread_y();
    const f32 a = (f32)x * 3.0f / (f32)n - 2.0f, b = (f32)y * 2.0f / (f32)n - 1.0f;
    f32 re = 0.0f, im = 0.0f;
    u32 count = 0;
    while (count < 100 && re * re + im * im <= 4.0f) {
        const f32 next = re * re - im * im + a;
        im = 2.0f * re * im + b;
        re = next;
        count++;
    }
    out[y * n + x] = count;
}
