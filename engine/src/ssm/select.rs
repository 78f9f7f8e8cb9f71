//! Which of the two single-token forms a model takes. The library's selection is the only gate: nothing here asks a driver
//! or compares platforms.

use candle_core::{Device, Tensor};
use ssm_update::{Kernel, NoPort};
use ssm_update_candle::kernel_for;

use super::{SsmDims, SsmInputs, SsmParams, fused, graph};
use crate::error::Result;
use crate::model::Model;

/// Which form the caller wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepChoice {
    /// The kernel where a port opens, else the graph with the reason.
    #[default]
    Auto,
    /// The kernel, or an error.
    Kernel,
    /// The graph.
    Graph,
}

/// The single-token form in use, chosen once per model.
#[derive(Debug)]
pub enum Step {
    /// The fused step on an open port.
    Kernel(Box<dyn Kernel>),
    /// The graph of tensor operations.
    Graph {
        /// Why not the kernel.
        reason: String,
    },
}

impl Step {
    /// Chooses for a model.
    ///
    /// # Errors
    ///
    /// As [`select`](Self::select).
    pub fn for_model(choice: StepChoice, model: &dyn Model) -> Result<Self> {
        Self::select(choice, model.info().ssm, &model.place().device)
    }

    /// Chooses for layers of these sizes whose tensors are on `device`.
    ///
    /// [`StepChoice::Auto`] takes the graph when the fused step is switched off, when no port opens, or when the sizes are
    /// none that a kernel serves. It does not when `SSM_UPDATE_PORT` names a port that cannot run: that is exact.
    ///
    /// # Errors
    ///
    /// The kernel was asked for, here or by `SSM_UPDATE_PORT`, and cannot be had.
    pub fn select(choice: StepChoice, dims: SsmDims, device: &Device) -> Result<Self> {
        if choice == StepChoice::Graph {
            return Ok(Self::Graph { reason: "the graph was asked for".to_owned() });
        }
        let exact = choice == StepChoice::Kernel;
        let kernel = match kernel_for(device) {
            Ok(kernel) => kernel,
            Err(none @ (NoPort::SwitchedOff { .. } | NoPort::NoneOpened { .. })) if !exact => {
                return Ok(Self::Graph { reason: none.to_string() });
            }
            Err(none) => return Err(none.into()),
        };
        match dims.for_kernel().check() {
            Ok(()) => Ok(Self::Kernel(kernel)),
            Err(unsupported @ ssm_update::Error::Unsupported(_)) if !exact => {
                Ok(Self::Graph { reason: unsupported.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The port's name, or `graph`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kernel(kernel) => kernel.port(),
            Self::Graph { .. } => "graph",
        }
    }

    /// The port and its device, or why the graph is taken.
    pub fn describe(&self) -> String {
        match self {
            Self::Kernel(kernel) => format!("kernel, port {}: {}", kernel.port(), kernel.describe()),
            Self::Graph { reason } => format!("graph: {reason}"),
        }
    }

    /// Advances `state` (`[1, heads, head_dim, d_state]`) by the one token of `inputs`, all contiguous, and returns y,
    /// `[1, heads * head_dim]`.
    ///
    /// # Errors
    ///
    /// Shapes that do not fit `params`; faults of the port.
    pub fn advance(&self, params: &SsmParams, inputs: SsmInputs<'_>, state: &mut Tensor) -> Result<Tensor> {
        match self {
            Self::Kernel(kernel) => fused::advance(&**kernel, params, inputs, state),
            Self::Graph { .. } => {
                let (y, next) = graph::advance(params, inputs, state)?;
                *state = next;
                Ok(y)
            }
        }
    }
}
