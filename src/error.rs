//! What can go wrong, as values. Caller mistakes and unavailable ports are different types.

use std::fmt;

/// One field of a call, what it had to be and what came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The field's name as in [`Problem`](crate::Problem), [`Pointers`](crate::Pointers) or [`Step`](crate::Step).
    pub field: &'static str,
    /// What would have been accepted.
    pub expected: String,
    /// What the caller passed.
    pub got: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: expected {}, got {}", self.field, self.expected, self.got)
    }
}

/// Why a call was refused or failed. On refusal nothing has been written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes, strides, lengths or dtypes that the fused step does not serve. The text contains `unsupported shapes`, by
    /// which engines know to take their graph path.
    #[error("unsupported shapes for the fused SSM step; use the graph path: {0}")]
    Unsupported(Mismatch),
    /// A value no path could serve: limits out of order, a slot beyond the pool, overlapping buffers, a null pointer.
    #[error("invalid argument to the fused SSM step: {0}")]
    Invalid(Mismatch),
    /// A call of the driver failed. This is no refusal: what the step writes is then unspecified.
    #[error("the fused SSM step failed: {0}")]
    Driver(Box<DriverError>),
}

impl Error {
    pub(crate) fn unsupported(field: &'static str, expected: impl Into<String>, got: impl fmt::Display) -> Self {
        Self::Unsupported(Mismatch { field, expected: expected.into(), got: got.to_string() })
    }

    pub(crate) fn invalid(field: &'static str, expected: impl Into<String>, got: impl fmt::Display) -> Self {
        Self::Invalid(Mismatch { field, expected: expected.into(), got: got.to_string() })
    }

    /// The field at fault, what was expected and what came; `None` for a fault of the driver.
    pub fn mismatch(&self) -> Option<&Mismatch> {
        match self {
            Self::Unsupported(m) | Self::Invalid(m) => Some(m),
            Self::Driver(_) => None,
        }
    }
}

impl From<Box<DriverError>> for Error {
    fn from(error: Box<DriverError>) -> Self {
        Self::Driver(error)
    }
}

impl From<Box<DriverError>> for Unavailable {
    fn from(error: Box<DriverError>) -> Self {
        Self::Driver(error)
    }
}

/// A failed call of an accelerator's driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} returned {name} ({code}): {text}{}", hint(.advice))]
pub struct DriverError {
    /// The driver's function, with what it was called for.
    pub call: String,
    /// Its status, which may be one that this version does not know.
    pub code: i64,
    /// The driver's name of the status.
    pub name: String,
    /// The driver's own text.
    pub text: String,
    /// What to do about it; empty where nothing is known.
    pub advice: String,
}

fn hint(advice: &str) -> String {
    if advice.is_empty() { String::new() } else { format!("; {advice}") }
}

/// Why a port did not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The port is not part of this build; the reason was recorded when it was built.
    #[error("not built: {0}")]
    NotBuilt(String),
    /// A switch asks for something that this machine or this build does not have.
    #[error("{variable}={value}: {reason}")]
    Switch {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Why it cannot be honoured, and what would be.
        reason: String,
    },
    /// The driver's library was not found, or lacks what is needed of it.
    #[error("no {platform} library that can be used; tried {}", tried.iter().map(Failed::to_string).collect::<Vec<_>>().join("; "))]
    Library {
        /// The platform.
        platform: &'static str,
        /// Every name in the order of the search.
        tried: Vec<Failed>,
    },
    /// A call of the driver failed.
    #[error("{0}")]
    Driver(Box<DriverError>),
    /// The driver is there, and no such device.
    #[error("{0}")]
    NoDevice(String),
    /// The device's waves do not have 32 lanes, or it would not say.
    #[error(
        "device {device}: the kernel is right for waves of 32 lanes only, and the device reports {reported}; devices before \
         gfx10 have 64"
    )]
    Wavefront {
        /// Number of the device.
        device: i32,
        /// The device's answer: the number, or the error.
        reported: String,
    },
    /// No code object on board is for the device.
    #[error("device {device} is {architecture}, and the code objects on board are for {}{note}", on_board.join(", "))]
    Architecture {
        /// Number of the device.
        device: i32,
        /// Its architecture.
        architecture: String,
        /// The architectures that would do.
        on_board: Vec<String>,
        /// What may help.
        note: String,
    },
    /// A code object that must not be handed to the driver.
    #[error("the code object for {target} is not usable: {fault}")]
    CodeObject {
        /// Its architecture.
        target: String,
        /// What is wrong with it.
        fault: String,
    },
}

/// One attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// What was tried.
    pub what: String,
    /// How it failed.
    pub why: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.why)
    }
}

/// No port was selected: which ones were considered, and why each was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPort {
    /// A switch turns the fused step off.
    #[error("the fused SSM step is switched off by {variable}=0; unset it to use a kernel port")]
    SwitchedOff {
        /// Which of the two switches.
        variable: &'static str,
    },
    /// `SSM_UPDATE_PORT` names no row of the table.
    #[error("SSM_UPDATE_PORT={name}: no such port; the ports are {}", known.join(", "))]
    UnknownName {
        /// The name asked for.
        name: String,
        /// The names of the table's rows.
        known: Vec<&'static str>,
    },
    /// The port that `SSM_UPDATE_PORT` names did not open. No other one was tried.
    #[error("SSM_UPDATE_PORT={name}: {why}")]
    NamedClosed {
        /// The port's name.
        name: &'static str,
        /// Why it did not open.
        why: Unavailable,
    },
    /// No port of the table opened: each one with its reason.
    #[error("no kernel port opened; {}", list(tried))]
    NoneOpened {
        /// Port name and reason, in the table's order.
        tried: Vec<(&'static str, Unavailable)>,
    },
}

fn list(tried: &[(&'static str, Unavailable)]) -> String {
    tried.iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>().join("; ")
}
