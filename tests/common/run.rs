//! Runs a fixture on a kernel at one level of the interface.

use ndarray::ShapeBuilder;
use ssm_update::{Error, Kernel, Pointers, State, Step, Stream, step_at, validate};

use super::buffer::Guarded;
use super::case::StateMode;
use super::fixture::Fixture;
use super::memory;

/// A level of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// `Kernel::step` on slices with batch strides.
    Slices,
    /// `Kernel::step` on `ndarray` views.
    Views,
    /// `validate` and `step_at` on raw pointers.
    Addresses,
    /// `validate` and `Kernel::launch` on raw pointers.
    Launch,
}

impl Level {
    /// Every level, for tables.
    pub const ALL: [Self; 4] = [Self::Slices, Self::Views, Self::Addresses, Self::Launch];
}

/// Runs the step on the fixture's own buffers.
pub fn run(kernel: &dyn Kernel, fixture: &mut Fixture, level: Level) -> Result<(), Error> {
    match level {
        Level::Slices => kernel.step(slices(fixture)),
        Level::Views => kernel.step(views(fixture)),
        Level::Addresses => addresses(kernel, fixture),
        Level::Launch => launch(kernel, fixture),
    }
}

/// Runs the step on a copy of the fixture, and checks that it succeeded and wrote nothing that it must not write.
///
/// # Errors
///
/// What went wrong, in words.
pub fn run_checked(kernel: &dyn Kernel, fixture: &Fixture, level: Level) -> Result<Fixture, String> {
    let mut after = fixture.clone();
    match (run(kernel, &mut after, level), after.stray_write(fixture)) {
        (Err(why), _) => Err(format!("refused: {why}")),
        (Ok(()), Some(stray)) => Err(stray),
        (Ok(()), None) => Ok(after),
    }
}

/// The host-level step on slices, each with its batch stride.
pub fn slices(fixture: &mut Fixture) -> Step<'_> {
    let Fixture { case, strides, .. } = *fixture;
    let state = match (case.state, &mut fixture.state_out) {
        (StateMode::InPlace, _) => State::InPlace(fixture.state_in.tensor_mut(0)),
        (StateMode::OutOfPlace, Some(to)) => {
            State::OutOfPlace { from: fixture.state_in.tensor(0), to: to.tensor_mut(0) }
        }
        _ => State::ReadOnly(fixture.state_in.tensor(0)),
    };
    Step {
        z: fixture.z.as_ref().map(|z| z.tensor(0).batch_stride(strides.z)),
        d: fixture.d.as_ref().map(|d| d.tensor(0)),
        dt_bias: fixture.dt_bias.as_ref().map(|bias| bias.tensor(0)),
        slots_in: fixture.slots_in.as_ref().map(Guarded::body),
        slots_out: fixture.slots_out.as_ref().map(Guarded::body),
        dt_mode: case.dt,
        ..Step::new(
            case.dims,
            fixture.x.tensor(0).batch_stride(strides.x),
            fixture.b.tensor(0).batch_stride(strides.b),
            fixture.c.tensor(0).batch_stride(strides.c),
            fixture.dt.tensor(0).batch_stride(strides.dt),
            fixture.a_log.tensor(0),
            state,
            fixture.y.tensor_mut(0).batch_stride(strides.y),
        )
    }
}

/// The host-level step on `ndarray` views, whose first dimension carries the batch stride.
pub fn views(fixture: &mut Fixture) -> Step<'_> {
    let Fixture { case, strides, .. } = *fixture;
    let dims = case.dims;
    let per_channel = |stride| (dims.batch, dims.heads, dims.head_dim).strides((stride, dims.head_dim, 1));
    let per_group = |stride| (dims.batch, dims.groups, dims.d_state).strides((stride, dims.d_state, 1));
    let per_head = dims.heads.strides(1);
    let (rows, columns) = (dims.head_dim, dims.d_state);
    let pool =
        (dims.slots, dims.heads, rows, columns).strides((dims.heads * rows * columns, rows * columns, columns, 1));
    let state = match (case.state, &mut fixture.state_out) {
        (StateMode::InPlace, _) => State::InPlace(fixture.state_in.view_mut(pool)),
        (StateMode::OutOfPlace, Some(to)) => {
            State::OutOfPlace { from: fixture.state_in.view(pool), to: to.view_mut(pool) }
        }
        _ => State::ReadOnly(fixture.state_in.view(pool)),
    };
    Step {
        z: fixture.z.as_ref().map(|z| z.view(per_channel(strides.z))),
        d: fixture.d.as_ref().map(|d| d.view(per_head)),
        dt_bias: fixture.dt_bias.as_ref().map(|bias| bias.view(per_head)),
        slots_in: fixture.slots_in.as_ref().map(Guarded::body),
        slots_out: fixture.slots_out.as_ref().map(Guarded::body),
        dt_mode: case.dt,
        ..Step::new(
            dims,
            fixture.x.view(per_channel(strides.x)),
            fixture.b.view(per_group(strides.b)),
            fixture.c.view(per_group(strides.c)),
            fixture.dt.view((dims.batch, dims.heads).strides((strides.dt, 1))),
            fixture.a_log.view(per_head),
            state,
            fixture.y.view_mut(per_channel(strides.y)),
        )
    }
}

/// The fixture's tensors, each where `place` puts it: a buffer's start, its length in bytes, and where in it the tensor begins.
fn pointers(fixture: &mut Fixture, mut place: impl FnMut((*mut u8, usize, usize)) -> *mut u8) -> Pointers {
    let mut at = Pointers {
        x: place(fixture.x.raw()).cast(),
        b: place(fixture.b.raw()).cast(),
        c: place(fixture.c.raw()).cast(),
        dt: place(fixture.dt.raw()).cast(),
        a_log: place(fixture.a_log.raw()).cast(),
        y: place(fixture.y.raw()).cast(),
        ..Pointers::NULL
    };
    let state = place(fixture.state_in.raw());
    at.state_in = state.cast();
    at.state_out = match (fixture.case.state, &mut fixture.state_out) {
        (StateMode::OutOfPlace, Some(to)) => place(to.raw()).cast(),
        (StateMode::InPlace, _) => state.cast(),
        _ => std::ptr::null_mut(),
    };
    for (optional, pointer) in
        [(&mut fixture.z, &mut at.z), (&mut fixture.d, &mut at.d), (&mut fixture.dt_bias, &mut at.dt_bias)]
    {
        if let Some(buffer) = optional {
            *pointer = place(buffer.raw()).cast();
        }
    }
    for (optional, pointer) in [(&mut fixture.slots_in, &mut at.slots_in), (&mut fixture.slots_out, &mut at.slots_out)]
    {
        if let Some(list) = optional {
            *pointer = place(list.raw()).cast();
        }
    }
    at
}

/// The host level on raw pointers.
fn addresses(kernel: &dyn Kernel, fixture: &mut Fixture) -> Result<(), Error> {
    let at = pointers(fixture, |(whole, _, body)| whole.wrapping_add(body));
    let launch = validate(&fixture.problem(), &at)?;
    // SAFETY: every pointer is to a whole tensor of the fixture, distinct buffers do not overlap, and nobody else has them.
    unsafe { step_at(kernel, &launch) }
}

/// The launch level, in the memory of the kernel's port.
fn launch(kernel: &dyn Kernel, fixture: &mut Fixture) -> Result<(), Error> {
    let mut memory = memory::of(kernel);
    let at = pointers(fixture, |(whole, len, body)| memory.place(whole, len).wrapping_add(body));
    let result = validate(&fixture.problem(), &at).and_then(|launch| {
        // SAFETY: every pointer is to a whole tensor of the fixture in this port's memory, distinct buffers do not
        // overlap, nobody else has them, and slot lists are unique and within the pool (or visible to a port that
        // checks them).
        unsafe { kernel.launch(&launch, Stream::DEFAULT) }
    });
    memory.collect();
    result
}
