//! Grid, work-groups, waves and lanes.

/// Lanes of a wave.
pub(crate) const WAVE: u32 = 32;
/// Most work-items of a work-group.
pub(crate) const GROUP_MAX: u32 = 1024;

/// The shape of a launch, in work-items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Work-items in x, y and z. Where it is not a multiple of the work-group, the last one is smaller.
    pub grid: [u32; 3],
    /// Work-items of a work-group in x, y and z.
    pub block: [u32; 3],
}

/// Why a shape is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// A dimension is zero.
    #[error("a dimension of zero: grid {0:?}, block {1:?}")]
    Zero([u32; 3], [u32; 3]),
    /// The work-group is too large.
    #[error("a block of {0:?}: more than {GROUP_MAX} work-items")]
    Block([u32; 3]),
    /// The grid has 2^32 work-items or more in a dimension.
    #[error("{0:?} blocks of {1:?}: 2^32 work-items or more in a dimension")]
    Grid([u32; 3], [u32; 3]),
    /// More work-groups than the simulator numbers.
    #[error("{0:?} blocks: 2^32 or more")]
    Count([u32; 3]),
}

impl Geometry {
    /// Of whole work-groups, as HIP has it.
    ///
    /// # Errors
    ///
    /// When the hardware could not be told this shape.
    pub fn of_blocks(blocks: [u32; 3], block: [u32; 3]) -> Result<Self, GeometryError> {
        if blocks.contains(&0) || block.contains(&0) {
            return Err(GeometryError::Zero(blocks, block));
        }
        let mut grid = [0; 3];
        for axis in 0..3 {
            grid[axis] = blocks[axis].checked_mul(block[axis]).ok_or(GeometryError::Grid(blocks, block))?;
        }
        Self::of_items(grid, block)
    }

    /// Of work-items, as HSA has it.
    ///
    /// # Errors
    ///
    /// When the hardware could not be told this shape.
    pub fn of_items(grid: [u32; 3], block: [u32; 3]) -> Result<Self, GeometryError> {
        if grid.contains(&0) || block.contains(&0) {
            return Err(GeometryError::Zero(grid, block));
        }
        let items = block.iter().try_fold(1_u32, |items, &size| items.checked_mul(size));
        if items.is_none_or(|items| items > GROUP_MAX) {
            return Err(GeometryError::Block(block));
        }
        let geometry = Self { grid, block };
        let groups = geometry.groups();
        let count = groups.iter().try_fold(1_u32, |count, &groups| count.checked_mul(groups));
        count.ok_or(GeometryError::Count(groups))?;
        Ok(geometry)
    }

    /// Work-groups in x, y and z.
    pub fn groups(&self) -> [u32; 3] {
        std::array::from_fn(|axis| self.grid[axis].div_ceil(self.block[axis]))
    }

    /// Work-groups.
    pub fn count(&self) -> u32 {
        self.groups().iter().product()
    }

    /// Dimensions that are used, at least one.
    pub fn dimensions(&self) -> u16 {
        if self.grid[2] > 1 {
            3
        } else if self.grid[1] > 1 {
            2
        } else {
            1
        }
    }

    /// The work-group of a linear number; x counts fastest.
    pub fn group(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.groups();
        [linear % x, linear / x % y, linear / x / y]
    }

    /// Work-items that a work-group has: fewer at the end of a grid that is no multiple.
    pub fn group_size(&self, group: [u32; 3]) -> [u32; 3] {
        std::array::from_fn(|axis| self.block[axis].min(self.grid[axis] - group[axis] * self.block[axis]))
    }

    /// Waves of a work-group.
    pub fn waves(&self, group: [u32; 3]) -> u32 {
        self.group_size(group).iter().product::<u32>().div_ceil(WAVE)
    }

    /// The work-item of a lane, if the lane has one.
    pub fn item(&self, group: [u32; 3], wave: u32, lane: u32) -> Option<[u32; 3]> {
        let [x, y, z] = self.group_size(group);
        let linear = wave * WAVE + lane;
        (linear < x * y * z).then_some([linear % x, linear / x % y, linear / x / y])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_has_one_lane() {
        let geometry = Geometry::of_items([70, 5, 3], [16, 3, 2]).expect("a legal shape");
        assert_eq!((geometry.groups(), geometry.count(), geometry.dimensions()), ([5, 2, 2], 20, 3));
        let mut seen = std::collections::BTreeSet::new();
        for linear in 0..geometry.count() {
            let group = geometry.group(linear);
            for wave in 0..geometry.waves(group) {
                for lane in 0..WAVE {
                    let Some(item) = geometry.item(group, wave, lane) else { continue };
                    let place: [u32; 3] = std::array::from_fn(|axis| group[axis] * geometry.block[axis] + item[axis]);
                    assert!((0..3).all(|axis| place[axis] < geometry.grid[axis]));
                    assert!(seen.insert(place), "{place:?} twice");
                }
            }
        }
        assert_eq!(seen.len(), 70 * 5 * 3);
    }

    #[test]
    fn limits() {
        assert!(Geometry::of_blocks([1, 1, 1], [1024, 1, 1]).is_ok());
        assert_eq!(Geometry::of_blocks([1, 1, 1], [513, 2, 1]), Err(GeometryError::Block([513, 2, 1])));
        assert_eq!(Geometry::of_blocks([1, 0, 1], [1; 3]), Err(GeometryError::Zero([1, 0, 1], [1; 3])));
        assert!(Geometry::of_blocks([0xffff_ffff, 1, 1], [1; 3]).is_ok());
        let grid = Geometry::of_blocks([0x0100_0000, 1, 1], [256, 1, 1]);
        assert_eq!(grid, Err(GeometryError::Grid([0x0100_0000, 1, 1], [256, 1, 1])));
        assert_eq!(Geometry::of_blocks([65536, 65536, 1], [1; 3]), Err(GeometryError::Count([65536, 65536, 1])));
    }
}
