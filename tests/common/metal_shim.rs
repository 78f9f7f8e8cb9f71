//! The Metal port on the CPU: its kernel compiled as C++ by clang, for every key, and executed with each access checked
//! (`tests/metal_shim/`). Above the GPU, everything is the port's own: keys, plan, bindings, pipelines, memory, both levels.

mod build;

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use libloading::Library;
use ssm_update::ports::metal::abi::{Constants, TENSORS, at};
use ssm_update::ports::metal::key::{Key, WAVE, WAVES};
use ssm_update::ports::metal::support::{Facts, Language, System};
use ssm_update::ports::metal::{Compiled, Encoding, Gpu, MetalKernel};
use ssm_update::{DriverError, Error, Stream};

#[allow(unused_imports)] // by some test binaries
pub use build::{build, check, compilers, keys_source};

/// The shim's name among the ports under test.
pub const NAME: &str = "metal (shim)";

/// The port on the shim.
///
/// # Errors
///
/// Why the shim cannot be built here.
///
/// # Panics
///
/// When there is a compiler and it fails.
pub fn open() -> Result<MetalKernel<ShimGpu>, String> {
    Ok(MetalKernel::open(ShimGpu::new(Shim::load()?)).expect("the shim serves every key"))
}

/// `shim_tensor` of `runtime.h`.
#[repr(C)]
struct Tensor {
    buffer: *mut u8,
    at: *mut u8,
    bytes: u64,
    written: *mut u8,
    may_write: u32,
}

type Dispatch =
    unsafe extern "C" fn(usize, *const Tensor, *const c_void, usize, *const u32, u32, *mut c_char, usize) -> i32;

/// The compiled kernels.
pub struct Shim {
    dispatch: Dispatch,
    /// By number of the key.
    names: Vec<String>,
    path: PathBuf,
    /// Where the loaded library begins, which is where its places are counted from.
    start: usize,
}

impl Shim {
    /// The library, compiled by the first process that needs it and loaded once.
    ///
    /// # Errors
    ///
    /// There is no compiler for it.
    pub fn load() -> Result<&'static Self, String> {
        static SHIM: OnceLock<Result<Shim, String>> = OnceLock::new();
        SHIM.get_or_init(|| Ok(Self::of(&build::library()?))).as_ref().map_err(Clone::clone)
    }

    /// Loads a library that was built from `tests/metal_shim/`.
    pub fn of(path: &Path) -> Self {
        // SAFETY: our own library, whose initialisers do nothing.
        let library = unsafe { Library::new(path) }.expect("the shim was just built and loads");
        // Never unloaded: `dispatch` is used as long as the process lives.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: the declarations of runtime.cpp.
        let (dispatch, name) = unsafe {
            let name = library.get::<unsafe extern "C" fn(usize) -> *const c_char>(b"shim_kernel_name");
            (*library.get::<Dispatch>(b"shim_dispatch").expect("it is there"), *name.expect("it is there"))
        };
        let names = (0..)
            .map_while(|number| {
                // SAFETY: the function takes any number.
                let name = unsafe { name(number) };
                // SAFETY: a text of the library's, which stays.
                (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
            })
            .collect();
        Self { dispatch, names, path: path.to_owned(), start: build::start_of(path, dispatch as usize) }
    }

    /// The fault's text, with the place in the source instead of the address that it begins with.
    fn fault(&self, text: &str) -> String {
        let (address, what) = text.split_once(' ').unwrap_or((text, ""));
        let address = usize::from_str_radix(address.trim_start_matches("0x"), 16).unwrap_or(0);
        // A return address is behind the call.
        format!("{}: {what}", build::place(&self.path, address.wrapping_sub(self.start).wrapping_sub(1)))
    }
}

/// Memory of the shim with a byte per byte that says whether anybody wrote it.
pub struct ShimBuffer {
    start: NonNull<u8>,
    written: NonNull<u8>,
    length: usize,
}

// SAFETY: plain memory; who uses it when is the caller's business, as on a device.
unsafe impl Send for ShimBuffer {}
// SAFETY: as above.
unsafe impl Sync for ShimBuffer {}

impl fmt::Debug for ShimBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.length, self.start)
    }
}

impl ShimBuffer {
    /// Zeroed by the system where it is first touched, so that a large pool costs what is used of it.
    fn memory(length: usize) -> NonNull<u8> {
        let layout = std::alloc::Layout::from_size_align(length, 16).expect("a size in range");
        // SAFETY: `length` is not 0.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).expect("memory for a test's tensors")
    }
}

impl Drop for ShimBuffer {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.length, 16).expect("a size in range");
        for memory in [self.start, self.written] {
            // SAFETY: allocated by `memory` with this layout.
            unsafe { std::alloc::dealloc(memory.as_ptr(), layout) }
        }
    }
}

/// The CPU as a GPU.
pub struct ShimGpu {
    shim: &'static Shim,
    facts: Facts,
}

impl ShimGpu {
    /// One that serves everything.
    pub fn new(shim: &'static Shim) -> Self {
        let gpu = format!("metal/ssm_update.metal as C++ on the CPU, by {}", build::compiler_of(&shim.path));
        let facts = Facts { system: System::MacOs, version: (14, 0), gpu, apple6: true, mac2: true, metal3: true };
        Self { shim, facts }
    }
}

impl fmt::Debug for ShimGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShimGpu({})", self.shim.path.display())
    }
}

/// An encoder of the caller's: what is put there runs when it is committed.
#[derive(Debug, Default)]
pub struct ShimEncoder {
    commands: Vec<Command>,
}

#[derive(Debug)]
struct Command {
    kernel: usize,
    tensors: [(Arc<ShimBuffer>, usize, usize); TENSORS],
    constants: Constants,
    grid: [u32; 3],
}

impl ShimEncoder {
    /// The stream that a launch takes.
    pub fn stream(&mut self) -> Stream {
        Stream(std::ptr::from_mut(self).cast())
    }

    /// Number of dispatches that wait.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Runs them.
    pub fn commit(self, gpu: &ShimGpu) -> Result<(), Error> {
        self.commands.iter().try_for_each(|command| command.run(gpu.shim))
    }
}

impl Command {
    fn run(&self, shim: &Shim) -> Result<(), Error> {
        let tensor = |number: usize| {
            let (buffer, offset, bytes) = &self.tensors[number];
            Tensor {
                buffer: buffer.start.as_ptr(),
                at: buffer.start.as_ptr().wrapping_add(*offset),
                bytes: *bytes as u64,
                written: buffer.written.as_ptr(),
                may_write: (number == at::STATE_OUT || number == at::Y).into(),
            }
        };
        let tensors: [Tensor; TENSORS] = std::array::from_fn(tensor);
        let mut text = [0; 1024];
        // SAFETY: 13 tensors within their buffers, the constants of the kernel, three sizes, and room for a text.
        let status = unsafe {
            (shim.dispatch)(
                self.kernel,
                tensors.as_ptr(),
                (&raw const self.constants).cast(),
                size_of::<Constants>(),
                self.grid.as_ptr(),
                WAVES,
                text.as_mut_ptr(),
                text.len(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the shim ends the text.
        let text = shim.fault(&unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy());
        Err(driver_error("shim_dispatch", text).into())
    }
}

fn driver_error(call: &str, text: String) -> Box<DriverError> {
    let (call, name) = (call.to_owned(), "a fault of the kernel".to_owned());
    Box::new(DriverError { call, code: 1, name, text, advice: String::new() })
}

impl Gpu for ShimGpu {
    type Buffer = Arc<ShimBuffer>;
    /// Number of the kernel in the library.
    type Pipeline = usize;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn compile(&self, key: &Key, _: Language, _: &str) -> Result<Compiled<usize>, Box<DriverError>> {
        let name = key.to_string();
        let number = self.shim.names.iter().position(|other| *other == name);
        let pipeline = number.ok_or_else(|| driver_error("compile", format!("the shim has no {name}")))?;
        Ok(Compiled { pipeline, thread_execution_width: WAVE as usize, max_threads: 1024 })
    }

    fn allocate(&self, bytes: usize) -> Result<Self::Buffer, Box<DriverError>> {
        let (start, written) = (ShimBuffer::memory(bytes), ShimBuffer::memory(bytes));
        Ok(Arc::new(ShimBuffer { start, written, length: bytes }))
    }

    fn identity(buffer: &Self::Buffer) -> usize {
        Arc::as_ptr(buffer).addr()
    }

    fn address(buffer: &Self::Buffer) -> *mut c_void {
        buffer.start.as_ptr().cast()
    }

    fn length(buffer: &Self::Buffer) -> usize {
        buffer.length
    }

    unsafe fn write(&self, buffer: &Self::Buffer, offset: usize, from: &[u8]) {
        // SAFETY: the caller's promise; the marks are as long as the memory.
        unsafe {
            std::ptr::copy_nonoverlapping(from.as_ptr(), buffer.start.as_ptr().add(offset), from.len());
            buffer.written.as_ptr().add(offset).write_bytes(1, from.len());
        }
    }

    unsafe fn encode(&self, dispatch: &Encoding<'_, Self>, stream: Stream) -> Result<(), Error> {
        let tensors = dispatch.tensors.map(|tensor| (Arc::clone(tensor.buffer), tensor.offset, tensor.bytes));
        let command =
            Command { kernel: *dispatch.pipeline, tensors, constants: dispatch.constants, grid: dispatch.grid };
        if stream == Stream::DEFAULT {
            return command.run(self.shim);
        }
        // SAFETY: by the caller's promise, an encoder that nobody else uses.
        unsafe { &mut *stream.0.cast::<ShimEncoder>() }.commands.push(command);
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(())
    }
}
