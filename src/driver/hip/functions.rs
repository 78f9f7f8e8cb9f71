//! The functions of the HIP runtime that are used, each declared once: the list makes the table of pointers, fills it from a
//! library, and says which ones a library must have.
//!
//! Types come from `bindings.rs`, which is generated from HIP's headers. A status is an integer there: newer runtimes return
//! codes that no fixed enumeration has.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::bindings::{
    self, hipDeviceAttribute_t, hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipFunction_t, hipMemcpyKind,
    hipModule_t, hipStream_t,
};

/// How a symbol is found: null where there is none.
pub type Lookup<'a> = dyn Fn(&CStr) -> *const c_void + 'a;

macro_rules! functions {
    (@pointer REQUIRED $signature:ty) => { $signature };
    (@pointer OPTIONAL $signature:ty) => { Option<$signature> };
    (@resolve REQUIRED $missing:ident, $name:ident, $address:expr) => {{
        let address = $address;
        if address.is_null() {
            $missing.push(stringify!($name));
        }
        address
    }};
    (@resolve OPTIONAL $missing:ident, $name:ident, $address:expr) => { $address };
    (@cast REQUIRED $address:expr, $signature:ty) => {
        // SAFETY: not null (checked), and the runtime's function of this name has this signature (the caller's promise).
        unsafe { std::mem::transmute::<*const c_void, $signature>($address) }
    };
    (@cast OPTIONAL $address:expr, $signature:ty) => {
        // SAFETY: null becomes `None`; otherwise as for the required ones.
        unsafe { std::mem::transmute::<*const c_void, Option<$signature>>($address) }
    };
    ($($need:ident $name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        /// Pointers to the runtime's functions.
        #[derive(Clone, Copy, Debug)]
        #[allow(non_snake_case)] // HIP's own names
        pub struct Functions {
            $(pub $name: functions!(@pointer $need unsafe extern "C" fn($($kind),*) -> $result),)*
        }

        impl Functions {
            /// Fills the table.
            ///
            /// # Errors
            ///
            /// The names of required functions that were not found.
            ///
            /// # Safety
            ///
            /// What `lookup` finds under a name is the HIP runtime's function of that name, and stays loaded.
            #[allow(non_snake_case)]
            pub unsafe fn resolve(lookup: &Lookup<'_>) -> Result<Self, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    let name = const {
                        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => panic!("a name has no zero byte inside"),
                        }
                    };
                    let $name = functions!(@resolve $need missing, $name, lookup(name));
                )*
                if !missing.is_empty() {
                    return Err(missing);
                }
                Ok(Self {
                    $($name: functions!(@cast $need $name, unsafe extern "C" fn($($kind),*) -> $result),)*
                })
            }
        }

        /// The list agrees with HIP's headers. Generic and never instantiated: the functions are loaded at run time, and
        /// there is nothing to link to.
        #[allow(dead_code, clippy::extra_unused_type_parameters)]
        fn agrees_with_the_headers<Never>() {
            $(let _: unsafe extern "C" fn($($kind),*) -> $result = bindings::$name;)*
        }

        /// The linked symbol of a name, for engines that link ROCm anyway.
        #[cfg(feature = "hip-runtime-sys")]
        pub fn linked(name: &CStr) -> *const c_void {
            $(functions!(@linked $need $name, name);)*
            super::library::loaded(name)
        }
    };
    (@linked REQUIRED $name:ident, $wanted:ident) => {
        if $wanted.to_bytes() == stringify!($name).as_bytes() {
            return hip_runtime_sys::$name as *const c_void;
        }
    };
    // Newer than that crate, perhaps: looked up in the library that is loaded.
    (@linked OPTIONAL $name:ident, $wanted:ident) => {};
}

functions! {
    REQUIRED hipInit(flags: c_uint) -> hipError_t;
    REQUIRED hipGetDeviceCount(count: *mut c_int) -> hipError_t;
    REQUIRED hipGetDevice(device: *mut c_int) -> hipError_t;
    REQUIRED hipSetDevice(device: c_int) -> hipError_t;
    REQUIRED hipDeviceGetAttribute(value: *mut c_int, attribute: hipDeviceAttribute_t, device: c_int) -> hipError_t;
    REQUIRED hipModuleLoadData(module: *mut hipModule_t, image: *const c_void) -> hipError_t;
    REQUIRED hipModuleUnload(module: hipModule_t) -> hipError_t;
    REQUIRED hipModuleGetFunction(function: *mut hipFunction_t, module: hipModule_t, name: *const c_char) -> hipError_t;
    REQUIRED hipModuleLaunchKernel(
        function: hipFunction_t,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint,
        stream: hipStream_t,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    ) -> hipError_t;
    REQUIRED hipMalloc(memory: *mut *mut c_void, bytes: usize) -> hipError_t;
    REQUIRED hipFree(memory: *mut c_void) -> hipError_t;
    REQUIRED hipMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: hipMemcpyKind) -> hipError_t;
    REQUIRED hipStreamSynchronize(stream: hipStream_t) -> hipError_t;
    OPTIONAL hipGetErrorName(status: hipError_t) -> *const c_char;
    OPTIONAL hipGetErrorString(status: hipError_t) -> *const c_char;
    OPTIONAL hipRuntimeGetVersion(version: *mut c_int) -> hipError_t;
    // One of the two is needed. The struct changed with HIP 6.0, and each symbol fills its own.
    OPTIONAL hipGetDevicePropertiesR0600(properties: *mut hipDeviceProp_tR0600, device: c_int) -> hipError_t;
    OPTIONAL hipGetDeviceProperties(properties: *mut hipDeviceProp_tR0000, device: c_int) -> hipError_t;
}
