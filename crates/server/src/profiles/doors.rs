//! Where clients bring profiles.

use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use intake::{ErrorKind, Taken};
use store::lake::name::Tenant;
use wire::pyroscope::{self as connect, Code, Encoding};

use super::{Failed, Inner, Profiles, encoding, of_store};

/// `push.v1.PusherService/Push`.
pub(super) async fn push(State(profiles): State<Profiles>, request: Request) -> Response {
    let most = profiles.0.limits.body_bytes;
    let done = profiles.work(request, most, |inner, tenant, headers, body| {
        let encoding = encoding(&headers)?;
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

/// Has what was taken on the disk. Profiles that were refused are told together, though the others are stored.
fn store(inner: &Inner, tenant: &Tenant, taken: &Taken) -> Result<(), connect::Error> {
    let ticket = inner.lake.push(tenant, &taken.batch).map_err(|error| of_store(&error))?;
    ticket.wait().map_err(|error| of_store(&error))?;
    let all: Vec<_> = taken.profiles.iter().filter_map(|it| it.as_ref().err()).collect();
    let Some(first) = all.first() else { return Ok(()) };
    let words: Vec<String> = all.iter().map(|it| format!("{}: {}", it.series, it.error)).collect();
    Err(connect::Error::new(refused(&first.error).code, words.join("; ")))
}

fn refused(error: &intake::Error) -> connect::Error {
    let code = match error.kind() {
        ErrorKind::TooLarge => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    connect::Error::new(code, error.to_string())
}
