//! A relay for LTTng recording sessions: streams, indexes, rotation chunks.
//!
//! In: the control and data connections of lttng-sessiond and lttng-consumerd (2.10 to 2.16), or of anyone who
//! speaks [`wire::live`]. Out: plain CTF traces below one folder, packets byte for byte as they came, under the names
//! lttng-relayd gives them; [`Event`]s for the rest of the process; and, on a port for viewers (babeltrace2, or anyone who
//! speaks [`wire::live::viewer`]), the same packets while a session is recorded. Event payloads are never looked at.
//!
//! ```text
//! control ─▶ control.rs ─┐               ┌─▶ stream.rs ─▶ data, index, metadata files
//!                        ├─▶ recording/ ─┤     merge.rs pairs packets and index entries
//! data ────▶ intake.rs ──┘        │      └─▶ chunk.rs ──▶ seal.rs: sync, manifest, move ─▶ after/: announce, one day delete
//!                                 ▼
//!                               feed/ ◀── viewer/ ◀─▶ viewers
//! ```
//!
//! Promises: a reply is sent after `write(2)` returned, that to an index entry when its packet is written too; a chunk is announced as sealed after it was synced and moved;
//! nothing is written outside the root; what is lost is counted by reason ([`Totals`]) and told with its chunk
//! ([`Losses`]). The ports that LTTng's tools speak to know neither passwords nor encryption: keep them on the loopback
//! interface or in a network you trust. One more port, [`Tls`], has the same protocols behind TLS for those who show a
//! certificate or token.
//!
//! Vocabulary:
//! - **recording session**: what a user starts with `lttng create`;
//! - **relay session**: the connections of one consumer daemon of a recording session;
//! - **chunk**: what is recorded between two rotations; **sealed** when complete and in its last place;
//! - **index entry**: where a packet is in its file, and its times; comes on the control connection;
//! - **beacon**: an index entry without packet, "nothing happened until then";
//! - **feed**: what viewers may be shown of a recording session; **cursor**: how far one of them has read a stream.
//!
//! ```no_run
//! # async fn example() -> relay::Result<()> {
//! let relay = relay::Relay::start(relay::Config::new("traces"))?;
//! let mut events = relay.subscribe();
//! while let Ok(event) = events.recv().await {
//!     if let relay::Event::Sealed(chunk) = event {
//!         // read the chunk in `chunk.folder`
//!     }
//! }
//! relay.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod after;
mod arrivals;
mod chunk;
mod config;
mod control;
mod counters;
mod data;
mod doors;
mod env;
mod error;
mod event;
#[cfg(test)]
mod faults;
mod feed;
mod files;
mod halves;
mod index;
mod intake;
mod jobs;
mod journal;
mod losses;
mod mend;
mod merge;
mod metadata;
mod names;
mod pen;
mod recording;
mod recover;
mod registry;
mod release;
mod resume;
mod room;
mod root;
mod seal;
mod server;
mod stream;
mod viewer;
mod workers;

pub use after::{
    Announce, Keep, NatsSubject, NatsSubjectError, Release, Store, StoreError, Target, Webhook,
    WebhookError,
};
pub use config::{Config, Limits, TimeZone};
pub use counters::Totals;
pub use doors::tls::Tls;
pub use doors::{Network, NotANetwork, Peers};
pub use error::{Error, Result};
pub use event::{Event, RecordingName, Sealed};
#[cfg(any(test, feature = "simulation"))]
pub use feed::simulation;
pub use losses::{Loss, LossCause, Losses};
pub use recover::{Interrupted, Recovered};
pub use server::{NetworkLosses, Relay};
