//! From a checked launch to kernel, parameters and grid: pure, so that it is tested without a device.

use super::key::{Key, WARP, WARPS};
use crate::ports::gpu::abi::{Params, flags};
use crate::ports::gpu::params;
use crate::{Error, Launch};

/// Largest grid in x.
const GRID_X_MAX: u32 = i32::MAX as u32;

/// How one step is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The kernel.
    pub key: Key,
    /// The parameters, for the first batch row on.
    pub params: Params,
    /// Blocks in x: they cover the rows of a head.
    pub groups_x: u32,
    /// Batch rows: the grid's z, over several launches where it is too large for one.
    pub batch: u32,
}

impl Plan {
    /// Threads of a block.
    pub const BLOCK: [u32; 3] = [WARP * WARPS, 1, 1];

    /// The plan of a step with at least one batch row, on a device with so large an L2 cache.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for sizes that no grid covers.
    pub fn new(launch: &Launch, l2_bytes: u64) -> Result<Self, Error> {
        let (mut params, batch) = params::fill("cuda", launch)?;
        let key = Key::of(launch);
        let rows = key.rows_per_block();
        params::size("cuda", "head_dim", launch.problem().dims.head_dim, GRID_X_MAX.saturating_mul(rows))?;
        let groups_x = params.head_dim.div_ceil(rows);
        // What is prefetched has to stay in the cache until it is used, beside what the launch before this one still writes. Of a
        // larger state only the first blocks would be early, and the others would ask twice: measured on an H200, it is faster
        // up to half the cache and slower from all of it on.
        let dims = &launch.problem().dims;
        let slot_bytes = (dims.heads * dims.head_dim * dims.d_state * key.state.size()) as u64;
        if u64::from(batch).saturating_mul(slot_bytes) <= l2_bytes / 2 {
            params.flags |= flags::PREFETCH_STATE;
        }
        Ok(Self { key, params, groups_x, batch })
    }

    /// Parameters and grid of each launch.
    pub fn launches(&self) -> impl Iterator<Item = (Params, [u32; 3])> {
        params::launches(self.params, self.groups_x, self.batch)
    }
}
