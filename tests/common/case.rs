//! What one parity case consists of. A case is plain data and prints as the line that reproduces it.

use ssm_update::{Dims, Dt, Dtype, Dtypes};

use super::rng::Rng;

/// Which optional tensors are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in `Pointers`
pub struct Optional {
    pub z: bool,
    pub d: bool,
    pub dt_bias: bool,
}

impl Optional {
    /// Every one of them.
    pub const ALL: Self = Self { z: true, d: true, dt_bias: true };

    /// The combination with this number, 0 to 7.
    pub fn nth(number: usize) -> Self {
        Self { z: number & 1 != 0, d: number & 2 != 0, dt_bias: number & 4 != 0 }
    }
}

/// Where the new state goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as in `ssm_update::State`
pub enum StateMode {
    InPlace,
    OutOfPlace,
    ReadOnly,
}

impl StateMode {
    /// Every mode, for tables.
    pub const ALL: [Self; 3] = [Self::InPlace, Self::OutOfPlace, Self::ReadOnly];
}

/// Which state rows the batch uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// No lists, and a pool of exactly `batch` rows.
    Absent,
    /// No lists, and a pool larger than the batch.
    AbsentInPool,
    /// One permuted list for both directions, in a pool larger than the batch.
    Permuted,
    /// As `Permuted`, and every second row from the first on is padding (negative, with several values).
    Padded,
    /// Rows are read from one slot and written to another one of the same pool.
    Moved,
    /// As `Moved`, with padding marked in the one list or in the other only.
    MovedPadded,
    /// A list to read by; row `b` writes slot `b`.
    OnlyIn,
    /// A list to write by; row `b` reads slot `b`.
    OnlyOut,
}

impl Slots {
    /// Every choice, for tables.
    pub const ALL: [Self; 8] = [
        Self::Absent,
        Self::AbsentInPool,
        Self::Permuted,
        Self::Padded,
        Self::Moved,
        Self::MovedPadded,
        Self::OnlyIn,
        Self::OnlyOut,
    ];

    /// Pool rows that a batch needs under this choice.
    pub fn pool(self, batch: usize) -> usize {
        match self {
            Self::Absent => batch,
            Self::AbsentInPool | Self::Permuted | Self::Padded => batch + 2,
            Self::Moved | Self::MovedPadded | Self::OnlyIn | Self::OnlyOut => 2 * batch + 1,
        }
    }

    /// The lists to read and to write by, for a pool of [`Slots::pool`] rows.
    pub fn lists(self, batch: usize, seed: u64) -> (Option<Vec<i32>>, Option<Vec<i32>>) {
        let mut rng = Rng::new(seed, 77);
        let mut order: Vec<i32> = rng.permutation(self.pool(batch)).into_iter().map(|slot| slot as i32).collect();
        let pad = |list: &mut [i32], from: usize| {
            for (row, slot) in list.iter_mut().enumerate().skip(from).step_by(2) {
                *slot = [-1, i32::MIN, -7][row % 3];
            }
        };
        // Slots beyond the batch: free of conflicts with the rows that use slot `b` for want of a list.
        let beyond = |order: &[i32]| order.iter().copied().filter(|&slot| slot as usize >= batch).take(batch).collect();
        match self {
            Self::Absent | Self::AbsentInPool => (None, None),
            Self::Permuted => {
                order.truncate(batch);
                (Some(order.clone()), Some(order))
            }
            Self::Padded => {
                order.truncate(batch);
                pad(&mut order, 0);
                (Some(order.clone()), Some(order))
            }
            Self::Moved => (Some(order[..batch].to_vec()), Some(order[batch..2 * batch].to_vec())),
            Self::MovedPadded => {
                let (mut from, mut to) = (order[..batch].to_vec(), order[batch..2 * batch].to_vec());
                pad(&mut from, 1);
                if let Some(last) = to.last_mut() {
                    *last = -3;
                }
                (Some(from), Some(to))
            }
            Self::OnlyIn => (Some(beyond(&order)), None),
            Self::OnlyOut => (None, Some(beyond(&order))),
        }
    }
}

/// What numbers the tensors hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// As in a trained model.
    Ordinary,
    /// Many elements zero, negative zero or subnormal.
    Tiny,
    /// Many elements large, the products still within f32.
    Huge,
    /// Some elements NaN or infinite.
    Special,
}

/// One parity case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// Sizes; `slots` follows from `slots` below.
    pub dims: Dims,
    /// Element types.
    pub dtypes: Dtypes,
    /// Optional tensors.
    pub optional: Optional,
    /// Treatment of dt.
    pub dt: Dt,
    /// Where the new state goes.
    pub state: StateMode,
    /// Which state rows are used.
    pub slots: Slots,
    /// Elements between batch rows, multiplied by a different small number for each tensor; 0: contiguous.
    pub gap: usize,
    /// What the tensors hold.
    pub values: Values,
    /// Names the numbers.
    pub seed: u64,
}

impl Case {
    /// A case of these sizes (batch, heads, head_dim, groups, d_state), everything in f32, all optional tensors there,
    /// out of place.
    pub fn new(batch: usize, heads: usize, head_dim: usize, groups: usize, d_state: usize) -> Self {
        Self {
            dims: Dims { batch, heads, head_dim, groups, d_state, slots: batch },
            dtypes: Dtypes::uniform(Dtype::F32),
            optional: Optional::ALL,
            dt: Dt::UNCLAMPED,
            state: StateMode::OutOfPlace,
            slots: Slots::Absent,
            gap: 0,
            values: Values::Ordinary,
            seed: (batch * 31 + heads * 37 + head_dim * 41 + groups * 43 + d_state) as u64,
        }
    }

    /// The same with another choice of state rows.
    pub fn slots(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self.dims.slots = slots.pool(self.dims.batch);
        self
    }

    /// The same with another treatment of dt. Prepared dt drops the bias, which it must not have.
    pub fn dt(mut self, dt: Dt) -> Self {
        self.dt = dt;
        self.optional.dt_bias &= dt != Dt::Prepared;
        self
    }
}

/// Treatments of dt that the lists go through: unclamped, limits that bite at both ends, prepared.
pub const DT_MODES: [Dt; 3] = [Dt::UNCLAMPED, Dt::Raw { min: 0.02, max: 0.9 }, Dt::Prepared];

/// T with the dtypes that B and C may have under it.
pub const T_AND_BC: [(Dtype, Dtype); 5] = [
    (Dtype::F32, Dtype::F32),
    (Dtype::F16, Dtype::F16),
    (Dtype::F16, Dtype::F32),
    (Dtype::Bf16, Dtype::Bf16),
    (Dtype::Bf16, Dtype::F32),
];
