//! A server around [`Session`] on a port of the machine's choice, and a real one of Redis.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use osprofiler::{MemoryTraces, Next, Password, Session};
use testkit::Running;

/// No reply takes longer, unless a test fails.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Answers each connection by a thread of its own, until the test program ends.
pub(crate) fn serve(traces: &Arc<Mutex<MemoryTraces>>, password: Option<&str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let traces = Arc::clone(traces);
    let password = password.map(|text| Arc::new(Password::new(text)));
    std::thread::spawn(move || {
        for (id, stream) in (1..).zip(listener.incoming()) {
            let session = Session::new(id, password.clone());
            let (stream, traces) = (stream.unwrap(), Arc::clone(&traces));
            std::thread::spawn(move || answer(stream, session, &traces));
        }
    });
    address
}

fn answer(mut stream: TcpStream, mut session: Session, traces: &Mutex<MemoryTraces>) {
    let (mut bytes, mut replies, mut len) = ([0; 4096], Vec::new(), 0);
    loop {
        let next = session.feed(&bytes[..len], &mut *traces.lock().unwrap(), &mut replies);
        let is_written = stream.write_all(&replies).is_ok();
        replies.clear();
        len = match next {
            Next::Write if is_written => 0,
            Next::Read if is_written => match stream.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(len) => len,
            },
            _ => return,
        };
    }
}

/// A server of Redis that keeps nothing; `None` when none is installed.
pub(crate) fn redis(folder: &Path, password: Option<&str>) -> Option<(Running, SocketAddr)> {
    if !testkit::is_installed("redis-server") {
        testkit::skip("redis-server is not installed");
        return None;
    }
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new("redis-server");
    command.args(["--save", "", "--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(password.map_or(Vec::new(), |password| vec!["--requirepass", password]));
    let log = folder.join("log");
    command.arg("--dir").arg(folder).arg("--logfile").arg(&log);
    let mut server = Running::start(&mut command, "redis-server", &log);
    testkit::wait_for("a server of Redis", || {
        let ended = server.child.try_wait().unwrap();
        assert!(ended.is_none(), "redis-server: {ended:?}: {}", server.said());
        TcpStream::connect(address).ok()
    });
    Some((server, address))
}

/// What a server answers on a connection of its own, which is ended by `QUIT`.
pub(crate) fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(WATCHDOG)).unwrap();
    stream.write_all(bytes).unwrap();
    // A server that has closed by now does not read it.
    drop(stream.write_all(&request(&["QUIT"])));
    let (mut said, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return said,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return said,
            read => said.extend_from_slice(&piece[..read.unwrap()]),
        }
    }
}

/// A request of words.
pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}
