//! The way of a kernel to candle's stream, on candle's own tensors.

use candle_core::{DType, Tensor};

/// Threads of most kernels' blocks.
pub(super) const THREADS: usize = 256;

/// Threads of a wave; the kernels' `WAVE`.
pub(super) const WAVE: usize = 32;

/// A kernel's argument. Tensors are contiguous and have at least the number of elements beside them; a null pointer stands for one that is not
/// there.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // made everywhere, read where a GPU is
pub(super) enum Arg<'a> {
    /// In the dtype of activations.
    Element(Option<&'a Tensor>, usize),
    F32(Option<&'a Tensor>, usize),
    U32(&'a Tensor, usize),
    Int(usize),
    Float(f32),
}

/// What to queue.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // as above
pub(super) struct Call<'a> {
    pub(super) kernel: &'static str,
    /// Of activations: f32 or bf16.
    pub(super) dtype: DType,
    pub(super) blocks: [usize; 2],
    pub(super) threads: usize,
    /// Elements of the output, the kernel's first argument.
    pub(super) outputs: usize,
    pub(super) args: &'a [Arg<'a>],
}

/// Whether `x` is one row of activations on a device that these kernels run on.
pub(crate) fn serves(x: &Tensor) -> bool {
    let on_device = cfg!(feature = "cuda") && x.device().is_cuda();
    on_device && x.dims().first() == Some(&1) && matches!(x.dtype(), DType::F32 | DType::BF16)
}

/// Bytes of the kernels' loads.
const LOAD: usize = 16;

/// Elements of such a load.
pub(super) fn elements(tensor: &Tensor) -> usize {
    LOAD / tensor.dtype().size_in_bytes()
}

/// Whether the rows of a contiguous tensor are whole loads.
pub(super) fn loads(tensor: &Tensor) -> bool {
    let whole = |count: usize| count.is_multiple_of(elements(tensor));
    tensor.dims().last().is_some_and(|columns| whole(*columns)) && whole(tensor.layout().start_offset())
}

/// Queues a call on the stream of `x`'s device, and returns its output, `[1, outputs]` of `dtype`.
#[cfg(not(feature = "cuda"))]
pub(super) fn launch(call: &Call<'_>, _x: &Tensor, _dtype: DType) -> candle_core::Result<Tensor> {
    candle_core::bail!("{} needs the feature `cuda`", call.kernel)
}

#[cfg(feature = "cuda")]
pub(super) use cuda::launch;

#[cfg(feature = "cuda")]
#[allow(unsafe_code)] // kernels on raw addresses
mod cuda {
    use std::ffi::c_void;
    use std::sync::OnceLock;

    use candle_core::backend::BackendStorage;
    use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DeviceRepr, SyncOnDrop, sys};
    use candle_core::cuda_backend::cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
    use candle_core::cuda_backend::{CudaStorage, CudaStorageSlice};
    use candle_core::op::BackpropOp;
    use candle_core::{DType, Error, Result, Storage, Tensor, bail};
    use half::bf16;

    use super::{Arg, Call};

    const SOURCE: &str = include_str!("kernels.cu");

    /// For the oldest GPUs with bf16, and for those on which launches overlap; the driver makes machine code of it for what is there.
    const ARCHITECTURES: [&str; 2] = ["compute_80", "compute_90"];

    pub(in super::super) fn launch(call: &Call<'_>, x: &Tensor, dtype: DType) -> Result<Tensor> {
        let (module, define, compiled) = match call.dtype {
            DType::F32 => (concat!(module_path!(), "_f32"), "-DELEMENT_F32", &PTX[0]),
            DType::BF16 => (concat!(module_path!(), "_bf16"), "-DELEMENT_BF16", &PTX[1]),
            other => bail!("{}: expected activations in f32 or bf16, got {other:?}", call.kernel),
        };
        let device = x.device().as_cuda_device()?;
        let stream = device.cuda_stream();
        let major = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
        let overlaps = usize::from(stream.context().attribute(major).map_err(Error::wrap)? >= 9);
        let ptx = compiled[overlaps].get_or_init(|| compile(ARCHITECTURES[overlaps], define));
        let ptx = ptx.as_ref().map_err(|text| Error::msg(text.clone()))?;
        let function = device.get_or_load_custom_func(call.kernel, module, ptx)?;

        let mut locks = Vec::with_capacity(call.args.len());
        for arg in call.args {
            if let Arg::Element(Some(tensor), _) | Arg::F32(Some(tensor), _) | Arg::U32(tensor, _) = arg {
                if !tensor.device().same_device(x.device()) {
                    bail!("{}: expected tensors on {:?}, got one on {:?}", call.kernel, x.device(), tensor.device());
                }
                locks.push(tensor.storage_and_layout());
            }
        }
        // SAFETY: every kernel writes all elements of its output.
        let out = unsafe {
            match dtype {
                DType::F32 => CudaStorageSlice::F32(device.alloc::<f32>(call.outputs)?),
                DType::BF16 => CudaStorageSlice::BF16(device.alloc::<bf16>(call.outputs)?),
                DType::U32 => CudaStorageSlice::U32(device.alloc::<u32>(call.outputs)?),
                other => bail!("{}: no output in {other:?}", call.kernel),
            }
        };
        let out = CudaStorage { slice: out, device: device.clone() };
        {
            let mut events = Vec::with_capacity(locks.len() + 1);
            let mut locked = locks.iter();
            let mut next = |wanted: DType, len: usize| -> Result<u64> {
                let Some((storage, layout)) = locked.next() else {
                    bail!("{}: an argument without tensor", call.kernel)
                };
                let Storage::Cuda(storage) = &**storage else { bail!("{}: a tensor on another device", call.kernel) };
                let got = storage.dtype();
                if got != wanted || !layout.is_contiguous() || layout.shape().elem_count() < len {
                    let kernel = call.kernel;
                    bail!("{kernel}: expected {len} contiguous elements of {wanted:?}, got {layout:?} of {got:?}");
                }
                let (address, event) = address(storage, layout.start_offset(), &stream)?;
                events.push(event);
                Ok(address)
            };
            let mut values = Vec::with_capacity(call.args.len());
            for arg in call.args {
                values.push(match *arg {
                    Arg::Element(Some(_), len) => Value::Address(next(call.dtype, len)?),
                    Arg::F32(Some(_), len) => Value::Address(next(DType::F32, len)?),
                    Arg::U32(_, len) => Value::Address(next(DType::U32, len)?),
                    Arg::Element(None, _) | Arg::F32(None, _) => Value::Address(0),
                    Arg::Int(value) => Value::Int(i32::try_from(value).map_err(Error::wrap)?),
                    Arg::Float(value) => Value::Float(value),
                });
            }
            let (first, event) = address(&out, 0, &stream)?;
            events.push(event);
            let mut list = vec![(&raw const first).cast_mut().cast::<c_void>()];
            list.extend(values.iter().map(|value| match value {
                Value::Address(address) => std::ptr::from_ref(address).cast_mut().cast(),
                Value::Int(int) => std::ptr::from_ref(int).cast_mut().cast(),
                Value::Float(float) => std::ptr::from_ref(float).cast_mut().cast(),
            }));
            let mut overlap = sys::CUlaunchAttribute {
                id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                pad: [0; 4],
                value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
            };
            let config = sys::CUlaunchConfig {
                gridDimX: u32::try_from(call.blocks[0]).map_err(Error::wrap)?,
                gridDimY: u32::try_from(call.blocks[1]).map_err(Error::wrap)?,
                gridDimZ: 1,
                blockDimX: call.threads as u32,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: stream.cu_stream(),
                attrs: &raw mut overlap,
                numAttrs: overlaps as u32,
            };
            // SAFETY: the arguments have the types of the kernel's parameters, in their order, as each caller says beside the kernel's
            // name; dtypes and lengths were checked above. candle frees memory in the stream's order. What a kernel writes beside its
            // output is the caller's own (keys and values of a sequence that it borrows mutably) or used by launches of this one stream
            // only, one after the other (a router's workspace). Every kernel waits for the launches before it.
            let status = unsafe {
                sys::cuLaunchKernelEx(
                    &raw const config,
                    function.cu_function(),
                    list.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            };
            status.result().map_err(Error::wrap)?;
            drop(events);
        }
        drop(locks);
        Ok(Tensor::from_storage(Storage::Cuda(out), (1, call.outputs), BackpropOp::none(), false))
    }

    enum Value {
        Address(u64),
        Int(i32),
        Float(f32),
    }

    /// What NVRTC makes, or says.
    type Ptx = std::result::Result<String, String>;

    /// For f32 and for bf16, each for the architectures.
    static PTX: [[OnceLock<Ptx>; 2]; 2] = [const { [const { OnceLock::new() }; 2] }; 2];

    fn compile(architecture: &'static str, define: &str) -> Ptx {
        let options = vec![define.to_owned(), "--std=c++17".to_owned()];
        let options = CompileOptions { arch: Some(architecture), options, ..Default::default() };
        let compiled = compile_ptx_with_opts(SOURCE, options);
        compiled.map(|ptx| ptx.to_src()).map_err(|error| format!("the engine's kernels do not compile: {error}"))
    }

    /// The address of element `start`, and the event that marks the use.
    fn address<'a>(storage: &'a CudaStorage, start: usize, stream: &'a CudaStream) -> Result<(u64, SyncOnDrop<'a>)> {
        fn of<'a, T: DeviceRepr>(
            slice: &'a impl DevicePtr<T>,
            start: usize,
            stream: &'a CudaStream,
        ) -> (u64, SyncOnDrop<'a>) {
            let (address, event) = slice.device_ptr(stream);
            (address + (start * size_of::<T>()) as u64, event)
        }
        Ok(match &storage.slice {
            CudaStorageSlice::F32(slice) => of::<f32>(slice, start, stream),
            CudaStorageSlice::BF16(slice) => of::<bf16>(slice, start, stream),
            CudaStorageSlice::U32(slice) => of::<u32>(slice, start, stream),
            _ => bail!("a tensor of another dtype than f32, bf16 or u32"),
        })
    }
}
