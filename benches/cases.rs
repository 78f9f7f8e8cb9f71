//! What is measured: sizes of real models, and the data of one case.

use ndarray::{Array3, Array4, ArrayView1, ArrayView2, ArrayView3, ArrayView4};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use ssm_update::{Dims, reference};

use crate::models::MODELS;

/// One measurement: sizes, and whether the state is resident in the caches or rotates beyond them.
#[derive(Clone, Debug)]
pub struct Case {
    /// Models with this shape.
    pub models: String,
    /// Sizes.
    pub dims: Dims,
    /// Rotates among so many buffers that none is in a cache when its turn comes.
    pub rotating: bool,
    /// Whether the arms with 16-bit states and with two buffers take part, too.
    pub every_mode: bool,
}

impl Case {
    /// `heads x head_dim x d_state gN bN`.
    pub fn name(&self) -> String {
        let Dims { batch, heads, head_dim, groups, d_state, .. } = self.dims;
        format!("{heads}x{head_dim}x{d_state} g{groups} b{batch}")
    }
}

/// Every case: each shape at batch 1, resident and rotating, then the batches of the first one.
pub fn all() -> Vec<Case> {
    let case = |models: &str, [heads, head_dim, d_state, groups]: [usize; 4], batch, rotating, every_mode| Case {
        models: models.to_owned(),
        dims: Dims { batch, heads, head_dim, groups, d_state, slots: batch },
        rotating,
        every_mode,
    };
    // Models of one shape are one case.
    let mut shapes: Vec<(String, [usize; 4])> = Vec::new();
    for (model, shape) in MODELS {
        match shapes.iter_mut().find(|(_, known)| *known == shape) {
            Some((models, _)) => *models += &format!("; {model}"),
            None => shapes.push((model.to_owned(), shape)),
        }
    }
    let mut cases = Vec::new();
    for (index, (models, shape)) in shapes.iter().enumerate() {
        cases.push(case(models, *shape, 1, false, index == 0));
        cases.push(case(models, *shape, 1, true, index == 0));
    }
    let (models, shape) = &shapes[0];
    cases.extend([4, 16, 64].map(|batch| case(models, *shape, batch, true, true)));
    cases
}

/// Inputs of a case, f32, and the state before the step.
#[derive(Debug)]
#[allow(missing_docs)] // named as in `ssm_update::Pointers`
pub struct Data {
    pub dims: Dims,
    pub x: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
    pub dt: Vec<f32>,
    pub a_log: Vec<f32>,
    pub d: Vec<f32>,
    pub dt_bias: Vec<f32>,
    pub state: Vec<f32>,
}

impl Data {
    /// Values in the ranges that models have.
    pub fn new(dims: Dims) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut values =
            |len: usize, low: f32, high: f32| -> Vec<f32> { (0..len).map(|_| rng.random_range(low..high)).collect() };
        let Dims { batch, heads, head_dim, groups, d_state, slots } = dims;
        Self {
            dims,
            x: values(batch * heads * head_dim, -1.0, 1.0),
            b: values(batch * groups * d_state, -1.0, 1.0),
            c: values(batch * groups * d_state, -1.0, 1.0),
            dt: values(batch * heads, -2.0, 2.0),
            a_log: values(heads, 0.0, 2.0),
            d: values(heads, -1.0, 1.0),
            dt_bias: values(heads, -4.0, 0.0),
            state: values(slots * heads * head_dim * d_state, -1.0, 1.0),
        }
    }

    /// dt' of every batch row and head, in `f64`.
    pub fn prepared_dt(&self) -> Vec<f64> {
        let bias = self.dt_bias.iter().cycle();
        self.dt.iter().zip(bias).map(|(&dt, &bias)| reference::softplus(f64::from(dt) + f64::from(bias))).collect()
    }

    /// What the reference says: y and the new state. `skip` is whether D takes part.
    pub fn expected(&self, skip: bool) -> Expected {
        let Dims { batch, heads, head_dim, groups, d_state, slots } = self.dims;
        let wide = |values: &[f32]| -> Vec<f64> { values.iter().copied().map(f64::from).collect() };
        let [x, b, c, dt] = [&self.x, &self.b, &self.c, &self.dt].map(|v| wide(v));
        let [a_log, d, dt_bias, state] = [&self.a_log, &self.d, &self.dt_bias, &self.state].map(|v| wide(v));
        let per_group = |v| ArrayView3::from_shape((batch, groups, d_state), v).expect("sizes of Data::new");
        let per_head = |v| ArrayView1::from_shape(heads, v).expect("sizes of Data::new");
        let shape = (slots, heads, head_dim, d_state);
        let inputs = reference::Inputs {
            x: ArrayView3::from_shape((batch, heads, head_dim), &x).expect("sizes of Data::new"),
            z: None,
            b: per_group(&b),
            c: per_group(&c),
            dt: ArrayView2::from_shape((batch, heads), &dt).expect("sizes of Data::new"),
            a_log: per_head(&a_log),
            d: skip.then(|| per_head(&d)),
            dt_bias: Some(per_head(&dt_bias)),
            limits: Some((0.0, f64::INFINITY)),
            state_in: ArrayView4::from_shape(shape, &state).expect("sizes of Data::new"),
            slots_in: None,
            slots_out: None,
            update_state: true,
        };
        let (y, state) = reference::ssm_update(&inputs, Array4::zeros(shape));
        Expected { y, state }
    }
}

/// Results of the reference.
#[derive(Debug)]
pub struct Expected {
    /// `[batch, heads, head_dim]`.
    pub y: Array3<f64>,
    /// `[slots, heads, head_dim, d_state]`.
    pub state: Array4<f64>,
}

impl Expected {
    /// Holds results against the reference: the largest difference over the reference's root mean square stays below
    /// `limit`.
    ///
    /// # Errors
    ///
    /// Says which tensor differs by how much.
    pub fn check(&self, y: &[f32], state: &[f32], state_limit: f64) -> Result<(), String> {
        for (name, got, want, limit) in [
            ("y", y, self.y.as_slice().expect("standard layout"), state_limit),
            ("state", state, self.state.as_slice().expect("standard layout"), state_limit),
        ] {
            if got.len() != want.len() {
                return Err(format!("{name} has {} elements, expected {}", got.len(), want.len()));
            }
            let rms = (want.iter().map(|v| v * v).sum::<f64>() / want.len() as f64).sqrt().max(1e-20);
            let worst = got.iter().zip(want).map(|(&g, w)| (f64::from(g) - w).abs()).fold(0.0, |worst: f64, d| {
                // NaN has to win.
                if d > worst || d.is_nan() { d } else { worst }
            });
            // Negated, so that NaN fails.
            #[allow(clippy::neg_cmp_op_on_partial_ord)]
            if !(worst / rms < limit) {
                return Err(format!(
                    "{name} differs from the reference by {:.2e} of its rms, limit {limit:.0e}",
                    worst / rms
                ));
            }
        }
        Ok(())
    }
}
