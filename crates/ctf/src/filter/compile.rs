//! From names to places: one program for each event record class of a trace.

use std::cmp::Ordering;
use std::sync::Arc;

use super::expr::{Comparison, Expr, Literal, PacketField, Place, Predicate, Subject, Test};
use super::pattern::Pattern;
use super::suggest::nearest;
use super::{FilterError, Problem};
use crate::class::{EnvValue, EventRecordClass, TraceClass};
use crate::event::EventRecord;
use crate::layout::{Kind, Layout, Meaning};
use crate::log_level;
use crate::packet::PacketInfo;
use crate::value::{FieldHandle, Scope, Value};

/// A filter with everything resolved that one trace class knows.
#[derive(Debug, Clone)]
pub struct ClassFilter {
    /// By position of the event record class.
    programs: Vec<Program>,
}

/// What a filter says of all event records of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It takes all of them.
    Always,
    /// It takes none of them.
    Never,
    /// It depends on each one's fields.
    Depends,
}

impl ClassFilter {
    pub(super) fn new(expr: &Expr, trace: &TraceClass) -> Self {
        let programs = trace.events.iter().map(|class| program(expr, trace, class)).collect();
        Self { programs }
    }

    /// Whether the filter takes an event record of the trace class it was compiled for. One of a class that this trace
    /// class does not have is not taken.
    #[must_use]
    #[inline]
    pub fn matches(&self, record: &EventRecord<'_>) -> bool {
        self.program(record.class().index()).is_some_and(|program| program.holds(record))
    }

    /// What is known of a class without looking at its event records; `index` is [`EventRecordClass::index`].
    #[must_use]
    pub fn decision(&self, index: u32) -> Decision {
        match self.program(index) {
            Some(Program::Constant(true)) => Decision::Always,
            Some(Program::Constant(false)) | None => Decision::Never,
            Some(_) => Decision::Depends,
        }
    }

    fn program(&self, index: u32) -> Option<&Program> {
        self.programs.get(usize::try_from(index).ok()?)
    }
}

#[derive(Debug, Clone)]
enum Program {
    Constant(bool),
    All(Vec<Program>),
    Any(Vec<Program>),
    Not(Box<Program>),
    Field(FieldHandle, Check),
    Packet(PacketField, Check),
}

impl Program {
    fn holds(&self, record: &EventRecord<'_>) -> bool {
        match self {
            Self::Constant(holds) => *holds,
            Self::All(parts) => parts.iter().all(|part| part.holds(record)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(record)),
            Self::Not(part) => !part.holds(record),
            Self::Field(handle, check) => record.get(*handle).is_some_and(|value| check.of(value)),
            Self::Packet(field, check) => {
                packet_field(record.packet(), *field).is_some_and(|n| check.of(Value::Unsigned(n)))
            }
        }
    }
}

fn packet_field(info: &PacketInfo, field: PacketField) -> Option<u64> {
    match field {
        PacketField::CpuId => info.cpu_id,
        PacketField::SequenceNumber => info.sequence_number,
        PacketField::StreamClassId => Some(info.stream_class_id),
        PacketField::StreamInstanceId => info.stream_instance_id,
        PacketField::EventsDiscarded => info.events_discarded,
        PacketField::ContentBits => info.content_bits,
        PacketField::TotalBits => info.total_bits,
    }
}

/// What must hold for one value.
#[derive(Debug, Clone)]
enum Check {
    Exists,
    Integer(Comparison, i128),
    Float(Comparison, f64),
    Text(Comparison, Arc<str>),
    Match { pattern: Arc<Pattern>, negated: bool },
}

impl Check {
    #[inline]
    fn of(&self, value: Value<'_>) -> bool {
        match self {
            Self::Exists => true,
            Self::Integer(comparison, wanted) => match number(value) {
                Some(Number::Integer(found)) => comparison.holds(Some(found.cmp(wanted))),
                Some(Number::Float(found)) => comparison.holds(float_order(found, *wanted)),
                None => false,
            },
            Self::Float(comparison, wanted) => match number(value) {
                Some(Number::Float(found)) => comparison.holds(found.partial_cmp(wanted)),
                Some(Number::Integer(found)) => {
                    comparison.holds(float_order(*wanted, found).map(Ordering::reverse))
                }
                None => false,
            },
            Self::Text(comparison, wanted) => text(value, *comparison, wanted),
            Self::Match { pattern, negated } => fits(value, pattern).is_some_and(|f| f != *negated),
        }
    }
}

enum Number {
    Integer(i128),
    Float(f64),
}

fn number(value: Value<'_>) -> Option<Number> {
    Some(match value {
        Value::Unsigned(number) => Number::Integer(number.into()),
        Value::Signed(number) => Number::Integer(number.into()),
        Value::Enum(value) => Number::Integer(value.number()),
        Value::Bits(bits) => Number::Integer(bits.raw().into()),
        Value::Bool(truth) => Number::Integer(truth.into()),
        Value::Float(number) => Number::Float(number),
        _ => return None,
    })
}

/// How a floating point number compares with an integer of at most 65 bits, exactly.
fn float_order(float: f64, integer: i128) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // The cast saturates, far beyond any 65 bits.
    #[expect(clippy::cast_possible_truncation, reason = "the fraction is compared below")]
    let whole = float.trunc() as i128;
    Some(
        whole
            .cmp(&integer)
            .then_with(|| float.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal)),
    )
}

fn text(value: Value<'_>, comparison: Comparison, wanted: &str) -> bool {
    match value {
        Value::Str(text) => comparison.holds(Some(text.cmp(wanted.as_bytes()))),
        Value::WideStr(text) => comparison.holds(Some(text.chars().cmp(wanted.chars()))),
        Value::Enum(value) => labelled(value.labels(), comparison, wanted),
        Value::Bits(bits) => labelled(bits.flags(), comparison, wanted),
        _ => false,
    }
}

/// Of several labels one is enough to be equal, and none may be for being different.
fn labelled<'l>(
    mut labels: impl Iterator<Item = &'l str>,
    comparison: Comparison,
    wanted: &str,
) -> bool {
    labels.any(|label| label == wanted) == (comparison == Comparison::Equal)
}

fn fits(value: Value<'_>, pattern: &Pattern) -> Option<bool> {
    Some(match value {
        Value::Str(text) => pattern.fits(text),
        Value::WideStr(text) => pattern.fits(text.chars().collect::<String>().as_bytes()),
        Value::Enum(value) => value.labels().any(|label| pattern.fits(label.as_bytes())),
        Value::Bits(bits) => bits.flags().any(|label| pattern.fits(label.as_bytes())),
        _ => return None,
    })
}

fn program(expr: &Expr, trace: &TraceClass, class: &EventRecordClass) -> Program {
    match expr {
        Expr::All(parts) => joined(parts, false, Program::All, trace, class),
        Expr::Any(parts) => joined(parts, true, Program::Any, trace, class),
        Expr::Not(part) => match program(part, trace, class) {
            Program::Constant(holds) => Program::Constant(!holds),
            program => Program::Not(Box::new(program)),
        },
        Expr::Test(test) => test_program(test, trace, class),
    }
}

/// The parts that are not constant; one that is `decisive` decides.
fn joined(
    parts: &[Expr],
    decisive: bool,
    several: fn(Vec<Program>) -> Program,
    trace: &TraceClass,
    class: &EventRecordClass,
) -> Program {
    let mut open = Vec::new();
    for part in parts {
        match program(part, trace, class) {
            Program::Constant(holds) if holds == decisive => return Program::Constant(decisive),
            Program::Constant(_) => {}
            program => open.push(program),
        }
    }
    match open.pop() {
        None => Program::Constant(!decisive),
        Some(only) if open.is_empty() => only,
        Some(last) => {
            open.push(last);
            several(open)
        }
    }
}

fn test_program(test: &Test, trace: &TraceClass, class: &EventRecordClass) -> Program {
    let constant = |value: Option<Value<'_>>, subject: Class| {
        let check = check_for(&test.predicate, subject);
        Program::Constant(value.zip(check).is_some_and(|(value, check)| check.of(value)))
    };
    match &test.subject {
        Subject::Name => constant(Some(Value::Str(class.name().as_bytes())), Class::Text),
        Subject::Host => {
            let host = trace.env("hostname").or_else(|| trace.env("host"));
            Program::Constant(environment(host, &test.predicate))
        }
        Subject::Env(key) => Program::Constant(environment(trace.env(key), &test.predicate)),
        Subject::LogLevel => {
            let check = log_level_check(&test.predicate);
            let level = class.log_level().map(Value::Signed);
            Program::Constant(level.zip(check).is_some_and(|(level, check)| check.of(level)))
        }
        Subject::Packet(field) => check_for(&test.predicate, Class::Integer)
            .map_or(Program::Constant(false), |check| Program::Packet(*field, check)),
        Subject::Field { place, path } => match find(trace, class, *place, path) {
            Some(Found::Field(handle, of)) => check_for(&test.predicate, of)
                .map_or(Program::Constant(false), |check| Program::Field(handle, check)),
            Some(Found::Inside) | None => Program::Constant(false),
        },
    }
}

fn environment(value: Option<&EnvValue>, predicate: &Predicate) -> bool {
    let (value, class) = match value {
        None => return false,
        Some(EnvValue::Text(text)) => (Value::Str(text.as_bytes()), Class::Text),
        Some(EnvValue::Integer(number)) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(number), _) => (Value::Signed(number), Class::Integer),
            (_, Ok(number)) => (Value::Unsigned(number), Class::Integer),
            // No metadata declare a number beyond both.
            _ => return false,
        },
    };
    check_for(predicate, class).is_some_and(|check| check.of(value))
}

/// Names of log levels are numbers written differently.
fn log_level_check(predicate: &Predicate) -> Option<Check> {
    match predicate {
        Predicate::Compare(comparison, Literal::Text(text)) => {
            let level = log_level::number(text)?;
            Some(Check::Integer(*comparison, level.into()))
        }
        predicate => check_for(predicate, Class::Integer),
    }
}

/// What a field can be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Integer,
    Bool,
    /// An enumeration or bit map: a number with names.
    Named,
    Float,
    Text,
    Blob,
    Compound,
}

impl Class {
    fn of(kind: &Kind) -> Self {
        match kind {
            Kind::Integer(int) | Kind::VarInteger(int) => match (int.meaning, &int.mappings) {
                (Meaning::Boolean, _) => Self::Bool,
                (Meaning::Bits, _) | (Meaning::Number, Some(_)) => Self::Named,
                (Meaning::Number, None) => Self::Integer,
            },
            Kind::Float { .. } => Self::Float,
            Kind::Text(_) | Kind::TextArray(..) => Self::Text,
            Kind::Blob(..) => Self::Blob,
            Kind::Structure | Kind::Array(_) | Kind::Variant(_) | Kind::Optional(_) => {
                Self::Compound
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Integer => "an integer",
            Self::Bool => "a truth value",
            Self::Named => "a number with names",
            Self::Float => "a floating point number",
            Self::Text => "a text",
            Self::Blob => "a BLOB",
            Self::Compound => "a structure, array or variant",
        }
    }
}

/// The check of a field of this class; `None` when they cannot be compared.
fn check_for(predicate: &Predicate, class: Class) -> Option<Check> {
    use Comparison::{Equal, NotEqual};
    Some(match (predicate, class) {
        (Predicate::Exists, _) => Check::Exists,
        (
            Predicate::Compare(comparison, Literal::Integer(wanted)),
            Class::Integer | Class::Bool | Class::Named | Class::Float,
        ) => Check::Integer(*comparison, *wanted),
        (
            Predicate::Compare(comparison, Literal::Float(wanted)),
            Class::Integer | Class::Named | Class::Float,
        ) => Check::Float(*comparison, *wanted),
        (Predicate::Compare(comparison, Literal::Text(wanted)), Class::Bool) => {
            let wanted = match &**wanted {
                "true" => 1,
                "false" => 0,
                _ => return None,
            };
            Check::Integer(*comparison, wanted)
        }
        (
            Predicate::Compare(comparison @ (Equal | NotEqual), Literal::Text(wanted)),
            Class::Named,
        ) => Check::Text(*comparison, wanted.as_str().into()),
        (Predicate::Compare(comparison, Literal::Text(wanted)), Class::Text) => {
            Check::Text(*comparison, wanted.as_str().into())
        }
        (Predicate::Match { pattern, negated }, Class::Named | Class::Text) => {
            Check::Match { pattern: Arc::clone(pattern), negated: *negated }
        }
        _ => return None,
    })
}

/// Where a name leads in one event record class.
enum Found {
    Field(FieldHandle, Class),
    /// There is such a field, without a place of its own.
    Inside,
}

/// The first field with this name, in the order of payload, specific context, common context.
fn find(trace: &TraceClass, class: &EventRecordClass, place: Place, path: &str) -> Option<Found> {
    let mut inside = None;
    for (layout, scope, owner) in layouts(trace, class, place) {
        match FieldHandle::find(layout, scope, owner, path) {
            Some(handle) => {
                let of = layout.node(handle.node).map(|node| Class::of(&node.kind))?;
                return Some(Found::Field(handle, of));
            }
            None if is_inside(layout, path) => inside = Some(Found::Inside),
            None => {}
        }
    }
    inside
}

fn layouts<'t>(
    trace: &'t TraceClass,
    class: &'t EventRecordClass,
    place: Place,
) -> impl Iterator<Item = (&'t Layout, Scope, u32)> {
    let stream = trace.stream_class(class.stream_class_id());
    let common = stream.and_then(|stream| Some((stream.event_context.as_ref()?, stream.index)));
    let payload = class.payload.as_ref().map(|layout| (layout, Scope::Payload, class.index));
    let specific =
        class.context.as_ref().map(|layout| (layout, Scope::EventSpecificContext, class.index));
    let common = common.map(|(layout, owner)| (layout, Scope::EventCommonContext, owner));
    let payload = payload.filter(|_| place != Place::Contexts);
    let contexts = [specific, common].into_iter().flatten();
    payload.into_iter().chain(contexts.filter(move |_| place != Place::Payload))
}

/// Whether the last name of a path belongs to a field that lies deeper than members of structures.
fn is_inside(layout: &Layout, path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    layout.nodes.iter().any(|node| !node.name.is_empty() && node.shown_name() == last)
}

pub(super) fn check(expr: &Expr, traces: &[&TraceClass]) -> Result<(), FilterError> {
    match expr {
        Expr::All(parts) | Expr::Any(parts) => {
            parts.iter().try_for_each(|part| check(part, traces))
        }
        Expr::Not(part) => check(part, traces),
        Expr::Test(test) => {
            check_test(test, traces).map_err(|problem| FilterError { column: test.column, problem })
        }
    }
}

fn check_test(test: &Test, traces: &[&TraceClass]) -> Result<(), Problem> {
    match &test.subject {
        Subject::Field { place, path } => check_field(*place, path, &test.predicate, traces),
        Subject::Env(key) => check_env(key, traces),
        Subject::Name | Subject::Host => {
            fits_class(check_for(&test.predicate, Class::Text), test, Class::Text)
        }
        Subject::LogLevel => fits_class(log_level_check(&test.predicate), test, Class::Integer),
        Subject::Packet(_) => {
            fits_class(check_for(&test.predicate, Class::Integer), test, Class::Integer)
        }
    }
}

fn fits_class(check: Option<Check>, test: &Test, class: Class) -> Result<(), Problem> {
    let field = match &test.subject {
        Subject::Name => "name",
        Subject::Host => "host",
        Subject::LogLevel => "loglevel",
        _ => "packet",
    };
    let mismatch = || Problem::Mismatch { field: field.to_owned(), class: class.name() };
    check.map(drop).ok_or_else(mismatch)
}

fn check_env(key: &str, traces: &[&TraceClass]) -> Result<(), Problem> {
    if traces.iter().any(|trace| trace.env(key).is_some()) {
        return Ok(());
    }
    let keys = traces.iter().flat_map(|trace| trace.environment().map(|(key, _)| key));
    let nearest = nearest(key, keys).map(|key| format!("env.{key}"));
    Err(Problem::UnknownField { field: format!("env.{key}"), nearest })
}

fn check_field(
    place: Place,
    path: &str,
    predicate: &Predicate,
    traces: &[&TraceClass],
) -> Result<(), Problem> {
    let mut problem = None;
    for (trace, class) in classes(traces) {
        match find(trace, class, place, path) {
            Some(Found::Field(_, class)) if check_for(predicate, class).is_some() => return Ok(()),
            Some(Found::Field(_, class)) => {
                problem = Some(Problem::Mismatch { field: path.to_owned(), class: class.name() });
            }
            Some(Found::Inside) if problem.is_none() => {
                problem = Some(Problem::Inside { field: path.to_owned() });
            }
            Some(Found::Inside) | None => {}
        }
    }
    Err(problem.unwrap_or_else(|| Problem::UnknownField {
        field: path.to_owned(),
        nearest: nearest_field(place, path, traces),
    }))
}

fn classes<'t>(
    traces: &[&'t TraceClass],
) -> impl Iterator<Item = (&'t TraceClass, &'t EventRecordClass)> {
    traces.iter().flat_map(|trace| trace.events.iter().map(move |class| (*trace, class)))
}

fn nearest_field(place: Place, path: &str, traces: &[&TraceClass]) -> Option<String> {
    let layouts = classes(traces).flat_map(|(trace, class)| layouts(trace, class, place));
    let names = layouts.flat_map(|(layout, ..)| layout.member_names());
    nearest(path, names).map(str::to_owned)
}
