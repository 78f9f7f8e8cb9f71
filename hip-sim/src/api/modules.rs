//! Code objects, kernels, and launches.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;

use super::enter::{bytes, exports, put};
use super::graphs::{Node, queue};
use super::runtime::{Function, Object, Runtime};
use super::status::Status;
use super::streams::check_stream;
use crate::code_object::{BUNDLE_MAGIC, KernelMetadata, LoadError, bundle_length, elf_length};
use crate::device::{LDS_MAX, LaunchError, ModuleError, ModuleId};
use crate::dispatch::{Geometry, GeometryError, explicit_size};

impl From<ModuleError> for Status {
    fn from(error: ModuleError) -> Self {
        eprintln!("hip-sim: {error}");
        match error {
            ModuleError::Load(LoadError::NotAnImage(_)) => Self::INVALID_IMAGE,
            ModuleError::Load(LoadError::OtherArchitecture { .. }) => Self::NO_BINARY_FOR_GPU,
            ModuleError::Load(LoadError::Malformed(_)) => Self::INVALID_KERNEL_FILE,
            ModuleError::Memory(error) => error.into(),
        }
    }
}

impl From<LaunchError> for Status {
    fn from(error: LaunchError) -> Self {
        match &error {
            LaunchError::Failed => return Self::LAUNCH_FAILURE,
            LaunchError::Fault(report) => eprint!("{report}"),
            other => eprintln!("hip-sim: {other}"),
        }
        match error {
            LaunchError::NoKernel(_) => Self::NOT_FOUND,
            LaunchError::Refused(_) => Self::INVALID_CONFIGURATION,
            LaunchError::Arguments(_) => Self::INVALID_VALUE,
            LaunchError::Memory(error) => error.into(),
            LaunchError::Failed | LaunchError::Fault(_) => Self::LAUNCH_FAILURE,
        }
    }
}

/// `HIP_LAUNCH_PARAM_*`: marks in the `extra` argument of a launch.
const PARAM_POINTER: usize = 1;
const PARAM_SIZE: usize = 2;
const PARAM_END: usize = 3;

/// `hipFunction_attribute`.
const MAX_THREADS_PER_BLOCK: i32 = 0;
const SHARED_SIZE_BYTES: i32 = 1;
const CONST_SIZE_BYTES: i32 = 2;
const LOCAL_SIZE_BYTES: i32 = 3;
const NUM_REGS: i32 = 4;
const PTX_VERSION: i32 = 5;
const BINARY_VERSION: i32 = 6;
const CACHE_MODE_CA: i32 = 7;
const MAX_DYNAMIC_SHARED_SIZE_BYTES: i32 = 8;
const PREFERRED_SHARED_MEMORY_CARVEOUT: i32 = 9;

/// The bytes of an image, whose length only its headers tell.
///
/// # Safety
///
/// The pointer is null or that of an image whose headers tell no more bytes than are there, and at least 64.
unsafe fn image<'a>(pointer: *const c_void) -> Result<&'a [u8], Status> {
    const ELF_HEADER: usize = 64;
    // SAFETY: at least 64 bytes are there, by this function's contract.
    let head = unsafe { bytes(pointer, ELF_HEADER)? };
    let length = if head.starts_with(BUNDLE_MAGIC) {
        // SAFETY: the header tells how far it goes, and that much is there by this function's contract.
        bundle_length(&mut |size| unsafe { bytes(pointer, size) }.unwrap_or(&[]))
    } else {
        elf_length(head)
    };
    let length = length.map_err(ModuleError::Load)?;
    // SAFETY: the headers told this length.
    unsafe { bytes(pointer, length) }
}

fn load(runtime: &Runtime, image: &[u8]) -> Result<usize, Status> {
    let id = runtime.here()?.load(image)?;
    Ok(runtime.handles().add(Object::Module(runtime.current(), id)))
}

/// A string of the caller.
///
/// # Safety
///
/// The pointer is null or that of a string with a null at its end, which nobody changes until the call returns.
unsafe fn string<'a>(pointer: *const c_char) -> Result<&'a str, Status> {
    if pointer.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: not null, and then a string by this function's contract.
    unsafe { CStr::from_ptr(pointer) }.to_str().map_err(|_| Status::NOT_FOUND)
}

/// Explicit arguments from an array of pointers, one per argument.
///
/// # Safety
///
/// The array has a pointer per explicit argument of the kernel, each to a value of that argument's size.
unsafe fn gather(kernel: &KernelMetadata, pointers: *mut *mut c_void) -> Result<Vec<u8>, Status> {
    let mut packed = vec![0; explicit_size(kernel)];
    for (index, argument) in kernel.explicit().enumerate() {
        // SAFETY: the array has that many pointers by this function's contract.
        let pointer = unsafe { pointers.add(index).read_unaligned() };
        // SAFETY: the pointer is to a value of that size by this function's contract.
        let value = unsafe { bytes(pointer, argument.size)? };
        packed[argument.offset..argument.offset + argument.size].copy_from_slice(value);
    }
    Ok(packed)
}

/// Explicit arguments from a buffer that `extra` tells of.
///
/// # Safety
///
/// The list is of marks and pointers as HIP has it, and the buffer has the size that it tells.
unsafe fn buffer(extra: *mut *mut c_void) -> Result<Vec<u8>, Status> {
    let (mut pointer, mut size) = (None, None);
    let mut at = 0;
    // SAFETY: the list goes on up to the mark of its end, by this function's contract; the same below.
    let entry = |index: usize| unsafe { extra.add(index).read_unaligned() };
    loop {
        match entry(at) as usize {
            PARAM_END => break,
            PARAM_POINTER => pointer = Some(entry(at + 1)),
            PARAM_SIZE => size = Some(entry(at + 1).cast::<usize>()),
            _ => return Err(Status::INVALID_VALUE),
        }
        at += 2;
    }
    let (pointer, size) = pointer.zip(size).filter(|(_, size)| !size.is_null()).ok_or(Status::INVALID_VALUE)?;
    // SAFETY: not null, and then a size by this function's contract.
    let size = unsafe { size.read_unaligned() };
    // SAFETY: the buffer has that size by this function's contract.
    Ok(unsafe { bytes(pointer, size)? }.to_vec())
}

/// Where a launch finds its arguments.
#[derive(Clone, Copy)]
struct Parameters {
    pointers: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// Launches a kernel.
///
/// # Safety
///
/// The parameters are the kernel's, in one of the two forms.
unsafe fn launch(
    runtime: &Runtime,
    function: *mut c_void,
    geometry: Result<Geometry, GeometryError>,
    dynamic_lds: u32,
    stream: *mut c_void,
    parameters: Parameters,
) -> Result<(), Status> {
    let Some(Object::Function(Function { device: number, module, name, .. })) =
        runtime.handles().get(function as usize).cloned()
    else {
        return Err(Status::INVALID_HANDLE);
    };
    if check_stream(runtime, stream)? != number {
        eprintln!("hip-sim: {name}: a kernel of device {number} on a stream of another one");
        return Err(Status::INVALID_HANDLE);
    }
    let device = runtime.device(number)?;
    let geometry = geometry.map_err(|error| {
        eprintln!("hip-sim: {name}: {error}");
        Status::INVALID_CONFIGURATION
    })?;
    let code = device.module(module).ok_or(Status::INVALID_HANDLE)?.clone();
    let kernel = &code.object.kernel(&name).ok_or(Status::NOT_FOUND)?.metadata;
    let arguments = match (parameters.pointers.is_null(), parameters.extra.is_null()) {
        // SAFETY: by this function's contract.
        (false, true) => unsafe { gather(kernel, parameters.pointers)? },
        // SAFETY: by this function's contract.
        (true, false) => unsafe { buffer(parameters.extra)? },
        (true, true) if explicit_size(kernel) == 0 => Vec::new(),
        _ => return Err(Status::INVALID_VALUE),
    };
    drop(device);
    let work = Work { device: number, module, name, geometry, dynamic_lds, arguments };
    queue(runtime, stream, Node::Launch(work))
}

/// A launch with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Work {
    device: usize,
    module: ModuleId,
    name: String,
    geometry: Geometry,
    dynamic_lds: u32,
    arguments: Vec<u8>,
}

/// Runs a kernel.
pub(super) fn run(runtime: &Runtime, work: &Work) -> Result<(), Status> {
    let Work { device, module, name, geometry, dynamic_lds, arguments } = work;
    runtime.device(*device)?.launch(*module, name, *geometry, *dynamic_lds, arguments)?;
    Ok(())
}

exports! {
    /// Loads a code object: a bare ELF file, or an uncompressed offload bundle.
    fn hipModuleLoadData(module: *mut *mut c_void, pointer: *const c_void) |runtime| {
        if module.is_null() || pointer.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: an image by this function's contract.
        let handle = load(runtime, unsafe { image(pointer)? })?;
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(module, handle as *mut c_void) }
    };

    /// Loads a code object; the options are for compilers at run time and change nothing.
    fn hipModuleLoadDataEx(
        module: *mut *mut c_void,
        pointer: *const c_void,
        count: u32,
        options: *mut i32,
        values: *mut *mut c_void,
    ) |runtime| {
        let _ = (count, options, values);
        if module.is_null() || pointer.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: an image by this function's contract.
        let handle = load(runtime, unsafe { image(pointer)? })?;
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(module, handle as *mut c_void) }
    };

    /// Loads a code object from a file.
    fn hipModuleLoad(module: *mut *mut c_void, file: *const c_char) |runtime| {
        /// `hipErrorFileNotFound`.
        const FILE_NOT_FOUND: Status = Status(301);
        if module.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: a string by this function's contract.
        let path = unsafe { string(file)? };
        let handle = load(runtime, &std::fs::read(Path::new(path)).map_err(|_| FILE_NOT_FOUND)?)?;
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(module, handle as *mut c_void) }
    };

    /// Unloads a code object; its kernels are gone.
    fn hipModuleUnload(module: *mut c_void) |runtime| {
        let Some(Object::Module(device, id)) = runtime.handles().get(module as usize).cloned() else {
            return Err(Status::INVALID_HANDLE);
        };
        runtime.device(device)?.unload(id)?;
        let mut handles = runtime.handles();
        handles.remove(module as usize);
        handles.remove_functions(module as usize);
        Ok(())
    };

    /// Finds a kernel by name.
    fn hipModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) |runtime| {
        if function.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: a string by this function's contract.
        let name = unsafe { string(name)? };
        let Some(Object::Module(device, id)) = runtime.handles().get(module as usize).cloned() else {
            return Err(Status::INVALID_HANDLE);
        };
        let code = runtime.device(device)?.module(id).ok_or(Status::INVALID_HANDLE)?.clone();
        code.object.kernel(name).ok_or(Status::NOT_FOUND)?;
        let kernel = Function { device, handle: module as usize, module: id, name: name.into() };
        let handle = runtime.handles().add(Object::Function(kernel));
        // SAFETY: valid for a write by this function's contract.
        unsafe { put(function, handle as *mut c_void) }
    };

    /// Finds a variable by name.
    fn hipModuleGetGlobal(
        pointer: *mut *mut c_void,
        size: *mut usize,
        module: *mut c_void,
        name: *const c_char,
    ) |runtime| {
        // SAFETY: a string by this function's contract.
        let name = unsafe { string(name)? };
        let Some(Object::Module(device, id)) = runtime.handles().get(module as usize).cloned() else {
            return Err(Status::INVALID_HANDLE);
        };
        let code = runtime.device(device)?.module(id).ok_or(Status::INVALID_HANDLE)?.clone();
        let symbol = code.object.image.symbols.iter().find(|symbol| symbol.object && symbol.name == name);
        let symbol = symbol.ok_or(Status::NOT_FOUND)?;
        if !size.is_null() {
            // SAFETY: valid for a write by this function's contract.
            unsafe { put(size, symbol.size as usize)? };
        }
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(pointer, (code.base + symbol.offset) as *mut c_void) }
    };

    /// Launches a kernel on whole work-groups. It has run when the call returns.
    fn hipModuleLaunchKernel(
        function: *mut c_void,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: u32,
        stream: *mut c_void,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |runtime| {
        let geometry = Geometry::of_blocks([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        // SAFETY: by this function's contract.
        unsafe { launch(runtime, function, geometry, shared, stream, Parameters { pointers: parameters, extra }) }
    };

    /// Launches a kernel on a number of work-items; the last work-groups may be smaller. Events are not recorded.
    fn hipExtModuleLaunchKernel(
        function: *mut c_void,
        items_x: u32,
        items_y: u32,
        items_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared: usize,
        stream: *mut c_void,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
        start: *mut c_void,
        stop: *mut c_void,
        flags: u32,
    ) |runtime| {
        if !start.is_null() || !stop.is_null() || flags != 0 {
            return Err(Status::NOT_SUPPORTED);
        }
        let geometry = Geometry::of_items([items_x, items_y, items_z], [block_x, block_y, block_z]);
        let shared = u32::try_from(shared).map_err(|_| Status::INVALID_VALUE)?;
        // SAFETY: by this function's contract.
        unsafe { launch(runtime, function, geometry, shared, stream, Parameters { pointers: parameters, extra }) }
    };

    /// A number that describes a kernel.
    fn hipFuncGetAttribute(value: *mut i32, attribute: i32, function: *mut c_void) |runtime| {
        let Some(Object::Function(Function { device, module, name, .. })) =
            runtime.handles().get(function as usize).cloned()
        else {
            return Err(Status::INVALID_HANDLE);
        };
        let device = runtime.device(device)?;
        let code = device.module(module).ok_or(Status::INVALID_HANDLE)?.clone();
        let kernel = code.object.kernel(&name).ok_or(Status::NOT_FOUND)?;
        let lds_left = LDS_MAX.saturating_sub(kernel.descriptor.lds.into());
        let number = match attribute {
            MAX_THREADS_PER_BLOCK => kernel.metadata.max_workgroup as i32,
            SHARED_SIZE_BYTES => kernel.descriptor.lds as i32,
            LOCAL_SIZE_BYTES => kernel.descriptor.scratch as i32,
            NUM_REGS => kernel.descriptor.vgprs as i32,
            CONST_SIZE_BYTES | CACHE_MODE_CA | PREFERRED_SHARED_MEMORY_CARVEOUT => 0,
            // Major version times ten, as the runtime answers it.
            PTX_VERSION | BINARY_VERSION => 30,
            MAX_DYNAMIC_SHARED_SIZE_BYTES => lds_left as i32,
            _ => return Err(Status::INVALID_VALUE),
        };
        // SAFETY: null, or valid for a write by this function's contract.
        unsafe { put(value, number) }
    };
}
