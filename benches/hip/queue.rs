//! A stream of HIP's with graphs and events.

use std::error::Error;

use ssm_update::Stream;

use super::Hip;
use super::bindings::{hipEvent_t, hipGraph_t, hipGraphExec_t, hipStream_t, hipStreamCaptureMode};
use crate::gpu::{Queue, Replay};

/// `hipStreamNonBlocking`, a macro of the header: the stream and the default one do not wait for each other.
const NON_BLOCKING: u32 = 1;

/// A stream.
#[derive(Debug)]
pub struct HipQueue<'a> {
    hip: &'a Hip,
    stream: hipStream_t,
}

impl<'a> HipQueue<'a> {
    /// A stream of the calling thread's device.
    ///
    /// # Errors
    ///
    /// Faults of the runtime.
    pub fn new(hip: &'a Hip) -> Result<Self, String> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (hip.functions.hipStreamCreateWithFlags)(&raw mut stream, NON_BLOCKING) };
        hip.check(status, "hipStreamCreateWithFlags").map(|()| Self { hip, stream })
    }

    /// A graph of what `work` asks of the stream, and how many nodes it has.
    ///
    /// # Errors
    ///
    /// Faults of the runtime, or of `work`.
    pub fn capture_counted(
        &self,
        work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
    ) -> Result<(Graph<'_>, usize), Box<dyn Error>> {
        let f = &self.hip.functions;
        let mode = hipStreamCaptureMode::hipStreamCaptureModeThreadLocal;
        // SAFETY: a live stream.
        self.hip.check(unsafe { (f.hipStreamBeginCapture)(self.stream, mode) }, "hipStreamBeginCapture")?;
        let captured = work();
        let mut graph = std::ptr::null_mut();
        // SAFETY: a live stream, room for one handle. Also after a fault of `work`, so that the stream can be used again.
        let ended =
            self.hip.check(unsafe { (f.hipStreamEndCapture)(self.stream, &raw mut graph) }, "hipStreamEndCapture");
        captured?;
        ended?;
        let graph = Captured { hip: self.hip, graph };
        let mut nodes = 0;
        // SAFETY: a live graph; without room for handles, only the number is written.
        let status = unsafe { (f.hipGraphGetNodes)(graph.graph, std::ptr::null_mut(), &raw mut nodes) };
        self.hip.check(status, "hipGraphGetNodes")?;
        let mut made = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        // SAFETY: a live graph, room for one handle, and no room for a log.
        let status = unsafe { (f.hipGraphInstantiate)(&raw mut made, graph.graph, none, std::ptr::null_mut(), 0) };
        self.hip.check(status, "hipGraphInstantiate")?;
        Ok((Graph { queue: self, graph: made }, nodes))
    }

    fn event(&self) -> Result<Event<'_>, String> {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (self.hip.functions.hipEventCreate)(&raw mut event) };
        self.hip.check(status, "hipEventCreate")?;
        let event = Event { hip: self.hip, event };
        // SAFETY: a live event and a live stream.
        let status = unsafe { (self.hip.functions.hipEventRecord)(event.event, self.stream) };
        self.hip.check(status, "hipEventRecord").map(|()| event)
    }
}

impl Queue for HipQueue<'_> {
    fn stream(&self) -> Stream {
        Stream(self.stream.cast())
    }

    fn wait(&self) -> Result<(), Box<dyn Error>> {
        // SAFETY: a live stream.
        let status = unsafe { (self.hip.functions.hipStreamSynchronize)(self.stream) };
        Ok(self.hip.check(status, "hipStreamSynchronize")?)
    }

    fn capture(
        &self,
        work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
    ) -> Result<Box<dyn Replay + '_>, Box<dyn Error>> {
        Ok(Box::new(self.capture_counted(work)?.0))
    }
}

impl Drop for HipQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, ended once; its graphs and events are gone.
        let status = unsafe { (self.hip.functions.hipStreamDestroy)(self.stream) };
        report(self.hip.check(status, "hipStreamDestroy"));
    }
}

/// What was captured.
struct Captured<'a> {
    hip: &'a Hip,
    graph: hipGraph_t,
}

impl Drop for Captured<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, ended once.
        let status = unsafe { (self.hip.functions.hipGraphDestroy)(self.graph) };
        report(self.hip.check(status, "hipGraphDestroy"));
    }
}

/// A graph that can be launched.
#[derive(Debug)]
pub struct Graph<'a> {
    queue: &'a HipQueue<'a>,
    graph: hipGraphExec_t,
}

impl Replay for Graph<'_> {
    fn launch(&self) -> Result<(), Box<dyn Error>> {
        let hip = self.queue.hip;
        // SAFETY: a live graph and a live stream; what its nodes use lives, which is the business of who captured it.
        Ok(hip.check(unsafe { (hip.functions.hipGraphLaunch)(self.graph, self.queue.stream) }, "hipGraphLaunch")?)
    }

    fn timed(&self) -> Result<f64, Box<dyn Error>> {
        let hip = self.queue.hip;
        let begin = self.queue.event()?;
        self.launch()?;
        let end = self.queue.event()?;
        // SAFETY: a live event.
        hip.check(unsafe { (hip.functions.hipEventSynchronize)(end.event) }, "hipEventSynchronize")?;
        let mut milliseconds = 0.0;
        // SAFETY: live events that were recorded, room for one number.
        let status = unsafe { (hip.functions.hipEventElapsedTime)(&raw mut milliseconds, begin.event, end.event) };
        hip.check(status, "hipEventElapsedTime")?;
        Ok(milliseconds.into())
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        let hip = self.queue.hip;
        // SAFETY: made once, ended once.
        report(hip.check(unsafe { (hip.functions.hipGraphExecDestroy)(self.graph) }, "hipGraphExecDestroy"));
    }
}

struct Event<'a> {
    hip: &'a Hip,
    event: hipEvent_t,
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: made once, ended once.
        report(self.hip.check(unsafe { (self.hip.functions.hipEventDestroy)(self.event) }, "hipEventDestroy"));
    }
}

/// Something could not be ended: the measurement goes on.
fn report(ended: Result<(), String>) {
    if let Err(error) = ended {
        eprintln!("{error}");
    }
}
