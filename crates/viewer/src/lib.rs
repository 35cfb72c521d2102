//! A viewer of recording sessions while they are written: a client of the relay's live port.
//!
//! In goes a connection to a relay (ours, or lttng-relayd), out come the event records and losses of a session's
//! streams, merged in time. Nothing here waits but for a reply, and no clock is read: the caller polls, and says what
//! time it is.
//!
//! Vocabulary:
//! - **recording session**: what the relay lists ([`Relay::sessions`]); several of its entries may be one session, when
//!   several daemons record it;
//! - **viewing** ([`Viewing`]): reading of the streams of attached sessions;
//! - **lane**: a stream in the merge; it has *come to* a time when nothing earlier is still to come in it;
//! - **inactivity**: the relay's word that a stream has come to a time without a packet;
//! - **late**: given after something of a later time, because its stream was silent for longer than the grace.
//!
//! What the relay sends is not trusted: every length and count is bounded, and a packet that cannot be read is a
//! finding and costs no more than itself.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use viewer::{Address, Options, Progress, Relay};
//! use tracedir::Item;
//!
//! let address: Address = "127.0.0.1:5344".parse()?;
//! let mut relay = Relay::connect(&address, Box::new(|| false))?;
//! let sessions = relay.sessions()?;
//! let mut viewing = relay.view(&sessions, Options::default())?;
//! let begin = Instant::now();
//! loop {
//!     let progress = viewing.poll(begin.elapsed())?;
//!     while let Some(Item::Event(event)) = viewing.next_item() {
//!         println!("{} {}", event.timestamp.nanos(), event.record.name());
//!     }
//!     match progress {
//!         Progress::Ended => break,
//!         Progress::Moved => {}
//!         Progress::Nothing => std::thread::park_timeout(Duration::from_millis(5)),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod connection;
mod error;
mod memory;
mod merge;
mod place;
mod viewing;

pub use address::{Address, BadAddress, DEFAULT_PORT};
pub use connection::{Relay, Stop};
pub use error::{Error, Refusal};
pub use memory::Memory;
pub use viewing::{Options, Progress, Viewing};
pub use wire::live::TraceFormat;
pub use wire::live::viewer::{Seek, SessionEntry};
