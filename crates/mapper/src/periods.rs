//! Periods between events, as filter expressions define them.
//!
//! ```text
//! NAME[(PARENT)] : BEGIN [: END]         without END, the next begin ends the period before
//! NAME : FIELD[=END_FIELD], …            of a key: the begin's and the end's fields that must be alike
//! NAME : FIELD, … [: FIELD, …]           of captures: what is noted of the begin and of the end
//! ```
//!
//! Colons that part have blanks around them, so that names of events may have others. BEGIN and END are expressions as
//! `ctf::filter` has them. A parent's key is taken from the begin of the child too, by the same fields.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ctf::filter::{ClassFilter, Filter, FilterError};
use ctf::{EventRecord, TraceClass, Value};
use model::TimeRange;
use stitch::Between;
use stitch::periods::{Definition, Key, Mark, Periods};
use stitch::table::Table;
use tracedir::{Item, Recording};

use crate::Error;

/// How many periods of a log are kept before they are given away.
const PIECE: usize = 65_536;

/// Why a definition makes no sense.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// Not of the form.
    #[error("{text:?} is not {form}")]
    Form {
        /// What was given.
        text: String,
        /// What is expected.
        form: &'static str,
    },
    /// A name that no definition before has.
    #[error("there is no period {name:?} before")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A name twice.
    #[error("there are two periods {name:?}")]
    Twice {
        /// The name.
        name: String,
    },
    /// An expression cannot be parsed.
    #[error("{expression:?}")]
    Expression {
        /// The expression.
        expression: String,
        /// What is wrong in it.
        source: FilterError,
    },
}

/// Which events begin and end periods.
#[derive(Debug, Clone, Default)]
pub struct PeriodRules {
    rules: Vec<Rule>,
    /// Captures of the begin whose values tell groups of periods apart.
    group_by: Vec<String>,
}

#[derive(Debug, Clone)]
struct Rule {
    definition: Definition,
    begin: Filter,
    end: Filter,
    /// Fields of the begin and of the end.
    key: Vec<(String, String)>,
    begin_captures: Vec<String>,
    end_captures: Vec<String>,
}

impl PeriodRules {
    /// Adds `NAME[(PARENT)] : BEGIN [: END]`.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`]: what of it makes no sense.
    pub fn define(&mut self, text: &str) -> Result<(), DefinitionError> {
        let form = "NAME : BEGIN : END or NAME(PARENT) : BEGIN : END";
        let wrong = || DefinitionError::Form { text: text.to_owned(), form };
        let mut parts = text.split(" : ").map(str::trim);
        let head = parts.next().filter(|head| !head.is_empty()).ok_or_else(wrong)?;
        let begin = parts.next().ok_or_else(wrong)?;
        let end = parts.next().unwrap_or(begin);
        if parts.next().is_some() {
            return Err(wrong());
        }
        let (name, parent) = match head.strip_suffix(')').and_then(|head| head.split_once('(')) {
            Some((name, parent)) => (name.trim(), Some(self.position(parent.trim())?)),
            None => (head, None),
        };
        if self.position(name).is_ok() {
            return Err(DefinitionError::Twice { name: name.to_owned() });
        }
        let filter = |text: &str| {
            let failed =
                |source| DefinitionError::Expression { expression: text.to_owned(), source };
            Filter::parse(text).map_err(failed)
        };
        self.rules.push(Rule {
            definition: Definition { name: name.into(), parent },
            begin: filter(begin)?,
            end: filter(end)?,
            key: Vec::new(),
            begin_captures: Vec::new(),
            end_captures: Vec::new(),
        });
        Ok(())
    }

    /// Sets a key: `NAME : FIELD[=END_FIELD], …`.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`]: what of it makes no sense.
    pub fn set_key(&mut self, text: &str) -> Result<(), DefinitionError> {
        let form = "NAME : FIELD, FIELD=END_FIELD";
        let wrong = || DefinitionError::Form { text: text.to_owned(), form };
        let (name, fields) = text.split_once(" : ").ok_or_else(wrong)?;
        let key = names(fields).map(|field| match field.split_once('=') {
            Some((begin, end)) => (begin.trim().to_owned(), end.trim().to_owned()),
            None => (field.to_owned(), field.to_owned()),
        });
        self.rule(name)?.key = key.collect();
        Ok(())
    }

    /// Sets captures: `NAME : FIELD, … [: FIELD, …]`.
    ///
    /// # Errors
    ///
    /// [`DefinitionError`]: what of it makes no sense.
    pub fn capture(&mut self, text: &str) -> Result<(), DefinitionError> {
        let form = "NAME : FIELD, FIELD : FIELD";
        let wrong = || DefinitionError::Form { text: text.to_owned(), form };
        let mut parts = text.split(" : ");
        let name = parts.next().ok_or_else(wrong)?;
        let (begin, end) = (parts.next().ok_or_else(wrong)?, parts.next().unwrap_or_default());
        if parts.next().is_some() {
            return Err(wrong());
        }
        let fields = |text| names(text).map(str::to_owned).collect();
        let rule = self.rule(name)?;
        (rule.begin_captures, rule.end_captures) = (fields(begin), fields(end));
        Ok(())
    }

    /// Tells periods apart by these fields of the event that begins them.
    pub fn group_by(&mut self, fields: impl IntoIterator<Item = String>) {
        self.group_by.extend(fields);
    }

    fn position(&self, name: &str) -> Result<usize, DefinitionError> {
        let found = self.rules.iter().position(|rule| &*rule.definition.name == name);
        found.ok_or_else(|| DefinitionError::Unknown { name: name.to_owned() })
    }

    fn rule(&mut self, name: &str) -> Result<&mut Rule, DefinitionError> {
        let position = self.position(name.trim())?;
        self.rules
            .get_mut(position)
            .ok_or_else(|| DefinitionError::Unknown { name: name.to_owned() })
    }
}

fn names(fields: &str) -> impl Iterator<Item = &str> {
    fields.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// What recordings say of periods.
#[derive(Debug)]
pub struct PeriodAnalysis {
    /// The periods; their log was given.
    pub periods: Periods,
    /// From when to when.
    pub range: TimeRange,
    /// How many losses of events all open periods were forgotten at.
    pub losses: u64,
    /// What could not be read, a line each, of at most as many as are kept.
    pub findings: Vec<String>,
}

/// Reads recordings from the begin to the end of a range and gives the periods that ended in parts, until `give` has enough.
///
/// # Errors
///
/// [`Error::Recording`] when nothing can be read, [`Error::Period`] when no event has a field that is asked for.
pub fn read_periods<P: AsRef<Path>>(
    paths: &[P],
    rules: &PeriodRules,
    range: TimeRange,
    wanted: Between,
    give: &mut dyn FnMut(&Table) -> ControlFlow<()>,
) -> Result<PeriodAnalysis, Error> {
    let recording = Recording::open(paths)?;
    let classes = || recording.traces().iter().map(|trace| &**trace.class());
    for rule in &rules.rules {
        for filter in [&rule.begin, &rule.end] {
            filter.check(classes()).map_err(Error::Period)?;
        }
    }
    let covers = recording.covers();
    let begin = covers.iter().filter_map(|cover| cover.begin).min();
    let end = covers.iter().filter_map(|cover| cover.end).max();
    let seen = TimeRange {
        begin: begin.map_or(range.begin, |begin| begin.max(range.begin)),
        end: end.map_or(range.end, |end| end.min(range.end)),
    };
    let definitions = rules.rules.iter().map(|rule| rule.definition.clone()).collect();
    let mut periods = Periods::new(definitions, wanted);
    let mut compiled = HashMap::new();
    let mut losses = 0;
    let mut merged = recording.merged(range);
    while let Some(item) = merged.next_item() {
        let event = match item {
            Item::Event(event) => event,
            Item::Loss(_) => {
                losses += 1;
                periods.forget();
                continue;
            }
        };
        let record = &event.record;
        let trace = record.trace_class();
        let filters: &Vec<(ClassFilter, ClassFilter)> = compiled
            .entry(std::ptr::from_ref::<TraceClass>(trace).addr())
            .or_insert_with(|| rules.compile(trace));
        for (n, (rule, (_, end))) in rules.rules.iter().zip(filters).enumerate().rev() {
            if end.matches(record) {
                let key = key(record, rule.key.iter().map(|(_, field)| field));
                let captured = captures(record, &rule.end_captures);
                periods.take(event.timestamp, n, Mark::End { key, captured });
            }
        }
        for (n, (rule, (begin, _))) in rules.rules.iter().zip(filters).enumerate() {
            if begin.matches(record) {
                periods.take(event.timestamp, n, rules.begin(rule, record));
            }
        }
        if periods.logged() >= PIECE && give(&periods.take_log(seen)).is_break() {
            break;
        }
    }
    // The last part: whether more is wanted makes no difference.
    let _enough = give(&periods.take_log(seen));
    let findings = recording.findings().kept().iter().chain(merged.findings().kept());
    let findings = findings.map(ToString::to_string).collect();
    Ok(PeriodAnalysis { periods, range: seen, losses, findings })
}

impl PeriodRules {
    fn compile(&self, trace: &TraceClass) -> Vec<(ClassFilter, ClassFilter)> {
        let both = |rule: &Rule| (rule.begin.compile(trace), rule.end.compile(trace));
        self.rules.iter().map(both).collect()
    }

    fn begin(&self, rule: &Rule, record: &EventRecord<'_>) -> Mark {
        let parent = rule.definition.parent.and_then(|parent| self.rules.get(parent));
        let parent = parent.map(|parent| key(record, parent.key.iter().map(|(field, _)| field)));
        Mark::Begin {
            key: key(record, rule.key.iter().map(|(field, _)| field)),
            parent: parent.unwrap_or_default(),
            captured: captures(record, &rule.begin_captures),
            group: captures(record, &self.group_by),
        }
    }
}

/// The values of a key's fields, joined by a byte that no text has.
fn key<'f>(record: &EventRecord<'_>, fields: impl Iterator<Item = &'f String>) -> Key {
    let mut key = String::new();
    for field in fields {
        key.push_str(&value(record, field).unwrap_or_default());
        key.push('\0');
    }
    key.into()
}

/// `name=value, …` of the fields that the event has.
fn captures(record: &EventRecord<'_>, fields: &[String]) -> Arc<str> {
    let values =
        fields.iter().filter_map(|field| Some(format!("{field}={}", value(record, field)?)));
    values.collect::<Vec<String>>().join(", ").into()
}

/// A field of the payload or of a context as text, or the packet's CPU as `cpu_id`.
fn value(record: &EventRecord<'_>, field: &str) -> Option<String> {
    match record.field(field) {
        Some(Value::Unsigned(number)) => Some(number.to_string()),
        Some(Value::Signed(number)) => Some(number.to_string()),
        Some(Value::Float(number)) => Some(number.to_string()),
        Some(Value::Bool(truth)) => Some(truth.to_string()),
        Some(Value::Str(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        Some(Value::Enum(named)) => {
            let label = named.labels().next().map(str::to_owned);
            Some(label.unwrap_or_else(|| named.number().to_string()))
        }
        Some(Value::Compound(compound)) => {
            let bytes = compound.bytes()?;
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
        }
        Some(_) => None,
        None if field == "cpu_id" => record.cpu_id().map(|cpu| cpu.to_string()),
        None if field == "name" => Some(record.name().to_owned()),
        None => None,
    }
}
