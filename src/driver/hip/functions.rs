//! The functions of the HIP runtime that are used, each declared once.
//!
//! Types come from `bindings.rs`, which is generated from HIP's headers. A status is an integer there: newer runtimes return
//! codes that no fixed enumeration has.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::bindings::{
    self, hipDeviceAttribute_t, hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipFunction_t, hipMemcpyKind,
    hipModule_t, hipStream_t,
};
use crate::driver::table::{agreement, function_table};

/// Hands the list to a macro.
macro_rules! for_the_list {
    ($macro:ident: $($before:tt)*) => {
        $macro! {
            $($before)*
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
    };
}

/// The linked symbol of a name, for engines that link ROCm anyway.
#[cfg(feature = "hip-runtime-sys")]
macro_rules! linked_symbols {
    (@one REQUIRED $name:ident, $wanted:ident) => {
        if $wanted.to_bytes() == stringify!($name).as_bytes() {
            return hip_runtime_sys::$name as *const c_void;
        }
    };
    // Newer than that crate, perhaps: looked up in the library that is loaded.
    (@one OPTIONAL $name:ident, $wanted:ident) => {};
    ($($need:ident $name:ident($($argument:ident: $kind:ty),* $(,)?) -> $result:ty;)*) => {
        /// The symbol that the program is linked to.
        pub fn linked(name: &std::ffi::CStr) -> *const c_void {
            $(linked_symbols!(@one $need $name, name);)*
            super::library::loaded(name)
        }
    };
}

for_the_list!(function_table: /// Pointers to the runtime's functions.
    Functions:);
for_the_list!(agreement:);
#[cfg(feature = "hip-runtime-sys")]
for_the_list!(linked_symbols:);
