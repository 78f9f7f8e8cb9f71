//! The functions of CUDA's driver and of NVRTC that are used, each declared once.
//!
//! Types come from `cudarc`. Its own functions are not called: they return enumerations with a fixed set of values, of which newer
//! drivers know more, and they panic where a library lacks a symbol. A status is an integer here.

use std::ffi::{c_char, c_int, c_uint, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUfunction, CUlaunchConfig, CUmodule, CUstream,
};
use cudarc::nvrtc::sys::nvrtcProgram;

use crate::driver::table::function_table;

/// A `CUresult`.
pub type Status = c_uint;
/// An `nvrtcResult`.
pub type NvrtcStatus = c_uint;

function_table! {
    /// Pointers to the driver's functions.
    Functions:
    REQUIRED cuInit(flags: c_uint) -> Status;
    REQUIRED cuDriverGetVersion(version: *mut c_int) -> Status;
    REQUIRED cuDeviceGetCount(count: *mut c_int) -> Status;
    REQUIRED cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> Status;
    REQUIRED cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice) -> Status;
    REQUIRED cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice) -> Status;
    REQUIRED cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> Status;
    REQUIRED cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Status;
    REQUIRED cuCtxGetCurrent(context: *mut CUcontext) -> Status;
    REQUIRED cuCtxGetDevice(device: *mut CUdevice) -> Status;
    REQUIRED cuCtxPushCurrent_v2(context: CUcontext) -> Status;
    REQUIRED cuCtxPopCurrent_v2(context: *mut CUcontext) -> Status;
    REQUIRED cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> Status;
    REQUIRED cuModuleUnload(module: CUmodule) -> Status;
    REQUIRED cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Status;
    REQUIRED cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint,
        stream: CUstream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Status;
    REQUIRED cuMemAlloc_v2(memory: *mut CUdeviceptr, bytes: usize) -> Status;
    REQUIRED cuMemFree_v2(memory: CUdeviceptr) -> Status;
    REQUIRED cuMemcpyHtoD_v2(to: CUdeviceptr, from: *const c_void, bytes: usize) -> Status;
    REQUIRED cuMemcpyDtoH_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Status;
    REQUIRED cuStreamSynchronize(stream: CUstream) -> Status;
    REQUIRED cuStreamIsCapturing(stream: CUstream, state: *mut c_uint) -> Status;
    REQUIRED cuGetErrorName(status: Status, text: *mut *const c_char) -> Status;
    REQUIRED cuGetErrorString(status: Status, text: *mut *const c_char) -> Status;
    // Since CUDA 11.8. Without it, launches do not overlap.
    OPTIONAL cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Status;
}

function_table! {
    /// Pointers to NVRTC's functions.
    NvrtcFunctions:
    REQUIRED nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> NvrtcStatus;
    REQUIRED nvrtcGetErrorString(status: NvrtcStatus) -> *const c_char;
    REQUIRED nvrtcCreateProgram(
        program: *mut nvrtcProgram,
        source: *const c_char,
        name: *const c_char,
        headers: c_int,
        header_texts: *const *const c_char,
        header_names: *const *const c_char,
    ) -> NvrtcStatus;
    REQUIRED nvrtcDestroyProgram(program: *mut nvrtcProgram) -> NvrtcStatus;
    REQUIRED nvrtcCompileProgram(program: nvrtcProgram, count: c_int, options: *const *const c_char) -> NvrtcStatus;
    REQUIRED nvrtcGetProgramLogSize(program: nvrtcProgram, bytes: *mut usize) -> NvrtcStatus;
    REQUIRED nvrtcGetProgramLog(program: nvrtcProgram, log: *mut c_char) -> NvrtcStatus;
    // Since CUDA 11.1 and 11.2.
    REQUIRED nvrtcGetCUBINSize(program: nvrtcProgram, bytes: *mut usize) -> NvrtcStatus;
    REQUIRED nvrtcGetCUBIN(program: nvrtcProgram, cubin: *mut c_char) -> NvrtcStatus;
    REQUIRED nvrtcGetNumSupportedArchs(count: *mut c_int) -> NvrtcStatus;
    REQUIRED nvrtcGetSupportedArchs(archs: *mut c_int) -> NvrtcStatus;
}
