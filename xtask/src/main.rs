//! Development automation: `cargo xtask`.

fn main() {}
