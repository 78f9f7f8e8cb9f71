//! From a checked launch to the kernels' parameters: pure, so that it is tested without a device. The Metal port has other parameters and
//! takes the pieces.

use super::abi::{self, Params};
use crate::{Dims, Dt, Dtype, Error, Launch};

/// Largest grid in y and z. HIP promises 65536 there; one less is what CUDA has, and nobody needs the difference. Metal documents no
/// limit.
pub const GRID_YZ_MAX: u32 = 65_535;

/// A size that fits a field of the kernel.
///
/// # Errors
///
/// [`Error::Unsupported`] where it does not.
pub fn size(port: &str, field: &'static str, value: usize, most: u32) -> Result<u32, Error> {
    let fits = u32::try_from(value).ok().filter(|&value| value <= most);
    fits.ok_or_else(|| Error::unsupported(field, format!("at most {most} on the {port} port"), value))
}

/// The sizes of a step, as kernels take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // `Dims` says what each is
pub struct Sizes {
    pub batch: u32,
    pub heads: u32,
    pub head_dim: u32,
    pub d_state: u32,
    pub heads_per_group: u32,
}

impl Sizes {
    /// The sizes of a problem that passed validation, with at most so many heads and rows of a head.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for sizes that no grid covers.
    pub fn new(port: &str, dims: &Dims, heads_max: u32, head_dim_max: u32) -> Result<Self, Error> {
        let batch = size(port, "batch", dims.batch, u32::MAX)?;
        let heads = size(port, "heads", dims.heads, heads_max)?;
        let head_dim = size(port, "head_dim", dims.head_dim, head_dim_max)?;
        let d_state = size(port, "d_state", dims.d_state, u32::MAX)?;
        // heads divides evenly (validated), and fits.
        let heads_per_group = heads / size(port, "groups", dims.groups, heads)?;
        Ok(Self { batch, heads, head_dim, d_state, heads_per_group })
    }

    /// A batch stride, as kernels take it. One row has no next one, and its stride may be any number.
    pub fn stride(&self, elements: usize) -> i64 {
        if self.batch > 1 { elements as i64 } else { 0 }
    }
}

/// Limits of dt', and the flag where dt is dt' already.
pub fn dt_mode(dt: Dt) -> (f32, f32, u32) {
    match dt {
        Dt::Raw { min, max } => (min, max, 0),
        Dt::Prepared => (0.0, f32::INFINITY, abi::flags::PREPARED_DT),
    }
}

/// The batch rows of each launch, first and number: one launch, unless the batch is larger than a grid.
pub fn parts(batch: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..batch).step_by(GRID_YZ_MAX as usize).map(move |first| (first, (batch - first).min(GRID_YZ_MAX)))
}

/// The parameters of a step with at least one batch row, for the first row on, and the number of rows. What only one port's
/// kernels read is left at zero.
///
/// # Errors
///
/// [`Error::Unsupported`] for sizes that no grid covers.
pub fn fill(port: &str, launch: &Launch) -> Result<(Params, u32), Error> {
    let (problem, at) = (launch.problem(), launch.at());
    let (dtypes, strides) = (&problem.dtypes, &problem.strides);
    let sizes = Sizes::new(port, &problem.dims, GRID_YZ_MAX, u32::MAX)?;
    let (dt_min, dt_max, prepared) = dt_mode(problem.dt);
    let (state_out, slots_out, write) = if problem.update_state {
        (at.state_out.addr(), at.slots_out.addr(), abi::flags::WRITE_STATE)
    } else {
        (0, 0, 0)
    };
    let params = Params {
        x: at.x.addr() as u64,
        z: at.z.addr() as u64,
        b: at.b.addr() as u64,
        c: at.c.addr() as u64,
        dt: at.dt.addr() as u64,
        a_log: at.a_log.addr() as u64,
        d: at.d.addr() as u64,
        dt_bias: at.dt_bias.addr() as u64,
        state_in: at.state_in.addr() as u64,
        state_out: state_out as u64,
        slots_in: at.slots_in.addr() as u64,
        slots_out: slots_out as u64,
        y: at.y.addr() as u64,
        x_stride: sizes.stride(strides.x),
        z_stride: sizes.stride(strides.z),
        b_stride: sizes.stride(strides.b),
        c_stride: sizes.stride(strides.c),
        dt_stride: sizes.stride(strides.dt),
        y_stride: sizes.stride(strides.y),
        slots: problem.dims.slots as i64,
        group_multiplier: group_multiplier(sizes.heads_per_group),
        heads: sizes.heads,
        head_dim: sizes.head_dim,
        d_state: sizes.d_state,
        row_lanes_log2: 0,
        dt_min,
        dt_max,
        dt_dtype: tag(dtypes.dt),
        a_log_dtype: tag(dtypes.a_log),
        d_dtype: tag(dtypes.d),
        dt_bias_dtype: tag(dtypes.dt_bias),
        flags: prepared | write,
        first_batch: 0,
        unused: 0,
    };
    Ok((params, sizes.batch))
}

/// Parameters and grid of each launch.
pub fn launches(params: Params, groups_x: u32, batch: u32) -> impl Iterator<Item = (Params, [u32; 3])> {
    parts(batch).map(move |(first_batch, rows)| (Params { first_batch, ..params }, [groups_x, params.heads, rows]))
}

/// The number by which a kernel multiplies a head to find its group, in place of a division, which takes a GPU tens of instructions
/// ahead of its first load: `h * m >> 32` is `h / heads_per_group`.
///
/// Exact: with d = heads_per_group and m = ceil(2^32 / d), `h * m / 2^32` exceeds `h / d` by less than `h / 2^32`, which does not
/// reach the next whole number where `h * d < 2^32`; both are below 2^16.
pub fn group_multiplier(heads_per_group: u32) -> u64 {
    (1_u64 << 32).div_ceil(heads_per_group.into())
}

/// The tag of an element type.
pub fn tag(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::F32 => abi::dtype::F32,
        Dtype::F16 => abi::dtype::F16,
        Dtype::Bf16 => abi::dtype::BF16,
    }
}

#[cfg(test)]
mod tests {
    use super::{GRID_YZ_MAX, group_multiplier};

    #[test]
    fn the_multiplier_divides() {
        let edges = |h: u32| [h.saturating_sub(1), h, h + 1];
        for d in 1..=GRID_YZ_MAX {
            let multiples = [0, d, 2 * d, GRID_YZ_MAX / d * d, GRID_YZ_MAX / d / 2 * d];
            for h in multiples.into_iter().flat_map(edges).filter(|&h| h < GRID_YZ_MAX) {
                assert_eq!((u64::from(h) * group_multiplier(d)) >> 32, u64::from(h / d), "{h} / {d}");
            }
        }
    }
}
