//! The paths of the live view.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query as Asked, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use tokio::sync::{Semaphore, watch};

use super::queue::{Going, TailReader, tail};
use super::request::Query;
use super::{LiveSource, MAX_TAILS, Refusal, TailRequest};
use crate::endpoints::reply;

/// The source and the places of those who follow it.
#[derive(Clone)]
pub(crate) struct Live {
    source: Arc<dyn LiveSource>,
    places: Arc<Semaphore>,
    run: u64,
    /// Replies of this connection that go on by themselves.
    going: Arc<AtomicUsize>,
    stop: watch::Receiver<bool>,
}

impl Live {
    pub(crate) fn new(source: Arc<dyn LiveSource>, run: u64, stop: watch::Receiver<bool>) -> Self {
        let places = Arc::new(Semaphore::new(MAX_TAILS));
        Self { source, places, run, going: Arc::default(), stop }
    }

    /// For another connection.
    pub(crate) fn on(&self, going: &Arc<AtomicUsize>) -> Self {
        Self { going: Arc::clone(going), ..self.clone() }
    }
}

/// The routes of the live view.
pub(crate) fn routes(live: Live) -> Router {
    Router::new()
        .route("/api/v1/live/sessions", get(sessions))
        .route("/api/v1/live/tail", get(follow))
        .with_state(live)
}

async fn sessions(State(live): State<Live>, headers: HeaderMap) -> Response {
    reply(live.source.sessions_json(), live.run, &headers)
}

async fn follow(State(live): State<Live>, asked: Result<Asked<Query>, QueryRejection>) -> Response {
    let refused = |status: StatusCode, why: &dyn std::fmt::Display| {
        (status, format!("{why}\n")).into_response()
    };
    let request = match asked {
        Ok(Asked(query)) => TailRequest::try_from(query),
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.body_text()),
    };
    let request = match request {
        Ok(request) => request,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error),
    };
    let Ok(place) = Arc::clone(&live.places).try_acquire_owned() else {
        let why = format!("{MAX_TAILS} pages follow sessions already; close one of them");
        return refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    };
    let (sender, reader) = tail(place, Going::new(&live.going));
    match live.source.follow(request, sender) {
        Ok(()) => events(reader, live.stop),
        Err(refusal) => {
            let status = match refusal {
                Refusal::Condition { .. } => StatusCode::BAD_REQUEST,
                Refusal::Threads => StatusCode::SERVICE_UNAVAILABLE,
            };
            refused(status, &refusal)
        }
    }
}

/// The reply that goes on until the tail ends, or the server does.
fn events(reader: TailReader, stop: watch::Receiver<bool>) -> Response {
    let messages = stream::unfold((reader, stop), |(mut reader, mut stop)| async move {
        let message = tokio::select! {
            message = reader.next_paced() => message?,
            _ = stop.wait_for(|stop| *stop) => return None,
        };
        let event = Event::default().event(message.kind).data(message.data);
        Some((Ok::<_, Infallible>(event), (reader, stop)))
    });
    Sse::new(messages).keep_alive(KeepAlive::default()).into_response()
}
