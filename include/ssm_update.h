/* The fused Mamba2 single-token decode step for AMD, NVIDIA, Apple and CPU: the C interface of ssm-update.
 *
 * Generated from capi/src by `make header`; changes belong there. How to build, link and call: docs/engines.md.
 * Licensed under MIT or Apache-2.0, at your option. */


#ifndef SSM_UPDATE_H
#define SSM_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Version of the binary interface: the number behind the shared library's name (`libssm_update.so.0`). A library that removes or
 * changes anything of this header has another one; one that only adds to it keeps its number. ssm_update_abi_version() tells the
 * library's own.
 */
#define SSM_UPDATE_ABI_VERSION 0

/**
 * What a call answers. Everything but SSM_UPDATE_STATUS_OK comes with a text, see ssm_update_last_error().
 *
 * A newer library may have more of them: treat a number that you do not know as a failure.
 */
enum ssm_update_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Done, or queued on the caller's stream.
     */
    SSM_UPDATE_STATUS_OK = 0,
    /**
     * Shapes, strides or dtypes that no kernel serves, or not this port's. The text contains `unsupported shapes`. Nothing was
     * written: take the graph of tensor operations.
     */
    SSM_UPDATE_STATUS_UNSUPPORTED = 1,
    /**
     * An argument that no path could serve: a null pointer, limits out of order, a slot beyond the pool, overlapping buffers, a
     * number that stands for nothing. Nothing was written.
     */
    SSM_UPDATE_STATUS_INVALID = 2,
    /**
     * The port, or every port, does not open here, or an environment variable turned the step off. The text says why.
     */
    SSM_UPDATE_STATUS_UNAVAILABLE = 3,
    /**
     * A call of the driver failed. What the step writes is unspecified.
     */
    SSM_UPDATE_STATUS_DRIVER = 4,
    /**
     * A fault of this library, caught before it reached the caller. Please report it. What the step writes is unspecified.
     */
    SSM_UPDATE_STATUS_INTERNAL = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ssm_update_status ssm_update_status;
#else
typedef int32_t ssm_update_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * How dt becomes the step size dt'.
 */
enum ssm_update_dt
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * dt' = clamp(softplus(dt + dt_bias), dt_min, dt_max).
     */
    SSM_UPDATE_DT_RAW = 0,
    /**
     * dt is dt' already. dt_bias is null; dt_min and dt_max are not read.
     */
    SSM_UPDATE_DT_PREPARED = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ssm_update_dt ssm_update_dt;
#else
typedef int32_t ssm_update_dt;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Element type of a tensor. All arithmetic is in 32-bit floating point, whatever the types.
 */
enum ssm_update_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * IEEE single precision, 4 bytes.
     */
    SSM_UPDATE_DTYPE_F32 = 0,
    /**
     * IEEE half precision, 2 bytes.
     */
    SSM_UPDATE_DTYPE_F16 = 1,
    /**
     * bfloat16, 2 bytes.
     */
    SSM_UPDATE_DTYPE_BF16 = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum ssm_update_dtype ssm_update_dtype;
#else
typedef int32_t ssm_update_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * An open port. Made by ssm_update_kernel_open(), ended by ssm_update_kernel_close().
 */
typedef struct ssm_update_kernel ssm_update_kernel;

/**
 * The sizes of one call.
 */
typedef struct ssm_update_dims {
    /**
     * Sequences that advance by one token. Any number, also 0.
     */
    size_t batch;
    /**
     * SSM heads (not attention heads), at least 1. A shard of a model's heads is a legal problem of its own.
     */
    size_t heads;
    /**
     * Rows of the state per head (not attention's head_dim), at least 1.
     */
    size_t head_dim;
    /**
     * Groups that share B and C; divides heads. Head h uses group h / (heads / groups).
     */
    size_t groups;
    /**
     * Columns of the state: a multiple of 16 from 16 to 512.
     */
    size_t d_state;
    /**
     * Rows of the state pool, at least batch unless slots_in and slots_out choose the rows.
     */
    size_t slots;
} ssm_update_dims;

/**
 * One step. For each batch row, head h, row p of head_dim, column n of d_state, with g the group of h:
 *
 *     dt'     = softplus(dt[h] + dt_bias[h]) within the limits, or dt[h] as it is
 *     s'[p,n] = exp(-exp(a_log[h]) * dt') * s[p,n] + dt' * x[h,p] * b[g,n]
 *     y[h,p]  = sum over n of s'[p,n] * c[g,n] + d[h] * x[h,p], then with z: y *= z * sigmoid(z)
 *
 * Tensors are contiguous but for the distance of batch rows. Set struct_size to sizeof(ssm_update_launch) and everything that you
 * do not use to zero, or begin with ssm_update_launch_init(), which does both. Later versions of this header may add fields at
 * the end, for which zero will mean what this version does.
 */
typedef struct ssm_update_launch {
    /**
     * sizeof(ssm_update_launch), as your compiler knows it.
     */
    size_t struct_size;
    /**
     * Sizes.
     */
    struct ssm_update_dims dims;
    /**
     * Of x, z and y: one of ssm_update_dtype, like the others.
     */
    int32_t x_dtype;
    /**
     * Of b and c: the same as x_dtype, or SSM_UPDATE_DTYPE_F32.
     */
    int32_t bc_dtype;
    /**
     * Of dt.
     */
    int32_t dt_dtype;
    /**
     * Of a_log.
     */
    int32_t a_log_dtype;
    /**
     * Of d. Not read where d is null.
     */
    int32_t d_dtype;
    /**
     * Of dt_bias. Not read where dt_bias is null.
     */
    int32_t dt_bias_dtype;
    /**
     * Of the state, in and out. SSM_UPDATE_DTYPE_F32 unless there is a reason.
     */
    int32_t state_dtype;
    /**
     * One of ssm_update_dt.
     */
    int32_t dt_mode;
    /**
     * Lower limit of dt'.
     */
    float dt_min;
    /**
     * Upper limit of dt', at least dt_min; infinity for none. Zero is a limit too: dt' is then 0, and the state stays as it was.
     */
    float dt_max;
    /**
     * 1: the state is written. 0: only y is computed; state_out and slots_out are not read.
     */
    int32_t update_state;
    /**
     * 0.
     */
    uint32_t reserved;
    /**
     * Elements from one batch row of x to the next; contiguous: heads * head_dim.
     */
    size_t x_stride;
    /**
     * Of z; contiguous: heads * head_dim.
     */
    size_t z_stride;
    /**
     * Of b; contiguous: groups * d_state.
     */
    size_t b_stride;
    /**
     * Of c; contiguous: groups * d_state.
     */
    size_t c_stride;
    /**
     * Of dt; contiguous: heads.
     */
    size_t dt_stride;
    /**
     * Of y; contiguous: heads * head_dim, and never less.
     */
    size_t y_stride;
    /**
     * [batch, heads, head_dim].
     */
    const void *x;
    /**
     * [batch, heads, head_dim]; null: no gate.
     */
    const void *z;
    /**
     * [batch, groups, d_state].
     */
    const void *b;
    /**
     * [batch, groups, d_state].
     */
    const void *c;
    /**
     * [batch, heads].
     */
    const void *dt;
    /**
     * [heads].
     */
    const void *a_log;
    /**
     * [heads]; null: no skip connection.
     */
    const void *d;
    /**
     * [heads]; null: no bias.
     */
    const void *dt_bias;
    /**
     * [slots, heads, head_dim, d_state].
     */
    const void *state_in;
    /**
     * [slots, heads, head_dim, d_state]: state_in itself, or memory that does not overlap it.
     */
    void *state_out;
    /**
     * [batch]: the state row that each batch row reads, negative for padding (its y is zeros, and nothing else happens); null: batch
     * row i uses state row i. No two rows share one.
     */
    const int32_t *slots_in;
    /**
     * [batch]: the state row that each batch row writes, as slots_in.
     */
    const int32_t *slots_out;
    /**
     * [batch, heads, head_dim]. Overlaps no other tensor.
     */
    void *y;
    /**
     * A stream of the port's: a hipStream_t, a CUstream, an id<MTLComputeCommandEncoder>; null: the default stream. The CPU port
     * has none.
     */
    void *stream;
} ssm_update_launch;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets a struct to one contiguous step of these sizes: every dtype SSM_UPDATE_DTYPE_F32, raw dt without limits, the state written,
 * every pointer null. Pass sizeof(ssm_update_launch) as struct_size.
 *
 * The sizes are not checked here, see ssm_update_check_dims().
 *
 * The caller: launch is to struct_size bytes that may be written.
 * Returns SSM_UPDATE_STATUS_INVALID for a null pointer and for a size that no version has; nothing is written then.
 * Threads: any, at any time.
 */
ssm_update_status ssm_update_launch_init(struct ssm_update_launch *launch,
                                         size_t struct_size,
                                         const struct ssm_update_dims *dims);

/**
 * Whether a kernel serves these sizes, whatever the batch: for engines that choose between kernel and graph once, when a model is
 * loaded. batch and slots are not looked at.
 *
 * The caller: dims is to a struct.
 * Returns SSM_UPDATE_STATUS_UNSUPPORTED with the size at fault, or SSM_UPDATE_STATUS_INVALID for a null pointer.
 * Threads: any, at any time.
 */
ssm_update_status ssm_update_check_dims(const struct ssm_update_dims *dims);

/**
 * Checks a step as every port does before it launches, without an open port: sizes, dtypes, strides, limits, pointers that are null or
 * not aligned, the overlap of the two states. No memory of the tensors is read, and the slots are not looked at.
 *
 * A port may refuse more, see ssm_update_kernel_launch().
 *
 * The caller: launch is to as many bytes as its struct_size says.
 * Returns SSM_UPDATE_STATUS_UNSUPPORTED or SSM_UPDATE_STATUS_INVALID with the field at fault, what was expected and what came.
 * Threads: any, at any time.
 */
ssm_update_status ssm_update_check(const struct ssm_update_launch *launch);

/**
 * The library's version, such as "0.1.0". Valid as long as the library is loaded.
 *
 * Threads: any, at any time.
 */
const char *ssm_update_version(void);

/**
 * The library's SSM_UPDATE_ABI_VERSION. A program that loads the library at run time compares it with that of its header.
 *
 * Threads: any, at any time.
 */
uint32_t ssm_update_abi_version(void);

/**
 * How many ports there are, whether they open here or not.
 *
 * Threads: any, at any time.
 */
size_t ssm_update_port_count(void);

/**
 * Name of a port ("rocm", "cuda", "metal", "cpu"), counted from 0 in order of preference; null from ssm_update_port_count() on. Valid as
 * long as the library is loaded.
 *
 * Threads: any, at any time.
 */
const char *ssm_update_port_name(size_t index);

/**
 * Whether ssm_update_kernel_open() would give a kernel for this name now. Where it would not, ssm_update_last_error() says why.
 *
 * It opens the port to find out, which loads code on a GPU: ask once per model, not per token.
 *
 * The caller: port is null or a text that ends in zero.
 * Threads: any, at any time, as long as no thread changes the environment meanwhile.
 */
bool ssm_update_available(const char *port);

/**
 * The text of the calling thread's last call that returned a status or a truth: what went wrong, or empty if nothing did. In
 * English, in UTF-8, without a line break at its end. Never null.
 *
 * The text is the library's, and valid until the same thread calls again.
 * Threads: each has its own.
 */
const char *ssm_update_last_error(void);

/**
 * The status of the calling thread's last call that returned a status or a truth.
 *
 * Threads: each has its own.
 */
ssm_update_status ssm_update_last_status(void);

/**
 * Opens a port: finds its driver and its device and loads its code. Slow; a process opens one once.
 *
 * A null or empty port is the library's choice: the first port that opens, or what SSM_UPDATE_PORT names, and none where
 * MLXCEL_SSM_KERNEL or MLXCEL_SSM_CUDA_KERNEL is "0". That is what engines want. A name is exactly that port, whatever these three
 * variables say. Either way a port reads the variables of its own, such as SSM_UPDATE_HIP_LIBRARY.
 *
 * On a GPU the kernel belongs to the device that is the calling thread's current one.
 *
 * The caller: port is null or a text that ends in zero; kernel is to a pointer that may be written.
 * Returns SSM_UPDATE_STATUS_UNAVAILABLE with a reason for every port that was tried, SSM_UPDATE_STATUS_INVALID for a name that no
 * port has; *kernel is null then.
 * Threads: any, at any time, as long as no thread changes the environment meanwhile.
 */
ssm_update_status ssm_update_kernel_open(const char *port,
                                         struct ssm_update_kernel **kernel);

/**
 * Closes a kernel; nothing for null. The handle and its texts are gone then.
 *
 * The caller: kernel is null or open; every step that was queued with it is done.
 * Threads: any; no other thread uses this kernel any more.
 */
void ssm_update_kernel_close(struct ssm_update_kernel *kernel);

/**
 * Name of the port, as ssm_update_port_name() has it; null for null. Valid until the kernel is closed.
 *
 * The caller: kernel is null or open.
 * Threads: any, several at once.
 */
const char *ssm_update_kernel_port(const struct ssm_update_kernel *kernel);

/**
 * The device and the path taken on it, for people; null for null. Valid until the kernel is closed.
 *
 * The caller: kernel is null or open.
 * Threads: any, several at once.
 */
const char *ssm_update_kernel_description(const struct ssm_update_kernel *kernel);

/**
 * Queues a step on the launch's stream and returns. Allocates nothing, copies nothing and waits for nothing on a GPU, so that it can be
 * captured into a graph (what ssm_update_kernel_prepare() makes ready aside). On the CPU port the step is done when this returns.
 *
 * The caller: launch is to as many bytes as its struct_size says. Each tensor is in memory that the port's launches reach (device
 * pointers on a GPU; on the port metal addresses within the contents of shared buffers), holds its whole shape, is initialised where
 * it is read, and stays until the stream has passed this step. y overlaps no other tensor, the written state none but state_in; nobody
 * else writes them, or reads what is written, meanwhile. Slots in device memory are below dims.slots, and no two rows share one. The
 * stream is null or one of the kernel's device.
 * Returns what ssm_update_check() does, the same for what this port does not serve, SSM_UPDATE_STATUS_INVALID for slots that the host
 * sees and that are wrong: nothing was written then. SSM_UPDATE_STATUS_DRIVER: what the step writes is unspecified.
 * Threads: any, several at once with one kernel, each with a stream of its own.
 */
ssm_update_status ssm_update_kernel_launch(const struct ssm_update_kernel *kernel,
                                           const struct ssm_update_launch *launch);

/**
 * Makes ready what launches like these need: on ports that compile at run time, their kernels. Without it the first launch does that,
 * which may take a second, and fails while a stream is captured. Batch, strides and addresses may be others later, as long as the same
 * tensors are there and their alignment is the same. No tensor is touched, so that any aligned addresses do.
 *
 * The caller: launches is to count pointers, each to as many bytes as its struct_size says.
 * Returns what ssm_update_check() does, for the first launch that is refused, and SSM_UPDATE_STATUS_DRIVER for faults of compiler and
 * driver.
 * Threads: any, several at once with one kernel.
 */
ssm_update_status ssm_update_kernel_prepare(const struct ssm_update_kernel *kernel,
                                            const struct ssm_update_launch *const *launches,
                                            size_t count);

/**
 * Runs a step on host memory and returns when y and the state are there. On the CPU port that is what ssm_update_kernel_launch() does;
 * on a GPU the tensors are copied there and back, which is for comparisons and small programs. The launch's stream is not used.
 *
 * The caller: as ssm_update_kernel_launch(), with every tensor and the slots in host memory.
 * Returns what ssm_update_check() does, the same for what this port does not serve, SSM_UPDATE_STATUS_INVALID for slots that are
 * wrong: nothing was written then. SSM_UPDATE_STATUS_DRIVER: nothing was written either, unless copying the results back failed.
 * Threads: any, several at once with one kernel.
 */
ssm_update_status ssm_update_kernel_step_host(const struct ssm_update_kernel *kernel,
                                              const struct ssm_update_launch *launch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SSM_UPDATE_H */
