//! Labels of samples, which Pyroscope's agent for Java sends beside a recording.
//!
//! ```text
//! LabelsSnapshot  1 contexts map<int64, Context>   2 strings map<int64, string>   Context  1 labels map<int64, int64>
//! ```
//! Events have the number of a context; its labels' keys and values are numbers of strings.
//! Source: `jfr_labels.proto` of grafana/pyroscope.

use hashbrown::HashMap;
use wire::proto::{DecodeError, Reader, Value, signed};

use crate::error::Error;

/// Contexts and strings, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Snapshot<'a> {
    contexts: HashMap<i64, Vec<(i64, i64)>>,
    strings: HashMap<i64, &'a str>,
}

impl<'a> Snapshot<'a> {
    /// With so many labels of one context at most.
    pub(crate) fn decode(bytes: &'a [u8], most: usize) -> Result<Self, Error> {
        let mut snapshot = Self::default();
        let mut reader = Reader::new(bytes, "labels");
        while let Some((field, value)) = reader.field()? {
            match field {
                1 => {
                    let (number, mut context) = entry(value.bytes(&reader, "labels.context")?)?;
                    let mut labels = Vec::new();
                    while let Some((field, value)) = context.field()? {
                        if field == 1 {
                            if labels.len() == most {
                                let what = "labels of a context";
                                return Err(Error::TooMany { what, limit: most });
                            }
                            labels.push(pair(value.bytes(&context, "labels.label")?)?);
                        }
                    }
                    snapshot.contexts.insert(number, labels);
                }
                2 => {
                    let (number, text) = entry(value.bytes(&reader, "labels.string")?)?;
                    snapshot.strings.insert(number, text.text()?);
                }
                _ => {}
            }
        }
        Ok(snapshot)
    }

    /// Names and values; those that no string says are left out.
    pub(super) fn of(&self, context: i64) -> impl Iterator<Item = (&'a str, &'a str)> {
        let labels = self.contexts.get(&context).map(Vec::as_slice).unwrap_or_default();
        labels.iter().filter_map(|&(key, value)| Some((self.string(key)?, self.string(value)?)))
    }

    pub(super) fn string(&self, number: i64) -> Option<&'a str> {
        self.strings.get(&number).copied()
    }
}

/// Key and value of a map whose values are texts or messages.
fn entry(mut entry: Reader<'_>) -> Result<(i64, Reader<'_>), DecodeError> {
    let (mut number, mut inner) = (0, Reader { bytes: &[], ..entry });
    while let Some((field, value)) = entry.field()? {
        match (field, value) {
            (1, value) => number = signed(value.number(&entry)?),
            (2, Value::Bytes(bytes)) => inner = bytes,
            _ => {}
        }
    }
    Ok((number, inner))
}

/// Key and value of a map of numbers.
fn pair(mut entry: Reader<'_>) -> Result<(i64, i64), DecodeError> {
    let mut pair = (0, 0);
    while let Some((field, value)) = entry.field()? {
        match field {
            1 => pair.0 = signed(value.number(&entry)?),
            2 => pair.1 = signed(value.number(&entry)?),
            _ => {}
        }
    }
    Ok(pair)
}
