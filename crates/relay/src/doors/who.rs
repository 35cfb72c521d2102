//! Who is on the other side of a connection, and what it may do.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// What tells one peer from another: that of a plain connection has none, and all of those are one.
///
/// The same text each time that the same peer comes, also after a restart of the relay: sessions are their producer's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Identity(Option<Arc<str>>);

/// A peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Who {
    pub(crate) identity: Identity,
    /// The hosts whose sessions it may record or look at; `None`: all.
    pub(crate) hosts: Option<Arc<BTreeSet<String>>>,
    /// The address it comes from, if it has not shown who it is. This machine's are one.
    pub(crate) host: Option<IpAddr>,
}

impl Identity {
    /// A peer that has shown a token, a certificate, or both.
    pub(crate) fn new(text: &str) -> Self {
        Self(Some(text.into()))
    }

    /// As it is noted; `None` for plain connections.
    pub(crate) fn as_text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text().unwrap_or("-"))
    }
}

impl Who {
    /// Who comes over a plain connection, from `peer` to our `local` address.
    pub(crate) fn plain(peer: IpAddr, local: Option<IpAddr>) -> Self {
        let peer = peer.to_canonical();
        let is_here = peer.is_loopback() || local.is_some_and(|local| local.to_canonical() == peer);
        let host = if is_here { Ipv4Addr::LOCALHOST.into() } else { peer };
        Self { host: Some(host), ..Self::default() }
    }

    /// Whether it may have to do with sessions of a host.
    pub(crate) fn may_have(&self, hostname: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.contains(hostname))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_this_machine_are_one_host() {
        let host = |peer: &str, local: &str| {
            Who::plain(peer.parse().unwrap(), Some(local.parse().unwrap())).host.unwrap()
        };
        let here = host("127.0.0.1", "127.0.0.1");
        for (peer, local) in
            [("::1", "::1"), ("::ffff:127.0.0.1", "::1"), ("127.0.0.2", "127.0.0.1")]
        {
            assert_eq!(host(peer, local), here);
        }
        assert_eq!(host("192.0.2.2", "192.0.2.2"), here);
        assert_ne!(host("192.0.2.3", "192.0.2.2"), here);
        assert_eq!(host("::ffff:192.0.2.3", "192.0.2.2"), host("192.0.2.3", "::1"));
        assert_ne!(host("192.0.2.3", "192.0.2.2"), host("192.0.2.4", "192.0.2.2"));
    }
}
