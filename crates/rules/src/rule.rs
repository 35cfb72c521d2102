//! One rule: which samples are summed, by what, and what the sums are called.

use std::collections::BTreeMap;

use export::Metric;
use flame::{Matcher, PROFILE_TYPE, Selector, Test};
use model::samples::{ProfileType, Series};
use serde::{Deserialize, Serialize};
use wire::remote_write::{is_label_name, is_metric_name};

use crate::error::{Error, Fault};
use crate::functions::{Functions, Matching};

/// What names of metrics begin with that rules choose themselves, as Pyroscope has it (`ValidateMetricName` of its `pkg/model`).
pub const METRIC_PREFIX: &str = "profiles_recorded_";

/// The label that says which rule a metric with a name of its own comes from.
pub const RULE_ID: &str = "profiles_rule_id";

/// The label that says of which function a series is.
pub const FUNCTION: &str = "function";

/// Letters of an id that is made here; Pyroscope makes as many.
pub(crate) const ID_LETTERS: usize = 10;

/// Letters of an id.
pub(crate) const MAX_ID_LETTERS: usize = 64;
/// Bytes of a metric's name.
pub(crate) const MAX_METRIC_BYTES: usize = 200;
/// Matchers of a rule, all texts of them together.
pub const MAX_MATCHERS: usize = 32;
/// Bytes of a rule's matchers together.
pub(crate) const MAX_MATCHER_BYTES: usize = 16 << 10;
/// Labels that a rule groups by, and labels that it adds.
pub const MAX_LABELS: usize = 32;
/// Bytes of a label's name, as of Pyroscope's series.
pub(crate) const MAX_NAME_BYTES: usize = 1024;
/// Bytes of a label's value, as of Pyroscope's series.
pub(crate) const MAX_VALUE_BYTES: usize = 2048;
/// Bytes of what a function's name, package or file must be.
pub const MAX_PATTERN_BYTES: usize = 2048;

/// A rule as it is written, in a configuration or in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Draft {
    /// Letters; when there are none, made of what else the rule says.
    pub id: String,
    /// The metric's name, which begins with [`METRIC_PREFIX`]; without it series have the names of Pyroscope's proof of concept
    /// ([`export::Prefix`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// Of which profile type.
    pub profile_type: String,
    /// Selectors of series, all of which must hold, such as `{service_name="shop", pod!~"canary-.*"}`.
    pub matchers: Vec<String>,
    /// Labels of a profile that series have; without it all that are not internal. A name stands for the label that is exported
    /// under it, too: `k8s_pod_name` for `k8s.pod.name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_by: Option<Vec<String>>,
    /// Labels that series have besides. They win over a profile's.
    pub external_labels: BTreeMap<String, String>,
    /// Which functions have a series each; without it all samples are one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub functions: Option<Functions>,
    /// What of a function is summed.
    pub value: Value,
}

/// What of a function is summed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Value {
    /// Samples whose stack has it anywhere.
    #[default]
    Total,
    /// Samples whose stack ends in it.
    #[serde(rename = "self")]
    Own,
}

/// A rule that can be used.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Draft", into = "Draft")]
pub struct Rule {
    draft: Draft,
    profile_type: ProfileType,
    selector: Selector,
    matching: Option<Matching>,
}

impl PartialEq for Rule {
    /// All else is made of what is written.
    fn eq(&self, other: &Self) -> bool {
        self.draft == other.draft
    }
}

impl Eq for Rule {}

impl From<Rule> for Draft {
    fn from(rule: Rule) -> Self {
        rule.draft
    }
}

impl TryFrom<Draft> for Rule {
    type Error = Error;

    /// # Errors
    ///
    /// [`Error::Field`] for the first field that is wrong.
    fn try_from(mut draft: Draft) -> Result<Self, Error> {
        if draft.id.is_empty() {
            draft.id = id_of(&draft, 0);
        }
        id(&draft.id).map_err(|what| Error::field("id", what))?;
        if let Some(name) = &draft.metric {
            metric(name).map_err(|what| Error::field("metric", what))?;
        }
        let profile_type =
            profile_type(&draft.profile_type).map_err(|what| Error::field("profile_type", what))?;
        let selector = selector(&draft.matchers, &draft.profile_type)
            .map_err(|what| Error::field("matchers", what))?;
        if let Some(names) = &draft.group_by {
            labels(&draft, names.iter()).map_err(|what| Error::field("group_by", what))?;
        }
        let given = labels(&draft, draft.external_labels.keys());
        let given = given.and_then(|()| {
            draft.external_labels.values().try_for_each(|value| short(value, MAX_VALUE_BYTES))
        });
        given.map_err(|what| Error::field("external_labels", what))?;
        let matching = draft.functions.as_ref().map(Matching::new).transpose();
        let matching = matching.map_err(|what| Error::field("functions", what))?;
        Ok(Self { draft, profile_type, selector, matching })
    }
}

impl Rule {
    /// As it was written, but for an id that was made.
    #[must_use]
    pub const fn draft(&self) -> &Draft {
        &self.draft
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.draft.id
    }

    /// Of which profile type its samples are.
    #[must_use]
    pub const fn profile_type(&self) -> &ProfileType {
        &self.profile_type
    }

    /// Whether samples of a series are summed.
    #[must_use]
    pub fn takes(&self, series: &Series) -> bool {
        series.profile_type == self.profile_type && self.selector.matches(series)
    }

    /// Which functions it is of.
    pub(crate) const fn matching(&self) -> Option<&Matching> {
        self.matching.as_ref()
    }

    pub(crate) fn is_own(&self) -> bool {
        self.draft.value == Value::Own
    }

    /// Which of the default form's metrics its series are.
    pub(crate) fn kind(&self) -> Metric {
        match (&self.draft.functions, self.draft.value) {
            (None, _) => Metric::Profile,
            (Some(_), Value::Total) => Metric::Function,
            (Some(_), Value::Own) => Metric::FunctionSelf,
        }
    }
}

/// An id of letters that is the same for the same rule and number.
pub(crate) fn id_of(draft: &Draft, number: u64) -> String {
    use sha2::{Digest, Sha256};
    const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let text = serde_json::to_vec(draft).expect("a draft has no keys but texts");
    let hash = Sha256::new().chain_update(text).chain_update(number.to_le_bytes()).finalize();
    let letter = |byte: &u8| LETTERS.get(usize::from(*byte) % LETTERS.len()).copied();
    hash.iter().filter_map(letter).take(ID_LETTERS).map(char::from).collect()
}

fn id(text: &str) -> Result<(), Fault> {
    short(text, MAX_ID_LETTERS)?;
    match text.bytes().all(|letter| letter.is_ascii_alphabetic()) {
        true => Ok(()),
        false => Err(Fault::Letters { text: text.to_owned() }),
    }
}

fn metric(name: &str) -> Result<(), Fault> {
    short(name, MAX_METRIC_BYTES)?;
    match name.strip_prefix(METRIC_PREFIX) {
        Some(rest) if !rest.is_empty() && is_metric_name(name) => Ok(()),
        _ => Err(Fault::Metric { text: name.to_owned(), prefix: METRIC_PREFIX }),
    }
}

fn profile_type(text: &str) -> Result<ProfileType, Fault> {
    if text.is_empty() {
        return Err(Fault::Missing);
    }
    short(text, MAX_NAME_BYTES)?;
    let parsed: Result<ProfileType, _> = text.parse();
    // A sixth part would be another text for the same type.
    let parsed = parsed.ok().filter(|parsed| parsed.to_string() == text);
    parsed.ok_or_else(|| Fault::ProfileType { text: text.to_owned() })
}

/// What all matchers say together. One may say the profile type, which must be the rule's.
fn selector(matchers: &[String], profile_type: &str) -> Result<Selector, Fault> {
    let len = matchers.iter().map(String::len).sum();
    if len > MAX_MATCHER_BYTES {
        return Err(Fault::TooLong { len, limit: MAX_MATCHER_BYTES });
    }
    let mut all: Vec<Matcher> = Vec::new();
    for text in matchers {
        all.extend_from_slice(parse(text)?.matchers());
    }
    if all.len() > MAX_MATCHERS {
        return Err(Fault::TooMany { count: all.len(), limit: MAX_MATCHERS });
    }
    let mut of_type = all.iter().filter(|matcher| matcher.name == PROFILE_TYPE);
    match (of_type.next().map(|matcher| &matcher.test), of_type.next()) {
        (None, _) => {}
        (Some(Test::Equal(text)), None) if text == profile_type => {}
        _ => return Err(Fault::TypeMatcher),
    }
    Ok(Selector::all(all))
}

/// A selector, whose braces may be left out.
fn parse(text: &str) -> Result<Selector, Fault> {
    // Of a bare matcher the sign comes first.
    let is_bare = text.chars().find(|sign| "{=!".contains(*sign)).is_some_and(|sign| sign != '{');
    let parsed = match is_bare {
        true => Selector::parse(&format!("{{{text}}}")),
        false => Selector::parse(text),
    };
    parsed.map_err(Fault::Matcher)
}

/// The one profile type that matchers say.
///
/// # Errors
///
/// [`Error::Field`] when they say none or several, or are no matchers.
pub(crate) fn type_of(matchers: &[String]) -> Result<String, Error> {
    let wrong = |what| Error::field("matchers", what);
    let mut found = Vec::new();
    for text in matchers {
        found.extend_from_slice(parse(text).map_err(wrong)?.matchers());
    }
    let mut of_type = found.into_iter().filter(|matcher| matcher.name == PROFILE_TYPE);
    match (of_type.next().map(|matcher| matcher.test), of_type.next()) {
        (Some(Test::Equal(text)), None) => Ok(text),
        _ => Err(wrong(Fault::TypeMatcher)),
    }
}

/// Names of labels that a rule gives.
fn labels<'a>(
    draft: &Draft,
    names: impl ExactSizeIterator<Item = &'a String> + Clone,
) -> Result<(), Fault> {
    if names.len() > MAX_LABELS {
        return Err(Fault::TooMany { count: names.len(), limit: MAX_LABELS });
    }
    let mut seen = Vec::new();
    for name in names {
        short(name, MAX_NAME_BYTES)?;
        if !is_label_name(name) {
            return Err(Fault::LabelName { text: name.clone() });
        }
        let is_given = name == RULE_ID || (name == FUNCTION && draft.functions.is_some());
        if name.starts_with("__") || is_given {
            return Err(Fault::Reserved { text: name.clone() });
        }
        if seen.contains(&name) {
            return Err(Fault::Twice { text: name.clone() });
        }
        seen.push(name);
    }
    Ok(())
}

pub(crate) const fn short(text: &str, limit: usize) -> Result<(), Fault> {
    match text.len() {
        len if len > limit => Err(Fault::TooLong { len, limit }),
        _ => Ok(()),
    }
}
