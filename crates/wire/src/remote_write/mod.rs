//! Prometheus remote write 1.0 and 2.0: requests that carry samples of time series.
//!
//! ```text
//! body       Snappy, block format, of one Protocol Buffers message
//! 1.0        WriteRequest  1 timeseries …  3 metadata …
//!            TimeSeries    1 labels …      2 samples …
//!            Label         1 name          2 value
//!            Sample        1 value (double) 2 timestamp (ms)
//!            Metadata      1 type          2 metric_family_name  4 help  5 unit
//! 2.0        Request       4 symbols …     5 timeseries …          the first symbol is ""
//!            TimeSeries    1 labels_refs (packed: name, value, name, …)  2 samples …  5 metadata  6 created_timestamp
//!            Sample        1 value (double) 2 timestamp (ms)  3 start_timestamp (ms)
//!            Metadata      1 type          3 help_ref  4 unit_ref
//! ```
//! Sources: prometheus.io, "Remote-Write 1.0 specification" and "Remote-Write 2.0 specification" (rc.4); `prompb` of prometheus/prometheus.
//! Field 6 of a series was where releases before 3.8 looked for the start time, which is why both places have it.
//!
//! Equal input gives equal bytes: labels are sorted, symbols are numbered in the order in which they come.

mod labels;
mod v1;
mod v2;

use std::sync::Arc;

pub use self::labels::{
    Labels, LabelsError, MAX_LABELS, MAX_LABELS_LEN, NAME, is_label_name, is_metric_name,
};

/// Longest message before compression, sent or taken. Prometheus takes 32 MiB.
pub const MAX_MESSAGE_LEN: usize = 4 << 20;

/// Longest labels, help and units of a whole request once the symbols are put in: a short request could name a long symbol often.
pub const MAX_TEXT_LEN: usize = 16 << 20;

/// The value that says that a series ends here: a NaN of its own (prometheus/prometheus, `model/value`, `StaleNaN`).
pub const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Whether a value is [`STALE`]; no other NaN is.
#[must_use]
pub const fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE.to_bits()
}

/// Which message a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `prometheus.WriteRequest`.
    V1,
    /// `io.prometheus.write.v2.Request`.
    V2,
}

impl Version {
    /// The header `Content-Type` that goes with it.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::V1 => "application/x-protobuf",
            Self::V2 => "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        }
    }

    /// The header `X-Prometheus-Remote-Write-Version` that goes with it.
    #[must_use]
    pub const fn header(self) -> &'static str {
        match self {
            Self::V1 => "0.1.0",
            Self::V2 => "2.0.0",
        }
    }
}

/// One value of a series.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The value. A negative zero goes as zero.
    pub value: f64,
    /// Its time, milliseconds since 1970.
    pub time_ms: i64,
    /// Since when a counter counts, milliseconds since 1970; 0: unknown, or no counter. 1.0 has no place for it.
    pub start_ms: i64,
}

/// By bits, so that a NaN equals itself.
impl PartialEq for Sample {
    fn eq(&self, other: &Self) -> bool {
        self.value.to_bits() == other.value.to_bits()
            && (self.time_ms, self.start_ms) == (other.time_ms, other.start_ms)
    }
}

impl Eq for Sample {}

/// What kind of metric a series belongs to, with the number that both versions give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(i32)]
pub enum MetricKind {
    /// Not said.
    #[default]
    Unspecified = 0,
    /// Only grows, but for restarts.
    Counter = 1,
    /// Goes up and down.
    Gauge = 2,
}

impl MetricKind {
    /// Kinds that are never sent here are not told apart.
    const fn of_number(number: i32) -> Self {
        match number {
            1 => Self::Counter,
            2 => Self::Gauge,
            _ => Self::Unspecified,
        }
    }
}

/// What is known of a metric.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Metadata {
    /// What kind it is.
    pub kind: MetricKind,
    /// What it means.
    pub help: String,
    /// Its unit, such as `nanoseconds`.
    pub unit: String,
}

/// A time series with some of its samples, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    labels: Labels,
    samples: Vec<Sample>,
    metadata: Option<Arc<Metadata>>,
}

impl Series {
    /// Samples may come in any order; they go by time.
    #[must_use]
    pub fn new(labels: Labels, mut samples: Vec<Sample>, metadata: Option<Arc<Metadata>>) -> Self {
        samples.sort_by_key(|sample| sample.time_ms);
        Self { labels, samples, metadata }
    }
}

/// A series as it came: nothing about its labels is certain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReceivedSeries {
    /// Names and values, in the order in which they came.
    pub labels: Vec<(String, String)>,
    /// Samples, in the order in which they came.
    pub samples: Vec<Sample>,
    /// What 2.0 says of its metric.
    pub metadata: Option<Metadata>,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Received {
    /// Series, in the order in which they came.
    pub series: Vec<ReceivedSeries>,
    /// What 1.0 says of metrics: name and metadata.
    pub metadata: Vec<(String, Metadata)>,
}

/// Why nothing can be sent or understood.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A message that is too long.
    #[error("a message of {len} bytes, the limit is {limit}")]
    TooLong {
        /// Its length before compression.
        len: usize,
        /// The most that is sent or taken.
        limit: usize,
    },
    /// Labels and metadata of a request that are too long together.
    #[error("more than {limit} bytes of labels and metadata")]
    TooMuchText {
        /// The most that is taken.
        limit: usize,
    },
    /// Not compressed as it should be.
    #[error("not Snappy's block format")]
    Snappy(#[source] snap::Error),
    /// Not the message that it should be.
    #[error("not a remote write request")]
    Message(#[source] prost::DecodeError),
    /// Names and values do not come in pairs.
    #[error("series {series}: {references} label references are no pairs")]
    Unpaired {
        /// Its place in the request.
        series: usize,
        /// How many there are.
        references: usize,
    },
    /// A symbol that is not in the table.
    #[error("series {series}: symbol {symbol} of {symbols}")]
    Symbol {
        /// Its place in the request.
        series: usize,
        /// What it asks for.
        symbol: u32,
        /// Length of the table.
        symbols: usize,
    },
    /// A table that does not begin with the empty symbol.
    #[error("the first symbol is not empty")]
    FirstSymbol,
}

/// The body of a request.
///
/// # Errors
/// [`Error::TooLong`].
pub fn encode(version: Version, series: &[Series]) -> Result<Vec<u8>, Error> {
    compressed(&match version {
        Version::V1 => v1::series(series),
        Version::V2 => v2::series(series),
    })
}

/// The body of a request of 1.0 that says only what metrics are, by name.
///
/// # Errors
/// [`Error::TooLong`].
pub fn encode_metadata<'a>(
    families: impl IntoIterator<Item = (&'a str, &'a Metadata)>,
) -> Result<Vec<u8>, Error> {
    compressed(&v1::metadata(families))
}

/// What a body says. Needs memory in proportion to [`MAX_MESSAGE_LEN`] and [`MAX_TEXT_LEN`] at the most.
///
/// # Errors
/// See [`Error`].
pub fn decode(version: Version, body: &[u8]) -> Result<Received, Error> {
    let len = snap::raw::decompress_len(body).map_err(Error::Snappy)?;
    if len > MAX_MESSAGE_LEN {
        return Err(Error::TooLong { len, limit: MAX_MESSAGE_LEN });
    }
    let message = snap::raw::Decoder::new().decompress_vec(body).map_err(Error::Snappy)?;
    match version {
        Version::V1 => v1::decode(&message),
        Version::V2 => v2::decode(&message),
    }
}

fn compressed(message: &[u8]) -> Result<Vec<u8>, Error> {
    let len = message.len();
    if len > MAX_MESSAGE_LEN {
        return Err(Error::TooLong { len, limit: MAX_MESSAGE_LEN });
    }
    snap::raw::Encoder::new().compress_vec(message).map_err(Error::Snappy)
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;

    fn labels(name: &str, others: &[(&str, &str)]) -> Labels {
        let all = others.iter().copied().chain([(NAME, name)]);
        Labels::new(all.map(|(name, value)| (name.to_owned(), value.to_owned()))).unwrap()
    }

    fn sample(value: f64, time_ms: i64) -> Sample {
        Sample { value, time_ms, start_ms: 0 }
    }

    /// A series of two samples, the later first, and one with a start time.
    fn two() -> Vec<Series> {
        let metadata = Metadata { kind: MetricKind::Counter, help: "h".into(), unit: "u".into() };
        let counter = Sample { start_ms: 5, ..sample(1.0, 7) };
        vec![
            Series::new(labels("m", &[("a", "x")]), vec![sample(STALE, 3), sample(2.0, 2)], None),
            Series::new(labels("m", &[("a", "y")]), vec![counter], Some(Arc::new(metadata))),
        ]
    }

    fn message(version: Version) -> Vec<u8> {
        let body = encode(version, &two()).unwrap();
        snap::raw::Decoder::new().decompress_vec(&body).unwrap()
    }

    #[test]
    fn the_bytes_of_1_0_are_those_of_the_specification() {
        let stale = b"\x09\x02\0\0\0\0\0\xf0\x7f\x10\x03";
        let first = [
            &b"\x0a\x0d\x0a\x08__name__\x12\x01m\x0a\x06\x0a\x01a\x12\x01x"[..],
            b"\x12\x0b\x09\0\0\0\0\0\0\0\x40\x10\x02\x12\x0b",
            stale,
        ];
        let second = [
            &b"\x0a\x0d\x0a\x08__name__\x12\x01m\x0a\x06\x0a\x01a\x12\x01y"[..],
            b"\x12\x0b\x09\0\0\0\0\0\0\xf0\x3f\x10\x07",
        ];
        let (first, second) = (first.concat(), second.concat());
        let lengths = [first.len(), second.len()].map(|len| u8::try_from(len).unwrap());
        let all = [&[0x0a, lengths[0]][..], &first, &[0x0a, lengths[1]], &second].concat();
        assert_eq!(message(Version::V1), all);
    }

    #[test]
    fn the_bytes_of_2_0_are_those_of_the_specification() {
        let symbols = ["", "__name__", "m", "a", "x", "y", "h", "u"];
        let mut all = Vec::new();
        for symbol in symbols {
            all.extend([0x22, u8::try_from(symbol.len()).unwrap()]);
            all.extend(symbol.as_bytes());
        }
        let first = [
            &b"\x0a\x04\x01\x02\x03\x04"[..],
            b"\x12\x0b\x09\0\0\0\0\0\0\0\x40\x10\x02",
            b"\x12\x0b\x09\x02\0\0\0\0\0\xf0\x7f\x10\x03",
        ];
        let second = [
            &b"\x0a\x04\x01\x02\x03\x05"[..],
            b"\x12\x0d\x09\0\0\0\0\0\0\xf0\x3f\x10\x07\x18\x05",
            b"\x2a\x06\x08\x01\x18\x06\x20\x07",
            b"\x30\x05",
        ];
        for series in [first.concat(), second.concat()] {
            all.extend([0x2a, u8::try_from(series.len()).unwrap()]);
            all.extend(series);
        }
        assert_eq!(message(Version::V2), all);
    }

    #[test]
    fn what_1_0_says_of_metrics_comes_back() {
        let metadata = Metadata { kind: MetricKind::Gauge, help: "h".into(), unit: "B".into() };
        let body = encode_metadata([("m", &metadata)]).unwrap();
        let received = decode(Version::V1, &body).unwrap();
        assert_eq!(received.metadata, [("m".to_owned(), metadata)]);
        assert!(received.series.is_empty());
    }

    #[test]
    fn what_is_too_long_is_neither_sent_nor_unpacked() {
        let long = labels("m", &[("a", &"x".repeat(MAX_LABELS_LEN - 100))]);
        let series = vec![Series::new(long, vec![sample(1.0, 1)], None); 65];
        assert!(matches!(encode(Version::V1, &series), Err(Error::TooLong { .. })));
        assert!(encode(Version::V2, &series).is_ok(), "the same text is there once");

        let body = snap::raw::Encoder::new().compress_vec(&vec![0; MAX_MESSAGE_LEN + 1]).unwrap();
        assert!(matches!(decode(Version::V1, &body), Err(Error::TooLong { .. })));
        let announced = [0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(matches!(decode(Version::V1, &announced), Err(Error::TooLong { .. })));

        let series = vec![series[0].clone(); 300];
        let body = encode(Version::V2, &series).unwrap();
        assert!(matches!(decode(Version::V2, &body), Err(Error::TooMuchText { .. })));
    }

    #[test]
    fn damaged_references_are_told() {
        let body = |message: &[u8]| snap::raw::Encoder::new().compress_vec(message).unwrap();
        let decode = |message: &[u8]| decode(Version::V2, &body(message));
        assert!(matches!(
            decode(b"\x22\x00\x2a\x03\x0a\x01\x00"),
            Err(Error::Unpaired { series: 0, references: 1 })
        ));
        assert!(matches!(
            decode(b"\x22\x00\x2a\x04\x0a\x02\x00\x01"),
            Err(Error::Symbol { series: 0, symbol: 1, symbols: 1 })
        ));
        assert!(matches!(decode(b"\x22\x01x"), Err(Error::FirstSymbol)));
        assert!(matches!(decode(b"\x22\x05x"), Err(Error::Message(_))));
        assert!(matches!(super::decode(Version::V1, b"\x05\xff"), Err(Error::Snappy(_))));
    }

    fn any_series() -> impl Strategy<Value = Series> {
        let others = btree_map("[a-z_][a-z0-9_]{0,3}x", "\\PC{0,5}", 0..4);
        let samples = vec((any::<u64>(), any::<i64>(), any::<i64>()), 0..4);
        (others, samples, any::<bool>()).prop_map(|(others, samples, has_metadata)| {
            let labels = Labels::new(others.into_iter().chain([(NAME.into(), "m:n".into())]));
            // A negative zero goes as zero.
            let samples = samples.into_iter().map(|(bits, time_ms, start_ms)| Sample {
                value: if bits == 1 << 63 { 0.0 } else { f64::from_bits(bits) },
                time_ms,
                start_ms,
            });
            let metadata = has_metadata.then(|| {
                let kind = MetricKind::Counter;
                Arc::new(Metadata { kind, help: "help".into(), unit: String::new() })
            });
            Series::new(labels.unwrap(), samples.collect(), metadata)
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(series in vec(any_series(), 0..5)) {
            for version in [Version::V1, Version::V2] {
                let body = encode(version, &series).unwrap();
                prop_assert_eq!(&body, &encode(version, &series).unwrap());
                let received = decode(version, &body).unwrap();
                prop_assert_eq!(received.series.len(), series.len());
                for (received, sent) in received.series.iter().zip(&series) {
                    let labels = sent.labels.iter().map(|(name, value)| (name.into(), value.into()));
                    prop_assert_eq!(&received.labels, &labels.collect::<Vec<_>>());
                    let start = |it: &Sample| if version == Version::V1 { 0 } else { it.start_ms };
                    let samples = sent.samples.iter().map(|it| Sample { start_ms: start(it), ..*it });
                    prop_assert_eq!(&received.samples, &samples.collect::<Vec<_>>());
                    let metadata = sent.metadata.as_deref().filter(|_| version == Version::V2);
                    prop_assert_eq!(received.metadata.as_ref(), metadata);
                }
            }
        }

        #[test]
        fn any_bytes_are_understood_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let packed = snap::raw::Encoder::new().compress_vec(&bytes).unwrap();
            for version in [Version::V1, Version::V2] {
                drop(decode(version, &bytes));
                drop(decode(version, &packed));
            }
        }
    }
}
