//! A producer for tests: requests out, replies in, over real sockets.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use wire::live::{
    AddStreamReply, ChunkExistsReply, CloseTraceChunkReply, Command, ConfigurationReply,
    CreateSessionReply, Decoded, PendingReply, ProtocolMinor, Request, Result, ReturnCode,
    ReturnReply, StreamHandle, StreamPositionsReply, Version, ViewedStreamId,
};

/// How long a reply may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A reply, by the command it answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    None,
    Version(Version),
    Configuration(ConfigurationReply),
    Session(CreateSessionReply),
    Stream(AddStreamReply),
    Closed(CloseTraceChunkReply),
    Exists(ChunkExistsReply),
    Pending(PendingReply),
    Plain(ReturnReply),
    Positions(StreamPositionsReply),
}

thread_local! {
    /// What viewers know streams by that this test's relay gave handles for, which it counts as they are added.
    static SHOWN: RefCell<HashMap<StreamHandle, ViewedStreamId>> = RefCell::default();
}

/// A relay starts: no stream has been added to it.
pub(crate) fn forget_shown() {
    SHOWN.take();
}

/// What viewers know a stream by. What is no producer's handle is that already.
pub(crate) fn shown(stream: StreamHandle) -> ViewedStreamId {
    let shown = SHOWN.with_borrow(|shown| shown.get(&stream).copied());
    shown.unwrap_or(ViewedStreamId::new(stream.get()))
}

/// A control connection.
pub(crate) struct Control<S = TcpStream> {
    pub(crate) socket: S,
    pub(crate) minor: ProtocolMinor,
}

impl Control {
    pub(crate) fn connect(address: SocketAddr, minor: ProtocolMinor) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, minor }
    }

    pub(crate) fn end(&self) {
        end(&self.socket);
    }

    /// Whether the relay closed the connection without another word.
    pub(crate) fn is_closed(&mut self) -> bool {
        is_closed(&mut self.socket)
    }
}

impl<S: Read + Write> Control<S> {
    /// Sends a request and waits for its reply.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Reply {
        let mut bytes = Vec::new();
        request.encode(self.minor, &mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
        self.socket.flush().unwrap();
        self.reply(request.command())
    }

    pub(crate) fn reply(&mut self, command: Command) -> Reply {
        let mut bytes = Vec::new();
        loop {
            match decode(command, self.minor, &bytes).unwrap() {
                Decoded::Complete { value, used } => {
                    assert_eq!(used, bytes.len());
                    if let Reply::Stream(AddStreamReply { handle, code: ReturnCode::OK }) = value {
                        SHOWN.with_borrow_mut(|shown| {
                            let number = shown.len() as u64 + 1;
                            shown.insert(handle, ViewedStreamId::new(number));
                        });
                    }
                    return value;
                }
                Decoded::Incomplete { needed } => {
                    let have = bytes.len();
                    bytes.resize(needed, 0);
                    self.socket.read_exact(bytes.get_mut(have..).unwrap()).unwrap();
                }
            }
        }
    }
}

/// Ends our half of a connection; one that is closed already is at its end.
pub(crate) fn end(socket: &TcpStream) {
    if let Err(error) = socket.shutdown(Shutdown::Write) {
        assert_eq!(error.kind(), ErrorKind::NotConnected);
    }
}

/// Whether the relay closes the connection without another word.
pub(crate) fn is_closed(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Reads a reply; also used on recorded ones.
pub(crate) fn decode(
    command: Command,
    minor: ProtocolMinor,
    bytes: &[u8],
) -> Result<Decoded<Reply>> {
    fn wrap<T>(decoded: Decoded<T>, reply: impl FnOnce(T) -> Reply) -> Decoded<Reply> {
        match decoded {
            Decoded::Incomplete { needed } => Decoded::Incomplete { needed },
            Decoded::Complete { value, used } => Decoded::Complete { value: reply(value), used },
        }
    }
    Ok(match command {
        Command::SendMetadata => Decoded::Complete { value: Reply::None, used: 0 },
        Command::Version => wrap(Version::decode(bytes)?, Reply::Version),
        Command::GetConfiguration => wrap(ConfigurationReply::decode(bytes)?, Reply::Configuration),
        Command::CreateSession => wrap(CreateSessionReply::decode(bytes, minor)?, Reply::Session),
        Command::AddStream => wrap(AddStreamReply::decode(bytes)?, Reply::Stream),
        Command::CloseTraceChunk => wrap(CloseTraceChunkReply::decode(bytes)?, Reply::Closed),
        Command::TraceChunkExists => wrap(ChunkExistsReply::decode(bytes)?, Reply::Exists),
        Command::StreamPositions => wrap(StreamPositionsReply::decode(bytes)?, Reply::Positions),
        Command::DataPending | Command::EndDataPending => {
            wrap(PendingReply::decode(bytes)?, Reply::Pending)
        }
        _ => wrap(ReturnReply::decode(bytes)?, Reply::Plain),
    })
}
