//! Metal through `objc2-metal`: the one part of the port that needs a Mac, an iPhone or an iPad. Everything that can be decided
//! without one is in `ports::metal`.

mod buffer;
mod failure;
mod queue;

use std::ffi::c_void;
use std::ptr::NonNull;

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSProcessInfo, NSString};
use objc2_metal::{
    MTLCompileOptions, MTLComputeCommandEncoder, MTLComputePipelineState, MTLCreateSystemDefaultDevice, MTLDevice,
    MTLGPUFamily, MTLLanguageVersion, MTLLibrary, MTLResourceOptions, MTLSize,
};

pub use buffer::MetalBuffer;

use crate::ports::metal::abi::{Constants, at};
use crate::ports::metal::key::Key;
use crate::ports::metal::plan::THREADS;
use crate::ports::metal::support::{Facts, Language, System};
use crate::ports::metal::{Compiled, Encoding, Gpu, source};
use crate::{DriverError, Error, Stream, Unavailable};
use queue::Queue;

// Without it, a program that has no user interface gets no device on macOS.
#[cfg(target_os = "macos")]
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// A GPU of this machine.
#[derive(Debug)]
pub struct Apple {
    device: Retained<ProtocolObject<dyn MTLDevice>>,
    facts: Facts,
    queue: Queue,
}

impl Apple {
    /// The system's default GPU.
    ///
    /// # Errors
    ///
    /// There is none.
    pub fn system_default() -> Result<Self, Unavailable> {
        let device = MTLCreateSystemDefaultDevice();
        Self::of(device.ok_or_else(|| Unavailable::NoDevice("MTLCreateSystemDefaultDevice gave no device".to_owned()))?)
    }

    /// A GPU of the caller's choice, such as the one that an engine's buffers are on.
    ///
    /// # Errors
    ///
    /// It gives no command queue.
    pub fn of(device: Retained<ProtocolObject<dyn MTLDevice>>) -> Result<Self, Unavailable> {
        autoreleasepool(|_| {
            let version = NSProcessInfo::processInfo().operatingSystemVersion();
            let facts = Facts {
                system: if cfg!(target_os = "macos") { System::MacOs } else { System::Ios },
                version: (version.majorVersion, version.minorVersion),
                gpu: device.name().to_string(),
                apple6: device.supportsFamily(MTLGPUFamily::Apple6),
                mac2: device.supportsFamily(MTLGPUFamily::Mac2),
                metal3: device.supportsFamily(MTLGPUFamily::Metal3),
            };
            let queue = device
                .newCommandQueue()
                .ok_or_else(|| Unavailable::NoDevice(format!("{} gave no command queue", facts.gpu)))?;
            Ok(Self { device, facts, queue: Queue::new(queue) })
        })
    }

    /// The device.
    pub fn device(&self) -> &ProtocolObject<dyn MTLDevice> {
        &self.device
    }
}

/// The stream that stands for an encoder of the caller's. It must not be used after the encoder has ended.
pub fn encoder_stream(encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>) -> Stream {
    Stream(std::ptr::from_ref(encoder).cast::<c_void>().cast_mut())
}

/// A compiled kernel.
pub type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

impl Gpu for Apple {
    type Buffer = MetalBuffer;
    type Pipeline = Pipeline;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn compile(&self, key: &Key, language: Language, source: &str) -> Result<Compiled<Pipeline>, Box<DriverError>> {
        autoreleasepool(|_| {
            let options = MTLCompileOptions::new();
            options.setLanguageVersion(match language {
                Language::V2_4 => MTLLanguageVersion::Version2_4,
                Language::V3_1 => MTLLanguageVersion::Version3_1,
            });
            // Its successor, mathMode, is not there before macOS 15; this one still means the same.
            #[allow(deprecated)]
            options.setFastMathEnabled(false);
            let call = |name: &str| format!("{name} for {key} in Metal {}", language.name());
            let library = self
                .device
                .newLibraryWithSource_options_error(&NSString::from_str(source), Some(&options))
                .map_err(|error| failure::of(call("newLibraryWithSource"), &error))?;
            let function = library
                .newFunctionWithName(&NSString::from_str(source::FUNCTION))
                .ok_or_else(|| failure::without_reason(call("newFunctionWithName"), "no such function"))?;
            let pipeline = self
                .device
                .newComputePipelineStateWithFunction_error(&function)
                .map_err(|error| failure::of(call("newComputePipelineStateWithFunction"), &error))?;
            let (thread_execution_width, max_threads) =
                (pipeline.threadExecutionWidth(), pipeline.maxTotalThreadsPerThreadgroup());
            Ok(Compiled { pipeline, thread_execution_width, max_threads })
        })
    }

    fn allocate(&self, bytes: usize) -> Result<MetalBuffer, Box<DriverError>> {
        let buffer = self.device.newBufferWithLength_options(bytes, MTLResourceOptions::StorageModeShared);
        let call = || format!("newBufferWithLength of {bytes} bytes");
        buffer.map(MetalBuffer::new).ok_or_else(|| failure::without_reason(call(), "no buffer"))
    }

    fn identity(buffer: &MetalBuffer) -> usize {
        buffer.identity()
    }

    fn address(buffer: &MetalBuffer) -> *mut c_void {
        buffer.address()
    }

    fn length(buffer: &MetalBuffer) -> usize {
        buffer.length()
    }

    unsafe fn encode(&self, dispatch: &Encoding<'_, Self>, stream: Stream) -> Result<(), Error> {
        match NonNull::new(stream.0.cast::<ProtocolObject<dyn MTLComputeCommandEncoder>>()) {
            None => self.queue.submit(|encoder| put(dispatch, encoder))?,
            // SAFETY: by the caller's promise, an open encoder that lives and that no other thread uses.
            Some(encoder) => put(dispatch, unsafe { encoder.as_ref() }),
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(self.queue.wait()?)
    }
}

/// Puts a dispatch into an encoder.
fn put(dispatch: &Encoding<'_, Apple>, encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>) {
    encoder.setComputePipelineState(dispatch.pipeline);
    for (number, tensor) in dispatch.tensors.iter().enumerate() {
        // SAFETY: the offset is within the buffer, and the number is an argument of the kernel, of the type that its key says;
        // the command buffer keeps the buffer alive.
        unsafe { encoder.setBuffer_offset_atIndex(Some(tensor.buffer.raw()), tensor.offset, number) };
    }
    // SAFETY: as many bytes as are said are behind the pointer, and they are copied.
    unsafe {
        encoder.setBytes_length_atIndex(
            NonNull::from(&dispatch.constants).cast(),
            size_of::<Constants>(),
            at::CONSTANTS,
        );
    }
    let [width, height, depth] = dispatch.grid.map(|size| size as usize);
    let threads = MTLSize { width: THREADS as usize, height: 1, depth: 1 };
    encoder.dispatchThreadgroups_threadsPerThreadgroup(MTLSize { width, height, depth }, threads);
}
