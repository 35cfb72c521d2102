//! A store of profiles over HTTP: doors for its clients, and Pyroscope's querier.
//!
//! | path | reply |
//! |---|---|
//! | `POST /push.v1.PusherService/Push` | takes profiles in pprof, as protobuf or JSON |
//! | `POST /ingest` | takes a profile in one of many formats |
//! | `POST /v1development/profiles` | takes OTLP profiles, as protobuf or JSON |
//! | `POST /querier.v1.QuerierService/METHOD` | an answer ([`querier`]), as protobuf or JSON |
//! | `GET /ready` | `ready` while the store runs |
//!
//! A profile is acknowledged when it is on the disk. Errors are those of the Connect protocol: a status, a code and words.

mod doors;
mod querier;

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, body};
use intake::{Bucket, Limits};
use model::Timestamp;
use store::lake::Lake;
use store::lake::name::Tenant;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use wire::pyroscope::{self as connect, Code, Encoding};

use crate::Error;
use crate::connections::serve_services;
use crate::guard::is_for_us;

/// Requests that are worked on at once; others wait with their bodies unread.
const AT_ONCE: usize = 8;
/// Tenants whose rates are known: with more of them all begin anew.
const MAX_TENANTS: usize = 1 << 12;
/// Bytes of a question.
const MAX_QUESTION_BYTES: usize = 1 << 20;
/// Whose samples they are when tenants are not told apart.
const ONLY_TENANT: &str = "anonymous";
const TENANT: &str = "x-scope-orgid";

/// What the endpoints need.
#[derive(Clone)]
pub struct Profiles(Arc<Inner>);

struct Inner {
    lake: Arc<Lake>,
    limits: Limits,
    are_tenants_told: bool,
    clock: fn() -> Timestamp,
    places: Semaphore,
    /// How much each tenant may send, of [`MAX_TENANTS`] at most.
    buckets: Mutex<HashMap<Tenant, Bucket>>,
}

impl Inner {
    /// Takes so many bytes that a tenant sent, unless it sends too fast.
    fn take(&self, tenant: &Tenant, bytes: usize) -> Result<(), connect::Error> {
        let now = (self.clock)();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_TENANTS && !buckets.contains_key(tenant) {
            buckets.clear();
        }
        let bucket =
            buckets.entry(tenant.clone()).or_insert_with(|| Bucket::new(&self.limits, now));
        let taken = bucket.take(bytes, &self.limits, now);
        taken.map_err(|error| connect::Error::new(Code::ResourceExhausted, error.to_string()))
    }
}

impl std::fmt::Debug for Profiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiles").field("lake", &self.0.lake).finish_non_exhaustive()
    }
}

impl Profiles {
    /// Over blocks, with a clock. `are_tenants_told`: by the field `X-Scope-OrgID`, without which nobody is answered; else all are
    /// one tenant, whatever they say.
    #[must_use]
    pub fn new(
        lake: Arc<Lake>,
        limits: Limits,
        are_tenants_told: bool,
        clock: fn() -> Timestamp,
    ) -> Self {
        let (places, buckets) = (Semaphore::new(AT_ONCE), Mutex::default());
        Self(Arc::new(Inner { lake, limits, are_tenants_told, clock, places, buckets }))
    }

    fn tenant(&self, headers: &HeaderMap) -> Result<Tenant, connect::Error> {
        let name = match headers.get(TENANT).map(HeaderValue::to_str) {
            _ if !self.0.are_tenants_told => ONLY_TENANT,
            Some(Ok(name)) => name,
            Some(Err(_)) | None => {
                let words = "no tenant: the field X-Scope-OrgID says whose profiles they are";
                return Err(connect::Error::new(Code::Unauthenticated, words));
            }
        };
        Tenant::new(name).map_err(|error| connect::Error::invalid(error.to_string()))
    }

    /// Does what costs time on a thread of its own, for a few requests at once.
    async fn work<T: Send + 'static>(
        &self,
        request: Request,
        most: usize,
        work: impl FnOnce(&Inner, Tenant, HeaderMap, &[u8]) -> Result<T, connect::Error>
        + Send
        + 'static,
    ) -> Result<T, connect::Error> {
        // It is never closed.
        let _place = self.0.places.acquire().await;
        let (head, body) = request.into_parts();
        let tenant = self.tenant(&head.headers)?;
        let bytes = bytes(body, most).await?;
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || work(&inner, tenant, head.headers, &bytes));
        done.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a request was not worked on");
            Err(connect::Error::new(Code::Internal, "it could not be worked on"))
        })
    }
}

/// The body of a request.
async fn bytes(body: Body, most: usize) -> Result<body::Bytes, connect::Error> {
    body::to_bytes(body, most).await.map_err(|error| {
        let words = format!("a body of {most} bytes at most is read: {error}");
        connect::Error::new(Code::ResourceExhausted, words)
    })
}

/// Serves a store of profiles on a listener until `shutdown` is ready, then finishes the replies under way.
///
/// `admits` is asked of each connection, with the address it comes from and that it goes to; others are closed without a reply.
/// On a loopback address only requests that name the loopback are answered.
///
/// # Errors
///
/// [`Error::Listener`] when the listener does not know its address.
pub async fn serve(
    listener: TcpListener,
    profiles: Profiles,
    admits: impl Fn(IpAddr, IpAddr) -> bool + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    serve_services(listener, |local, _going| router(&profiles, local), admits, shutdown).await
}

fn router(profiles: &Profiles, local: SocketAddr) -> Router {
    Router::new()
        .route("/push.v1.PusherService/Push", post(doors::push))
        .route("/ingest", post(doors::ingest))
        .route("/v1development/profiles", post(doors::otlp))
        .route("/pyroscope/ingest", post(doors::ingest))
        .route("/querier.v1.QuerierService/{method}", post(querier::answer))
        .route("/ready", get(|| async { "ready\n" }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such path\n") })
        .with_state(profiles.clone())
        .layer(middleware::from_fn_with_state(local, guard))
}

/// Refuses what another site's page may have sent here by a name of its own.
async fn guard(State(local): State<SocketAddr>, request: Request, next: Next) -> Response {
    match is_for_us(local, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// An error as the Connect protocol has it.
struct Failed(connect::Error);

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    }
}

/// How a body is written, by its field.
fn encoding(headers: &HeaderMap) -> Result<Encoding, connect::Error> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default();
    Encoding::of(kind).ok_or_else(|| {
        let words =
            format!("content type {kind:?} is neither application/proto nor application/json");
        connect::Error::invalid(words)
    })
}

/// Whether a body is in gzip; other encodings are refused.
fn is_gzip(headers: &HeaderMap) -> Result<bool, connect::Error> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::to_str) {
        None | Some(Ok("" | "identity")) => Ok(false),
        Some(Ok("gzip")) => Ok(true),
        Some(_) => Err(connect::Error::invalid("a body is plain or in gzip")),
    }
}

/// What of the store's errors the caller may do something about.
fn of_store(error: &store::Error) -> connect::Error {
    let code = match error {
        store::Error::Busy { .. } => Code::ResourceExhausted,
        store::Error::Objects(_) => Code::Unavailable,
        _ => Code::Internal,
    };
    connect::Error::new(code, model::with_causes(error))
}
