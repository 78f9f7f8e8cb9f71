//! What the kernel is told, as `metal/abi.h` has it: the struct of constants, its flags and tags, and the numbers of the buffers. A
//! test compiles the header and compares size, offset and kind of every field, and every constant.

pub use crate::ports::gpu::abi::dtype;

/// Bits of [`Constants::flags`].
pub mod flags {
    pub use crate::ports::gpu::abi::flags::{PREPARED_DT, WRITE_STATE};

    /// z is there.
    pub const HAS_Z: u32 = 4;
    /// D is there.
    pub const HAS_D: u32 = 8;
    /// dt_bias is there.
    pub const HAS_DT_BIAS: u32 = 16;
    /// slots_in is there.
    pub const HAS_SLOTS_IN: u32 = 32;
    /// slots_out is there.
    pub const HAS_SLOTS_OUT: u32 = 64;
}

/// Numbers of the buffers.
pub mod at {
    /// x.
    pub const X: usize = 0;
    /// z.
    pub const Z: usize = 1;
    /// B.
    pub const B: usize = 2;
    /// C.
    pub const C: usize = 3;
    /// dt.
    pub const DT: usize = 4;
    /// A_log.
    pub const A_LOG: usize = 5;
    /// D.
    pub const D: usize = 6;
    /// dt_bias.
    pub const DT_BIAS: usize = 7;
    /// The state that is read.
    pub const STATE_IN: usize = 8;
    /// The state that is written.
    pub const STATE_OUT: usize = 9;
    /// Slots to read.
    pub const SLOTS_IN: usize = 10;
    /// Slots to write.
    pub const SLOTS_OUT: usize = 11;
    /// y.
    pub const Y: usize = 12;
    /// The constants.
    pub const CONSTANTS: usize = 13;
}

/// Buffers that hold tensors: the numbers below [`at::CONSTANTS`].
pub const TENSORS: usize = at::CONSTANTS;

/// `ssm_update_constants`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // metal/abi.h says what each field is
pub struct Constants {
    pub x_stride: i64,
    pub z_stride: i64,
    pub b_stride: i64,
    pub c_stride: i64,
    pub dt_stride: i64,
    pub y_stride: i64,
    pub slots: i64,
    pub heads: u32,
    pub head_dim: u32,
    pub heads_per_group: u32,
    pub d_state: u32,
    pub row_lanes_log2: u32,
    pub first_batch: u32,
    pub flags: u32,
    pub dt_min: f32,
    pub dt_max: f32,
    pub dt_dtype: u8,
    pub a_log_dtype: u8,
    pub d_dtype: u8,
    pub dt_bias_dtype: u8,
}
