// What the programs are written in, on the device: compiler builtins behind the names that host.h has for the CPU.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
typedef _Float16 f16;

#if defined(__HIP__)

#define KERNEL extern "C" __attribute__((global)) void
#define DEVICE __attribute__((device))
#define NOINLINE __attribute__((device, noinline))
#define CONSTANT __attribute__((constant))
#define SHARED __attribute__((shared))

DEVICE static inline u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE static inline u32 thread_y() { return __builtin_amdgcn_workitem_id_y(); }
DEVICE static inline u32 thread_z() { return __builtin_amdgcn_workitem_id_z(); }
DEVICE static inline u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE static inline u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE static inline u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEVICE static inline u32 size_x() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE static inline u32 size_y() { return __builtin_amdgcn_workgroup_size_y(); }
DEVICE static inline u32 size_z() { return __builtin_amdgcn_workgroup_size_z(); }
// Work-items of the whole grid; from the dispatch packet.
DEVICE static inline u32 items_x() { return __builtin_amdgcn_grid_size_x(); }
DEVICE static inline u32 items_y() { return __builtin_amdgcn_grid_size_y(); }
DEVICE static inline u32 items_z() { return __builtin_amdgcn_grid_size_z(); }

DEVICE static inline void barrier()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE static inline u32 lane() { return __builtin_amdgcn_mbcnt_lo(~0u, 0); }
// The value of another lane of the wave; all lanes are active.
DEVICE static inline u32 shuffle(u32 value, u32 from) { return __builtin_amdgcn_ds_bpermute(from * 4, value); }
DEVICE static inline u32 ballot(bool condition) { return __builtin_amdgcn_ballot_w32(condition); }
DEVICE static inline u32 first(u32 value) { return __builtin_amdgcn_readfirstlane(value); }
template <int FROM> DEVICE static inline u32 lane_of(u32 value) { return __builtin_amdgcn_readlane(value, FROM); }
template <int MASK> DEVICE static inline u32 row_xor(u32 value)
{
    return __builtin_amdgcn_update_dpp(value, value, 0x160 | MASK, 0xf, 0xf, false);
}
// The lane N below, within rows of 16; 0 where there is none.
template <int N> DEVICE static inline u32 row_up(u32 value)
{
    return __builtin_amdgcn_update_dpp(0, value, 0x110 | N, 0xf, 0xf, true);
}
DEVICE static inline u32 row_mirror(u32 value) { return __builtin_amdgcn_update_dpp(0, value, 0x140, 0xf, 0xf, true); }
DEVICE static inline u32 quad_reverse(u32 value) { return __builtin_amdgcn_update_dpp(0, value, 0x1b, 0xf, 0xf, true); }
DEVICE static inline u32 other_row(u32 value)
{
    return __builtin_amdgcn_permlanex16(value, value, 0x76543210, 0xfedcba98, false, false);
}
template <int MASK> DEVICE static inline u32 swizzle_xor(u32 value)
{
    return __builtin_amdgcn_ds_swizzle(value, MASK << 10 | 0x1f);
}

#define ATOMIC(NAME, OPERATION)                                                                                        \
    template <typename T> DEVICE static inline T NAME(T *at, T value)                                                  \
    {                                                                                                                  \
        return OPERATION(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                                       \
    }
ATOMIC(atomic_add, __hip_atomic_fetch_add)
ATOMIC(atomic_and, __hip_atomic_fetch_and)
ATOMIC(atomic_or, __hip_atomic_fetch_or)
ATOMIC(atomic_xor, __hip_atomic_fetch_xor)
ATOMIC(atomic_min, __hip_atomic_fetch_min)
ATOMIC(atomic_max, __hip_atomic_fetch_max)
ATOMIC(atomic_exchange, __hip_atomic_exchange)
#undef ATOMIC
template <typename T> DEVICE static inline bool atomic_replace(T *at, T *expected, T value)
{
    return __hip_atomic_compare_exchange_strong(at, expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                __HIP_MEMORY_SCOPE_AGENT);
}

#else
#include "host.h"
#endif

template <typename To, typename From> DEVICE static inline To bits(From value) { return __builtin_bit_cast(To, value); }
// A float from 24 bits of a number, in [-1, 1).
DEVICE static inline f32 unit(u32 value) { return (f32)((i32)(value >> 8) - (1 << 23)) / (f32)(1 << 23); }
