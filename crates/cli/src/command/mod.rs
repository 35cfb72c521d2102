//! One module for each subcommand: its arguments (`Args`) and what it does (`run`).

pub(crate) mod agent;
pub(crate) mod analyze;
pub(crate) mod capture;
#[cfg(feature = "sql")]
pub(crate) mod chunk;
pub(crate) mod compact;
pub(crate) mod completions;
pub(crate) mod ctf;
pub(crate) mod lami;
pub(crate) mod ledger;
pub(crate) mod live;
pub(crate) mod profile;
pub(crate) mod read;
pub(crate) mod recording;
pub(crate) mod relay;
pub(crate) mod rules;
pub(crate) mod sending;
#[cfg(feature = "sql")]
pub(crate) mod sql;
pub(crate) mod store;
pub(crate) mod tls;
pub(crate) mod up;
#[cfg(feature = "cluster")]
pub(crate) mod worker;
