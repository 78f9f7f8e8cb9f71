// The fused Mamba2 single-token step for NVIDIA GPUs from sm_70 on, compiled at run time (NVRTC) for the GPU that is there.
//
// One warp works on TILES tiles of rows of one head of one batch row. A row of the state is spread over a power of two of
// lanes, each with CHUNKS pieces of 16 bytes, so that one load instruction of a warp covers 512 contiguous bytes: one row of
// d_state 128 in f32, or several shorter rows, which follow each other in memory. Every state byte is read once and written once.
//
// The step is bound by memory, and everything here serves that: all loads of a warp are requested before the first is waited
// for, there is no shared memory and no barrier, and the state, which nobody reads again before the next token, is marked as
// passing through the caches. From sm_90 on, a launch may begin while the one before it on the stream is still running
// (programmatic dependent launch): it asks for its state to be brought into the L2 cache and then waits, so that neither the
// launch nor the first access to memory is paid for. docs/cuda-kernel.md has the measurements that decided.
//
// Launch: blocks of WARP * WARPS threads in x; grid x covers head_dim in steps of WARPS * TILES * (WARP / lanes of a row) rows,
// y the heads, z the batch.
//
// The key, given as macros; src/ports/cuda/key.rs is the same in Rust. All of them are constants of a model, and known ones make a
// launch of few rows measurably shorter.
//   KEY_X, KEY_BC, KEY_STATE   element types of x, z and y; of B and C; of the state: f32, f16 or bf16
//   KEY_DT, KEY_A_LOG, KEY_D, KEY_DT_BIAS   element types of dt and of the vectors with an element per head
//   KEY_HAS_Z, KEY_HAS_D, KEY_HAS_DT_BIAS, KEY_HAS_SLOTS_IN, KEY_HAS_SLOTS_OUT   1 where the tensor is there, 0 where not
//   KEY_PREPARED_DT            1 where dt is dt' already
//   KEY_WRITE_STATE            1 where the new state is written
//   KEY_ROW_LANES_LOG2         log2 of the lanes that share a row of the state: 1 to 5
//   KEY_CHUNKS                 pieces of 16 bytes that a lane holds of a row: 1, 2 or 4
//   KEY_WHOLE_ROWS             1 where those cover d_state exactly, 0 where some lanes or pieces have no columns
//   KEY_ALIGNED                1 where state, B and C can be moved in vectors, 0 where their addresses allow elements only

#include "../gpu/abi.h"

#define DEVICE __device__ __forceinline__
// Before every loop over a register array, which stays in registers only where each index is a constant.
#define UNROLL _Pragma("unroll")

typedef float f32;
// The bits of a number of 16 bits.
enum class f16 : uint16_t {};
enum class bf16 : uint16_t {};

DEVICE f32 as_f32(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint32_t as_bits(f32 value) { return __float_as_uint(value); }
DEVICE f32 fused(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }

// Error of at most 1 ulp; subnormal numbers become zero (PTX ISA, rcp.approx.ftz.f32).
DEVICE f32 reciprocal_estimate(f32 x)
{
    f32 r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

#include "../gpu/arithmetic.h"

// --- element types ---------------------------------------------------------------------------------------------------

DEVICE f32 widen(f32 value) { return value; }
DEVICE f32 widen(f16 value)
{
    f32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"((uint16_t)value));
    return wide;
}
DEVICE f32 widen(bf16 value) { return as_f32((uint32_t)value << 16); }

// To nearest, ties to even; NaN stays NaN.
DEVICE uint16_t narrow_bits(f32 value, f16)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEVICE uint16_t narrow_bits(f32 value, bf16)
{
#if __CUDA_ARCH__ >= 900
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    const uint32_t bits = as_bits(value);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)((value != value ? bits | 0x400000u : rounded) >> 16);
#endif
}
DEVICE void store(f32 *at, f32 value) { *at = value; }
template <typename E> DEVICE void store(E *at, f32 value) { *at = (E)narrow_bits(value, E()); }

// Two numbers of 16 bits in a word, the first one in its lower half.
DEVICE uint32_t narrow_pair(f32 first, f32 second, f16)
{
#if __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    return narrow_bits(first, f16()) | (uint32_t)narrow_bits(second, f16()) << 16;
#endif
}
DEVICE uint32_t narrow_pair(f32 first, f32 second, bf16)
{
#if __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
#else
    return narrow_bits(first, bf16()) | (uint32_t)narrow_bits(second, bf16()) << 16;
#endif
}

// --- memory ----------------------------------------------------------------------------------------------------------

// N neighbouring elements, as the words that they are moved as: an array of smaller elements would not stay in registers.
template <typename E, int N> struct run {
    static constexpr int WORDS = N * sizeof(E) / 4;
    uint32_t word[WORDS];

    DEVICE void clear()
    {
        UNROLL
        for (int i = 0; i < WORDS; i++) word[i] = 0;
    }

    DEVICE f32 element(int i) const
    {
        if (sizeof(E) == 4) return as_f32(word[i]);
        return widen((E)(uint16_t)(word[i / 2] >> i % 2 * 16));
    }

    // Elements i and i + 1; i is even.
    DEVICE void set_pair(int i, f32 first, f32 second)
    {
        if constexpr (sizeof(E) == 4)
            word[i] = as_bits(first), word[i + 1] = as_bits(second);
        else
            word[i / 2] = narrow_pair(first, second, E());
    }

    // From an address that is aligned for an element only.
    DEVICE void load_elements(const E *at)
    {
        UNROLL
        for (int i = 0; i < WORDS; i++)
            if constexpr (sizeof(E) == 4)
                word[i] = ((const uint32_t *)at)[i];
            else
                word[i] = ((const uint16_t *)at)[2 * i] | (uint32_t)((const uint16_t *)at)[2 * i + 1] << 16;
    }
    DEVICE void store_elements(E *at) const
    {
        UNROLL
        for (int i = 0; i < WORDS; i++)
            if constexpr (sizeof(E) == 4)
                ((uint32_t *)at)[i] = word[i];
            else
                ((uint16_t *)at)[2 * i] = (uint16_t)word[i], ((uint16_t *)at)[2 * i + 1] = (uint16_t)(word[i] >> 16);
    }
};

// The state passes through the caches (.cs: evicted first): it is needed again one token later, after everything else.
template <bool ALIGNED, typename E, int N> DEVICE void load_state(run<E, N> &into, const E *at)
{
    if (ALIGNED)
        asm volatile("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(into.word[0]), "=r"(into.word[1]), "=r"(into.word[2]), "=r"(into.word[3])
                     : "l"(at));
    else
        into.load_elements(at);
}

template <bool ALIGNED, typename E, int N> DEVICE void store_state(E *at, const run<E, N> &from)
{
    if (ALIGNED)
        asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};"
                     :
                     : "l"(at), "r"(from.word[0]), "r"(from.word[1]), "r"(from.word[2]), "r"(from.word[3])
                     : "memory");
    else
        from.store_elements(at);
}

// B and C stay in the caches: every warp of a group reads the same.
template <bool ALIGNED, typename E, int N> DEVICE void load_columns(run<E, N> &into, const E *at)
{
    constexpr int WORDS = run<E, N>::WORDS;
    if constexpr (!ALIGNED) {
        into.load_elements(at);
    } else if constexpr (WORDS % 4 == 0) {
        UNROLL
        for (int i = 0; i < WORDS; i += 4) {
            const uint4 v = ((const uint4 *)at)[i / 4];
            into.word[i] = v.x, into.word[i + 1] = v.y, into.word[i + 2] = v.z, into.word[i + 3] = v.w;
        }
    } else {
        static_assert(WORDS == 2, "4 columns of 16 bits");
        const uint2 v = *(const uint2 *)at;
        into.word[0] = v.x, into.word[1] = v.y;
    }
}

// --- the launch before this one --------------------------------------------------------------------------------------

// The next launch on the stream may begin to take places that blocks of this one leave. It waits by itself.
DEVICE void let_next_launch_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Until everything that earlier launches have written can be read. Nothing is read or written before.
DEVICE void wait_for_earlier_launches()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Asks for rows of the state to be brought into the L2 cache, before it is certain which ones they are: a slot index that an
// earlier launch has yet to write only makes this useless. The L2 cache is where all accesses of a GPU meet, so that what it
// holds is never out of date, and nothing is taken into registers here.
template <typename U>
DEVICE void prefetch(const ssm_update_params &p, uint32_t b, uint32_t h, uint32_t first_row, uint32_t rows)
{
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x != 0) return;
    int64_t slot = b;
    if (KEY_HAS_SLOTS_IN) {
        int32_t index;
        // Past the L1 cache, which would keep it.
        asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(index) : "l"(p.slots_in + b));
        slot = index;
    }
    if ((uint64_t)slot >= (uint64_t)p.slots) return;
    const uint64_t row = ((uint64_t)slot * p.heads + h) * p.head_dim + first_row;
    const uint32_t bytes = min(rows, p.head_dim - first_row) * p.d_state * (uint32_t)sizeof(U);
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                 :
                 : "l"((const U *)p.state_in + row * p.d_state), "r"(bytes));
#endif
}

// --- the step --------------------------------------------------------------------------------------------------------

enum { WARP = 32, WARPS = 2 /* of one block */ };

// Pieces of the state that a lane has in flight, in rows of TILES different tiles.
enum { TILES = 4 / KEY_CHUNKS };

// The longest rows take more registers than the compiler would give them, and it would rather spill: it has to be told that few blocks
// of a multiprocessor are enough.
#if KEY_CHUNKS == 4
#define BOUNDS __launch_bounds__(WARP *WARPS, 8)
#else
#define BOUNDS __launch_bounds__(WARP *WARPS)
#endif

extern "C" __global__ void BOUNDS ssm_update(const __grid_constant__ ssm_update_params p)
{
    typedef KEY_X X;
    typedef KEY_BC BC;
    typedef KEY_STATE U;
    constexpr bool WHOLE_ROWS = KEY_WHOLE_ROWS, ALIGNED = KEY_ALIGNED;
    constexpr int CHUNKS = KEY_CHUNKS, COLUMNS = 16 / sizeof(U) /* of a piece */;
    constexpr int ROW_LANES = 1 << KEY_ROW_LANES_LOG2, ROWS = WARP / ROW_LANES /* of a tile */;

    let_next_launch_begin();

    const uint32_t lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, h = blockIdx.y;
    const uint32_t b = p.first_batch + blockIdx.z;
    const uint32_t row_lane = lane % ROW_LANES, first_column = row_lane * COLUMNS;
    // Rows of this lane: first_row, first_row + ROWS, ...
    const uint32_t block_row = blockIdx.x * WARPS * TILES * ROWS, first_row = block_row + warp * TILES * ROWS + lane / ROW_LANES;
    if (ALIGNED && p.flags & SSM_PREFETCH_STATE) prefetch<U>(p, b, h, block_row, WARPS * TILES * ROWS);

    // Addresses, as far as they do not depend on a slot index: before it is this launch's turn, this costs no time.
    const uint64_t head_row = (uint64_t)h * p.head_dim + first_row, group = h * p.group_multiplier >> 32;
    const uint64_t slot_elements = (uint64_t)p.heads * p.head_dim * p.d_state;
    const uint64_t in_slot = head_row * p.d_state + first_column, in_group = group * p.d_state + first_column;
    const uint32_t tile_elements = ROWS * p.d_state;
    X *const y = (X *)p.y + b * p.y_stride + head_row;
    const X *const x_row = (const X *)p.x + b * p.x_stride + head_row;
    const X *const z_row = (const X *)p.z + b * p.z_stride + head_row;
    const BC *const b_row = (const BC *)p.b + b * p.b_stride + in_group;
    const BC *const c_row = (const BC *)p.c + b * p.c_stride + in_group;
    const KEY_DT *const dt_at = (const KEY_DT *)p.dt + b * p.dt_stride + h;
    bool has_row[TILES], has_columns[CHUNKS];
    UNROLL
    for (int t = 0; t < TILES; t++) has_row[t] = first_row + t * ROWS < p.head_dim;
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        has_columns[k] = WHOLE_ROWS || first_column + k * ROW_LANES * COLUMNS < p.d_state;

    wait_for_earlier_launches();

    const int64_t from = KEY_HAS_SLOTS_IN ? (int64_t)p.slots_in[b] : (int64_t)b;
    const int64_t to = !KEY_WRITE_STATE ? from : KEY_HAS_SLOTS_OUT ? (int64_t)p.slots_out[b] : (int64_t)b;
    // Negative or, against the contract, beyond the pool: as unsigned numbers both are too large, and one branch is enough.
    if ((uint64_t)from >= (uint64_t)p.slots || (uint64_t)to >= (uint64_t)p.slots) {
        if (from < 0 || to < 0) // padding; beyond the pool nothing is touched
            UNROLL
            for (int t = 0; t < TILES; t++)
                if (row_lane == 0 && has_row[t]) store(y + t * ROWS, 0.0f);
        return;
    }
    const U *const state_in = (const U *)p.state_in + (from * slot_elements + in_slot);
    U *const state_out = (U *)p.state_out + (to * slot_elements + in_slot);

    // Loads, the state first, since it comes from memory and the rest from a cache.
    run<U, COLUMNS> state[TILES][CHUNKS];
    UNROLL
    for (int t = 0; t < TILES; t++)
        UNROLL
        for (int k = 0; k < CHUNKS; k++) {
            state[t][k].clear();
            if (has_row[t] && has_columns[k])
                load_state<ALIGNED>(state[t][k], state_in + t * tile_elements + k * ROW_LANES * COLUMNS);
        }

    run<BC, COLUMNS> b_columns[CHUNKS], c_columns[CHUNKS];
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        if (has_columns[k]) {
            load_columns<ALIGNED>(b_columns[k], b_row + k * ROW_LANES * COLUMNS);
            load_columns<ALIGNED>(c_columns[k], c_row + k * ROW_LANES * COLUMNS);
        }

    X x_loaded[TILES];
    UNROLL
    for (int t = 0; t < TILES; t++) x_loaded[t] = has_row[t] ? x_row[t * ROWS] : X();
    // One lane of a row finishes the row of one tile: lane t that of tile t.
    constexpr int TURNS = (TILES + ROW_LANES - 1) / ROW_LANES;
    X z_loaded[TURNS];
    bool finishes[TURNS];
    UNROLL
    for (int j = 0; j < TURNS; j++) {
        const uint32_t t = j * ROW_LANES + row_lane;
        finishes[j] = t < TILES && first_row + t * ROWS < p.head_dim;
        z_loaded[j] = KEY_HAS_Z && finishes[j] ? z_row[t * ROWS] : X();
    }

    const KEY_D d_loaded = KEY_HAS_D ? ((const KEY_D *)p.d)[h] : KEY_D();
    const KEY_A_LOG a_log_loaded = ((const KEY_A_LOG *)p.a_log)[h];
    const KEY_DT_BIAS bias_loaded = KEY_HAS_DT_BIAS ? ((const KEY_DT_BIAS *)p.dt_bias)[h] : KEY_DT_BIAS();
    // What begins with dt is the longest chain of arithmetic, and the compiler would let it begin before the loads above have been
    // requested. They do not cross this.
    __syncwarp();
    const KEY_DT dt_loaded = *dt_at;

    f32 dt = widen(dt_loaded);
    if (!KEY_PREPARED_DT) {
        if (KEY_HAS_DT_BIAS) dt += widen(bias_loaded);
        dt = clamp(softplus(dt), p.dt_min, p.dt_max);
    }
    const f32 decay = exponential(-exponential(widen(a_log_loaded)) * dt);
    // dt' = 0 leaves the state as it was, bit for bit, also where x or B is infinite.
    const bool frozen = dt == 0.0f;

    f32 sums[TILES], x[TILES];
    UNROLL
    for (int t = 0; t < TILES; t++) sums[t] = 0.0f, x[t] = widen(x_loaded[t]);
    UNROLL
    for (int k = 0; k < CHUNKS; k++)
        if (has_columns[k])
            UNROLL
            for (int t = 0; t < TILES; t++) {
                const f32 dtx = dt * x[t];
                run<U, COLUMNS> &piece = state[t][k];
                UNROLL
                for (int i = 0; i < COLUMNS; i += 2) {
                    f32 next[2];
                    UNROLL
                    for (int j = 0; j < 2; j++) {
                        const f32 before = piece.element(i + j);
                        const f32 advanced = fused(decay, before, dtx * b_columns[k].element(i + j));
                        next[j] = frozen ? before : advanced;
                        sums[t] = fused(next[j], c_columns[k].element(i + j), sums[t]);
                    }
                    if (!frozen) piece.set_pair(i, next[0], next[1]);
                }
                if (KEY_WRITE_STATE && has_row[t])
                    store_state<ALIGNED>(state_out + t * tile_elements + k * ROW_LANES * COLUMNS, piece);
            }

    UNROLL
    for (int mask = ROW_LANES / 2; mask > 0; mask /= 2)
        UNROLL
        for (int t = 0; t < TILES; t++) sums[t] += __shfl_xor_sync(0xffffffffu, sums[t], mask);

    const f32 d = widen(d_loaded);
    UNROLL
    for (int j = 0; j < TURNS; j++) {
        f32 sum = sums[j * ROW_LANES], x_of_row = x[j * ROW_LANES];
        UNROLL
        for (int t = 1; t < ROW_LANES && j * ROW_LANES + t < TILES; t++)
            if (row_lane == t) sum = sums[j * ROW_LANES + t], x_of_row = x[j * ROW_LANES + t];
        if (KEY_HAS_D) sum = fused(d, x_of_row, sum);
        if (KEY_HAS_Z) sum *= silu(widen(z_loaded[j]));
        if (finishes[j]) store(y + (j * ROW_LANES + row_lane) * ROWS, sum);
    }
}
