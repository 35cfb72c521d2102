//! What `GET /pyroscope/render` and `/pyroscope/render-diff` answer: flame graph and time line as plain JSON, numbers as numbers.
#![expect(missing_docs, reason = "fields mean what the protocol's of the same names do")]

use std::collections::BTreeMap;

use serde::Serialize;

/// The whole answer. Source: `pkg/og/structs/flamebearer` of `grafana/pyroscope`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Render {
    /// 1.
    pub version: u32,
    pub flamebearer: Flamebearer,
    pub metadata: RenderMetadata,
    pub timeline: Option<Timeline>,
    /// By the values of the label that was grouped by.
    pub groups: Option<BTreeMap<String, Timeline>>,
    /// Always null.
    pub heatmap: (),
    /// Of a difference only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_ticks: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right_ticks: Option<i64>,
}

/// Names and levels are those of a [`super::FlameGraph`], or of a [`super::FlameGraphDiff`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flamebearer {
    pub names: Vec<String>,
    pub levels: Vec<Vec<i64>>,
    pub num_ticks: i64,
    pub max_self: i64,
}

/// How numbers are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RenderMetadata {
    /// `single`, or `double` for a difference.
    pub format: String,
    pub spy_name: String,
    /// Ticks of a second.
    pub sample_rate: u32,
    pub units: String,
    pub name: String,
}

/// Values over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// Seconds since the epoch.
    pub start_time: i64,
    pub samples: Vec<u64>,
    /// Seconds from value to value.
    pub duration_delta: i64,
    /// Always null.
    pub watermarks: (),
}
