// The fused Mamba2 single-token step for AMD GPUs with waves of 32 lanes. Compiler builtins only: no HIP header and no
// device library, so that ROCm's hipcc and a plain clang build it alike.
//
// One wave works on TILES tiles of rows of one head of one batch row. A row of the state is spread over 2 to 32 lanes, a power
// of two (`row_lanes_log2`), each with CHUNKS pieces of 16 bytes, so that one load instruction of a wave covers 512 contiguous
// bytes: one row of d_state 128 in f32, or several shorter rows, which follow each other in memory. Every state byte is read
// once and written once.
//
// Made for a memory-bound chip with few waves: everything that a wave reads (TILES * CHUNKS of 16 bytes of state per lane, and
// the small inputs) is requested before the first of it is waited for; there is no LDS and no barrier, so that waves never wait
// for each other. At batch 1, 48 heads of 64 rows make 768 waves of 2 KiB each. docs/hip-kernel.md has the counts.
//
// Launch: work-groups of WAVE * WAVES threads in x; grid x covers head_dim in steps of WAVES * TILES * (32 >> row_lanes_log2)
// rows, y the heads, z the batch. CHUNKS times the lanes of a row times the columns of a piece cover d_state.

#include "../gpu/abi.h"
#include "wave32.h"

#if defined(__HIP_DEVICE_COMPILE__)

// Products and sums are fused where the code says so and nowhere else: every compiler gives the same bits.
#pragma clang fp contract(off)

#define DEVICE static inline __attribute__((device, always_inline))
#include "elements.h"

DEVICE f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }

// v_rcp_f32: up to 1 ulp off, and 0 for a result below the normal numbers (AMD, "RDNA3.5 Instruction Set Architecture"; LLVM's
// AMDGPUCodeGenPrepare.cpp and AMDGPUISelLowering.cpp reckon with the same).
DEVICE f32 reciprocal_estimate(f32 x) { return __builtin_amdgcn_rcpf(x); }

#include "../gpu/arithmetic.h"

#define GLOBAL __attribute__((address_space(1)))

// A value that is the same in all lanes, in a scalar register.
DEVICE f32 uniform(f32 value)
{
    return __builtin_bit_cast(f32, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, value)));
}

// --- lanes -----------------------------------------------------------------------------------------------------------

template <int MASK> DEVICE f32 from_lane_xor(f32 value)
{
    static_assert(MASK == 1 || MASK == 2 || MASK == 4 || MASK == 8 || MASK == 16, "a power of two within 32 lanes");
    const int bits = (int)as_bits(value);
    if constexpr (MASK == 16) // the same lane of the other half
        return as_f32((uint32_t)__builtin_amdgcn_permlanex16(bits, bits, 0x76543210, 0xfedcba98, false, false));
    else // DPP row_xmask, within each half of 16 lanes
        return as_f32((uint32_t)__builtin_amdgcn_update_dpp(bits, bits, 0x160 | MASK, 0xf, 0xf, false));
}

// Sums over aligned groups of 2^lanes_log2 lanes; each lane of a group gets the sum.
template <int N> DEVICE void sum_lanes(f32 (&values)[N], uint32_t lanes_log2)
{
#define FOLD(MASK, LOG2)                                                                                                \
    if (lanes_log2 > LOG2)                                                                                              \
        for (int i = 0; i < N; i++) values[i] += from_lane_xor<MASK>(values[i]);
    FOLD(1, 0)
    FOLD(2, 1)
    FOLD(4, 2)
    FOLD(8, 3)
    FOLD(16, 4)
#undef FOLD
}

// --- memory ----------------------------------------------------------------------------------------------------------

// N neighbouring elements, and the words that they are moved as: one vector, which the hardware takes at any address that is
// aligned for an element.
template <typename E, int N> struct run {
    E element[N];
};

template <typename E, int N> using words = uint32_t __attribute__((ext_vector_type(N * sizeof(E) / 4)));

template <typename E, int N> DEVICE words<E, N> load_words(const GLOBAL E *at)
{
    typedef words<E, N> anywhere __attribute__((aligned(sizeof(E))));
    return *(const GLOBAL anywhere *)at;
}

template <typename E, int N> DEVICE void store_words(GLOBAL E *at, words<E, N> value)
{
    typedef words<E, N> anywhere __attribute__((aligned(sizeof(E))));
    *(GLOBAL anywhere *)at = value;
}

// The element `bytes` bytes behind an address that is the same for all lanes. In bytes of 32 bits, since that is what the
// hardware adds to a scalar base: an index would have to be widened first, in two vector registers.
// The empty assembly keeps the base in scalar registers: the optimiser would otherwise step one vector address from tile to
// tile.
template <typename E> DEVICE GLOBAL E *behind(GLOBAL E *at, uint32_t bytes)
{
    asm("" : "+s"(at));
    asm("" : "+v"(bytes));
    return (GLOBAL E *)((const GLOBAL char *)at + bytes);
}

// A vector with an element per head, whose type is a tag.
struct head_vector {
    const void *at;
    uint8_t dtype;
};

// The bits of one element of it, whatever its type: loaded as two halves, which are the same one where there is only one. So
// the tag decides on an address and not on a branch, at whose end the load would be waited for. No other byte is read.
DEVICE uint32_t load_bits(head_vector from, uint64_t index)
{
    // 1 for f32, else 0. Not as a comparison, whose result would make the addresses go through vector registers.
    static_assert(SSM_F32 == 0, "the only tag from which subtracting 1 borrows");
    const uint32_t wide = (from.dtype - 1u) >> 31;
    const GLOBAL uint16_t *const at = (const GLOBAL uint16_t *)from.at + (index << wide);
    typedef uint16_t halves __attribute__((ext_vector_type(2)));
    return __builtin_bit_cast(uint32_t, halves{at[0], at[wide]});
}

DEVICE f32 widen_bits(uint32_t bits, uint8_t dtype)
{
    const f32 from_f16 = widen(__builtin_bit_cast(f16, (uint16_t)bits)), from_bf16 = as_f32(bits << 16);
    return dtype == SSM_F32 ? as_f32(bits) : dtype == SSM_F16 ? from_f16 : from_bf16;
}

// --- the step --------------------------------------------------------------------------------------------------------

enum { WAVE = 32, WAVES = 4 /* of one work-group */ };

// Tiles of rows that one wave has in flight: as many as 64 VGPRs hold. A piece of 16-bit state widens to twice the registers.
template <typename U> DEVICE constexpr int tiles(int chunks)
{
    const int most = sizeof(U) == 4 ? 4 : 2;
    return most > chunks ? most / chunks : 1;
}

// T: x, z, y. BC: B and C. U: state. CHUNKS: pieces of 16 bytes per lane and row.
template <typename T, typename BC, typename U, int CHUNKS> DEVICE void step(const ssm_update_params &p)
{
    constexpr int COLUMNS = 16 / sizeof(U);
    constexpr int TILES = tiles<U>(CHUNKS);

    // The first argument that is used needs a field of each 64 bytes of them: their cache lines, which no earlier launch has
    // left in a cache, come together instead of one after the other.
    uint32_t head_dim = p.head_dim;
    asm("" : "+s"(head_dim) : "s"(p.x), "s"(p.state_in), "s"(p.flags));

    const uint32_t thread = __builtin_amdgcn_workitem_id_x();
    const uint32_t lane = thread % WAVE;
    const uint32_t wave = __builtin_amdgcn_readfirstlane(thread / WAVE);
    const uint32_t h = __builtin_amdgcn_workgroup_id_y();
    const uint64_t b = (uint64_t)p.first_batch + __builtin_amdgcn_workgroup_id_z();
    const bool update = p.flags & SSM_WRITE_STATE;

    // Rows of this wave: TILES tiles of rows_per_tile rows, tile after tile, from first_row on. What is the same for all lanes
    // stays in scalar registers: a lane only has its offset within a tile, the same for each of them.
    const uint32_t rows_per_tile = WAVE >> p.row_lanes_log2;
    const uint32_t row_in_tile = lane >> p.row_lanes_log2;
    const uint32_t first_column = (lane & ((1u << p.row_lanes_log2) - 1)) * COLUMNS;
    const uint32_t columns_per_chunk = COLUMNS << p.row_lanes_log2;
    const uint32_t first_row = (__builtin_amdgcn_workgroup_id_x() * WAVES + wave) * TILES * rows_per_tile;
    if (first_row >= head_dim) return;
    const bool writer = first_column == 0;
    uint32_t row[TILES]; // from first_row on
    bool has_row[TILES];
    for (int t = 0; t < TILES; t++) {
        row[t] = t * rows_per_tile + row_in_tile;
        has_row[t] = row[t] < head_dim - first_row;
    }

    const uint64_t head_row = (uint64_t)h * head_dim + first_row;
    GLOBAL T *const y = (GLOBAL T *)p.y + b * p.y_stride + head_row;
    const int64_t from = p.slots_in ? (int64_t)((const GLOBAL int32_t *)p.slots_in)[b] : (int64_t)b;
    const int64_t to = !update ? from : p.slots_out ? (int64_t)((const GLOBAL int32_t *)p.slots_out)[b] : (int64_t)b;
    // Negative or, against the contract, beyond the pool: as unsigned numbers both are too large, and one branch is enough.
    if (((uint64_t)from >= (uint64_t)p.slots) | ((uint64_t)to >= (uint64_t)p.slots)) {
        if (from < 0 || to < 0) // padding; beyond the pool nothing is touched
            for (int t = 0; t < TILES; t++)
                if (writer && has_row[t]) *behind(y, row[t] * sizeof(T)) = narrow<T>(0.0f);
        return;
    }

    const uint64_t slot_rows = (uint64_t)p.heads * head_dim;
    const GLOBAL U *const state_in = (const GLOBAL U *)p.state_in + (from * slot_rows + head_row) * p.d_state;
    GLOBAL U *const state_out = (GLOBAL U *)p.state_out + (to * slot_rows + head_row) * p.d_state;
    const uint32_t tile_elements = rows_per_tile * p.d_state;
    const uint32_t offset = (row_in_tile * p.d_state + first_column) * sizeof(U); // in bytes, within a tile

    // Loads, all of them before the first wait; the state first, since it comes from memory and the rest from a cache. Each
    // state byte is read once: lanes without a row or without columns are switched off, which takes a branch. A branch around
    // one of the other loads would end in a wait for it: there, such lanes read the wave's first row or the first columns, and
    // what is absent is read from another tensor. Neither is used.
    words<U, COLUMNS> state[TILES][CHUNKS];
    bool has_columns[CHUNKS];
    for (int k = 0; k < CHUNKS; k++) has_columns[k] = first_column + k * columns_per_chunk < p.d_state;
    for (int t = 0; t < TILES; t++)
        for (int k = 0; k < CHUNKS; k++) {
            state[t][k] = 0;
            if (has_row[t] && has_columns[k])
                state[t][k] =
                    load_words<U, COLUMNS>(behind(state_in + t * tile_elements + k * columns_per_chunk, offset));
        }

    const GLOBAL T *const x_row = (const GLOBAL T *)p.x + b * p.x_stride + head_row;
    const GLOBAL T *const z_row = (const GLOBAL T *)(p.z ? p.z : p.x) + b * (p.z ? p.z_stride : p.x_stride) + head_row;
    T x_loaded[TILES], z_loaded[TILES];
    for (int t = 0; t < TILES; t++) {
        const uint32_t at = has_row[t] ? row[t] * sizeof(T) : 0;
        x_loaded[t] = *behind(x_row, at);
        z_loaded[t] = *behind(z_row, at);
    }

    const uint64_t group = h * p.group_multiplier >> 32;
    const GLOBAL BC *const b_row = (const GLOBAL BC *)p.b + b * p.b_stride + group * p.d_state;
    const GLOBAL BC *const c_row = (const GLOBAL BC *)p.c + b * p.c_stride + group * p.d_state;
    words<BC, COLUMNS> b_loaded[CHUNKS], c_loaded[CHUNKS];
    for (int k = 0; k < CHUNKS; k++) {
        const uint32_t at = has_columns[k] ? (first_column + k * columns_per_chunk) * sizeof(BC) : 0;
        b_loaded[k] = load_words<BC, COLUMNS>(behind(b_row, at));
        c_loaded[k] = load_words<BC, COLUMNS>(behind(c_row, at));
    }

    const head_vector dt_from = {p.dt, p.dt_dtype}, a_log_from = {p.a_log, p.a_log_dtype};
    const head_vector bias_from = p.dt_bias ? head_vector{p.dt_bias, p.dt_bias_dtype} : a_log_from;
    const head_vector d_from = p.d ? head_vector{p.d, p.d_dtype} : a_log_from;
    uint32_t dt_bits = load_bits(dt_from, b * p.dt_stride + h);
    uint32_t a_log_bits = load_bits(a_log_from, h);
    uint32_t bias_bits = load_bits(bias_from, h);
    uint32_t d_bits = load_bits(d_from, h);
    // What is done with these values needs no memory and could be moved in between the loads, with a wait for each. Now it
    // depends on this line, which no load crosses.
    asm volatile("" : "+v"(dt_bits), "+v"(a_log_bits), "+v"(bias_bits), "+v"(d_bits));

    f32 dt = widen_bits(dt_bits, p.dt_dtype);
    if (!(p.flags & SSM_PREPARED_DT)) {
        if (p.dt_bias) dt += widen_bits(bias_bits, p.dt_bias_dtype);
        dt = clamp(softplus(dt), p.dt_min, p.dt_max);
    }
    // The same in all lanes: in scalar registers from here on.
    const f32 decay = uniform(exponential(-exponential(widen_bits(a_log_bits, p.a_log_dtype)) * dt));
    const f32 d = uniform(widen_bits(d_bits, d_from.dtype));
    dt = uniform(dt);
    // dt' = 0 leaves the state as it was, bit for bit, also where x or B is infinite.
    const bool frozen = dt == 0.0f;

    f32 x[TILES], sums[TILES] = {};
    for (int t = 0; t < TILES; t++) x[t] = widen(x_loaded[t]);
    for (int k = 0; k < CHUNKS; k++) {
        const run<BC, COLUMNS> b_columns = __builtin_bit_cast(run<BC, COLUMNS>, b_loaded[k]);
        const run<BC, COLUMNS> c_columns = __builtin_bit_cast(run<BC, COLUMNS>, c_loaded[k]);
        for (int t = 0; t < TILES; t++) {
            const run<U, COLUMNS> old = __builtin_bit_cast(run<U, COLUMNS>, state[t][k]);
            run<U, COLUMNS> next;
            const f32 dtx = dt * x[t];
            f32 sum = sums[t];
            for (int i = 0; i < COLUMNS; i++) {
                const f32 before = widen(old.element[i]);
                const f32 advanced = fused(decay, before, dtx * widen(b_columns.element[i]));
                const f32 now = frozen ? before : advanced;
                sum = fused(now, widen(c_columns.element[i]), sum);
                next.element[i] = narrow<U>(now);
            }
            sums[t] = has_columns[k] ? sum : sums[t];
            const words<U, COLUMNS> next_words = __builtin_bit_cast(words<U, COLUMNS>, next);
            if (update && has_row[t] && has_columns[k])
                store_words<U, COLUMNS>(behind(state_out + t * tile_elements + k * columns_per_chunk, offset),
                                        frozen ? state[t][k] : next_words);
        }
    }

    sum_lanes(sums, p.row_lanes_log2);
    if (p.d)
        for (int t = 0; t < TILES; t++) sums[t] = fused(d, x[t], sums[t]);
    if (p.z)
        for (int t = 0; t < TILES; t++) sums[t] *= silu(widen(z_loaded[t]));
    for (int t = 0; t < TILES; t++)
        if (writer && has_row[t]) *behind(y, row[t] * sizeof(T)) = narrow<T>(sums[t]);
}

// --- variants --------------------------------------------------------------------------------------------------------

// ssm_update_<T>_<BC>_<U>_k<CHUNKS>: the name is the key.
#define KERNEL(T, BC, U, CHUNKS)                                                                                        \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(WAVE * WAVES, WAVE * WAVES))) void                    \
    ssm_update_##T##_##BC##_##U##_k##CHUNKS(ssm_update_params p)                                                        \
    {                                                                                                                   \
        if (wave32_ballot(true) == 0) return; /* never: the wave that asks is active */                                 \
        step<T, BC, U, CHUNKS>(p);                                                                                      \
    }

// f32: 4 columns a piece, 128 in 32 lanes. 16-bit: 8 columns a piece, 256 in 32 lanes.
#define BY_STATE(T, BC)                                                                                                 \
    KERNEL(T, BC, f32, 1)                                                                                               \
    KERNEL(T, BC, f32, 2)                                                                                               \
    KERNEL(T, BC, f32, 4)                                                                                               \
    KERNEL(T, BC, f16, 1)                                                                                               \
    KERNEL(T, BC, f16, 2)                                                                                               \
    KERNEL(T, BC, bf16, 1)                                                                                              \
    KERNEL(T, BC, bf16, 2)

BY_STATE(f32, f32)
BY_STATE(f16, f16)
BY_STATE(f16, f32)
BY_STATE(bf16, bf16)
BY_STATE(bf16, f32)

#endif
