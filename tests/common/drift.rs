//! Many steps with fresh inputs, against the reference that keeps its own state in f64: how errors grow.

use ndarray::{Array1, Array2, Array3, Array4};
use ssm_update::reference::{Inputs, ssm_update};
use ssm_update::{Dims, Dtype, Element, Kernel, State, Step};

use super::buffer::Buffer;
use super::expect::measure;
use super::rng::Rng;

/// Sizes of the run: four heads whose memories last from a few tokens to about a thousand.
pub const DIMS: Dims = Dims { batch: 1, heads: 4, head_dim: 16, groups: 2, d_state: 64, slots: 1 };

/// A_log of each head: A from 1 to 16, as models are initialised.
const A_LOG: [f32; 4] = [0.0, 0.9, 1.9, 2.77];
/// dt_bias of each head: softplus of it is 0.001, 0.0055, 0.022 and 0.1.
const DT_BIAS: [f32; 4] = [-6.907, -5.2, -3.8, -2.25];
const D: [f32; 4] = [1.0, 0.7, 1.3, -0.4];

/// The inputs of one step.
struct Token {
    x: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
    dt: Vec<f32>,
}

impl Token {
    /// Rounded to `dtype`, as the activations of a model of that dtype.
    fn new(step: usize, dtype: Dtype) -> Self {
        let mut rng = Rng::new(step as u64, 4242);
        let mut draw = |len: usize, low, high| {
            let rounded = Buffer::of(dtype, (0..len).map(|_| rng.uniform(low, high)));
            (0..len).map(|at| rounded.get(at) as f32).collect()
        };
        Self {
            x: draw(DIMS.heads * DIMS.head_dim, -1.5, 2.0),
            b: draw(DIMS.groups * DIMS.d_state, -1.0, 1.3),
            c: draw(DIMS.groups * DIMS.d_state, -1.2, 1.0),
            dt: draw(DIMS.heads, -1.0, 1.0),
        }
    }
}

/// What the reference has after a step.
#[derive(Clone, Debug)]
pub struct Truth {
    /// Steps done.
    pub step: usize,
    y: Vec<f64>,
    state: Vec<f64>,
}

/// Runs the reference, and keeps what it has after the steps in `at` (ascending). Inputs are rounded to `dtype`.
pub fn truth(at: &[usize], dtype: Dtype) -> Vec<Truth> {
    let wide = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let mut state = Array4::zeros((1, DIMS.heads, DIMS.head_dim, DIMS.d_state));
    let (a_log, d, bias) = (Array1::from(wide(&A_LOG)), Array1::from(wide(&D)), Array1::from(wide(&DT_BIAS)));
    let mut kept = Vec::new();
    for step in 1..=at.last().copied().unwrap_or(0) {
        let token = Token::new(step, dtype);
        let group = (1, DIMS.groups, DIMS.d_state);
        let x = Array3::from_shape_vec((1, DIMS.heads, DIMS.head_dim), wide(&token.x)).expect("x");
        let b = Array3::from_shape_vec(group, wide(&token.b)).expect("b");
        let c = Array3::from_shape_vec(group, wide(&token.c)).expect("c");
        let dt = Array2::from_shape_vec((1, DIMS.heads), wide(&token.dt)).expect("dt");
        let inputs = Inputs {
            x: x.view(),
            z: None,
            b: b.view(),
            c: c.view(),
            dt: dt.view(),
            a_log: a_log.view(),
            d: Some(d.view()),
            dt_bias: Some(bias.view()),
            limits: Some((0.0, f64::INFINITY)),
            state_in: state.view(),
            slots_in: None,
            slots_out: None,
            update_state: true,
        };
        let (y, new) = ssm_update(&inputs, state.clone());
        state = new;
        if at.contains(&step) {
            kept.push(Truth { step, y: y.iter().copied().collect(), state: state.iter().copied().collect() });
        }
    }
    kept
}

/// nrms and max of a run after one step.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // step, and (nrms, max) of each output
pub struct Error {
    pub step: usize,
    pub state: (f64, f64),
    pub y: (f64, f64),
}

/// Runs a kernel over the same tokens in place, with activations of type `T` and the state in a dtype.
pub fn errors<T: Element>(kernel: &dyn Kernel, state_dtype: Dtype, truth: &[Truth]) -> Vec<Error> {
    let narrow = |values: &[f32]| values.iter().map(|&value| T::from_f32(value)).collect::<Vec<T>>();
    let mut state = Buffer::of(state_dtype, vec![0.0; DIMS.heads * DIMS.head_dim * DIMS.d_state]);
    let mut y = vec![T::default(); DIMS.heads * DIMS.head_dim];
    let mut errors = Vec::new();
    for step in 1..=truth.last().map_or(0, |last| last.step) {
        let token = Token::new(step, T::DTYPE);
        let (x, b, c, dt) = (narrow(&token.x), narrow(&token.b), narrow(&token.c), narrow(&token.dt));
        let call = Step {
            d: Some((&D).into()),
            dt_bias: Some((&DT_BIAS).into()),
            ..Step::new(DIMS, &x, &b, &c, &dt, &A_LOG, State::in_place(state.tensor_mut(0)), &mut y)
        };
        kernel.step(call).expect("a legal step");
        if let Some(truth) = truth.iter().find(|truth| truth.step == step) {
            errors.push(Error {
                step,
                state: measure((0..state.len()).map(|at| state.get(at)).zip(truth.state.iter().copied())),
                y: measure(y.iter().map(|&y| f64::from(y.to_f32())).zip(truth.y.iter().copied())),
            });
        }
    }
    errors
}
