// The fused Mamba2 single-token step for AMD GPUs with waves of 32 lanes. Compiler builtins only: no HIP header and no
// device library, so that ROCm's hipcc and a plain clang build it alike.
//
// One wave works on TILES tiles of rows of one head of one batch row. A row of the state is spread over 2 to 32 lanes, a power
// of two (`row_lanes_log2`), each with CHUNKS pieces of 16 bytes, so that one load instruction of a wave covers 512 contiguous
// bytes: one row of d_state 128 in f32, or several shorter rows, which follow each other in memory. Every state byte is read
// once and written once.
//
// Made for a memory-bound chip with few waves: all loads of a wave's state (TILES * CHUNKS of 16 bytes per lane) are issued
// before the first one is waited for; there is no LDS and no barrier, so that waves never wait for each other. At batch 1,
// 48 heads of 64 rows make 768 waves of 2 KiB each.
//
// Launch: work-groups of WAVE * WAVES threads in x; grid x covers head_dim in steps of WAVES * TILES * (32 >> row_lanes_log2)
// rows, y the heads, z the batch. CHUNKS times the lanes of a row times the columns of a piece cover d_state.

#include "abi.h"
#include "wave32.h"

#if defined(__HIP_DEVICE_COMPILE__)

#define DEVICE static inline __attribute__((device, always_inline))
#define GLOBAL __attribute__((address_space(1)))

typedef float f32;
typedef _Float16 f16;
// The bits of a bfloat16. An enumeration, since a class cannot be read through an address space.
enum class bf16 : uint16_t {};

// A value that is the same in all lanes, in a scalar register.
DEVICE f32 uniform(f32 value)
{
    return __builtin_bit_cast(f32, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(int, value)));
}

// --- element types ---------------------------------------------------------------------------------------------------

DEVICE f32 as_f32(uint32_t bits) { return __builtin_bit_cast(f32, bits); }
DEVICE uint32_t as_bits(f32 value) { return __builtin_bit_cast(uint32_t, value); }

DEVICE f32 widen(f32 value) { return value; }
DEVICE f32 widen(f16 value) { return (f32)value; }
DEVICE f32 widen(bf16 value) { return as_f32((uint32_t)value << 16); }

// To nearest, ties to even; NaN stays NaN and becomes quiet.
template <typename T> DEVICE T narrow(f32 value)
{
    if constexpr (__is_same(T, bf16)) {
        const uint32_t bits = as_bits(value);
        const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
        return (bf16)((value != value ? bits | 0x400000u : rounded) >> 16);
    } else {
        return (T)value;
    }
}

// A per-head value whose element type is a tag, in two parts: the load, which nothing waits for, and the widening.
DEVICE uint32_t load_tagged(const void *at, uint8_t dtype, uint64_t index)
{
    if (dtype == SSM_F32) return ((const GLOBAL uint32_t *)at)[index];
    return ((const GLOBAL uint16_t *)at)[index];
}

DEVICE f32 widen_tagged(uint32_t bits, uint8_t dtype)
{
    const f32 half = widen(__builtin_bit_cast(f16, (uint16_t)bits));
    return dtype == SSM_F32 ? as_f32(bits) : dtype == SSM_F16 ? half : as_f32(bits << 16);
}

// --- arithmetic ------------------------------------------------------------------------------------------------------

// e^x from the hardware's 2^x, which is good to 1 ulp of its argument's rounding: the part of x / ln 2 that does not fit the
// argument is put back as a factor 1 + rest * ln 2. Over- and underflow as they should be; NaN stays.
DEVICE f32 exp_accurate(f32 x)
{
    const f32 log2e = 1.44269502f, log2e_rest = 1.92596303e-8f, ln2 = 0.693147182f;
    const f32 scaled = x * log2e;
    const f32 rest = __builtin_fmaf(x, log2e_rest, __builtin_fmaf(x, log2e, -scaled));
    const f32 power = __builtin_amdgcn_exp2f(scaled);
    // Where the power is 0 or infinite, the rest may be NaN (infinite x).
    return power > 0.0f && power < __builtin_inff() ? __builtin_fmaf(power, rest * ln2, power) : power;
}

// 1 / x with one Newton step on the hardware's approximation, for finite x of normal size.
DEVICE f32 reciprocal(f32 x)
{
    const f32 r = __builtin_amdgcn_rcpf(x);
    return __builtin_fmaf(__builtin_fmaf(-x, r, 1.0f), r, r);
}

// ln(1 + e) for e in [0, 1] as 2 atanh(s), s = e / (2 + e) <= 1/3, by its series: the first term left out is below 4e-9
// relative. Better than the hardware's logarithm, whose error near 1 is absolute.
DEVICE f32 log1p_unit(f32 e)
{
    const f32 s = e * reciprocal(2.0f + e), q = s * s;
    f32 p = 1.0f / 15.0f;
    p = __builtin_fmaf(p, q, 1.0f / 13.0f);
    p = __builtin_fmaf(p, q, 1.0f / 11.0f);
    p = __builtin_fmaf(p, q, 1.0f / 9.0f);
    p = __builtin_fmaf(p, q, 1.0f / 7.0f);
    p = __builtin_fmaf(p, q, 1.0f / 5.0f);
    p = __builtin_fmaf(p, q, 1.0f / 3.0f);
    return 2.0f * __builtin_fmaf(s * q, p, s);
}

// ln(1 + e^x): no overflow for large x, no loss for very negative ones. NaN stays.
DEVICE f32 softplus(f32 x)
{
    const f32 magnitude = x < 0.0f ? -x : x;
    return (x > 0.0f ? x : 0.0f) + log1p_unit(exp_accurate(-magnitude));
}

// Comparisons instead of min and max, which would turn NaN into a limit.
DEVICE f32 clamp(f32 x, f32 low, f32 high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

// z * sigmoid(z)
DEVICE f32 silu(f32 z)
{
    const f32 e = exp_accurate(-z);
    // An infinite denominator has the reciprocal 0, to which no Newton step applies.
    return z * (e < 1e37f ? reciprocal(1.0f + e) : e == e ? 0.0f : e);
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

// N neighbouring elements. Words of it are moved as one vector, which the hardware does for any element-aligned address.
template <typename E, int N> struct run {
    E element[N];
};

template <typename E, int N> DEVICE run<E, N> load_run(const GLOBAL E *at)
{
    typedef uint32_t words __attribute__((ext_vector_type(N * sizeof(E) / 4)));
    typedef words anywhere __attribute__((aligned(sizeof(E))));
    return __builtin_bit_cast(run<E, N>, (words)*(const GLOBAL anywhere *)at);
}

// The element `bytes` bytes behind an address that is the same for all lanes. In bytes of 32 bits, since that is what the
// hardware adds to a scalar base: an index would have to be widened first, in two vector registers.
// The empty assembly keeps the base in scalar registers: the optimiser would otherwise step one vector address from tile to tile.
template <typename E> DEVICE GLOBAL E *behind(GLOBAL E *at, uint32_t bytes)
{
    asm("" : "+s"(at));
    asm("" : "+v"(bytes));
    return (GLOBAL E *)((const GLOBAL char *)at + bytes);
}

// 16 bytes of state, at an address that is a multiple of 16.
template <typename U> using piece = run<U, 16 / sizeof(U)>;
typedef uint32_t quad __attribute__((ext_vector_type(4)));

template <typename U> DEVICE piece<U> load_piece(const GLOBAL U *at)
{
    return __builtin_bit_cast(piece<U>, *(const GLOBAL quad *)at);
}

template <typename U> DEVICE void store_piece(GLOBAL U *at, piece<U> value)
{
    *(GLOBAL quad *)at = __builtin_bit_cast(quad, value);
}

// B and C of N columns; zero beyond the last one.
template <typename BC, int N>
DEVICE void load_columns(run<BC, N> &b, run<BC, N> &c, const GLOBAL BC *b_row, const GLOBAL BC *c_row, uint32_t column,
                         uint32_t d_state)
{
    b = c = run<BC, N>{};
    if (column < d_state) {
        b = load_run<BC, N>(behind(b_row, column * (uint32_t)sizeof(BC)));
        c = load_run<BC, N>(behind(c_row, column * (uint32_t)sizeof(BC)));
    }
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
    // Where the registers are full, z is loaded when it is needed, and waited for.
    constexpr bool LATE_Z = sizeof(U) == 2 && CHUNKS > 1;

    const uint32_t thread = __builtin_amdgcn_workitem_id_x();
    const uint32_t lane = thread % WAVE;
    const uint32_t wave = __builtin_amdgcn_readfirstlane(thread / WAVE);
    const uint32_t h = __builtin_amdgcn_workgroup_id_y();
    const uint64_t b = (uint64_t)p.first_batch + __builtin_amdgcn_workgroup_id_z();
    const bool update = p.flags & SSM_UPDATE_STATE;

    // Rows of this wave: TILES tiles of rows_per_tile rows, tile after tile, from first_row on. What is the same for all lanes
    // stays in scalar registers: a lane only has its offset within a tile, the same for each of them.
    const uint32_t rows_per_tile = WAVE >> p.row_lanes_log2;
    const uint32_t row_in_tile = lane >> p.row_lanes_log2;
    const uint32_t first_column = (lane & ((1u << p.row_lanes_log2) - 1)) * COLUMNS;
    const uint32_t columns_per_chunk = COLUMNS << p.row_lanes_log2;
    const uint32_t first_row = (__builtin_amdgcn_workgroup_id_x() * WAVES + wave) * TILES * rows_per_tile;
    if (first_row >= p.head_dim) return;
    const uint32_t rows = p.head_dim - first_row;
    const bool writer = first_column == 0;

    const uint64_t head_row = (uint64_t)h * p.head_dim + first_row;
    GLOBAL T *const y = (GLOBAL T *)p.y + b * p.y_stride + head_row;
    const int64_t from = p.slots_in ? (int64_t)((const GLOBAL int32_t *)p.slots_in)[b] : (int64_t)b;
    const int64_t to = !update ? from : p.slots_out ? (int64_t)((const GLOBAL int32_t *)p.slots_out)[b] : (int64_t)b;
    if (from < 0 || to < 0) { // padding
        for (int t = 0; t < TILES; t++) {
            const uint32_t r = t * rows_per_tile + row_in_tile;
            if (writer && r < rows) y[r] = narrow<T>(0.0f);
        }
        return;
    }
    if (from >= p.slots || to >= p.slots) return; // the contract forbids it; nothing is touched

    const uint64_t slot_rows = (uint64_t)p.heads * p.head_dim;
    const GLOBAL U *const state_in = (const GLOBAL U *)p.state_in + (from * slot_rows + head_row) * p.d_state;
    GLOBAL U *const state_out = (GLOBAL U *)p.state_out + (to * slot_rows + head_row) * p.d_state;
    const uint32_t tile_elements = rows_per_tile * p.d_state;
    const uint32_t offset = (row_in_tile * p.d_state + first_column) * sizeof(U); // in bytes, within a tile

    // All of the state first: everything below that does not need it runs while it is under way.
    piece<U> state[TILES][CHUNKS];
    for (int t = 0; t < TILES; t++)
        for (int k = 0; k < CHUNKS; k++) {
            state[t][k] = piece<U>{};
            if (t * rows_per_tile + row_in_tile < rows && first_column + k * columns_per_chunk < p.d_state)
                state[t][k] = load_piece<U>(behind(state_in + t * tile_elements + k * columns_per_chunk, offset));
        }

    const uint64_t group = h / p.heads_per_group;
    const GLOBAL BC *const b_row = (const GLOBAL BC *)p.b + b * p.b_stride + group * p.d_state;
    const GLOBAL BC *const c_row = (const GLOBAL BC *)p.c + b * p.c_stride + group * p.d_state;
    // B and C of one chunk at a time, since all of them would not fit beside the state: they are shared by the head's rows
    // and come from a cache.
    run<BC, COLUMNS> b_columns, c_columns;
    load_columns(b_columns, c_columns, b_row, c_row, first_column, p.d_state);
    const GLOBAL T *const x_row = (const GLOBAL T *)p.x + b * p.x_stride + head_row;
    const GLOBAL T *const z_row = (const GLOBAL T *)p.z + b * p.z_stride + head_row;
    f32 x[TILES], z[TILES];
    for (int t = 0; t < TILES; t++) {
        const uint32_t r = t * rows_per_tile + row_in_tile;
        x[t] = z[t] = 0.0f;
        if (r < rows) {
            x[t] = widen(*behind(x_row + t * rows_per_tile, row_in_tile * (uint32_t)sizeof(T)));
            if (p.z && !LATE_Z) z[t] = widen(*behind(z_row + t * rows_per_tile, row_in_tile * (uint32_t)sizeof(T)));
        }
    }

    const uint32_t dt_bits = load_tagged(p.dt, p.dt_dtype, b * p.dt_stride + h);
    const uint32_t a_log_bits = load_tagged(p.a_log, p.a_log_dtype, h);
    const uint32_t bias_bits = p.dt_bias ? load_tagged(p.dt_bias, p.dt_bias_dtype, h) : 0;
    const uint32_t d_bits = p.d ? load_tagged(p.d, p.d_dtype, h) : 0;

    f32 dt = widen_tagged(dt_bits, p.dt_dtype);
    if (!(p.flags & SSM_PREPARED_DT)) {
        if (p.dt_bias) dt += widen_tagged(bias_bits, p.dt_bias_dtype);
        dt = clamp(softplus(dt), p.dt_min, p.dt_max);
    }
    // The same in all lanes: in scalar registers from here on.
    const f32 decay = uniform(exp_accurate(-exp_accurate(widen_tagged(a_log_bits, p.a_log_dtype)) * dt));
    const f32 d = uniform(widen_tagged(d_bits, p.d_dtype));
    dt = uniform(dt);
    // dt' = 0 leaves the state as it was, bit for bit, also where x or B is infinite.
    const bool frozen = dt == 0.0f;

    f32 sums[TILES] = {};
    for (int k = 0; k < CHUNKS; k++) {
        if (k > 0) load_columns(b_columns, c_columns, b_row, c_row, first_column + k * columns_per_chunk, p.d_state);
        for (int t = 0; t < TILES; t++) {
            const f32 dtx = dt * x[t];
            piece<U> next = state[t][k];
            for (int i = 0; i < COLUMNS; i++) {
                const f32 old = widen(state[t][k].element[i]);
                const f32 advanced = __builtin_fmaf(decay, old, dtx * widen(b_columns.element[i]));
                const f32 now = frozen ? old : advanced;
                sums[t] = __builtin_fmaf(now, widen(c_columns.element[i]), sums[t]);
                next.element[i] = frozen ? next.element[i] : narrow<U>(now);
            }
            if (update && t * rows_per_tile + row_in_tile < rows && first_column + k * columns_per_chunk < p.d_state)
                store_piece<U>(behind(state_out + t * tile_elements + k * columns_per_chunk, offset), next);
        }
    }

    sum_lanes(sums, p.row_lanes_log2);
    for (int t = 0; t < TILES; t++) {
        const uint32_t r = t * rows_per_tile + row_in_tile;
        f32 out = p.d ? __builtin_fmaf(d, x[t], sums[t]) : sums[t];
        if (p.z) {
            if (LATE_Z && r < rows) z[t] = widen(*behind(z_row + t * rows_per_tile, row_in_tile * (uint32_t)sizeof(T)));
            out *= silu(z[t]);
        }
        if (writer && r < rows) *behind(y + t * rows_per_tile, row_in_tile * (uint32_t)sizeof(T)) = narrow<T>(out);
    }
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
