//! Pyroscope's `settings.v1.RecordingRulesService`, from requests and a book to answers and the book after.
//!
//! What Pyroscope's messages cannot say is in a field of ours ([`RuleExtension`]); whoever does not send it cannot change a rule that
//! needs it, as it would become another rule unseen.

use std::collections::BTreeMap;

use wire::pyroscope::{
    Code, DeleteRecordingRuleRequest, DeleteRecordingRuleResponse, Error as Failure,
    GetRecordingRuleRequest, GetRecordingRuleResponse, LabelPair, ListRecordingRulesResponse,
    MetricType, RecordingRule, RuleExtension, StacktraceFilter, StacktraceFilterFunctionName,
    UpsertRecordingRuleRequest, UpsertRecordingRuleResponse,
};

use crate::book::{Book, BookLimits, Version};
use crate::error::Error;
use crate::functions::Functions;
use crate::rule::{Draft, RULE_ID, Rule, Value, type_of};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Field { .. } | Error::Clash { .. } | Error::Twice { .. } => {
                Code::InvalidArgument
            }
            Error::Conflict { .. } => Code::AlreadyExists,
            Error::Missing { .. } => Code::NotFound,
            Error::Provisioned { .. } => Code::PermissionDenied,
            Error::TooMany { .. } | Error::TooOften { .. } => Code::ResourceExhausted,
        };
        Self::new(code, error.to_string())
    }
}

/// `ListRecordingRules`: those in force, by id.
#[must_use]
pub fn list_rules(book: &Book) -> ListRecordingRulesResponse {
    ListRecordingRulesResponse { rules: book.present().into_iter().map(shown).collect() }
}

/// `GetRecordingRule`.
///
/// # Errors
///
/// `not_found`.
pub fn get_rule(
    book: &Book,
    asked: &GetRecordingRuleRequest,
) -> Result<GetRecordingRuleResponse, Failure> {
    let id = asked.id.trim();
    let found = book.get(id).ok_or_else(|| Error::Missing { id: id.to_owned() })?;
    Ok(GetRecordingRuleResponse { rule: Some(shown(found)) })
}

/// `UpsertRecordingRule`, for cells from one on. A rule without an id is made; others take the place of the one of their generation.
///
/// # Errors
///
/// `invalid_argument`; `already_exists` for another generation, `permission_denied` for a rule of the configuration,
/// `resource_exhausted` for one too many. The book is as it was then.
pub fn upsert_rule(
    book: &mut Book,
    asked: UpsertRecordingRuleRequest,
    from_ms: i64,
    limits: &BookLimits,
) -> Result<UpsertRecordingRuleResponse, Failure> {
    let generation = u64::try_from(asked.generation)
        .map_err(|_negative| Failure::invalid("generation must be 0 or more"))?;
    let expected = (!asked.id.is_empty()).then_some(generation);
    let known = book.get(&asked.id).filter(|known| !known.is_provisioned);
    let needs_more = known.is_some_and(|known| extension(known.rule.draft()).is_some());
    if asked.throughline.is_none() && needs_more {
        let words = "the rule says what this request has no field for; change it by one that has the field throughline";
        return Err(Failure::new(Code::FailedPrecondition, words));
    }
    let rule = book.upsert(drafted(asked)?, expected, from_ms, limits)?;
    Ok(UpsertRecordingRuleResponse { rule: Some(shown(rule)) })
}

/// `DeleteRecordingRule`, from a cell on.
///
/// # Errors
///
/// `not_found`, `permission_denied` for a rule of the configuration.
pub fn delete_rule(
    book: &mut Book,
    asked: &DeleteRecordingRuleRequest,
    from_ms: i64,
) -> Result<DeleteRecordingRuleResponse, Failure> {
    book.delete(asked.id.trim(), None, from_ms)?;
    Ok(DeleteRecordingRuleResponse {})
}

/// What a request says.
fn drafted(asked: UpsertRecordingRuleRequest) -> Result<Draft, Failure> {
    let profile_type = type_of(&asked.matchers)?;
    let name = asked.metric_name.trim();
    let has_name = !name.is_empty() || asked.throughline.is_none();
    let metric = has_name.then(|| name.to_owned());
    let (functions, value) = functions(asked.stacktrace_filter, asked.throughline.as_ref())?;
    let is_all = asked.throughline.is_some_and(|more| more.all_labels);
    if is_all && !asked.group_by.is_empty() {
        return Err(Failure::invalid("series have all labels, or those of group_by"));
    }
    let mut external_labels = BTreeMap::new();
    for LabelPair { name, value } in asked.external_labels {
        // As Pyroscope does, which gives these itself.
        if name == "__name__" || name == RULE_ID {
            continue;
        }
        if external_labels.insert(name.clone(), value).is_some() {
            return Err(Failure::invalid(format!("external_labels: {name:?} is there twice")));
        }
    }
    Ok(Draft {
        id: asked.id,
        metric,
        profile_type,
        matchers: asked.matchers,
        group_by: (!is_all).then_some(asked.group_by),
        external_labels,
        functions,
        value,
    })
}

/// Functions by a text.
type Make = fn(String) -> Functions;

fn functions(
    filter: Option<StacktraceFilter>,
    more: Option<&RuleExtension>,
) -> Result<(Option<Functions>, Value), Failure> {
    let mut all = Vec::new();
    if let Some(filter) = filter.and_then(|filter| filter.function_name) {
        if filter.metric_type != i32::from(MetricType::Total) {
            return Err(Failure::invalid("the only metric_type is TOTAL"));
        }
        all.push(Functions::Exact(filter.function_name));
    }
    let mut value = Value::Total;
    if let Some(more) = more {
        let texts: [(&String, Make); 5] = [
            (&more.exact, Functions::Exact),
            (&more.prefix, Functions::Prefix),
            (&more.regex, Functions::Regex),
            (&more.package, Functions::Package),
            (&more.file, Functions::File),
        ];
        let said = texts.into_iter().filter(|(text, _)| !text.is_empty());
        all.extend(said.map(|(text, make)| make(text.clone())));
        if more.is_self {
            value = Value::Own;
        }
    }
    let functions = all.pop();
    match all.is_empty() {
        true => Ok((functions, value)),
        false => Err(Failure::invalid("functions are said in two ways")),
    }
}

/// A rule as clients are shown it.
fn shown(version: &Version) -> RecordingRule {
    let draft = version.rule.draft();
    let mut matchers = draft.matchers.clone();
    // Clients look for the profile type here.
    if type_of(&matchers).is_err() {
        matchers.insert(0, format!("{{__profile_type__={:?}}}", draft.profile_type));
    }
    let external = draft.external_labels.iter();
    let external =
        external.map(|(name, value)| LabelPair { name: name.clone(), value: value.clone() });
    let name = match (&draft.functions, draft.value) {
        (Some(Functions::Exact(name)), Value::Total) => Some(name.clone()),
        _ => None,
    };
    let filter = name.map(|function_name| StacktraceFilterFunctionName {
        function_name,
        metric_type: MetricType::Total.into(),
    });
    RecordingRule {
        id: draft.id.clone(),
        metric_name: draft.metric.clone().unwrap_or_default(),
        profile_type: draft.profile_type.clone(),
        matchers,
        group_by: draft.group_by.clone().unwrap_or_default(),
        external_labels: external.collect(),
        generation: i64::try_from(version.generation).unwrap_or(i64::MAX),
        stacktrace_filter: filter
            .map(|function_name| StacktraceFilter { function_name: Some(function_name) }),
        provisioned: version.is_provisioned,
        throughline: extension(draft),
    }
}

/// What of a rule Pyroscope's messages cannot say; none when they say all of it.
fn extension(draft: &Draft) -> Option<RuleExtension> {
    let mut more = RuleExtension {
        all_labels: draft.group_by.is_none(),
        is_self: draft.value == Value::Own,
        ..RuleExtension::default()
    };
    match draft.functions.clone() {
        None => {}
        Some(Functions::Exact(_)) if draft.value == Value::Total => {}
        Some(Functions::Exact(text)) => more.exact = text,
        Some(Functions::Prefix(text)) => more.prefix = text,
        Some(Functions::Regex(text)) => more.regex = text,
        Some(Functions::Package(text)) => more.package = text,
        Some(Functions::File(text)) => more.file = text,
    }
    let is_needed = more != RuleExtension::default() || draft.metric.is_none();
    is_needed.then_some(more)
}

/// A rule that a request would make, as it is asked for a preview.
///
/// # Errors
///
/// `invalid_argument`.
pub fn rule_of(asked: UpsertRecordingRuleRequest) -> Result<Rule, Failure> {
    Ok(Rule::try_from(drafted(asked)?)?)
}
