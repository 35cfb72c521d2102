//! From a program counter to its caller.
//!
//! ```text
//! executable file ─▶ Image (where code lies) ─▶ Table (a Rule for each stretch of code) ─▶ walk (registers, memory ─▶ callers)
//! ```
//! Compilers describe for each instruction where the caller's registers are: `.eh_frame`, a small program for each
//! function. [`Table`] has it worked out beforehand, sorted, in eight bytes a row, so that the eBPF program that samples
//! stacks and [`walk`](walk::walk) here take the same steps by the same rows.
//!
//! Everything is a function of bytes: no files, no processes. Memory of the thread that is walked arrives through
//! [`walk::Memory`].

mod build;
mod go;
mod image;
mod instructions;
mod parts;
mod rule;
mod signal;
mod start;
mod table;
mod v8;
pub mod walk;

pub use build::{Left, MAX_ROWS, TableError};
pub use image::{Architecture, Image, ImageError, Segment, build_id, code_address};
pub use parts::parts;
pub use rule::{Cfa, Rule};
pub use table::Table;
