//! Labels of sums: those of a profile's series that a rule keeps, and the rule's.

use std::collections::BTreeMap;

use export::{Prefix, label_name, series_labels};
use hashbrown::HashMap;
use model::samples::{Batch, Series, SeriesId};
use wire::remote_write::{Labels, LabelsError, MAX_LABELS, MAX_LABELS_LEN};

use super::{COUNTER, Reason};
use crate::rule::{FUNCTION, RULE_ID, Rule};

/// Where a series of a profile goes by a rule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) group: u32,
    /// Labels of the series that have no place.
    pub(super) clashes: u32,
}

/// What series of one metric have in common: all but the function.
struct Group {
    labels: Result<Labels, Reason>,
    len: usize,
}

/// Groups, each with a number.
pub(super) struct Groups<'a> {
    batch: &'a Batch,
    /// By the rule's place: rules that name series in the same way have the same template.
    rules: Vec<usize>,
    templates: Vec<Template<'a>>,
    /// By template, and in it by the series' number.
    places: Vec<Vec<Option<Place>>>,
    groups: Vec<Group>,
    by_labels: HashMap<Labels, u32>,
}

/// How a rule names series.
#[derive(PartialEq, Eq)]
struct Template<'a> {
    metric: String,
    rule: Option<&'a str>,
    group_by: Option<&'a [String]>,
    external: &'a BTreeMap<String, String>,
    is_of_function: bool,
}

impl<'a> Groups<'a> {
    pub(super) fn new(rules: &[&'a Rule], prefix: &Prefix, batch: &'a Batch) -> Self {
        let mut templates = Vec::new();
        let mut of_rule = Vec::new();
        for rule in rules {
            let template = Template::new(rule, prefix);
            let known = templates.iter().position(|other| *other == template);
            of_rule.push(known.unwrap_or(templates.len()));
            if known.is_none() {
                templates.push(template);
            }
        }
        let places = templates.iter().map(|_| Vec::new()).collect();
        let by_labels = HashMap::new();
        Self { batch, rules: of_rule, templates, places, groups: Vec::new(), by_labels }
    }

    /// Where a series goes by a rule that takes it.
    ///
    /// # Panics
    ///
    /// For a rule that is not among those that this was made of.
    pub(super) fn of(&mut self, rule: u32, series: SeriesId) -> Place {
        let template = self.rules.get(rule as usize).copied().expect("a rule's place");
        let places = self.places.get_mut(template).expect("each template has places");
        if let Some(Some(known)) = places.get(series.index()) {
            return *known;
        }
        if places.len() <= series.index() {
            places.resize(series.index() + 1, None);
        }
        let template = self.templates.get(template).expect("it was just asked for");
        let (labels, clashes) = template.labels(self.batch.series_of(series));
        let next = model::intern::number(self.groups.len());
        let group = match &labels {
            Ok(labels) => *self.by_labels.entry(labels.clone()).or_insert(next),
            // Without labels nobody knows whether it is another's.
            Err(_) => next,
        };
        if group == next {
            let len = labels.as_ref().map_or(0, len);
            self.groups.push(Group { labels, len });
        }
        let place = Place { group, clashes };
        if let Some(known) = places.get_mut(series.index()) {
            *known = Some(place);
        }
        place
    }

    /// The labels of a group's series, those of a delta.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) fn labels(&self, group: u32, function: Option<&str>) -> Result<Labels, Reason> {
        let Group { labels, len } = model::intern::item(&self.groups, group);
        let labels = labels.as_ref().map_err(|reason| *reason)?;
        let Some(function) = function else { return Ok(labels.clone()) };
        if len + FUNCTION.len() + function.len() + COUNTER.len() > MAX_LABELS_LEN {
            return Err(Reason::LabelsTooLong);
        }
        let all = labels.iter().chain([(FUNCTION, function)]);
        made(Labels::new(all.map(|(name, value)| (name.to_owned(), value.to_owned()))))
    }
}

impl<'a> Template<'a> {
    fn new(rule: &'a Rule, prefix: &Prefix) -> Self {
        let draft = rule.draft();
        let metric = match &draft.metric {
            Some(name) => name.clone(),
            None => prefix.metric(rule.kind(), &draft.profile_type),
        };
        Self {
            metric,
            rule: draft.metric.is_some().then(|| rule.id()),
            group_by: draft.group_by.as_deref(),
            external: &draft.external_labels,
            is_of_function: rule.matching().is_some(),
        }
    }

    /// The labels of a group, all but the function, and how many of the profile's have no place.
    fn labels(&self, series: &Series) -> (Result<Labels, Reason>, u32) {
        let profile = series.labels.iter().filter(|(name, _)| {
            self.group_by
                .is_none_or(|wanted| label_name(name).is_some_and(|name| wanted.contains(&name)))
        });
        let external = self.external.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let rule = self.rule.map(|id| (RULE_ID, id));
        // A profile's label of this name has no place.
        let function = self.is_of_function.then_some((FUNCTION, ""));
        let own: Vec<(&str, &str)> = external.chain(rule).chain(function).collect();
        let found = match series_labels(&self.metric, profile, &own) {
            Ok(found) => found,
            Err(error) => return (made(Err(error)), 0),
        };
        let clashes = u32::try_from(found.clashes).unwrap_or(u32::MAX);
        let room = found.labels.iter().len() + usize::from(self.is_of_function);
        if room > MAX_LABELS {
            return (Err(Reason::TooManyLabels), clashes);
        }
        if len(&found.labels) + COUNTER.len() > MAX_LABELS_LEN {
            return (Err(Reason::LabelsTooLong), clashes);
        }
        (Ok(found.labels), clashes)
    }
}

fn len(labels: &Labels) -> usize {
    labels.iter().map(|(name, value)| name.len() + value.len()).sum()
}

fn made(labels: Result<Labels, LabelsError>) -> Result<Labels, Reason> {
    labels.map_err(|error| match error {
        LabelsError::TooMany => Reason::TooManyLabels,
        LabelsError::TooLong { .. } => Reason::LabelsTooLong,
        // Rules were checked, and a profile's names are made plain.
        _ => unreachable!("names of rules are those that receivers take: {error}"),
    })
}
