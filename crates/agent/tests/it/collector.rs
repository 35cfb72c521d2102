//! A collector that answers as a script says, over real HTTP.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Script = Arc<Mutex<VecDeque<Response<Full<Bytes>>>>>;

/// Answers with what the script has next, and with an empty 200 after its end. Ends with this value.
pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Arc<Mutex<Vec<Seen>>>,
    _end: oneshot::Sender<()>,
}

pub(crate) fn answer(
    status: u16,
    headers: &[(&str, &str)],
    body: &'static [u8],
) -> Response<Full<Bytes>> {
    let builder = Response::builder().status(status);
    let builder = headers.iter().fold(builder, |it, (name, value)| it.header(*name, *value));
    builder.body(Full::new(Bytes::from_static(body))).unwrap()
}

impl Collector {
    /// Listens at an address; port 0 is any. Speaks HTTP/2 to those who do.
    pub(crate) fn start(address: &str, script: Vec<Response<Full<Bytes>>>) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let script: Script = Arc::new(Mutex::new(script.into()));
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let sees = Arc::clone(&seen);
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = serve(TcpListener::from_std(listener).unwrap(), sees, script) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address, seen, _end: end }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(listener: TcpListener, seen: Arc<Mutex<Vec<Seen>>>, script: Script) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
        let service = service_fn(move |request: Request<Incoming>| {
            let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
            async move {
                let (head, body) = request.into_parts();
                if let Ok(body) = body.collect().await {
                    let (path, body) = (head.uri.path().to_owned(), body.to_bytes());
                    seen.lock().unwrap().push(Seen { path, headers: head.headers, body });
                }
                let next = script.lock().unwrap().pop_front();
                Ok::<_, Infallible>(next.unwrap_or_else(|| answer(200, &[], b"")))
            }
        });
        tokio::spawn(async move {
            let mut begin = [0; 2];
            // HTTP/2 begins with `PRI`, what is posted with `POST`; both come in one piece.
            let is_http2 = socket.peek(&mut begin).await.is_ok() && begin == *b"PR";
            let io = TokioIo::new(socket);
            if is_http2 {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                drop(server.serve_connection(io, service).await);
            } else {
                let server = hyper::server::conn::http1::Builder::new();
                drop(server.serve_connection(io, service).await);
            }
        });
    }
}
