// Kernels with a planted mistake, each with a twin that does the same without it. The line of the instruction that has to be
// reported ends in a comment, FAULT and the kernel's name. `data` has n words, `out` 256; both begin as list.h says.
#include "../programs/device.h"

#define LOCAL __attribute__((address_space(3)))
#define FIXED __attribute__((address_space(4)))

#define PAIR(NAME)                                                                                                     \
    KERNEL NAME(u32 *data, u32 *out, u32 n) { NAME##_body<true>(data, out, n); }                                       \
    KERNEL NAME##_twin(u32 *data, u32 *out, u32 n) { NAME##_body<false>(data, out, n); }

#define MAYBE [[maybe_unused]]
#define BODY(NAME)                                                                                                     \
    template <bool WRONG> DEVICE static inline void NAME##_body(MAYBE u32 *data, MAYBE u32 *out, MAYBE u32 n)

// The last lane reads one word too far.
BODY(read_beyond)
{
    const u32 i = block_x() * size_x() + thread_x();
    if (i < n) out[i] = data[WRONG ? i + 1 : i]; // FAULT read_beyond
}
PAIR(read_beyond)

// A bound that is not checked: the grid has more items than the buffer words.
BODY(write_beyond)
{
    const u32 i = block_x() * size_x() + thread_x();
    const u32 value = i < n ? data[i] : 0;
    if (WRONG || i < n) data[i] = value + 1; // FAULT write_beyond
    if (i < 256) out[i] = value;
}
PAIR(write_beyond)

// An offset that is negative in one lane, and far away as an unsigned number of 64 bits.
BODY(read_before)
{
    const u32 t = thread_x();
    const i64 at = (i64)t - (WRONG ? 3 : 0);
    out[t] = data[at]; // FAULT read_before
}
PAIR(read_before)

// An address computed in 32 bits: the upper half is lost.
BODY(narrow_address)
{
    const u32 t = thread_x();
    const u64 address = (u64)data + (t + 1) * 4 - 4;
    const u32 *narrow = (const u32 *)(WRONG ? address & 0xffffffff : address);
    out[t] = *narrow; // FAULT narrow_address
}
PAIR(narrow_address)

// A null pointer that was not checked.
BODY(null_pointer)
{
    const u32 t = thread_x();
    const u32 *from = WRONG && n != 0 ? nullptr : data;
    asm volatile("" : "+v"(from));
    out[t] = from[t]; // FAULT null_pointer
}
PAIR(null_pointer)

// The caller's buffer was freed; the twin does not touch it.
BODY(after_free)
{
    const u32 t = thread_x();
    out[t] = WRONG ? data[t] : t; // FAULT after_free
}
PAIR(after_free)

// Memory that nobody wrote; the twin writes it first.
BODY(unwritten)
{
    const u32 t = thread_x();
    if (!WRONG || t != 5) data[t] = t;
    out[t] = data[t]; // FAULT unwritten
}
PAIR(unwritten)

// A place in LDS that no lane wrote.
BODY(unwritten_lds)
{
    SHARED u32 tile[65];
    const u32 t = thread_x();
    tile[t] = data[t];
    if (t == 0) tile[64] = 1;
    barrier();
    SHARED u32 other[65];
    other[t] = tile[t];
    if (!WRONG && t == 0) other[64] = 2;
    barrier();
    out[t] = other[t + 1] + tile[t + 1]; // FAULT unwritten_lds
}
PAIR(unwritten_lds)

// Two work-groups write one word.
BODY(groups_write)
{
    const u32 at = WRONG ? 0 : block_x();
    if (thread_x() == 0) out[at] = data[block_x()]; // FAULT groups_write
}
PAIR(groups_write)

// A work-group reads what another one writes.
BODY(groups_read)
{
    const u32 t = thread_x(), i = block_x() * 64 + t;
    out[i] = i; // FAULT groups_read
    const u32 next = WRONG ? (i + 64) % 128 : i;
    data[i] = ((volatile u32 *)out)[next];
}
PAIR(groups_read)

// One work-group adds in one step, another one without.
BODY(half_atomic)
{
    if (thread_x() != 0) return;
    if (!WRONG || block_x() == 0)
        atomic_add(out, 1u);
    else
        *(volatile u32 *)out = data[0]; // FAULT half_atomic
}
PAIR(half_atomic)

// A wave reads from LDS what another wave writes, without a barrier between.
BODY(no_barrier)
{
    SHARED u32 tile[64];
    const u32 t = thread_x();
    ((volatile u32 *)tile)[t] = 0;
    barrier();
    ((volatile u32 *)tile)[t] = data[t]; // FAULT no_barrier
    if (!WRONG) barrier();
    out[t] = ((volatile u32 *)tile)[63 - t];
}
PAIR(no_barrier)

// The barrier at the end of a loop's body is missing: the next round writes what slower waves still read.
BODY(no_second_barrier)
{
    SHARED u32 tile[64];
    const u32 t = thread_x();
    u32 sum = 0;
    for (u32 round = 0; round < 3; round++) {
        ((volatile u32 *)tile)[t] = data[t] + round;
        barrier();
        sum += ((volatile u32 *)tile)[63 - t]; // FAULT no_second_barrier
        if (!WRONG) barrier();
    }
    out[t] = sum;
}
PAIR(no_second_barrier)

// The same through device memory.
BODY(no_barrier_global)
{
    const u32 t = thread_x();
    ((volatile u32 *)data)[t] = t; // FAULT no_barrier_global
    if (!WRONG) barrier();
    out[t] = ((volatile u32 *)data)[63 - t];
}
PAIR(no_barrier_global)

// All lanes of a wave write one word with one instruction.
BODY(lanes_write)
{
    const u32 t = thread_x();
    out[WRONG ? 3 : t] = t; // FAULT lanes_write
    data[t] = t;
}
PAIR(lanes_write)

// An atomic operation on LDS at an address that is no multiple of its size. Plain accesses may be unaligned.
BODY(misaligned_lds)
{
    SHARED u32 tile[33];
    const u32 t = thread_x();
    tile[t] = data[t];
    if (t == 0) tile[32] = 1;
    barrier();
    LOCAL u32 *at = (LOCAL u32 *)((LOCAL u8 *)(LOCAL u32 *)tile + 4 * t + (WRONG ? 2 : 0));
    asm volatile("" : "+v"(at));
    __hip_atomic_fetch_add(at, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); // FAULT misaligned_lds
    barrier();
    out[t] = tile[t];
}
PAIR(misaligned_lds)

// A scalar load, which would ignore the lower two bits of its address.
BODY(misaligned_scalar)
{
    // One expression: without optimisation a variable would lie in scratch, and be no scalar any more.
#define UNIFORM(WORD) (u64)(u32)__builtin_amdgcn_readfirstlane((int)(u32)(WORD))
#define ADDRESS (u64)data + (WRONG ? 2 : 4)
    const u32 value = *(const FIXED u32 *)(UNIFORM(ADDRESS) | UNIFORM((ADDRESS) >> 32) << 32); // FAULT misaligned_scalar
    out[thread_x()] = value;
}
PAIR(misaligned_scalar)

// An atomic operation at an address that is no multiple of its size.
BODY(misaligned_atomic)
{
    u32 *at = (u32 *)((u8 *)data + (WRONG ? 2 : 4));
    asm volatile("" : "+v"(at));
    if (thread_x() != 0) return;
    __hip_atomic_fetch_add(at, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); // FAULT misaligned_atomic
}
PAIR(misaligned_atomic)

CONSTANT const u32 fixed[4] = {1, 2, 3, 4};

// A write to constant memory.
BODY(read_only)
{
    u32 *at = WRONG ? (u32 *)fixed : out;
    asm volatile("" : "+v"(at));
    if (thread_x() == 0) at[fixed[n % 4]] = 9; // FAULT read_only
}
PAIR(read_only)

// An index beyond a lane's own array, and beyond all of its scratch.
BODY(scratch_beyond)
{
    u32 own[8];
    for (u32 k = 0; k < 8; k++) own[k] = k;
    const u32 t = thread_x();
    u32 at = t % 8 + (WRONG && t == 9 ? 100000 : 0);
    asm volatile("" : "+v"(at));
    ((volatile u32 *)own)[at] = data[t]; // FAULT scratch_beyond
    out[t] = own[t % 8];
}
PAIR(scratch_beyond)

// A loop whose end never comes; the twin's does.
BODY(endless)
{
    u32 value = n;
    while (value != 1) {
        if (!WRONG) value = 1;
        asm volatile("" : "+v"(value));
    }
    out[thread_x()] = value;
}
PAIR(endless)

// The program gives up.
BODY(gives_up)
{
    if (WRONG && thread_x() == 0 && n > 0) __builtin_trap(); // FAULT gives_up
    out[thread_x()] = data[thread_x()];
}
PAIR(gives_up)
