/* What Rust and ssm_update.metal share: the struct of constants, the numbers of the buffers, tags and flags. Plain C, so that a
 * test can measure it with any compiler; src/ports/metal/abi.rs is the same in Rust, and a test compares the two field by field.
 *
 * Metal takes no pointers in a struct on every system that the port serves: each tensor is a buffer of its own, bound at its first
 * element, which is aligned for an element and no more. What is absent has a flag that says so, and some other buffer in its place,
 * since every argument of a kernel has to be bound.
 * Sizes passed validate(): no product of them overflows 64 bits.
 */
#ifndef SSM_UPDATE_METAL_ABI_H
#define SSM_UPDATE_METAL_ABI_H

#ifndef __METAL_VERSION__
#include <stdint.h>
#endif

/* Element types of dt and the per-head vectors. x, z, y, B, C and the state have theirs in the key. */
enum { SSM_F32 = 0, SSM_F16 = 1, SSM_BF16 = 2 };

/* Bits of ssm_update_constants.flags. */
enum {
    SSM_PREPARED_DT = 1, /* dt is dt' already */
    SSM_WRITE_STATE = 2, /* the new state is written */
    SSM_HAS_Z = 4,
    SSM_HAS_D = 8,
    SSM_HAS_DT_BIAS = 16,
    SSM_HAS_SLOTS_IN = 32,  /* without: batch row b reads slot b */
    SSM_HAS_SLOTS_OUT = 64, /* without: batch row b writes slot b */
};

/* Numbers of the buffers. */
enum {
    SSM_AT_X = 0,          /* [batch, heads, head_dim] */
    SSM_AT_Z = 1,          /* [batch, heads, head_dim] */
    SSM_AT_B = 2,          /* [batch, groups, d_state] */
    SSM_AT_C = 3,          /* [batch, groups, d_state] */
    SSM_AT_DT = 4,         /* [batch, heads] */
    SSM_AT_A_LOG = 5,      /* [heads] */
    SSM_AT_D = 6,          /* [heads] */
    SSM_AT_DT_BIAS = 7,    /* [heads] */
    SSM_AT_STATE_IN = 8,   /* [slots, heads, head_dim, d_state] */
    SSM_AT_STATE_OUT = 9,  /* the same; may be the same buffer */
    SSM_AT_SLOTS_IN = 10,  /* [batch] of int32_t */
    SSM_AT_SLOTS_OUT = 11, /* [batch] of int32_t */
    SSM_AT_Y = 12,         /* [batch, heads, head_dim] */
    SSM_AT_CONSTANTS = 13, /* ssm_update_constants, as bytes in the command buffer */
};

typedef struct ssm_update_constants {
    int64_t x_stride;        /* elements from one batch row to the next, as for the five below */
    int64_t z_stride;
    int64_t b_stride;
    int64_t c_stride;
    int64_t dt_stride;
    int64_t y_stride;
    int64_t slots;           /* slots at or beyond this are not touched */
    uint32_t heads;
    uint32_t head_dim;
    uint32_t heads_per_group;
    uint32_t d_state;
    uint32_t row_lanes_log2; /* log2 of the lanes that share one row of the state; see ssm_update.metal */
    uint32_t first_batch;    /* batch row of grid z = 0: a batch larger than the grid takes several dispatches */
    uint32_t flags;
    float dt_min;
    float dt_max;
    uint8_t dt_dtype;
    uint8_t a_log_dtype;
    uint8_t d_dtype;
    uint8_t dt_bias_dtype;
} ssm_update_constants;

#endif
