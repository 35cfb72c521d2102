//! A store of profiles over HTTP: doors for its clients, and Pyroscope's querier.
//!
//! | path | reply |
//! |---|---|
//! | `POST /push.v1.PusherService/Push` | takes profiles in pprof ([`call`]) |
//! | `POST /opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export` | takes OTLP profiles ([`call`]) |
//! | `POST /v1development/profiles` | takes OTLP profiles, as protobuf or JSON |
//! | `POST /ingest` | takes a profile in one of many formats |
//! | `POST /querier.v1.QuerierService/METHOD` | an answer ([`querier`], [`call`]) |
//! | `POST /settings.v1.RecordingRulesService/METHOD`, `/settings.v1.SettingsService/METHOD`, `/api/rules/preview` | rules for metrics ([`settings`]) |
//! | `GET /pyroscope/render`, `/pyroscope/render-diff` | flame graphs as JSON ([`render`]) |
//! | `GET /` | the page, which asks the querier and shows what it says |
//! | `GET /flame.svg` | a flame graph or a difference ([`svg`]) as a document that zooms and searches by itself |
//! | `GET /metrics` | what the store says of itself, as Prometheus reads it |
//! | `GET /ready` | `ready` while the store runs |
//!
//! What is called ([`call`]) comes by Connect, gRPC or gRPC-Web, as protobuf or JSON. A profile is acknowledged when it is on the disk.
//! Errors have the codes of these protocols, and words.

mod body;
mod call;
mod doors;
mod left_out;
mod page;
mod querier;
mod render;
mod settings;
mod svg;
pub mod work;

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use export::Prefix;
use intake::{Bucket, Limits, Taken};
use model::Timestamp;
use store::lake::Lake;
use store::lake::name::Tenant;
use store::lake::tenants::PerTenant;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::pyroscope::grpc::FRAME_HEAD;
use wire::pyroscope::{self as connect, Code};

use self::body::Bodies;
pub use self::left_out::{LeftOut, LeftOuts};
use crate::Error;
use crate::connections::{Port, serve_services};
use crate::guard::{Refusal, comes_from_elsewhere, is_for_us};

/// Pushes that are worked on at once, and questions; others wait with their bodies in memory.
const AT_ONCE: usize = 8;
/// Of one tenant, when tenants are told apart: the others find places however many requests it sends.
const AT_ONCE_OF_TENANT: usize = AT_ONCE / 2;
/// Tenants that are known: with more of them all begin anew.
const MAX_TENANTS: usize = 1 << 12;
/// Bytes of a question.
const MAX_QUESTION_BYTES: usize = 1 << 20;
/// Whose samples they are when tenants are not told apart.
pub const ONLY_TENANT: &str = "anonymous";
const TENANT: &str = "x-scope-orgid";
/// When it is tried again what the disk or the bucket did not take.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What the endpoints need.
#[derive(Clone)]
pub struct Profiles(Arc<Inner>);

struct Inner {
    lake: Arc<Lake>,
    limits: PerTenant<Limits>,
    are_tenants_told: bool,
    clock: fn() -> Timestamp,
    bodies: Bodies,
    places: Places,
    /// Of [`MAX_TENANTS`] at most.
    tenants: Mutex<HashMap<Tenant, OfTenant>>,
    /// What came and is not stored.
    left_out: Mutex<LeftOuts>,
    metrics: OnceLock<Metrics>,
    prefix: OnceLock<Prefix>,
}

/// Gives metrics as text.
type Metrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Push,
    Question,
}

/// Where requests are worked on.
#[derive(Debug, Clone)]
struct Places {
    pushes: Arc<Semaphore>,
    questions: Arc<Semaphore>,
}

impl Places {
    fn new(each: usize) -> Self {
        Self { pushes: Arc::new(Semaphore::new(each)), questions: Arc::new(Semaphore::new(each)) }
    }

    async fn take(&self, kind: Kind) -> Option<OwnedSemaphorePermit> {
        let places = match kind {
            Kind::Push => &self.pushes,
            Kind::Question => &self.questions,
        };
        // They are never closed.
        Arc::clone(places).acquire_owned().await.ok()
    }
}

/// What is known of a tenant.
#[derive(Debug)]
struct OfTenant {
    /// How much it may send.
    bucket: Bucket,
    places: Places,
    bodies: Bodies,
}

impl Inner {
    fn prefix(&self) -> Prefix {
        self.prefix.get().cloned().unwrap_or_default()
    }

    fn of_tenant<T>(&self, tenant: &Tenant, of: impl FnOnce(&mut OfTenant, Timestamp) -> T) -> T {
        let now = (self.clock)();
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if tenants.len() >= MAX_TENANTS && !tenants.contains_key(tenant) {
            tenants.clear();
        }
        let (each, bodies) = match self.are_tenants_told {
            true => (AT_ONCE_OF_TENANT, self.bodies.part()),
            false => (AT_ONCE, self.bodies.clone()),
        };
        let known = tenants.entry(tenant.clone()).or_insert_with(|| OfTenant {
            bucket: Bucket::new(self.limits.of(tenant), now),
            places: Places::new(each),
            bodies,
        });
        of(known, now)
    }

    /// How long the body of a request may be.
    fn most_bytes(&self, tenant: &Tenant, kind: Kind) -> usize {
        match kind {
            Kind::Push => self.limits.of(tenant).body_bytes,
            Kind::Question => MAX_QUESTION_BYTES,
        }
    }

    /// Takes so many bytes that a tenant sent, unless it sends too fast.
    fn take(&self, tenant: &Tenant, bytes: usize) -> Result<(), connect::Error> {
        let limits = self.limits.of(tenant);
        let taken = self.of_tenant(tenant, |of, now| of.bucket.take(bytes, limits, now));
        taken.map_err(|error| {
            self.left_out().refuse(tenant, &error);
            let after = match error {
                intake::Error::Rate { after } => Duration::from_nanos(after.get()),
                _ => AGAIN_AFTER,
            };
            connect::Error::new(Code::ResourceExhausted, error.to_string()).again_after(after)
        })
    }

    fn left_out(&self) -> MutexGuard<'_, LeftOuts> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what came of a request's body: its bytes, unpacked, unless the tenant sends too fast, and what of it is not stored.
    fn count(
        &self,
        tenant: &Tenant,
        body: &[u8],
        taken: Result<Taken, intake::Error>,
    ) -> Result<Result<Taken, intake::Error>, connect::Error> {
        let bytes = taken.as_ref().map_or(body.len(), |taken| taken.bytes);
        self.take(tenant, bytes)?;
        match &taken {
            Ok(taken) => self.left_out().add(tenant, taken),
            Err(error) => self.left_out().refuse(tenant, error),
        }
        Ok(taken)
    }

    /// A place, first among the tenant's requests and then among all.
    async fn place(&self, tenant: &Tenant, kind: Kind) -> [Option<OwnedSemaphorePermit>; 2] {
        let own = self.of_tenant(tenant, |of, _now| of.places.clone());
        [own.take(kind).await, self.places.take(kind).await]
    }
}

impl std::fmt::Debug for Profiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiles").field("lake", &self.0.lake).finish_non_exhaustive()
    }
}

impl Profiles {
    /// Over blocks, with what each tenant may send and a clock. `are_tenants_told`: by the field `X-Scope-OrgID`, without which nobody is answered; else all are
    /// one tenant, whatever they say.
    #[must_use]
    pub fn new(
        lake: Arc<Lake>,
        limits: impl Into<PerTenant<Limits>>,
        are_tenants_told: bool,
        clock: fn() -> Timestamp,
    ) -> Self {
        let (bodies, places, tenants) = (Bodies::new(), Places::new(AT_ONCE), Mutex::default());
        let metrics = OnceLock::new();
        let prefix = OnceLock::new();
        Self(Arc::new(Inner {
            lake,
            limits: limits.into(),
            are_tenants_told,
            clock,
            bodies,
            places,
            tenants,
            left_out: Mutex::default(),
            metrics,
            prefix,
        }))
    }

    /// With metrics, as Prometheus' text format 0.0.4 has them.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn Fn() -> String + Send + Sync>) -> Self {
        self.0.metrics.get_or_init(|| metrics);
        self
    }

    /// What came since the start and is not stored.
    #[must_use]
    pub fn left_out(&self) -> LeftOuts {
        self.0.left_out().clone()
    }

    /// With a prefix of metrics that rules make, other than the default one.
    #[must_use]
    pub fn with_metric_prefix(self, prefix: Prefix) -> Self {
        self.0.prefix.get_or_init(|| prefix);
        self
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
        kind: Kind,
        request: Request,
        work: impl FnOnce(&Inner, &Tenant, &HeaderMap, &[u8]) -> Result<T, connect::Error>
        + Send
        + 'static,
    ) -> Result<T, connect::Error> {
        let (head, body) = request.into_parts();
        let tenant = self.tenant(&head.headers)?;
        if kind == Kind::Push {
            // Who sends too much is told so before it is read.
            self.0.take(&tenant, 0)?;
        }
        let bodies = self.0.of_tenant(&tenant, |of, _now| of.bodies.clone());
        let most = self.0.most_bytes(&tenant, kind).saturating_add(FRAME_HEAD);
        let body = bodies.read(body, most).await.inspect_err(|error| {
            if kind == Kind::Push && error.code == Code::ResourceExhausted {
                let error = intake::Error::TooMany { what: "bytes of a body", limit: most };
                self.0.left_out().refuse(&tenant, &error);
            }
        })?;
        let place = self.0.place(&tenant, kind).await;
        let inner = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&inner, &tenant, &head.headers, &body.bytes);
            drop((body, place));
            done
        });
        done.await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "a request was not worked on");
            Err(connect::Error::new(Code::Internal, "it could not be worked on"))
        })
    }
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
    let services = |local, _going: &_| router(&profiles, local);
    serve_services(listener, Port::STORE, services, admits, shutdown).await
}

fn router(profiles: &Profiles, local: SocketAddr) -> Router {
    Router::new()
        .route("/push.v1.PusherService/Push", post(doors::push))
        .route(doors::EXPORT, post(doors::export))
        .route("/v1development/profiles", post(doors::otlp))
        .route("/ingest", post(doors::ingest))
        .route("/pyroscope/ingest", post(doors::ingest))
        .route("/querier.v1.QuerierService/{method}", post(querier::answer))
        .route("/settings.v1.RecordingRulesService/{method}", post(settings::rules))
        .route("/settings.v1.SettingsService/{method}", post(settings::settings))
        .route("/api/rules/preview", post(settings::preview))
        .route("/pyroscope/render", get(render::render))
        .route("/pyroscope/render-diff", get(render::render_diff))
        .route("/", get(page::page))
        .route("/flame.svg", get(svg::answer))
        .route("/metrics", get(metrics))
        .route("/ready", get(|| async { "ready\n" }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such path\n") })
        .with_state(profiles.clone())
        .layer(middleware::from_fn_with_state(local, guard))
}

async fn metrics(State(profiles): State<Profiles>) -> Response {
    match profiles.0.metrics.get() {
        Some(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text())
                .into_response()
        }
        None => (StatusCode::NOT_FOUND, "nothing is told here\n").into_response(),
    }
}

/// Refuses what another site's page may have sent here, by a name of its own or without waiting for leave. A link to the page itself may stand anywhere.
async fn guard(State(local): State<SocketAddr>, request: Request, next: Next) -> Response {
    if request.uri().path() != "/" && comes_from_elsewhere(request.headers()) {
        return Refusal::Site.into_response();
    }
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
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if let Some(after) = self.0.retry_after {
            // Whole seconds, of which one too many is better than one too few.
            let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0));
            response.headers_mut().insert(header::RETRY_AFTER, seconds.max(1).into());
        }
        response
    }
}

/// What of the store's errors the caller may do something about.
fn of_store(error: &store::Error) -> connect::Error {
    let code = match error {
        store::Error::Busy { .. } => Code::ResourceExhausted,
        // They go well again, with another owner or another answer of the database at the latest.
        store::Error::Objects(_) | store::Error::Unsettled | store::Error::Catalogue(_) => {
            Code::Unavailable
        }
        _ => Code::Internal,
    };
    let told = connect::Error::new(code, model::with_causes(error));
    if code == Code::Internal { told } else { told.again_after(AGAIN_AFTER) }
}
