//! `settings.v1`: rules for exported metrics, and settings of pages.
//!
//! Fields from 1001 on are ours; Pyroscope's clients pass over them.
#![expect(missing_docs, reason = "fields mean what the protocol's of the same names do")]

use super::types::named;
use super::{LabelPair, json, messages};

named! {
    /// What of a function is summed.
    MetricType {
        Total = 0 "TOTAL",
    }
}

messages! {
    GetRecordingRuleRequest {
        #[prost(string, tag = "1")]
        id: String,
    }

    GetRecordingRuleResponse {
        #[prost(message, optional, tag = "1")]
        rule: Option<RecordingRule>,
    }

    ListRecordingRulesRequest {}

    ListRecordingRulesResponse {
        #[prost(message, repeated, tag = "1")]
        rules: Vec<RecordingRule>,
    }

    UpsertRecordingRuleRequest {
        /// Nothing for a rule that is to be made.
        #[prost(string, tag = "1")]
        id: String,
        #[prost(string, tag = "2")]
        metric_name: String,
        #[prost(string, repeated, tag = "3")]
        matchers: Vec<String>,
        #[prost(string, repeated, tag = "4")]
        group_by: Vec<String>,
        #[prost(message, repeated, tag = "5")]
        external_labels: Vec<LabelPair>,
        /// Of the rule that this one takes the place of.
        #[prost(int64, tag = "6")]
        #[serde(with = "json")]
        generation: i64,
        #[prost(message, optional, tag = "7")]
        stacktrace_filter: Option<StacktraceFilter>,
        #[prost(message, optional, tag = "1001")]
        throughline: Option<RuleExtension>,
    }

    UpsertRecordingRuleResponse {
        #[prost(message, optional, tag = "1")]
        rule: Option<RecordingRule>,
    }

    DeleteRecordingRuleRequest {
        #[prost(string, tag = "1")]
        id: String,
    }

    DeleteRecordingRuleResponse {}

    RecordingRule {
        #[prost(string, tag = "1")]
        id: String,
        #[prost(string, tag = "2")]
        metric_name: String,
        #[prost(string, tag = "3")]
        profile_type: String,
        #[prost(string, repeated, tag = "4")]
        matchers: Vec<String>,
        #[prost(string, repeated, tag = "5")]
        group_by: Vec<String>,
        #[prost(message, repeated, tag = "6")]
        external_labels: Vec<LabelPair>,
        #[prost(int64, tag = "7")]
        #[serde(with = "json")]
        generation: i64,
        #[prost(message, optional, tag = "8")]
        stacktrace_filter: Option<StacktraceFilter>,
        /// Whether it comes from the configuration.
        #[prost(bool, tag = "9")]
        provisioned: bool,
        #[prost(message, optional, tag = "1001")]
        throughline: Option<RuleExtension>,
    }

    StacktraceFilter {
        #[prost(message, optional, tag = "1")]
        function_name: Option<StacktraceFilterFunctionName>,
    }

    StacktraceFilterFunctionName {
        #[prost(string, tag = "1")]
        function_name: String,
        #[prost(enumeration = "MetricType", tag = "2")]
        #[serde(with = "json::Name::<MetricType>")]
        metric_type: i32,
    }

    /// What Pyroscope's rules cannot say. Of the texts at most one is there; who sends this one sends no stack trace filter.
    RuleExtension {
        /// Whether series have all labels of their profiles.
        #[prost(bool, tag = "1")]
        all_labels: bool,
        /// Which functions have a series each: the one of this name,
        #[prost(string, tag = "2")]
        exact: String,
        /// those whose names begin so,
        #[prost(string, tag = "3")]
        prefix: String,
        /// those whose names match,
        #[prost(string, tag = "4")]
        regex: String,
        /// those of a package, module or mapped file,
        #[prost(string, tag = "5")]
        package: String,
        /// those of a source file.
        #[prost(string, tag = "6")]
        file: String,
        /// Whether only samples that end in the function count.
        #[prost(bool, tag = "7")]
        is_self: bool,
    }

    GetSettingsRequest {}

    GetSettingsResponse {
        #[prost(message, repeated, tag = "1")]
        settings: Vec<Setting>,
    }

    SetSettingsRequest {
        #[prost(message, optional, tag = "1")]
        setting: Option<Setting>,
    }

    SetSettingsResponse {
        #[prost(message, optional, tag = "1")]
        setting: Option<Setting>,
    }

    DeleteSettingsRequest {
        #[prost(string, tag = "1")]
        name: String,
    }

    DeleteSettingsResponse {}

    Setting {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(string, tag = "2")]
        value: String,
        /// Milliseconds since the epoch.
        #[prost(int64, tag = "3")]
        #[serde(with = "json")]
        modified_at: i64,
    }
}
