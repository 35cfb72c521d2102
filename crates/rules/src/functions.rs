//! Which functions a rule is of.

use flame::Pattern;
use serde::{Deserialize, Serialize};

use crate::error::Fault;
use crate::rule::{MAX_PATTERN_BYTES, short};

/// Functions by what they are called or where they are.
///
/// Names are those that flame graphs show: of a function without a name its mapped file and address (`libc.so.6+0x2a1f`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Functions {
    /// The one of this name.
    Exact(String),
    /// Those whose names begin so.
    Prefix(String),
    /// Those whose whole names a regular expression matches.
    Regex(String),
    /// Those of a package, module or mapped file: its path or file name is this, or names of functions begin with it and go on with
    /// `.`, `/` or `::`.
    Package(String),
    /// Those of a source file: its path is this, or ends with `/` and this.
    File(String),
}

/// The same, ready to be asked.
#[derive(Debug, Clone)]
pub(crate) struct Matching {
    functions: Functions,
    /// Of [`Functions::Regex`].
    pattern: Option<Pattern>,
}

/// What a frame is asked by, in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum By {
    Name,
    Mapping,
    File,
}

impl Matching {
    pub(crate) fn new(functions: &Functions) -> Result<Self, Fault> {
        let text = functions.text();
        if text.is_empty() {
            return Err(Fault::Missing);
        }
        short(text, MAX_PATTERN_BYTES)?;
        let pattern = match functions {
            Functions::Regex(text) => Some(Pattern::new(text).map_err(Fault::Pattern)?),
            _ => None,
        };
        Ok(Self { functions: functions.clone(), pattern })
    }

    /// Whether a name, a path of a mapped file or a path of a source file makes a frame match.
    pub(crate) fn takes(&self, by: By, text: &str) -> bool {
        match (&self.functions, by) {
            (Functions::Exact(wanted), By::Name) => text == wanted,
            (Functions::Prefix(prefix), By::Name) => text.starts_with(prefix.as_str()),
            (Functions::Regex(_), By::Name) => {
                self.pattern.as_ref().is_some_and(|pattern| pattern.matches(text))
            }
            (Functions::Package(package), By::Name) => text
                .strip_prefix(package.as_str())
                .is_some_and(|rest| [".", "/", "::"].iter().any(|sign| rest.starts_with(sign))),
            (Functions::Package(path), By::Mapping) | (Functions::File(path), By::File) => {
                is_end_of_path(path, text)
            }
            _ => false,
        }
    }
}

impl Functions {
    /// What names, packages or files are held against.
    #[must_use]
    pub fn text(&self) -> &str {
        let (Self::Exact(text)
        | Self::Prefix(text)
        | Self::Regex(text)
        | Self::Package(text)
        | Self::File(text)) = self;
        text
    }
}

/// Whether a path is this one or ends in it.
fn is_end_of_path(end: &str, path: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(functions: Functions, by: By, texts: &[(&str, bool)]) {
        let matching = Matching::new(&functions).unwrap();
        for &(text, expected) in texts {
            assert_eq!(matching.takes(by, text), expected, "{functions:?} {text}");
        }
    }

    #[test]
    fn functions_are_known_by_name_package_and_file() {
        let of = str::to_owned;
        check(
            Functions::Exact(of("main.work")),
            By::Name,
            &[("main.work", true), ("main.w", false)],
        );
        check(
            Functions::Prefix(of("main.")),
            By::Name,
            &[("main.work", true), ("domain.x", false)],
        );
        let regex = Functions::Regex(of(r".*\.work|x"));
        check(regex, By::Name, &[("main.work", true), ("main.work2", false), ("x", true)]);
        let package = Functions::Package(of("net/http"));
        let names = [
            ("net/http.Get", true),
            ("net/http/httputil.Dump", true),
            ("net/httptest.New", false),
            ("x/net/http.Get", false),
        ];
        check(package, By::Name, &names);
        check(Functions::Package(of("serde")), By::Name, &[("serde::de::read", true)]);
        let library = Functions::Package(of("libc.so.6"));
        let paths = [("/usr/lib/libc.so.6", true), ("libc.so.6", true), ("/x/mylibc.so.6", false)];
        check(library.clone(), By::Mapping, &paths);
        check(library.clone(), By::File, &[("/usr/lib/libc.so.6", false)]);
        check(library, By::Name, &[("libc.so.6+0x1f", false)]);
        let file = Functions::File(of("shop/cart.go"));
        check(file.clone(), By::File, &[("/src/shop/cart.go", true), ("workshop/cart.go", false)]);
        check(file, By::Mapping, &[("/src/shop/cart.go", false)]);
    }

    #[test]
    fn patterns_are_bounded() {
        let long = Functions::Prefix("x".repeat(MAX_PATTERN_BYTES + 1));
        let limit = MAX_PATTERN_BYTES;
        assert_eq!(Matching::new(&long).unwrap_err(), Fault::TooLong { len: limit + 1, limit });
        assert_eq!(Matching::new(&Functions::File(String::new())).unwrap_err(), Fault::Missing);
        let open = Functions::Regex("(".to_owned());
        assert!(matches!(Matching::new(&open).unwrap_err(), Fault::Pattern(_)));
    }
}
