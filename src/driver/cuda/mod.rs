//! CUDA's driver and its run-time compiler, as much of them as the CUDA port needs: `functions.rs` has the declarations,
//! [`Cuda`] and [`nvrtc::Nvrtc`] the calls, each with a `Result`; [`Context`], [`Module`] and [`Buffer`] own what they hold.

mod advice;
mod functions;
pub mod library;
pub mod nvrtc;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUfunction, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUmodule,
};
use functions::{Functions, Status};

pub use advice::NO_DEVICE as NO_DEVICE_ADVICE;

use super::table::Lookup;
use super::text;
use crate::{DriverError, Error, Stream, memory};

const SUCCESS: Status = 0;

/// A loaded driver. Every call may come from any thread; "current context" is the calling thread's.
#[derive(Debug)]
pub struct Cuda {
    functions: Functions,
    origin: String,
}

/// Three dimensions of a launch.
pub type Extent = [u32; 3];

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// The product's name.
    pub name: String,
    /// Compute capability: (9, 0) for sm_90.
    pub capability: (i32, i32),
    /// Bytes of the L2 cache.
    pub l2_bytes: i32,
}

impl Cuda {
    /// The driver whose symbols `lookup` finds.
    ///
    /// # Errors
    ///
    /// The names of required functions that it lacks.
    ///
    /// # Safety
    ///
    /// As for [`Functions::resolve`].
    unsafe fn of(lookup: &Lookup<'_>, origin: String) -> Result<Self, Vec<&'static str>> {
        // SAFETY: the caller's promise.
        let functions = unsafe { Functions::resolve(lookup) }?;
        Ok(Self { functions, origin })
    }

    /// Where the library comes from: the name that loaded it.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// `call` is only run where the status is an error.
    fn check(&self, status: Status, call: impl FnOnce() -> String) -> Result<(), Box<DriverError>> {
        if status == SUCCESS { Ok(()) } else { Err(self.error(status, call())) }
    }

    #[cold]
    fn error(&self, status: Status, call: String) -> Box<DriverError> {
        let ask = |function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: takes any integer; writes null, or a text that lives as long as the library.
            let known = unsafe { function(status, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: as above.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        Box::new(DriverError {
            call,
            code: status.into(),
            name: ask(self.functions.cuGetErrorName).unwrap_or_else(|| "an error without a name".to_owned()),
            text: ask(self.functions.cuGetErrorString).unwrap_or_else(|| "the library gives no text".to_owned()),
            advice: advice::of(status).to_owned(),
        })
    }

    /// Initialises the driver. May be called again and again.
    pub fn init(&self) -> Result<(), Box<DriverError>> {
        // SAFETY: 0 is the only legal value of the argument.
        let status = unsafe { (self.functions.cuInit)(0) };
        self.check(status, || "cuInit".to_owned())
    }

    /// The newest CUDA that the driver serves: 13000 for 13.0.
    pub fn version(&self) -> Result<i32, Box<DriverError>> {
        let mut version = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.functions.cuDriverGetVersion)(&raw mut version) };
        self.check(status, || "cuDriverGetVersion".to_owned()).map(|()| version)
    }

    /// Devices that this process may use.
    pub fn device_count(&self) -> Result<i32, Box<DriverError>> {
        let mut count = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.functions.cuDeviceGetCount)(&raw mut count) };
        self.check(status, || "cuDeviceGetCount".to_owned()).map(|()| count)
    }

    /// The device of the calling thread's context; `None` where it has none.
    pub fn current_device(&self) -> Result<Option<i32>, Box<DriverError>> {
        if self.current()?.is_null() {
            return Ok(None);
        }
        let mut device = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.functions.cuCtxGetDevice)(&raw mut device) };
        self.check(status, || "cuCtxGetDevice".to_owned()).map(|()| Some(device))
    }

    fn current(&self) -> Result<CUcontext, Box<DriverError>> {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let status = unsafe { (self.functions.cuCtxGetCurrent)(&raw mut context) };
        self.check(status, || "cuCtxGetCurrent".to_owned()).map(|()| context)
    }

    /// Makes a context the calling thread's until the guard goes.
    fn enter(&self, context: CUcontext) -> Result<Entered<'_>, Box<DriverError>> {
        let pushed = self.current()? != context;
        if pushed {
            // SAFETY: any pointer; the driver refuses a context that is gone.
            let status = unsafe { (self.functions.cuCtxPushCurrent_v2)(context) };
            self.check(status, || "cuCtxPushCurrent".to_owned())?;
        }
        Ok(Entered { cuda: self, pushed, thread: PhantomData })
    }

    /// Name, compute capability and cache of a device.
    pub fn properties(&self, device: i32) -> Result<Properties, Box<DriverError>> {
        let mut name: [c_char; 128] = [0; 128];
        // SAFETY: writes at most so many bytes, and a zero at the end of them.
        let status = unsafe { (self.functions.cuDeviceGetName)(name.as_mut_ptr(), name.len() as c_int, device) };
        self.check(status, || format!("cuDeviceGetName(device {device})"))?;
        let attribute = |attribute: CUdevice_attribute, what: &str| {
            let mut value = 0;
            // SAFETY: writes one int.
            let status = unsafe { (self.functions.cuDeviceGetAttribute)(&raw mut value, attribute, device) };
            self.check(status, || format!("cuDeviceGetAttribute({what}, device {device})")).map(|()| value)
        };
        use CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE as L2,
        };
        Ok(Properties {
            name: text(&name),
            capability: (attribute(MAJOR, "compute capability")?, attribute(MINOR, "compute capability")?),
            l2_bytes: attribute(L2, "L2 cache")?,
        })
    }

    /// The context in which a port works: the calling thread's where that is of the device, else the device's primary one, which
    /// stays alive as long as this does.
    pub fn context(&'static self, device: i32) -> Result<Context, Box<DriverError>> {
        if self.current_device()? == Some(device) {
            return Ok(Context { cuda: self, context: self.current()?, retained: None });
        }
        let mut handle: CUdevice = 0;
        // SAFETY: writes one int.
        let status = unsafe { (self.functions.cuDeviceGet)(&raw mut handle, device) };
        self.check(status, || format!("cuDeviceGet({device})"))?;
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        let status = unsafe { (self.functions.cuDevicePrimaryCtxRetain)(&raw mut context, handle) };
        self.check(status, || format!("cuDevicePrimaryCtxRetain(device {device})"))?;
        Ok(Context { cuda: self, context, retained: Some(handle) })
    }
}

/// The context of a device. Its calls make it the calling thread's where it is not, and set that back.
pub struct Context {
    cuda: &'static Cuda,
    context: CUcontext,
    /// The device whose primary context this is, if it was retained here.
    retained: Option<CUdevice>,
}

// SAFETY: a handle, which the driver lets every thread use.
unsafe impl Send for Context {}
// SAFETY: as above; only `Drop` ends it.
unsafe impl Sync for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({:p})", self.context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Some(device) = self.retained {
            // SAFETY: retained once, released once.
            let status = unsafe { (self.cuda.functions.cuDevicePrimaryCtxRelease_v2)(device) };
            if let Err(error) = self.cuda.check(status, || "cuDevicePrimaryCtxRelease".to_owned()) {
                log::warn!("{error}");
            }
        }
    }
}

impl Context {
    /// Makes this the calling thread's context until the guard goes.
    pub fn enter(&self) -> Result<Entered<'_>, Box<DriverError>> {
        self.cuda.enter(self.context)
    }

    /// Loads a compiled kernel.
    ///
    /// # Safety
    ///
    /// `image` is a whole CUBIN: the call is not told its length. The context outlives the module.
    pub unsafe fn load_module(&self, image: &[u8]) -> Result<Module, Box<DriverError>> {
        let _entered = self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the caller's promise.
        let status = unsafe { (self.cuda.functions.cuModuleLoadData)(&raw mut module, image.as_ptr().cast()) };
        self.cuda.check(status, || format!("cuModuleLoadData({} bytes)", image.len()))?;
        Ok(Module { cuda: self.cuda, context: self.context, module })
    }

    /// Memory of the device, uninitialised. The context outlives it.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, Box<DriverError>> {
        let _entered = self.enter()?;
        let mut memory = 0;
        // The driver has no memory of 0 bytes.
        // SAFETY: writes one address.
        let status = unsafe { (self.cuda.functions.cuMemAlloc_v2)(&raw mut memory, bytes.max(1)) };
        self.cuda.check(status, || format!("cuMemAlloc({bytes} bytes)"))?;
        Ok(Buffer { cuda: self.cuda, context: self.context, memory, bytes })
    }

    /// Waits until everything on a stream is done, and gives its faults.
    ///
    /// # Safety
    ///
    /// The stream is a live one of this context, or null.
    pub unsafe fn synchronize(&self, stream: Stream) -> Result<(), Box<DriverError>> {
        let _entered = self.enter()?;
        // SAFETY: the caller's promise.
        let status = unsafe { (self.cuda.functions.cuStreamSynchronize)(stream.0.cast()) };
        self.cuda.check(status, || "cuStreamSynchronize".to_owned())
    }

    /// Whether a stream is being captured into a graph.
    ///
    /// # Safety
    ///
    /// The stream is a live one of this context, or null.
    pub unsafe fn is_capturing(&self, stream: Stream) -> Result<bool, Box<DriverError>> {
        let _entered = self.enter()?;
        let mut state = 0;
        // SAFETY: the caller's promise; writes one enumeration.
        let status = unsafe { (self.cuda.functions.cuStreamIsCapturing)(stream.0.cast(), &raw mut state) };
        self.cuda.check(status, || "cuStreamIsCapturing".to_owned()).map(|()| state != 0)
    }

    /// Queues a kernel whose one argument is `argument`, which the driver copies before this returns. `overlap`: it may begin
    /// before what is queued ahead of it has ended, and waits for that itself.
    ///
    /// # Safety
    ///
    /// `T` is the kernel's parameter struct, what it points to satisfies the kernel until the stream has passed the launch, the
    /// stream is a live one of this context, or null, and only a kernel that waits is told to overlap.
    pub unsafe fn launch<T>(
        &self,
        function: Function,
        grid: Extent,
        block: Extent,
        argument: &T,
        stream: Stream,
        overlap: bool,
    ) -> Result<(), Box<DriverError>> {
        let _entered = self.enter()?;
        let mut arguments = [std::ptr::from_ref(argument).cast_mut().cast::<c_void>()];
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (grid, block);
        let (stream, shared_bytes): (_, c_uint) = (stream.0.cast(), 0);
        let functions = &self.cuda.functions;
        let (name, status) = match functions.cuLaunchKernelEx.filter(|_| overlap) {
            Some(launch) => {
                let mut attribute = CUlaunchAttribute {
                    id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                    pad: [0; 4],
                    value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
                };
                let config = CUlaunchConfig {
                    gridDimX: grid_x,
                    gridDimY: grid_y,
                    gridDimZ: grid_z,
                    blockDimX: block_x,
                    blockDimY: block_y,
                    blockDimZ: block_z,
                    sharedMemBytes: shared_bytes,
                    hStream: stream,
                    attrs: &raw mut attribute,
                    numAttrs: 1,
                };
                let list = arguments.as_mut_ptr();
                // SAFETY: the caller's promise; the argument list has the one entry that the kernel has, and is only read.
                ("cuLaunchKernelEx", unsafe { launch(&raw const config, function.0, list, std::ptr::null_mut()) })
            }
            None => {
                // SAFETY: as above.
                let status = unsafe {
                    (functions.cuLaunchKernel)(
                        function.0,
                        grid_x,
                        grid_y,
                        grid_z,
                        block_x,
                        block_y,
                        block_z,
                        shared_bytes,
                        stream,
                        arguments.as_mut_ptr(),
                        std::ptr::null_mut(),
                    )
                };
                ("cuLaunchKernel", status)
            }
        };
        self.cuda.check(status, || format!("{name}(grid {grid:?}, block {block:?})"))
    }
}

/// While this lives, a context is the calling thread's.
#[derive(Debug)]
pub struct Entered<'a> {
    cuda: &'a Cuda,
    pushed: bool,
    /// What a thread pushed, it has to pop: the guard does not travel.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if !self.pushed {
            return;
        }
        let mut popped = std::ptr::null_mut();
        // SAFETY: pushed once, popped once, by the same thread.
        let status = unsafe { (self.cuda.functions.cuCtxPopCurrent_v2)(&raw mut popped) };
        if let Err(error) = self.cuda.check(status, || "cuCtxPopCurrent".to_owned()) {
            log::warn!("the thread's CUDA context could not be set back: {error}");
        }
    }
}

/// Runs a call that frees something, with its context made current; a context that is gone has freed it already.
fn free(cuda: &'static Cuda, context: CUcontext, what: &str, call: impl FnOnce(&Functions) -> Status) {
    let freed = cuda.enter(context).and_then(|_entered| cuda.check(call(&cuda.functions), || what.to_owned()));
    if let Err(error) = freed {
        log::warn!("{error}");
    }
}

/// A loaded kernel image.
pub struct Module {
    cuda: &'static Cuda,
    context: CUcontext,
    module: CUmodule,
}

// SAFETY: handles, which the driver lets every thread use.
unsafe impl Send for Module {}
// SAFETY: as above; only `Drop` ends it.
unsafe impl Sync for Module {}

impl Module {
    /// A kernel of the module. Must not outlive it.
    pub fn function(&self, name: &str) -> Result<Function, Box<DriverError>> {
        let c_name = CString::new(name).unwrap_or_default(); // a name with a zero byte inside is no kernel's
        let mut function = std::ptr::null_mut();
        // SAFETY: a live module, a text that ends in zero, room for one handle.
        let status =
            unsafe { (self.cuda.functions.cuModuleGetFunction)(&raw mut function, self.module, c_name.as_ptr()) };
        self.cuda.check(status, || format!("cuModuleGetFunction({name})"))?;
        Ok(Function(function))
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module({:p})", self.module)
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let module = self.module;
        // SAFETY: loaded once, unloaded once.
        free(self.cuda, self.context, "cuModuleUnload", |functions| unsafe { (functions.cuModuleUnload)(module) });
    }
}

/// A kernel of a loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Function(CUfunction);

// SAFETY: a handle, which the driver lets every thread use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// Device memory.
#[derive(Debug)]
pub struct Buffer {
    cuda: &'static Cuda,
    context: CUcontext,
    memory: CUdeviceptr,
    bytes: usize,
}

impl Buffer {
    fn at(&self, offset: usize, len: usize) -> CUdeviceptr {
        memory::assert_fits(offset, len, self.bytes);
        self.memory.wrapping_add(offset as u64)
    }

    fn entered<T>(&self, call: impl FnOnce() -> Result<T, Box<DriverError>>) -> Result<T, Error> {
        let _entered = self.cuda.enter(self.context)?;
        Ok(call()?)
    }
}

impl memory::Buffer for Buffer {
    fn address(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.memory as usize)
    }

    fn upload(&mut self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let to = self.at(offset, from.len());
        self.entered(|| {
            // SAFETY: both ranges hold so many bytes: a slice, and a part of the buffer (checked).
            let status = unsafe { (self.cuda.functions.cuMemcpyHtoD_v2)(to, from.as_ptr().cast(), from.len()) };
            self.cuda.check(status, || format!("cuMemcpyHtoD({} bytes)", from.len()))?;
            // The host's memory has been read then, but the bytes may still be on their way, and streams that do not wait for the
            // default one would overtake them.
            // SAFETY: the default stream is always there.
            let status = unsafe { (self.cuda.functions.cuStreamSynchronize)(std::ptr::null_mut()) };
            self.cuda.check(status, || "cuStreamSynchronize".to_owned())
        })
    }

    /// After everything before it on the default stream.
    fn download(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let from = self.at(offset, to.len());
        self.entered(|| {
            // SAFETY: both ranges hold so many bytes: a slice, and a part of the buffer (checked).
            let status = unsafe { (self.cuda.functions.cuMemcpyDtoH_v2)(to.as_mut_ptr().cast(), from, to.len()) };
            self.cuda.check(status, || format!("cuMemcpyDtoH({} bytes)", to.len()))
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = self.memory;
        // SAFETY: allocated once, freed once.
        free(self.cuda, self.context, "cuMemFree", |functions| unsafe { (functions.cuMemFree_v2)(memory) });
    }
}
