//! `querier.v1`: questions and answers. Times are milliseconds since the epoch, steps seconds.
#![expect(missing_docs, reason = "fields mean what the protocol's of the same names do")]

use super::types::named;
use super::{
    ExemplarType, HeatmapSeries, Labels, ProfileType, Series, StackTraceSelector,
    TimeSeriesAggregationType, json, messages, pprof,
};

named! {
    /// What merged stacks come as.
    ProfileFormat {
        Unspecified = 0 "PROFILE_FORMAT_UNSPECIFIED",
        Flamegraph = 1 "PROFILE_FORMAT_FLAMEGRAPH",
        Tree = 2 "PROFILE_FORMAT_TREE",
        Dot = 3 "PROFILE_FORMAT_DOT",
        Pprof = 4 "PROFILE_FORMAT_PPROF",
    }
}

named! {
    /// What a heat map counts.
    HeatmapQueryType {
        Unspecified = 0 "HEATMAP_QUERY_TYPE_UNSPECIFIED",
        Individual = 1 "HEATMAP_QUERY_TYPE_INDIVIDUAL",
        Span = 2 "HEATMAP_QUERY_TYPE_SPAN",
    }
}

messages! {
    ProfileTypesRequest {
        #[prost(int64, tag = "1")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        end: i64,
    }

    ProfileTypesResponse {
        #[prost(message, repeated, tag = "1")]
        profile_types: Vec<ProfileType>,
    }

    SeriesRequest {
        #[prost(string, repeated, tag = "1")]
        matchers: Vec<String>,
        #[prost(string, repeated, tag = "2")]
        label_names: Vec<String>,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        end: i64,
    }

    SeriesResponse {
        #[prost(message, repeated, tag = "2")]
        labels_set: Vec<Labels>,
    }

    SelectMergeStacktracesRequest {
        #[prost(string, tag = "1")]
        #[serde(rename = "profileTypeID")]
        profile_type_id: String,
        #[prost(string, tag = "2")]
        label_selector: String,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        end: i64,
        #[prost(int64, optional, tag = "5")]
        #[serde(with = "json")]
        max_nodes: Option<i64>,
        #[prost(enumeration = "ProfileFormat", tag = "6")]
        #[serde(with = "json::Name::<ProfileFormat>")]
        format: i32,
        #[prost(message, optional, tag = "7")]
        stack_trace_selector: Option<StackTraceSelector>,
        /// UUIDs.
        #[prost(string, repeated, tag = "8")]
        profile_id_selector: Vec<String>,
        /// 32 hexadecimal digits each.
        #[prost(string, repeated, tag = "10")]
        trace_id_selector: Vec<String>,
        /// 16 hexadecimal digits each.
        #[prost(string, repeated, tag = "11")]
        span_selector: Vec<String>,
    }

    /// One of them, as the request's format says.
    SelectMergeStacktracesResponse {
        #[prost(message, optional, tag = "1")]
        flamegraph: Option<FlameGraph>,
        #[prost(bytes = "vec", tag = "2")]
        #[serde(with = "json::base64_bytes")]
        tree: Vec<u8>,
        #[prost(string, tag = "3")]
        dot: String,
        #[prost(message, optional, tag = "5")]
        pprof: Option<PprofProfile>,
    }

    PprofProfile {
        #[prost(message, optional, tag = "1")]
        profile: Option<pprof::Profile>,
    }

    SelectMergeSpanProfileRequest {
        #[prost(string, tag = "1")]
        #[serde(rename = "profileTypeID")]
        profile_type_id: String,
        #[prost(string, tag = "2")]
        label_selector: String,
        /// 16 hexadecimal digits each.
        #[prost(string, repeated, tag = "3")]
        span_selector: Vec<String>,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "5")]
        #[serde(with = "json")]
        end: i64,
        #[prost(int64, optional, tag = "6")]
        #[serde(with = "json")]
        max_nodes: Option<i64>,
        #[prost(enumeration = "ProfileFormat", tag = "7")]
        #[serde(with = "json::Name::<ProfileFormat>")]
        format: i32,
    }

    SelectMergeSpanProfileResponse {
        #[prost(message, optional, tag = "1")]
        flamegraph: Option<FlameGraph>,
        #[prost(bytes = "vec", tag = "2")]
        #[serde(with = "json::base64_bytes")]
        tree: Vec<u8>,
    }

    /// The answer is a [`pprof::Profile`].
    SelectMergeProfileRequest {
        #[prost(string, tag = "1")]
        #[serde(rename = "profileTypeID")]
        profile_type_id: String,
        #[prost(string, tag = "2")]
        label_selector: String,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        end: i64,
        #[prost(int64, optional, tag = "5")]
        #[serde(with = "json")]
        max_nodes: Option<i64>,
        #[prost(message, optional, tag = "6")]
        stack_trace_selector: Option<StackTraceSelector>,
        /// UUIDs.
        #[prost(string, repeated, tag = "7")]
        profile_id_selector: Vec<String>,
        /// 32 hexadecimal digits each.
        #[prost(string, repeated, tag = "8")]
        trace_id_selector: Vec<String>,
    }

    DiffRequest {
        #[prost(message, optional, tag = "1")]
        left: Option<SelectMergeStacktracesRequest>,
        #[prost(message, optional, tag = "2")]
        right: Option<SelectMergeStacktracesRequest>,
    }

    DiffResponse {
        #[prost(message, optional, tag = "1")]
        flamegraph: Option<FlameGraphDiff>,
    }

    /// A call tree level by level. A node is four numbers: offset from the end of the one before it in its level, total, self, index of
    /// the name.
    FlameGraph {
        /// The first is `total`, the root's.
        #[prost(string, repeated, tag = "1")]
        names: Vec<String>,
        /// The first has one node.
        #[prost(message, repeated, tag = "2")]
        levels: Vec<Level>,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        total: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        max_self: i64,
    }

    /// Two call trees of one shape. A node is seven numbers: offset, total and self on the left, the same on the right, index of
    /// the name.
    FlameGraphDiff {
        #[prost(string, repeated, tag = "1")]
        names: Vec<String>,
        #[prost(message, repeated, tag = "2")]
        levels: Vec<Level>,
        /// Left and right.
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        total: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        max_self: i64,
        #[prost(int64, tag = "5")]
        #[serde(with = "json")]
        left_ticks: i64,
        #[prost(int64, tag = "6")]
        #[serde(with = "json")]
        right_ticks: i64,
    }

    Level {
        #[prost(int64, repeated, tag = "1")]
        #[serde(with = "json")]
        values: Vec<i64>,
    }

    SelectSeriesRequest {
        #[prost(string, tag = "1")]
        #[serde(rename = "profileTypeID")]
        profile_type_id: String,
        #[prost(string, tag = "2")]
        label_selector: String,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        end: i64,
        #[prost(string, repeated, tag = "5")]
        group_by: Vec<String>,
        #[prost(double, tag = "6")]
        #[serde(with = "json")]
        step: f64,
        #[prost(enumeration = "TimeSeriesAggregationType", optional, tag = "7")]
        #[serde(with = "json::OptionalName::<TimeSeriesAggregationType>")]
        aggregation: Option<i32>,
        #[prost(message, optional, tag = "8")]
        stack_trace_selector: Option<StackTraceSelector>,
        #[prost(int64, optional, tag = "9")]
        #[serde(with = "json")]
        limit: Option<i64>,
        #[prost(enumeration = "ExemplarType", tag = "10")]
        #[serde(with = "json::Name::<ExemplarType>")]
        exemplar_type: i32,
    }

    SelectSeriesResponse {
        #[prost(message, repeated, tag = "1")]
        series: Vec<Series>,
    }

    SelectHeatmapRequest {
        #[prost(string, tag = "1")]
        #[serde(rename = "profileTypeID")]
        profile_type_id: String,
        #[prost(string, tag = "2")]
        label_selector: String,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        end: i64,
        #[prost(double, tag = "5")]
        #[serde(with = "json")]
        step: f64,
        #[prost(string, repeated, tag = "6")]
        group_by: Vec<String>,
        #[prost(enumeration = "HeatmapQueryType", tag = "7")]
        #[serde(with = "json::Name::<HeatmapQueryType>")]
        query_type: i32,
        #[prost(enumeration = "ExemplarType", tag = "8")]
        #[serde(with = "json::Name::<ExemplarType>")]
        exemplar_type: i32,
        #[prost(int64, optional, tag = "9")]
        #[serde(with = "json")]
        limit: Option<i64>,
    }

    SelectHeatmapResponse {
        #[prost(message, repeated, tag = "1")]
        series: Vec<HeatmapSeries>,
    }

    AnalyzeQueryRequest {
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        start: i64,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        end: i64,
        #[prost(string, tag = "4")]
        query: String,
    }

    AnalyzeQueryResponse {
        #[prost(message, repeated, tag = "1")]
        query_scopes: Vec<QueryScope>,
        #[prost(message, optional, tag = "2")]
        query_impact: Option<QueryImpact>,
    }

    QueryScope {
        #[prost(string, tag = "1")]
        component_type: String,
        #[prost(uint64, tag = "2")]
        #[serde(with = "json")]
        component_count: u64,
        #[prost(uint64, tag = "3")]
        #[serde(with = "json")]
        block_count: u64,
        #[prost(uint64, tag = "4")]
        #[serde(with = "json")]
        series_count: u64,
        #[prost(uint64, tag = "5")]
        #[serde(with = "json")]
        profile_count: u64,
        #[prost(uint64, tag = "6")]
        #[serde(with = "json")]
        sample_count: u64,
        #[prost(uint64, tag = "7")]
        #[serde(with = "json")]
        index_bytes: u64,
        #[prost(uint64, tag = "8")]
        #[serde(with = "json")]
        profile_bytes: u64,
        #[prost(uint64, tag = "9")]
        #[serde(with = "json")]
        symbol_bytes: u64,
    }

    QueryImpact {
        #[prost(uint64, tag = "2")]
        #[serde(with = "json")]
        total_bytes_in_time_range: u64,
        #[prost(uint64, tag = "3")]
        #[serde(with = "json")]
        total_queried_series: u64,
        #[prost(bool, tag = "4")]
        deduplication_needed: bool,
    }
}
