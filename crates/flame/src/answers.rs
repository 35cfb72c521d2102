//! What there is: profile types, labels, series.

use std::collections::BTreeSet;

use model::Timestamp;
use model::samples::{ProfileType, Series};
use wire::pyroscope::{
    GetProfileStatsResponse, LabelNamesResponse, LabelPair, LabelValuesResponse, Labels,
    ProfileType as Kind, ProfileTypesResponse, SeriesResponse,
};

use crate::labels::{is_plain_name, label, names, pairs};
use crate::select::millis;
use crate::selector::Selector;

/// Which label names a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelSet {
    /// Those of letters, digits and underscores.
    Plain,
    /// All, as its header `Accept: …;allow-utf8-labelnames=true` says.
    Utf8,
}

impl LabelSet {
    fn takes(self, name: &str) -> bool {
        self == Self::Utf8 || is_plain_name(name)
    }
}

/// Profile types, each once, by their ids.
#[must_use]
pub fn profile_types<'a>(types: impl IntoIterator<Item = &'a ProfileType>) -> ProfileTypesResponse {
    let mut profile_types: Vec<Kind> = types.into_iter().map(kind).collect();
    profile_types.sort_by(|a, b| a.id.cmp(&b.id));
    profile_types.dedup();
    ProfileTypesResponse { profile_types }
}

fn kind(of: &ProfileType) -> Kind {
    Kind {
        id: of.to_string(),
        name: of.name.clone(),
        sample_type: of.sample_type.clone(),
        sample_unit: of.sample_unit.clone(),
        period_type: of.period_type.clone(),
        period_unit: of.period_unit.clone(),
    }
}

/// Series that one of the selectors means; all without selectors.
fn meant<'a>(
    series: impl IntoIterator<Item = &'a Series>,
    selectors: &[Selector],
) -> impl Iterator<Item = &'a Series> {
    series.into_iter().filter(|series| {
        selectors.is_empty() || selectors.iter().any(|selector| selector.matches(series))
    })
}

/// Names of labels, sorted.
#[must_use]
pub fn label_names<'a>(
    series: impl IntoIterator<Item = &'a Series>,
    selectors: &[Selector],
    set: LabelSet,
) -> LabelNamesResponse {
    let found: BTreeSet<&str> = meant(series, selectors).flat_map(names).collect();
    let found = found.into_iter().filter(|name| set.takes(name));
    LabelNamesResponse { names: found.map(str::to_owned).collect() }
}

/// Values of a label, sorted.
#[must_use]
pub fn label_values<'a>(
    series: impl IntoIterator<Item = &'a Series>,
    selectors: &[Selector],
    name: &str,
) -> LabelValuesResponse {
    let found: BTreeSet<_> =
        meant(series, selectors).filter_map(|series| label(series, name)).collect();
    LabelValuesResponse { names: found.into_iter().map(|value| value.into_owned()).collect() }
}

/// Label sets, each once, sorted; of these names only, where there are any. A series that has none of them is no label set.
#[must_use]
pub fn series<'a>(
    series: impl IntoIterator<Item = &'a Series>,
    selectors: &[Selector],
    label_names: &[String],
    set: LabelSet,
) -> SeriesResponse {
    let wanted: BTreeSet<&str> = label_names.iter().map(String::as_str).collect();
    let labels_of = |series: &Series| {
        let takes = |name: &&str| set.takes(name);
        if wanted.is_empty() {
            pairs(series, names(series).into_iter().filter(takes))
        } else {
            pairs(series, wanted.iter().copied().filter(takes))
        }
    };
    let mut sets: Vec<Vec<LabelPair>> = meant(series, selectors).map(labels_of).collect();
    sets.sort_unstable_by(|a, b| by_labels(a, b));
    sets.dedup();
    let sets = sets.into_iter().filter(|labels| !labels.is_empty());
    SeriesResponse { labels_set: sets.map(|labels| Labels { labels }).collect() }
}

/// The order of label sets: pair by pair, name before value.
pub(crate) fn by_labels(a: &[LabelPair], b: &[LabelPair]) -> std::cmp::Ordering {
    fn keys(pairs: &[LabelPair]) -> impl Iterator<Item = (&str, &str)> {
        pairs.iter().map(|pair| (pair.name.as_str(), pair.value.as_str()))
    }
    keys(a).cmp(keys(b))
}

/// When the oldest and the newest sample were taken; none when there is none.
#[must_use]
pub fn profile_stats(times: Option<(Timestamp, Timestamp)>) -> GetProfileStatsResponse {
    let (oldest, newest) = times.map_or((0, 0), |(a, b)| (millis(a), millis(b)));
    GetProfileStatsResponse {
        data_ingested: times.is_some(),
        oldest_profile_time: oldest,
        newest_profile_time: newest,
    }
}
