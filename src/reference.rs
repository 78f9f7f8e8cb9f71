//! The definition: the step in `f64`, one line per formula, on `ndarray`. Every port is tested against it.

use ndarray::{Array3, Array4, ArrayView1, ArrayView2, ArrayView3, ArrayView4, s};

/// Inputs of the reference, widened to `f64`; shapes as in [`Pointers`](crate::Pointers).
#[derive(Clone, Debug)]
#[allow(missing_docs)] // named as in `Pointers`
pub struct Inputs<'a> {
    pub x: ArrayView3<'a, f64>,
    pub z: Option<ArrayView3<'a, f64>>,
    pub b: ArrayView3<'a, f64>,
    pub c: ArrayView3<'a, f64>,
    pub dt: ArrayView2<'a, f64>,
    pub a_log: ArrayView1<'a, f64>,
    pub d: Option<ArrayView1<'a, f64>>,
    pub dt_bias: Option<ArrayView1<'a, f64>>,
    /// Limits of raw dt; `None`: dt is prepared.
    pub limits: Option<(f64, f64)>,
    pub state_in: ArrayView4<'a, f64>,
    pub slots_in: Option<&'a [i32]>,
    pub slots_out: Option<&'a [i32]>,
    pub update_state: bool,
}

/// `ln(1 + e^x)`, accurate for every finite `x`.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Runs the step. `state_out` holds what the output buffer held before and returns with the written rows replaced.
/// Padding rows of y are zero.
///
/// # Panics
///
/// When shapes disagree: this is the definition, not a port, and callers pass it what [`validate`](crate::validate) passed.
pub fn ssm_update(inputs: &Inputs<'_>, mut state_out: Array4<f64>) -> (Array3<f64>, Array4<f64>) {
    let (batch, heads, head_dim) = inputs.x.dim();
    let (_, groups, d_state) = inputs.b.dim();
    assert!(heads.is_multiple_of(groups), "groups {groups} divides heads {heads}");
    let mut y = Array3::zeros((batch, heads, head_dim));

    for b in 0..batch {
        let from = inputs.slots_in.map_or(b as i32, |slots| slots[b]);
        let to = inputs.slots_out.filter(|_| inputs.update_state).map_or(b as i32, |slots| slots[b]);
        let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to)) else { continue };

        for h in 0..heads {
            let g = h / (heads / groups);
            let dt = match inputs.limits {
                None => inputs.dt[[b, h]],
                Some((min, max)) => {
                    softplus(inputs.dt[[b, h]] + inputs.dt_bias.map_or(0.0, |bias| bias[h])).clamp(min, max)
                }
            };
            let decay = (-inputs.a_log[h].exp() * dt).exp();
            let (b_row, c_row) = (inputs.b.slice(s![b, g, ..]), inputs.c.slice(s![b, g, ..]));

            for p in 0..head_dim {
                let x = inputs.x[[b, h, p]];
                let mut sum = 0.0;
                for n in 0..d_state {
                    let old = inputs.state_in[[from, h, p, n]];
                    let new = if dt == 0.0 { old } else { decay * old + (dt * x) * b_row[n] };
                    sum += new * c_row[n];
                    if inputs.update_state {
                        state_out[[to, h, p, n]] = new;
                    }
                }
                let skip = inputs.d.map_or(0.0, |d| d[h] * x);
                let gate = inputs.z.map_or(1.0, |z| z[[b, h, p]] / (1.0 + (-z[[b, h, p]]).exp()));
                y[[b, h, p]] = (sum + skip) * gate;
            }
        }
    }
    (y, state_out)
}
