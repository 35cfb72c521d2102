//! The two connections of a relay: commands and their replies in turn, and packets.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use door::{Client, Role, Stream as Socket};
use wire::live::{
    AddStream, AddStreamReply, ChunkId, ConfigurationReply, CreateTraceChunk, Decoded,
    GetConfiguration, Name, PacketSeqNum, PendingReply, ProtocolMinor, RelativePath, Request,
    ReturnCode, ReturnReply, StreamHandle, StreamPositionsReply, UnixSeconds, Version,
};

use super::{ANSWER_LIMIT, CONNECT_LIMIT, FOLDER, HOLD_LIMIT, RelayError};
use crate::kernel::RelayAddress;

/// A machine that is silent for so long is asked whether it is still there, this often, so many times.
const ASK_AFTER: Duration = Duration::from_secs(10);
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIMES: u32 = 4;

/// The control connection: commands and their replies in turn.
#[derive(Debug)]
pub(super) struct Control {
    socket: Socket,
    pub(super) minor: ProtocolMinor,
    buffer: Vec<u8>,
    /// How long the relay may leave a command without answer, or take nothing of a packet.
    limit: Duration,
}

impl Control {
    /// Connects, agrees on a version and asks whether sessions can be resumed.
    ///
    /// `is_taken` is set when somebody takes the connection.
    pub(super) fn open(
        entrance: &Entrance<'_>,
        is_taken: &mut bool,
    ) -> std::result::Result<(Self, bool), RelayError> {
        let socket = entrance.connect_with(Role::Control, is_taken)?;
        let mut control = Self::greet(socket)?;
        match control.configuration(GetConfiguration::RESUME) {
            Ok(reply) => return Ok((control, reply.can_resume)),
            Err(RelayError::Refused { .. }) => {}
            // A relay that does not know the question may hang up.
            Err(RelayError::Io(_)) => control = Self::greet(entrance.connect(Role::Control)?)?,
            Err(error) => return Err(error),
        }
        control.configuration(0)?;
        Ok((control, false))
    }

    /// The relay may hold us back, as long as its machine answers. It answers each command before it gets the next and reads metadata
    /// at once, so what its machine does not even acknowledge has not reached it.
    pub(super) fn be_patient(&mut self) -> io::Result<()> {
        let socket = self.socket.socket();
        socket.set_read_timeout(Some(HOLD_LIMIT))?;
        sockopt::set_tcp_keepidle(socket, ASK_AFTER)?;
        sockopt::set_tcp_keepintvl(socket, ASK_EVERY)?;
        sockopt::set_tcp_keepcnt(socket, ASK_TIMES)?;
        sockopt::set_socket_keepalive(socket, true)?;
        let unacknowledged_ms = u32::try_from(ANSWER_LIMIT.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(socket, unacknowledged_ms)?;
        self.limit = HOLD_LIMIT;
        Ok(())
    }

    /// Whether the system asks a silent machine whether it is there, and how many milliseconds it leaves it to acknowledge.
    #[cfg(test)]
    pub(super) fn watched(&self) -> io::Result<(bool, u32)> {
        let socket = self.socket.socket();
        Ok((sockopt::socket_keepalive(socket)?, sockopt::tcp_user_timeout(socket)?))
    }

    /// Whether a relay that has taken nothing of a packet since then may still do so.
    fn may_take(&self, since: Instant) -> io::Result<bool> {
        let ends = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut polled = [PollFd::new(self.socket.socket(), ends)];
        poll(&mut polled, Some(&Timespec::default()))?;
        let has_ended = polled.iter().any(|it| it.revents().intersects(ends));
        Ok(!has_ended && since.elapsed() < self.limit)
    }

    fn configuration(
        &mut self,
        query_flags: u64,
    ) -> std::result::Result<ConfigurationReply, RelayError> {
        let request = Request::GetConfiguration(GetConfiguration { query_flags });
        self.query(&request, ConfigurationReply::decode, |reply| reply.code)
    }

    /// The last packet that the relay has of each stream of the session.
    pub(super) fn stored(
        &mut self,
    ) -> std::result::Result<Vec<(RelativePath, PacketSeqNum)>, RelayError> {
        let request = Request::StreamPositions;
        let reply = self.query(&request, StreamPositionsReply::decode, |reply| reply.code)?;
        Ok(reply.positions)
    }

    fn greet(socket: Socket) -> std::result::Result<Self, RelayError> {
        let (minor, buffer) = (ProtocolMinor::OURS, Vec::new());
        let mut control = Self { socket, minor, buffer, limit: ANSWER_LIMIT };
        control.send(&Request::Version(Version::OURS))?;
        let theirs = control.reply(Version::decode)?;
        match Version::OURS.negotiate(theirs).filter(|minor| minor.has_trace_chunks()) {
            Some(minor) => {
                control.minor = minor;
                Ok(control)
            }
            None => Err(RelayError::Version { major: theirs.major, minor: theirs.minor.0 }),
        }
    }

    pub(super) fn create_chunk(
        &mut self,
        chunk: ChunkId,
        created: UnixSeconds,
    ) -> std::result::Result<(), RelayError> {
        self.command(&Request::CreateTraceChunk(CreateTraceChunk {
            chunk,
            created,
            override_name: None,
        }))
    }

    pub(super) fn add_stream(
        &mut self,
        channel: &str,
        chunk: ChunkId,
    ) -> std::result::Result<StreamHandle, RelayError> {
        let name = |problem| wire::live::Error::BadName { field: "channel", offset: 0, problem };
        let request = Request::AddStream(AddStream {
            channel: Name::new(channel).map_err(name)?,
            path: RelativePath::new(FOLDER).map_err(name)?,
            tracefile: None,
            chunk: Some(chunk),
        });
        let reply = self.query(&request, AddStreamReply::decode, |reply| reply.code)?;
        Ok(reply.handle)
    }

    /// A command that is answered with a return code alone.
    pub(super) fn command(&mut self, request: &Request<'_>) -> std::result::Result<(), RelayError> {
        self.query(request, ReturnReply::decode, |reply| reply.0).map(drop)
    }

    pub(super) fn is_complete(
        &mut self,
        request: &Request<'_>,
    ) -> std::result::Result<bool, RelayError> {
        self.send(request)?;
        match self.reply(PendingReply::decode)? {
            PendingReply::Complete => Ok(true),
            PendingReply::Pending => Ok(false),
            PendingReply::Failed(code) => {
                Err(RelayError::Refused { command: request.command(), code })
            }
        }
    }

    pub(super) fn query<T>(
        &mut self,
        request: &Request<'_>,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
        code: impl FnOnce(&T) -> ReturnCode,
    ) -> std::result::Result<T, RelayError> {
        self.send(request)?;
        let reply = self.reply(decode)?;
        let code = code(&reply);
        if code.is_ok() {
            Ok(reply)
        } else {
            Err(RelayError::Refused { command: request.command(), code })
        }
    }

    pub(super) fn send(&mut self, request: &Request<'_>) -> std::result::Result<(), RelayError> {
        self.buffer.clear();
        request.encode(self.minor, &mut self.buffer)?;
        self.socket.write_all(&self.buffer)?;
        Ok(self.socket.flush()?)
    }

    fn reply<T>(
        &mut self,
        decode: impl Fn(&[u8]) -> wire::live::Result<Decoded<T>>,
    ) -> std::result::Result<T, RelayError> {
        self.buffer.clear();
        loop {
            match decode(&self.buffer)? {
                Decoded::Complete { value, .. } => return Ok(value),
                Decoded::Incomplete { needed } => {
                    let missing = needed.saturating_sub(self.buffer.len()) as u64;
                    let read = (&mut self.socket).take(missing).read_to_end(&mut self.buffer)?;
                    if (read as u64) < missing {
                        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
                    }
                }
            }
        }
    }
}

/// How the relay is reached.
pub(super) struct Entrance<'a> {
    address: &'a RelayAddress,
    tls: Option<Client>,
}

impl<'a> Entrance<'a> {
    pub(super) fn open(address: &'a RelayAddress) -> std::result::Result<Self, RelayError> {
        let tls = address.tls.as_ref().map(Client::new).transpose()?;
        Ok(Self { address, tls })
    }

    pub(super) fn connect(&self, role: Role) -> std::result::Result<Socket, RelayError> {
        self.connect_with(role, &mut false)
    }

    fn connect_with(
        &self,
        role: Role,
        is_taken: &mut bool,
    ) -> std::result::Result<Socket, RelayError> {
        let RelayAddress { host, control_port, data_port, .. } = self.address;
        let port = if role == Role::Data { data_port } else { control_port };
        let socket = connect(host, *port).map_err(RelayError::Unreachable)?;
        *is_taken = true;
        let Some(client) = &self.tls else { return Ok(socket.into()) };
        let socket = client.enter(socket, host, role)?;
        set_patience(socket.socket())?;
        Ok(socket)
    }
}

fn set_patience(socket: &TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.set_write_timeout(Some(ANSWER_LIMIT))
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                set_patience(&socket)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Writes header and body without copying them together. A relay that holds us back takes nothing of them, which `control` has to
/// tell from one that is gone: bytes that find no room there are asked for as long as its machine is there.
pub(super) fn write_both(
    socket: &mut Socket,
    header: &[u8],
    body: &[u8],
    control: &Control,
) -> io::Result<()> {
    let mut slices = [IoSlice::new(header), IoSlice::new(body)];
    let mut left = slices.as_mut_slice();
    let mut taken = Instant::now();
    loop {
        let done = if left.is_empty() {
            socket.flush().map(|()| None)
        } else {
            socket.write_vectored(left).map(Some)
        };
        match done {
            Ok(None) => return Ok(()),
            Ok(Some(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(Some(written)) => {
                IoSlice::advance_slices(&mut left, written);
                taken = Instant::now();
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    if control.may_take(taken)? => {}
                _ => return Err(error),
            },
        }
    }
}
