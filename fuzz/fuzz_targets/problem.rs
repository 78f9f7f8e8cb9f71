//! The host level with any sizes, lengths and slots: refused with an error that names a field, or computed as the reference does.
#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use half::{bf16, f16};
use libfuzzer_sys::fuzz_target;
use ndarray::{Array1, Array2, Array3, Array4};
use ssm_update::reference::{Inputs, ssm_update};
use ssm_update::{Dims, Dt, Dtype, Error, Kernel, SSM_PORTS, State, Step, Tensor, TensorMut};
use ssm_update_fuzz::Size;

#[derive(Debug, Arbitrary)]
struct Form {
    dtype: u8,
    /// Elements more or fewer than it should have; mostly none.
    excess: i8,
    is_exact: u8,
    stride: Option<Size>,
    offset: u8,
}

#[derive(Debug, Arbitrary)]
struct Input {
    batch: Size,
    heads: Size,
    head_dim: Size,
    groups: Size,
    d_state: Size,
    is_whole: bool,
    slots: Size,
    seed: u8,
    forms: [Form; 5],
    x_dtype: u8,
    state_dtype: u8,
    bc_as_x: bool,
    optional: u8,
    state: u8,
    slots_in: Option<Vec<i8>>,
    slots_out: Option<Vec<i8>>,
    limits: Option<(f32, f32)>,
    is_prepared: bool,
}

/// Elements of a tensor, none of them negative but where it is said, so that nothing cancels and small sums are held to the same
/// bounds as large ones.
#[derive(Clone)]
enum Data {
    F32(Vec<f32>),
    F16(Vec<f16>),
    Bf16(Vec<bf16>),
}

/// More elements are too many for a fuzzer, whatever is right.
const MOST: usize = 1 << 14;

impl Data {
    fn new(dtype: Dtype, count: usize, seed: usize, range: (f32, f32)) -> Self {
        let value = |at: usize| {
            let mixed =
                (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
            range.0 + (range.1 - range.0) * ((mixed >> 40) as f32 / (1 << 24) as f32)
        };
        let values = (0..count).map(value);
        match dtype {
            Dtype::F32 => Self::F32(values.collect()),
            Dtype::F16 => Self::F16(values.map(f16::from_f32).collect()),
            Dtype::Bf16 => Self::Bf16(values.map(bf16::from_f32).collect()),
        }
    }

    fn wide(&self) -> Vec<f64> {
        match self {
            Self::F32(values) => values.iter().map(|&value| value.into()).collect(),
            Self::F16(values) => values.iter().map(|&value| value.into()).collect(),
            Self::Bf16(values) => values.iter().map(|&value| value.into()).collect(),
        }
    }

    fn tensor(&self, stride: Option<usize>) -> Tensor<'_> {
        let tensor = match self {
            Self::F32(values) => Tensor::from(values),
            Self::F16(values) => Tensor::from(values),
            Self::Bf16(values) => Tensor::from(values),
        };
        stride.map_or(tensor, |stride| tensor.batch_stride(stride))
    }

    fn tensor_mut(&mut self, stride: Option<usize>) -> TensorMut<'_> {
        let tensor = match self {
            Self::F32(values) => TensorMut::from(values),
            Self::F16(values) => TensorMut::from(values),
            Self::Bf16(values) => TensorMut::from(values),
        };
        match stride {
            None => tensor,
            Some(stride) => tensor.batch_stride(stride),
        }
    }
}

fn dtype(number: u8) -> Dtype {
    Dtype::ALL[usize::from(number) % 3]
}

/// The largest error that the dtype allows, of the root mean square.
fn bound(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 1e-4,
        Dtype::F16 => 1.2e-2,
        Dtype::Bf16 => 7e-2,
    }
}

fn compare(what: &str, got: &[f64], expected: &[f64], dtype: Dtype) {
    let square: f64 = expected.iter().map(|value| value * value).sum();
    let rms = (square / expected.len().max(1) as f64).sqrt().max(1e-20);
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!((got - expected).abs() / rms < bound(dtype), "{what}[{at}]: {got}, not {expected}");
    }
}

/// The rows of a tensor with a batch stride, one behind the other.
fn rows(data: &Data, batch: usize, row: usize, stride: Option<usize>) -> Vec<f64> {
    let wide = data.wide();
    let stride = stride.unwrap_or(row);
    (0..batch).flat_map(|b| wide[b * stride..b * stride + row].to_vec()).collect()
}

fuzz_target!(|input: Input| run(&input));

fn run(input: &Input) {
    static KERNEL: LazyLock<Box<dyn Kernel>> = LazyLock::new(|| {
        let port = SSM_PORTS.iter().find(|port| port.name == "cpu").expect("it has a row");
        (port.open)().expect("every machine has one")
    });
    let dims = Dims {
        batch: input.batch.0,
        heads: input.heads.0,
        head_dim: input.head_dim.0,
        groups: input.groups.0,
        d_state: if input.is_whole { input.d_state.0.wrapping_mul(16) } else { input.d_state.0 },
        slots: input.slots.0,
    };
    let product = |sizes: &[usize]| sizes.iter().fold(1_usize, |all, &size| all.saturating_mul(size));
    let (row, group) = (product(&[dims.heads, dims.head_dim]), product(&[dims.groups, dims.d_state]));
    let stride = |at: usize| {
        input.forms[at].stride.as_ref().map(|size| if size.0 < 6 { size.0.saturating_add(row) } else { size.0 })
    };
    let count = |at: usize, row: usize| {
        let form = &input.forms[at];
        let whole = match (stride(at), dims.batch.checked_sub(1)) {
            (None, _) => product(&[dims.batch, row]),
            (Some(_), None) => 0,
            (Some(stride), Some(last)) => product(&[last, stride]).saturating_add(row),
        };
        let excess = if form.is_exact < 240 { 0 } else { isize::from(form.excess) };
        whole.min(MOST).saturating_add_signed(excess)
    };
    let state_count = product(&[dims.slots, dims.heads, dims.head_dim, dims.d_state]).min(MOST);
    let per_head = dims.heads.min(MOST);
    let (x_dtype, state_dtype) = (dtype(input.x_dtype), dtype(input.state_dtype));
    let bc_dtype = if input.bc_as_x { x_dtype } else { dtype(input.forms[1].dtype) };
    let seed = usize::from(input.seed) * 16;
    let data = |number, dtype, count, range| Data::new(dtype, count, seed + number, range);
    let positive = (0.5, 1.0);
    let x = data(0, x_dtype, count(0, row), positive);
    let z = data(1, x_dtype, count(0, row), (-2.0, 2.0));
    let b = data(2, bc_dtype, count(1, group), positive);
    let c = data(3, bc_dtype, count(2, group), positive);
    let dt_range = if input.is_prepared { (0.0, 2.0) } else { (-4.0, 4.0) };
    let dt = data(4, dtype(input.forms[3].dtype), count(3, dims.heads), dt_range);
    let a_log = data(5, dtype(input.forms[4].dtype), per_head, (-2.0, 2.0));
    let d = data(6, dtype(input.forms[4].offset), per_head, positive);
    let bias = data(7, dtype(input.forms[3].offset), per_head, (-1.0, 1.0));
    let before = data(8, state_dtype, state_count, positive);
    let y_before = data(9, x_dtype, count(4, row), positive);
    let (mut in_place, mut after, mut y) =
        (before.clone(), data(10, state_dtype, state_count, positive), y_before.clone());
    let untouched = after.clone();

    let list = |list: &Option<Vec<i8>>| -> Option<Vec<i32>> {
        let list = list.as_ref()?;
        // As many as there are rows, mostly.
        let mut list: Vec<i32> = list.iter().map(|&slot| slot.into()).collect();
        if list.len() % 7 != 6 {
            list.resize(dims.batch.min(64), list.len() as i32);
        }
        Some(list)
    };
    let (slots_in, slots_out) = (list(&input.slots_in), list(&input.slots_out));
    let has = |bit: u8| input.optional >> bit & 1 == 1;
    let limits = input.limits.filter(|_| input.seed.is_multiple_of(2)).unwrap_or((0.0, f32::INFINITY));
    let (updates, is_in_place) = (input.state % 3 != 2, input.state % 3 == 0);
    let state = match input.state % 3 {
        0 => State::in_place(in_place.tensor_mut(None)),
        1 => State::out_of_place(before.tensor(None), after.tensor_mut(None)),
        _ => State::read_only(before.tensor(None)),
    };
    let step = Step {
        z: has(0).then(|| z.tensor(stride(0))),
        d: has(1).then(|| d.tensor(None)),
        dt_bias: has(2).then(|| bias.tensor(None)),
        slots_in: slots_in.as_deref(),
        slots_out: slots_out.as_deref(),
        dt_mode: if input.is_prepared { Dt::Prepared } else { Dt::Raw { min: limits.0, max: limits.1 } },
        ..Step::new(
            dims,
            x.tensor(stride(0)),
            b.tensor(stride(1)),
            c.tensor(stride(2)),
            dt.tensor(stride(3)),
            a_log.tensor(None),
            state,
            y.tensor_mut(stride(4)),
        )
    };
    let result = KERNEL.step(step);
    match result {
        Err(Error::Unsupported(why) | Error::Invalid(why)) => {
            assert!(!why.field.is_empty() && !why.expected.is_empty());
            assert_eq!(y.wide(), y_before.wide(), "nothing is written on refusal");
            assert_eq!(in_place.wide(), before.wide());
            assert_eq!(after.wide(), untouched.wide());
            return;
        }
        Err(error) => panic!("{error}"),
        Ok(()) => {}
    }

    // Where dt' may be negative or large, sums cancel or overflow.
    if dims.batch == 0 || !(limits.0 >= 0.0 && limits.0 <= 4.0) {
        return;
    }
    let (batch, heads, head_dim) = (dims.batch, dims.heads, dims.head_dim);
    let shape3 = (batch, heads, head_dim);
    let three = |data: &Data, shape, row, at| {
        Array3::from_shape_vec(shape, rows(data, batch, row, stride(at))).expect("the shape")
    };
    let (wide_x, wide_z) = (three(&x, shape3, row, 0), has(0).then(|| three(&z, shape3, row, 0)));
    let of_group = (batch, dims.groups, dims.d_state);
    let (wide_b, wide_c) = (three(&b, of_group, group, 1), three(&c, of_group, group, 2));
    let wide_dt = Array2::from_shape_vec((batch, heads), rows(&dt, batch, heads, stride(3))).expect("the shape");
    let one = |data: &Data| Array1::from_vec(data.wide());
    let (wide_a, wide_d, wide_bias) = (one(&a_log), has(1).then(|| one(&d)), has(2).then(|| one(&bias)));
    let of_state = (dims.slots, heads, head_dim, dims.d_state);
    let four = |data: &Data| Array4::from_shape_vec(of_state, data.wide()).expect("the shape");
    let wide_state = four(&before);
    let inputs = Inputs {
        x: wide_x.view(),
        z: wide_z.as_ref().map(|z| z.view()),
        b: wide_b.view(),
        c: wide_c.view(),
        dt: wide_dt.view(),
        a_log: wide_a.view(),
        d: wide_d.as_ref().map(|d| d.view()),
        dt_bias: wide_bias.as_ref().map(|bias| bias.view()),
        limits: (!input.is_prepared).then_some((limits.0.into(), limits.1.into())),
        state_in: wide_state.view(),
        slots_in: slots_in.as_deref(),
        slots_out: slots_out.as_deref(),
        update_state: updates,
    };
    let start = if is_in_place { wide_state.clone() } else { four(&untouched) };
    let (expected_y, expected_state) = ssm_update(&inputs, start);
    compare("y", &rows(&y, batch, row, stride(4)), expected_y.as_slice().expect("standard order"), x_dtype);
    if updates {
        let state = if is_in_place { &in_place } else { &after };
        compare("state", &state.wide(), expected_state.as_slice().expect("standard order"), state_dtype);
    }
}
