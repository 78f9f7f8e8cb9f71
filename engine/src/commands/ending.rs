//! How a command ends: the one place that knows the exit statuses.

use std::process::ExitCode;

use ssm_engine::{Error, Result};

/// What the exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done; what was checked holds.
    Done = 0,
    /// Failed, or what was checked does not hold.
    Failed = 1,
    /// Wrong arguments (the status that clap ends with, too), or files that must not be compared.
    Refused = 2,
    /// What was checked is neither shown nor refuted.
    Inconclusive = 3,
}

/// An error, and the status that it ends with.
#[derive(Debug)]
pub struct Failure {
    /// Boxed, since every command's result has room for it.
    error: Box<Error>,
    status: Status,
}

/// How a command ends.
pub type Ending = Result<Status, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error: error.into(), status: Status::Failed }
    }
}

impl Failure {
    /// An error in what the command was given.
    pub fn refused(error: Error) -> Self {
        Self { error: error.into(), status: Status::Refused }
    }
}

/// The ending of a command that either does its work or fails.
pub fn done(result: Result<()>) -> Ending {
    Ok(result.map(|()| Status::Done)?)
}

/// Tells the reason of a failure, and the status.
pub fn exit(ending: Ending) -> ExitCode {
    let status = ending.unwrap_or_else(|Failure { error, status }| match *error {
        // The reader of the text has left; there is nobody to tell.
        Error::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Status::Done,
        error => {
            eprintln!("error: {error}");
            status
        }
    });
    ExitCode::from(status as u8)
}
