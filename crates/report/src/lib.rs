//! Answers as people and other programs read them.
//!
//! In go the plain answers of [`stitch`]; out comes text. Nothing here prints or computes a figure.
//!
//! ```
//! let answer = stitch::syscalls(&stitch::Summary::identity());
//! assert_eq!(report::text::syscalls(&answer), "");
//! ```

pub mod csv;
pub mod json;
pub mod lami;
pub mod path;
pub mod tables;
pub mod text;
