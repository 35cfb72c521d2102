//! Choosing event records: by name and by what their fields hold.
//!
//! ```text
//! expression  either { "||" either }            weakest
//! either      unary { "&&" unary }
//! unary       "!" unary | "(" expression ")" | test
//! test        pattern                           the event record's name fits the pattern
//!             "has(" field ")"                  the field is there
//!             field operator literal
//! operator    ==  !=  <  <=  >  >=              exact comparison
//!             ~   !~                            fits, or does not fit, a pattern
//!             =~                                a regular expression is found in it
//! pattern     `*` any characters, `?` any one, `\` takes the next as it is
//! literal     42  -7  0x2A  0b101  0o52  1.5e3  "text"  'text'  word
//!             a regular expression is taken as it stands between the quotes
//! ```
//!
//! | field | what it is |
//! |---|---|
//! | `ret`, `addr.port` | a field: of the payload, else of the class's context, else of the stream's context |
//! | `payload.ret` | of the payload only |
//! | `context.vtid`, `$ctx.vtid` | of one of the contexts only |
//! | `name` | the event record's name; a payload field of this name is `payload.name` |
//! | `host` | the trace's `hostname`, or else `host` |
//! | `env.KEY` | an entry of the trace's environment |
//! | `loglevel` | the class's log level, a number or one of LTTng's names (`TRACE_WARNING`, `warning`) |
//! | `packet.cpu_id` | of the packet: also `seq_num`, `stream_id`, `stream_instance_id`, `events_discarded`, `content_size`, `packet_size` |
//!
//! Numbers compare by value whatever their width and sign. An enumeration compares by number with a number, and by any
//! of its labels with a text; so do bit maps with the names of their flags. `true` and `false` are 1 and 0. Texts
//! compare byte by byte.
//!
//! A test is false for an event record without the field, so `!(ret < 0)` also takes all that have no `ret`, and
//! `ret >= 0` does not. Going through event records allocates nothing, but for patterns and regular expressions on texts
//! that are not UTF-8.
//!
//! ```
//! # let metadata = r#"/* CTF 1.8 */
//! #     trace { major = 1; minor = 8; byte_order = le; };
//! #     typealias integer { size = 8; } := u8;
//! #     stream {}; event { name = "sched_switch"; fields := struct { u8 _prev_tid; }; };"#;
//! use ctf::filter::Filter;
//!
//! let trace = ctf::TraceClass::parse(metadata.as_bytes())?;
//! let filter = Filter::parse("sched_* && prev_tid == 42")?;
//! filter.check([&trace])?;
//! let chosen = filter.compile(&trace);
//! # let trace = std::sync::Arc::new(trace);
//! # let ctf::packet::Outcome::Ready(mut events) = ctf::packet::EventReader::open(trace, b"\x2A\x07")? else { panic!() };
//! # let mut found = Vec::new();
//! while let Some(event) = events.next_event()? {
//!     found.push(chosen.matches(&event));
//! }
//! assert_eq!(found, [true, false]);
//!
//! let refused = Filter::parse("prev_tid = 42").expect_err("an assignment");
//! assert_eq!(refused.to_string(), "column 10: `=` is no operator; `==` compares");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compile;
mod expr;
mod parse;
mod pattern;
mod suggest;

use std::fmt;

use thiserror::Error;

pub use compile::{ClassFilter, Decision};
pub use pattern::Glob;

use crate::class::TraceClass;
use expr::Expr;

/// The longest expression that is parsed, in bytes.
pub const MAX_LEN: usize = 64 << 10;
/// The deepest nesting of parentheses and negations.
pub const MAX_DEPTH: usize = 64;

/// A parsed expression, for any trace.
#[derive(Debug, Clone)]
pub struct Filter {
    expr: Expr,
}

impl Filter {
    /// Parses an expression.
    ///
    /// # Errors
    /// The column, from 1 and in characters, of the first thing that is wrong, and what it is.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        parse::parse(text).map(|expr| Self { expr })
    }

    /// Checks that each field occurs in at least one event record class and can be compared as the expression does.
    ///
    /// # Errors
    /// [`Problem::UnknownField`] with the nearest name there is, [`Problem::Inside`], or [`Problem::Mismatch`].
    pub fn check<'t>(
        &self,
        traces: impl IntoIterator<Item = &'t TraceClass>,
    ) -> Result<(), FilterError> {
        compile::check(&self.expr, &traces.into_iter().collect::<Vec<_>>())
    }

    /// Resolves names to places once for all event record classes of `trace`.
    #[must_use]
    pub fn compile(&self, trace: &TraceClass) -> ClassFilter {
        ClassFilter::new(&self.expr, trace)
    }
}

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub problem: Problem,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.problem)
    }
}

impl std::error::Error for FilterError {}

/// What is wrong at one place of an expression. Texts are cut to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// Something else should stand here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What should.
        expected: &'static str,
        /// What does.
        found: String,
    },
    /// Half of an operator, or one of another language.
    #[error("`{found}` is no operator; `{meant}` {does}")]
    Operator {
        /// What was written.
        found: &'static str,
        /// What was meant.
        meant: &'static str,
        /// What that one does.
        does: &'static str,
    },
    /// A text without its closing quote.
    #[error("the text has no closing {0}")]
    OpenText(char),
    /// An escape that does not exist.
    #[error("`\\{0}` is no escape; \\\\ \\\" \\' \\n \\t \\r \\xNN are, and \\* \\? for patterns")]
    Escape(String),
    /// A number that is none.
    #[error("`{0}` is no number")]
    Number(String),
    /// A number that no field can hold.
    #[error("{0} is outside of 64 bits")]
    Range(String),
    /// A pattern where a field should stand or with an operator that compares exactly.
    #[error("`{found}` is a pattern; {hint}")]
    Pattern {
        /// The pattern.
        found: String,
        /// What to do.
        hint: &'static str,
    },
    /// A regular expression that is none.
    #[error("not a regular expression: {0}")]
    Regex(String),
    /// An operator that takes a text, with a number.
    #[error("`{0}` compares with a text in quotes or a word")]
    NeedsText(&'static str),
    /// A property of packets that cannot be tested.
    #[error("`packet.{found}` cannot be tested; one of {known} can")]
    PacketField {
        /// What was written.
        found: String,
        /// What there is.
        known: String,
    },
    /// Too long or nested too deeply.
    #[error("more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The most that is taken.
        limit: usize,
    },
    /// A field that no event record class has.
    #[error("no event record class has a field `{field}`{}", did_you_mean(nearest))]
    UnknownField {
        /// The field.
        field: String,
        /// The nearest name there is, if one is near.
        nearest: Option<String>,
    },
    /// A field that has no place of its own.
    #[error("`{field}` lies inside an array or a variant and cannot be tested")]
    Inside {
        /// The field.
        field: String,
    },
    /// A comparison that the field's class does not know.
    #[error("`{field}` is {class} and cannot be compared like this")]
    Mismatch {
        /// The field.
        field: String,
        /// What it is where it occurs.
        class: &'static str,
    },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}
