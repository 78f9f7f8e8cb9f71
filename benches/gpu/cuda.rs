//! The stream and the graphs of the measurement on NVIDIA GPUs.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::sys::{CUevent_flags, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaStream};
use ssm_update::Stream;

use super::{Queue, Replay};

/// Stream and context of the measurement: the device's primary context, which the port works in, too.
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

impl Device {
    /// The first device.
    ///
    /// # Errors
    ///
    /// There is none, or none that can be used.
    pub fn new() -> Result<Self, Box<dyn Error>> {
        let context = CudaContext::new(0)?;
        let stream = context.new_stream()?;
        Ok(Self { context, stream })
    }

    /// The name of the device.
    ///
    /// # Errors
    ///
    /// Faults of the driver.
    pub fn name(&self) -> Result<String, Box<dyn Error>> {
        Ok(self.context.name()?)
    }
}

impl Queue for Device {
    fn stream(&self) -> Stream {
        Stream(self.stream.cu_stream().cast())
    }

    fn wait(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.stream.synchronize()?)
    }

    fn capture(
        &self,
        work: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
    ) -> Result<Box<dyn Replay + '_>, Box<dyn Error>> {
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
        let captured = work();
        let graph =
            self.stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)?;
        captured?;
        Ok(Box::new(Graph { device: self, graph: graph.ok_or("the capture gave no graph")? }))
    }
}

struct Graph<'a> {
    device: &'a Device,
    graph: CudaGraph,
}

impl Replay for Graph<'_> {
    fn launch(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.graph.launch()?)
    }

    fn timed(&self) -> Result<f64, Box<dyn Error>> {
        let event = || self.device.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        let begin = event()?;
        self.graph.launch()?;
        let end = event()?;
        end.synchronize()?;
        Ok(begin.elapsed_ms(&end)?.into())
    }
}
