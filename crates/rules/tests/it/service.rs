//! Rules as Pyroscope's messages.

use rules::{
    Book, BookLimits, Draft, Functions, MAX_SETTINGS, Settings, Value, list_rules, upsert_rule,
};
use wire::pyroscope::{Code, RecordingRule, Setting, UpsertRecordingRuleRequest};

use crate::samples::{CPU, by, of};

/// The request that makes what is shown.
fn again(shown: RecordingRule) -> UpsertRecordingRuleRequest {
    UpsertRecordingRuleRequest {
        id: String::new(),
        metric_name: shown.metric_name,
        matchers: shown.matchers,
        group_by: shown.group_by,
        external_labels: shown.external_labels,
        generation: 0,
        stacktrace_filter: shown.stacktrace_filter,
        throughline: shown.throughline,
    }
}

#[test]
fn what_is_shown_of_a_rule_makes_the_same_rule() {
    let named = || Draft { metric: Some("profiles_recorded_x".to_owned()), ..by(&["a"]) };
    let text = || "x".to_owned();
    let functions = [
        Functions::Exact,
        Functions::Prefix,
        Functions::Regex,
        Functions::Package,
        Functions::File,
    ];
    let mut drafts = vec![named(), by(&[]), Draft { group_by: None, ..named() }];
    for make in functions {
        for value in [Value::Total, Value::Own] {
            drafts.push(Draft { value, ..of(make(text()), named()) });
        }
    }
    let limits = BookLimits::default();
    for draft in drafts {
        let matchers = vec![format!("{{__profile_type__=\"{CPU}\", pod!=\"\"}}")];
        let external_labels = [("team".to_owned(), "y".to_owned())].into();
        let draft = Draft { matchers, external_labels, ..draft };
        let mut book = Book::default();
        let made = book.upsert(draft.clone(), None, 0, &limits).unwrap();
        assert_eq!(Draft { id: String::new(), ..made.rule.draft().clone() }, draft);
        let shown = list_rules(&book).rules.remove(0);
        let mut other = Book::default();
        upsert_rule(&mut other, again(shown), 0, &limits).unwrap();
        let found = other.at(0).remove(0).draft().clone();
        assert_eq!(Draft { id: String::new(), ..found }, draft);
    }
}

#[test]
fn settings_have_bounds() {
    let setting = |name: &str, value: usize| {
        Some(Setting { name: name.to_owned(), value: "x".repeat(value), modified_at: 1 })
    };
    let mut all = Settings::default();
    for number in 0..MAX_SETTINGS {
        all.set(setting(&number.to_string(), 1), 0).unwrap();
    }
    let code =
        |all: &mut Settings, name: &str, value| all.set(setting(name, value), 0).unwrap_err().code;
    assert_eq!(code(&mut all, "more", 1), Code::ResourceExhausted);
    assert_eq!(code(&mut all, "0", 70_000), Code::InvalidArgument);
    assert_eq!(code(&mut all, &"n".repeat(300), 1), Code::InvalidArgument);
    let generation = all.generation();
    assert!(all.delete("0") && !all.delete("0"));
    assert_eq!(all.generation(), generation + 1);
    all.set(setting("more", 1), 0).unwrap();
}
