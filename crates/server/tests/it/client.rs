//! A server on a free port and an HTTP client of a few lines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use server::{AnswerSource, LiveSource};
use tokio::sync::oneshot;

/// Longer than any reply takes on a busy machine.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), server::Error>>>,
}

impl Server {
    pub(crate) fn start(source: Arc<dyn AnswerSource>) -> Self {
        Self::start_with(source, None)
    }

    pub(crate) fn start_with(
        source: Arc<dyn AnswerSource>,
        live: Option<Arc<dyn LiveSource>>,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            stopped.await.expect("the server is stopped before the sender is dropped");
        };
        let thread = std::thread::spawn(move || {
            runtime.block_on(server::serve(listener, source, live, |_from, _to| true, shutdown))
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Sends one GET request with these further fields and reads the reply to its end.
    pub(crate) fn get(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let fields: String =
            fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{fields}\r\n",
            self.address
        ))
    }

    /// Sends these bytes and reads what comes until the server closes.
    pub(crate) fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(WATCHDOG)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("the request is sent");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("a reply");
        Reply::parse(&String::from_utf8(reply).expect("text"))
    }

    /// Stops the server and gives what `serve` returned.
    pub(crate) fn stop(mut self) -> Result<(), server::Error> {
        self.end().expect("stopped once")
    }

    fn end(&mut self) -> Option<Result<(), server::Error>> {
        self.stop.take()?.send(()).expect("the server listens for its end");
        Some(self.thread.take()?.join().expect("the server does not panic"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(result) = self.end() {
            result.expect("the server ends well");
        }
    }
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head
            .split(' ')
            .nth(1)
            .unwrap_or("")
            .parse()
            .unwrap_or_else(|_| panic!("no status in {text:?}"));
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}
