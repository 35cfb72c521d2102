//! Where workers are.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

use url::{Host, Url};

/// The port of workers, where an address says none.
pub const DEFAULT_PORT: u16 = 5345;
/// Most workers of a job: names that stand for more hosts are cut off there.
pub(crate) const MAX_WORKERS: usize = 1_024;

/// A host, by name or number, and a port: `http://HOST[:PORT]` or `HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    host: String,
    port: u16,
}

/// What is no address of workers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not where workers are: HOST, HOST:PORT or http://HOST:PORT")]
pub struct BadAddress {
    given: String,
}

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(given: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress { given: given.to_owned() };
        let rest = given.strip_prefix("http://").unwrap_or(given);
        if rest.contains("://") {
            return Err(bad());
        }
        // A scheme without a port of its own, so that the port is the one that was given.
        let url: Url = format!("tcp://{rest}").parse().map_err(|_not_an_address| bad())?;
        let bare = matches!(url.path(), "" | "/") && url.query().is_none();
        let bare = bare && url.fragment().is_none() && url.username().is_empty();
        let host = match url.host() {
            Some(Host::Domain(name)) if is_name(name) => name.to_owned(),
            Some(Host::Ipv4(ip)) => ip.to_string(),
            Some(Host::Ipv6(ip)) => ip.to_string(),
            _ => return Err(bad()),
        };
        match bare && url.password().is_none() && url.port() != Some(0) {
            true => Ok(Self { host, port: url.port().unwrap_or(DEFAULT_PORT) }),
            false => Err(bad()),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._".contains(&c))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

impl Address {
    /// The sockets that it stands for. Where a host has addresses of both kinds, those of IPv4.
    pub(crate) async fn resolve(&self) -> io::Result<BTreeSet<SocketAddr>> {
        let all: BTreeSet<SocketAddr> =
            tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect();
        let old: BTreeSet<SocketAddr> = all.iter().copied().filter(SocketAddr::is_ipv4).collect();
        Ok(if old.is_empty() { all } else { old })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_a_port_and_nothing_else() {
        for (given, read) in [
            ("w1", "w1:5345"),
            ("http://w1", "w1:5345"),
            ("http://w1:80/", "w1:80"),
            ("10.0.0.3:7", "10.0.0.3:7"),
            ("http://[fd00::3]:7", "[fd00::3]:7"),
            ("workers.example.org", "workers.example.org:5345"),
        ] {
            assert_eq!(given.parse::<Address>().unwrap().to_string(), read, "{given}");
        }
        for given in [
            "",
            "http://",
            "https://w1",
            "s3://w1",
            "w1:port",
            "w1:70000",
            "w1:0",
            "w 1",
            "w1/x",
            "http://u@w1",
            "http://u:p@w1",
            "w1?x",
            "w1#x",
            ":5345",
            "w1,w2",
        ] {
            let refused = given.parse::<Address>();
            assert!(refused.is_err(), "{given}: {refused:?}");
        }
    }

    #[tokio::test]
    async fn a_number_stands_for_itself() {
        let address: Address = "127.0.0.1:7".parse().unwrap();
        assert_eq!(address.resolve().await.unwrap(), [([127, 0, 0, 1], 7).into()].into());
    }
}
