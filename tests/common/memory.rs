//! Where launch-level tests keep their tensors: on the host, or in the memory that the port offers.

use ssm_update::{Buffer, Kernel};

/// Memory that a kernel's launches can reach.
pub trait Memory {
    /// Makes these host bytes reachable and returns their address there.
    fn place(&mut self, host: *mut u8, len: usize) -> *mut u8;

    /// Brings everything that was placed back to the host, after all launches have finished.
    fn collect(&mut self);
}

/// The host's own memory, for ports that run on it.
struct Host;

impl Memory for Host {
    fn place(&mut self, host: *mut u8, _len: usize) -> *mut u8 {
        host
    }

    fn collect(&mut self) {}
}

/// The memory of a device: what is placed is copied there, and back.
struct Device<'a> {
    memory: &'a dyn ssm_update::Memory,
    placed: Vec<(*mut u8, usize, Box<dyn Buffer>)>,
}

impl Memory for Device<'_> {
    fn place(&mut self, host: *mut u8, len: usize) -> *mut u8 {
        let mut buffer = self.memory.allocate(len).expect("the device has room for a test's tensors");
        // SAFETY: the fixture's buffer, which nothing else uses while a launch is under way.
        buffer.upload(0, unsafe { std::slice::from_raw_parts(host, len) }).expect("the device takes data");
        let address = buffer.address().cast();
        self.placed.push((host, len, buffer));
        address
    }

    fn collect(&mut self) {
        self.memory.synchronize().expect("the launch ends without a fault");
        for (host, len, buffer) in self.placed.drain(..) {
            // SAFETY: as above.
            buffer.download(0, unsafe { std::slice::from_raw_parts_mut(host, len) }).expect("the device gives data");
        }
    }
}

/// Where a kernel's launches find their tensors.
pub fn of(kernel: &dyn Kernel) -> Box<dyn Memory + '_> {
    match kernel.memory() {
        None => Box::new(Host),
        Some(memory) => Box::new(Device { memory, placed: Vec::new() }),
    }
}
