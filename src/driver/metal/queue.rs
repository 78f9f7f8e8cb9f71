//! The port's own queue, for launches without an encoder of the caller's.

use std::sync::{Mutex, PoisonError};

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandEncoder, MTLCommandQueue, MTLComputeCommandEncoder,
};

use super::failure;
use crate::DriverError;

/// A queue with what was committed to it and not waited for.
#[derive(Debug)]
pub struct Queue {
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    committed: Mutex<Vec<Committed>>,
}

/// A command buffer into which nothing is encoded any more.
#[derive(Debug)]
struct Committed(Retained<ProtocolObject<dyn MTLCommandBuffer>>);

// SAFETY: after its commit, a command buffer is only asked for its status and waited for, which any thread may do.
unsafe impl Send for Committed {}

impl Committed {
    fn ended_well(&self) -> bool {
        self.0.status() == MTLCommandBufferStatus::Completed
    }
}

impl Queue {
    pub fn new(queue: Retained<ProtocolObject<dyn MTLCommandQueue>>) -> Self {
        Self { queue, committed: Mutex::default() }
    }

    /// Puts work into a command buffer of its own and commits it.
    pub fn submit(
        &self,
        put: impl FnOnce(&ProtocolObject<dyn MTLComputeCommandEncoder>),
    ) -> Result<(), Box<DriverError>> {
        autoreleasepool(|_| {
            let absent = |call: &str| failure::without_reason(call.to_owned(), "nothing was given");
            let commands = self.queue.commandBuffer().ok_or_else(|| absent("commandBuffer"))?;
            let encoder = commands.computeCommandEncoder().ok_or_else(|| absent("computeCommandEncoder"))?;
            put(&encoder);
            encoder.endEncoding();
            // One lock for both, so that the list has the order of the queue.
            let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
            commands.commit();
            committed.retain(|earlier| !earlier.ended_well());
            committed.push(Committed(commands));
            Ok(())
        })
    }

    /// Waits for everything that was committed before, and gives the first fault.
    pub fn wait(&self) -> Result<(), Box<DriverError>> {
        let committed = std::mem::take(&mut *self.committed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut outcome = Ok(());
        for Committed(commands) in committed {
            commands.waitUntilCompleted();
            if let Some(error) = autoreleasepool(|_| commands.error()) {
                outcome = outcome.and(Err(failure::of("a command buffer of the metal port".to_owned(), &error)));
            }
        }
        outcome
    }
}
