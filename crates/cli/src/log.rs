//! What goes on inside, on standard error, for whoever sets `RUST_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// From here on warnings are written, and what `RUST_LOG` asks for; in colours to terminals only. A second call does nothing.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_unset| "warn".into());
    let is_coloured = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(is_coloured);
    drop(log.with_env_filter(filter).try_init());
}
