// The fused Mamba2 single-token step for GPUs whose SIMD-groups have 32 threads. Metal Shading Language 2.4; 3.1 where x or the
// state is bfloat16, for its type `bfloat`. Compiled at run time, once for each key:
//
//     SSM_X, SSM_BC, SSM_STATE   f32, f16 or bf16: elements of x, z, y; of B and C; of the state
//     SSM_CHUNKS                 1, 2 or 4: pieces of a row of the state that one lane has
//
// One SIMD-group works on TILES tiles of rows of one head of one batch row. A row of the state is spread over 4 to 32 lanes, a
// power of two (`row_lanes_log2`), each with SSM_CHUNKS pieces of 4 columns: one load of a SIMD-group covers 512 contiguous bytes
// of an f32 state, one row of d_state 128 or several shorter rows, which follow each other in memory. Every state byte is read
// once and written once. No threadgroup memory and no barrier.
//
// A piece is 4 columns whatever the dtype, not 16 bytes: the widest load of the language that asks for no more alignment than an
// element has (the packed vectors) has four elements. So an address that no vector load would take needs no path of its own.
//
// Elements are moved as words, not as floats: a state that stays as it was keeps its bits also where they are subnormal or a NaN.
//
// Dispatch: threadgroups of WAVE * WAVES threads in x; grid x covers head_dim in steps of WAVES * TILES * (32 >> row_lanes_log2)
// rows, y the heads, z the batch. SSM_CHUNKS times the lanes of a row times 4 columns cover d_state.

#include <metal_stdlib>

#if !defined(SSM_X) || !defined(SSM_BC) || !defined(SSM_STATE) || !defined(SSM_CHUNKS)
#error "a key is needed: SSM_X, SSM_BC, SSM_STATE and SSM_CHUNKS"
#endif

// Sums and products are fused where the code says so; elsewhere it makes no difference to what is promised, but bits that do not
// depend on the compiler's choice are easier to compare.
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#else
#pragma clang fp contract(off)
#endif

using namespace metal;

#include "abi.h"

// Apart from Metal's own names, of which `clamp` is one.
namespace ssm {

#define DEVICE static inline

typedef float f32;
typedef half f16;
#if __METAL_VERSION__ >= 310
typedef bfloat bf16;
#endif

DEVICE f32 as_f32(uint32_t bits) { return as_type<f32>(bits); }
DEVICE uint32_t as_bits(f32 value) { return as_type<uint32_t>(value); }
DEVICE f32 fused(f32 a, f32 b, f32 c) { return fma(a, b, c); }
// Rounded correctly where fast math is off.
DEVICE f32 reciprocal_estimate(f32 x) { return 1.0f / x; }

#include "../gpu/arithmetic.h"

// --- elements --------------------------------------------------------------------------------------------------------

// The words that elements are moved as, one or four at a time, and their conversions. `packed` has the alignment of one word.
template <typename E> struct element;

template <> struct element<f32> {
    typedef uint word;
    typedef uint4 words;
    typedef packed_uint4 packed;
    static f32 widen(word bits) { return as_type<f32>(bits); }
    static word narrow(f32 value) { return as_type<word>(value); }
};

template <> struct element<f16> {
    typedef ushort word;
    typedef ushort4 words;
    typedef packed_ushort4 packed;
    static f32 widen(word bits) { return f32(as_type<f16>(bits)); }
    static word narrow(f32 value) { return as_type<word>(f16(value)); }
};

#if __METAL_VERSION__ >= 310
template <> struct element<bf16> {
    typedef ushort word;
    typedef ushort4 words;
    typedef packed_ushort4 packed;
    static f32 widen(word bits) { return f32(as_type<bf16>(bits)); }
    // To nearest, ties to even, whatever the device's own conversion does; NaN stays NaN and becomes quiet.
    static word narrow(f32 value)
    {
        const uint32_t bits = as_bits(value);
        const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
        return word(((bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : rounded) >> 16);
    }
};
#endif

template <typename E> DEVICE float4 widen(typename element<E>::words bits)
{
    typedef element<E> e;
    return float4(e::widen(bits.x), e::widen(bits.y), e::widen(bits.z), e::widen(bits.w));
}

template <typename E> DEVICE typename element<E>::words narrow(float4 value)
{
    typedef element<E> e;
    return typename e::words(e::narrow(value.x), e::narrow(value.y), e::narrow(value.z), e::narrow(value.w));
}

template <typename E> DEVICE typename element<E>::words load(device const typename element<E>::word *at)
{
    return typename element<E>::words(*(device const typename element<E>::packed *)at);
}

template <typename E> DEVICE void store(device typename element<E>::word *at, typename element<E>::words value)
{
    *(device typename element<E>::packed *)at = typename element<E>::packed(value);
}

// One element of a vector whose type is a tag: all of them bound as halves of an f32. No other byte is read.
DEVICE f32 tagged(device const ushort *at, ulong index, uchar dtype)
{
    if (dtype == SSM_F32) return as_f32(uint32_t(at[2 * index]) | uint32_t(at[2 * index + 1]) << 16);
    return dtype == SSM_F16 ? f32(as_type<f16>(at[index])) : as_f32(uint32_t(at[index]) << 16);
}

// --- the step --------------------------------------------------------------------------------------------------------

typedef element<SSM_X> X;
typedef element<SSM_BC> BC;
typedef element<SSM_STATE> STATE;

enum {
    WAVE = 32,
    WAVES = 4, // of one threadgroup
    COLUMNS = 4, // of a piece
    CHUNKS = SSM_CHUNKS,
    TILES = 4 / CHUNKS, // in flight
};

} // namespace ssm

kernel void ssm_update(device const ssm::X::word *x [[buffer(SSM_AT_X)]],
                       device const ssm::X::word *z [[buffer(SSM_AT_Z)]],
                       device const ssm::BC::word *b [[buffer(SSM_AT_B)]],
                       device const ssm::BC::word *c [[buffer(SSM_AT_C)]],
                       device const ushort *dt [[buffer(SSM_AT_DT)]],
                       device const ushort *a_log [[buffer(SSM_AT_A_LOG)]],
                       device const ushort *d [[buffer(SSM_AT_D)]],
                       device const ushort *dt_bias [[buffer(SSM_AT_DT_BIAS)]],
                       device const ssm::STATE::word *state_in [[buffer(SSM_AT_STATE_IN)]],
                       device ssm::STATE::word *state_out [[buffer(SSM_AT_STATE_OUT)]],
                       device const int *slots_in [[buffer(SSM_AT_SLOTS_IN)]],
                       device const int *slots_out [[buffer(SSM_AT_SLOTS_OUT)]],
                       device ssm::X::word *y [[buffer(SSM_AT_Y)]],
                       constant ssm_update_constants &p [[buffer(SSM_AT_CONSTANTS)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint wave [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]])
{
    using namespace ssm;

    // Rows of this SIMD-group: TILES tiles of rows_per_tile rows, tile after tile, from first_row on.
    const uint rows_per_tile = uint(WAVE) >> p.row_lanes_log2;
    const uint row_in_tile = lane >> p.row_lanes_log2;
    const uint first_column = (lane & ((1u << p.row_lanes_log2) - 1u)) * COLUMNS;
    const uint columns_per_chunk = uint(COLUMNS) << p.row_lanes_log2;
    const uint first_row = (group.x * WAVES + wave) * TILES * rows_per_tile;
    // Here and below, lanes of one SIMD-group leave together or not at all.
    if (first_row >= p.head_dim) return;
    const bool writer = first_column == 0;
    uint row[TILES]; // from first_row on
    bool has_row[TILES];
    for (int t = 0; t < TILES; t++) {
        row[t] = t * rows_per_tile + row_in_tile;
        has_row[t] = row[t] < p.head_dim - first_row;
    }

    const uint head = group.y;
    const ulong batch = ulong(p.first_batch) + group.z;
    const ulong head_row = ulong(head) * p.head_dim + first_row;
    const bool update = (p.flags & SSM_WRITE_STATE) != 0;
    device X::word *const y_rows = y + (batch * p.y_stride + head_row);

    const long from = (p.flags & SSM_HAS_SLOTS_IN) != 0 ? long(slots_in[batch]) : long(batch);
    const long to = !update ? from : (p.flags & SSM_HAS_SLOTS_OUT) != 0 ? long(slots_out[batch]) : long(batch);
    // Negative or, against the contract, beyond the pool: as unsigned numbers both are too large.
    if (ulong(from) >= ulong(p.slots) || ulong(to) >= ulong(p.slots)) {
        if (from < 0 || to < 0) // padding; beyond the pool nothing is touched
            for (int t = 0; t < TILES; t++)
                if (writer && has_row[t]) y_rows[row[t]] = X::narrow(0.0f);
        return;
    }

    const ulong slot_rows = ulong(p.heads) * p.head_dim;
    device const STATE::word *const state_from = state_in + (ulong(from) * slot_rows + head_row) * p.d_state;
    device STATE::word *const state_to = state_out + (ulong(to) * slot_rows + head_row) * p.d_state;

    // The state first: it comes from memory, the rest from a cache.
    STATE::words state[TILES][CHUNKS];
    uint column[CHUNKS];
    bool has_columns[CHUNKS];
    for (int k = 0; k < CHUNKS; k++) {
        column[k] = first_column + k * columns_per_chunk;
        has_columns[k] = column[k] < p.d_state;
    }
    for (int t = 0; t < TILES; t++)
        for (int k = 0; k < CHUNKS; k++) {
            state[t][k] = STATE::words(0);
            if (has_row[t] && has_columns[k])
                state[t][k] = load<SSM_STATE>(state_from + (ulong(row[t]) * p.d_state + column[k]));
        }

    const device X::word *const x_rows = x + (batch * p.x_stride + head_row);
    const device X::word *const z_rows = z + (batch * p.z_stride + head_row);
    const bool has_z = (p.flags & SSM_HAS_Z) != 0;
    f32 x_value[TILES], z_value[TILES];
    for (int t = 0; t < TILES; t++) {
        x_value[t] = has_row[t] ? X::widen(x_rows[row[t]]) : 0.0f;
        z_value[t] = has_row[t] && has_z ? X::widen(z_rows[row[t]]) : 0.0f;
    }

    f32 dt_prime = tagged(dt, batch * p.dt_stride + head, p.dt_dtype);
    if ((p.flags & SSM_PREPARED_DT) == 0) {
        if ((p.flags & SSM_HAS_DT_BIAS) != 0) dt_prime += tagged(dt_bias, head, p.dt_bias_dtype);
        dt_prime = ssm::clamp(softplus(dt_prime), p.dt_min, p.dt_max);
    }
    const f32 decay = exponential(-exponential(tagged(a_log, head, p.a_log_dtype)) * dt_prime);
    // dt' = 0 leaves the state as it was, bit for bit, also where x or B is infinite.
    const bool frozen = dt_prime == 0.0f;

    const ulong group_column = ulong(head / p.heads_per_group) * p.d_state;
    device const BC::word *const b_row = b + (batch * p.b_stride + group_column);
    device const BC::word *const c_row = c + (batch * p.c_stride + group_column);
    float4 partial[TILES];
    for (int t = 0; t < TILES; t++) partial[t] = float4(0.0f);
    for (int k = 0; k < CHUNKS; k++) {
        if (!has_columns[k]) continue;
        const float4 b_columns = widen<SSM_BC>(load<SSM_BC>(b_row + column[k]));
        const float4 c_columns = widen<SSM_BC>(load<SSM_BC>(c_row + column[k]));
        for (int t = 0; t < TILES; t++) {
            const float4 before = widen<SSM_STATE>(state[t][k]);
            const float4 input = (dt_prime * x_value[t]) * b_columns;
            const float4 now = frozen ? before : fma(float4(decay), before, input);
            partial[t] = fma(now, c_columns, partial[t]);
            if (update && has_row[t])
                store<SSM_STATE>(state_to + (ulong(row[t]) * p.d_state + column[k]),
                                 frozen ? state[t][k] : narrow<SSM_STATE>(now));
        }
    }

    // Over the lanes of a row, in a fixed order; each of them gets the sum.
    f32 sum[TILES];
    for (int t = 0; t < TILES; t++) sum[t] = (partial[t].x + partial[t].y) + (partial[t].z + partial[t].w);
    for (uint log2 = 0; log2 < p.row_lanes_log2; log2++)
        for (int t = 0; t < TILES; t++) sum[t] += simd_shuffle_xor(sum[t], ushort(1u << log2));

    if ((p.flags & SSM_HAS_D) != 0) {
        const f32 skip = tagged(d, head, p.d_dtype);
        for (int t = 0; t < TILES; t++) sum[t] = fused(skip, x_value[t], sum[t]);
    }
    if (has_z)
        for (int t = 0; t < TILES; t++) sum[t] *= silu(z_value[t]);
    for (int t = 0; t < TILES; t++)
        if (writer && has_row[t]) y_rows[row[t]] = X::narrow(sum[t]);
}
