//! Jobs of merging for workers, on a port of their own.
//!
//! | path | body | reply |
//! |---|---|---|
//! | `POST /compaction/v1/take` | nothing | 200 and a [`Given`], or 204 when there is nothing to do |
//! | `POST /compaction/v1/renew` | a [`Held`] | 200, or 409 when the lease has ended |
//! | `POST /compaction/v1/finish` | a [`Finished`] | 200, or 409 and why the result is not taken |
//! | `POST /compaction/v1/give-back` | a [`GivenBack`] | 200 |
//!
//! Bodies are JSON. What is posted here becomes part of the store: the port is for workers only.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use model::Timestamp;
use serde::{Deserialize, Serialize};
use store::lake::{Done, Job, LEASE, Lake, Token};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Error;
use crate::connections::{Port, serve_services};
use crate::guard::{Refusal, comes_from_elsewhere, is_for_us};

/// Bytes of a result: sums of as many series as there may be.
const MAX_RESULT_BYTES: usize = 64 << 20;
/// Bytes of a job; a larger one is left to the store's own process. What clients read of an answer is a little more.
const MAX_JOB_BYTES: usize = 3 << 20;
/// Bytes of any other request.
const MAX_BYTES: usize = 64 << 10;
/// Requests that are worked on at once; others wait, with their bodies unread.
const AT_ONCE: usize = 4;
/// A result has so long to come.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// A job, and the lease on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// Names the lease.
    pub lease: String,
    /// It ends after so many milliseconds unless it is renewed.
    pub lease_ms: u64,
    /// What is to be done.
    pub job: Job,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Its name.
    pub lease: String,
}

/// A job is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// The lease on it.
    pub lease: String,
    /// What came of it.
    pub done: Done,
}

/// A job is not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenBack {
    /// The lease on it.
    pub lease: String,
    /// Why it could not be done; nothing when the worker ends.
    pub why: Option<String>,
}

#[derive(Clone)]
struct Jobs {
    lake: Arc<Lake>,
    clock: fn() -> Timestamp,
    places: Arc<Semaphore>,
}

/// Gives jobs of a store to workers until `shutdown` is ready. `admits` is asked as by [`super::serve`].
///
/// # Errors
///
/// [`Error::Listener`] when the listener does not know its address.
pub async fn serve_workers(
    listener: TcpListener,
    lake: Arc<Lake>,
    clock: fn() -> Timestamp,
    admits: impl Fn(IpAddr, IpAddr) -> bool + Send,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let jobs = Jobs { lake, clock, places: Arc::new(Semaphore::new(AT_ONCE)) };
    let services = |local, _going: &_| router(&jobs, local);
    serve_services(listener, Port::STORE, services, admits, shutdown).await
}

fn router(jobs: &Jobs, local: SocketAddr) -> Router {
    Router::new()
        .route("/compaction/v1/take", post(take))
        .route("/compaction/v1/renew", post(renew))
        .route("/compaction/v1/finish", post(finish))
        .route("/compaction/v1/give-back", post(give_back))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such path\n") })
        .with_state(jobs.clone())
        .layer(DefaultBodyLimit::max(MAX_BYTES))
        .layer(middleware::from_fn_with_state(local, guard))
}

async fn guard(State(local): State<SocketAddr>, request: Request, next: Next) -> Response {
    if comes_from_elsewhere(request.headers()) {
        return Refusal::Site.into_response();
    }
    match is_for_us(local, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// An answer that is no success, in one line.
type Refused = (StatusCode, String);

impl Jobs {
    /// It is never closed.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Does what may wait for the disk or the catalogue.
    async fn work<T: Send + 'static>(
        &self,
        place: Option<OwnedSemaphorePermit>,
        work: impl FnOnce(&Lake, Timestamp) -> Result<T, Refused> + Send + 'static,
    ) -> Result<T, Refused> {
        let Self { lake, clock, .. } = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&lake, clock());
            drop(place);
            done
        });
        let ended = |_panic| (StatusCode::INTERNAL_SERVER_ERROR, "it ended early\n".to_owned());
        done.await.unwrap_or_else(|panic| Err(ended(panic)))
    }
}

fn token(lease: &str) -> Result<Token, Refused> {
    lease.parse().map_err(|_error| (StatusCode::BAD_REQUEST, format!("{lease:?} names no lease\n")))
}

fn late() -> Refused {
    (StatusCode::CONFLICT, "the lease on the job has ended\n".to_owned())
}

async fn take(State(jobs): State<Jobs>) -> Result<Response, Refused> {
    jobs.work(jobs.place().await, |lake, now| {
        let unavailable =
            |error| (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", model::with_causes(&error)));
        let Some((token, job)) = lake.take(now).map_err(unavailable)? else {
            return Ok(StatusCode::NO_CONTENT.into_response());
        };
        let lease_ms = LEASE.get() / 1_000_000;
        let given = Given { lease: token.to_string(), lease_ms, job };
        match serde_json::to_vec(&given) {
            Ok(body) if body.len() <= MAX_JOB_BYTES => {
                Ok(([("content-type", "application/json")], body).into_response())
            }
            _ => {
                lake.give_back(token, true, now);
                Ok(StatusCode::NO_CONTENT.into_response())
            }
        }
    })
    .await
}

async fn renew(State(jobs): State<Jobs>, Json(held): Json<Held>) -> Result<(), Refused> {
    let token = token(&held.lease)?;
    // It waits for nobody: whoever works is not to lose its lease meanwhile.
    if jobs.lake.renew(token, (jobs.clock)()) { Ok(()) } else { Err(late()) }
}

async fn finish(State(jobs): State<Jobs>, request: Request) -> Result<(), Refused> {
    let place = jobs.place().await;
    let body = axum::body::to_bytes(request.into_body(), MAX_RESULT_BYTES);
    let body = tokio::time::timeout(BODY_PATIENCE, body).await;
    let unread =
        |why: String| (StatusCode::BAD_REQUEST, format!("a result that did not come: {why}\n"));
    let body = body.map_err(|elapsed| unread(elapsed.to_string()))?;
    let body = body.map_err(|error| unread(error.to_string()))?;
    let not_understood = |error| (StatusCode::UNPROCESSABLE_ENTITY, format!("a result: {error}\n"));
    let finished: Finished = serde_json::from_slice(&body).map_err(not_understood)?;
    drop(body);
    let token = token(&finished.lease)?;
    jobs.work(place, move |lake, now| {
        let refused = |error| (StatusCode::CONFLICT, format!("{}\n", model::with_causes(&error)));
        lake.finish(token, &finished.done, now).map_err(refused)
    })
    .await
}

async fn give_back(State(jobs): State<Jobs>, Json(given): Json<GivenBack>) -> Result<(), Refused> {
    let token = token(&given.lease)?;
    if let Some(why) = &given.why {
        tracing::warn!(why, "a worker could not do a merge");
    }
    jobs.lake.give_back(token, given.why.is_some(), (jobs.clock)());
    Ok(())
}
