//! LTTng relay protocol: control and data connections, both directions; [`viewer`] has the viewer connection.
//!
//! A producer (lttng-sessiond and lttng-consumerd, or our own capture) opens two TCP connections
//! to a relay: **control**, request and reply, and **data**, one way. All integers are big endian, all
//! structures packed.
//!
//! ```text
//! control   24-byte [`CommandHeader`] + payload ─▶   ◀─ reply without header, layout by command
//! data      32-byte [`DataHeader`] + packet bytes ─▶  (never answered)
//! ```
//!
//! The layouts depend on the smaller of the two minor versions announced in `VERSION`; see
//! [`ProtocolMinor`]. Source: lttng-tools 2.10 to 2.16, `src/common/sessiond-comm/relayd.h`, checked
//! against recorded byte streams.
//!
//! ```
//! use wire::live::{Decoded, ProtocolMinor, ReturnCode, ReturnReply, Request};
//!
//! let minor = ProtocolMinor::OURS;
//! let mut bytes = Vec::new();
//! Request::StreamsSent.encode(minor, &mut bytes)?;
//! assert_eq!(bytes.len(), 24);
//! let reply = ReturnReply::decode(&[0, 0, 0, 10])?;
//! assert_eq!(reply, Decoded::Complete { value: ReturnReply(ReturnCode::OK), used: 4 });
//! # Ok::<(), wire::live::Error>(())
//! ```

mod chunk;
mod command;
mod error;
mod header;
mod id;
mod index;
mod metadata;
mod name;
mod pending;
mod reader;
mod reply;
mod request;
mod resume;
mod session;
mod stream;
mod version;
pub mod viewer;

pub use chunk::{
    ChunkExistsReply, CloseAction, CloseTraceChunk, CloseTraceChunkReply, CreateTraceChunk,
    MAX_ROTATED_STREAMS, RotateStreams, StreamPosition, TraceChunkExists,
};
pub use command::Command;
pub use error::{Error, ErrorKind, Result};
pub use header::{COMMAND_HEADER_LEN, CommandHeader, DATA_HEADER_LEN, DataHeader};
pub use id::{
    ChunkId, NetSeqNum, PacketSeqNum, RelaySessionId, SessiondSessionId, SessiondUuid,
    StreamHandle, UnixSeconds, ViewedSessionId, ViewedStreamId, ViewedTraceId, ViewerSessionId,
};
pub use index::{FullIndexFields, PacketIndex};
pub use metadata::{ResetMetadata, SendMetadata};
pub use name::{MAX_NAME_LEN, MAX_PATH_LEN, Name, NameProblem, RelativePath};
pub use pending::{DataPending, PendingReply};
pub use reply::{Decoded, ReturnCode, ReturnReply, refuse};
pub use request::{MAX_PAYLOAD_LEN, Request, decode_any};
pub use resume::{MAX_STREAM_POSITIONS, StreamPositionsReply};
pub use session::{
    ConfigurationReply, CreateSession, CreateSessionReply, GetConfiguration, SessionIdentity,
    TraceFormat,
};
pub use stream::{AddStream, AddStreamReply, CloseStream, TracefileLimit};
pub use version::{ProtocolMinor, Version};
