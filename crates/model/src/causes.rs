//! Errors as they are told.

use std::error::Error;

/// An error and what caused it, the outermost first: `cannot read it: permission denied`.
///
/// A cause that is said already, because the error in front of it is transparent or repeats it, is not said again.
///
/// ```
/// let inner = std::io::Error::other("the disk is full");
/// assert_eq!(model::with_causes(&inner), "the disk is full");
/// ```
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_told = cause.to_string();
        let before = told.strip_suffix(&cause_told);
        if !before.is_some_and(|before| before.is_empty() || before.ends_with(": ")) {
            told.push_str(": ");
            told.push_str(&cause_told);
        }
        next = cause.source();
    }
    told
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Told(&'static str, Option<Box<Self>>);

    impl fmt::Display for Told {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Told {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn check(messages: &[&'static str], expected: &str) {
        let caused = messages.iter().rfold(None, |cause, it| Some(Box::new(Told(it, cause))));
        assert_eq!(with_causes(&*caused.unwrap()), expected);
    }

    #[test]
    fn every_cause_is_told_once() {
        check(&["cannot send"], "cannot send");
        check(
            &["cannot send", "cannot connect", "refused"],
            "cannot send: cannot connect: refused",
        );
        // Transparent ones say what their causes say.
        check(&["cannot send", "cannot send", "refused", "refused"], "cannot send: refused");
        check(&["cannot send: refused", "refused", "by a rule"], "cannot send: refused: by a rule");
        // What is told elsewhere in the line, or is the end of a word, is not the same cause.
        check(
            &["refused by a", "cannot connect", "refused"],
            "refused by a: cannot connect: refused",
        );
        check(&["a", "b", "a"], "a: b: a");
        check(&["no file 15", "5"], "no file 15: 5");
    }
}
