//! An open port behind an opaque handle.

use std::ffi::{CString, c_char};

use ssm_update::step_at;

use crate::fault::{Fault, c_text, guard};
use crate::launch::checked;
use crate::{Launch, Status, ports};

/// An open port. Made by ssm_update_kernel_open(), ended by ssm_update_kernel_close().
#[derive(Debug)]
pub struct Kernel {
    open: Box<dyn ssm_update::Kernel>,
    port: CString,
    description: CString,
}

/// The kernel behind a handle.
///
/// # Safety
///
/// `kernel` is null or open.
unsafe fn of<'a>(kernel: *const Kernel) -> Result<&'a Kernel, Fault> {
    // SAFETY: the caller's promise; a handle is only lent as shared until it is closed.
    unsafe { kernel.as_ref() }.ok_or_else(|| Fault::invalid("kernel", "an open kernel", "null"))
}

/// Opens a port: finds its driver and its device and loads its code. Slow; a process opens one once.
///
/// A null or empty port is the library's choice: the first port that opens, or what SSM_UPDATE_PORT names, and none where
/// MLXCEL_SSM_KERNEL or MLXCEL_SSM_CUDA_KERNEL is "0". That is what engines want. A name is exactly that port, whatever these three
/// variables say. Either way a port reads the variables of its own, such as SSM_UPDATE_HIP_LIBRARY.
///
/// On a GPU the kernel belongs to the device that is the calling thread's current one.
///
/// The caller: port is null or a text that ends in zero; kernel is to a pointer that may be written.
/// Returns SSM_UPDATE_STATUS_UNAVAILABLE with a reason for every port that was tried, SSM_UPDATE_STATUS_INVALID for a name that no
/// port has; *kernel is null then.
/// Threads: any, at any time, as long as no thread changes the environment meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_open(port: *const c_char, kernel: *mut *mut Kernel) -> Status {
    guard(|| {
        if kernel.is_null() || !kernel.is_aligned() {
            return Err(Fault::invalid("kernel", "the place for the handle", format!("{kernel:p}")));
        }
        // SAFETY: not null and aligned; the rest is the caller's promise.
        unsafe { kernel.write(std::ptr::null_mut()) };
        // SAFETY: the caller's promise.
        let open = unsafe { ports::open(port) }?;
        let opened = Kernel { port: c_text(open.port()), description: c_text(open.describe()), open };
        // SAFETY: as above.
        unsafe { kernel.write(Box::into_raw(Box::new(opened))) };
        Ok(())
    })
}

/// Closes a kernel; nothing for null. The handle and its texts are gone then.
///
/// The caller: kernel is null or open; every step that was queued with it is done.
/// Threads: any; no other thread uses this kernel any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_close(kernel: *mut Kernel) {
    guard(|| {
        if !kernel.is_null() {
            // SAFETY: from `Box::into_raw`, and the caller promises that nobody uses it any more.
            drop(unsafe { Box::from_raw(kernel) });
        }
        Ok(())
    });
}

/// Name of the port, as ssm_update_port_name() has it; null for null. Valid until the kernel is closed.
///
/// The caller: kernel is null or open.
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_port(kernel: *const Kernel) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { of(kernel) }.map_or(std::ptr::null(), |kernel| kernel.port.as_ptr())
}

/// The device and the path taken on it, for people; null for null. Valid until the kernel is closed.
///
/// The caller: kernel is null or open.
/// Threads: any, several at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_description(kernel: *const Kernel) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { of(kernel) }.map_or(std::ptr::null(), |kernel| kernel.description.as_ptr())
}

/// Queues a step on the launch's stream and returns. Allocates nothing, copies nothing and waits for nothing on a GPU, so that it can be
/// captured into a graph (what ssm_update_kernel_prepare() makes ready aside). On the CPU port the step is done when this returns.
///
/// The caller: launch is to as many bytes as its struct_size says. Each tensor is in memory that the port's launches reach (device
/// pointers on a GPU; on the port metal addresses within the contents of shared buffers), holds its whole shape, is initialised where
/// it is read, and stays until the stream has passed this step. y overlaps no other tensor, the written state none but state_in; nobody
/// else writes them, or reads what is written, meanwhile. Slots in device memory are below dims.slots, and no two rows share one. The
/// stream is null or one of the kernel's device.
/// Returns what ssm_update_check() does, the same for what this port does not serve, SSM_UPDATE_STATUS_INVALID for slots that the host
/// sees and that are wrong: nothing was written then. SSM_UPDATE_STATUS_DRIVER: what the step writes is unspecified.
/// Threads: any, several at once with one kernel, each with a stream of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_launch(kernel: *const Kernel, launch: *const Launch) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (kernel, (launch, stream)) = unsafe { (of(kernel)?, checked(launch)?) };
        // SAFETY: the caller's promise is that of `Kernel::launch`.
        Ok(unsafe { kernel.open.launch(&launch, stream) }?)
    })
}

/// Makes ready what launches like these need: on ports that compile at run time, their kernels. Without it the first launch does that,
/// which may take a second, and fails while a stream is captured. Batch, strides and addresses may be others later, as long as the same
/// tensors are there and their alignment is the same. No tensor is touched, so that any aligned addresses do.
///
/// The caller: launches is to count pointers, each to as many bytes as its struct_size says.
/// Returns what ssm_update_check() does, for the first launch that is refused, and SSM_UPDATE_STATUS_DRIVER for faults of compiler and
/// driver.
/// Threads: any, several at once with one kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_prepare(
    kernel: *const Kernel,
    launches: *const *const Launch,
    count: usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let kernel = unsafe { of(kernel) }?;
        if count == 0 {
            return Ok(());
        }
        if launches.is_null() || !launches.is_aligned() {
            return Err(Fault::invalid("launches", format!("{count} pointers"), format!("{launches:p}")));
        }
        // SAFETY: not null and aligned; `count` pointers to launches are the caller's promise.
        let checked = (0..count).map(|i| unsafe { checked(*launches.add(i)) }.map(|(launch, _)| launch));
        Ok(kernel.open.prepare(&checked.collect::<Result<Vec<_>, _>>()?)?)
    })
}

/// Runs a step on host memory and returns when y and the state are there. On the CPU port that is what ssm_update_kernel_launch() does;
/// on a GPU the tensors are copied there and back, which is for comparisons and small programs. The launch's stream is not used.
///
/// The caller: as ssm_update_kernel_launch(), with every tensor and the slots in host memory.
/// Returns what ssm_update_check() does, the same for what this port does not serve, SSM_UPDATE_STATUS_INVALID for slots that are
/// wrong: nothing was written then. SSM_UPDATE_STATUS_DRIVER: nothing was written either, unless copying the results back failed.
/// Threads: any, several at once with one kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ssm_update_kernel_step_host(kernel: *const Kernel, launch: *const Launch) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (kernel, (launch, _)) = unsafe { (of(kernel)?, checked(launch)?) };
        // SAFETY: the caller's promise is that of `step_at`.
        Ok(unsafe { step_at(&*kernel.open, &launch) }?)
    })
}
