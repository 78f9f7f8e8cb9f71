//! The functions of the HIP runtime that measurements need beyond the library's own, each declared once. The types come from
//! `bindings.rs`, which `make bindings` compares with HIP's headers.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::bindings::{
    self, hipDeviceAttribute_t, hipError_t, hipEvent_t, hipFunction_t, hipGraph_t, hipGraphExec_t, hipGraphNode_t,
    hipModule_t, hipStream_t, hipStreamCaptureMode,
};
use super::table::{agreement, function_table};

/// Hands the list to a macro.
macro_rules! for_the_list {
    ($macro:ident: $($before:tt)*) => {
        $macro! {
            $($before)*
        REQUIRED hipInit(flags: c_uint) -> hipError_t;
        REQUIRED hipGetErrorName(status: hipError_t) -> *const c_char;
        REQUIRED hipRuntimeGetVersion(version: *mut c_int) -> hipError_t;
        REQUIRED hipDriverGetVersion(version: *mut c_int) -> hipError_t;
        REQUIRED hipGetDevice(device: *mut c_int) -> hipError_t;
        REQUIRED hipDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> hipError_t;
        REQUIRED hipDeviceTotalMem(bytes: *mut usize, device: c_int) -> hipError_t;
        REQUIRED hipDeviceGetAttribute(value: *mut c_int, attribute: hipDeviceAttribute_t, device: c_int) -> hipError_t;
        REQUIRED hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: c_uint) -> hipError_t;
        REQUIRED hipStreamDestroy(stream: hipStream_t) -> hipError_t;
        REQUIRED hipStreamSynchronize(stream: hipStream_t) -> hipError_t;
        REQUIRED hipStreamBeginCapture(stream: hipStream_t, mode: hipStreamCaptureMode) -> hipError_t;
        REQUIRED hipStreamEndCapture(stream: hipStream_t, graph: *mut hipGraph_t) -> hipError_t;
        REQUIRED hipGraphInstantiate(
            made: *mut hipGraphExec_t,
            graph: hipGraph_t,
            error: *mut hipGraphNode_t,
            log: *mut c_char,
            size: usize
        ) -> hipError_t;
        REQUIRED hipGraphGetNodes(graph: hipGraph_t, nodes: *mut hipGraphNode_t, count: *mut usize) -> hipError_t;
        REQUIRED hipGraphLaunch(graph: hipGraphExec_t, stream: hipStream_t) -> hipError_t;
        REQUIRED hipGraphDestroy(graph: hipGraph_t) -> hipError_t;
        REQUIRED hipGraphExecDestroy(graph: hipGraphExec_t) -> hipError_t;
        REQUIRED hipEventCreate(event: *mut hipEvent_t) -> hipError_t;
        REQUIRED hipEventDestroy(event: hipEvent_t) -> hipError_t;
        REQUIRED hipEventRecord(event: hipEvent_t, stream: hipStream_t) -> hipError_t;
        REQUIRED hipEventSynchronize(event: hipEvent_t) -> hipError_t;
        REQUIRED hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t) -> hipError_t;
        REQUIRED hipMemcpyDtoDAsync(to: *mut c_void, from: *mut c_void, bytes: usize, stream: hipStream_t) -> hipError_t;
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
        }
    };
}

for_the_list!(function_table: /// Pointers to the runtime's functions.
    Functions:);
for_the_list!(agreement:);
