//! Remote write 1.0: `prometheus.WriteRequest`.

use prost::Message;

use super::{Error, MetricKind, Received, ReceivedSeries, Series};

#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct MetricMetadata {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    metric_family_name: String,
    #[prost(string, tag = "4")]
    help: String,
    #[prost(string, tag = "5")]
    unit: String,
}

pub(super) fn series(series: &[Series]) -> Vec<u8> {
    let label = |(name, value): (&str, &str)| Label { name: name.into(), value: value.into() };
    let sample = |it: &super::Sample| Sample { value: it.value, timestamp: it.time_ms };
    let timeseries = series.iter().map(|series| TimeSeries {
        labels: series.labels.iter().map(label).collect(),
        samples: series.samples.iter().map(sample).collect(),
    });
    WriteRequest { timeseries: timeseries.collect(), metadata: Vec::new() }.encode_to_vec()
}

pub(super) fn metadata<'a>(
    families: impl IntoIterator<Item = (&'a str, &'a super::Metadata)>,
) -> Vec<u8> {
    let metadata = families.into_iter().map(|(name, it)| MetricMetadata {
        kind: it.kind as i32,
        metric_family_name: name.to_owned(),
        help: it.help.clone(),
        unit: it.unit.clone(),
    });
    WriteRequest { timeseries: Vec::new(), metadata: metadata.collect() }.encode_to_vec()
}

pub(super) fn decode(message: &[u8]) -> Result<Received, Error> {
    let request = WriteRequest::decode(message).map_err(Error::Message)?;
    let sample = |it: Sample| super::Sample { value: it.value, time_ms: it.timestamp, start_ms: 0 };
    let series = request.timeseries.into_iter().map(|series| ReceivedSeries {
        labels: series.labels.into_iter().map(|it| (it.name, it.value)).collect(),
        samples: series.samples.into_iter().map(sample).collect(),
        metadata: None,
    });
    let metadata = request.metadata.into_iter().map(|it| {
        let kind = MetricKind::of_number(it.kind);
        (it.metric_family_name, super::Metadata { kind, help: it.help, unit: it.unit })
    });
    Ok(Received { series: series.collect(), metadata: metadata.collect() })
}
