//! Unary calls of the Connect protocol: a bare message in, a bare message or an error in JSON out.

use std::time::Duration;

use prost::Message;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::json;

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/proto`.
    Proto,
    /// `application/json`.
    Json,
}

impl Encoding {
    /// By the header `Content-Type`, whose parameters do not count.
    #[must_use]
    pub fn of(content_type: &str) -> Option<Self> {
        let name = content_type.split(';').next().unwrap_or_default().trim();
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("application/proto") || is("application/protobuf") {
            Some(Self::Proto)
        } else {
            is("application/json").then_some(Self::Json)
        }
    }

    /// The header of an answer.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Proto => "application/proto",
            Self::Json => "application/json",
        }
    }
}

/// Why there is no answer. Its JSON is the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What the caller may do about it.
    pub code: Code,
    /// What it is, in words.
    #[serde(default)]
    pub message: String,
    /// When the same may be tried again, if that is known: `Retry-After` of an answer, or gRPC's `RetryInfo`.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl Error {
    /// An error of a code.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None }
    }

    /// The same may be tried again after a while.
    #[must_use]
    pub fn again_after(self, after: Duration) -> Self {
        Self { retry_after: Some(after), ..self }
    }

    /// The request cannot be answered as it is.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }
}

macro_rules! codes {
    ($($name:ident $text:literal $grpc:literal $status:literal,)*) => {
        /// Codes of errors, those of gRPC.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[expect(missing_docs, reason = "their names are gRPC's")]
        pub enum Code {
            $(#[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// All.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As it stands in JSON.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The number in the trailer `grpc-status`.
            #[must_use]
            pub const fn grpc(self) -> u8 {
                match self { $(Self::$name => $grpc,)* }
            }

            /// The status of the HTTP answer, as Connect's specification has it ("Error codes").
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }
        }
    };
}

codes! {
    Canceled "canceled" 1 499,
    Unknown "unknown" 2 500,
    InvalidArgument "invalid_argument" 3 400,
    DeadlineExceeded "deadline_exceeded" 4 504,
    NotFound "not_found" 5 404,
    AlreadyExists "already_exists" 6 409,
    PermissionDenied "permission_denied" 7 403,
    ResourceExhausted "resource_exhausted" 8 429,
    FailedPrecondition "failed_precondition" 9 400,
    Aborted "aborted" 10 409,
    OutOfRange "out_of_range" 11 400,
    Unimplemented "unimplemented" 12 501,
    Internal "internal" 13 500,
    Unavailable "unavailable" 14 503,
    DataLoss "data_loss" 15 500,
    Unauthenticated "unauthenticated" 16 401,
}

/// A message of a body, which the caller has bounded.
///
/// # Errors
///
/// `invalid_argument` with what is wrong and, in JSON, where.
pub fn decode<M: Message + Default + DeserializeOwned>(
    body: &[u8],
    encoding: Encoding,
) -> Result<M, Error> {
    match encoding {
        Encoding::Proto => M::decode(body).map_err(|error| {
            Error::invalid(format!("the body is no message of protobuf: {error}"))
        }),
        Encoding::Json => {
            let value: serde_json::Value = serde_json::from_slice(body)
                .map_err(|error| Error::invalid(format!("the body is no JSON: {error}")))?;
            if !value.is_object() {
                return Err(Error::invalid("the body is no object of JSON"));
            }
            serde_json::from_value(json::normal(value))
                .map_err(|error| Error::invalid(format!("the body is no such request: {error}")))
        }
    }
}

/// The body of a message.
///
/// # Panics
///
/// Never: what messages are made of always has a form in JSON.
#[must_use]
pub fn encode<M: Message + Serialize>(message: &M, encoding: Encoding) -> Vec<u8> {
    match encoding {
        Encoding::Proto => message.encode_to_vec(),
        Encoding::Json => serde_json::to_vec(message).expect("messages have no keys but texts"),
    }
}
