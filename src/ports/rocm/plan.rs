//! From a checked launch to kernel, parameters and grid: pure, so that it is tested without a device.

use super::abi::{self, Params};
use super::variant::{self, PIECE, STATES, WAVE, WORK_GROUP, X_AND_BC};
use crate::{Dt, Dtype, Error, Launch};

/// Largest grid in y and z. HIP promises 65536 there; one less is what CUDA has, and nobody needs the difference.
pub const GRID_YZ_MAX: u32 = 65_535;

/// How one step is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Number of the kernel in [`variant::names`].
    pub kernel: usize,
    /// The parameters, for the first batch row on.
    pub params: Params,
    /// Work-groups in x: they cover the rows of a head.
    pub groups_x: u32,
    /// Batch rows: the grid's z, over several launches where it is too large for one.
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
            fits.ok_or_else(|| Error::unsupported(field, format!("at most {most} on the rocm port"), value))
        };
        let batch = size("batch", dims.batch, u32::MAX)?;
        let heads = size("heads", dims.heads, GRID_YZ_MAX)?;
        let head_dim = size("head_dim", dims.head_dim, u32::MAX)?;
        let d_state = size("d_state", dims.d_state, u32::MAX)?;
        // heads divides evenly (validated), and fits.
        let heads_per_group = heads / size("groups", dims.groups, heads)?;

        let state_bytes = dtypes.state.size() as u32;
        let pieces = d_state * state_bytes / PIECE;
        let (kernel, chunks) = kernel(dtypes.x, dtypes.bc, dtypes.state, pieces)
            .ok_or_else(|| Error::unsupported("d_state", "a size that a kernel exists for", dims.d_state))?;
        let row_lanes_log2 = pieces.min(WAVE).next_power_of_two().ilog2();
        let rows_of_group = WORK_GROUP / WAVE * variant::tiles(state_bytes, chunks) * (WAVE >> row_lanes_log2);
        let groups_x = head_dim.div_ceil(rows_of_group);
        // The runtime counts work-items in 32 bits.
        if groups_x.checked_mul(WORK_GROUP).is_none() {
            let most = u32::MAX / WORK_GROUP * rows_of_group;
            return Err(Error::unsupported("head_dim", format!("at most {most} on the rocm port"), head_dim));
        }

        // One row has no next one, and its stride may be any number.
        let stride = |elements: usize| if batch > 1 { elements as i64 } else { 0 };
        let (dt_min, dt_max, prepared) = match problem.dt {
            Dt::Raw { min, max } => (min, max, 0),
            Dt::Prepared => (0.0, f32::INFINITY, abi::flags::PREPARED_DT),
        };
        let (state_out, slots_out, update) = if problem.update_state {
            (at.state_out.addr(), at.slots_out.addr(), abi::flags::UPDATE_STATE)
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
            dt_min,
            dt_max,
            dt_dtype: tag(dtypes.dt),
            a_log_dtype: tag(dtypes.a_log),
            d_dtype: tag(dtypes.d),
            dt_bias_dtype: tag(dtypes.dt_bias),
            flags: prepared | update,
            first_batch: 0,
        };
        Ok(Self { kernel, params, groups_x, batch })
    }

    /// Parameters and grid of each launch: one, unless the batch is larger than a grid.
    pub fn launches(&self) -> impl Iterator<Item = (Params, [u32; 3])> {
        let plan = *self;
        (0..plan.batch).step_by(GRID_YZ_MAX as usize).map(move |first_batch| {
            let grid = [plan.groups_x, plan.params.heads, (plan.batch - first_batch).min(GRID_YZ_MAX)];
            (Params { first_batch, ..plan.params }, grid)
        })
    }
}

/// The kernel's number and its pieces per lane: the smallest variant that holds a row of so many pieces.
fn kernel(x: Dtype, bc: Dtype, state: Dtype, pieces: u32) -> Option<(usize, u32)> {
    let per_state = |chunks: &[u32]| chunks.len();
    let block: usize = STATES.iter().map(|(_, chunks)| per_state(chunks)).sum();
    let tensor = X_AND_BC.iter().position(|&pair| pair == (x.name(), bc.name()))?;
    let row = STATES.iter().position(|(name, _)| *name == state.name())?;
    let before: usize = STATES[..row].iter().map(|(_, chunks)| per_state(chunks)).sum();
    let chunk = STATES[row].1.iter().position(|&chunks| pieces <= chunks * WAVE)?;
    Some((tensor * block + before + chunk, STATES[row].1[chunk]))
}

fn tag(dtype: Dtype) -> u8 {
    match dtype {
        Dtype::F32 => abi::dtype::F32,
        Dtype::F16 => abi::dtype::F16,
        Dtype::Bf16 => abi::dtype::BF16,
    }
}
