//! Where clients bring profiles.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use intake::{ErrorKind, Refused, Taken};
use store::lake::name::Tenant;
use wire::proto::Writer;
use wire::pyroscope::{self as connect, Code, Encoding};

use super::{Failed, Inner, Profiles, encoding, of_store};

/// `push.v1.PusherService/Push`.
pub(super) async fn push(State(profiles): State<Profiles>, request: Request) -> Response {
    let most = profiles.0.limits.body_bytes;
    let done = profiles.work(request, most, |inner, tenant, headers, body| {
        let encoding = encoding(&headers)?;
        inner.take(&tenant, body.len())?;
        // In gzip or not: its first bytes say it.
        let form = match encoding {
            Encoding::Proto => intake::Encoding::Protobuf,
            Encoding::Json => intake::Encoding::Json,
        };
        let taken = intake::push(body, form, &inner.limits, (inner.clock)());
        let taken = taken.map_err(|error| refused(&error))?;
        store(inner, &tenant, &taken)?;
        Ok(encoding)
    });
    match done.await {
        // An empty message.
        Ok(Encoding::Proto) => {
            ([(header::CONTENT_TYPE, Encoding::Proto.content_type())], "").into_response()
        }
        Ok(Encoding::Json) => {
            ([(header::CONTENT_TYPE, Encoding::Json.content_type())], "{}").into_response()
        }
        Err(error) => Failed(error).into_response(),
    }
}

/// `/ingest`, whose statuses are its own.
pub(super) async fn ingest(State(profiles): State<Profiles>, request: Request) -> Response {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let most = profiles.0.limits.body_bytes;
    let done = profiles.work(request, most, move |inner, tenant, headers, body| {
        inner.take(&tenant, body.len())?;
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let asked =
            intake::Ingest { query: &query, content_type: content_type.unwrap_or_default(), body };
        let taken = match intake::ingest(asked, &inner.limits, (inner.clock)()) {
            Ok(taken) => taken,
            Err(error) => return Ok(Err((of_ingest(&error), refused(&error)))),
        };
        let stored = store(inner, &tenant, &taken);
        Ok(stored.map_err(|error| (of_code(error.code), error)))
    });
    match done.await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err((status, error))) => (status, Failed(error)).into_response(),
        Err(error) => Failed(error).into_response(),
    }
}

const fn of_ingest(error: &intake::Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Query => StatusCode::BAD_REQUEST,
        ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

const fn of_code(code: Code) -> StatusCode {
    match code {
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::InvalidArgument => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// OTLP over HTTP: `/v1development/profiles`. Profiles that are refused are told as a partial success, after which they are not sent again.
pub(super) async fn otlp(State(profiles): State<Profiles>, request: Request) -> Response {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    let form = match kind {
        "application/x-protobuf" | "application/protobuf" => intake::Encoding::Protobuf,
        "application/json" => intake::Encoding::Json,
        _ => return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response(),
    };
    let most = profiles.0.limits.body_bytes;
    let done = profiles.work(request, most, move |inner, tenant, _headers, body| {
        inner.take(&tenant, body.len())?;
        let taken = intake::otlp(body, form, &inner.limits, (inner.clock)());
        let taken = taken.map_err(|error| refused(&error))?;
        keep(inner, &tenant, &taken)?;
        let all: Vec<_> = taken.profiles.iter().filter_map(|it| it.as_ref().err()).collect();
        Ok((all.len() as u64, all.first().map(|first| words(first)).unwrap_or_default()))
    });
    match done.await {
        Ok(rejected) => exported(form, rejected),
        Err(error) => Failed(error).into_response(),
    }
}

/// `ExportProfilesServiceResponse`: how many profiles were refused, and why the first one was.
fn exported(form: intake::Encoding, (count, why): (u64, String)) -> Response {
    match form {
        intake::Encoding::Protobuf => {
            let mut out = Writer::default();
            if count > 0 {
                out.message(1, |out| {
                    out.uint(1, count);
                    out.text(2, &why);
                });
            }
            ([(header::CONTENT_TYPE, "application/x-protobuf")], out.bytes).into_response()
        }
        intake::Encoding::Json if count == 0 => Json(serde_json::json!({})).into_response(),
        intake::Encoding::Json => {
            let told =
                serde_json::json!({ "rejectedProfiles": count.to_string(), "errorMessage": why });
            Json(serde_json::json!({ "partialSuccess": told })).into_response()
        }
    }
}

/// Has what was taken on the disk.
fn keep(inner: &Inner, tenant: &Tenant, taken: &Taken) -> Result<(), connect::Error> {
    let ticket = inner.lake.push(tenant, &taken.batch).map_err(|error| of_store(&error))?;
    ticket.wait().map_err(|error| of_store(&error))
}

/// The same; profiles that were refused are told together, though the others are stored.
fn store(inner: &Inner, tenant: &Tenant, taken: &Taken) -> Result<(), connect::Error> {
    keep(inner, tenant, taken)?;
    let all: Vec<_> = taken.profiles.iter().filter_map(|it| it.as_ref().err()).collect();
    let Some(first) = all.first() else { return Ok(()) };
    let all: Vec<String> = all.iter().map(|it| words(it)).collect();
    Err(connect::Error::new(refused(&first.error).code, all.join("; ")))
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
