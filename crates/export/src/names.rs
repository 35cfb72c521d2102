//! What exported series are called.
//!
//! | metric | what it is |
//! |---|---|
//! | `PREFIX_TYPE` | of all samples of a profile type: the sum of each cell |
//! | `PREFIX_functions_TYPE{function="…"}` | of the samples in a function, and in what it calls |
//! | `PREFIX_functions_self_TYPE{function="…"}` | of the samples in a function itself |
//! | `…_total` | the same as a counter: added up since its start time |
//!
//! The prefix and the form of the names are those of Pyroscope's proof of concept (grafana/pyroscope, pull request 3718).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::str::FromStr;

use wire::remote_write::{Labels, LabelsError, NAME, is_metric_name};

/// The prefix of the proof of concept.
pub const DEFAULT_PREFIX: &str = "pyroscope_exported_metrics";

/// What metrics' names begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix(String);

/// A text that no metric name can begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a prefix has letters, digits, underscores and colons, and begins with none of the digits")]
pub struct PrefixError;

impl Default for Prefix {
    fn default() -> Self {
        Self(DEFAULT_PREFIX.to_owned())
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        if is_metric_name(text) { Ok(Self(text.to_owned())) } else { Err(PrefixError) }
    }
}

/// What a metric is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Of all samples: what each cell adds.
    Profile,
    /// Of all samples: a counter.
    ProfileTotal,
    /// Of the samples in one function: what each cell adds.
    Function,
    /// Of the samples in one function: a counter.
    FunctionTotal,
    /// Of the samples in one function itself, not in what it calls: what each cell adds.
    FunctionSelf,
    /// Of the samples in one function itself: a counter.
    FunctionSelfTotal,
}

impl Prefix {
    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a metric of a profile type such as `process_cpu:cpu:nanoseconds:cpu:nanoseconds`.
    #[must_use]
    pub fn metric(&self, metric: Metric, profile_type: &str) -> String {
        let (middle, end) = match metric {
            Metric::Profile => ("", ""),
            Metric::ProfileTotal => ("", "_total"),
            Metric::Function => ("_functions", ""),
            Metric::FunctionTotal => ("_functions", "_total"),
            Metric::FunctionSelf => ("_functions_self", ""),
            Metric::FunctionSelfTotal => ("_functions_self", "_total"),
        };
        format!("{}{middle}_{}{end}", self.0, type_part(profile_type))
    }
}

/// A profile type as a part of a metric name: what is neither letter, digit nor underscore is an underscore. An empty part keeps its separator.
#[must_use]
pub fn type_part(profile_type: &str) -> String {
    profile_type.chars().map(plain).collect()
}

fn plain(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '_' }
}

/// A label's name as receivers take it; `None` for an internal one (`__…`), which stays at home, and for none at all.
///
/// A name that would become internal, as `..a` would, begins with one underscore.
#[must_use]
pub fn label_name(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with("__") {
        return None;
    }
    let name: String = name.chars().map(plain).collect();
    match name.trim_start_matches('_') {
        rest if name.starts_with("__") => Some(format!("_{rest}")),
        rest if rest.starts_with(|c: char| c.is_ascii_digit()) => Some(format!("_{rest}")),
        _ => Some(name),
    }
}

/// Labels of a series that is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesLabels {
    /// The labels.
    pub labels: Labels,
    /// How many were left out because another has the same name once both are as receivers take them.
    pub clashes: usize,
}

/// The labels of the series of `metric` that has the labels of a profile, and `own` ones of ours, such as `function`.
///
/// Ours win over a profile's; of those of a profile that get the same name, the first by the bytes of its own name.
///
/// # Errors
/// When there are too many or they are too long, and for a metric or a name of ours that no receiver takes.
pub fn series_labels<'a>(
    metric: &str,
    profile: impl IntoIterator<Item = (&'a str, &'a str)>,
    own: &[(&str, &str)],
) -> Result<SeriesLabels, LabelsError> {
    let name = [(NAME, metric)];
    let own = name.iter().chain(own).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut all: BTreeMap<String, String> = own.collect();
    let mut profile: Vec<_> = profile.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    profile.sort_unstable();
    let mut clashes = 0;
    for (name, value) in profile {
        let Some(name) = label_name(name) else { continue };
        match all.entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(value.to_owned());
            }
            Entry::Occupied(_) => clashes += 1,
        }
    }
    Ok(SeriesLabels { labels: Labels::new(all)?, clashes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_called_as_in_the_proof_of_concept() {
        let prefix = Prefix::default();
        let cpu = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
        for (metric, name) in [
            (
                Metric::Profile,
                "pyroscope_exported_metrics_process_cpu_cpu_nanoseconds_cpu_nanoseconds",
            ),
            (
                Metric::Function,
                "pyroscope_exported_metrics_functions_process_cpu_cpu_nanoseconds_cpu_nanoseconds",
            ),
            (
                Metric::ProfileTotal,
                "pyroscope_exported_metrics_process_cpu_cpu_nanoseconds_cpu_nanoseconds_total",
            ),
            (
                Metric::FunctionTotal,
                "pyroscope_exported_metrics_functions_process_cpu_cpu_nanoseconds_cpu_nanoseconds_total",
            ),
        ] {
            assert_eq!(prefix.metric(metric, cpu), name);
        }
        let own = prefix.metric(Metric::FunctionSelf, "a:b:c:d:e");
        assert_eq!(own, "pyroscope_exported_metrics_functions_self_a_b_c_d_e");
        assert_eq!(prefix.metric(Metric::FunctionSelfTotal, "a:b:c:d:e"), format!("{own}_total"));
        let short: Prefix = "team:p".parse().unwrap();
        let tlab = "memory:alloc_in_new_tlab_bytes:bytes::";
        let name = short.metric(Metric::Profile, tlab);
        assert_eq!(name, "team:p_memory_alloc_in_new_tlab_bytes_bytes__");
        for wrong in ["", "1a", "a.b", "a b"] {
            assert_eq!(wrong.parse::<Prefix>(), Err(PrefixError));
        }
    }

    #[test]
    fn label_names_are_those_that_every_receiver_takes() {
        for (name, expected) in [
            ("service_name", Some("service_name")),
            ("k8s.pod-name", Some("k8s_pod_name")),
            ("größe", Some("gr__e")),
            ("9lives", Some("_9lives")),
            ("..a", Some("_a")),
            (".", Some("_")),
            ("._", Some("_")),
            ("_a", Some("_a")),
            ("__name__", None),
            ("__session_id__", None),
            ("", None),
        ] {
            assert_eq!(label_name(name).as_deref(), expected, "{name:?}");
        }
    }

    #[test]
    fn of_names_that_clash_ours_wins_and_then_the_first_by_bytes() {
        let profile = [
            ("a_b", "3"),
            ("a.b", "2"),
            ("a-b", ""),
            ("function", "theirs"),
            ("__name__", "process_cpu"),
            ("pod", "x"),
        ];
        let made = series_labels("m", profile, &[("function", "main.work")]).unwrap();
        let labels: Vec<_> = made.labels.iter().collect();
        assert_eq!(
            labels,
            [("__name__", "m"), ("a_b", "2"), ("function", "main.work"), ("pod", "x")]
        );
        assert_eq!(made.clashes, 2);
        let mut reversed = profile;
        reversed.reverse();
        assert_eq!(series_labels("m", reversed, &[("function", "main.work")]).unwrap(), made);
        assert!(series_labels("m", profile, &[("a.b", "x")]).is_err());
    }
}
