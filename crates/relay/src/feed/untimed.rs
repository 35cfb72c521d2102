//! Sessions without live timer: what is held back, and what silence says.

use std::time::Duration;

use super::reach::Reach;

/// How a session without live timer is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Untimed<'a> {
    /// How long a packet is held back so that metadata can catch up, and how long a stream must be silent before it is
    /// taken to have nothing.
    pub(crate) grace: Duration,
    /// How far the streams of the session were, and when.
    pub(crate) reach: &'a Reach,
    /// The longest [`Stream::span`] in the session: a stream whose packets were all quick may have a slow one.
    pub(crate) span: Duration,
    /// All metadata have come: packets need not wait for them.
    pub(crate) is_final: bool,
    /// A class for a stream that has not named its own: that of another stream of its channel.
    pub(crate) class: Option<u64>,
}
