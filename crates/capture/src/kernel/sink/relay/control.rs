//! The two connections of a relay: commands and their replies in turn, and packets.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use door::{Client, Role, Stream as Socket};
use wire::live::{
    AddStream, AddStreamReply, ChunkId, ConfigurationReply, CreateTraceChunk, Decoded,
    GetConfiguration, Name, PacketSeqNum, PendingReply, ProtocolMinor, RelativePath, Request,
    ReturnCode, ReturnReply, StreamHandle, StreamPositionsReply, UnixSeconds, Version,
};

use super::{ANSWER_LIMIT, CONNECT_LIMIT, FOLDER, RelayError};
use crate::kernel::RelayAddress;

/// The control connection: commands and their replies in turn.
#[derive(Debug)]
pub(super) struct Control {
    socket: Socket,
    pub(super) minor: ProtocolMinor,
    buffer: Vec<u8>,
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
        let mut control = Self { socket, minor: ProtocolMinor::OURS, buffer: Vec::new() };
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

/// Writes header and body without copying them together.
pub(super) fn write_both(socket: &mut Socket, header: &[u8], body: &[u8]) -> io::Result<()> {
    let mut slices = [IoSlice::new(header), IoSlice::new(body)];
    let mut left = slices.as_mut_slice();
    while !left.is_empty() {
        match socket.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.flush()
}
