// A table of addresses, which the loader has to fill in.
#include "device.h"

CONSTANT const u32 first_row[4] = {1, 20, 300, 4000};
CONSTANT const u32 second_row[4] = {5, 60, 700, 8000};
CONSTANT const u32 third_row[3] = {9, 99, 999};
CONSTANT const u32 *const volatile rows[3] = {third_row, first_row + 1, second_row};

KERNEL pointers(const u32 *in, u32 *out, u32)
{
    const u32 i = block_x() * 32 + thread_x();
    out[i] = rows[in[i] % 3][in[i] / 3 % 3];
}
