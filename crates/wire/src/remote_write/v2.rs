//! Remote write 2.0: `io.prometheus.write.v2.Request`, in which every text is there once.

use std::collections::HashMap;

use prost::Message;

use super::{Error, MAX_TEXT_LEN, MetricKind, Received, ReceivedSeries, Series};

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata>,
    #[prost(int64, tag = "6")]
    created_timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
    #[prost(int64, tag = "3")]
    start_timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Metadata {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "3")]
    help_ref: u32,
    #[prost(uint32, tag = "4")]
    unit_ref: u32,
}

/// Texts, numbered in the order in which they come; 0 is the empty one.
struct Symbols<'a> {
    numbers: HashMap<&'a str, u32>,
    texts: Vec<String>,
}

impl<'a> Symbols<'a> {
    fn number(&mut self, text: &'a str) -> u32 {
        let next = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(text).or_insert_with(|| {
            self.texts.push(text.to_owned());
            next
        })
    }
}

pub(super) fn series(series: &[Series]) -> Vec<u8> {
    let mut symbols = Symbols { numbers: HashMap::new(), texts: Vec::new() };
    symbols.number("");
    let timeseries = series.iter().map(|series| {
        let labels = series.labels.iter().flat_map(|(name, value)| [name, value]);
        let labels_refs = labels.map(|text| symbols.number(text)).collect();
        let metadata = series.metadata.as_deref().map(|it| Metadata {
            kind: it.kind as i32,
            help_ref: symbols.number(&it.help),
            unit_ref: symbols.number(&it.unit),
        });
        let samples = series.samples.iter().map(|it| Sample {
            value: it.value,
            timestamp: it.time_ms,
            start_timestamp: it.start_ms,
        });
        let created_timestamp = created(&series.samples);
        TimeSeries { labels_refs, samples: samples.collect(), metadata, created_timestamp }
    });
    let timeseries = timeseries.collect();
    Request { symbols: symbols.texts, timeseries }.encode_to_vec()
}

/// The start time of a series whose samples agree on one.
fn created(samples: &[super::Sample]) -> i64 {
    let mut starts = samples.iter().map(|sample| sample.start_ms);
    let first = starts.next().unwrap_or(0);
    if starts.all(|start| start == first) { first } else { 0 }
}

pub(super) fn decode(message: &[u8]) -> Result<Received, Error> {
    let request = Request::decode(message).map_err(Error::Message)?;
    if request.symbols.first().is_some_and(|first| !first.is_empty()) {
        return Err(Error::FirstSymbol);
    }
    let mut texts = Texts { symbols: &request.symbols, left: MAX_TEXT_LEN };
    let series = request.timeseries.into_iter().enumerate();
    let series = series.map(|(number, series)| texts.series(number, series));
    Ok(Received { series: series.collect::<Result<_, _>>()?, metadata: Vec::new() })
}

/// Puts texts in place of their numbers, as long as there is room.
struct Texts<'a> {
    symbols: &'a [String],
    left: usize,
}

impl Texts<'_> {
    fn series(&mut self, number: usize, series: TimeSeries) -> Result<ReceivedSeries, Error> {
        let (pairs, rest) = series.labels_refs.as_chunks();
        if !rest.is_empty() {
            let references = series.labels_refs.len();
            return Err(Error::Unpaired { series: number, references });
        }
        let mut labels = Vec::with_capacity(pairs.len());
        for [name, value] in pairs {
            labels.push((self.text(number, *name)?, self.text(number, *value)?));
        }
        let metadata = series.metadata.map(|it| -> Result<_, Error> {
            let help = self.text(number, it.help_ref)?;
            let unit = self.text(number, it.unit_ref)?;
            Ok(super::Metadata { kind: MetricKind::of_number(it.kind), help, unit })
        });
        let samples = series.samples.into_iter().map(|it| super::Sample {
            value: it.value,
            time_ms: it.timestamp,
            start_ms: it.start_timestamp,
        });
        let samples = samples.collect();
        Ok(ReceivedSeries { labels, samples, metadata: metadata.transpose()? })
    }

    fn text(&mut self, series: usize, symbol: u32) -> Result<String, Error> {
        let symbols = self.symbols.len();
        let text = usize::try_from(symbol).ok().and_then(|at| self.symbols.get(at));
        let text = text.ok_or(Error::Symbol { series, symbol, symbols })?;
        let left = self.left.checked_sub(text.len());
        self.left = left.ok_or(Error::TooMuchText { limit: MAX_TEXT_LEN })?;
        Ok(text.clone())
    }
}
