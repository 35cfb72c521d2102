//! Where clients bring profiles.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use intake::{ErrorKind, Refused, Taken};
use store::lake::Ticket;
use store::lake::name::Tenant;
use wire::proto::Writer;
use wire::pyroscope::{self as connect, Code, Encoding};

use super::call::{Answer, Call, call};
use super::{Failed, Inner, Kind, Profiles, of_store};

/// The method that takes OTLP profiles.
pub(super) const EXPORT: &str =
    "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

const fn form(encoding: Encoding) -> intake::Encoding {
    match encoding {
        Encoding::Proto => intake::Encoding::Protobuf,
        Encoding::Json => intake::Encoding::Json,
    }
}

/// `push.v1.PusherService/Push`.
pub(super) async fn push(State(profiles): State<Profiles>, request: Request) -> Response {
    let push = |it: &Call<'_>| {
        let (limits, now) = (it.inner.limits.of(it.tenant), (it.inner.clock)());
        let taken = intake::push(it.message, form(it.encoding), limits, now);
        let taken = it.inner.count(it.tenant, it.message, taken)?;
        let taken = taken.map_err(|error| refused(&error))?;
        let stored = Some(keep(it.inner, it.tenant, &taken)?);
        Ok(Answer { message: nothing(it.encoding), stored, refused: refusals(&taken) })
    };
    call(&profiles, Kind::Push, request, push).await
}

/// A message without a field.
fn nothing(encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Proto => Vec::new(),
        Encoding::Json => b"{}".to_vec(),
    }
}

/// `/ingest`, whose statuses are its own.
pub(super) async fn ingest(State(profiles): State<Profiles>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let work = move |inner: &Inner, tenant: &Tenant, headers: &HeaderMap, body: &[u8]| {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let asked =
            intake::Ingest { query: &query, content_type: content_type.unwrap_or_default(), body };
        let taken = intake::ingest(asked, inner.limits.of(tenant), (inner.clock)());
        let taken = match inner.count(tenant, body, taken)? {
            Ok(taken) => taken,
            Err(error) => return Ok(Err((of_ingest(&error), refused(&error)))),
        };
        Ok(Ok((keep(inner, tenant, &taken)?, refusals(&taken))))
    };
    let (stored, refusals) = match profiles.work(Kind::Push, request, work).await {
        Ok(Ok(done)) => done,
        Ok(Err((status, error))) => return (status, Failed(error)).into_response(),
        Err(error) => return failed(error),
    };
    let stored = stored.await.map_err(|error| of_store(&error));
    match stored.and_then(|()| refusals.map_or(Ok(()), Err)) {
        Ok(()) => StatusCode::OK.into_response(),
        Err(error) => failed(error),
    }
}

const fn of_ingest(error: &intake::Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Query => StatusCode::BAD_REQUEST,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// An error by a status that its client sends again for, if that may help.
fn failed(error: connect::Error) -> Response {
    let status = match error.code {
        Code::ResourceExhausted if error.retry_after.is_some() => StatusCode::TOO_MANY_REQUESTS,
        Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
        Code::InvalidArgument => StatusCode::UNPROCESSABLE_ENTITY,
        Code::DeadlineExceeded | Code::Canceled => StatusCode::REQUEST_TIMEOUT,
        _ => return Failed(error).into_response(),
    };
    (status, Failed(error)).into_response()
}

/// OTLP over HTTP: `/v1development/profiles`.
pub(super) async fn otlp(State(profiles): State<Profiles>, request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let (encoding, kind) = match kind {
        "application/x-protobuf" | "application/protobuf" => {
            (Encoding::Proto, "application/x-protobuf")
        }
        "application/json" => (Encoding::Json, "application/json"),
        _ => return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response(),
    };
    let work = move |inner: &Inner, tenant: &Tenant, _: &HeaderMap, body: &[u8]| {
        exported(inner, tenant, body, encoding)
    };
    let done = async {
        let (stored, message) = profiles.work(Kind::Push, request, work).await?;
        stored.await.map_err(|error| of_store(&error))?;
        Ok::<_, connect::Error>(message)
    };
    match done.await {
        Ok(message) => ([(header::CONTENT_TYPE, kind)], message).into_response(),
        Err(error) if error.code == Code::InvalidArgument => Failed(error).into_response(),
        Err(error) => failed(error),
    }
}

/// OTLP as a call, which is how most of its senders come.
pub(super) async fn export(State(profiles): State<Profiles>, request: Request) -> Response {
    let export = |it: &Call<'_>| {
        let (stored, message) = exported(it.inner, it.tenant, it.message, it.encoding)?;
        Ok(Answer { message, stored: Some(stored), refused: None })
    };
    call(&profiles, Kind::Push, request, export).await
}

/// Takes OTLP profiles. Those that are refused are told as a partial success, after which they are not sent again.
fn exported(
    inner: &Inner,
    tenant: &Tenant,
    body: &[u8],
    encoding: Encoding,
) -> Result<(Ticket, Vec<u8>), connect::Error> {
    let taken = intake::otlp(body, form(encoding), inner.limits.of(tenant), (inner.clock)());
    let taken = inner.count(tenant, body, taken)?.map_err(|error| refused(&error))?;
    let stored = keep(inner, tenant, &taken)?;
    let all: Vec<_> = taken.profiles.iter().filter_map(|it| it.as_ref().err()).collect();
    let why = all.first().map(|first| words(first)).unwrap_or_default();
    Ok((stored, export_response(encoding, all.len() as u64, &why)))
}

/// `ExportProfilesServiceResponse`: how many profiles were refused, and why the first one was.
fn export_response(encoding: Encoding, count: u64, why: &str) -> Vec<u8> {
    match encoding {
        _ if count == 0 => nothing(encoding),
        Encoding::Proto => {
            let mut out = Writer::default();
            out.message(1, |out| {
                out.uint(1, count);
                out.text(2, why);
            });
            out.bytes
        }
        Encoding::Json => {
            let told =
                serde_json::json!({ "rejectedProfiles": count.to_string(), "errorMessage": why });
            serde_json::json!({ "partialSuccess": told }).to_string().into_bytes()
        }
    }
}

/// Says when what was taken is on the disk.
fn keep(inner: &Inner, tenant: &Tenant, taken: &Taken) -> Result<Ticket, connect::Error> {
    inner.lake.push(tenant, &taken.batch).map_err(|error| of_store(&error))
}

/// Refused profiles that are told of a request.
const MAX_TOLD: usize = 8;

/// Profiles that were refused are told together, though the others are stored.
fn refusals(taken: &Taken) -> Option<connect::Error> {
    let all: Vec<_> = taken.profiles.iter().filter_map(|it| it.as_ref().err()).collect();
    let code = refused(&all.first()?.error).code;
    let mut told: Vec<String> = all.iter().take(MAX_TOLD).map(|it| words(it)).collect();
    // In gRPC they are a field of the head, of which clients take some kilobytes.
    if let Some(more @ 1..) = all.len().checked_sub(MAX_TOLD) {
        told.push(format!("and {more} more"));
    }
    Some(connect::Error::new(code, told.join("; ")))
}

fn words(refused: &Refused) -> String {
    format!("{}: {}", refused.series, refused.error)
}

fn refused(error: &intake::Error) -> connect::Error {
    let code = match error.kind() {
        ErrorKind::TooLarge => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    connect::Error::new(code, error.to_string())
}
