/* The parameter struct of the kernels in HIP and in CUDA: the only thing that Rust and a kernel share. Plain C, passed by value as
 * the one kernel argument. src/ports/gpu/abi.rs is the same in Rust, and a test compares the two field by field.
 *
 * Shapes and dtypes of the tensors are those of ssm_update::Pointers. Pointers are to device memory, each aligned for its
 * elements and no more; null means absent.
 * Sizes passed validate(): no product of them overflows 64 bits.
 */
#ifndef SSM_UPDATE_ABI_H
#define SSM_UPDATE_ABI_H

#include <stdint.h>

/* Element types of the per-head vectors and of dt, for the HIP kernels: there, only x, z, y, B, C and the state have theirs in the
 * kernel's name. */
enum { SSM_F32 = 0, SSM_F16 = 1, SSM_BF16 = 2 };

/* Bits of ssm_update_params.flags. */
enum {
    SSM_PREPARED_DT = 1, /* dt is dt' already */
    SSM_WRITE_STATE = 2, /* the new state is written */
    SSM_PREFETCH_STATE = 4, /* CUDA: the state is brought into the L2 cache before the launch's turn comes */
};

typedef struct ssm_update_params {
    const void *x;          /* [batch, heads, head_dim] */
    const void *z;          /* [batch, heads, head_dim], or null */
    const void *b;          /* [batch, groups, d_state] */
    const void *c;          /* [batch, groups, d_state] */
    const void *dt;         /* [batch, heads] */
    const void *a_log;      /* [heads] */
    const void *d;          /* [heads], or null */
    const void *dt_bias;    /* [heads], or null */
    const void *state_in;   /* [slots, heads, head_dim, d_state]; full speed where it is aligned to 16 bytes */
    void *state_out;        /* the same; may equal state_in; not used unless SSM_WRITE_STATE */
    const int32_t *slots_in;  /* [batch], or null: batch row b reads slot b */
    const int32_t *slots_out; /* [batch], or null: batch row b writes slot b */
    void *y;                /* [batch, heads, head_dim] */
    int64_t x_stride;       /* elements from one batch row to the next, as for the five below */
    int64_t z_stride;
    int64_t b_stride;
    int64_t c_stride;
    int64_t dt_stride;
    int64_t y_stride;
    int64_t slots;          /* slots at or beyond this are not touched */
    uint64_t group_multiplier; /* ceil(2^32 * groups / heads): head h is in group h * group_multiplier >> 32 */
    uint32_t heads;
    uint32_t head_dim;
    uint32_t d_state;
    uint32_t row_lanes_log2; /* log2 of the lanes that share one row of the state; HIP only, see hip/ssm_update.hip */
    float dt_min;
    float dt_max;
    uint8_t dt_dtype;
    uint8_t a_log_dtype;
    uint8_t d_dtype;
    uint8_t dt_bias_dtype;
    uint32_t flags;
    uint32_t first_batch;   /* batch row of grid z = 0: a batch larger than the grid takes several launches */
    uint32_t unused;        /* to a multiple of the struct's alignment */
} ssm_update_params;

#endif
