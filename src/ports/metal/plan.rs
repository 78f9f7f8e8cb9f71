//! From a checked launch to key, constants and grid: pure, so that it is tested without a device.

use super::abi::{self, Constants, flags};
use super::key::{COLUMNS, Key, WAVE, WAVES};
use crate::{Dt, Dtype, Error, Launch};

/// Batch rows of one dispatch. Metal documents no limit of a grid, and MoltenVK promises 2^32 - 1 in each dimension; this is what
/// other platforms have in z, and nobody needs the difference.
pub const GRID_Z_MAX: u32 = 65_535;

/// Threads of a threadgroup.
pub const THREADS: u32 = WAVE * WAVES;

/// How one step is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The kernel.
    pub key: Key,
    /// The constants, for the first batch row on.
    pub constants: Constants,
    /// Threadgroups in x: they cover the rows of a head.
    pub groups_x: u32,
    /// Batch rows: the grid's z, over several dispatches where it is too large for one.
    pub batch: u32,
}

impl Plan {
    /// The plan of a step with at least one batch row.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for sizes that no grid covers.
    pub fn new(launch: &Launch) -> Result<Self, Error> {
        let (problem, at) = (launch.problem(), launch.at());
        let (dims, dtypes, strides) = (&problem.dims, &problem.dtypes, &problem.strides);
        let size = |field, value: usize, most: u32| {
            let fits = u32::try_from(value).ok().filter(|&value| value <= most);
            fits.ok_or_else(|| Error::unsupported(field, format!("at most {most} on the metal port"), value))
        };
        let batch = size("batch", dims.batch, u32::MAX)?;
        let heads = size("heads", dims.heads, u32::MAX)?;
        // The kernel numbers rows in 32 bits, also those of the last threadgroup that do not exist; and a grid's threads are
        // counted in 32 bits.
        let head_dim = size("head_dim", dims.head_dim, u32::MAX / THREADS)?;
        let d_state = size("d_state", dims.d_state, u32::MAX)?;
        // heads divides evenly (validated), and fits.
        let heads_per_group = heads / size("groups", dims.groups, heads)?;
        let key = Key::new(dtypes, d_state)
            .ok_or_else(|| Error::unsupported("d_state", "a size that a kernel exists for", dims.d_state))?;
        let row_lanes_log2 = (d_state / COLUMNS).min(WAVE).next_power_of_two().ilog2();

        // One row has no next one, and its stride may be any number.
        let stride = |elements: usize| if batch > 1 { elements as i64 } else { 0 };
        let (dt_min, dt_max, prepared) = match problem.dt {
            Dt::Raw { min, max } => (min, max, 0),
            Dt::Prepared => (0.0, f32::INFINITY, flags::PREPARED_DT),
        };
        let there = |there: bool, flag: u32| if there { flag } else { 0 };
        let constants = Constants {
            x_stride: stride(strides.x),
            z_stride: stride(strides.z),
            b_stride: stride(strides.b),
            c_stride: stride(strides.c),
            dt_stride: stride(strides.dt),
            y_stride: stride(strides.y),
            slots: dims.slots as i64,
            heads,
            head_dim,
            heads_per_group,
            d_state,
            row_lanes_log2,
            first_batch: 0,
            flags: prepared
                | there(problem.update_state, flags::WRITE_STATE)
                | there(!at.z.is_null(), flags::HAS_Z)
                | there(!at.d.is_null(), flags::HAS_D)
                | there(!at.dt_bias.is_null(), flags::HAS_DT_BIAS)
                | there(!at.slots_in.is_null(), flags::HAS_SLOTS_IN)
                | there(problem.update_state && !at.slots_out.is_null(), flags::HAS_SLOTS_OUT),
            dt_min,
            dt_max,
            dt_dtype: tag(dtypes.dt),
            a_log_dtype: tag(dtypes.a_log),
            d_dtype: tag(dtypes.d),
            dt_bias_dtype: tag(dtypes.dt_bias),
        };
        let rows_of_group = WAVES * key.tiles() * (WAVE >> row_lanes_log2);
        Ok(Self { key, constants, groups_x: head_dim.div_ceil(rows_of_group), batch })
    }

    /// Constants and grid of each dispatch: one, unless the batch is larger than a grid.
    pub fn dispatches(&self) -> impl Iterator<Item = (Constants, [u32; 3])> + use<> {
        let plan = *self;
        (0..plan.batch).step_by(GRID_Z_MAX as usize).map(move |first_batch| {
            let grid = [plan.groups_x, plan.constants.heads, (plan.batch - first_batch).min(GRID_Z_MAX)];
            (Constants { first_batch, ..plan.constants }, grid)
        })
    }
}

fn tag(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::F32 => abi::dtype::F32,
        Dtype::F16 => abi::dtype::F16,
        Dtype::Bf16 => abi::dtype::BF16,
    }
}
