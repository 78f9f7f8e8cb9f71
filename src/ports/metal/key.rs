//! The kernels: one per dtype of x, z and y, of B and C, and of the state, and per number of pieces that a lane has of a row. The
//! dtypes of dt and the per-head vectors are tags in the constants.

use std::fmt;

use crate::{Dtype, Dtypes};

/// Dtypes of x, z and y with those of B and C.
pub const X_AND_BC: [(Dtype, Dtype); 5] = [
    (Dtype::F32, Dtype::F32),
    (Dtype::F16, Dtype::F16),
    (Dtype::F16, Dtype::F32),
    (Dtype::Bf16, Dtype::Bf16),
    (Dtype::Bf16, Dtype::F32),
];

/// Pieces of a row that one lane may have: 32 lanes of 4 pieces of 4 columns are the largest d_state, 512.
pub const CHUNKS: [u32; 3] = [1, 2, 4];

/// Threads of a SIMD-group, for which the kernel is written.
pub const WAVE: u32 = 32;

/// SIMD-groups of a threadgroup.
pub const WAVES: u32 = 4;

/// Columns of a piece, whatever the dtype.
pub const COLUMNS: u32 = 4;

/// Number of keys.
pub const KEYS: usize = X_AND_BC.len() * Dtype::ALL.len() * CHUNKS.len();

/// What one kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// x, z and y.
    pub x: Dtype,
    /// B and C.
    pub bc: Dtype,
    /// The state.
    pub state: Dtype,
    /// Pieces of a row of the state that one lane has.
    pub chunks: u32,
}

impl Key {
    /// The kernel for these dtypes and a d_state: the one with the fewest pieces that hold a row. `None` where there is none.
    pub fn new(dtypes: &Dtypes, d_state: u32) -> Option<Self> {
        let chunks = CHUNKS.into_iter().find(|chunks| d_state <= chunks * WAVE * COLUMNS)?;
        let key = Self { x: dtypes.x, bc: dtypes.bc, state: dtypes.state, chunks };
        X_AND_BC.contains(&(key.x, key.bc)).then_some(key)
    }

    /// Every key, in the order of [`number`](Self::number).
    pub fn all() -> impl Iterator<Item = Self> {
        let of_pair = |(x, bc)| {
            let of_state = move |state| CHUNKS.into_iter().map(move |chunks| Self { x, bc, state, chunks });
            Dtype::ALL.into_iter().flat_map(of_state)
        };
        X_AND_BC.into_iter().flat_map(of_pair)
    }

    /// Its place among all keys. `None` for one that is not among them.
    pub fn number(&self) -> Option<usize> {
        let pair = X_AND_BC.iter().position(|pair| *pair == (self.x, self.bc))?;
        let state = Dtype::ALL.iter().position(|dtype| *dtype == self.state)?;
        let chunks = CHUNKS.iter().position(|chunks| *chunks == self.chunks)?;
        Some((pair * Dtype::ALL.len() + state) * CHUNKS.len() + chunks)
    }

    /// Tiles of rows that one SIMD-group has in flight. `TILES` in the kernel.
    pub fn tiles(&self) -> u32 {
        COLUMNS / self.chunks
    }

    /// Whether the kernel uses the language's `bfloat`.
    pub fn needs_bfloat(&self) -> bool {
        [self.x, self.bc, self.state].contains(&Dtype::Bf16)
    }
}

impl fmt::Display for Key {
    /// The name of the pipeline, such as `ssm_update_bf16_f32_f32_k1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ssm_update_{}_{}_{}_k{}", self.x, self.bc, self.state, self.chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_the_number_of_its_place_and_a_name_of_its_own() {
        let all: Vec<Key> = Key::all().collect();
        assert_eq!(all.len(), KEYS);
        let names: std::collections::HashSet<String> = all.iter().map(Key::to_string).collect();
        assert_eq!(names.len(), KEYS);
        for (at, key) in all.iter().enumerate() {
            assert_eq!(key.number(), Some(at), "{key}");
        }
        assert_eq!(Key { chunks: 3, ..all[0] }.number(), None);
        assert_eq!(Key { bc: Dtype::F16, ..all[0] }.number(), None);
    }

    #[test]
    fn a_row_gets_the_fewest_pieces_that_hold_it() {
        let dtypes = Dtypes::uniform(Dtype::F16);
        for d_state in (16..=512).step_by(16) {
            let key = Key::new(&dtypes, d_state).expect("every d_state has a kernel");
            let wanted = if d_state <= 128 {
                1
            } else if d_state <= 256 {
                2
            } else {
                4
            };
            assert_eq!(key.chunks, wanted, "{d_state}");
            assert_eq!(key.tiles() * key.chunks, 4);
        }
        assert_eq!(Key::new(&dtypes, 528), None);
        assert_eq!(Key::new(&Dtypes { bc: Dtype::Bf16, ..dtypes }, 128), None);
    }

    #[test]
    fn bfloat_is_needed_where_any_tensor_of_the_key_has_it() {
        let of = |x, bc, state| Key { x, bc, state, chunks: 1 }.needs_bfloat();
        assert!(!of(Dtype::F16, Dtype::F32, Dtype::F16));
        assert!(of(Dtype::Bf16, Dtype::F32, Dtype::F32));
        assert!(of(Dtype::F32, Dtype::F32, Dtype::Bf16));
        assert!(of(Dtype::Bf16, Dtype::Bf16, Dtype::F32));
    }
}
