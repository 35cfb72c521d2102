//! `push.v1`: profiles on their way in.
#![expect(missing_docs, reason = "fields mean what the protocol's of the same names do")]

use super::{LabelPair, json, messages};

messages! {
    /// Profiles of any number of series.
    PushRequest {
        #[prost(message, repeated, tag = "1")]
        series: Vec<RawProfileSeries>,
    }

    /// Profiles that have the same labels.
    RawProfileSeries {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<LabelPair>,
        #[prost(message, repeated, tag = "2")]
        samples: Vec<RawSample>,
    }

    /// One profile.
    RawSample {
        /// pprof, plain or as gzip.
        #[prost(bytes = "vec", tag = "1")]
        #[serde(with = "json::base64_bytes")]
        raw_profile: Vec<u8>,
        /// A UUID, or nothing.
        #[prost(string, tag = "2")]
        #[serde(rename = "ID")]
        id: String,
    }

    /// All are stored.
    PushResponse {}
}
