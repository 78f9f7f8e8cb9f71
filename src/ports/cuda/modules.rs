//! The loaded kernels of an open port, each made at most once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::compiler::Compiler;
use super::key::Key;
use super::source;
use crate::DriverError;
use crate::driver::cuda::{Context, Function, Module};

/// A loaded kernel; the function ends with the module.
#[derive(Debug)]
struct Loaded {
    function: Function,
    #[allow(dead_code)] // owns the function
    module: Module,
}

/// The kernel of one key, once somebody wanted it. Whoever makes it holds the lock, and others who want the same one wait.
type Place = Arc<Mutex<Option<Loaded>>>;

/// The loaded kernels. Dropped before their context.
#[derive(Debug, Default)]
pub struct Modules {
    places: Mutex<HashMap<Key, Place>>,
}

impl Modules {
    fn place(&self, key: &Key) -> Place {
        // Nothing below panics while it holds a lock with a half-made value.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(*key).or_default().clone()
    }

    /// The kernel of a key. `may_make` is asked before it is compiled and loaded, which takes long and is not possible while
    /// a stream is captured.
    pub fn get(
        &self,
        key: &Key,
        compiler: &Compiler,
        context: &Context,
        may_make: impl FnOnce() -> Result<(), Box<DriverError>>,
    ) -> Result<Function, Box<DriverError>> {
        let place = self.place(key);
        let mut loaded = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*loaded {
            return Ok(loaded.function);
        }
        may_make()?;
        let image = compiler.kernel(key)?;
        let (module, function) = load(context, &image, source::ENTRY)?;
        *loaded = Some(Loaded { function, module });
        Ok(function)
    }
}

/// Loads a CUBIN and finds its function.
#[allow(unsafe_code)] // the image is whole
pub fn load(context: &Context, image: &[u8], entry: &str) -> Result<(Module, Function), Box<DriverError>> {
    // SAFETY: as the compiler made it; the cache has checked that nothing is missing. The port drops its modules before its
    // context.
    let module = unsafe { context.load_module(image) }?;
    let function = module.function(entry)?;
    Ok((module, function))
}
