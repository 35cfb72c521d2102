//! Labels that every receiver takes as they are.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The label that is a series' metric name.
pub const NAME: &str = "__name__";

/// Labels of one series, its name included.
pub const MAX_LABELS: usize = 128;

/// Bytes of all names and values of one series.
pub const MAX_LABELS_LEN: usize = 64 << 10;

/// What names a series: sorted by name, none twice, none empty, with a metric name, all names of the legacy character set.
///
/// Receivers answer "taken" to other names and drop the series (Prometheus 2.53, names with dots; 3.5, series without name), so that
/// they are refused before. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, String)>", into = "Vec<(String, String)>")]
pub struct Labels(Arc<[(Box<str>, Box<str>)]>);

/// Why labels cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LabelsError {
    /// There is no metric name.
    #[error("no metric name")]
    NoName,
    /// A metric name of other characters than `[a-zA-Z_:][a-zA-Z0-9_:]*`.
    #[error("{name:?} is no metric name")]
    MetricName {
        /// What it is.
        name: String,
    },
    /// A label name of other characters than `[a-zA-Z_][a-zA-Z0-9_]*`.
    #[error("{name:?} is no label name")]
    LabelName {
        /// What it is.
        name: String,
    },
    /// A name that comes twice.
    #[error("label {name:?} comes twice")]
    Twice {
        /// What it is.
        name: String,
    },
    /// More than [`MAX_LABELS`].
    #[error("more than {MAX_LABELS} labels")]
    TooMany,
    /// More than [`MAX_LABELS_LEN`].
    #[error("{len} bytes of labels, the limit is {MAX_LABELS_LEN}")]
    TooLong {
        /// Names and values together.
        len: usize,
    },
}

impl Labels {
    /// Of names and values in any order, [`NAME`] among them. Empty values say nothing and are dropped.
    ///
    /// # Errors
    /// See [`LabelsError`].
    pub fn new(labels: impl IntoIterator<Item = (String, String)>) -> Result<Self, LabelsError> {
        let said = labels.into_iter().filter(|(_, value)| !value.is_empty());
        // One more shows that there are too many.
        let mut said: Vec<(String, String)> = said.take(MAX_LABELS + 1).collect();
        if said.len() > MAX_LABELS {
            return Err(LabelsError::TooMany);
        }
        let len = said.iter().map(|(name, value)| name.len() + value.len()).sum();
        if len > MAX_LABELS_LEN {
            return Err(LabelsError::TooLong { len });
        }
        said.sort();
        for (one, next) in said.iter().zip(said.iter().skip(1)) {
            if one.0 == next.0 {
                return Err(LabelsError::Twice { name: one.0.clone() });
            }
        }
        if let Some((name, _)) = said.iter().find(|(name, _)| !is_label_name(name)) {
            return Err(LabelsError::LabelName { name: name.clone() });
        }
        let all = said.into_iter().map(|(name, value)| (name.into(), value.into()));
        let labels = Self(all.collect());
        match labels.get(NAME) {
            None => Err(LabelsError::NoName),
            Some(name) if is_metric_name(name) => Ok(labels),
            Some(name) => Err(LabelsError::MetricName { name: name.to_owned() }),
        }
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// A label's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    /// The metric name.
    #[must_use]
    pub fn metric(&self) -> &str {
        self.get(NAME).unwrap_or_default()
    }
}

impl TryFrom<Vec<(String, String)>> for Labels {
    type Error = LabelsError;

    fn try_from(pairs: Vec<(String, String)>) -> Result<Self, LabelsError> {
        Self::new(pairs)
    }
}

impl From<Labels> for Vec<(String, String)> {
    fn from(labels: Labels) -> Self {
        labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

/// As Prometheus shows a series: `name{label="value",…}`.
impl std::fmt::Display for Labels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.metric())?;
        let others = self.iter().filter(|(name, _)| *name != NAME);
        for (number, (name, value)) in others.enumerate() {
            write!(f, "{}{name}={value:?}", if number == 0 { "{" } else { "," })?;
        }
        f.write_str(if self.0.len() > 1 { "}" } else { "" })
    }
}

/// Whether every receiver takes a text as metric name: `[a-zA-Z_:][a-zA-Z0-9_:]*`.
#[must_use]
pub fn is_metric_name(text: &str) -> bool {
    is_name(text, |c| c == ':')
}

/// Whether every receiver takes a text as label name: `[a-zA-Z_][a-zA-Z0-9_]*`.
#[must_use]
pub fn is_label_name(text: &str) -> bool {
    is_name(text, |_| false)
}

fn is_name(text: &str, too: impl Fn(char) -> bool) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || too(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Result<Labels, LabelsError> {
        Labels::new(all.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn labels_are_sorted_and_empty_ones_dropped() {
        let labels = labels(&[("z", "1"), (NAME, "m"), ("b", ""), ("B", "\"2\"")]).unwrap();
        let all: Vec<_> = labels.iter().collect();
        assert_eq!(all, [("B", "\"2\""), (NAME, "m"), ("z", "1")]);
        assert_eq!(labels.get("z"), Some("1"));
        assert_eq!(labels.get("b"), None);
        assert_eq!(labels.to_string(), r#"m{B="\"2\"",z="1"}"#);
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"[["B","\"2\""],["__name__","m"],["z","1"]]"#);
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
        assert!(serde_json::from_str::<Labels>(r#"[["a","x"]]"#).is_err());
    }

    #[test]
    fn what_receivers_may_drop_is_refused() {
        let name = |name: &str| LabelsError::LabelName { name: name.into() };
        assert_eq!(labels(&[("a", "x")]), Err(LabelsError::NoName));
        assert_eq!(labels(&[(NAME, "")]), Err(LabelsError::NoName));
        for wrong in ["a.b", "1a", "ä", "a:b"] {
            assert_eq!(labels(&[(NAME, "m"), (wrong, "x")]), Err(name(wrong)));
        }
        for wrong in ["a.b", "1a", "ä"] {
            let error = LabelsError::MetricName { name: wrong.into() };
            assert_eq!(labels(&[(NAME, wrong)]), Err(error));
        }
        assert!(labels(&[(NAME, "job:m:sum1")]).is_ok());
        assert_eq!(
            labels(&[(NAME, "m"), ("a", "x"), ("a", "y")]),
            Err(LabelsError::Twice { name: "a".into() })
        );
    }

    #[test]
    fn labels_are_bounded() {
        let many = (0..MAX_LABELS).map(|number| (format!("l{number}"), "x".to_owned()));
        assert_eq!(Labels::new(many), Err(LabelsError::NoName));
        let more = (0..=MAX_LABELS).map(|number| (format!("l{number}"), "x".to_owned()));
        assert_eq!(Labels::new(more), Err(LabelsError::TooMany));
        let long = labels(&[(NAME, "m"), ("a", &"x".repeat(MAX_LABELS_LEN))]);
        assert_eq!(long, Err(LabelsError::TooLong { len: MAX_LABELS_LEN + 10 }));
    }
}
