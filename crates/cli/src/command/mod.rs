//! One module for each subcommand: its arguments (`Args`) and what it does (`run`).

pub(crate) mod completions;
pub(crate) mod relay;
