//! ggml's SSM_SCAN as a peer, loaded from the library that `scripts/ggml-peer.sh` builds.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use libloading::Library;

use crate::cases::Data;

type New = unsafe extern "C" fn(i64, i64, i64, i64, i64, i32) -> *mut c_void;
type Set = unsafe extern "C" fn(*mut c_void, *const f32, *const f32, *const f32, *const f32, *const f32, *const f32);
type Run = unsafe extern "C" fn(*mut c_void) -> i32;
type Out = unsafe extern "C" fn(*const c_void) -> *const f32;
type Do = unsafe extern "C" fn(*mut c_void);

/// The functions of `benches/peers/ggml.c`.
#[derive(Debug)]
pub struct Ggml {
    new: New,
    set: Set,
    run: Run,
    out: Out,
    pause: Do,
    resume: Do,
    free: Do,
    _library: Library,
}

impl Ggml {
    /// Loads the peer.
    ///
    /// # Errors
    ///
    /// The library or one of its functions is missing.
    pub fn load(path: &Path) -> Result<Arc<Self>, String> {
        let text = |error: libloading::Error| format!("{}: {error}", path.display());
        // SAFETY: the user names a library that this project's script built; it has no initialisers of its own.
        let library = unsafe { Library::new(path) }.map_err(text)?;
        // SAFETY: the types above are those of benches/peers/ggml.c, and `_library` outlives the pointers.
        unsafe {
            Ok(Arc::new(Self {
                new: *library.get(b"peer_new").map_err(text)?,
                set: *library.get(b"peer_set").map_err(text)?,
                run: *library.get(b"peer_run").map_err(text)?,
                out: *library.get(b"peer_out").map_err(text)?,
                pause: *library.get(b"peer_pause").map_err(text)?,
                resume: *library.get(b"peer_resume").map_err(text)?,
                free: *library.get(b"peer_free").map_err(text)?,
                _library: library,
            }))
        }
    }
}

/// One SSM_SCAN graph with its tensors and threads.
#[derive(Debug)]
pub struct Scan {
    ggml: Arc<Ggml>,
    peer: *mut c_void,
    channels: usize,
    state: usize,
}

impl Scan {
    /// A graph for the sizes of `data`, filled with its values. ggml takes dt before the softplus, and no dt_bias and no D:
    /// the bias is added here, the skip connection left out.
    ///
    /// # Errors
    ///
    /// ggml has no memory for it.
    pub fn new(ggml: Arc<Ggml>, data: &Data, threads: usize) -> Result<Self, String> {
        let dims = data.dims;
        let size = |value: usize| i64::try_from(value).expect("a tensor's size");
        let threads = i32::try_from(threads).map_err(|_| "too many threads")?;
        // SAFETY: plain numbers; the result is checked.
        let peer = unsafe {
            (ggml.new)(
                size(dims.batch),
                size(dims.heads),
                size(dims.head_dim),
                size(dims.groups),
                size(dims.d_state),
                threads,
            )
        };
        if peer.is_null() {
            return Err("ggml has no memory for the case".to_owned());
        }
        let dt: Vec<f32> = data.dt.iter().zip(data.dt_bias.iter().cycle()).map(|(dt, bias)| dt + bias).collect();
        let a: Vec<f32> = data.a_log.iter().map(|a_log| -a_log.exp()).collect();
        let (state, channels) = (data.state.len(), data.x.len());
        let (s, x, b, c) = (data.state.as_ptr(), data.x.as_ptr(), data.b.as_ptr(), data.c.as_ptr());
        // SAFETY: every vector has the size that the peer was made for.
        unsafe { (ggml.set)(peer, s, x, dt.as_ptr(), a.as_ptr(), b, c) };
        // SAFETY: `peer` is live.
        unsafe { (ggml.pause)(peer) };
        Ok(Self { ggml, peer, channels, state })
    }

    /// One step.
    ///
    /// # Panics
    ///
    /// When ggml reports a failure, of which a case that ran once has none.
    pub fn run(&mut self) {
        // SAFETY: `peer` is live until drop.
        let status = unsafe { (self.ggml.run)(self.peer) };
        assert_eq!(status, 0, "ggml_graph_compute failed");
    }

    /// Lets ggml's threads sleep, so that they do not disturb the other arms.
    pub fn pause(&mut self) {
        // SAFETY: `peer` is live until drop.
        unsafe { (self.ggml.pause)(self.peer) }
    }

    /// Wakes ggml's threads.
    pub fn resume(&mut self) {
        // SAFETY: `peer` is live until drop.
        unsafe { (self.ggml.resume)(self.peer) }
    }

    /// y and the new state of the last step.
    pub fn result(&self) -> (&[f32], &[f32]) {
        // SAFETY: `out` has y and, behind it, the state, both written by `run`.
        let all = unsafe { std::slice::from_raw_parts((self.ggml.out)(self.peer), self.channels + self.state) };
        all.split_at(self.channels)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // SAFETY: made by `peer_new`, freed once. A paused pool has to run again to be ended.
        unsafe {
            (self.ggml.resume)(self.peer);
            (self.ggml.free)(self.peer);
        }
    }
}
