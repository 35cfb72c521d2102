//! `google.v1.Profile`: pprof's `profile.proto`. Texts are indices of `string_table`, whose first is empty; ids count from 1.
#![expect(missing_docs, reason = "fields mean what those of profile.proto do")]

use super::{json, messages};

messages! {
    Profile {
        #[prost(message, repeated, tag = "1")]
        sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        string_table: Vec<String>,
        #[prost(int64, tag = "7")]
        #[serde(with = "json")]
        drop_frames: i64,
        #[prost(int64, tag = "8")]
        #[serde(with = "json")]
        keep_frames: i64,
        #[prost(int64, tag = "9")]
        #[serde(with = "json")]
        time_nanos: i64,
        #[prost(int64, tag = "10")]
        #[serde(with = "json")]
        duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        #[serde(with = "json")]
        period: i64,
        #[prost(int64, repeated, tag = "13")]
        #[serde(with = "json")]
        comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        #[serde(with = "json")]
        default_sample_type: i64,
    }

    ValueType {
        #[prost(int64, tag = "1")]
        #[serde(with = "json", rename = "type")]
        kind: i64,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        unit: i64,
    }

    Sample {
        /// Leaf first.
        #[prost(uint64, repeated, tag = "1")]
        #[serde(with = "json")]
        location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        #[serde(with = "json")]
        value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        label: Vec<Label>,
    }

    Label {
        #[prost(int64, tag = "1")]
        #[serde(with = "json")]
        key: i64,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        str: i64,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        num: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        num_unit: i64,
    }

    Mapping {
        #[prost(uint64, tag = "1")]
        #[serde(with = "json")]
        id: u64,
        #[prost(uint64, tag = "2")]
        #[serde(with = "json")]
        memory_start: u64,
        #[prost(uint64, tag = "3")]
        #[serde(with = "json")]
        memory_limit: u64,
        #[prost(uint64, tag = "4")]
        #[serde(with = "json")]
        file_offset: u64,
        #[prost(int64, tag = "5")]
        #[serde(with = "json")]
        filename: i64,
        #[prost(int64, tag = "6")]
        #[serde(with = "json")]
        build_id: i64,
        #[prost(bool, tag = "7")]
        has_functions: bool,
        #[prost(bool, tag = "8")]
        has_filenames: bool,
        #[prost(bool, tag = "9")]
        has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        has_inline_frames: bool,
    }

    Location {
        #[prost(uint64, tag = "1")]
        #[serde(with = "json")]
        id: u64,
        #[prost(uint64, tag = "2")]
        #[serde(with = "json")]
        mapping_id: u64,
        #[prost(uint64, tag = "3")]
        #[serde(with = "json")]
        address: u64,
        /// Of functions inlined into each other, the innermost first.
        #[prost(message, repeated, tag = "4")]
        line: Vec<Line>,
        #[prost(bool, tag = "5")]
        is_folded: bool,
    }

    Line {
        #[prost(uint64, tag = "1")]
        #[serde(with = "json")]
        function_id: u64,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        line: i64,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        column: i64,
    }

    Function {
        #[prost(uint64, tag = "1")]
        #[serde(with = "json")]
        id: u64,
        #[prost(int64, tag = "2")]
        #[serde(with = "json")]
        name: i64,
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        system_name: i64,
        #[prost(int64, tag = "4")]
        #[serde(with = "json")]
        filename: i64,
        #[prost(int64, tag = "5")]
        #[serde(with = "json")]
        start_line: i64,
    }
}
