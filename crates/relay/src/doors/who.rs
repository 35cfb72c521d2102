//! Who is on the other side of a connection, and what it may do.

use std::collections::BTreeSet;
use std::fmt;
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
    /// Whether it may have to do with sessions of a host.
    pub(crate) fn may_have(&self, hostname: &str) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.contains(hostname))
    }
}
