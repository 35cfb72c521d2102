//! OpenMetrics 1.0, the text format: samples with times, as `promtool tsdb create-blocks-from openmetrics` reads them.
//!
//! ```text
//! # TYPE requests_ns gauge
//! # HELP requests_ns What requests took.
//! requests_ns{service="shop"} 17 1795410015        value, time in seconds since 1970
//! # EOF
//! ```
//! A family of metrics stands together, in it each series, and the samples of a series by time: that is the caller's duty.
//! Source: OpenMetrics 1.0, section "Text Format".

use std::borrow::Cow;
use std::io::{self, Write};

use crate::remote_write::{Labels, NAME};

/// What a family of metrics is, as far as it is used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Values that go up and down.
    Gauge,
    /// Nothing is said. A counter `x_total` stands so where `x` is a gauge: the family of a counter would be `x`, too.
    Unknown,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Unknown => "unknown",
        }
    }
}

/// Writes families of metrics.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`, which should have a buffer.
    pub const fn new(out: W) -> Self {
        Self { out }
    }

    /// Begins a family.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn family(&mut self, name: &str, kind: Kind, help: &str) -> io::Result<()> {
        writeln!(self.out, "# TYPE {name} {}\n# HELP {name} {}", kind.as_str(), escaped(help))
    }

    /// A sample of a series of the family, at a time in milliseconds since 1970.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn sample(&mut self, labels: &Labels, value: f64, time_ms: i64) -> io::Result<()> {
        self.out.write_all(labels.metric().as_bytes())?;
        let mut before = '{';
        for (name, value) in labels.iter().filter(|(name, _)| *name != NAME) {
            write!(self.out, "{before}{name}=\"{}\"", escaped(value))?;
            before = ',';
        }
        let end = if before == '{' { "" } else { "}" };
        writeln!(self.out, "{end} {value} {}", seconds(time_ms))
    }

    /// What was written to. Nothing says that it is whole: [`Self::finish`] does.
    #[must_use]
    pub fn into_inner(self) -> W {
        self.out
    }

    /// The same meanwhile: lines that another [`Writer`] wrote may be added to it.
    pub const fn inner(&mut self) -> &mut W {
        &mut self.out
    }

    /// Writes that this is all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(b"# EOF\n")?;
        self.out.flush()?;
        Ok(self.out)
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n"))
}

/// Seconds, which Prometheus reads as a floating number, multiplies by 1,000 and cuts off: where that would be a millisecond less, a tenth of
/// one is added.
fn seconds(time_ms: i64) -> String {
    let (whole, rest) = (time_ms.unsigned_abs() / 1_000, time_ms.unsigned_abs() % 1_000);
    let sign = if time_ms < 0 { "-" } else { "" };
    if rest == 0 {
        return format!("{sign}{whole}");
    }
    let text = format!("{sign}{whole}.{rest:03}");
    let is_read = text.parse::<f64>().is_ok_and(|seconds| as_prometheus(seconds) == time_ms);
    if is_read { text } else { format!("{text}1") }
}

#[expect(clippy::cast_possible_truncation, reason = "that is what Prometheus does")]
const fn as_prometheus(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Labels {
        Labels::new(all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
            .unwrap()
    }

    #[test]
    fn a_family_is_said_and_then_its_samples() {
        let mut out = Writer::new(Vec::new());
        out.family("m_ns", Kind::Gauge, "a \\ and \"b\"\nc").unwrap();
        out.sample(&labels(&[(NAME, "m_ns")]), 5.0, 15_000).unwrap();
        let odd = labels(&[("A", "x"), (NAME, "m_ns"), ("path", "C:\\a \"b\"\né")]);
        out.sample(&odd, -3.0, 1_795_410_015_500).unwrap();
        out.sample(&odd, 9_007_199_254_740_992.0, 1_795_410_016_000).unwrap();
        let text = String::from_utf8(out.finish().unwrap()).unwrap();
        let expected = r#"# TYPE m_ns gauge
# HELP m_ns a \\ and \"b\"\nc
m_ns 5 15
m_ns{A="x",path="C:\\a \"b\"\né"} -3 1795410015.500
m_ns{A="x",path="C:\\a \"b\"\né"} 9007199254740992 1795410016
# EOF
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn times_are_those_that_prometheus_reads() {
        for time_ms in (1_795_410_015_000..1_795_410_025_000).chain(-2_500..9_000) {
            let text = seconds(time_ms);
            assert_eq!(as_prometheus(text.parse().unwrap()), time_ms, "{text}");
        }
        assert_eq!(seconds(-1_500), "-1.500");
        // As it stands it would be read as 1000 ms.
        assert_eq!(seconds(1_001), "1.0011");
    }
}
