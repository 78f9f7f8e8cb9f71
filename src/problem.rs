//! What a call computes ([`Problem`]), where its data is ([`Pointers`]), and the one check above every port
//! ([`validate`]), whose result ([`Launch`]) is the only thing a port accepts.

use std::ffi::c_void;

use crate::{Dtype, Error};

/// Smallest step of `d_state`, and its smallest value.
const D_STATE_STEP: usize = 16;
/// Largest `d_state` that every port serves.
const D_STATE_MAX: usize = 512;

/// The sizes of one call. See the table in [`Pointers`] for the shape of each tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dims {
    /// Sequences that advance by one token. Any number, also 0.
    pub batch: usize,
    /// SSM heads (not attention heads). At least 1. A shard of a model's heads is a legal problem of its own.
    pub heads: usize,
    /// Rows of the state per head (`mamba_d_head`, not attention's head_dim). Any number from 1.
    pub head_dim: usize,
    /// Groups that share B and C; divides `heads`. Head `h` uses group `h / (heads / groups)`.
    pub groups: usize,
    /// Columns of the state. A multiple of 16 from 16 to 512.
    pub d_state: usize,
    /// Rows of the state pool: the state's first dimension, at least `batch` unless slot indices choose the rows.
    pub slots: usize,
}

impl Dims {
    /// Whether a kernel serves these sizes, whatever the batch: what [`validate`] says of them. For engines that choose
    /// between kernel and graph once, when a model is loaded.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] with the field.
    pub fn check(&self) -> Result<(), Error> {
        for (field, size) in [("heads", self.heads), ("head_dim", self.head_dim), ("groups", self.groups)] {
            if size == 0 {
                return Err(Error::unsupported(field, "at least 1", 0));
            }
        }
        if !self.heads.is_multiple_of(self.groups) {
            return Err(Error::unsupported("groups", format!("a divisor of heads = {}", self.heads), self.groups));
        }
        if !self.d_state.is_multiple_of(D_STATE_STEP) || !(D_STATE_STEP..=D_STATE_MAX).contains(&self.d_state) {
            let expected = format!("a multiple of {D_STATE_STEP} from {D_STATE_STEP} to {D_STATE_MAX}");
            return Err(Error::unsupported("d_state", expected, self.d_state));
        }
        Ok(())
    }
}

/// The dtype of each tensor. `x` serves x, z and y.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dtypes {
    /// x, z and y.
    pub x: Dtype,
    /// B and C: the same as `x`, or f32.
    pub bc: Dtype,
    /// dt.
    pub dt: Dtype,
    /// A_log.
    pub a_log: Dtype,
    /// D, if given.
    pub d: Dtype,
    /// dt_bias, if given.
    pub dt_bias: Dtype,
    /// The state, in and out. f32 unless there is a reason: a 16-bit state loses accuracy with every token.
    pub state: Dtype,
}

impl Dtypes {
    /// Every tensor in one dtype, the state in f32.
    pub const fn uniform(dtype: Dtype) -> Self {
        Self { x: dtype, bc: dtype, dt: dtype, a_log: dtype, d: dtype, dt_bias: dtype, state: Dtype::F32 }
    }
}

/// Distance, in elements, from one batch row to the next. The dimensions inside a row are contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchStrides {
    /// Of x; contiguous: `heads * head_dim`.
    pub x: usize,
    /// Of z; contiguous: `heads * head_dim`.
    pub z: usize,
    /// Of B; contiguous: `groups * d_state`.
    pub b: usize,
    /// Of C; contiguous: `groups * d_state`.
    pub c: usize,
    /// Of dt; contiguous: `heads`.
    pub dt: usize,
    /// Of y; contiguous: `heads * head_dim`, and never less.
    pub y: usize,
}

/// How dt becomes the step size dt'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dt {
    /// `dt' = clamp(softplus(dt + dt_bias), min, max)`.
    Raw {
        /// Lower limit.
        min: f32,
        /// Upper limit, at least `min`; infinity for none.
        max: f32,
    },
    /// dt is dt' already; dt_bias must be absent.
    Prepared,
}

impl Dt {
    /// Raw dt with the limits (0, +inf), which clamp nothing.
    pub const UNCLAMPED: Self = Self::Raw { min: 0.0, max: f32::INFINITY };
}

/// What one call computes: sizes, dtypes, strides and modes. Reusable from step to step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Problem {
    /// Sizes.
    pub dims: Dims,
    /// Element types.
    pub dtypes: Dtypes,
    /// Batch strides in elements.
    pub strides: BatchStrides,
    /// Treatment of dt.
    pub dt: Dt,
    /// `false` computes y and leaves every state byte as it is; `state_out` and `slots_out` are then not read.
    pub update_state: bool,
}

impl Problem {
    /// A problem whose tensors are all contiguous, with unclamped raw dt and a state update.
    ///
    /// Sizes are not checked here but by [`validate`].
    pub fn contiguous(dims: Dims, dtypes: Dtypes) -> Self {
        let (row, group) = (dims.heads.wrapping_mul(dims.head_dim), dims.groups.wrapping_mul(dims.d_state));
        Self {
            dims,
            dtypes,
            strides: BatchStrides { x: row, z: row, b: group, c: group, dt: dims.heads, y: row },
            dt: Dt::UNCLAMPED,
            update_state: true,
        }
    }
}

/// Where a call's tensors are, in the memory of the port that runs it.
///
/// | field | shape | dtype | null |
/// |---|---|---|---|
/// | `x` | `[batch, heads, head_dim]` | `dtypes.x` | refused |
/// | `z` | `[batch, heads, head_dim]` | `dtypes.x` | no gate |
/// | `b`, `c` | `[batch, groups, d_state]` | `dtypes.bc` | refused |
/// | `dt` | `[batch, heads]` | `dtypes.dt` | refused |
/// | `a_log` | `[heads]` | `dtypes.a_log` | refused |
/// | `d` | `[heads]` | `dtypes.d` | no skip connection |
/// | `dt_bias` | `[heads]` | `dtypes.dt_bias` | no bias |
/// | `state_in`, `state_out` | `[slots, heads, head_dim, d_state]`, contiguous | `dtypes.state` | refused |
/// | `slots_in`, `slots_out` | `[batch]` | i32 | batch row `b` uses state row `b` |
/// | `y` | `[batch, heads, head_dim]` | `dtypes.x` | refused |
///
/// `state_out` is null or anything else when the state is not updated. It may equal `state_in` (in place); any other
/// overlap of the two is refused. With a batch of 0 every pointer may be null.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // the table above says what each field is
pub struct Pointers {
    pub x: *const c_void,
    pub z: *const c_void,
    pub b: *const c_void,
    pub c: *const c_void,
    pub dt: *const c_void,
    pub a_log: *const c_void,
    pub d: *const c_void,
    pub dt_bias: *const c_void,
    pub state_in: *const c_void,
    pub state_out: *mut c_void,
    pub slots_in: *const i32,
    pub slots_out: *const i32,
    pub y: *mut c_void,
}

impl Pointers {
    /// Every field null.
    pub const NULL: Self = {
        let null = std::ptr::null::<c_void>();
        Self {
            x: null,
            z: null,
            b: null,
            c: null,
            dt: null,
            a_log: null,
            d: null,
            dt_bias: null,
            state_in: null,
            state_out: null.cast_mut(),
            slots_in: null.cast(),
            slots_out: null.cast(),
            y: null.cast_mut(),
        }
    };
}

/// A problem and its pointers that passed [`validate`]. There is no other way to make one.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    problem: Problem,
    at: Pointers,
}

impl Launch {
    /// The checked problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The checked pointers.
    pub fn at(&self) -> &Pointers {
        &self.at
    }

    /// Whether the state is read from and written to one buffer.
    pub fn in_place(&self) -> bool {
        self.problem.update_state && std::ptr::eq(self.at.state_in, self.at.state_out)
    }

    /// The slots to read and to write by, of host memory: what a step looks at. Nothing of a batch of 0, whose pointers may be
    /// anything, and none to write by where nothing is written.
    ///
    /// # Safety
    ///
    /// `batch` indices lie behind each list that is not null, for as long as the answer is used.
    #[allow(unsafe_code)] // raw pointers
    pub(crate) unsafe fn slot_lists<'a>(&self) -> (Option<&'a [i32]>, Option<&'a [i32]>) {
        let batch = self.problem.dims.batch;
        let list = |at: *const i32, used: bool| {
            // SAFETY: `validate` saw that it is aligned, for every batch but 0; the rest is the caller's promise.
            (used && batch > 0 && !at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, batch) })
        };
        (list(self.at.slots_in, true), list(self.at.slots_out, self.problem.update_state))
    }
}

/// Checks everything that can be checked without reading device memory. What the ports may then assume:
///
/// - `batch` is 0, or: heads, head_dim and groups are at least 1, groups divides heads, d_state is a multiple of 16 from
///   16 to 512, and no product of sizes, strides and element bytes that addresses a tensor exceeds `isize::MAX`;
/// - B and C have x's dtype or f32; y's rows do not overlap;
/// - limits are numbers in order; prepared dt comes without dt_bias;
/// - required pointers are not null, all are aligned to their element, and the two states are equal or disjoint;
/// - without slot indices the pool has at least `batch` rows.
///
/// Slot indices are not read here, since they may be in a device's memory: see [`validate_slots`].
///
/// # Errors
///
/// [`Error::Unsupported`] for shapes, strides and dtypes, [`Error::Invalid`] for the rest. Nothing has been written.
pub fn validate(problem: &Problem, at: &Pointers) -> Result<Launch, Error> {
    let launch = Launch { problem: *problem, at: *at };
    problem.dims.check()?;
    check_dtypes(&problem.dtypes)?;
    check_limits(problem, at)?;
    let extents = Extents::of(problem)?;
    if problem.dims.batch > 0 {
        check_pointers(problem, at)?;
        check_state_overlap(problem, at, extents.state_bytes)?;
    }
    Ok(launch)
}

/// Checks slot indices that the host can see: each below `slots`, and no state row used by two batch rows.
///
/// A batch row with a negative index in either list is padding and uses no slot. Pass `None` for an absent list (batch
/// row `b` uses state row `b`) and `slots_out: None, writes: false` when the state is not updated. `in_place` says that
/// both lists index one buffer: then a row may not write what another one reads.
///
/// # Errors
///
/// [`Error::Invalid`] that names the list, the batch row and the index.
pub fn validate_slots(
    dims: &Dims,
    slots_in: Option<&[i32]>,
    slots_out: Option<&[i32]>,
    writes: bool,
    in_place: bool,
) -> Result<(), Error> {
    for (field, list) in [("slots_in", slots_in), ("slots_out", slots_out.filter(|_| writes))] {
        let Some(list) = list else { continue };
        if list.len() != dims.batch {
            return Err(Error::unsupported(field, format!("[batch] = {} indices", dims.batch), list.len()));
        }
        for (row, &slot) in list.iter().enumerate() {
            if usize::try_from(slot).is_ok_and(|slot| slot >= dims.slots) {
                let expected = format!("an index below slots = {} (or negative for padding)", dims.slots);
                return Err(Error::invalid(field, expected, format!("{slot} in batch row {row}")));
            }
        }
    }
    if slots_in.is_none() && (slots_out.is_none() || !writes) {
        return Ok(()); // row b uses slot b: unique by construction
    }

    // (slot, batch row, which list) of every use by a row that is not padding. A slot that occurs for two batch rows
    // within one list, or across the lists of one buffer, would be read and written in no defined order.
    let slot = |list: Option<&[i32]>, row: usize| list.map_or(row as i64, |list| i64::from(list[row]));
    let mut uses = Vec::with_capacity(2 * dims.batch);
    for row in 0..dims.batch {
        let (from, to) = (slot(slots_in, row), if writes { slot(slots_out, row) } else { 0 });
        if from < 0 || to < 0 {
            continue;
        }
        uses.push((from, row, "slots_in"));
        if writes {
            uses.push((to, row, "slots_out"));
        }
    }
    uses.sort_unstable();
    for (at, &(slot, row, field)) in uses.iter().enumerate() {
        let same_slot = uses[at + 1..].iter().take_while(|other| other.0 == slot);
        for &(_, other_row, other_field) in same_slot {
            if other_row != row && (in_place || other_field == field) {
                let got = format!("slot {slot} in batch rows {row} and {other_row}");
                return Err(Error::invalid(other_field, "no slot shared by two batch rows", got));
            }
        }
    }
    Ok(())
}

fn check_dtypes(dtypes: &Dtypes) -> Result<(), Error> {
    if dtypes.bc != dtypes.x && dtypes.bc != Dtype::F32 {
        return Err(Error::unsupported("dtypes.bc", format!("{} (as x) or f32", dtypes.x), dtypes.bc));
    }
    Ok(())
}

fn check_limits(problem: &Problem, at: &Pointers) -> Result<(), Error> {
    match problem.dt {
        // Negated, so that NaN is refused too.
        #[allow(clippy::neg_cmp_op_on_partial_ord)]
        Dt::Raw { min, max } if !(min <= max) => {
            Err(Error::invalid("dt.min, dt.max", "two numbers in ascending order", format!("({min}, {max})")))
        }
        Dt::Prepared if !at.dt_bias.is_null() => {
            Err(Error::invalid("dt_bias", "none, since dt is prepared and gets no bias", "a tensor"))
        }
        _ => Ok(()),
    }
}

/// Sizes in bytes that were computed without overflow.
struct Extents {
    state_bytes: usize,
}

impl Extents {
    fn of(problem: &Problem) -> Result<Self, Error> {
        let Problem { dims, dtypes, strides, .. } = problem;
        // A product that overflows, or an object beyond isize::MAX, cannot exist in memory.
        let bytes = |field: &'static str, factors: &[usize], size: usize| {
            let elements = factors.iter().try_fold(size, |product, &factor| product.checked_mul(factor));
            elements.filter(|&bytes| isize::try_from(bytes).is_ok()).ok_or_else(|| {
                Error::unsupported(
                    field,
                    "a tensor of at most isize::MAX bytes",
                    format!("{factors:?} of {size} bytes"),
                )
            })
        };
        for (field, stride, row, size) in [
            ("x", strides.x, [dims.heads, dims.head_dim], dtypes.x.size()),
            ("z", strides.z, [dims.heads, dims.head_dim], dtypes.x.size()),
            ("b", strides.b, [dims.groups, dims.d_state], dtypes.bc.size()),
            ("c", strides.c, [dims.groups, dims.d_state], dtypes.bc.size()),
            ("dt", strides.dt, [dims.heads, 1], dtypes.dt.size()),
            ("y", strides.y, [dims.heads, dims.head_dim], dtypes.x.size()),
        ] {
            let row_bytes = bytes(field, &row, size)?;
            let last_row = bytes(field, &[dims.batch.saturating_sub(1), stride], size)?;
            bytes(field, &[last_row.saturating_add(row_bytes)], 1)?;
        }
        // Lists of slots, whether or not they are there: no batch is as large.
        bytes("batch", &[dims.batch], size_of::<i32>())?;
        let row = dims.heads * dims.head_dim;
        if dims.batch > 1 && strides.y < row {
            return Err(Error::unsupported("strides.y", format!("at least heads * head_dim = {row}"), strides.y));
        }
        let state = [dims.slots, dims.heads, dims.head_dim, dims.d_state];
        Ok(Self { state_bytes: bytes("slots", &state, dtypes.state.size())? })
    }
}

fn check_pointers(problem: &Problem, at: &Pointers) -> Result<(), Error> {
    let Problem { dims, dtypes, update_state, .. } = problem;
    for (field, pointer, size, required) in [
        ("x", at.x, dtypes.x.size(), true),
        ("z", at.z, dtypes.x.size(), false),
        ("b", at.b, dtypes.bc.size(), true),
        ("c", at.c, dtypes.bc.size(), true),
        ("dt", at.dt, dtypes.dt.size(), true),
        ("a_log", at.a_log, dtypes.a_log.size(), true),
        ("d", at.d, dtypes.d.size(), false),
        ("dt_bias", at.dt_bias, dtypes.dt_bias.size(), false),
        ("state_in", at.state_in, dtypes.state.size(), true),
        ("state_out", if *update_state { at.state_out } else { at.state_in.cast_mut() }, dtypes.state.size(), true),
        ("slots_in", at.slots_in.cast(), size_of::<i32>(), false),
        ("slots_out", at.slots_out.cast(), size_of::<i32>(), false),
        ("y", at.y.cast_const(), dtypes.x.size(), true),
    ] {
        if required && pointer.is_null() {
            return Err(Error::invalid(field, "a pointer to its data", "null"));
        }
        if !pointer.addr().is_multiple_of(size) {
            return Err(Error::invalid(field, format!("a pointer aligned to {size} bytes"), format!("{pointer:p}")));
        }
    }
    let identity = at.slots_in.is_null() || (*update_state && at.slots_out.is_null());
    if identity && dims.slots < dims.batch {
        let expected = format!("at least batch = {}, since no slot indices choose the rows", dims.batch);
        return Err(Error::unsupported("slots", expected, dims.slots));
    }
    Ok(())
}

fn check_state_overlap(problem: &Problem, at: &Pointers, bytes: usize) -> Result<(), Error> {
    let (from, to) = (at.state_in.addr(), at.state_out.addr());
    if problem.update_state && from != to && from.abs_diff(to) < bytes {
        let got = format!("{} bytes apart, of {bytes} bytes each", from.abs_diff(to));
        return Err(Error::invalid("state_out", "the same buffer as state_in, or one apart from it", got));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance;

    use super::*;

    fn launch(batch: usize, update_state: bool, at: Pointers) -> Launch {
        let dims = Dims { batch, heads: 1, head_dim: 1, groups: 1, d_state: 16, slots: 2 };
        let problem = Problem { update_state, ..Problem::contiguous(dims, Dtypes::uniform(Dtype::F32)) };
        validate(&problem, &at).expect("legal")
    }

    /// Pointers that nobody has looked at are not made slices of, not even of empty ones: those have to be aligned, too.
    #[test]
    #[allow(unsafe_code)]
    fn slots_that_are_not_read_may_be_anywhere() {
        let odd = without_provenance::<i32>(0x1001);
        let nothing = Pointers { slots_in: odd, slots_out: odd, ..Pointers::NULL };
        // SAFETY: no indices lie behind the lists of a batch of 0.
        assert_eq!(unsafe { launch(0, true, nothing).slot_lists() }, (None, None));

        let (slots, data) = ([1_i32, 0], [0.0_f32; 64]);
        let x = data.as_ptr().cast();
        let at = Pointers { x, b: x, c: x, dt: x, a_log: x, state_in: x, y: x.cast_mut(), ..Pointers::NULL };
        let at = Pointers { slots_in: slots.as_ptr(), slots_out: without_provenance(0x1000), ..at };
        // SAFETY: two indices lie behind the list to read by, and the one to write by is not used.
        assert_eq!(unsafe { launch(2, false, at).slot_lists() }, (Some(&slots[..]), None));
        let at =
            Pointers { state_out: without_provenance::<c_void>(0x10_0000).cast_mut(), slots_out: slots.as_ptr(), ..at };
        // SAFETY: two indices lie behind both lists.
        assert_eq!(unsafe { launch(2, true, at).slot_lists() }, (Some(&slots[..]), Some(&slots[..])));
    }
}
