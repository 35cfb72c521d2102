//! The command from outside, with real peers.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

mod agent;
#[cfg(feature = "cluster")]
mod cluster;
mod compact;
mod compressed;
mod config;
mod copies;
mod ctf_check;
mod ctf_convert;
mod ctf_info;
mod grafana;
mod kept;
mod lami;
mod live;
mod live_page;
mod lttng;
mod lttng_analyses;
#[cfg(feature = "cluster")]
mod machines;
mod main_job;
mod periods;
mod process;
mod profile;
mod read;
mod read_options;
mod recording;
mod recording_ctf;
mod rules;
mod sealed;
#[cfg(feature = "sql")]
mod sql;
mod store;
mod store_page;
mod store_symbols;
mod thumbnailer;
mod tls;
mod up;
