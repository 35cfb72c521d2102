//! Where sealed packets go.

mod folder;
mod relay;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ctf::writer::SealedPacket;

pub use relay::RelayError;

pub(super) use folder::Folder;
pub(super) use relay::Relay;

use super::Output;
use crate::error::Result;

/// Takes the packets of one recording, chunk after chunk. Packets of a stream come in order; every stream has at
/// least one packet in each chunk.
pub(super) trait Sink: Send {
    /// Takes a packet of the current chunk.
    fn packet(&mut self, stream: usize, packet: &SealedPacket) -> Result<()>;

    /// Ends the current chunk and begins the next one. `next[i]` is the number of the first packet of stream `i` in
    /// the new chunk.
    fn rotate(&mut self, at_unix_s: u64, next: &[u64]) -> Result<()>;

    /// Ends the current chunk and the recording; returns when everything is where it belongs.
    fn finish(&mut self, at_unix_s: u64, next: &[u64]) -> Result<()>;
}

/// What a sink must know before the first packet.
#[derive(Debug, Clone)]
pub(super) struct Recording {
    /// Name of the recording session.
    pub(super) session: String,
    /// Name of this host.
    pub(super) host: String,
    /// Tells this recording from all others.
    pub(super) uuid: [u8; 16],
    /// Metadata of every chunk.
    pub(super) metadata: String,
    /// Streams, one for each CPU.
    pub(super) streams: usize,
    /// When the first chunk begins.
    pub(super) begin_unix_s: u64,
    /// Whether there will be more than one chunk.
    pub(super) rotates: bool,
}

/// Opens the sink that `output` names. `began_chunk` is set when it had to begin a chunk that nobody asked for.
pub(super) fn open(
    output: &Output,
    recording: Recording,
    reconnect: Duration,
    began_chunk: Arc<AtomicBool>,
) -> Result<Box<dyn Sink>> {
    Ok(match output {
        Output::Folder(path) => Box::new(Folder::create(path, recording)?),
        Output::Relay(address) => {
            Box::new(Relay::connect(address, recording, reconnect, began_chunk)?)
        }
    })
}

/// The name of a stream's file, as LTTng's default channel has it.
fn stream_name(stream: usize) -> String {
    format!("channel0_{stream}")
}
