// Kernels for what a launch is made of: shapes, dynamic LDS, huge buffers, traffic.
#include "../programs/device.h"

#define FIXED __attribute__((address_space(4)))

// The size of a work-group, as the device library of HIP works it out: the hidden arguments count whole groups, and tell how
// large those are and how large the one behind them is.
DEVICE static inline u32 group_size(u32 axis, u32 group)
{
    typedef const u8 FIXED *bytes;
    typedef const u16 FIXED *halves;
    typedef const u32 FIXED *words;
    const bytes hidden = (bytes)__builtin_amdgcn_implicitarg_ptr();
    const bool whole = group < ((words)hidden)[axis];
    return ((halves)(hidden + (whole ? 12 : 18)))[axis];
}

// What each item finds of its place: its id, and the size of its work-group, which is smaller at the end of a grid.
KERNEL places(u32 *out, u32 width)
{
    const u32 x = block_x() * 16 + thread_x(), y = block_y() * 4 + thread_y();
    const u32 size = group_size(0, block_x()) << 16 | group_size(1, block_y()) << 24;
    out[y * width + x] = thread_x() | thread_y() << 8 | size;
}

// Words of a work-group in reverse, through LDS whose size the launch tells.
KERNEL reverse(u32 *data, u32 n)
{
    extern SHARED u32 tile[];
    const u32 t = thread_x();
    tile[t] = data[t];
    barrier();
    data[t] = tile[n - 1 - t];
}

// One word of each slot of a large pool, whose offset does not fit 32 bits.
KERNEL slots(u32 *pool, const u32 *index, u64 stride)
{
    u32 *word = pool + index[thread_x()] * stride;
    *word += thread_x();
}

// Neighbouring lanes read neighbouring words, or words that are `stride` apart.
KERNEL strided(const u32 *from, u32 *to, u32 stride) { to[thread_x()] = from[thread_x() * stride]; }

// Adds to one word, once for each item.
KERNEL count(u32 *total) { atomic_add(total, 1u); }

// The hardware's approximation.
KERNEL reciprocal(const f32 *from, f32 *to) { to[thread_x()] = __builtin_amdgcn_rcpf(from[thread_x()]); }

// For at most 64 items.
extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 64))) void small(u32 *out) { out[thread_x()] = 1; }
