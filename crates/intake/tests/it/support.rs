//! Profiles to send, and what came of them as text.

use std::collections::BTreeMap;

use intake::{Limits, Taken};
use model::samples::Batch;
use wire::proto::{Writer, bits};

/// When everything here arrives.
pub(crate) const NOW: i64 = 1_800_000_000_000_000_000;

/// A profile in pprof, which may be as wrong as it likes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pprof {
    pub(crate) strings: Vec<String>,
    pub(crate) types: Vec<(u64, u64)>,
    pub(crate) period_type: (u64, u64),
    pub(crate) time_ns: i64,
    pub(crate) samples: Vec<Sample>,
    /// Id, begin, end, offset, file, build ID.
    pub(crate) mappings: Vec<[u64; 6]>,
    pub(crate) locations: Vec<Location>,
    /// Id, name, name in the file, file, first line.
    pub(crate) functions: Vec<[u64; 5]>,
}

/// Id, mapping, address, and of each line function and number.
type Location = (u64, u64, u64, Vec<(u64, i64)>);

#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    pub(crate) locations: Vec<u64>,
    pub(crate) values: Vec<i64>,
    /// Key, text, number.
    pub(crate) labels: Vec<(u64, u64, i64)>,
}

impl Pprof {
    /// `cpu/nanoseconds` by the same, of two functions: `main` (location 1) and `work` (location 2, in a mapped file, with `inner`
    /// inlined).
    pub(crate) fn small() -> Self {
        let mut new = Self::default();
        let [cpu, ns] = ["cpu", "nanoseconds"].map(|text| new.string(text));
        let [main, work, inner] = ["main", "work", "inner"].map(|text| new.string(text));
        let [source, file, build_id] = ["w.c", "/bin/w", "f00d"].map(|text| new.string(text));
        new.types = vec![(cpu, ns)];
        new.period_type = (cpu, ns);
        new.functions = vec![[1, main, main, 0, 0], [2, work, 0, source, 7], [3, inner, 0, 0, 0]];
        new.mappings = vec![[1, 0x4000, 0x5000, 0x100, file, build_id]];
        new.locations = vec![(1, 0, 9, vec![(1, 3)]), (2, 1, 0x4020, vec![(3, 5), (2, 8)])];
        new
    }

    /// The number of a string.
    pub(crate) fn string(&mut self, text: &str) -> u64 {
        if self.strings.is_empty() {
            self.strings.push(String::new());
        }
        let known = self.strings.iter().position(|other| other == text);
        let at = known.unwrap_or_else(|| {
            self.strings.push(text.to_owned());
            self.strings.len() - 1
        });
        at as u64
    }

    pub(crate) fn sample(
        mut self,
        locations: &[u64],
        values: &[i64],
        labels: &[(&str, &str)],
    ) -> Self {
        let labels = labels.iter().map(|(key, text)| (self.string(key), self.string(text), 0));
        let labels = labels.collect();
        self.samples.push(Sample {
            locations: locations.to_vec(),
            values: values.to_vec(),
            labels,
        });
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let value_type = |out: &mut Writer, field, (kind, unit): (u64, u64)| {
            out.message(field, |out| {
                out.uint(1, kind);
                out.uint(2, unit);
            });
        };
        for kind in &self.types {
            value_type(&mut out, 1, *kind);
        }
        for sample in &self.samples {
            out.message(2, |out| {
                out.packed(1, sample.locations.iter().copied());
                out.packed(2, sample.values.iter().copied().map(bits));
                for &(key, text, number) in &sample.labels {
                    out.message(3, |out| {
                        out.uint(1, key);
                        out.uint(2, text);
                        out.uint(3, bits(number));
                    });
                }
            });
        }
        for mapping in &self.mappings {
            out.message(3, |out| {
                (1..).zip(mapping).for_each(|(field, value)| out.uint(field, *value))
            });
        }
        for (id, mapping, address, lines) in &self.locations {
            out.message(4, |out| {
                out.uint(1, *id);
                out.uint(2, *mapping);
                out.uint(3, *address);
                for (function, line) in lines {
                    out.message(4, |out| {
                        out.uint(1, *function);
                        out.uint(2, bits(*line));
                    });
                }
            });
        }
        for function in &self.functions {
            out.message(5, |out| {
                (1..).zip(function).for_each(|(field, value)| out.uint(field, *value))
            });
        }
        for text in &self.strings {
            out.blob(6, text.as_bytes());
        }
        out.uint(9, bits(self.time_ns));
        value_type(&mut out, 11, self.period_type);
        out.bytes
    }
}

/// A stack, the root first.
pub(crate) fn stack_text(batch: &Batch, stack: model::samples::StackId) -> String {
    let frames = batch.frames_of(stack).rev();
    let names = frames.map(|frame| batch.text_of(batch.frame_of(frame).function).to_owned());
    names.collect::<Vec<_>>().join(";")
}

/// Of each type the sum of its values.
pub(crate) fn sums(taken: &Taken) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for sample in taken.batch.samples() {
        let series = taken.batch.series_of(sample.series);
        *sums.entry(series.profile_type.to_string()).or_default() += sample.value;
    }
    sums
}

/// A line for each sample: type, labels, stack, value.
pub(crate) fn shown(taken: &Taken) -> Vec<String> {
    let batch = &taken.batch;
    let lines = batch.samples().iter().map(|sample| {
        let series = batch.series_of(sample.series);
        let labels: Vec<String> =
            series.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (kind, labels) = (&series.profile_type, labels.join(","));
        format!("{kind} {{{labels}}} {} {}", stack_text(batch, sample.stack), sample.value)
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

/// Why the only profile was refused.
pub(crate) fn refusal(taken: &Taken) -> String {
    assert_eq!(taken.batch.samples(), [], "a refused profile leaves no sample");
    assert_eq!(taken.batch.all_series().count(), 0, "a refused profile leaves no series");
    match taken.profiles.as_slice() {
        [Err(refused)] => refused.error.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// The body of a recorded request, or a word that it is not there.
pub(crate) fn captured(name: &str) -> Option<Vec<u8>> {
    let folder = testkit::shared_dir().map(|dir| dir.join("captures/pyroscope-clients"));
    let read = folder.and_then(|folder| std::fs::read(folder.join(name)).ok());
    if read.is_none() {
        testkit::skip(&format!("no recorded request {name}"));
    }
    read
}

/// Recorded requests are of all times.
pub(crate) fn any_time() -> Limits {
    Limits { oldest: None, newest: None, ..Limits::default() }
}
