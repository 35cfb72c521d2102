//! Labels of a series as clients see them: its own, and those that tell its profile type.

use std::borrow::Cow;

use model::samples::Series;
use wire::pyroscope::LabelPair;

/// The name of the profile, such as `process_cpu`.
pub const NAME: &str = "__name__";

/// The profile type in one text.
pub const PROFILE_TYPE: &str = "__profile_type__";

/// The label that every series has.
pub const SERVICE_NAME: &str = "service_name";

/// A copy of it under another name.
const PRIVATE_SERVICE_NAME: &str = "__service_name__";

/// Labels that tell the profile type or repeat others.
const DERIVED: [&str; 7] = [
    NAME,
    "__period_type__",
    "__period_unit__",
    PROFILE_TYPE,
    PRIVATE_SERVICE_NAME,
    "__type__",
    "__unit__",
];

/// The value of a label; none when it is absent or empty.
#[must_use]
pub fn label<'a>(series: &'a Series, name: &str) -> Option<Cow<'a, str>> {
    let kind = &series.profile_type;
    let value = match name {
        NAME => &kind.name,
        "__type__" => &kind.sample_type,
        "__unit__" => &kind.sample_unit,
        "__period_type__" => &kind.period_type,
        "__period_unit__" => &kind.period_unit,
        PROFILE_TYPE => return Some(Cow::Owned(kind.to_string())),
        PRIVATE_SERVICE_NAME => return series.labels.get(SERVICE_NAME).map(Cow::Borrowed),
        own => return series.labels.get(own).map(Cow::Borrowed),
    };
    Some(Cow::Borrowed(value.as_str())).filter(|value| !value.is_empty())
}

/// Names of all labels that a series has, sorted.
#[must_use]
pub fn names(series: &Series) -> Vec<&str> {
    let derived = DERIVED.into_iter().filter(|name| label(series, name).is_some());
    let own = series.labels.iter().map(|(name, _)| name);
    let mut names: Vec<&str> = own.chain(derived).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Labels of some names, in the order of the names, without those that the series does not have.
pub(crate) fn pairs<'n>(
    series: &Series,
    names: impl IntoIterator<Item = &'n str>,
) -> Vec<LabelPair> {
    let pair = |name: &str| {
        Some(LabelPair { name: name.to_owned(), value: label(series, name)?.into_owned() })
    };
    names.into_iter().filter_map(pair).collect()
}

/// Whether a name is one that clients take who do not say that they take all: `[a-zA-Z_][a-zA-Z0-9_]*`.
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
