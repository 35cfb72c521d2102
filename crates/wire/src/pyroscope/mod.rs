//! Pyroscope's protocol: what its clients push and ask, as protobuf and as JSON.
//!
//! ```text
//! POST /push.v1.PusherService/Push            PushRequest ─▶ PushResponse
//! POST /querier.v1.QuerierService/<Method>    <Method>Request ─▶ <Method>Response
//! POST /settings.v1.RecordingRulesService/<Method>, /settings.v1.SettingsService/<Method>
//!      Content-Type: application/proto        the bare message
//!      Content-Type: application/json         the same by its JSON mapping
//!      any other status than 200              {"code": "invalid_argument", "message": "…"}
//!      Content-Type: application/grpc…        the bare message in a frame, see [`grpc`]
//! ```
//!
//! Field numbers are those of `api/push/v1`, `api/querier/v1`, `api/settings/v1`, `api/types/v1` and `api/google/v1` of `grafana/pyroscope`; fields that are
//! not here are passed over, as protobuf has it. A decoded message takes a fixed multiple of its bytes, so whoever
//! reads bodies bounds them.

mod connect;
pub mod grpc;
mod json;
pub mod pprof;
mod push;
mod querier;
mod render;
mod settings;
mod types;

pub use connect::{Code, Encoding, Error, decode, encode};
pub use push::*;
pub use querier::*;
pub use render::{Flamebearer, Render, RenderMetadata, Timeline};
pub use settings::*;
pub use types::*;

/// The service that takes profiles, as paths name it.
pub const PUSHER: &str = "push.v1.PusherService";

/// The service that answers questions, as paths name it.
pub const QUERIER: &str = "querier.v1.QuerierService";

/// Messages whose JSON leaves out what is not set, as protobuf's mapping does, and takes fields in any order, absent or null.
macro_rules! messages {
    ($($(#[$meta:meta])* $name:ident { $($(#[$attr:meta])* $field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, PartialEq, ::prost::Message, ::serde::Serialize, ::serde::Deserialize)]
            #[serde(default, rename_all = "camelCase")]
            pub struct $name {
                $(
                    $(#[$attr])*
                    #[serde(skip_serializing_if = "crate::pyroscope::json::is_default")]
                    pub $field: $ty,
                )*
            }
        )*
    };
}
use messages;
