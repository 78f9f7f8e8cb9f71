//! The table of ports, and the choice.

use std::ffi::{CStr, CString, c_char};
use std::sync::LazyLock;

use ssm_update::switches::Selection;
use ssm_update::{NoPort, SSM_PORTS, select_kernel_port, select_with};

use crate::SSM_UPDATE_ABI_VERSION;
use crate::Status;
use crate::fault::{Fault, c_text, guard};

/// Version of the library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The table's names, for readers in C.
static NAMES: LazyLock<Vec<CString>> = LazyLock::new(|| SSM_PORTS.iter().map(|port| c_text(port.name)).collect());

/// Opens the port of this name, or for null and for an empty one the library's choice.
///
/// # Safety
///
/// `name` is null or to a text that ends in zero.
pub unsafe fn open(name: *const c_char) -> Result<Box<dyn ssm_update::Kernel>, Fault> {
    let name = match name.is_null() {
        true => c"",
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(name) },
    };
    if name.is_empty() {
        return Ok(select_kernel_port(SSM_PORTS)?);
    }
    // The same gate, told by the caller instead of the environment. Its texts speak of the variable.
    let named = Selection { port: Some(name.to_string_lossy().into_owned().into()), ..Selection::default() };
    select_with(SSM_PORTS, &named).map_err(|why| match why {
        NoPort::UnknownName { name, known } => {
            Fault::invalid("port", format!("one of {}", known.join(", ")), format!("{name:?}"))
        }
        NoPort::NamedClosed { name, why } => (name, why).into(),
        other => other.into(),
    })
}

/// The library's version, such as "0.1.0". Valid as long as the library is loaded.
///
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn ssm_update_version() -> *const c_char {
    const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a version has no zero byte"),
    };
    TEXT.as_ptr()
}

/// The library's SSM_UPDATE_ABI_VERSION. A program that loads the library at run time compares it with that of its header.
///
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn ssm_update_abi_version() -> u32 {
    SSM_UPDATE_ABI_VERSION
}

/// How many ports there are, whether they open here or not.
///
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn ssm_update_port_count() -> usize {
    SSM_PORTS.len()
}

/// Name of a port ("rocm", "cuda", "metal", "cpu"), counted from 0 in order of preference; null from ssm_update_port_count() on. Valid as
/// long as the library is loaded.
///
/// Threads: any, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn ssm_update_port_name(index: usize) -> *const c_char {
    NAMES.get(index).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Whether ssm_update_kernel_open() would give a kernel for this name now. Where it would not, ssm_update_last_error() says why.
///
/// It opens the port to find out, which loads code on a GPU: ask once per model, not per token.
///
/// The caller: port is null or a text that ends in zero.
/// Threads: any, at any time, as long as no thread changes the environment meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_available(port: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    guard(|| unsafe { open(port) }.map(drop)) == Status::Ok
}
