//! The struct of a call: how it is read with the size that the caller gives it, and what it becomes.

use std::ffi::c_void;

use ssm_update::{BatchStrides, Dtypes, Pointers, Problem, Stream, validate};

use crate::Status;
use crate::fault::{Fault, guard};

/// Element type of a tensor. All arithmetic is in 32-bit floating point, whatever the types.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// IEEE single precision, 4 bytes.
    F32 = 0,
    /// IEEE half precision, 2 bytes.
    F16 = 1,
    /// bfloat16, 2 bytes.
    Bf16 = 2,
}

/// How dt becomes the step size dt'.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dt {
    /// dt' = clamp(softplus(dt + dt_bias), dt_min, dt_max).
    Raw = 0,
    /// dt is dt' already. dt_bias is null; dt_min and dt_max are not read.
    Prepared = 1,
}

/// The sizes of one call.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dims {
    /// Sequences that advance by one token. Any number, also 0.
    pub batch: usize,
    /// SSM heads (not attention heads), at least 1. A shard of a model's heads is a legal problem of its own.
    pub heads: usize,
    /// Rows of the state per head (not attention's head_dim), at least 1.
    pub head_dim: usize,
    /// Groups that share B and C; divides heads. Head h uses group h / (heads / groups).
    pub groups: usize,
    /// Columns of the state: a multiple of 16 from 16 to 512.
    pub d_state: usize,
    /// Rows of the state pool, at least batch unless slots_in and slots_out choose the rows.
    pub slots: usize,
}

/// One step. For each batch row, head h, row p of head_dim, column n of d_state, with g the group of h:
///
///     dt'     = softplus(dt[h] + dt_bias[h]) within the limits, or dt[h] as it is
///     s'[p,n] = exp(-exp(a_log[h]) * dt') * s[p,n] + dt' * x[h,p] * b[g,n]
///     y[h,p]  = sum over n of s'[p,n] * c[g,n] + d[h] * x[h,p], then with z: y *= z * sigmoid(z)
///
/// Tensors are contiguous but for the distance of batch rows. Set struct_size to sizeof(ssm_update_launch) and everything that you
/// do not use to zero, or begin with ssm_update_launch_init(), which does both. Later versions of this header may add fields at
/// the end, for which zero will mean what this version does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// sizeof(ssm_update_launch), as your compiler knows it.
    pub struct_size: usize,
    /// Sizes.
    pub dims: Dims,
    /// Of x, z and y: one of ssm_update_dtype, like the others.
    pub x_dtype: i32,
    /// Of b and c: the same as x_dtype, or SSM_UPDATE_DTYPE_F32.
    pub bc_dtype: i32,
    /// Of dt.
    pub dt_dtype: i32,
    /// Of a_log.
    pub a_log_dtype: i32,
    /// Of d. Not read where d is null.
    pub d_dtype: i32,
    /// Of dt_bias. Not read where dt_bias is null.
    pub dt_bias_dtype: i32,
    /// Of the state, in and out. SSM_UPDATE_DTYPE_F32 unless there is a reason.
    pub state_dtype: i32,
    /// One of ssm_update_dt.
    pub dt_mode: i32,
    /// Lower limit of dt'.
    pub dt_min: f32,
    /// Upper limit of dt', at least dt_min; infinity for none. Zero is a limit too: dt' is then 0, and the state stays as it was.
    pub dt_max: f32,
    /// 1: the state is written. 0: only y is computed; state_out and slots_out are not read.
    pub update_state: i32,
    /// 0.
    pub reserved: u32,
    /// Elements from one batch row of x to the next; contiguous: heads * head_dim.
    pub x_stride: usize,
    /// Of z; contiguous: heads * head_dim.
    pub z_stride: usize,
    /// Of b; contiguous: groups * d_state.
    pub b_stride: usize,
    /// Of c; contiguous: groups * d_state.
    pub c_stride: usize,
    /// Of dt; contiguous: heads.
    pub dt_stride: usize,
    /// Of y; contiguous: heads * head_dim, and never less.
    pub y_stride: usize,
    /// [batch, heads, head_dim].
    pub x: *const c_void,
    /// [batch, heads, head_dim]; null: no gate.
    pub z: *const c_void,
    /// [batch, groups, d_state].
    pub b: *const c_void,
    /// [batch, groups, d_state].
    pub c: *const c_void,
    /// [batch, heads].
    pub dt: *const c_void,
    /// [heads].
    pub a_log: *const c_void,
    /// [heads]; null: no skip connection.
    pub d: *const c_void,
    /// [heads]; null: no bias.
    pub dt_bias: *const c_void,
    /// [slots, heads, head_dim, d_state].
    pub state_in: *const c_void,
    /// [slots, heads, head_dim, d_state]: state_in itself, or memory that does not overlap it.
    pub state_out: *mut c_void,
    /// [batch]: the state row that each batch row reads, negative for padding (its y is zeros, and nothing else happens); null: batch
    /// row i uses state row i. No two rows share one.
    pub slots_in: *const i32,
    /// [batch]: the state row that each batch row writes, as slots_in.
    pub slots_out: *const i32,
    /// [batch, heads, head_dim]. Overlaps no other tensor.
    pub y: *mut c_void,
    /// A stream of the port's: a hipStream_t, a CUstream, an id<MTLComputeCommandEncoder>; null: the default stream. The CPU port
    /// has none.
    pub stream: *mut c_void,
}

impl Launch {
    /// One contiguous step in f32 with raw, unlimited dt that writes the state; no pointers.
    fn contiguous(dims: Dims) -> Self {
        let null = std::ptr::null::<c_void>();
        let (row, group) = (dims.heads.wrapping_mul(dims.head_dim), dims.groups.wrapping_mul(dims.d_state));
        Self {
            struct_size: size_of::<Self>(),
            dims,
            x_dtype: Dtype::F32 as i32,
            bc_dtype: Dtype::F32 as i32,
            dt_dtype: Dtype::F32 as i32,
            a_log_dtype: Dtype::F32 as i32,
            d_dtype: Dtype::F32 as i32,
            dt_bias_dtype: Dtype::F32 as i32,
            state_dtype: Dtype::F32 as i32,
            dt_mode: Dt::Raw as i32,
            dt_min: 0.0,
            dt_max: f32::INFINITY,
            update_state: 1,
            reserved: 0,
            x_stride: row,
            z_stride: row,
            b_stride: group,
            c_stride: group,
            dt_stride: dims.heads,
            y_stride: row,
            x: null,
            z: null,
            b: null,
            c: null,
            dt: null,
            a_log: null,
            d: null,
            dt_bias: null,
            state_in: null,
            state_out: null.cast_mut(),
            slots_in: null.cast(),
            slots_out: null.cast(),
            y: null.cast_mut(),
            stream: null.cast_mut(),
        }
    }
}

/// Bytes of the struct in the first version of this interface, which every caller has. Fields that come later are not in it.
const FIRST_SIZE: usize = size_of::<Launch>();

/// No version of the struct is as large: a size beyond it is a field that was never set.
const MOST: usize = 4096;

/// Refuses sizes that no version of the struct has.
fn check_size(argument: &str, size: usize) -> Result<(), Fault> {
    if (FIRST_SIZE..=MOST).contains(&size) {
        return Ok(());
    }
    Err(Fault::invalid(argument, format!("sizeof(ssm_update_launch), at least {FIRST_SIZE}"), size))
}

fn check_place<T>(argument: &str, at: *const T) -> Result<(), Fault> {
    match at.is_null() {
        true => Err(Fault::invalid(argument, "a pointer to it", "null")),
        false if !at.is_aligned() => {
            Err(Fault::invalid(argument, format!("a pointer aligned to {} bytes", align_of::<T>()), format!("{at:p}")))
        }
        false => Ok(()),
    }
}

/// The sizes that a caller passes.
///
/// # Safety
///
/// `dims` is null or to the struct.
unsafe fn read_dims(dims: *const Dims) -> Result<Dims, Fault> {
    check_place("dims", dims)?;
    // SAFETY: not null and aligned; the rest is the caller's promise.
    Ok(unsafe { *dims })
}

/// The struct that a caller of any version passes, as this version has it.
///
/// # Safety
///
/// `launch` is null or to as many bytes as its first field says, at least that field.
unsafe fn read(launch: *const Launch) -> Result<Launch, Fault> {
    check_place("launch", launch)?;
    // SAFETY: not null and aligned; the rest is the caller's promise.
    let size = unsafe { (*launch).struct_size };
    check_size("struct_size", size)?;
    // Fields that an older caller does not have are zero. All fields may be: integers, floats and pointers.
    // SAFETY: as the line before says.
    let mut read: Launch = unsafe { std::mem::zeroed() };
    let known = size.min(size_of::<Launch>());
    // SAFETY: `size` bytes are the caller's promise, and `known` is within both.
    unsafe { std::ptr::copy_nonoverlapping(launch.cast::<u8>(), (&raw mut read).cast::<u8>(), known) };
    // SAFETY: the bytes behind those, up to `size`.
    let unknown = unsafe { std::slice::from_raw_parts(launch.cast::<u8>().add(known), size - known) };
    if let Some(at) = unknown.iter().position(|&byte| byte != 0) {
        let expected =
            format!("zero in every field that version {} of the library does not know", crate::ports::VERSION);
        return Err(Fault::invalid("launch", expected, format!("a value at byte {}", known + at)));
    }
    Ok(read)
}

fn dtype(field: &str, number: i32) -> Result<ssm_update::Dtype, Fault> {
    match number {
        n if n == Dtype::F32 as i32 => Ok(ssm_update::Dtype::F32),
        n if n == Dtype::F16 as i32 => Ok(ssm_update::Dtype::F16),
        n if n == Dtype::Bf16 as i32 => Ok(ssm_update::Dtype::Bf16),
        _ => Err(Fault::invalid(field, "one of ssm_update_dtype", number)),
    }
}

impl From<Dims> for ssm_update::Dims {
    fn from(dims: Dims) -> Self {
        let Dims { batch, heads, head_dim, groups, d_state, slots } = dims;
        Self { batch, heads, head_dim, groups, d_state, slots }
    }
}

impl Launch {
    fn problem(&self) -> Result<Problem, Fault> {
        let a_log = dtype("a_log_dtype", self.a_log_dtype)?;
        // The type of a tensor that is not there has no meaning.
        let optional = |field, number, at: *const c_void| if at.is_null() { Ok(a_log) } else { dtype(field, number) };
        let dt = match self.dt_mode {
            n if n == Dt::Raw as i32 => ssm_update::Dt::Raw { min: self.dt_min, max: self.dt_max },
            n if n == Dt::Prepared as i32 => ssm_update::Dt::Prepared,
            n => return Err(Fault::invalid("dt_mode", "one of ssm_update_dt", n)),
        };
        let update_state = match self.update_state {
            0 => false,
            1 => true,
            n => return Err(Fault::invalid("update_state", "0 or 1", n)),
        };
        if self.reserved != 0 {
            return Err(Fault::invalid("reserved", "0", self.reserved));
        }
        Ok(Problem {
            dims: self.dims.into(),
            dtypes: Dtypes {
                x: dtype("x_dtype", self.x_dtype)?,
                bc: dtype("bc_dtype", self.bc_dtype)?,
                dt: dtype("dt_dtype", self.dt_dtype)?,
                a_log,
                d: optional("d_dtype", self.d_dtype, self.d)?,
                dt_bias: optional("dt_bias_dtype", self.dt_bias_dtype, self.dt_bias)?,
                state: dtype("state_dtype", self.state_dtype)?,
            },
            strides: BatchStrides {
                x: self.x_stride,
                z: self.z_stride,
                b: self.b_stride,
                c: self.c_stride,
                dt: self.dt_stride,
                y: self.y_stride,
            },
            dt,
            update_state,
        })
    }

    fn pointers(&self) -> Pointers {
        let &Self { x, z, b, c, dt, a_log, d, dt_bias, state_in, state_out, slots_in, slots_out, y, .. } = self;
        Pointers { x, z, b, c, dt, a_log, d, dt_bias, state_in, state_out, slots_in, slots_out, y }
    }
}

/// The checked launch, and its stream.
///
/// # Safety
///
/// As [`read`].
pub unsafe fn checked(launch: *const Launch) -> Result<(ssm_update::Launch, Stream), Fault> {
    // SAFETY: the caller's promise.
    let launch = unsafe { read(launch) }?;
    Ok((validate(&launch.problem()?, &launch.pointers())?, Stream(launch.stream)))
}

/// Sets a struct to one contiguous step of these sizes: every dtype SSM_UPDATE_DTYPE_F32, raw dt without limits, the state written,
/// every pointer null. Pass sizeof(ssm_update_launch) as struct_size.
///
/// The sizes are not checked here, see ssm_update_check_dims().
///
/// The caller: launch is to struct_size bytes that may be written.
/// Returns SSM_UPDATE_STATUS_INVALID for a null pointer and for a size that no version has; nothing is written then.
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_launch_init(launch: *mut Launch, struct_size: usize, dims: *const Dims) -> Status {
    guard(|| {
        check_place("launch", launch)?;
        check_size("struct_size", struct_size)?;
        // SAFETY: the caller's promise.
        let value = Launch { struct_size, ..Launch::contiguous(unsafe { read_dims(dims) }?) };
        let known = struct_size.min(size_of::<Launch>());
        // SAFETY: `struct_size` bytes are the caller's promise, and `known` is within both.
        unsafe {
            launch.cast::<u8>().write_bytes(0, struct_size);
            std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), launch.cast::<u8>(), known);
        }
        Ok(())
    })
}

/// Whether a kernel serves these sizes, whatever the batch: for engines that choose between kernel and graph once, when a model is
/// loaded. batch and slots are not looked at.
///
/// The caller: dims is to a struct.
/// Returns SSM_UPDATE_STATUS_UNSUPPORTED with the size at fault, or SSM_UPDATE_STATUS_INVALID for a null pointer.
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_check_dims(dims: *const Dims) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let dims = unsafe { read_dims(dims) }?;
        Ok(ssm_update::Dims::from(dims).check()?)
    })
}

/// Checks a step as every port does before it launches, without an open port: sizes, dtypes, strides, limits, pointers that are null or
/// not aligned, the overlap of the two states. No memory of the tensors is read, and the slots are not looked at.
///
/// A port may refuse more, see ssm_update_kernel_launch().
///
/// The caller: launch is to as many bytes as its struct_size says.
/// Returns SSM_UPDATE_STATUS_UNSUPPORTED or SSM_UPDATE_STATUS_INVALID with the field at fault, what was expected and what came.
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_check(launch: *const Launch) -> Status {
    // SAFETY: the caller's promise.
    guard(|| unsafe { checked(launch) }.map(drop))
}
