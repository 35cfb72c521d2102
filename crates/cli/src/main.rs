//! The `throughline` command.

fn main() {}
