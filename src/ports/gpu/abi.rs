//! The parameter struct of the HIP and CUDA kernels, as `gpu/abi.h` has it: the only thing that Rust and the kernels share. A test
//! compiles the header and compares size, offset and width of every field.
//!
//! Only integers and floats: the build script, which checks the compiled kernels against the size, includes this file too.

/// Element types of dt and the per-head vectors (`SSM_F32` and so on).
pub mod dtype {
    /// f32.
    pub const F32: u8 = 0;
    /// f16.
    pub const F16: u8 = 1;
    /// bf16.
    pub const BF16: u8 = 2;
}

/// Bits of [`Params::flags`].
pub mod flags {
    /// dt is dt' already (`SSM_PREPARED_DT`).
    pub const PREPARED_DT: u32 = 1;
    /// The new state is written (`SSM_WRITE_STATE`).
    pub const WRITE_STATE: u32 = 2;
    /// The state is brought into the L2 cache before the launch's turn comes (`SSM_PREFETCH_STATE`; CUDA).
    pub const PREFETCH_STATE: u32 = 4;
}

/// `ssm_update_params`. Addresses are device addresses; 0 means absent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // gpu/abi.h says what each field is
pub struct Params {
    pub x: u64,
    pub z: u64,
    pub b: u64,
    pub c: u64,
    pub dt: u64,
    pub a_log: u64,
    pub d: u64,
    pub dt_bias: u64,
    pub state_in: u64,
    pub state_out: u64,
    pub slots_in: u64,
    pub slots_out: u64,
    pub y: u64,
    pub x_stride: i64,
    pub z_stride: i64,
    pub b_stride: i64,
    pub c_stride: i64,
    pub dt_stride: i64,
    pub y_stride: i64,
    pub slots: i64,
    pub group_multiplier: u64,
    pub heads: u32,
    pub head_dim: u32,
    pub d_state: u32,
    pub row_lanes_log2: u32,
    pub dt_min: f32,
    pub dt_max: f32,
    pub dt_dtype: u8,
    pub a_log_dtype: u8,
    pub d_dtype: u8,
    pub dt_bias_dtype: u8,
    pub flags: u32,
    pub first_batch: u32,
    pub unused: u32,
}
