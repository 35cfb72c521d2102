//! The table that Go's linker writes about each function of a program, for the program's own use: also a stripped one has it.
//!
//! ```text
//! executable file ─▶ Module (where the table lies) ─▶ Table (functions by address) ─▶ frames of an address, with inlined calls
//!                                                                                └─▶ depth of the stack at each instruction
//! ```
//! Of Go 1.16 on. The format is none that Go promises: it is that of the linker (`cmd/link/internal/ld/pcln.go`) and the runtime (`runtime/symtab.go`), which
//! have changed it with 1.18, 1.20 and 1.26. Of what a file says nothing is trusted: every length is bounded, and what lies outside of the file
//! is not there.
//!
//! Not for Go before 1.16, programs of other byte orders or of 32 bits, and packages that were built as plugins.

mod elf;
mod frames;
mod stack;
mod table;

pub use elf::Module;
pub use frames::GoFrame;
pub use stack::{Stack, StackKind};
pub use table::{Function, MAX_FUNCTIONS, Table, TableError};
