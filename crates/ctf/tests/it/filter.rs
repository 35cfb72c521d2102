//! Filters: what they take is what a slow and plain evaluator takes, and what they cannot test they say.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; helpers stand outside of test functions"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use ctf::TraceClass;
use ctf::filter::{Decision, Filter};
use ctf::packet::{EventReader, Outcome};
use proptest::prelude::*;

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 64; } := u64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = "vm"; domain = "kernel"; tracer_major = 2; };
stream { id = 0; packet.context := struct { u8 cpu_id; }; event.header := struct { u8 id; };
    event.context := struct { u8 _vtid; string _procname; }; };
event { id = 0; stream_id = 0; name = "sched_switch"; loglevel = 6; fields := struct {
    integer { size = 16; signed = true; } _tid; string _comm;
    enum : u8 { idle = 0, running = 1 ... 3, dead = 3 ... 9 } _state;
    floating_point { exp_dig = 11; mant_dig = 53; align = 8; } _load; }; };
event { id = 1; stream_id = 0; name = "sys:open"; fields := struct {
    u64 _ret; string _comm; struct { u8 _port; } _addr; u8 _vtid; u8 _n; u8 _list[_n]; }; };
"#;

fn trace() -> Arc<TraceClass> {
    static TRACE: OnceLock<Arc<TraceClass>> = OnceLock::new();
    let parse = || Arc::new(TraceClass::parse(METADATA.as_bytes()).unwrap());
    Arc::clone(TRACE.get_or_init(parse))
}

/// An event record as the plain evaluator sees it.
#[derive(Debug, Clone)]
struct Record {
    name: &'static str,
    level: Option<i128>,
    cpu: u8,
    payload: BTreeMap<&'static str, Held>,
    context: BTreeMap<&'static str, Held>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
enum Held {
    Number(i128),
    Float(f64),
    Text(String),
    Labels(i128, Vec<&'static str>),
}

fn texts() -> impl Strategy<Value = String> {
    proptest::string::string_regex("[ab*é]{0,4}").unwrap()
}

fn head(id: u8, cpu: u8, vtid: u8, procname: &str) -> (Vec<u8>, BTreeMap<&'static str, Held>) {
    let mut bytes = vec![cpu, id, vtid];
    bytes.extend(procname.bytes().chain([0]));
    let fields =
        [("vtid", Held::Number(vtid.into())), ("procname", Held::Text(procname.to_owned()))];
    (bytes, fields.into())
}

fn switches() -> impl Strategy<Value = Record> {
    let load = prop_oneof![Just(0.0), Just(-1.5), Just(3.0), Just(f64::NAN), Just(1e300)];
    let fields = (-3_i16..4, texts(), 0_u8..11, load);
    (0_u8..3, 0_u8..3, texts(), fields).prop_map(
        |(cpu, vtid, procname, (tid, comm, state, load))| {
            let (mut bytes, context) = head(0, cpu, vtid, &procname);
            bytes.extend(tid.to_le_bytes());
            bytes.extend(comm.bytes().chain([0, state]));
            bytes.extend(load.to_le_bytes());
            let labels = match state {
                0 => vec!["idle"],
                1 | 2 => vec!["running"],
                3 => vec!["running", "dead"],
                4..=9 => vec!["dead"],
                _ => vec![],
            };
            let payload = [
                ("tid", Held::Number(tid.into())),
                ("comm", Held::Text(comm)),
                ("state", Held::Labels(state.into(), labels)),
                ("load", Held::Float(load)),
            ];
            let level = Some(6);
            Record { name: "sched_switch", level, cpu, payload: payload.into(), context, bytes }
        },
    )
}

fn opens() -> impl Strategy<Value = Record> {
    let ret = prop_oneof![0_u64..3, Just(u64::MAX), Just(1 << 63)];
    (0_u8..3, 0_u8..3, texts(), (ret, texts(), 0_u8..3, 0_u8..3)).prop_map(
        |(cpu, vtid, procname, (ret, comm, port, inner))| {
            let (mut bytes, context) = head(1, cpu, vtid, &procname);
            bytes.extend(ret.to_le_bytes());
            bytes.extend(comm.bytes().chain([0, port, inner, 1, 7]));
            let payload = [
                ("ret", Held::Number(ret.into())),
                ("comm", Held::Text(comm)),
                ("addr.port", Held::Number(port.into())),
                ("vtid", Held::Number(inner.into())),
                ("n", Held::Number(1)),
            ];
            Record { name: "sys:open", level: None, cpu, payload: payload.into(), context, bytes }
        },
    )
}

#[derive(Debug, Clone)]
enum Plain {
    All(Vec<Plain>),
    Any(Vec<Plain>),
    Not(Box<Plain>),
    Named(&'static str),
    Has(&'static str),
    Number(&'static str, &'static str, i128),
    Float(&'static str, &'static str, f64),
    Text(&'static str, &'static str, String),
    Fits { subject: &'static str, pattern: String, negated: bool },
}

const SUBJECTS: [&str; 16] = [
    "tid",
    "comm",
    "state",
    "load",
    "ret",
    "addr.port",
    "vtid",
    "n",
    "procname",
    "context.vtid",
    "$ctx.procname",
    "payload.vtid",
    "name",
    "loglevel",
    "packet.cpu_id",
    "env.tracer_major",
];

impl Plain {
    fn shown(&self) -> String {
        let join = |parts: &[Self], with: &str| {
            let parts: Vec<String> = parts.iter().map(Self::shown).collect();
            format!("({})", parts.join(with))
        };
        let quoted = |text: &str| format!("\"{}\"", text.replace('\\', r"\\"));
        match self {
            Self::All(parts) => join(parts, " && "),
            Self::Any(parts) => join(parts, "||"),
            Self::Not(part) => format!("! {}", part.shown()),
            Self::Named(pattern) => (*pattern).to_owned(),
            Self::Has(subject) => format!("has({subject})"),
            Self::Number(subject, operator, number) => format!("{subject} {operator} {number}"),
            Self::Float(subject, operator, number) => format!("{subject}{operator}{number:?}"),
            Self::Text(subject, operator, text) => format!("{subject} {operator} {}", quoted(text)),
            Self::Fits { subject, pattern, negated } => {
                format!("{subject} {} \"{pattern}\"", if *negated { "!~" } else { "~" })
            }
        }
    }

    fn takes(&self, record: &Record) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.takes(record)),
            Self::Any(parts) => parts.iter().any(|part| part.takes(record)),
            Self::Not(part) => !part.takes(record),
            Self::Named(pattern) => fits(pattern, record.name),
            Self::Has(subject) => value(record, subject).is_some(),
            Self::Number(subject, operator, wanted) => match value(record, subject) {
                Some(Held::Number(found) | Held::Labels(found, _)) => {
                    ordered(operator, found.partial_cmp(wanted))
                }
                // The numbers of this test are small enough for a double.
                Some(Held::Float(found)) => ordered(operator, found.partial_cmp(&(*wanted as f64))),
                Some(Held::Text(_)) | None => false,
            },
            Self::Float(subject, operator, wanted) => match value(record, subject) {
                Some(Held::Number(found) | Held::Labels(found, _)) => {
                    ordered(operator, (found as f64).partial_cmp(wanted))
                }
                Some(Held::Float(found)) => ordered(operator, found.partial_cmp(wanted)),
                Some(Held::Text(_)) | None => false,
            },
            Self::Text(subject, operator, wanted) => match value(record, subject) {
                Some(Held::Text(found)) => ordered(operator, found.partial_cmp(wanted)),
                Some(Held::Labels(_, labels)) if *operator == "==" => labels.contains(&&**wanted),
                Some(Held::Labels(_, labels)) if *operator == "!=" => !labels.contains(&&**wanted),
                _ => false,
            },
            Self::Fits { subject, pattern, negated } => match value(record, subject) {
                Some(Held::Text(found)) => fits(pattern, &found) != *negated,
                Some(Held::Labels(_, labels)) => {
                    labels.iter().any(|label| fits(pattern, label)) != *negated
                }
                _ => false,
            },
        }
    }
}

fn value(record: &Record, subject: &str) -> Option<Held> {
    let context = |name: &str| record.context.get(name).cloned();
    match subject {
        "name" => Some(Held::Text(record.name.to_owned())),
        "loglevel" => record.level.map(Held::Number),
        "packet.cpu_id" => Some(Held::Number(record.cpu.into())),
        "env.tracer_major" => Some(Held::Number(2)),
        "context.vtid" => context("vtid"),
        "$ctx.procname" => context("procname"),
        "payload.vtid" => record.payload.get("vtid").cloned(),
        name => record.payload.get(name).cloned().or_else(|| context(name)),
    }
}

fn ordered(operator: &str, order: Option<std::cmp::Ordering>) -> bool {
    match operator {
        "==" => order.is_some_and(|order| order.is_eq()),
        "!=" => order.is_none_or(|order| order.is_ne()),
        "<" => order.is_some_and(|order| order.is_lt()),
        "<=" => order.is_some_and(|order| order.is_le()),
        ">" => order.is_some_and(|order| order.is_gt()),
        _ => order.is_some_and(|order| order.is_ge()),
    }
}

/// By the definition of a pattern, without any short cut.
fn fits(pattern: &str, text: &str) -> bool {
    let mut pattern_rest = pattern.chars();
    let mut text_rest = text.chars();
    match pattern_rest.next() {
        None => text.is_empty(),
        Some('*') => {
            fits(pattern_rest.as_str(), text)
                || text_rest.next().is_some() && fits(pattern, text_rest.as_str())
        }
        Some('?') => text_rest.next().is_some() && fits(pattern_rest.as_str(), text_rest.as_str()),
        Some(char) => {
            text_rest.next() == Some(char) && fits(pattern_rest.as_str(), text_rest.as_str())
        }
    }
}

fn expressions() -> impl Strategy<Value = Plain> {
    let subject = || proptest::sample::select(&SUBJECTS[..]);
    let operator = || proptest::sample::select(&["==", "!=", "<", "<=", ">", ">="][..]);
    let number = prop_oneof![-4_i128..11, Just(u64::MAX.into()), Just(1_i128 << 63)];
    let float = proptest::sample::select(&[0.0, -1.5, 3.0, 2.5, 1e300][..]);
    let label = proptest::sample::select(&["idle", "running", "dead"][..]).prop_map(str::to_owned);
    let pattern = || proptest::string::string_regex("[ab*?é]{0,4}|run\\*|\\*d\\*").unwrap();
    let leaf =
        prop_oneof![
            proptest::sample::select(&["sched_*", "sys:open", "*o*", "s?s*", "nothing"][..])
                .prop_map(Plain::Named),
            subject().prop_map(Plain::Has),
            (subject(), operator(), number).prop_map(|(s, o, n)| Plain::Number(s, o, n)),
            (subject(), operator(), float).prop_map(|(s, o, n)| Plain::Float(s, o, n)),
            (subject(), operator(), prop_oneof![texts(), label])
                .prop_map(|(s, o, t)| Plain::Text(s, o, t)),
            (subject(), pattern(), any::<bool>())
                .prop_map(|(subject, pattern, negated)| Plain::Fits { subject, pattern, negated }),
        ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Plain::All),
            proptest::collection::vec(inner.clone(), 2..4).prop_map(Plain::Any),
            inner.prop_map(|part| Plain::Not(Box::new(part))),
        ]
    })
}

/// What the filter says of the only event record of a packet, and of its class.
fn taken(filter: &Filter, record: &Record) -> (bool, Decision) {
    let trace = trace();
    let chosen = filter.compile(&trace);
    let Ok(Outcome::Ready(mut events)) = EventReader::open(trace, &*record.bytes) else {
        panic!("a packet");
    };
    let event = events.next_event().unwrap().expect("an event record");
    assert_eq!(event.name(), record.name);
    (chosen.matches(&event), chosen.decision(event.class().index()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_filter_takes_what_the_plain_evaluator_takes(
        expression in expressions(),
        record in prop_oneof![switches(), opens()],
    ) {
        let text = expression.shown();
        let filter = Filter::parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        let (matches, decision) = taken(&filter, &record);
        prop_assert_eq!(matches, expression.takes(&record), "{}", text);
        let decided = match decision {
            Decision::Always => Some(true),
            Decision::Never => Some(false),
            Decision::Depends => None,
        };
        prop_assert!(decided.is_none_or(|decided| decided == matches), "{}: {:?}", text, decision);
    }

    #[test]
    fn any_text_is_parsed_or_refused_at_a_column_of_it(text in ".{0,40}") {
        if let Err(error) = Filter::parse(&text) {
            prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{}", error);
        }
    }
}

fn refused(expression: &str) -> String {
    let filter = Filter::parse(expression).expect(expression);
    filter.check([&*trace()]).expect_err(expression).to_string()
}

#[test]
fn a_field_of_no_class_is_refused_with_the_nearest_name() {
    assert_eq!(
        refused("sched_* && tdi == 3 "),
        "column 12: no event record class has a field `tdi`"
    );
    assert_eq!(
        refused("procnam == x"),
        "column 1: no event record class has a field `procnam`; did you mean `procname`?"
    );
    assert_eq!(
        refused("!(env.tracer_mayor == 2)"),
        "column 3: no event record class has a field `env.tracer_mayor`; did you mean `env.tracer_major`?"
    );
    assert_eq!(
        refused("payload.procname == x"),
        "column 1: no event record class has a field `procname`"
    );
}

#[test]
fn what_cannot_be_compared_is_refused() {
    assert_eq!(refused("comm == 3"), "column 1: `comm` is a text and cannot be compared like this");
    assert_eq!(
        refused("tid ~ \"3*\""),
        "column 1: `tid` is an integer and cannot be compared like this"
    );
    assert_eq!(
        refused("addr == 1"),
        "column 1: `addr` is a structure, array or variant and cannot be compared like this"
    );
    assert_eq!(
        refused("state < idle"),
        "column 1: `state` is a number with names and cannot be compared like this"
    );
    assert_eq!(refused("name == 3"), "column 1: `name` is a text and cannot be compared like this");
    let ok = Filter::parse("has(addr) && name =~ '^s' && state == idle && loglevel <= warning");
    assert_eq!(ok.unwrap().check([&*trace()]), Ok(()));
}

#[test]
fn classes_that_cannot_match_are_known_before_any_event_record() {
    let trace = trace();
    let decisions = |text: &str| {
        let chosen = Filter::parse(text).unwrap().compile(&trace);
        [chosen.decision(0), chosen.decision(1)]
    };
    assert_eq!(decisions("sched_*"), [Decision::Always, Decision::Never]);
    assert_eq!(decisions("tid == 3"), [Decision::Depends, Decision::Never]);
    assert_eq!(decisions("!(tid == 3)"), [Decision::Depends, Decision::Always]);
    assert_eq!(decisions("loglevel == info || ret > 1"), [Decision::Always, Decision::Depends]);
    assert_eq!(decisions("host == vm && env.domain ~ 'k*'"), [Decision::Always; 2]);
    assert_eq!(decisions("packet.cpu_id == 1"), [Decision::Depends; 2]);
}
