// C entry points for benches/peers/gpu.py: FlashInfer's single-token Mamba2 update, and a plain kernel as a yardstick. Sizes and
// the state's type come from -D on the command line; FlashInfer's headers from scripts/gpu-peers.sh.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <exception>

// Names that FlashInfer's header expects around it.
using state_t = STATE_T;
using input_t = nv_bfloat16;
using weight_t = float;
using matrixA_t = float;
using stateIndex_t = int32_t;
using cuSeqlensIndex_t = int32_t;
using numAcceptedIndex_t = int32_t;
using state_scale_t = void;
constexpr int DIM = HEAD_DIM;
constexpr int DSTATE = D_STATE;
constexpr int NTOKENS_MTP = 1;
constexpr int PHILOX_ROUNDS = 0;
#include <flashinfer/mamba/selective_state_update.cuh>

// 0, or 1 where the algorithm does not serve these sizes.
extern "C" int flashinfer_run(void *state, void *x, void *dt, void *dt_bias, void *a, void *b, void *c, void *d, void *y, int batch,
                              int heads, int groups, int algorithm, cudaStream_t stream)
{
    using namespace flashinfer::mamba;
    SelectiveStateUpdateParams p;
    p.batch = batch, p.nheads = heads, p.dim = DIM, p.dstate = DSTATE, p.ngroups = groups, p.state_cache_size = batch;
    p.dt_softplus = true;
    p.x_stride_batch = p.out_stride_batch = int64_t(heads) * DIM;
    p.dt_stride_batch = heads;
    p.B_stride_batch = p.C_stride_batch = int64_t(groups) * DSTATE;
    p.state_stride_batch = int64_t(heads) * DIM * DSTATE;
    p.state = state, p.x = x, p.dt = dt, p.dt_bias = dt_bias, p.A = a, p.B = b, p.C = c, p.D = d, p.output = y;
    try {
        invokeSelectiveStateUpdate<input_t, weight_t, matrixA_t, state_t, stateIndex_t, state_scale_t>(
            p, SSUAlgorithm(algorithm), stream);
    } catch (const std::exception &) {
        return 1;
    }
    return cudaGetLastError() != cudaSuccess;
}

// One warp a row, f32 state, out of place: right, and nothing more.
__global__ void __launch_bounds__(256)
    plain(const nv_bfloat16 *x, const float *a, const nv_bfloat16 *b, const nv_bfloat16 *c, const float *d, const float *dt,
          const float *dt_bias, const float *in, nv_bfloat16 *y, float *out, int heads, int heads_per_group)
{
    const int lane = threadIdx.x, row = blockIdx.y * 8 + threadIdx.y, n = blockIdx.z, h = n % heads;
    if (row >= DIM) return;
    float v = dt[n] + dt_bias[h];
    v = v > 20.f ? v : log1pf(expf(v));
    const float decay = expf(a[h] * v), xv = __bfloat162float(x[int64_t(n) * DIM + row]);
    const int64_t state = (int64_t(n) * DIM + row) * DSTATE, columns = int64_t(n / heads_per_group) * DSTATE;
    float sum = 0.f;
    for (int s = lane * 4; s < DSTATE; s += 128) {
        float4 piece = *(const float4 *)(in + state + s);
        float *element = &piece.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            element[i] = decay * element[i] + xv * v * __bfloat162float(b[columns + s + i]);
            sum += element[i] * __bfloat162float(c[columns + s + i]);
        }
        *(float4 *)(out + state + s) = piece;
    }
    for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(~0u, sum, o);
    if (!lane) y[int64_t(n) * DIM + row] = __float2bfloat16(sum + xv * d[h]);
}

extern "C" int plain_run(void *in, void *out, void *x, void *dt, void *dt_bias, void *a, void *b, void *c, void *d, void *y, int batch,
                         int heads, int groups, cudaStream_t stream)
{
    plain<<<dim3(1, (DIM + 7) / 8, batch * heads), dim3(32, 8, 1), 0, stream>>>(
        (nv_bfloat16 *)x, (float *)a, (nv_bfloat16 *)b, (nv_bfloat16 *)c, (float *)d, (float *)dt, (float *)dt_bias, (float *)in,
        (nv_bfloat16 *)y, (float *)out, heads, heads / groups);
    return cudaGetLastError() != cudaSuccess;
}
