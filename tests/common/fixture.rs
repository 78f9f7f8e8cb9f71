//! A case with its data: every tensor in a guarded buffer, whatever the step must not read left as a poisonous canary.

use std::ops::Range;

use ssm_update::{BatchStrides, Dt, Dtype, Problem};

use super::buffer::{Buffer, Guarded};
use super::case::{Case, StateMode, Values};
use super::rng::Rng;

/// A case and its tensors. A clone is an independent copy to run on.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the tensors are named as in `Pointers`
pub struct Fixture {
    pub case: Case,
    pub strides: BatchStrides,
    pub x: Buffer,
    pub z: Option<Buffer>,
    pub b: Buffer,
    pub c: Buffer,
    pub dt: Buffer,
    pub a_log: Buffer,
    pub d: Option<Buffer>,
    pub dt_bias: Option<Buffer>,
    pub state_in: Buffer,
    /// The output buffer of a step out of place.
    pub state_out: Option<Buffer>,
    pub slots_in: Option<Guarded<i32>>,
    pub slots_out: Option<Guarded<i32>>,
    pub y: Buffer,
}

/// Elements of a batched tensor: the last row does not reach to the stride.
pub fn span(batch: usize, stride: usize, row: usize) -> usize {
    if batch == 0 { 0 } else { (batch - 1) * stride + row }
}

/// Where one kind of tensor draws its values from.
struct Source {
    rng: Rng,
    values: Values,
    /// Range of ordinary values.
    ordinary: (f32, f32),
    /// Largest magnitude among huge values.
    huge: f32,
}

impl Source {
    fn draw(&mut self) -> f32 {
        let rng = &mut self.rng;
        let ordinary = rng.uniform(self.ordinary.0, self.ordinary.1);
        let sign = if rng.below(2) == 0 { 1.0 } else { -1.0 };
        match (self.values, rng.below(24)) {
            (Values::Tiny, 0 | 1) => 0.0 * sign,
            (Values::Tiny, 2..=5) => f32::from_bits(1 + rng.below(0x007f_ffff) as u32) * sign, // subnormal in f32, bf16
            (Values::Tiny, 6..=9) => rng.uniform(6e-8, 6e-5) * sign,                           // subnormal in f16
            (Values::Tiny, 10..=12) => ordinary * 1e-20,
            (Values::Huge, 0..=11) => 10_f32.powf(rng.uniform(0.0, self.huge.log10())) * sign,
            (Values::Special, 0) => [f32::NAN, f32::INFINITY, -f32::INFINITY, -0.0][rng.below(4)],
            _ => ordinary,
        }
    }
}

impl Fixture {
    /// Fills the tensors of a case. Rows of padding keep canaries in all their inputs, and so do state rows that no
    /// batch row reads, gaps between batch rows, y, and the output state.
    pub fn new(case: &Case) -> Self {
        let case = *case;
        let (dims, dtypes) = (case.dims, case.dtypes);
        let (row, group) = (dims.heads * dims.head_dim, dims.groups * dims.d_state);
        // A different gap for each tensor, so that no two strides can be taken for each other.
        let strides = BatchStrides {
            x: row + case.gap,
            z: row + 2 * case.gap,
            b: group + 3 * case.gap,
            c: group + 5 * case.gap,
            dt: dims.heads + 7 * case.gap,
            y: row + 11 * case.gap,
        };
        let (slots_in, slots_out) = case.slots.lists(dims.batch, case.seed);
        let to = slots_out.clone().filter(|_| case.state != StateMode::ReadOnly);
        let live: Vec<bool> = (0..dims.batch)
            .map(|row| {
                slots_in.as_ref().is_none_or(|list| list[row] >= 0) && to.as_ref().is_none_or(|list| list[row] >= 0)
            })
            .collect();
        let source = |stream: u64, ordinary: (f32, f32), huge: f32, dtype: Dtype| Source {
            rng: Rng::new(case.seed, stream),
            values: case.values,
            ordinary,
            huge: if dtype == Dtype::F16 { huge.min(6e4) } else { huge },
        };
        let batched = |dtype: Dtype, stride: usize, row: usize, mut source: Source| {
            let mut buffer = Buffer::new(dtype, span(dims.batch, stride, row));
            for batch_row in (0..dims.batch).filter(|&batch_row| live[batch_row]) {
                for at in 0..row {
                    buffer.set(batch_row * stride + at, source.draw());
                }
            }
            buffer
        };
        let per_head = |dtype: Dtype, mut source: Source| Buffer::of(dtype, (0..dims.heads).map(|_| source.draw()));

        let dt_range = if case.dt == Dt::Prepared { (0.001, 0.5) } else { (-6.0, 2.0) };
        let mut dt = batched(dtypes.dt, strides.dt, dims.heads, source(5, dt_range, 1e4, dtypes.dt));
        if case.dt == Dt::Prepared {
            // A step size is not negative; tests of other prepared values write them themselves.
            for at in 0..dt.len() {
                if dt.get(at) < 0.0 {
                    dt.set(at, -dt.get(at) as f32);
                }
            }
        }

        let slot_len = row * dims.d_state;
        let mut state_in = Buffer::new(dtypes.state, dims.slots * slot_len);
        let mut state_source = source(9, (-1.1, 0.9), 1e20, dtypes.state);
        for batch_row in (0..dims.batch).filter(|&batch_row| live[batch_row]) {
            let slot = slots_in.as_ref().map_or(batch_row, |list| list[batch_row] as usize);
            for at in slot * slot_len..(slot + 1) * slot_len {
                state_in.set(at, state_source.draw());
            }
        }

        Self {
            strides,
            x: batched(dtypes.x, strides.x, row, source(1, (-1.5, 2.0), 1e9, dtypes.x)),
            z: case.optional.z.then(|| batched(dtypes.x, strides.z, row, source(2, (-4.0, 5.0), 1e9, dtypes.x))),
            b: batched(dtypes.bc, strides.b, group, source(3, (-1.0, 1.3), 1e9, dtypes.bc)),
            c: batched(dtypes.bc, strides.c, group, source(4, (-1.2, 1.0), 1e9, dtypes.bc)),
            dt,
            a_log: per_head(dtypes.a_log, source(6, (-1.0, 2.7), 80.0, dtypes.a_log)),
            d: case.optional.d.then(|| per_head(dtypes.d, source(7, (-1.5, 1.7), 1e9, dtypes.d))),
            dt_bias: case
                .optional
                .dt_bias
                .then(|| per_head(dtypes.dt_bias, source(8, (-4.0, 1.0), 1e3, dtypes.dt_bias))),
            state_in,
            state_out: (case.state == StateMode::OutOfPlace).then(|| Buffer::new(dtypes.state, dims.slots * slot_len)),
            slots_in: slots_in.map(|list| Guarded::of(&list)),
            slots_out: slots_out.map(|list| Guarded::of(&list)),
            y: Buffer::new(dtypes.x, span(dims.batch, strides.y, row)),
            case,
        }
    }

    /// The launch-level problem.
    pub fn problem(&self) -> Problem {
        Problem {
            dims: self.case.dims,
            dtypes: self.case.dtypes,
            strides: self.strides,
            dt: self.case.dt,
            update_state: self.case.state != StateMode::ReadOnly,
        }
    }

    /// Elements of one state row.
    pub fn slot_len(&self) -> usize {
        let dims = self.case.dims;
        dims.heads * dims.head_dim * dims.d_state
    }

    /// The state row that a batch row reads and the one it writes (or would write); `None` for padding.
    pub fn row_slots(&self, batch_row: usize) -> Option<(usize, usize)> {
        let slot =
            |list: Option<&Guarded<i32>>| list.map_or(Some(batch_row), |l| usize::try_from(l.body()[batch_row]).ok());
        let written = self.slots_out.as_ref().filter(|_| self.case.state != StateMode::ReadOnly);
        Some((slot(self.slots_in.as_ref())?, slot(written)?))
    }

    /// Elements of y that a step writes, in order.
    pub fn y_ranges(&self) -> Vec<Range<usize>> {
        let row = self.case.dims.heads * self.case.dims.head_dim;
        (0..self.case.dims.batch).map(|b| b * self.strides.y..b * self.strides.y + row).collect()
    }

    /// Elements of the written state that a step writes, in order.
    pub fn state_ranges(&self) -> Vec<Range<usize>> {
        if self.case.state == StateMode::ReadOnly {
            return Vec::new();
        }
        let len = self.slot_len();
        let mut slots: Vec<usize> =
            (0..self.case.dims.batch).filter_map(|b| self.row_slots(b)).map(|(_, to)| to).collect();
        slots.sort_unstable();
        slots.into_iter().map(|slot| slot * len..(slot + 1) * len).collect()
    }

    /// The buffer that holds the state after the step (the input where it is not updated).
    pub fn state_after(&self) -> &Buffer {
        self.state_out.as_ref().unwrap_or(&self.state_in)
    }

    /// Whether another run wrote the same bits.
    pub fn same_results(&self, other: &Self) -> bool {
        self.y.same_bits(&other.y) && self.state_after().same_bits(other.state_after())
    }

    /// Every tensor there is, named as in `Pointers`.
    fn tensors(&self) -> [(&'static str, Option<&Buffer>); 11] {
        [
            ("x", Some(&self.x)),
            ("z", self.z.as_ref()),
            ("b", Some(&self.b)),
            ("c", Some(&self.c)),
            ("dt", Some(&self.dt)),
            ("a_log", Some(&self.a_log)),
            ("d", self.d.as_ref()),
            ("dt_bias", self.dt_bias.as_ref()),
            ("state_in", Some(&self.state_in)),
            ("state_out", self.state_out.as_ref()),
            ("y", Some(&self.y)),
        ]
    }

    /// Names the first element outside the allowed ranges that differs from the fixture `before`.
    fn change(&self, before: &Self, allowed: impl Fn(&str) -> Vec<Range<usize>>) -> Option<String> {
        let changed = |name: &str, at: isize| format!("stray write to {name}, element {at}");
        for ((name, now), (_, then)) in self.tensors().into_iter().zip(before.tensors()) {
            if let Some(at) = now.zip(then).and_then(|(now, then)| now.change_outside(then, &allowed(name))) {
                return Some(changed(name, at));
            }
        }
        [("slots_in", &self.slots_in, &before.slots_in), ("slots_out", &self.slots_out, &before.slots_out)]
            .into_iter()
            .find_map(|(name, now, then)| Some(changed(name, now.as_ref()?.change_outside(then.as_ref()?, &[])?)))
    }

    /// Names the first element that changed although the step must not write it: any input, any guard, any gap, any
    /// state row that is not written. `None` when there is none.
    pub fn stray_write(&self, before: &Self) -> Option<String> {
        let written_state = if self.case.state == StateMode::InPlace { "state_in" } else { "state_out" };
        self.change(before, |name| match name {
            "y" => self.y_ranges(),
            _ if name == written_state => self.state_ranges(),
            _ => Vec::new(),
        })
    }

    /// Names the first element of any buffer, outputs included, that changed at all.
    pub fn any_write(&self, before: &Self) -> Option<String> {
        self.change(before, |_| Vec::new())
    }
}
