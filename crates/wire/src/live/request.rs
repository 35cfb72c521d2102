//! Every request of the control connection in one enum.

use super::error::{Error, Result};
use super::id::{RelaySessionId, StreamHandle};
use super::reader::Reader;
use super::{
    AddStream, COMMAND_HEADER_LEN, CloseStream, CloseTraceChunk, Command, CommandHeader,
    CreateSession, CreateTraceChunk, DATA_HEADER_LEN, DataHeader, DataPending, GetConfiguration,
    PacketIndex, ProtocolMinor, ResetMetadata, RotateStreams, SendMetadata, TraceChunkExists,
    Version,
};

/// The largest payload of any command, in bytes.
pub const MAX_PAYLOAD_LEN: u64 = 32 << 20;

/// A request of the control connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// `VERSION`; reply [`Version`].
    Version(Version),
    /// `GET_CONFIGURATION`; reply [`super::ConfigurationReply`].
    GetConfiguration(GetConfiguration),
    /// `CREATE_SESSION`; reply [`super::CreateSessionReply`].
    CreateSession(CreateSession),
    /// `CREATE_TRACE_CHUNK`; reply [`super::ReturnReply`].
    CreateTraceChunk(CreateTraceChunk),
    /// `ADD_STREAM`; reply [`super::AddStreamReply`].
    AddStream(AddStream),
    /// `STREAMS_SENT`; reply [`super::ReturnReply`].
    StreamsSent,
    /// `SEND_METADATA`; no reply.
    SendMetadata(SendMetadata<'a>),
    /// `RESET_METADATA`; reply [`super::ReturnReply`].
    ResetMetadata(ResetMetadata),
    /// `SEND_INDEX`; reply [`super::ReturnReply`].
    SendIndex(PacketIndex),
    /// `CLOSE_STREAM`; reply [`super::ReturnReply`].
    CloseStream(CloseStream),
    /// `BEGIN_DATA_PENDING`; reply [`super::ReturnReply`].
    BeginDataPending(RelaySessionId),
    /// `DATA_PENDING`; reply [`super::PendingReply`].
    DataPending(DataPending),
    /// `QUIESCENT_CONTROL`; reply [`super::ReturnReply`].
    QuiescentControl(StreamHandle),
    /// `END_DATA_PENDING`; reply [`super::PendingReply`].
    EndDataPending(RelaySessionId),
    /// `ROTATE_STREAMS`; reply [`super::ReturnReply`].
    RotateStreams(RotateStreams),
    /// `CLOSE_TRACE_CHUNK`; reply [`super::CloseTraceChunkReply`].
    CloseTraceChunk(CloseTraceChunk),
    /// `TRACE_CHUNK_EXISTS`; reply [`super::ChunkExistsReply`].
    TraceChunkExists(TraceChunkExists),
    /// `STREAM_POSITIONS`; reply [`super::StreamPositionsReply`].
    StreamPositions,
}

impl<'a> Request<'a> {
    /// Reads a command's payload. Bytes after the known fields are ignored, as the reference relay does.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::LengthTooLarge`], [`Error::BadValue`], [`Error::BadName`].
    pub fn decode(command: Command, minor: ProtocolMinor, payload: &'a [u8]) -> Result<Self> {
        let reader = &mut Reader::new(payload);
        Ok(match command {
            Command::Version => Self::Version(Version::read(reader)?),
            Command::GetConfiguration => Self::GetConfiguration(GetConfiguration::read(reader)?),
            Command::CreateSession => Self::CreateSession(CreateSession::read(reader, minor)?),
            Command::CreateTraceChunk => Self::CreateTraceChunk(CreateTraceChunk::read(reader)?),
            Command::AddStream => Self::AddStream(AddStream::read(reader, minor)?),
            Command::StreamsSent => Self::StreamsSent,
            Command::SendMetadata => Self::SendMetadata(SendMetadata::read(reader)?),
            Command::ResetMetadata => Self::ResetMetadata(ResetMetadata::read(reader)?),
            Command::SendIndex => Self::SendIndex(PacketIndex::read(reader, minor)?),
            Command::CloseStream => Self::CloseStream(CloseStream::read(reader)?),
            Command::BeginDataPending => {
                Self::BeginDataPending(RelaySessionId::new(reader.u64("relay session id")?))
            }
            Command::DataPending => Self::DataPending(DataPending::read(reader)?),
            Command::QuiescentControl => {
                Self::QuiescentControl(StreamHandle::new(reader.u64("stream handle")?))
            }
            Command::EndDataPending => {
                Self::EndDataPending(RelaySessionId::new(reader.u64("relay session id")?))
            }
            Command::RotateStreams => Self::RotateStreams(RotateStreams::read(reader)?),
            Command::CloseTraceChunk => Self::CloseTraceChunk(CloseTraceChunk::read(reader)?),
            Command::TraceChunkExists => Self::TraceChunkExists(TraceChunkExists::read(reader)?),
            Command::StreamPositions => Self::StreamPositions,
        })
    }

    /// Appends header and payload.
    ///
    /// # Errors
    /// [`Error::NotInVersion`] when the version has no place for a field, [`Error::BadName`] and
    /// [`Error::LengthTooLarge`] when a field does not fit its layout, [`Error::PayloadTooLarge`].
    /// `out` is left as it was.
    pub fn encode(&self, minor: ProtocolMinor, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        let command = self.command();
        CommandHeader { command, payload_len: 0 }.encode(out);
        let written = self.write(minor, out).and_then(|()| {
            let len = (out.len() - start - COMMAND_HEADER_LEN) as u64;
            let max = command.max_payload_len();
            if len > max { Err(Error::PayloadTooLarge { command, len, max }) } else { Ok(len) }
        });
        match written {
            Ok(len) => {
                if let Some(field) = out.get_mut(start + 8..start + 16) {
                    field.copy_from_slice(&len.to_be_bytes());
                }
                Ok(())
            }
            Err(error) => {
                out.truncate(start);
                Err(error)
            }
        }
    }

    fn write(&self, minor: ProtocolMinor, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Version(request) => request.encode(out),
            Self::GetConfiguration(request) => request.write(out),
            Self::CreateSession(request) => request.write(minor, out)?,
            Self::CreateTraceChunk(request) => request.write(out),
            Self::AddStream(request) => request.write(minor, out)?,
            Self::StreamsSent | Self::StreamPositions => {}
            Self::SendMetadata(request) => request.write(out),
            Self::ResetMetadata(request) => request.write(out),
            Self::SendIndex(request) => request.write(minor, out),
            Self::CloseStream(request) => request.write(out),
            Self::DataPending(request) => request.write(out),
            Self::QuiescentControl(handle) => out.extend_from_slice(&handle.get().to_be_bytes()),
            Self::BeginDataPending(session) | Self::EndDataPending(session) => {
                out.extend_from_slice(&session.get().to_be_bytes());
            }
            Self::RotateStreams(request) => request.write(out)?,
            Self::CloseTraceChunk(request) => request.write(out),
            Self::TraceChunkExists(request) => request.write(out),
        }
        Ok(())
    }

    /// The request's command.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::Version(_) => Command::Version,
            Self::GetConfiguration(_) => Command::GetConfiguration,
            Self::CreateSession(_) => Command::CreateSession,
            Self::CreateTraceChunk(_) => Command::CreateTraceChunk,
            Self::AddStream(_) => Command::AddStream,
            Self::StreamsSent => Command::StreamsSent,
            Self::SendMetadata(_) => Command::SendMetadata,
            Self::ResetMetadata(_) => Command::ResetMetadata,
            Self::SendIndex(_) => Command::SendIndex,
            Self::CloseStream(_) => Command::CloseStream,
            Self::BeginDataPending(_) => Command::BeginDataPending,
            Self::DataPending(_) => Command::DataPending,
            Self::QuiescentControl(_) => Command::QuiescentControl,
            Self::EndDataPending(_) => Command::EndDataPending,
            Self::RotateStreams(_) => Command::RotateStreams,
            Self::CloseTraceChunk(_) => Command::CloseTraceChunk,
            Self::TraceChunkExists(_) => Command::TraceChunkExists,
            Self::StreamPositions => Command::StreamPositions,
        }
    }
}

/// Reads bytes as every message of the protocol in turn and discards what comes out: the entry
/// point for fuzzing. The first byte is the minor version.
pub fn decode_any(bytes: &[u8]) {
    let Some((minor, rest)) = bytes.split_first() else { return };
    let minor = ProtocolMinor(u32::from(*minor));
    if let Some((header, payload)) = rest.split_first_chunk::<COMMAND_HEADER_LEN>()
        && let Ok(header) = CommandHeader::decode(header)
        && let Ok(request) = Request::decode(header.command, minor, payload)
    {
        let mut again = Vec::new();
        if request.encode(minor, &mut again).is_ok()
            && let Some(payload) = again.get(COMMAND_HEADER_LEN..)
        {
            debug_assert_eq!(Request::decode(header.command, minor, payload), Ok(request));
        }
    }
    if let Some((header, _)) = rest.split_first_chunk::<DATA_HEADER_LEN>() {
        let decoded = DataHeader::decode(header);
        debug_assert_eq!(DataHeader::decode(&decoded.encode()), decoded);
    }
    let replies = [
        super::CreateSessionReply::decode(rest, minor).is_ok(),
        super::CloseTraceChunkReply::decode(rest).is_ok(),
        super::ChunkExistsReply::decode(rest).is_ok(),
        super::PendingReply::decode(rest).is_ok(),
        super::AddStreamReply::decode(rest).is_ok(),
        super::StreamPositionsReply::decode(rest).is_ok(),
        super::ConfigurationReply::decode(rest).is_ok(),
        Version::decode(rest).is_ok(),
    ];
    std::hint::black_box(replies);
}
