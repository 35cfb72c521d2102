//! `types.v1`: what several services speak of. Times are milliseconds since the epoch.
#![expect(missing_docs, reason = "fields mean what the protocol's of the same names do")]

use super::json;
use super::messages;

/// An enum and the names of its values.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ::prost::Enumeration)]
        #[repr(i32)]
        pub enum $name {
            $($variant = $number,)*
        }

        impl $crate::pyroscope::json::Names for $name {
            const NAMES: &'static [(&'static str, i32)] = &[$(($text, $number),)*];
        }
    };
}
pub(super) use named;

named! {
    /// What becomes of values that fall into one step.
    TimeSeriesAggregationType {
        Sum = 0 "TIME_SERIES_AGGREGATION_TYPE_SUM",
        Average = 1 "TIME_SERIES_AGGREGATION_TYPE_AVERAGE",
    }
}

named! {
    /// Which examples a point has.
    ExemplarType {
        Unspecified = 0 "EXEMPLAR_TYPE_UNSPECIFIED",
        None = 1 "EXEMPLAR_TYPE_NONE",
        Individual = 2 "EXEMPLAR_TYPE_INDIVIDUAL",
        Span = 3 "EXEMPLAR_TYPE_SPAN",
    }
}

messages! {
    LabelPair {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
    }

    Labels {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<LabelPair>,
    }

    ProfileType {
        #[prost(string, tag = "1")]
        #[serde(rename = "ID")]
        id: String,
        #[prost(string, tag = "2")]
        name: String,
        #[prost(string, tag = "4")]
        sample_type: String,
        #[prost(string, tag = "5")]
        sample_unit: String,
        #[prost(string, tag = "6")]
        period_type: String,
        #[prost(string, tag = "7")]
        period_unit: String,
    }

    Series {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<LabelPair>,
        #[prost(message, repeated, tag = "2")]
        points: Vec<Point>,
    }

    Point {
        #[prost(double, tag = "1")]
        #[serde(with = "json")]
        value: f64,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        timestamp: i64,
        #[prost(message, repeated, tag = "3")]
        annotations: Vec<ProfileAnnotation>,
        #[prost(message, repeated, tag = "4")]
        exemplars: Vec<Exemplar>,
    }

    ProfileAnnotation {
        #[prost(string, tag = "1")]
        key: String,
        #[prost(string, tag = "2")]
        value: String,
    }

    /// A profile, or a span's part of it, that a point or a cell counts.
    Exemplar {
        #[prost(int64, tag = "1")]
        #[serde(with = "json")]
        timestamp: i64,
        /// A UUID.
        #[prost(string, tag = "2")]
        profile_id: String,
        /// 16 hexadecimal digits, or nothing.
        #[prost(string, tag = "3")]
        span_id: String,
        #[prost(uint64, tag = "4")]
        #[serde(with = "json")]
        value: u64,
        /// Labels of its series but for those that the answer is grouped by.
        #[prost(message, repeated, tag = "5")]
        labels: Vec<LabelPair>,
        /// 32 hexadecimal digits, or nothing.
        #[prost(string, tag = "6")]
        trace_id: String,
    }

    HeatmapSeries {
        #[prost(message, repeated, tag = "1")]
        labels: Vec<LabelPair>,
        #[prost(message, repeated, tag = "2")]
        slots: Vec<HeatmapSlot>,
    }

    /// A column of a heat map.
    HeatmapSlot {
        /// The right edge.
        #[prost(int64, tag = "1")]
        #[serde(with = "json")]
        timestamp: i64,
        /// The lower edge of each cell.
        #[prost(double, repeated, tag = "2")]
        #[serde(with = "json::doubles")]
        y_min: Vec<f64>,
        /// What each cell counts; as many as `y_min`.
        #[prost(int32, repeated, tag = "3")]
        counts: Vec<i32>,
        #[prost(message, repeated, tag = "4")]
        exemplars: Vec<Exemplar>,
    }

    /// Stacks that begin like a call site, or stacks for Go's profile-guided optimisation.
    StackTraceSelector {
        /// Root first.
        #[prost(message, repeated, tag = "1")]
        call_site: Vec<Location>,
        #[prost(message, optional, tag = "2")]
        go_pgo: Option<GoPgo>,
    }

    Location {
        #[prost(string, tag = "1")]
        name: String,
    }

    GoPgo {
        /// Frames at the leaf that stay.
        #[prost(uint32, tag = "1")]
        keep_locations: u32,
        /// Whether the line of the leaf does not count.
        #[prost(bool, tag = "2")]
        aggregate_callees: bool,
    }

    LabelNamesRequest {
        #[prost(string, repeated, tag = "1")]
        matchers: Vec<String>,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        end: i64,
    }

    LabelNamesResponse {
        #[prost(string, repeated, tag = "1")]
        names: Vec<String>,
    }

    LabelValuesRequest {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, repeated, tag = "2")]
        matchers: Vec<String>,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        end: i64,
    }

    LabelValuesResponse {
        #[prost(string, repeated, tag = "1")]
        names: Vec<String>,
    }

    GetProfileStatsRequest {}

    GetProfileStatsResponse {
        #[prost(bool, tag = "1")]
        data_ingested: bool,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        oldest_profile_time: i64,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        newest_profile_time: i64,
    }
}
