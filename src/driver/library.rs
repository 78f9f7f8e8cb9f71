//! Loading a driver's library at run time. A library stays loaded until the process ends: drivers have threads of their own, which
//! do not survive being unloaded.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::mem::ManuallyDrop;
use std::sync::{LazyLock, Mutex, PoisonError};

use libloading::Library;

use super::table::Lookup;
use crate::Unavailable;
use crate::error::Failed;

/// The libraries of one kind that are loaded, by the name under which they were asked for.
pub struct Libraries<T: 'static> {
    /// The platform, for messages: `HIP`.
    pub kind: &'static str,
    /// The environment variable that names the only one that may be taken.
    pub variable: &'static str,
    loaded: LazyLock<Mutex<HashMap<OsString, &'static T>>>,
}

/// Makes the calls of a library from a way to find its symbols and the name that loaded it, or names the functions it lacks.
///
/// # Safety
///
/// As for the table's `resolve`.
pub type Make<T> = unsafe fn(&Lookup<'_>, String) -> Result<T, Vec<&'static str>>;

impl<T> Libraries<T> {
    /// None loaded yet.
    pub const fn new(kind: &'static str, variable: &'static str) -> Self {
        Self { kind, variable, loaded: LazyLock::new(Mutex::default) }
    }

    /// The first candidate that loads, has every required function, and is accepted, with what accepted it; where a switch names
    /// one, only that.
    ///
    /// # Errors
    ///
    /// Every candidate with its reason.
    pub fn first<A>(
        &self,
        exact: Option<&OsStr>,
        candidates: impl IntoIterator<Item = OsString>,
        make: Make<T>,
        accept: impl Fn(&'static T) -> Result<A, String>,
    ) -> Result<(&'static T, A), Unavailable> {
        let attempt = |name: &OsString| {
            let library = self.load(name, make)?;
            Ok((library, accept(library)?))
        };
        if let Some(exact) = exact {
            return attempt(&exact.to_owned()).map_err(|reason| Unavailable::Switch {
                variable: self.variable,
                value: exact.to_string_lossy().into_owned(),
                reason,
            });
        }
        let mut tried = Vec::new();
        for candidate in candidates {
            match attempt(&candidate) {
                Ok(accepted) => return Ok(accepted),
                Err(why) => tried.push(Failed { what: candidate.to_string_lossy().into_owned(), why }),
            }
        }
        Err(Unavailable::Library { platform: self.kind, tried })
    }

    fn load(&self, name: &OsString, make: Make<T>) -> Result<&'static T, String> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = loaded.get(name) {
            return Ok(library);
        }
        // SAFETY: loading runs the library's initialisers. The name is the driver's, or the one that the user chose. Never
        // unloaded, whatever is found in it.
        let library = ManuallyDrop::new(unsafe { Library::new(name) }.map_err(|error| reason(&error))?);
        let lookup = |symbol: &CStr| {
            // SAFETY: the address is only kept as such; `make` gives it its type.
            let found = unsafe { library.get::<*const c_void>(symbol.to_bytes_with_nul()) };
            found.map_or(std::ptr::null(), |address| *address)
        };
        // SAFETY: a library of this kind has its functions under these names, and it is never unloaded (above).
        let made = unsafe { make(&lookup, name.to_string_lossy().into_owned()) };
        let made = made.map_err(|missing| {
            format!("loaded, but it has no {}: not a {} library, or too old", missing.join(", "), self.kind)
        })?;
        let made: &'static T = Box::leak(Box::new(made));
        loaded.insert(name.clone(), made);
        Ok(made)
    }
}

/// The system's own words, which are the source of libloading's error.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
