//! How a run ends: exit codes, and the one line that says why.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | ran, and the answer is no: nothing matched, or some of the data cannot be read |
//! | 2 | could not run: usage, files, peers |
//! | 3 | a peer was lost on the way: run again, it goes on from what is kept |
//! | 130 | told to stop, by a signal |
//!
//! `throughline profile -- COMMAND` ends with the command's code.

use std::borrow::Cow;
use std::io::{self, Write};
use std::process::ExitCode;

/// What a command that could run found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All that was asked for.
    Done,
    /// It ran, and the answer is no; what was wrong has been said on standard error.
    No,
    /// A command that it ran ended with this code.
    Exit(u8),
}

/// Prints a failure as one line, its causes joined by `: `, and gives the exit code.
/// A reader of our output that went away is no failure.
pub(crate) fn report(result: anyhow::Result<Outcome>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Ok(Outcome::Exit(code)) => ExitCode::from(code),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("throughline: {error:#}"));
            ExitCode::from(code(&error))
        }
    }
}

fn code(error: &anyhow::Error) -> u8 {
    match error.chain().find_map(|cause| cause.downcast_ref::<blocks::Error>()) {
        Some(error) if error.is_loss() => 3,
        Some(blocks::Error::Stopped) => 130,
        _ => 2,
    }
}

/// Writes one line to standard error; when even that is closed there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    drop(writeln!(io::stderr().lock(), "{}", plain(line)));
}

/// One line that does nothing to a terminal: control characters, which names of files and fields may have, as escapes.
pub(crate) fn plain(line: &str) -> Cow<'_, str> {
    if !line.contains(char::is_control) {
        return Cow::Borrowed(line);
    }
    let escape = |character: char| match character.is_control() {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    Cow::Owned(line.chars().map(escape).collect())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_worth_another_run_has_a_code_of_its_own() {
        let lost = |lost: &[&str]| blocks::Error::Nobody {
            tried: vec!["worker a".to_owned()],
            lost: lost.iter().map(|&it| it.to_owned()).collect(),
        };
        assert_eq!(code(&anyhow::Error::new(lost(&["worker b"])).context("cannot analyse")), 3);
        assert_eq!(code(&anyhow::Error::new(lost(&[])).context("cannot analyse")), 2);
        assert_eq!(code(&blocks::Error::Stopped.into()), 130);
        assert_eq!(code(&anyhow::anyhow!("usage")), 2);
    }

    #[test]
    fn a_name_cannot_make_two_lines_or_colour_the_terminal() {
        assert_eq!(plain("a\n\u{1b}[31mé"), "a\\n\\u{1b}[31mé");
        assert_eq!(plain("unreadable: é"), "unreadable: é");
    }
}
