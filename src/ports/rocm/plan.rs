//! From a checked launch to kernel, parameters and grid: pure, so that it is tested without a device.

use super::variant::{self, PIECE, STATES, WAVE, WORK_GROUP, X_AND_BC};
use crate::ports::gpu::abi::Params;
use crate::ports::gpu::params;
use crate::{Dtype, Error, Launch};

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
        let (params, batch) = params::fill("rocm", launch)?;
        let dtypes = launch.problem().dtypes;
        let state_bytes = dtypes.state.size() as u32;
        let pieces = params.d_state * state_bytes / PIECE;
        let (kernel, chunks) = kernel(dtypes.x, dtypes.bc, dtypes.state, pieces)
            .ok_or_else(|| Error::unsupported("d_state", "a size that a kernel exists for", params.d_state))?;
        let row_lanes_log2 = pieces.min(WAVE).next_power_of_two().ilog2();
        let rows_of_group = WORK_GROUP / WAVE * variant::tiles(state_bytes, chunks) * (WAVE >> row_lanes_log2);
        let groups_x = params.head_dim.div_ceil(rows_of_group);
        // The runtime counts work-items in 32 bits.
        if groups_x.checked_mul(WORK_GROUP).is_none() {
            let most = u32::MAX / WORK_GROUP * rows_of_group;
            return Err(Error::unsupported("head_dim", format!("at most {most} on the rocm port"), params.head_dim));
        }
        Ok(Self { kernel, params: Params { row_lanes_log2, ..params }, groups_x, batch })
    }

    /// Parameters and grid of each launch.
    pub fn launches(&self) -> impl Iterator<Item = (Params, [u32; 3])> {
        params::launches(self.params, self.groups_x, self.batch)
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
