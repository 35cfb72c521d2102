//! Settings of a relay, and its bounds.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tracedir::seekable::Level;

use crate::after::{Announce, Keep, Release};
use crate::doors::Network;
use crate::doors::tls::Tls;

/// Settings of a relay.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder everything is written below; made when it is not there.
    pub root: PathBuf,
    /// Address of the control port; port 0 takes a free one.
    pub control: SocketAddr,
    /// Address of the data port; port 0 takes a free one.
    pub data: SocketAddr,
    /// Address of the port for viewers; port 0 takes a free one.
    pub viewers: SocketAddr,
    /// The encrypted port, if there is to be one. Its address may be one that others reach whatever `peers` says: who comes
    /// there shows who it is.
    pub tls: Option<Tls>,
    /// Which hosts may connect, besides this one. `None`: nothing was said, and only addresses of this machine itself may
    /// be listened on without encryption.
    pub peers: Option<Vec<Network>>,
    /// How times in folder names are written.
    pub time_zone: TimeZone,
    /// Who is told of sealed chunks.
    pub announce: Announce,
    /// How sealed chunks are compressed, if they are: before anybody is told of them.
    pub compress: Option<Level>,
    /// How long sealed chunks are kept.
    pub keep: Keep,
    /// Whoever must have read a sealed chunk before it may be deleted.
    pub release: Option<Release>,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// A relay on this machine only, with the ports LTTng uses (5342, 5343, 5344).
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            control: (Ipv4Addr::LOCALHOST, 5342).into(),
            data: (Ipv4Addr::LOCALHOST, 5343).into(),
            viewers: (Ipv4Addr::LOCALHOST, 5344).into(),
            tls: None,
            peers: None,
            time_zone: TimeZone::System,
            announce: Announce::default(),
            compress: None,
            keep: Keep::default(),
            release: None,
            limits: Limits::default(),
        }
    }
}

/// How times in folder names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeZone {
    /// As the machine is set.
    System,
    /// In UTC.
    Utc,
}

/// What peers may use up. Reaching one is answered with an error and counted.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections of both kinds at a time.
    pub connections: usize,
    /// Connections of each port that have said nothing yet; when there are more, who has waited longest leaves. The start
    /// lowers this where the process may open few files.
    pub half_open: usize,
    /// How long a connection may take to say what it is, and a control connection to make its session. Data connections
    /// of hosts that have a producer may take any time.
    pub first_message: Duration,
    /// How long the rest of a request on a control connection may take once its first byte is there, and a second more
    /// for each MiB of it.
    pub request_timeout: Duration,
    /// Bytes that requests of more than 64 KiB may take up in memory together; who sends one that finds no room waits.
    pub request_bytes: usize,
    /// Bytes of the metadata of one stream in one chunk.
    pub metadata_bytes: u64,
    /// Recording sessions at a time.
    pub recordings: usize,
    /// Streams at a time.
    pub streams: usize,
    /// Files of streams that are kept open; further ones are opened anew when they are needed. The start lowers this
    /// to what the process may open.
    pub open_files: usize,
    /// Trace chunks of one recording session at a time.
    pub chunks_per_recording: usize,
    /// Streams that are added to one chunk in its life; with buffers per process each process adds some.
    pub streams_per_chunk: usize,
    /// Bytes of one packet, data and padding.
    pub packet_bytes: u64,
    /// Packets and index entries of one stream that wait for their other half.
    pub unpaired_per_stream: usize,
    /// Bytes of memory that those of all streams may take up beyond the first 16 of each; when they do, a stream that brings more is
    /// cut to its newest 16.
    pub unpaired_bytes: usize,
    /// How long they may wait.
    pub pair_timeout: Duration,
    /// How long the acknowledgement of an index entry waits for its packet while nothing comes on the data connection. A
    /// producer that can resume is never acknowledged without it: after 20 times as long its connection is closed.
    pub ack_patience: Duration,
    /// How long a connection waits for room on a full disk, unread, before what it brought is refused.
    pub room_patience: Duration,
    /// How often sealing a chunk, or putting aside one that was cleared, may fail, other than for want of room on the disk, before it is left where it is until the
    /// next start, so that its producer and its session's other chunks need not wait for it. The pauses between are those of
    /// [`Announce`].
    pub seal_attempts: u32,
    /// Losses noted with their place in one chunk; further ones are counted.
    pub losses_per_chunk: usize,
    /// Viewers at a time.
    pub viewers: usize,
    /// How long a viewer that follows no session may say nothing before its place is given to others.
    pub viewer_idle: Duration,
    /// Files that viewers of all sessions keep open to go on with; further ones are opened anew when they are needed. The
    /// start lowers this to what the process may open.
    pub viewed_open_files: usize,
    /// Packets of one stream that are kept in memory for viewers; those before them are read from the chunks' index
    /// files. A viewer that follows stays within them unless the stream brings more between two of its questions; those of
    /// babeltrace2 are 100 ms apart.
    pub viewed_packets_per_stream: usize,
    /// Packets of all streams together that are kept in memory; when there are more, each stream that grows is cut to 16.
    pub viewed_packets: usize,
    /// Trace files of one stream that viewers can look back to: one for each chunk, more where the producer limits their
    /// size. Packets of older ones are counted as missed.
    pub viewed_files_per_stream: usize,
    /// Trace files of all streams together that viewers can look back to; when there are more, each stream that grows is
    /// cut to 16.
    pub viewed_files: usize,
    /// Streams of one recording session that viewers can read after they ended.
    pub viewed_closed_streams: usize,
    /// For sessions without live timer: how long a packet is held back from viewers so that metadata can catch up, and
    /// how long, beside the time its packets take to be sent, a stream must be silent before viewers are told that
    /// nothing is still to come from that time.
    pub untimed_grace: Duration,
    /// How long what a viewer has still to read is not deleted for its age, after the viewer last came to another packet.
    pub viewer_hold: Duration,
    /// Events a subscriber may be behind before it loses the oldest.
    pub event_backlog: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            half_open: 256,
            first_message: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            request_bytes: 256 << 20,
            metadata_bytes: 256 << 20,
            recordings: 1024,
            streams: 16_384,
            open_files: 16_384,
            chunks_per_recording: 64,
            streams_per_chunk: 1 << 20,
            packet_bytes: 1 << 30,
            unpaired_per_stream: 4096,
            unpaired_bytes: 64 << 20,
            pair_timeout: Duration::from_secs(120),
            ack_patience: Duration::from_millis(500),
            room_patience: Duration::from_secs(600),
            seal_attempts: 6,
            losses_per_chunk: 10_000,
            viewers: 2048,
            viewer_idle: Duration::from_secs(60),
            viewed_open_files: 16_384,
            viewed_packets_per_stream: 256,
            viewed_packets: 1 << 18,
            viewed_files_per_stream: 4096,
            viewed_files: 1 << 19,
            viewed_closed_streams: 1024,
            untimed_grace: Duration::from_secs(2),
            viewer_hold: Duration::from_secs(600),
            event_backlog: 4096,
        }
    }
}
