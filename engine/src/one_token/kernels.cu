// A decoded token's products with weights and what stands between them, each piece as one launch.
//
// Compiled by NVRTC for one type of activations: -DELEMENT_BF16 or -DELEMENT_F32. All arithmetic is f32. Every pointer was checked by the
// host to have the elements that its kernel touches; launch shapes are those of the Rust functions of the kernels' names.

typedef unsigned int uint;
typedef unsigned short ushort;

#ifdef ELEMENT_BF16
struct Element {
    ushort bits;
};
__device__ inline float widen(Element value) { return __uint_as_float((uint)value.bits << 16); }
// To the nearest, ties to even; NaN stays NaN.
__device__ inline Element rounded(float value) {
    const uint bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return {(ushort)(bits >> 16 | 0x40u)};
    return {(ushort)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
#else
typedef float Element;
__device__ inline float widen(Element value) { return value; }
__device__ inline Element rounded(float value) { return value; }
#endif

constexpr int WAVE = 32;
constexpr uint ALL = 0xffffffffu;
#define LOWEST __int_as_float(0xff800000) // -infinity, without a header
// Elements of a 16-byte load.
constexpr int PACK = 16 / sizeof(Element);

__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

__device__ inline float wave_sum(float value) {
    for (int other = WAVE / 2; other > 0; other /= 2) value += __shfl_xor_sync(ALL, value, other);
    return value;
}

// The sum over all threads of a block, in each of them. A block is a whole number of waves.
__device__ float block_sum(float value) {
    __shared__ float parts[WAVE];
    const int wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
    value = wave_sum(value);
    __syncthreads(); // the parts of the sum before this one have been read
    if (lane == 0) parts[wave] = value;
    __syncthreads();
    return wave_sum(lane < (int)blockDim.x / WAVE ? parts[lane] : 0.0f);
}

// From compute capability 9.0 on a launch begins while the one before it still runs: its blocks take free places, read weights, and wait
// here until all that earlier launches have written can be read. Each kernel waits before it reads or writes anything but weights.
__device__ inline void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A row of activations, or one in f32; the other pointer is null.
struct Input {
    const Element *values;
    const float *wide;
    // The sum over the elements from `i` on that one load of weights has.
    __device__ float part(const uint4 &packed, int i) const {
        const Element *const weights = (const Element *)&packed;
        float sum = 0.0f;
        if (wide) {
            float4 x[PACK / 4];
#pragma unroll
            for (int q = 0; q < PACK / 4; ++q) x[q] = ((const float4 *)(wide + i))[q];
#pragma unroll
            for (int e = 0; e < PACK; ++e) sum += widen(weights[e]) * ((const float *)x)[e];
        } else {
            const uint4 x = *(const uint4 *)(values + i);
#pragma unroll
            for (int e = 0; e < PACK; ++e) sum += widen(weights[e]) * widen(((const Element *)&x)[e]);
        }
        return sum;
    }
};

// Dot product of a matrix row with the input by one wave, in each lane. `size` is a multiple of PACK, and both are 16-byte aligned.
constexpr int STRIDE = WAVE * PACK;

__device__ inline float dot(const Element *row, Input input, int size) {
    float sum = 0.0f;
#pragma unroll 4
    for (int i = threadIdx.x % WAVE * PACK; i < size; i += STRIDE) sum += input.part(__ldg((const uint4 *)(row + i)), i);
    return wave_sum(sum);
}

// The same where the input may not be there yet: the row's first loads are under way meanwhile.
constexpr int AHEAD = 8;

__device__ inline float dot_once_there(const Element *row, Input input, int size) {
    const int first = threadIdx.x % WAVE * PACK;
    uint4 ahead[AHEAD];
#pragma unroll
    for (int a = 0; a < AHEAD; ++a) ahead[a] = __ldg((const uint4 *)(row + min(first + a * STRIDE, size - PACK)));
    wait_for_earlier();
    float sum = 0.0f;
#pragma unroll
    for (int a = 0; a < AHEAD; ++a)
        if (first + a * STRIDE < size) sum += input.part(ahead[a], first + a * STRIDE);
#pragma unroll 4
    for (int i = first + AHEAD * STRIDE; i < size; i += STRIDE) sum += input.part(__ldg((const uint4 *)(row + i)), i);
    return wave_sum(sum);
}

// What stands beside a product's matrix.
struct Beside {
    const float *scale;  // or null
    const Element *bias; // or null
    __device__ float of(float value, int i) const {
        if (scale) value *= scale[i];
        if (bias) value += widen(bias[i]);
        return value;
    }
};

// The output that a wave makes.
__device__ inline int own_row() { return blockIdx.x * (blockDim.x / WAVE) + threadIdx.x / WAVE; }

extern "C" __global__ void product(Element *out, const Element *x, const float *wide, const Element *matrix, const float *scale,
                                   const Element *bias, int size, int rows) {
    let_next_begin();
    const int row = own_row();
    if (row >= rows) return;
    const float value = Beside{scale, bias}.of(dot_once_there(matrix + (long long)row * size, {x, wide}, size), row);
    if (threadIdx.x % WAVE == 0) out[row] = rounded(value);
}

// A projection in f32, its channels from `first` on convolved with those before them, and SiLU. After the row come the inputs of the
// convolution for the next token. With `head_dim`, z and x stand side by side for each head in the matrix, and apart in the row.
extern "C" __global__ void convolved_product(float *out, const Element *x, const Element *matrix, const float *scale,
                                             const Element *bias, const float *window, const float *taps, const float *conv_bias,
                                             int size, int rows, int first, int channels, int d_conv, int head_dim) {
    let_next_begin();
    const int i = own_row();
    if (i >= rows) return;
    int row = i;
    if (head_dim) {
        const int half = rows / 2, channel = i % half;
        row = channel / head_dim * 2 * head_dim + channel % head_dim + (i < half ? 0 : head_dim);
    }
    const float value = Beside{scale, bias}.of(dot_once_there(matrix + (long long)row * size, {x, nullptr}, size), row);
    if (threadIdx.x % WAVE) return;
    const int c = i - first;
    if (c < 0 || c >= channels) {
        out[i] = value;
        return;
    }
    float *const kept = out + rows;
    float sum = value * taps[(d_conv - 1) * channels + c];
    for (int tap = 0; tap < d_conv - 1; ++tap) {
        const float before = window[tap * channels + c];
        sum += before * taps[tap * channels + c];
        if (tap > 0) kept[(tap - 1) * channels + c] = before;
    }
    if (d_conv > 1) kept[(d_conv - 2) * channels + c] = value;
    if (conv_bias) sum += conv_bias[c];
    out[i] = silu(sum);
}

__device__ inline float squared_relu(float x) {
    const float positive = fmaxf(x, 0.0f);
    return positive * positive;
}

// The first product of a feed-forward layer and its activation, silu(gate) * up of [gate, up] or a squared ReLU: [1, width], or with a choice of experts [experts, width], one of them for
// each y of the grid. The matrix has `width` rows, twice as many where it is gated.
extern "C" __global__ void activated_product(Element *out, const Element *x, const Element *matrix, const float *scale,
                                             const Element *bias, const float *choice, int size, int width, int gated) {
    let_next_begin();
    const int row = own_row();
    if (row >= width) return;
    if (choice) wait_for_earlier();
    const long long wide = gated ? 2 * width : width, expert = choice ? __float_as_int(choice[blockIdx.y]) : 0;
    const Element *const own = matrix + (expert * wide + row) * size;
    const Beside beside{scale, bias};
    const float low = beside.of(dot_once_there(own, {x, nullptr}, size), row);
    const float high = gated ? beside.of(dot(own + (long long)width * size, {x, nullptr}, size), width + row) : 0.0f;
    if (threadIdx.x % WAVE == 0) out[blockIdx.y * width + row] = rounded(gated ? silu(low) * high : squared_relu(low));
}

// Sum over the chosen experts of weight * down(inner).
extern "C" __global__ void weighed_product(Element *out, const Element *inner, const Element *down, const float *choice, int count,
                                           int width, int size) {
    let_next_begin();
    const int row = own_row();
    if (row >= size) return;
    wait_for_earlier();
    float sum = 0.0f;
    for (int i = 0; i < count; ++i) {
        const long long expert = __float_as_int(choice[i]);
        sum += choice[count + i] * dot(down + (expert * size + row) * width, {inner + i * width, nullptr}, width);
    }
    if (threadIdx.x % WAVE == 0) out[row] = rounded(sum);
}

// y / rms(y) * weight, the mean over runs of `size` channels (a block each), then * silu(gate) where there is one.
extern "C" __global__ void gated_norm(Element *out, const float *y, const float *gate, const float *weight, int size, float eps) {
    let_next_begin();
    wait_for_earlier();
    const int begin = blockIdx.x * size;
    float squares = 0.0f;
    for (int i = begin + threadIdx.x; i < begin + size; i += blockDim.x) squares += y[i] * y[i];
    const float factor = 1.0f / sqrtf(block_sum(squares) / size + eps);
    for (int i = begin + threadIdx.x; i < begin + size; i += blockDim.x) {
        const float value = y[i] * factor * weight[i];
        out[i] = rounded(gate ? value * silu(gate[i]) : value);
    }
}

// The norms of B, C and dt of a row [B, C, dt], `columns`, `columns` and `rank` wide; a block each.
extern "C" __global__ void three_norms(float *out, const Element *row, const float *b, const float *c, const float *dt, int columns,
                                       int rank, float eps) {
    let_next_begin();
    wait_for_earlier();
    const float *const weight = blockIdx.x == 0 ? b : blockIdx.x == 1 ? c : dt;
    const int begin = blockIdx.x * columns, size = blockIdx.x == 2 ? rank : columns;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < size; i += blockDim.x) squares += widen(row[begin + i]) * widen(row[begin + i]);
    const float factor = 1.0f / sqrtf(block_sum(squares) / size + eps);
    for (int i = threadIdx.x; i < size; i += blockDim.x) out[begin + i] = widen(row[begin + i]) * factor * weight[i];
}

// hidden' = hidden + post(sum of the parts), and norm(hidden') behind it; `post` is a norm or absent. One block, with a load of each tensor
// per thread and round.
constexpr int ROUNDS = 2;

__device__ inline void widen_all(float *wide, const Element *at) {
    const uint4 packed = *(const uint4 *)at;
#pragma unroll
    for (int e = 0; e < PACK; ++e) wide[e] = widen(((const Element *)&packed)[e]);
}

extern "C" __global__ void residual(Element *out, const Element *hidden, const Element *first, const Element *second,
                                    const Element *post, const Element *weight, int size, float first_multiplier,
                                    float second_multiplier, float post_eps, float eps) {
    let_next_begin();
    float weights[ROUNDS][PACK], sums[ROUNDS][PACK], wide[PACK];
    const int begin = threadIdx.x * PACK, stride = blockDim.x * PACK;
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        if (begin + r * stride < size) widen_all(weights[r], weight + begin + r * stride);
#pragma unroll
        for (int e = 0; e < PACK; ++e) sums[r][e] = 0.0f;
    }
    wait_for_earlier();
    float squares = 0.0f;
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const int i = begin + r * stride;
        if (i >= size) continue;
        widen_all(wide, first + i);
#pragma unroll
        for (int e = 0; e < PACK; ++e) sums[r][e] = wide[e] * first_multiplier;
        if (second) {
            widen_all(wide, second + i);
#pragma unroll
            for (int e = 0; e < PACK; ++e) sums[r][e] += wide[e] * second_multiplier;
        }
#pragma unroll
        for (int e = 0; e < PACK; ++e) squares += sums[r][e] * sums[r][e];
    }
    const float post_factor = post ? 1.0f / sqrtf(block_sum(squares) / size + post_eps) : 1.0f;
    squares = 0.0f;
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const int i = begin + r * stride;
        if (i >= size) continue;
        if (post) {
            widen_all(wide, post + i);
#pragma unroll
            for (int e = 0; e < PACK; ++e) sums[r][e] *= post_factor * wide[e];
        }
        widen_all(wide, hidden + i);
        alignas(16) Element kept[PACK];
#pragma unroll
        for (int e = 0; e < PACK; ++e) {
            kept[e] = rounded(wide[e] + sums[r][e]);
            sums[r][e] = widen(kept[e]);
            squares += sums[r][e] * sums[r][e];
        }
        *(uint4 *)(out + i) = *(const uint4 *)kept;
    }
    const float factor = 1.0f / sqrtf(block_sum(squares) / size + eps);
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const int i = begin + r * stride;
        if (i >= size) continue;
        alignas(16) Element normed[PACK];
#pragma unroll
        for (int e = 0; e < PACK; ++e) normed[e] = rounded(sums[r][e] * factor * weights[r][e]);
        *(uint4 *)(out + size + i) = *(const uint4 *)normed;
    }
}

// One query head per block: norms and turn of the query and of the token's key, the key and the value into the cache at `at`, and the mix of
// the values from `begin` to `at`. Blocks that share a key head all make its key, and the first of them writes it; none reads it back.
constexpr int HEAD_DIM_MAX = 256;
constexpr int ATTENTION_WAVES = 16;
constexpr int TOGETHER = 4; // keys that a wave loads at a time

__device__ void normalise(float *x, const Element *weight, int head_dim, float eps) {
    const int d = threadIdx.x;
    const float value = d < head_dim ? x[d] : 0.0f;
    const float factor = 1.0f / sqrtf(block_sum(value * value) / head_dim + eps);
    if (d < head_dim) x[d] = value * factor * widen(weight[d]);
    __syncthreads();
}

__device__ void turn(float *x, const Element *cosines, const Element *sines, int half) {
    const int d = threadIdx.x;
    float low = 0.0f, high = 0.0f;
    if (d < half) {
        const float c = widen(cosines[d]), s = widen(sines[d]);
        low = x[d] * c - x[d + half] * s;
        high = x[d + half] * c + x[d] * s;
    }
    __syncthreads();
    if (d < half) {
        x[d] = low;
        x[d + half] = high;
    }
    __syncthreads();
}

// A wave's share of the keys from `begin` to before `at`: the largest score, and sums relative to it. PARTS channels per lane.
template <int PARTS>
__device__ void mix(const Element *keys, const Element *values, const float *query, int head_dim, int begin, int at, float *mixed,
                    float *top, float *total) {
    const int wave = threadIdx.x / WAVE, lane = threadIdx.x % WAVE;
    // Lanes beyond the head load its last channel and count it as nothing, so that no load waits for a branch.
    int channel[PARTS];
    float q[PARTS], sum[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        channel[part] = min(part * WAVE + lane, head_dim - 1);
        q[part] = part * WAVE + lane < head_dim ? query[channel[part]] : 0.0f;
        sum[part] = 0.0f;
    }
    float highest = LOWEST, weights = 0.0f;
    for (int first = begin + wave * TOGETHER; first < at; first += ATTENTION_WAVES * TOGETHER) {
        Element key[TOGETHER][PARTS], value[TOGETHER][PARTS];
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const long long position = (long long)min(first + i, at - 1) * head_dim;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                key[i][part] = keys[position + channel[part]];
                value[i][part] = values[position + channel[part]];
            }
        }
        float scores[TOGETHER], before = highest;
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            float score = 0.0f;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) score += q[part] * widen(key[i][part]);
            scores[i] = first + i < at ? wave_sum(score) : LOWEST;
            highest = fmaxf(highest, scores[i]);
        }
        const float shrink = expf(before - highest);
        weights *= shrink;
#pragma unroll
        for (int part = 0; part < PARTS; ++part) sum[part] *= shrink;
#pragma unroll
        for (int i = 0; i < TOGETHER; ++i) {
            const float weight = expf(scores[i] - highest);
            weights += weight;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) sum[part] += weight * widen(value[i][part]);
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) mixed[part * WAVE + lane] = sum[part];
    *top = highest;
    *total = weights;
}

extern "C" __global__ void attend(Element *out, const Element *qkv, Element *keys, Element *values, const Element *cosines,
                                  const Element *sines, const Element *query_norm, const Element *key_norm, int heads, int kv_heads,
                                  int head_dim, int half, int room, int begin, int at, float norm_eps, float scale) {
    let_next_begin();
    wait_for_earlier();
    __shared__ float query[HEAD_DIM_MAX], key[HEAD_DIM_MAX];
    __shared__ float mixed[ATTENTION_WAVES][HEAD_DIM_MAX], tops[ATTENTION_WAVES], totals[ATTENTION_WAVES];
    const int head = blockIdx.x, per_kv = heads / kv_heads, kv = head / per_kv;
    const int d = threadIdx.x, wave = threadIdx.x / WAVE;
    keys += (long long)kv * room * head_dim;
    values += (long long)kv * room * head_dim;
    float value = 0.0f;
    if (d < head_dim) {
        query[d] = widen(qkv[head * head_dim + d]);
        key[d] = widen(qkv[(heads + kv) * head_dim + d]);
        value = widen(qkv[(heads + kv_heads + kv) * head_dim + d]);
    }
    __syncthreads();
    if (query_norm) normalise(query, query_norm + head * head_dim, head_dim, norm_eps);
    if (key_norm) normalise(key, key_norm + kv * head_dim, head_dim, norm_eps);
    if (half) {
        turn(query, cosines, sines, half);
        turn(key, cosines, sines, half);
    }
    float product = 0.0f;
    if (d < head_dim) {
        const Element kept = rounded(key[d]);
        if (head % per_kv == 0) {
            keys[(long long)at * head_dim + d] = kept;
            values[(long long)at * head_dim + d] = rounded(value);
        }
        query[d] *= scale;
        product = query[d] * widen(kept);
    }
    const float own = block_sum(product); // and the queries are there for all
    if (head_dim <= 2 * WAVE)
        mix<2>(keys, values, query, head_dim, begin, at, mixed[wave], &tops[wave], &totals[wave]);
    else if (head_dim <= 4 * WAVE)
        mix<4>(keys, values, query, head_dim, begin, at, mixed[wave], &tops[wave], &totals[wave]);
    else
        mix<8>(keys, values, query, head_dim, begin, at, mixed[wave], &tops[wave], &totals[wave]);
    __syncthreads();
    if (d < head_dim) {
        float highest = own;
        for (int w = 0; w < ATTENTION_WAVES; ++w) highest = fmaxf(highest, tops[w]);
        float sum = expf(own - highest) * value, all = expf(own - highest);
        for (int w = 0; w < ATTENTION_WAVES; ++w) {
            // A wave without keys has the weight exp(-inf) = 0.
            const float weight = expf(tops[w] - highest);
            sum += weight * mixed[w][d];
            all += weight * totals[w];
        }
        out[head * head_dim + d] = rounded(sum / all);
    }
}

// The router: a wave per expert for its logit, then the last block to finish picks `count` of them, their numbers (as bits) followed by their
// weights. `done` counts finished blocks and is zero before and after.
constexpr int EXPERTS_MAX = 1024;

extern "C" __global__ void route(float *out, const Element *x, const float *matrix, float *logits, uint *done, const float *correction,
                                 int experts, int size, int count, int normalise, float factor) {
    let_next_begin();
    wait_for_earlier();
    __shared__ bool last, taken[EXPERTS_MAX];
    __shared__ float scores[EXPERTS_MAX];
    const int lane = threadIdx.x % WAVE, expert = own_row();
    if (expert < experts) {
        float sum = 0.0f;
        for (int i = lane; i < size; i += WAVE) sum += widen(x[i]) * matrix[(long long)expert * size + i];
        sum = wave_sum(sum);
        if (lane == 0) logits[expert] = sum;
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int e = threadIdx.x; e < experts; e += blockDim.x) {
        const float logit = __ldcg(&logits[e]);
        scores[e] = correction ? 1.0f / (1.0f + expf(-logit)) : logit;
        taken[e] = false;
    }
    __syncthreads();
    if (threadIdx.x >= WAVE) return;
    if (lane == 0) *done = 0u;
    float most = 0.0f, sum = 0.0f;
    for (int i = 0; i < count; ++i) {
        // The lowest number among equals, and some number also where every score is NaN.
        float best = LOWEST;
        int chosen = experts;
        for (int e = lane; e < experts; e += WAVE) {
            const float score = scores[e] + (correction ? correction[e] : 0.0f);
            if (!taken[e] && (chosen == experts || score > best)) {
                best = score;
                chosen = e;
            }
        }
        for (int other = WAVE / 2; other > 0; other /= 2) {
            const float theirs = __shfl_down_sync(ALL, best, other);
            const int number = __shfl_down_sync(ALL, chosen, other);
            if (number < experts && (chosen == experts || theirs > best || (theirs == best && number < chosen))) {
                best = theirs;
                chosen = number;
            }
        }
        chosen = __shfl_sync(ALL, chosen, 0);
        const float score = scores[chosen];
        if (i == 0) most = score;
        const float weight = correction ? score : expf(score - most);
        sum += weight;
        if (lane == 0) {
            taken[chosen] = true;
            out[i] = __int_as_float(chosen);
            out[count + i] = weight;
        }
        __syncwarp();
    }
    const float divisor = !normalise ? 1.0f : correction ? sum + 1e-20f : sum;
    for (int i = lane; i < count; i += WAVE) out[count + i] *= factor / divisor;
}

// The largest logit's number, the lowest among equals; all bits set where there is a NaN. One block.
extern "C" __global__ void best(uint *out, const Element *logits, int count) {
    let_next_begin();
    wait_for_earlier();
    __shared__ float tops[WAVE];
    __shared__ uint numbers[WAVE];
    const int lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
    float top = LOWEST;
    uint number = 0;
    bool broken = false;
#pragma unroll 8
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const float logit = widen(logits[i]);
        broken |= logit != logit;
        if (logit > top) {
            top = logit;
            number = i;
        }
    }
    const auto reduce = [&] {
        for (int other = WAVE / 2; other > 0; other /= 2) {
            const float theirs = __shfl_xor_sync(ALL, top, other);
            const uint at = __shfl_xor_sync(ALL, number, other);
            if (theirs > top || (theirs == top && at < number)) {
                top = theirs;
                number = at;
            }
        }
    };
    reduce();
    if (lane == 0) {
        tops[wave] = top;
        numbers[wave] = number;
    }
    const bool any = __syncthreads_or(broken);
    if (wave > 0) return;
    const bool there = lane < (int)blockDim.x / WAVE;
    top = there ? tops[lane] : LOWEST;
    number = there ? numbers[lane] : ALL;
    reduce();
    if (lane == 0) *out = any ? ALL : number;
}
