//! Against a relay that does what a test says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use wire::live::{
    COMMAND_HEADER_LEN, CommandHeader, ConfigurationReply, PendingReply, ProtocolMinor, refuse,
};

use super::*;

/// Longer than any test.
const LONG: Duration = Duration::from_secs(60);

/// What the relay does with a command.
enum Answer {
    Ok,
    Code(ReturnCode),
    Exists,
    /// None, until the other side hangs up.
    Silence,
    HangUp,
}

/// A control port, and a data port that nobody reads.
struct Ports {
    control: TcpListener,
    data: TcpListener,
}

impl Ports {
    fn new() -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { control: TcpListener::bind(any).unwrap(), data: TcpListener::bind(any).unwrap() }
    }

    fn address(&self) -> RelayAddress {
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        RelayAddress {
            host: "127.0.0.1".to_owned(),
            control_port: port(&self.control),
            data_port: port(&self.data),
            tls: None,
        }
    }
}

/// Serves one control connection to its end; `said` gets every command.
fn serve(control: &TcpListener, said: &Sender<Command>, answer: &mut dyn FnMut(Command) -> Answer) {
    serve_one(accept(control), said, answer);
}

/// The next connection; whoever gave up does not come.
fn accept(control: &TcpListener) -> TcpStream {
    control.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match control.accept() {
            Ok((socket, _)) => {
                socket.set_nonblocking(false).unwrap();
                return socket;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                assert!(Instant::now() < deadline, "nobody connects");
                thread::park_timeout(Duration::from_millis(5));
            }
        }
    }
}

fn serve_one(
    mut socket: TcpStream,
    said: &Sender<Command>,
    answer: &mut dyn FnMut(Command) -> Answer,
) {
    let mut header = [0; COMMAND_HEADER_LEN];
    while socket.read_exact(&mut header).is_ok() {
        let CommandHeader { command, payload_len } = CommandHeader::decode(&header).unwrap();
        (&mut socket).take(payload_len).read_to_end(&mut Vec::new()).unwrap();
        // A test that has seen enough does not listen.
        said.send(command).unwrap_or_default();
        match answer(command) {
            Answer::Ok => reply(&mut socket, command, ReturnCode::OK, false),
            Answer::Code(code) => reply(&mut socket, command, code, false),
            Answer::Exists => reply(&mut socket, command, ReturnCode::OK, true),
            Answer::Silence => {
                drop(io::copy(&mut socket, &mut io::sink()));
                return;
            }
            Answer::HangUp => return,
        }
    }
}

fn reply(socket: &mut TcpStream, command: Command, code: ReturnCode, exists: bool) {
    let mut bytes = Vec::new();
    match command {
        Command::GetConfiguration => {
            ConfigurationReply { code, clear_allowed: true, can_resume: true }.encode(&mut bytes);
        }
        Command::DataPending | Command::EndDataPending => PendingReply::Complete.encode(&mut bytes),
        Command::TraceChunkExists => ChunkExistsReply { code, exists }.encode(&mut bytes),
        _ => refuse(command, ProtocolMinor::OURS, code, &mut bytes),
    }
    socket.write_all(&bytes).unwrap();
}

fn connect(address: &RelayAddress) -> Result<Relay> {
    let recording = Recording {
        session: "kernel".to_owned(),
        host: "host".to_owned(),
        uuid: [7; 16],
        metadata: String::new(),
        streams: 1,
        begin_unix_s: 1,
        rotates: true,
    };
    Relay::connect(address, recording, LONG, Arc::default())
}

fn packet(sequence_number: u64) -> SealedPacket {
    SealedPacket {
        bytes: vec![0; 8],
        stream_class: 0,
        instance: 0,
        begin: 0,
        end: 1,
        content_bits: 64,
        sequence_number,
        discarded: 0,
        records: 0,
    }
}

fn source(error: Error) -> RelayError {
    match error {
        Error::Relay { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

fn count(commands: &[Command], command: Command) -> usize {
    commands.iter().filter(|said| **said == command).count()
}

#[test]
fn where_nobody_listens_the_first_connection_fails_at_once() {
    let address = Ports::new().address();
    assert!(matches!(source(connect(&address).unwrap_err()), RelayError::Unreachable(_)));
}

/// The relay dies at its first `until`, is away for a moment, and comes back; `next` is the chunk after the one that was begun.
fn check_dies_and_comes_back(until: Command, next: u64) {
    let ports = Ports::new();
    let (address, at) = (ports.address(), ports.control.local_addr().unwrap());
    let (said, _) = channel();
    let connecting = thread::spawn(move || connect(&address).map(|relay| relay.next_chunk));
    serve(&ports.control, &said, &mut |command| {
        if command == until { Answer::HangUp } else { Answer::Ok }
    });
    drop(ports.control);
    thread::park_timeout(Duration::from_millis(100));
    let control = TcpListener::bind(at).unwrap();
    serve(&control, &said, &mut |_| Answer::Ok);
    assert_eq!(connecting.join().unwrap().unwrap(), ChunkId::new(next));
}

#[test]
fn a_relay_that_dies_in_the_first_connection_is_looked_for() {
    check_dies_and_comes_back(Command::Version, 1);
    check_dies_and_comes_back(Command::CreateSession, 1);
    // It may know chunk 0 by then.
    check_dies_and_comes_back(Command::CreateTraceChunk, 2);
    check_dies_and_comes_back(Command::AddStream, 2);
}

#[test]
fn one_that_hangs_up_each_time_does_not_want_us() {
    let ports = Ports::new();
    let address = ports.address();
    let connecting = thread::spawn(move || connect(&address).map(drop));
    for _ in 0..MAX_REBUFFS {
        drop(accept(&ports.control));
    }
    let error = source(connecting.join().unwrap().unwrap_err());
    assert!(matches!(error, RelayError::Io(_)), "{error:?}");
}

#[test]
fn nor_does_one_whose_data_port_nobody_opens() {
    let Ports { control, data } = Ports::new();
    let address = Ports { control: control.try_clone().unwrap(), data }.address();
    let connecting = thread::spawn(move || connect(&address).map(drop));
    for _ in 0..MAX_REBUFFS {
        serve(&control, &channel().0, &mut |_| Answer::Ok);
    }
    let error = source(connecting.join().unwrap().unwrap_err());
    assert!(matches!(error, RelayError::Unreachable(_)), "{error:?}");
}

#[test]
fn a_relay_that_refuses_is_asked_once() {
    let ports = Ports::new();
    let address = ports.address();
    let connecting = thread::spawn(move || connect(&address).map(drop));
    serve(&ports.control, &channel().0, &mut |command| match command {
        Command::CreateSession => Answer::Code(ReturnCode::INVALID),
        _ => Answer::Ok,
    });
    let error = source(connecting.join().unwrap().unwrap_err());
    assert!(matches!(error, RelayError::Refused { .. }), "{error:?}");
}

/// What a relay was told that answers all with OK but the commands that `answer` takes, in `connections` connections, while
/// `act` records.
fn commands_of(
    connections: usize,
    answer: impl FnMut(Command) -> Answer + Send + 'static,
    act: impl FnOnce(&mut Relay),
) -> Vec<Command> {
    let ports = Ports::new();
    let (said, heard) = channel();
    let address = ports.address();
    let serving = thread::spawn(move || {
        let answer = Mutex::new(answer);
        // A relay that was lost may still have the connection before.
        thread::scope(|scope| {
            for _ in 0..connections {
                let socket = accept(&ports.control);
                let (said, answer) = (&said, &answer);
                scope.spawn(move || {
                    serve_one(socket, said, &mut |command| (answer.lock().unwrap())(command));
                });
            }
        });
    });
    let mut relay = connect(&address).unwrap();
    act(&mut relay);
    drop(relay);
    serving.join().unwrap();
    heard.into_iter().collect()
}

#[test]
fn a_chunk_that_takes_long_to_archive_is_waited_for_as_long_as_the_relay_answers() {
    let mut since = None;
    let answer = move |command| match command {
        Command::TraceChunkExists
            if since.get_or_insert_with(Instant::now).elapsed() < ANSWER_LIMIT * 3 / 2 =>
        {
            Answer::Exists
        }
        _ => Answer::Ok,
    };
    let said = commands_of(1, answer, |relay| relay.finish(2, &[0]).unwrap());
    assert_eq!(count(&said, Command::CreateTraceChunk), 1, "one chunk, whatever it takes");
    assert_eq!(said.last(), Some(&Command::CloseStream));
}

#[test]
fn packets_go_on_while_earlier_chunks_are_archived() {
    let (archived, mut closed) = (Arc::new(AtomicBool::new(false)), 0);
    let seen = Arc::clone(&archived);
    let answer = move |command| match command {
        Command::TraceChunkExists if !seen.load(Ordering::Relaxed) => Answer::Exists,
        _ => Answer::Ok,
    };
    let said = commands_of(1, answer, |relay| {
        for _ in 0..3 {
            relay.rotate(2, &[closed]).unwrap();
            relay.packet(0, &packet(closed)).unwrap();
            closed += 1;
        }
        archived.store(true, Ordering::Relaxed);
        relay.finish(3, &[closed]).unwrap();
    });
    assert_eq!(count(&said, Command::CloseTraceChunk), 4);
    assert_eq!(count(&said, Command::TraceChunkExists), 4, "each chunk is waited for at the end");
}

#[test]
fn a_relay_whose_disk_is_full_is_tried_again() {
    let mut is_full = true;
    let answer = move |command| match command {
        Command::SendIndex if std::mem::take(&mut is_full) => {
            Answer::Code(ReturnCode::FILE_CREATION)
        }
        _ => Answer::Ok,
    };
    let said = commands_of(2, answer, |relay| {
        relay.packet(0, &packet(0)).unwrap();
        assert!(relay.began_chunk.load(Ordering::Relaxed));
    });
    assert_eq!(count(&said, Command::CreateSession), 2);
    assert_eq!(count(&said, Command::SendIndex), 2);
}

#[test]
fn a_relay_that_holds_us_back_is_not_lost() {
    let mut has_room = false;
    let answer = move |command| {
        if command == Command::SendIndex && !std::mem::replace(&mut has_room, true) {
            thread::park_timeout(ANSWER_LIMIT * 3 / 2);
        }
        Answer::Ok
    };
    let said = commands_of(1, answer, |relay| {
        relay.packet(0, &packet(0)).unwrap();
        assert!(!relay.began_chunk.load(Ordering::Relaxed));
    });
    assert_eq!((count(&said, Command::CreateSession), count(&said, Command::SendIndex)), (1, 1));
}

#[test]
fn one_that_holds_us_back_for_too_long_is() {
    let mut answers = false;
    let answer = move |command| match command {
        Command::SendIndex if !std::mem::replace(&mut answers, true) => Answer::Silence,
        _ => Answer::Ok,
    };
    let said = commands_of(2, answer, |relay| {
        relay.packet(0, &packet(0)).unwrap();
        assert!(relay.began_chunk.load(Ordering::Relaxed));
    });
    assert_eq!((count(&said, Command::CreateSession), count(&said, Command::SendIndex)), (2, 2));
}

#[test]
fn the_first_connection_is_answered_at_once_or_not_at_all() {
    let ports = Ports::new();
    let address = ports.address();
    let connecting = thread::spawn(move || connect(&address).map(drop));
    let since = Instant::now();
    serve(&ports.control, &channel().0, &mut |command| {
        if command == Command::CreateSession {
            thread::park_timeout(HOLD_LIMIT - (HOLD_LIMIT - ANSWER_LIMIT) / 2);
            return Answer::HangUp;
        }
        Answer::Ok
    });
    assert!(since.elapsed() > ANSWER_LIMIT);
    let error = source(connecting.join().unwrap().unwrap_err());
    assert!(matches!(error, RelayError::Io(_)), "{error:?}");
}

/// More than sockets take that nobody reads.
fn large_packet() -> SealedPacket {
    SealedPacket { bytes: vec![0; 64 << 20], ..packet(0) }
}

/// Reads data connections one after the other, each to its end; the first only after so long.
fn read_late(data: &TcpListener, first: Duration, connections: usize) {
    for (number, _) in (0..connections).enumerate() {
        let mut socket = data.accept().unwrap().0;
        if number == 0 {
            thread::park_timeout(first);
        }
        // A connection that was given up ends with an error.
        drop(io::copy(&mut socket, &mut io::sink()));
    }
}

#[test]
fn one_that_takes_nothing_of_a_packet_is_not_lost_while_its_control_connection_is_there() {
    let ports = Ports::new();
    let (address, data) = (ports.address(), ports.data.try_clone().unwrap());
    let reading = thread::spawn(move || read_late(&data, ANSWER_LIMIT * 3 / 2, 1));
    let (said, heard) = channel();
    let serving = thread::spawn(move || serve(&ports.control, &said, &mut |_| Answer::Ok));
    let mut relay = connect(&address).unwrap();
    relay.packet(0, &large_packet()).unwrap();
    assert!(!relay.began_chunk.load(Ordering::Relaxed));
    drop(relay);
    serving.join().unwrap();
    reading.join().unwrap();
    let said: Vec<Command> = heard.into_iter().collect();
    assert_eq!((count(&said, Command::CreateSession), count(&said, Command::SendIndex)), (1, 1));
}

#[test]
fn one_that_takes_nothing_of_a_packet_and_hangs_up_is() {
    let ports = Ports::new();
    let (address, data) = (ports.address(), ports.data.try_clone().unwrap());
    let reading = thread::spawn(move || read_late(&data, ANSWER_LIMIT * 3 / 2, 2));
    let serving = thread::spawn(move || {
        let (said, _) = channel();
        serve(&ports.control, &said, &mut |command| match command {
            Command::SendMetadata => Answer::HangUp,
            _ => Answer::Ok,
        });
        serve(&ports.control, &said, &mut |_| Answer::Ok);
    });
    let mut relay = connect(&address).unwrap();
    let since = Instant::now();
    relay.packet(0, &large_packet()).unwrap();
    assert!(relay.began_chunk.load(Ordering::Relaxed));
    assert!(since.elapsed() < HOLD_LIMIT);
    drop(relay);
    serving.join().unwrap();
    reading.join().unwrap();
}

#[test]
fn the_system_asks_whether_the_machine_of_a_relay_is_there() {
    let ports = Ports::new();
    let address = ports.address();
    let serving = thread::spawn(move || {
        serve(&ports.control, &channel().0, &mut |_| Answer::Ok);
    });
    let relay = connect(&address).unwrap();
    let (is_asked, unacknowledged_ms) = relay.session.control.watched().unwrap();
    assert!(is_asked);
    assert_eq!(u128::from(unacknowledged_ms), ANSWER_LIMIT.as_millis());
    drop(relay);
    serving.join().unwrap();
}
