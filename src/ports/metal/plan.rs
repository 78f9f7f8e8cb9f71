//! From a checked launch to key, constants and grid: pure, so that it is tested without a device.

use super::abi::{Constants, flags};
use super::key::{COLUMNS, Key, WAVE, WAVES};
use crate::ports::gpu::params::{self, Sizes, tag};
use crate::{Error, Launch};

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
        let (dtypes, strides) = (&problem.dtypes, &problem.strides);
        // The kernel numbers rows in 32 bits, also those of the last threadgroup that do not exist; and a grid's threads are
        // counted in 32 bits.
        let sizes = Sizes::new("metal", &problem.dims, u32::MAX, u32::MAX / THREADS)?;
        let key = Key::new(dtypes, sizes.d_state)
            .ok_or_else(|| Error::unsupported("d_state", "a size that a kernel exists for", sizes.d_state))?;
        let row_lanes_log2 = (sizes.d_state / COLUMNS).min(WAVE).next_power_of_two().ilog2();
        let (dt_min, dt_max, prepared) = params::dt_mode(problem.dt);
        let there = |there: bool, flag: u32| if there { flag } else { 0 };
        let constants = Constants {
            x_stride: sizes.stride(strides.x),
            z_stride: sizes.stride(strides.z),
            b_stride: sizes.stride(strides.b),
            c_stride: sizes.stride(strides.c),
            dt_stride: sizes.stride(strides.dt),
            y_stride: sizes.stride(strides.y),
            slots: problem.dims.slots as i64,
            heads: sizes.heads,
            head_dim: sizes.head_dim,
            heads_per_group: sizes.heads_per_group,
            d_state: sizes.d_state,
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
        Ok(Self { key, constants, groups_x: sizes.head_dim.div_ceil(rows_of_group), batch: sizes.batch })
    }

    /// Constants and grid of each dispatch: one, unless the batch is larger than a grid.
    pub fn dispatches(&self) -> impl Iterator<Item = (Constants, [u32; 3])> + use<> {
        let plan = *self;
        params::parts(plan.batch).map(move |(first_batch, rows)| {
            (Constants { first_batch, ..plan.constants }, [plan.groups_x, plan.constants.heads, rows])
        })
    }
}
