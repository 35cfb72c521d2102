//! `GET_CONFIGURATION` (22) and `CREATE_SESSION` (2).
//!
//! ```text
//! GET_CONFIGURATION  u64 query flags, 0              reply  u32 code, u64 flags (bit 0: clearing allowed)
//!
//! CREATE_SESSION, 2.1 to 2.3   empty                 reply  u64 session id, u32 code
//! CREATE_SESSION, 2.4 to 2.10  327 bytes             reply  the same
//! off size
//!   0  255  session name, NUL filled
//! 255   64  hostname, NUL filled
//! 319    4  live timer period, µs; 0 = not live
//! 323    4  snapshot, 0 or 1
//!
//! CREATE_SESSION, 2.11 on                            reply  u64 session id, u32 code, u32 length, path
//! off size
//!   0    4  session name length, with NUL
//!   4    4  hostname length, with NUL
//!   8    4  base path length, with NUL; an empty one counts 1
//!  12    4  live timer period, µs; 0 = not live
//!  16    1  snapshot, 0 or 1
//!  17    1  the session name contains its creation time, 0 or 1
//!  18   16  UUID of the sessiond
//!  34    8  session id within the sessiond
//!  42    8  creation time, s since the epoch
//!  50    1  current chunk id follows, 0 or 1
//!  51    8  current chunk id
//!  59    4  from 2.15: trace format, 1 = CTF 1.8, 2 = CTF 2
//!  59 / 63  session name, hostname, base path
//! ```

use super::error::{Error, Result};
use super::id::{ChunkId, RelaySessionId, SessiondSessionId, SessiondUuid, UnixSeconds};
use super::name::{self, MAX_NAME_LEN, MAX_PATH_LEN, Name, RelativePath};
use super::reader::Reader;
use super::reply::{Decoded, ReturnCode, fixed_reply, path_reply};
use super::{Command, ProtocolMinor};

/// Length of the session name in the layout of 2.4.
const FIXED_SESSION_NAME_LEN: usize = 255;
/// Length of the hostname in the layout of 2.4.
const FIXED_HOSTNAME_LEN: usize = 64;

/// Request `GET_CONFIGURATION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GetConfiguration {
    /// [`GetConfiguration::RESUME`], or 0. The reference relay answers everything but 0 with
    /// [`ReturnCode::INVALID_PROTOCOL`].
    pub query_flags: u64,
}

impl GetConfiguration {
    /// Asks whether sessions can be resumed; Throughline's own.
    pub const RESUME: u64 = 1 << 63;

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { query_flags: reader.u64("query flags")? })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.query_flags.to_be_bytes());
    }
}

/// Reply to `GET_CONFIGURATION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigurationReply {
    /// Whether it worked.
    pub code: ReturnCode,
    /// Whether `lttng clear` may delete what was recorded.
    pub clear_allowed: bool,
    /// Whether sessions can be resumed, see [`super::StreamPositions`]; only said when asked.
    pub can_resume: bool,
}

impl ConfigurationReply {
    /// Length in bytes.
    pub const LEN: usize = 12;

    /// Reads it.
    ///
    /// # Errors
    /// None beyond the shape; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8]) -> Result<Decoded<Self>> {
        fixed_reply(bytes, Self::LEN, |reader| {
            let code = ReturnCode(reader.u32("return code")?);
            let flags = reader.u64("flags")?;
            let can_resume = flags & GetConfiguration::RESUME != 0;
            Ok(Self { code, clear_allowed: flags & 1 == 1, can_resume })
        })
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.code.0.to_be_bytes());
        let resume = if self.can_resume { GetConfiguration::RESUME } else { 0 };
        out.extend_from_slice(&(u64::from(self.clear_allowed) | resume).to_be_bytes());
    }
}

/// The format of a recording session's traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TraceFormat {
    /// CTF 1.8, metadata in TSDL.
    Ctf1_8 = 1,
    /// CTF 2, metadata in JSON.
    Ctf2 = 2,
}

/// What 2.11 and later say about the recording session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionIdentity {
    /// Folder below the host's folder instead of one named after the session; empty: none.
    pub base_path: RelativePath,
    /// The session's name already contains the time it was created.
    pub name_has_creation_time: bool,
    /// The sessiond.
    pub sessiond: SessiondUuid,
    /// The session within that sessiond; the same for all its consumer daemons.
    pub sessiond_session: SessiondSessionId,
    /// When the session was created.
    pub created: UnixSeconds,
    /// The chunk other consumer daemons of the session are writing to.
    pub current_chunk: Option<ChunkId>,
    /// The trace format; `None` before 2.15, when it is always CTF 1.8.
    pub trace_format: Option<TraceFormat>,
}

/// Request `CREATE_SESSION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSession {
    /// Name of the recording session; `None` before 2.4.
    pub session_name: Option<Name>,
    /// Host of the producer; `None` before 2.4.
    pub hostname: Option<Name>,
    /// Period of the live timer in microseconds; 0 = not live.
    pub live_timer_us: u32,
    /// Whether this is the output of one snapshot.
    pub snapshot: bool,
    /// `None` before 2.11.
    pub identity: Option<SessionIdentity>,
}

impl CreateSession {
    pub(super) fn read(reader: &mut Reader<'_>, minor: ProtocolMinor) -> Result<Self> {
        if minor.has_trace_chunks() {
            Self::read_2_11(reader, minor)
        } else if minor.has_session_names() {
            Ok(Self {
                session_name: Some(Name::read(reader, "session name", FIXED_SESSION_NAME_LEN)?),
                hostname: Some(Name::read(reader, "hostname", FIXED_HOSTNAME_LEN)?),
                live_timer_us: reader.u32("live timer")?,
                snapshot: reader.u32("snapshot")? != 0,
                identity: None,
            })
        } else {
            Ok(Self {
                session_name: None,
                hostname: None,
                live_timer_us: 0,
                snapshot: false,
                identity: None,
            })
        }
    }

    fn read_2_11(reader: &mut Reader<'_>, minor: ProtocolMinor) -> Result<Self> {
        let name_len = reader.len_u32("session name length", MAX_NAME_LEN + 1)?;
        let hostname_len = reader.len_u32("hostname length", MAX_NAME_LEN + 1)?;
        let base_path_len = reader.len_u32("base path length", MAX_PATH_LEN + 1)?;
        let live_timer_us = reader.u32("live timer")?;
        let snapshot = reader.flag("snapshot")?;
        let name_has_creation_time = reader.flag("name contains creation time")?;
        let uuid_offset = reader.offset();
        let sessiond = SessiondUuid(reader.array("sessiond UUID")?);
        if sessiond.is_nil() {
            return Err(Error::BadValue { field: "sessiond UUID", offset: uuid_offset, value: 0 });
        }
        let sessiond_session = SessiondSessionId::new(reader.u64("sessiond session id")?);
        let created = UnixSeconds::new(reader.u64("creation time")?);
        let has_chunk = reader.flag("current chunk is set")?;
        let chunk = ChunkId::new(reader.u64("current chunk")?);
        let trace_format = if minor.has_trace_format() { Some(read_format(reader)?) } else { None };
        let session_name = Name::read(reader, "session name", name_len)?;
        let hostname = Name::read(reader, "hostname", hostname_len)?;
        let base_path = RelativePath::read(reader, "base path", base_path_len)?;
        Ok(Self {
            session_name: Some(session_name),
            hostname: Some(hostname),
            live_timer_us,
            snapshot,
            identity: Some(SessionIdentity {
                base_path,
                name_has_creation_time,
                sessiond,
                sessiond_session,
                created,
                current_chunk: has_chunk.then_some(chunk),
                trace_format,
            }),
        })
    }

    pub(super) fn write(&self, minor: ProtocolMinor, out: &mut Vec<u8>) -> Result<()> {
        if !minor.has_session_names() {
            return Ok(());
        }
        let missing = Error::NotInVersion { command: Command::CreateSession, minor: minor.0 };
        let (Some(name), Some(hostname)) = (&self.session_name, &self.hostname) else {
            return Err(missing);
        };
        if !minor.has_trace_chunks() {
            name::put_fixed(out, "session name", name.as_str(), FIXED_SESSION_NAME_LEN)?;
            name::put_fixed(out, "hostname", hostname.as_str(), FIXED_HOSTNAME_LEN)?;
            out.extend_from_slice(&self.live_timer_us.to_be_bytes());
            out.extend_from_slice(&u32::from(self.snapshot).to_be_bytes());
            return Ok(());
        }
        let identity = self.identity.as_ref().ok_or(missing)?;
        for text in [name.as_str(), hostname.as_str(), identity.base_path.as_str()] {
            out.extend_from_slice(&name::wire_len(text).to_be_bytes());
        }
        out.extend_from_slice(&self.live_timer_us.to_be_bytes());
        out.push(u8::from(self.snapshot));
        out.push(u8::from(identity.name_has_creation_time));
        out.extend_from_slice(&identity.sessiond.0);
        out.extend_from_slice(&identity.sessiond_session.get().to_be_bytes());
        out.extend_from_slice(&identity.created.get().to_be_bytes());
        out.push(u8::from(identity.current_chunk.is_some()));
        out.extend_from_slice(&identity.current_chunk.map_or(0, ChunkId::get).to_be_bytes());
        if minor.has_trace_format() {
            let format = identity.trace_format.unwrap_or(TraceFormat::Ctf1_8);
            out.extend_from_slice(&(format as u32).to_be_bytes());
        }
        for text in [name.as_str(), hostname.as_str(), identity.base_path.as_str()] {
            name::put_text(out, text);
        }
        Ok(())
    }
}

fn read_format(reader: &mut Reader<'_>) -> Result<TraceFormat> {
    let offset = reader.offset();
    match reader.u32("trace format")? {
        1 => Ok(TraceFormat::Ctf1_8),
        2 => Ok(TraceFormat::Ctf2),
        other => Err(Error::BadValue { field: "trace format", offset, value: u64::from(other) }),
    }
}

/// Reply to `CREATE_SESSION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSessionReply {
    /// The relay's number of the session.
    pub session: RelaySessionId,
    /// Whether it worked.
    pub code: ReturnCode,
    /// Where the session is written, relative to the relay's root; `None` before 2.11.
    pub output_path: Option<RelativePath>,
}

impl CreateSessionReply {
    /// Reads it in the layout of the given version.
    ///
    /// # Errors
    /// [`Error::LengthTooLarge`], [`Error::BadName`]; a short buffer is [`Decoded::Incomplete`].
    pub fn decode(bytes: &[u8], minor: ProtocolMinor) -> Result<Decoded<Self>> {
        let head = |reader: &mut Reader<'_>| {
            let session = RelaySessionId::new(reader.u64("session id")?);
            Ok((session, ReturnCode(reader.u32("return code")?)))
        };
        if !minor.has_trace_chunks() {
            return fixed_reply(bytes, 12, |reader| {
                let (session, code) = head(reader)?;
                Ok(Self { session, code, output_path: None })
            });
        }
        Ok(match path_reply(bytes, 16, head)? {
            Decoded::Incomplete { needed } => Decoded::Incomplete { needed },
            Decoded::Complete { value: ((session, code), path), used } => {
                Decoded::Complete { value: Self { session, code, output_path: Some(path) }, used }
            }
        })
    }

    /// Appends it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.get().to_be_bytes());
        out.extend_from_slice(&self.code.0.to_be_bytes());
        if let Some(path) = &self.output_path {
            out.extend_from_slice(&name::wire_len(path.as_str()).to_be_bytes());
            name::put_text(out, path.as_str());
        }
    }
}
