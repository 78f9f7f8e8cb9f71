//! The dtypes of a step for the tests of kernel keys: the place of each in [`Dtypes`], the tensors that it is for, and every
//! combination.

use std::ffi::c_void;

use ssm_update::{Dtype, Dtypes, Pointers};

/// The places of [`Dtypes`], taken apart without `..`: a new one does not compile until it is here.
pub fn places(dtypes: Dtypes) -> [(&'static str, Dtype); 7] {
    let Dtypes { x, bc, dt, a_log, d, dt_bias, state } = dtypes;
    [("x", x), ("bc", bc), ("dt", dt), ("a_log", a_log), ("d", d), ("dt_bias", dt_bias), ("state", state)]
}

/// Which place holds the dtype of each tensor; `None` for the two lists of i32. Taken apart without `..` as well.
pub fn place_of_each_tensor(at: Pointers) -> Vec<(&'static str, Option<&'static str>)> {
    let Pointers { x, z, b, c, dt, a_log, d, dt_bias, state_in, state_out, slots_in, slots_out, y } = at;
    let (tensor, list) = (|_: *const c_void, name, place| (name, Some(place)), |_: *const i32, name| (name, None));
    vec![
        tensor(x, "x", "x"),
        tensor(z, "z", "x"),
        tensor(y, "y", "x"),
        tensor(b, "b", "bc"),
        tensor(c, "c", "bc"),
        tensor(dt, "dt", "dt"),
        tensor(a_log, "a_log", "a_log"),
        tensor(d, "d", "d"),
        tensor(dt_bias, "dt_bias", "dt_bias"),
        tensor(state_in, "state_in", "state"),
        tensor(state_out, "state_out", "state"),
        list(slots_in, "slots_in"),
        list(slots_out, "slots_out"),
    ]
}

/// Every legal combination of dtypes.
pub fn combinations() -> Vec<Dtypes> {
    let mut all = Vec::new();
    for (x, bc) in Dtype::ALL.into_iter().flat_map(|x| [(x, x), (x, Dtype::F32)]) {
        for number in 0..3_usize.pow(5) {
            let dtype = |place: u32| Dtype::ALL[number / 3_usize.pow(place) % 3];
            let dtypes =
                Dtypes { x, bc, dt: dtype(0), a_log: dtype(1), d: dtype(2), dt_bias: dtype(3), state: dtype(4) };
            // f32 comes twice.
            if !all.contains(&dtypes) {
                all.push(dtypes);
            }
        }
    }
    all
}
