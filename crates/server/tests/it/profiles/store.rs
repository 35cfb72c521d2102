//! A store on a free port, and requests to it by either version of HTTP.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::response::Parts;
use axum::http::{HeaderMap, Request, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use intake::Limits;
use model::Timestamp;
use objects::Io;
use prost::Message;
use server::profiles::Profiles;
use store::lake::{Lake, Settings};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use wire::pyroscope::pprof::{Function, Line, Location, Profile, Sample, ValueType};
use wire::pyroscope::{
    LabelPair, PushRequest, RawProfileSeries, RawSample, SelectMergeStacktracesRequest,
};

/// What the store's clock says.
pub(crate) const NOW: Timestamp = Timestamp::from_nanos(1_800_000_000_000_000_000);
pub(crate) const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
pub(crate) const PUSH: &str = "/push.v1.PusherService/Push";
pub(crate) const STACKS: &str = "/querier.v1.QuerierService/SelectMergeStacktraces";

/// Serves until it is dropped.
pub(crate) struct Store {
    pub(crate) address: SocketAddr,
    runtime: Runtime,
    ends: Option<(oneshot::Sender<()>, mpsc::Sender<()>)>,
    threads: Vec<JoinHandle<()>>,
    is_held: Arc<AtomicBool>,
    clock: fn() -> Timestamp,
    pub(crate) lake: Arc<Lake>,
    _folder: TempDir,
}

/// Where requests are told to go, and all else that was answered.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl Reply {
    /// A field of the head.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn trailer(&self, name: &str) -> Option<&str> {
        self.trailers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Store {
    pub(crate) fn start(limits: Limits) -> Self {
        Self::start_with(limits, false, |_from, _to| true)
    }

    /// For clients that do not say another time than that of the machine.
    pub(crate) fn start_now(limits: Limits) -> Self {
        Self::start_at(limits, false, |_from, _to| true, now)
    }

    pub(crate) fn start_with(
        limits: Limits,
        are_tenants_told: bool,
        admits: fn(IpAddr, IpAddr) -> bool,
    ) -> Self {
        Self::start_at(limits, are_tenants_told, admits, || NOW)
    }

    /// For tenants who are told apart.
    pub(crate) fn start_for_tenants() -> Self {
        Self::start_with(Limits::default(), true, |_from, _to| true)
    }

    fn start_at(
        limits: Limits,
        are_tenants_told: bool,
        admits: fn(IpAddr, IpAddr) -> bool,
        clock: fn() -> Timestamp,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let io = Io::start().unwrap();
        let place = folder.path().to_str().unwrap();
        let lake = Arc::new(Lake::open(place, &io, Settings::default(), clock()).unwrap());
        let profiles = Profiles::new(Arc::clone(&lake), limits, are_tenants_told, clock);
        let held = Arc::clone(&lake);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (end, ends) = mpsc::channel();
        let handle = runtime.handle().clone();
        let serving = thread::spawn(move || {
            let shutdown = async move { stopped.await.unwrap_or_default() };
            handle.block_on(server::profiles::serve(listener, profiles, admits, shutdown)).unwrap();
        });
        let is_held = Arc::new(AtomicBool::new(false));
        let holds = Arc::clone(&is_held);
        let flushing = thread::spawn(move || {
            while ends.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
                if !holds.load(Ordering::SeqCst) {
                    lake.flush(clock());
                }
            }
            drop(io);
        });
        let threads = vec![serving, flushing];
        let ends = Some((stop, end));
        Self { address, runtime, ends, threads, is_held, clock, lake: held, _folder: folder }
    }

    /// From here on nothing is written, and so no push answered.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    /// What is answered to a body.
    pub(crate) fn post(
        &self,
        version: Version,
        path: &str,
        fields: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let mut request = Request::post(path).version(version);
        if version == Version::HTTP_2 {
            request = request.uri(format!("http://{}{path}", self.address));
        } else {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        self.send(request.body(Full::new(body.into())).unwrap())
    }

    pub(crate) fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        self.exchange(request).unwrap()
    }

    /// As [`Self::send`], where there may be no answer.
    pub(crate) fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Reply, hyper::Error> {
        self.runtime.block_on(async {
            let stream = TokioIo::new(TcpStream::connect(self.address).await.unwrap());
            let answer = if request.version() == Version::HTTP_2 {
                let connected = http2::handshake(TokioExecutor::new(), stream).await;
                let (mut sender, connection) = connected?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            } else {
                let (mut sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                sender.send_request(request).await?
            };
            let (head, body) = answer.into_parts();
            let body = body.collect().await?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            let Parts { status, headers, .. } = head;
            Ok(Reply { status, headers, body: body.to_bytes(), trailers })
        })
    }

    /// Nanoseconds on CPUs of a service, and the functions that they are of.
    pub(crate) fn graph(&self, service: &str) -> (i64, Vec<String>) {
        self.graph_of(service, TYPE)
    }

    /// The same of any type, asked for by Connect.
    pub(crate) fn graph_of(&self, service: &str, profile_type: &str) -> (i64, Vec<String>) {
        let asked = question_at(service, profile_type, (self.clock)()).encode_to_vec();
        let fields = [("content-type", "application/proto")];
        let reply = self.post(Version::HTTP_11, STACKS, &fields, asked);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = wire::pyroscope::SelectMergeStacktracesResponse::decode(reply.body).unwrap();
        answer.flamegraph.map(|graph| (graph.total, graph.names)).unwrap_or_default()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        drop(self.ends.take());
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// All of a service.
pub(crate) fn question(service: &str) -> SelectMergeStacktracesRequest {
    question_at(service, TYPE, NOW)
}

fn question_at(service: &str, profile_type: &str, at: Timestamp) -> SelectMergeStacktracesRequest {
    let now_ms = at.nanos() / 1_000_000;
    SelectMergeStacktracesRequest {
        profile_type_id: profile_type.to_owned(),
        label_selector: format!("{{service_name=\"{service}\"}}"),
        start: now_ms - 3_600_000,
        end: now_ms + 60_000,
        ..SelectMergeStacktracesRequest::default()
    }
}

#[expect(clippy::disallowed_methods, reason = "what clients push is from now")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_nanos(i64::try_from(since.as_nanos()).unwrap())
}

/// A profile in pprof: `main` called each of these functions for so many nanoseconds.
pub(crate) fn pprof(functions: &[(&str, i64)]) -> Profile {
    let mut strings = ["", "cpu", "nanoseconds", "main"].map(str::to_owned).to_vec();
    strings.extend(functions.iter().map(|(name, _)| (*name).to_owned()));
    let names = 3..strings.len() as i64;
    let cpu = ValueType { kind: 1, unit: 2 };
    let sample = |(at, &(_, value)): (u64, &(&str, i64))| Sample {
        location_id: vec![at, 1],
        value: vec![value],
        label: Vec::new(),
    };
    Profile {
        sample_type: vec![cpu.clone()],
        sample: (2..).zip(functions).map(sample).collect(),
        location: (1..)
            .zip(names.clone())
            .map(|(id, _)| Location {
                id,
                line: vec![Line { function_id: id, ..Line::default() }],
                ..Location::default()
            })
            .collect(),
        function: (1..)
            .zip(names)
            .map(|(id, name)| Function { id, name, ..Function::default() })
            .collect(),
        string_table: strings,
        time_nanos: NOW.nanos(),
        period_type: Some(cpu),
        ..Profile::default()
    }
}

/// A push of one profile of a service.
pub(crate) fn push(service: &str, profile: &Profile) -> PushRequest {
    let labels = [("__name__", "process_cpu"), ("service_name", service)];
    let label = |(name, value): (&str, &str)| LabelPair { name: name.into(), value: value.into() };
    PushRequest {
        series: vec![RawProfileSeries {
            labels: labels.map(label).to_vec(),
            samples: vec![RawSample { raw_profile: profile.encode_to_vec(), id: String::new() }],
        }],
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}
