//! Where CPython keeps which functions it runs: what a profiler needs to walk its frames from outside, of 3.8 to 3.14.
//!
//! ```text
//! executable file ─▶ Interpreter (addresses, evaluation function) ─▶ Layout (offsets of its structures)
//! bytes copied of a name or a line table ─▶ text, line
//! ```
//! | word | here |
//! |---|---|
//! | interpreter | `PyInterpreterState`; `_PyRuntime` has a list of them |
//! | thread | `PyThreadState`; an interpreter has a list of them |
//! | frame | `PyFrameObject` up to 3.10, `_PyInterpreterFrame` from 3.11 on |
//! | code | `PyCodeObject`: a function's name, file, line table |
//! | evaluation function | `_PyEval_EvalFrameDefault`: the native function that runs frames |
//!
//! ```
//! // Of 3.11: two bytes of code that are of the line after the function's first.
//! assert_eq!(cpython::line(11, &[0xd8, 0, 0], 5, 0), Some(6));
//! assert_eq!(cpython::text(b"na\xefve", 1).as_deref(), Some("naïve"));
//! ```
//! Everything is a function of bytes: no files, no processes. What is read is believed as far as it goes: offsets beyond what
//! [`Layout`] allows, and tables that end early, give nothing.

mod interpreter;
mod layout;
mod lines;
mod text;

pub use interpreter::{Interpreter, ToldBy, Unsupported, Version};
pub use layout::{FrameKind, Layout};
pub use lines::line;
pub use text::text;
