//! A step with memory of its own, and texts from C.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use ssm_update_capi::{
    Dims, Kernel, Launch, Status, ssm_update_kernel_close, ssm_update_kernel_open, ssm_update_last_error,
    ssm_update_last_status, ssm_update_launch_init,
};

/// A text of the library's.
///
/// # Panics
///
/// For null, and for what is no UTF-8.
pub fn text(at: *const c_char) -> String {
    assert!(!at.is_null());
    // SAFETY: not null, and the library's texts end in zero; it is copied before this thread calls again.
    unsafe { CStr::from_ptr(at) }.to_str().expect("UTF-8").to_owned()
}

/// The text of this thread's last error.
pub fn last_error() -> String {
    text(ssm_update_last_error())
}

/// Holds a call to a status, and its text to these parts.
#[track_caller]
pub fn expect(status: Status, expected: Status, parts: &[&str]) {
    let text = last_error();
    assert_eq!(status, expected, "{text}");
    assert_eq!(ssm_update_last_status(), expected);
    assert_eq!(text.is_empty(), expected == Status::Ok, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part:?} in: {text}");
    }
}

/// An open kernel, closed when dropped.
#[derive(Debug)]
pub struct Open(pub *mut Kernel);

// SAFETY: the interface promises that a kernel may be used by several threads at once.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl Open {
    /// Opens a port; the empty name is the library's choice.
    pub fn new(port: &str) -> Result<Self, (Status, String)> {
        let name = CString::new(port).expect("no zero byte");
        let mut kernel = null_mut();
        // SAFETY: a text that ends in zero, and a place for the handle.
        match unsafe { ssm_update_kernel_open(name.as_ptr(), &raw mut kernel) } {
            Status::Ok => Ok(Self(kernel)),
            status => {
                assert!(kernel.is_null());
                Err((status, last_error()))
            }
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: open, and nobody else has it.
        unsafe { ssm_update_kernel_close(self.0) };
    }
}

/// Three batch rows of four heads, in one group of each two, all sizes different.
pub const DIMS: Dims = Dims { batch: 3, heads: 4, head_dim: 5, groups: 2, d_state: 16, slots: 6 };

/// The tensors of one step in f32, seeded.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names of the launch
pub struct Data {
    pub x: Vec<f32>,
    pub z: Vec<f32>,
    pub b: Vec<f32>,
    pub c: Vec<f32>,
    pub dt: Vec<f32>,
    pub a_log: Vec<f32>,
    pub d: Vec<f32>,
    pub dt_bias: Vec<f32>,
    pub state: Vec<f32>,
    pub slots: Vec<i32>,
    pub y: Vec<f32>,
}

impl Data {
    /// Values that depend on the seed.
    pub fn new(seed: u32) -> Self {
        let mut at = seed.wrapping_mul(2_654_435_761).max(1);
        let mut fill = |len: usize, scale: f32| -> Vec<f32> {
            let next = || {
                at ^= at << 13;
                at ^= at >> 17;
                at ^= at << 5;
                (at as f32 / u32::MAX as f32 - 0.5) * scale
            };
            std::iter::repeat_with(next).take(len).collect()
        };
        let Dims { batch, heads, head_dim, groups, d_state, slots } = DIMS;
        Self {
            x: fill(batch * heads * head_dim, 2.0),
            z: fill(batch * heads * head_dim, 2.0),
            b: fill(batch * groups * d_state, 2.0),
            c: fill(batch * groups * d_state, 2.0),
            dt: fill(batch * heads, 2.0),
            a_log: fill(heads, 1.0),
            d: fill(heads, 2.0),
            dt_bias: fill(heads, 2.0),
            state: fill(slots * heads * head_dim * d_state, 2.0),
            slots: vec![4, -1, 1],
            y: vec![f32::NAN; batch * heads * head_dim],
        }
    }

    /// The step on them, in place.
    pub fn launch(&mut self) -> Launch {
        let mut launch = std::mem::MaybeUninit::<Launch>::uninit();
        // SAFETY: a place for the struct, and sizes.
        let status = unsafe { ssm_update_launch_init(launch.as_mut_ptr(), size_of::<Launch>(), &DIMS) };
        assert_eq!(status, Status::Ok, "{}", last_error());
        // SAFETY: all of it was written.
        let mut launch = unsafe { launch.assume_init() };
        launch.x = self.x.as_ptr().cast();
        launch.z = self.z.as_ptr().cast();
        launch.b = self.b.as_ptr().cast();
        launch.c = self.c.as_ptr().cast();
        launch.dt = self.dt.as_ptr().cast();
        launch.a_log = self.a_log.as_ptr().cast();
        launch.d = self.d.as_ptr().cast();
        launch.dt_bias = self.dt_bias.as_ptr().cast();
        launch.state_out = self.state.as_mut_ptr().cast();
        launch.state_in = launch.state_out.cast_const();
        launch.slots_in = self.slots.as_ptr();
        launch.slots_out = launch.slots_in;
        launch.y = self.y.as_mut_ptr().cast();
        launch
    }
}
