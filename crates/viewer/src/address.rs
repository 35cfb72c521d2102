//! What is to be viewed: `[tls://]HOST[:PORT][/HOSTNAME/SESSION]`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The port of viewers without encryption.
pub const DEFAULT_PORT: u16 = 5344;

/// A relay, and a session of it when one is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Whether the port is the relay's encrypted one.
    pub is_tls: bool,
    /// Name or address of the relay's host.
    pub host: String,
    /// Its port for viewers.
    pub port: u16,
    /// Host of the producer and name of the session.
    pub session: Option<(String, String)>,
}

/// A text that is no such address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadAddress {
    /// It has not the form.
    #[error("not [tls://]HOST[:PORT][/HOSTNAME/SESSION], such as 127.0.0.1:5344/web-1/shop")]
    Form,
    /// The port is none.
    #[error("the port is not a number from 1 to 65535")]
    Port,
}

impl FromStr for Address {
    type Err = BadAddress;

    /// Also takes `net://HOST[:PORT]/host/HOSTNAME/SESSION`, as babeltrace2 writes it; IPv6 addresses stand in brackets.
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let (is_tls, bare) = match text.strip_prefix("tls://") {
            Some(bare) => (true, bare),
            None => (false, text.strip_prefix("net://").unwrap_or(text)),
        };
        let (relay, path) = bare.split_once('/').unwrap_or((bare, ""));
        let (host, port) = match relay.strip_prefix('[') {
            Some(rest) => {
                let (host, tail) = rest.split_once(']').ok_or(BadAddress::Form)?;
                match tail.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if tail.is_empty() => (host, None),
                    None => return Err(BadAddress::Form),
                }
            }
            None => match relay.split_once(':') {
                Some((_, port)) if port.contains(':') => return Err(BadAddress::Form),
                Some((host, port)) => (host, Some(port)),
                None => (relay, None),
            },
        };
        let port = match port {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(BadAddress::Port)?,
            None if is_tls => door::DEFAULT_PORT,
            None => DEFAULT_PORT,
        };
        if host.is_empty() {
            return Err(BadAddress::Form);
        }
        Ok(Self { is_tls, host: host.to_owned(), port, session: session(path)? })
    }
}

fn session(path: &str) -> Result<Option<(String, String)>, BadAddress> {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    match parts.as_slice() {
        [""] => Ok(None),
        [hostname, name] | ["host", hostname, name] if !hostname.is_empty() && !name.is_empty() => {
            Ok(Some(((*hostname).to_owned(), (*name).to_owned())))
        }
        _ => Err(BadAddress::Form),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_tls { "tls://" } else { "" })?;
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)?;
        } else {
            write!(f, "{}:{}", self.host, self.port)?;
        }
        self.session.iter().try_for_each(|(hostname, name)| write!(f, "/{hostname}/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_with_and_without_a_session() {
        for (text, shown) in [
            ("localhost", "localhost:5344"),
            ("localhost/", "localhost:5344"),
            ("10.0.0.1:99", "10.0.0.1:99"),
            ("::1/x", ""),
            ("[::1]", "[::1]:5344"),
            ("[::1]:7/web-1/shop", "[::1]:7/web-1/shop"),
            ("relay/web-1/shop", "relay:5344/web-1/shop"),
            ("net://relay:1/host/web-1/shop", "relay:1/web-1/shop"),
            ("relay/host/shop", "relay:5344/host/shop"),
            ("tls://relay", "tls://relay:5346"),
            ("tls://[::1]:7/web-1/shop", "tls://[::1]:7/web-1/shop"),
        ] {
            let address = text.parse::<Address>();
            assert_eq!(address.map(|a| a.to_string()).unwrap_or_default(), shown, "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "/a/b", ":5", "relay/shop", "relay/a/b/c", "relay//b", "[::1", "[::1]x", "tls://"]
        {
            assert_eq!(text.parse::<Address>(), Err(BadAddress::Form), "{text}");
        }
        for text in ["relay:", "relay:0", "relay:65536", "relay:x/a/b"] {
            assert_eq!(text.parse::<Address>(), Err(BadAddress::Port), "{text}");
        }
    }
}
