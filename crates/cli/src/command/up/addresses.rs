//! Where a run listens, for people and for programs.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

/// The addresses of one run; also the content of `up.json`.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Addresses {
    pub(super) control: SocketAddr,
    pub(super) stream: SocketAddr,
    pub(super) live: SocketAddr,
    pub(super) http: SocketAddr,
    /// Where clients push profiles and ask for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) profiles: Option<SocketAddr>,
    /// The relay's encrypted port, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<SocketAddr>,
}

impl Addresses {
    /// As `lttng create --set-url` takes it.
    pub(super) fn relay_url(&self) -> String {
        let scheme = if self.control.is_ipv6() { "net6" } else { "net" };
        let host = match self.control {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        };
        format!("{scheme}://{host}:{}:{}", self.control.port(), self.stream.port())
    }

    /// Writes `up.json`: whole, or not at all.
    pub(super) fn write(&self, data: &Path) -> anyhow::Result<()> {
        let (path, unfinished) = (data.join("up.json"), data.join("up.json.unfinished"));
        let json = serde_json::to_string(self).context("addresses")?;
        fs::write(&unfinished, json + "\n")
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_url_is_one_that_lttng_takes() {
        let at = |control: &str| Addresses {
            control: control.parse().unwrap(),
            stream: "127.0.0.1:2".parse().unwrap(),
            live: "127.0.0.1:4".parse().unwrap(),
            http: "127.0.0.1:3".parse().unwrap(),
            profiles: None,
            tls: None,
        };
        assert_eq!(at("127.0.0.1:1").relay_url(), "net://127.0.0.1:1:2");
        assert_eq!(at("[::1]:1").relay_url(), "net6://[::1]:1:2");
    }
}
