//! Tensors on a CUDA device: one launch on candle's stream, on candle's own memory.

use std::any::Any;
use std::ffi::c_void;

use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, SyncOnDrop};
use candle_core::cuda_backend::{CudaStorage, CudaStorageSlice};
use candle_core::{Result, Storage, bail};
use half::{bf16, f16};
use ssm_update::ports::cuda::CudaKernel;
use ssm_update::{Dtype, Kernel, Pointers, Stream, validate};

use crate::operand::{Operand, storage};
use crate::update::{Operands, Update};

/// Queues the step on the stream of the state's device and returns y.
#[allow(unsafe_code)] // the launch level
pub fn launch(
    kernel: &dyn Kernel,
    update: &Update<'_>,
    operands: &Operands,
    state: &mut CudaStorage,
) -> Result<CudaStorage> {
    let port = kernel.port();
    let kernel: &dyn Any = kernel;
    let Some(kernel) = kernel.downcast_ref::<CudaKernel>() else {
        bail!(
            "the tensors are on a CUDA device, and port `{port}` cannot reach its memory: open one with `kernel_for`"
        );
    };
    let device = state.device.clone();
    let stream = device.cuda_stream();
    stream.context().bind_to_thread().map_err(candle_core::Error::wrap)?;
    // SAFETY: the kernel writes every element: rows of a batch, zeros where one is padding.
    let mut y = unsafe { allocate(operands.x.dtype, update.x.elem_count(), &device) }?;
    {
        // Read locks, and with the pointers the events that order other streams' work, held until the launch is queued.
        let (x, b, c) = (storage(update.x), storage(update.b), storage(update.c));
        let (dt, a_log) = (storage(update.dt), storage(update.a_log));
        let (z, d, dt_bias) = (update.z.map(storage), update.d.map(storage), update.dt_bias.map(storage));
        let slots = update.slots.map(storage);
        let mut reads = Reads { stream: &stream, events: Vec::with_capacity(9) };
        let mut read = |storage, operand: Option<Operand>| reads.address(storage, operand.map(|operand| operand.start));
        let at = Pointers {
            x: read(Some(&x), Some(operands.x))?,
            z: read(z.as_deref(), operands.z)?,
            b: read(Some(&b), Some(operands.b))?,
            c: read(Some(&c), Some(operands.c))?,
            dt: read(Some(&dt), Some(operands.dt))?,
            a_log: read(Some(&a_log), Some(operands.a_log))?,
            d: read(d.as_deref(), operands.d)?,
            dt_bias: read(dt_bias.as_deref(), operands.dt_bias)?,
            ..Pointers::NULL
        };
        let slots = reads.address(slots.as_deref(), operands.slots)?.cast();
        let (state, state_event) = address_mut(state, operands.state.start, &stream)?;
        let (y, y_event) = address_mut(&mut y, 0, &stream)?;
        let at = Pointers { state_in: state, state_out: state, slots_in: slots, slots_out: slots, y, ..at };
        let launch = validate(&operands.problem(update.dt_mode), &at).map_err(candle_core::Error::wrap)?;
        // SAFETY: the pointers are of live candle storages on this stream's device, checked against the tensors' shapes; candle
        // frees memory in the stream's order. The state is borrowed for writing and y is new, so that nobody else has them. Slot
        // indices are in range and differ where the caller gave some.
        unsafe { kernel.launch(&launch, Stream(stream.cu_stream().cast())) }.map_err(candle_core::Error::wrap)?;
        drop((reads, state_event, y_event));
    }
    Ok(y)
}

/// # Safety
///
/// The elements are written before they are read.
#[allow(unsafe_code)]
unsafe fn allocate(dtype: Dtype, len: usize, device: &candle_core::CudaDevice) -> Result<CudaStorage> {
    // SAFETY: the caller's.
    let slice = unsafe {
        match dtype {
            Dtype::F32 => CudaStorageSlice::F32(device.alloc::<f32>(len)?),
            Dtype::F16 => CudaStorageSlice::F16(device.alloc::<f16>(len)?),
            Dtype::Bf16 => CudaStorageSlice::BF16(device.alloc::<bf16>(len)?),
        }
    };
    Ok(CudaStorage { slice, device: device.clone() })
}

/// Addresses of tensors that are read, and the events that mark the reads.
struct Reads<'a> {
    stream: &'a CudaStream,
    events: Vec<SyncOnDrop<'a>>,
}

impl<'a> Reads<'a> {
    /// The address of element `start`; null for a tensor that is not there.
    fn address(&mut self, storage: Option<&'a Storage>, start: Option<usize>) -> Result<*const c_void> {
        let (Some(storage), Some(start)) = (storage, start) else { return Ok(std::ptr::null()) };
        let Storage::Cuda(storage) = storage else { bail!("the tensors of a fused step are on one device") };
        Ok(match &storage.slice {
            CudaStorageSlice::F32(slice) => self.of::<f32>(slice, start),
            CudaStorageSlice::F16(slice) => self.of::<f16>(slice, start),
            CudaStorageSlice::BF16(slice) => self.of::<bf16>(slice, start),
            CudaStorageSlice::I32(slice) => self.of::<i32>(slice, start),
            _ => bail!("the tensors of a fused step are f32, f16 or bf16, its slot indices i32"),
        })
    }

    fn of<T: DeviceRepr>(&mut self, slice: &'a impl DevicePtr<T>, start: usize) -> *const c_void {
        let (address, event) = slice.device_ptr(self.stream);
        self.events.push(event);
        (address as usize + start * size_of::<T>()) as *const c_void
    }
}

/// The address of element `start`, and the event that marks the write.
fn address_mut<'a>(
    storage: &'a mut CudaStorage,
    start: usize,
    stream: &'a CudaStream,
) -> Result<(*mut c_void, SyncOnDrop<'a>)> {
    fn of<'a, T: DeviceRepr>(
        slice: &'a mut impl DevicePtrMut<T>,
        start: usize,
        stream: &'a CudaStream,
    ) -> (*mut c_void, SyncOnDrop<'a>) {
        let (address, event) = slice.device_ptr_mut(stream);
        ((address as usize + start * size_of::<T>()) as *mut c_void, event)
    }
    Ok(match &mut storage.slice {
        CudaStorageSlice::F32(slice) => of::<f32>(slice, start, stream),
        CudaStorageSlice::F16(slice) => of::<f16>(slice, start, stream),
        CudaStorageSlice::BF16(slice) => of::<bf16>(slice, start, stream),
        _ => bail!("state and y of a fused step are f32, f16 or bf16"),
    })
}
