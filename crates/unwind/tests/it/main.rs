//! Tables of real files against what their call frame information says, and walks of real stacks.
#![expect(clippy::unwrap_used, reason = "a test that fails here fails")]

mod files;
mod own_stack;
