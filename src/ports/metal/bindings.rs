//! Which tensor is bound to which number, and how much of it the kernel may reach: pure, in addresses.

use super::abi::{TENSORS, at};
use crate::{Error, Launch};

/// Names of the tensors, by number of their buffer, as in [`Pointers`](crate::Pointers).
pub const NAMES: [&str; TENSORS] =
    ["x", "z", "b", "c", "dt", "a_log", "d", "dt_bias", "state_in", "state_out", "slots_in", "slots_out", "y"];

/// One tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Where it begins; 0 where it is absent, and anything may be bound.
    pub address: usize,
    /// Bytes from there to the end of its last element.
    pub bytes: usize,
}

/// The tensors of a launch with at least one batch row, by number of their buffer.
pub fn of(launch: &Launch) -> [Binding; TENSORS] {
    let (problem, pointers) = (launch.problem(), launch.at());
    let (dims, dtypes, strides) = (problem.dims, problem.dtypes, problem.strides);
    let (channels, columns) = (dims.heads * dims.head_dim, dims.groups * dims.d_state);
    // `validate` saw that none of these overflows.
    let rows = |stride: usize, row: usize| dims.batch.saturating_sub(1) * stride + row;
    let pool = dims.slots * channels * dims.d_state * dtypes.state.size();
    let list = dims.batch * size_of::<i32>();
    let update = |address: usize| if problem.update_state { address } else { 0 };

    let mut bindings = [Binding { address: 0, bytes: 0 }; TENSORS];
    for (number, address, bytes) in [
        (at::X, pointers.x.addr(), rows(strides.x, channels) * dtypes.x.size()),
        (at::Z, pointers.z.addr(), rows(strides.z, channels) * dtypes.x.size()),
        (at::B, pointers.b.addr(), rows(strides.b, columns) * dtypes.bc.size()),
        (at::C, pointers.c.addr(), rows(strides.c, columns) * dtypes.bc.size()),
        (at::DT, pointers.dt.addr(), rows(strides.dt, dims.heads) * dtypes.dt.size()),
        (at::A_LOG, pointers.a_log.addr(), dims.heads * dtypes.a_log.size()),
        (at::D, pointers.d.addr(), dims.heads * dtypes.d.size()),
        (at::DT_BIAS, pointers.dt_bias.addr(), dims.heads * dtypes.dt_bias.size()),
        (at::STATE_IN, pointers.state_in.addr(), pool),
        (at::STATE_OUT, update(pointers.state_out.addr()), pool),
        (at::SLOTS_IN, pointers.slots_in.addr(), list),
        (at::SLOTS_OUT, update(pointers.slots_out.addr()), list),
        (at::Y, pointers.y.addr(), rows(strides.y, channels) * dtypes.x.size()),
    ] {
        if address != 0 {
            bindings[number] = Binding { address, bytes };
        }
    }
    bindings
}

/// Refuses a tensor that its buffer does not hold.
///
/// # Errors
///
/// [`Error::Invalid`] with the tensor's name.
pub fn check_room(number: usize, offset: usize, bytes: usize, length: usize) -> Result<(), Error> {
    if offset.checked_add(bytes).is_some_and(|end| end <= length) {
        return Ok(());
    }
    let expected = format!("{bytes} bytes from its offset to the end of its buffer");
    Err(Error::invalid(NAMES[number], expected, format!("offset {offset} in a buffer of {length} bytes")))
}
