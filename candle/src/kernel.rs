//! The port that can work on a device's tensors.

use candle_core::Device;
use ssm_update::{Kernel, NoPort, SSM_PORTS, ports, select_kernel_port};

/// Opens the port for tensors on `device`, under the library's switches (`MLXCEL_SSM_KERNEL`, `SSM_UPDATE_PORT`).
///
/// For tensors on the CPU that is whatever [`select_kernel_port`] chooses, since every port takes host memory. A GPU's tensors
/// can only be taken by the port of that platform; on CUDA it is opened for the device's own context, on Metal for the system's default
/// GPU.
///
/// # Errors
///
/// [`NoPort`], with the reason.
pub fn kernel_for(device: &Device) -> Result<Box<dyn Kernel>, NoPort> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(device) = device {
        // A failure shows when the port opens: it then finds no current context and takes the first device's.
        let _ = device.cuda_stream().context().bind_to_thread();
    }
    match device {
        Device::Cpu => select_kernel_port(SSM_PORTS),
        Device::Cuda(_) => select_kernel_port(&[ports::cuda::PORT]),
        Device::Metal(_) => select_kernel_port(&[ports::metal::PORT]),
    }
}
