//! Rules that are made, changed in place and deleted while export is tried, and what the catalogue says of them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use fastrand::Rng;
use serde_json::{Value, json};

use super::cells::Labels;
use super::{TYPE, post, send};

/// What metrics of rules are called, with a number behind.
pub(super) const RULE: &str = "profiles_recorded_law";
/// Rules at once; a tenant may have 25.
const MOST: usize = 6;
/// Labels of which some are grouped by.
const GROUPS: [&[&str]; 4] = [&[], &["pod"], &["service_name"], &["pod", "service_name"]];
const SERVICE: &str = "/settings.v1.RecordingRulesService";

/// A rule for some of its cells, as the catalogue has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    /// The rule.
    pub(super) id: String,
    /// What its series are called.
    pub(super) metric: String,
    /// The how manieth version of the rule, from 1 on.
    pub(super) generation: u64,
    /// Selectors, all of which hold.
    pub(super) matchers: Vec<String>,
    /// Labels that series have.
    pub(super) group_by: Vec<String>,
    /// The one function that is counted, if not all samples are.
    pub(super) function: Option<String>,
    /// When its first cell begins, milliseconds since 1970.
    pub(super) from_ms: i64,
    /// When the first cell begins that is not its own; none while it is in force.
    pub(super) until_ms: Option<i64>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, metric, generation, from_ms, .. } = self;
        write!(f, "{metric} (rule {id}) generation {generation}, from {from_ms} ")?;
        match self.until_ms {
            Some(until_ms) => write!(f, "to {until_ms}"),
            None => f.write_str("on"),
        }
    }
}

impl Version {
    /// The versions of a catalogue's document of rules, but for those of the configuration.
    ///
    /// # Panics
    /// When it is no such document.
    pub(super) fn all(book: &Value) -> Vec<Self> {
        let versions = book.get("versions").and_then(Value::as_array).expect("versions");
        let of_clients =
            versions.iter().filter(|it| it.get("is_provisioned") == Some(&json!(false)));
        of_clients.map(Self::of).collect()
    }

    fn of(version: &Value) -> Self {
        let text = |path: &str| version.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let texts = |path: &str| {
            let all = version.pointer(path).and_then(Value::as_array).into_iter().flatten();
            all.filter_map(|it| it.as_str().map(str::to_owned)).collect()
        };
        Self {
            id: text("/rule/id").expect("an id"),
            metric: text("/rule/metric").expect("a metric"),
            generation: version.get("generation").and_then(Value::as_u64).expect("a generation"),
            matchers: texts("/rule/matchers"),
            group_by: texts("/rule/group_by"),
            function: text("/rule/functions/exact"),
            from_ms: version.get("from_ms").and_then(Value::as_i64).expect("a time"),
            until_ms: version.get("until_ms").and_then(Value::as_i64),
        }
    }

    /// Whether a cell is its own that begins then.
    pub(super) fn has(&self, cell_ms: i64) -> bool {
        self.from_ms <= cell_ms && self.until_ms.is_none_or(|until_ms| cell_ms < until_ms)
    }
}

/// What a rule counts, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    /// Of one pod, or of all but one.
    pub(super) pod: Option<(&'static str, u8)>,
    pub(super) group_by: &'static [&'static str],
    pub(super) function: Option<String>,
}

impl Shape {
    fn any(dice: &mut Rng) -> Self {
        let pod = dice.u8(..3);
        Self {
            pod: dice.choice([None, Some(("=", pod)), Some(("!=", pod))]).flatten(),
            group_by: dice.choice(GROUPS).unwrap_or_default(),
            function: (dice.u8(..4) == 0).then(|| format!("f{}", dice.u8(..40))),
        }
    }

    /// As a selector.
    pub(super) fn matcher(&self) -> String {
        let pod = self.pod.map(|(test, pod)| format!(", pod{test}\"{pod}\"")).unwrap_or_default();
        format!("{{service_name=\"shop\", __profile_type__=\"{TYPE}\"{pod}}}")
    }

    /// As it is asked for; of a rule that is changed, its id and generation.
    fn rule(&self, metric: &str, (id, generation): (&str, &str)) -> Value {
        let named = |function| json!({ "functionName": { "functionName": function } });
        json!({
            "id": id,
            "generation": generation,
            "metricName": metric,
            "matchers": [self.matcher()],
            "groupBy": self.group_by,
            "stacktraceFilter": self.function.as_ref().map(named),
        })
    }

    /// Whether a version says this.
    pub(super) fn is(&self, version: &Version) -> bool {
        let Version { matchers, group_by, function, .. } = version;
        *matchers == [self.matcher()] && group_by == self.group_by && *function == self.function
    }

    /// What it makes of the functions of a cell, each of which has all labels.
    pub(super) fn sums(&self, functions: &BTreeMap<Labels, u64>) -> BTreeMap<Labels, u64> {
        let mut sums = BTreeMap::new();
        for (labels, sum) in functions {
            let of = |name: &str| labels.get(name).map(String::as_str);
            let is_pod = self.pod.is_none_or(|(test, pod)| {
                (of("pod") == Some(pod.to_string().as_str())) == (test == "=")
            });
            let is_function =
                self.function.as_deref().is_none_or(|function| of("function") == Some(function));
            if is_pod && is_function {
                let function = self.function.as_ref().map(|_| "function");
                let kept = self.group_by.iter().copied().chain(function);
                let kept = kept.filter_map(|name| Some((name.to_owned(), of(name)?.to_owned())));
                *sums.entry(kept.collect()).or_default() += sum;
            }
        }
        sums
    }
}

/// Asks for rules, and knows for what.
#[derive(Debug, Default)]
pub(super) struct Rules {
    made: u64,
    /// By metric. What of it was done, and since when, is for the catalogue to say: answers are lost.
    pub(super) asked: BTreeMap<String, Vec<Shape>>,
}

/// One that is in force.
struct Present {
    id: String,
    metric: String,
    generation: String,
}

impl Rules {
    /// Makes, changes or deletes one. Some answers are not waited for, so that the store may be killed in the midst of it.
    ///
    /// # Panics
    /// When the store says that the request is wrong.
    pub(super) fn change(&mut self, port: u16, dice: &mut Rng) {
        // Whatever is refused is in the catalogue or not, which is asked at the end.
        drop(self.tried(port, dice));
    }

    fn tried(&mut self, port: u16, dice: &mut Rng) -> io::Result<()> {
        let mut present = present(port)?;
        let is_heard = dice.u8(..4) != 0;
        let what = dice.u8(..6);
        let one = (!present.is_empty()).then(|| present.swap_remove(dice.usize(..present.len())));
        match one {
            Some(one) if what == 0 || present.len() + 1 >= MOST => {
                ask(port, "DeleteRecordingRule", &json!({ "id": one.id }), is_heard)
            }
            Some(one) if what <= 3 => {
                let rule = self.any(&one.metric, (&one.id, &one.generation), dice);
                ask(port, "UpsertRecordingRule", &rule, is_heard)
            }
            _ => {
                self.made += 1;
                let rule = self.any(&format!("{RULE}{}", self.made), ("", "0"), dice);
                ask(port, "UpsertRecordingRule", &rule, is_heard)
            }
        }
    }

    fn any(&mut self, metric: &str, known: (&str, &str), dice: &mut Rng) -> Value {
        let shape = Shape::any(dice);
        let rule = shape.rule(metric, known);
        self.asked.entry(metric.to_owned()).or_default().push(shape);
        rule
    }
}

fn present(port: u16) -> io::Result<Vec<Present>> {
    let listed = post(port, &format!("{SERVICE}/ListRecordingRules"), b"{}")?;
    let listed: Value = serde_json::from_slice(&listed.1).map_err(io::Error::other)?;
    let rules = listed.get("rules").and_then(Value::as_array).into_iter().flatten();
    let one = |rule: &Value| {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).map(str::to_owned);
        let metric = text("metricName").filter(|metric| metric.starts_with(RULE))?;
        Some(Present { id: text("id")?, metric, generation: text("generation")? })
    };
    Ok(rules.filter_map(one).collect())
}

fn ask(port: u16, method: &str, asked: &Value, is_heard: bool) -> io::Result<()> {
    let (path, body) = (format!("{SERVICE}/{method}"), asked.to_string());
    if !is_heard {
        return send(port, &path, "Content-Type: application/json\r\n", body.as_bytes());
    }
    let (status, said) = post(port, &path, body.as_bytes())?;
    // Something not heard may have come between, and the store may be killed; all else is refused for no reason.
    let is_expected = matches!(status, 0 | 200 | 404 | 409 | 429 | 500..=599);
    assert!(is_expected, "{status} to {body}: {}", String::from_utf8_lossy(&said));
    Ok(())
}
