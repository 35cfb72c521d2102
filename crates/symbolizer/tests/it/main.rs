//! Real compilers, a real `addr2line` and a real `debuginfod` beside what is told of addresses.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails here fails")]

mod folders;
mod program;
mod servers;
