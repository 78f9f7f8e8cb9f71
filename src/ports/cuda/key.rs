//! What a compiled kernel depends on: every dtype, which tensors are there, how a row of the state is spread over lanes, and whether
//! vectors can be moved.
//! The options of the compiler are made from it and from nothing else.

use crate::{Dt, Dtype, Launch};

/// Lanes of a warp.
pub const WARP: u32 = 32;
/// Warps of one block (`WARPS` in the kernel).
pub const WARPS: u32 = 2;
/// Bytes that one lane moves at once.
const PIECE: u32 = 16;

/// One kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // `Dtypes` and `Pointers` say what each is
pub struct Key {
    pub x: Dtype,
    pub bc: Dtype,
    pub state: Dtype,
    pub dt: Dtype,
    pub a_log: Dtype,
    pub d: Option<Dtype>,
    pub dt_bias: Option<Dtype>,
    pub z: bool,
    pub slots_in: bool,
    pub slots_out: bool,
    /// Whether dt is dt' already.
    pub prepared_dt: bool,
    /// Whether the new state is written.
    pub write_state: bool,
    /// log2 of the lanes that share a row of the state.
    pub row_lanes_log2: u32,
    /// Pieces of 16 bytes that a lane holds of a row: 1, 2 or 4.
    pub chunks: u32,
    /// Whether those cover d_state exactly.
    pub whole_rows: bool,
    /// Whether state, B and C can be moved in vectors.
    pub aligned: bool,
}

impl Key {
    /// The kernel of a launch.
    pub fn of(launch: &Launch) -> Self {
        let (problem, at) = (launch.problem(), launch.at());
        let dtypes = &problem.dtypes;
        let pieces = (problem.dims.d_state * dtypes.state.size()) as u32 / PIECE;
        let row_lanes = pieces.min(WARP).next_power_of_two();
        let chunks = pieces.div_ceil(WARP).next_power_of_two();
        Self {
            x: dtypes.x,
            bc: dtypes.bc,
            state: dtypes.state,
            dt: dtypes.dt,
            a_log: dtypes.a_log,
            d: (!at.d.is_null()).then_some(dtypes.d),
            dt_bias: (!at.dt_bias.is_null()).then_some(dtypes.dt_bias),
            z: !at.z.is_null(),
            slots_in: !at.slots_in.is_null(),
            slots_out: problem.update_state && !at.slots_out.is_null(),
            prepared_dt: problem.dt == Dt::Prepared,
            write_state: problem.update_state,
            row_lanes_log2: row_lanes.ilog2(),
            chunks,
            whole_rows: row_lanes * chunks == pieces,
            aligned: is_aligned(launch),
        }
    }

    /// Rows of a head that one block takes.
    pub fn rows_per_block(&self) -> u32 {
        // `TILES` and `ROWS` in the kernel.
        let (tiles, rows) = (4 / self.chunks, WARP >> self.row_lanes_log2);
        WARPS * tiles * rows
    }

    /// The compiler's definitions: the head of `cuda/ssm_update.cu` says what they mean.
    pub fn definitions(&self) -> Vec<String> {
        // Taken apart without `..`: a new field does not compile until it is here.
        let Self {
            x,
            bc,
            state,
            dt,
            a_log,
            d,
            dt_bias,
            z,
            slots_in,
            slots_out,
            prepared_dt,
            write_state,
            row_lanes_log2,
            chunks,
            whole_rows,
            aligned,
        } = *self;
        // The type of what is absent: any, but always the same.
        let absent = Dtype::F32;
        let dtypes = [
            ("X", x),
            ("BC", bc),
            ("STATE", state),
            ("DT", dt),
            ("A_LOG", a_log),
            ("D", d.unwrap_or(absent)),
            ("DT_BIAS", dt_bias.unwrap_or(absent)),
        ];
        let numbers = [
            ("HAS_Z", z.into()),
            ("HAS_D", d.is_some().into()),
            ("HAS_DT_BIAS", dt_bias.is_some().into()),
            ("HAS_SLOTS_IN", slots_in.into()),
            ("HAS_SLOTS_OUT", slots_out.into()),
            ("PREPARED_DT", prepared_dt.into()),
            ("WRITE_STATE", write_state.into()),
            ("ROW_LANES_LOG2", row_lanes_log2),
            ("CHUNKS", chunks),
            ("WHOLE_ROWS", whole_rows.into()),
            ("ALIGNED", aligned.into()),
        ];
        let dtypes = dtypes.into_iter().map(|(name, dtype)| format!("-DKEY_{name}={}", dtype.name()));
        dtypes.chain(numbers.into_iter().map(|(name, number): (_, u32)| format!("-DKEY_{name}={number}"))).collect()
    }
}

/// Whether every address that the kernel would form for a vector is aligned for it.
fn is_aligned(launch: &Launch) -> bool {
    let (problem, at) = (launch.problem(), launch.at());
    let (dims, dtypes, strides) = (&problem.dims, &problem.dtypes, &problem.strides);
    let piece = PIECE as usize;
    // As many columns as a piece of the state has, and no vector is longer than a piece. Rows and groups begin at multiples of 16
    // elements.
    let columns = (piece / dtypes.state.size() * dtypes.bc.size()).min(piece);
    let batched = |address: usize, stride: usize| {
        address.is_multiple_of(columns) && (dims.batch < 2 || (stride * dtypes.bc.size()).is_multiple_of(columns))
    };
    at.state_in.addr().is_multiple_of(piece)
        && (!problem.update_state || at.state_out.addr().is_multiple_of(piece))
        && batched(at.b.addr(), strides.b)
        && batched(at.c.addr(), strides.c)
}
