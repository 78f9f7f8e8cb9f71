//! Where launch-level tests keep their tensors: a port whose memory is not the host's brings its own [`Memory`].

/// Memory that a port's launches can reach.
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

/// The memory of a port; `None` where these tests cannot allocate it, so that its launch level is not run (and the list
/// of ports that the tests print says so).
pub fn of_port(port: &str) -> Option<Box<dyn Memory>> {
    match port {
        "cpu" => Some(Box::new(Host)),
        _ => None,
    }
}
