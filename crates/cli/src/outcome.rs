//! How a run ends: exit codes, and the one line that says why.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | ran, and the answer is no: nothing matched, or some of the data cannot be read |
//! | 2 | could not run: usage, files, peers |

use std::io::{self, Write};
use std::process::ExitCode;

/// What a command that could run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All that was asked for.
    Done,
    /// It ran, and the answer is no; what was wrong has been said on standard error.
    No,
}

/// Prints a failure as one line, its causes joined by `: `, and gives the exit code.
/// A reader of our output that went away is no failure.
pub(crate) fn report(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("throughline: {error:#}"));
            ExitCode::from(2)
        }
    }
}

/// Writes one line to standard error; when even that is closed there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
