// The shim's runtime, as kernels, the table of them and the tests see it.

#ifndef METAL_SHIM_RUNTIME_H
#define METAL_SHIM_RUNTIME_H

#include <cstdint>

enum { SHIM_TENSORS = 13, SHIM_LANES = 32 };

struct uint3 {
    unsigned x, y, z;
};

// A tensor that is bound: where its buffer begins, what of it may be accessed (from `at`, the offset of the binding, on), and a
// byte for each byte of the buffer that says whether anybody wrote it.
struct shim_tensor {
    unsigned char *buffer;
    unsigned char *at;
    uint64_t bytes;
    unsigned char *written;
    uint32_t may_write;
};

// What one thread is told.
struct shim_thread {
    void *buffers[SHIM_TENSORS];
    const void *constants;
    uint3 threadgroup_position_in_grid;
    unsigned simdgroup_index_in_threadgroup;
    unsigned thread_index_in_simdgroup;
};

struct shim_kernel {
    const char *name;
    void (*run)(const shim_thread &);
};

// The kernels; the last one has no name. Generated.
extern const shim_kernel shim_kernels[];

// Waits for all lanes of the SIMD-group, then gives the value of the lane whose number differs in these bits.
float shim_shuffle_xor(float value, unsigned mask);

#endif
