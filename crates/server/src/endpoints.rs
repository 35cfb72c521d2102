//! The paths and their replies.
//!
//! | path | reply |
//! |---|---|
//! | `/` | the page |
//! | `/api/v1/phases` | the answer of `analyze phases` |
//! | `/api/v1/syscalls` | the answer of `analyze syscalls` |
//! | `/api/v1/status` | the state of the recording |
//! | `/api/v1/live/sessions` | the sessions that are being recorded, when the server has them |
//! | `/api/v1/live/tail` | events of a session as they come: `text/event-stream` |
//! | `/healthz` | `ok` while the server runs |

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;

use crate::guard::guard;
use crate::live::endpoints::{Live, routes};
use crate::{AnswerSource, Snapshot, page};

/// The service for a connection that arrived at `local`.
pub(crate) fn router(answers: Answers, live: Option<Live>, local: SocketAddr) -> Router {
    let live = live.map_or_else(Router::new, routes);
    Router::new()
        .route("/", get(|| async { Html(page::served()) }))
        .route("/api/v1/phases", get(phases))
        .route("/api/v1/syscalls", get(syscalls))
        .route("/api/v1/status", get(status))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such path\n") })
        .with_state(answers)
        .merge(live)
        .layer(middleware::from_fn_with_state(local, guard))
}

/// The source and the name of this run of the server.
#[derive(Clone)]
pub(crate) struct Answers {
    source: Arc<dyn AnswerSource>,
    /// Part of every entity tag: versions start again with each run, what a client has kept from an earlier one must not match.
    run: u64,
}

impl Answers {
    pub(crate) fn new(source: Arc<dyn AnswerSource>) -> Self {
        Self { source, run: RandomState::new().hash_one(()) }
    }

    pub(crate) const fn run(&self) -> u64 {
        self.run
    }
}

async fn phases(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    reply(answers.source.phases_json(), answers.run, &headers)
}

async fn syscalls(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    reply(answers.source.syscalls_json(), answers.run, &headers)
}

async fn status(State(answers): State<Answers>, headers: HeaderMap) -> Response {
    reply(answers.source.status_json(), answers.run, &headers)
}

/// The document, or 304 when the client says that it has this version.
pub(crate) fn reply(snapshot: Snapshot, run: u64, headers: &HeaderMap) -> Response {
    let tag = format!("\"{run:016x}-{}\"", snapshot.version);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| lists(tags, &tag));
    let tag = [(header::ETAG, tag)];
    if known {
        return (StatusCode::NOT_MODIFIED, tag).into_response();
    }
    (tag, [(header::CONTENT_TYPE, "application/json")], snapshot.bytes).into_response()
}

/// Whether a list of entity tags (RFC 9110, section 13.1.2) holds this one. Ours contain no comma.
fn lists(tags: &HeaderValue, tag: &str) -> bool {
    let mut tags = tags.to_str().unwrap_or("").split(',').map(str::trim);
    tags.any(|listed| listed == "*" || listed.strip_prefix("W/").unwrap_or(listed) == tag)
}
