//! The host level of ports with memory of their own: tensors go to the device, one launch runs there, and results come back. For
//! tests, and for engines that keep their data on the host; an engine on the device uses the launch level and copies nothing.

#![allow(unsafe_code)] // the way down to the launch level

use std::ffi::c_void;
use std::ops::Range;

#[cfg(any(feature = "cuda", feature = "rocm", feature = "metal"))]
use crate::Step;
use crate::memory::{Buffer, Memory};
use crate::{Dtype, Error, Kernel, Launch, Pointers, Stream, validate};

/// Runs a step in the memory of its port.
///
/// # Errors
///
/// What [`Kernel::step`] says. Until the launch has succeeded, nothing of the host's is written.
#[cfg(any(feature = "cuda", feature = "rocm", feature = "metal"))]
pub fn step(kernel: &dyn Kernel, memory: &dyn Memory, step: &Step<'_>) -> Result<(), Error> {
    let launch = step.bind()?;
    // SAFETY: `bind` checked lengths, layouts and slots of borrows that `step` holds: shared ones for what is read, exclusive
    // ones for y and the written state.
    unsafe { run(kernel, memory, &launch) }
}

/// Device copies of the tensors that are only read.
struct Inputs<'a> {
    memory: &'a dyn Memory,
    /// They live until the launch is done.
    buffers: Vec<Box<dyn Buffer>>,
}

impl Inputs<'_> {
    /// The device address of a copy; null for null.
    ///
    /// # Safety
    ///
    /// `from` is null or to `len` initialised bytes.
    unsafe fn upload(&mut self, from: *const c_void, len: usize) -> Result<*mut c_void, Error> {
        if from.is_null() {
            return Ok(std::ptr::null_mut());
        }
        let mut buffer = self.memory.allocate(len)?;
        // SAFETY: the caller's promise.
        buffer.upload(0, unsafe { std::slice::from_raw_parts(from.cast(), len) })?;
        let address = buffer.address();
        self.buffers.push(buffer);
        Ok(address)
    }
}

/// [`step`] for tensors of which the addresses are known.
///
/// # Errors
///
/// Faults of the driver. Until the launch has succeeded, nothing of the host's is written.
///
/// # Safety
///
/// The launch's pointers are to whole tensors of host memory that nobody else writes, those of y and the written state to some
/// that nobody else uses; the slots passed `validate_slots`.
pub unsafe fn run(kernel: &dyn Kernel, memory: &dyn Memory, launch: &Launch) -> Result<(), Error> {
    let (problem, at) = (launch.problem(), launch.at());
    if problem.dims.batch == 0 {
        return Ok(());
    }
    let (dims, dtypes, strides) = (problem.dims, problem.dtypes, problem.strides);
    let (channels, columns) = (dims.heads * dims.head_dim, dims.groups * dims.d_state);
    // Bytes from the first element of the first batch row to the last of the last one.
    let extent = |stride: usize, row: usize, dtype: Dtype| ((dims.batch - 1) * stride + row) * dtype.size();
    let indices = dims.batch * size_of::<i32>();

    // Of the pool only the slots that are used travel.
    // SAFETY: `batch` indices behind each list that is there.
    let (from, to) = unsafe { launch.slot_lists() };
    let slot_bytes = channels * dims.d_state * dtypes.state.size();
    let pool_bytes = (dims.slots * slot_bytes).max(1); // a pool without slots has an address too: every row may be padding
    let mut state_in = memory.allocate(pool_bytes)?;
    for slots in used(from, to, dims.batch) {
        let (offset, len) = (slots.start * slot_bytes, slots.len() * slot_bytes);
        // SAFETY: slots of the pool.
        let part = unsafe { std::slice::from_raw_parts(at.state_in.cast::<u8>().add(offset), len) };
        state_in.upload(offset, part)?;
    }
    let apart = problem.update_state && !launch.in_place();
    let state_apart = if apart { Some(memory.allocate(pool_bytes)?) } else { None };
    let state_out = state_apart.as_ref().unwrap_or(&state_in);
    let y = memory.allocate(extent(strides.y, channels, dtypes.x))?;

    let mut inputs = Inputs { memory, buffers: Vec::new() };
    // SAFETY: each tensor with the extent that `validate` computed for it.
    let pointers = unsafe {
        Pointers {
            x: inputs.upload(at.x, extent(strides.x, channels, dtypes.x))?,
            z: inputs.upload(at.z, extent(strides.z, channels, dtypes.x))?,
            b: inputs.upload(at.b, extent(strides.b, columns, dtypes.bc))?,
            c: inputs.upload(at.c, extent(strides.c, columns, dtypes.bc))?,
            dt: inputs.upload(at.dt, extent(strides.dt, dims.heads, dtypes.dt))?,
            a_log: inputs.upload(at.a_log, dims.heads * dtypes.a_log.size())?,
            d: inputs.upload(at.d, dims.heads * dtypes.d.size())?,
            dt_bias: inputs.upload(at.dt_bias, dims.heads * dtypes.dt_bias.size())?,
            state_in: state_in.address(),
            state_out: if problem.update_state { state_out.address() } else { std::ptr::null_mut() },
            slots_in: inputs.upload(at.slots_in.cast(), indices)?.cast(),
            slots_out: match problem.update_state {
                true => inputs.upload(at.slots_out.cast(), indices)?.cast(),
                false => std::ptr::null(),
            },
            y: y.address(),
        }
    };

    let on_device = validate(problem, &pointers)?;
    // SAFETY: every pointer is to a whole tensor in the port's memory, filled where the step reads; the buffers live until the
    // synchronisation below.
    let queued = unsafe { kernel.launch(&on_device, Stream::DEFAULT) };
    // Also after a launch that failed: a part of it may be running.
    let done = memory.synchronize();
    queued.and(done)?;

    for row in 0..dims.batch {
        // What lies between the rows is not ours.
        let offset = row * strides.y * dtypes.x.size();
        // SAFETY: a row of y.
        let part = unsafe { std::slice::from_raw_parts_mut(at.y.cast::<u8>().add(offset), channels * dtypes.x.size()) };
        y.download(offset, part)?;
    }
    for slots in used(to, from, dims.batch).into_iter().filter(|_| problem.update_state) {
        let (offset, len) = (slots.start * slot_bytes, slots.len() * slot_bytes);
        // SAFETY: slots of the pool.
        let part = unsafe { std::slice::from_raw_parts_mut(at.state_out.cast::<u8>().add(offset), len) };
        state_out.download(offset, part)?;
    }
    Ok(())
}

/// The slots that one list uses, as ascending ranges. A row that is padding in the other list uses none here either.
fn used(list: Option<&[i32]>, other: Option<&[i32]>, batch: usize) -> Vec<Range<usize>> {
    let slot = |list: Option<&[i32]>, row: usize| list.map_or(Some(row), |list| usize::try_from(list[row]).ok());
    let mut slots: Vec<usize> = (0..batch).filter_map(|row| slot(other, row).and_then(|_| slot(list, row))).collect();
    slots.sort_unstable();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some(last) if last.end == slot => last.end += 1,
            _ => ranges.push(slot..slot + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::used;

    #[test]
    fn neighbouring_slots_travel_together_and_padding_does_not() {
        let ends = |list: Option<&[i32]>, other: Option<&[i32]>, batch| -> Vec<(usize, usize)> {
            used(list, other, batch).into_iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(ends(None, None, 3), [(0, 3)]);
        assert_eq!(ends(Some(&[7, 2, 3]), None, 3), [(2, 4), (7, 8)]);
        assert_eq!(ends(Some(&[7, -1, 3]), None, 3), [(3, 4), (7, 8)]);
        assert_eq!(ends(Some(&[4, 5, 6]), Some(&[0, -1, 1]), 3), [(4, 5), (6, 7)]);
        assert_eq!(ends(None, Some(&[-1]), 1), []);
    }
}
