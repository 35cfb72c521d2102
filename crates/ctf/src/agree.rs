//! The quick ways and the plain walk must agree: on random metadata and random bytes, about every value, every time and
//! every fault.

use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use crate::class::TraceClass;
use crate::clock;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::layout::{Layout, Role};
use crate::packet::{EventReader, Outcome};
use crate::value::{Context, Field, Scope, Shape, Value, Visitor};
use crate::walk::Stack;

/// Draws choices from bytes; 0 when they are used up, so that less bytes give simpler metadata.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn below(&mut self, end: u8) -> u8 {
        self.0.next().map_or(0, |byte| byte % end)
    }

    fn of<'t>(&mut self, choices: &[&'t str]) -> &'t str {
        let at = self.below(u8::try_from(choices.len()).unwrap());
        choices[usize::from(at)]
    }

    fn integer(&mut self) -> String {
        let size = match self.below(3) {
            0 => self.of(&["8", "16", "32", "64"]).to_owned(),
            1 => self.of(&["32", "8", "24", "40", "48", "56"]).to_owned(),
            _ => (1 + self.below(64)).to_string(),
        };
        let align = self.of(&["8", "8", "1", "16", "32", "4"]);
        let signed = self.of(&["false", "true"]);
        let order = self.of(&["le", "le", "le", "be"]);
        format!(
            "integer {{ size = {size}; align = {align}; signed = {signed}; byte_order = {order}; }}"
        )
    }

    /// Members of a structure, with names that are not used twice.
    fn members(&mut self, depth: u8, prefix: &str) -> String {
        let mut text = String::new();
        for at in 0..self.below(5) {
            let name = format!("{prefix}{at}");
            match self.below(if depth == 0 { 8 } else { 12 }) {
                0..=2 => write!(text, "{} {name};", self.integer()),
                3 => write!(text, "string {name};"),
                4 => write!(
                    text,
                    "integer {{ size = 8; encoding = UTF8; }} {name}[{}];",
                    self.below(9)
                ),
                5 => write!(text, "{} {name}[{}];", self.integer(), self.below(5)),
                6 => write!(text, "u8 {name}_len; {} {name}[{name}_len];", self.integer()),
                7 => write!(
                    text,
                    "floating_point {{ exp_dig = 8; mant_dig = 24; align = {}; }} {name};",
                    self.of(&["8", "32", "1"])
                ),
                8 => write!(
                    text,
                    "u8 {name}_len; integer {{ size = 8; encoding = UTF8; }} {name}[{name}_len];"
                ),
                9 => write!(
                    text,
                    "enum : u8 {{ a = 0 ... 3, b, c = 6 ... 255 }} {name}_tag;
                     variant <{name}_tag> {{ {} a; struct {{ {} }} b; string c; }} {name};",
                    self.integer(),
                    self.members(depth - 1, &format!("{name}_")),
                ),
                10 => write!(
                    text,
                    "struct {{ {} }} align({}) {name};",
                    self.members(depth - 1, &format!("{name}_")),
                    self.of(&["1", "8", "16"]),
                ),
                _ => write!(
                    text,
                    "u8 {name}_len; struct {{ {} }} {name}[{name}_len];",
                    self.members(depth - 1, &format!("{name}_")),
                ),
            }
            .unwrap();
        }
        text
    }

    fn metadata(&mut self) -> String {
        let header = self.of(&[
            "enum : integer { size = 5; align = 8; } { small = 0 ... 30, big = 31 } id;
             variant <id> { struct { integer { size = 27; align = 1; map = clock.c.value; } timestamp; } small;
                            struct { u8 id; integer { size = 64; map = clock.c.value; } timestamp; } big; } v;",
            "enum : integer { size = 16; align = 8; } { small = 0 ... 65534, big = 65535 } id;
             variant <id> { struct { integer { size = 32; align = 8; map = clock.c.value; } timestamp; } small;
                            struct { u8 id; integer { size = 64; map = clock.c.value; } timestamp; } big; } v;",
            "u8 id; integer { size = 64; map = clock.c.value; } timestamp;",
            "integer { size = 3; align = 1; } id; integer { size = 13; align = 1; map = clock.c.value; } timestamp;",
            "u8 id; u8 skipped[id]; integer { size = 16; map = clock.c.value; } timestamp;",
            "u8 id;",
        ]);
        let frequency = self.of(&["1000000000", "3", "19200000", "1"]);
        let align = self.of(&["8", "1", "32"]);
        let mut text = format!(
            "/* CTF 1.8 */ typealias integer {{ size = 8; }} := u8; typealias integer {{ size = 16; }} := u16;
             trace {{ major = 1; minor = 8; byte_order = le; }};
             clock {{ name = c; freq = {frequency}; offset = 5; }};
             stream {{ event.header := struct {{ {header} }} align({align});"
        );
        // What a payload refers to in another scope is gone over, and looked at, at different times.
        let shared = match self.below(4) {
            1 => ("u8 count;", "u16 by_context[stream.event.context.count];"),
            2 => (
                "enum : u8 { a = 0 ... 2, b = 3 ... 255 } tag;",
                "variant <stream.event.context.tag> { u8 a; u16 b; } by_context;",
            ),
            _ => ("", ""),
        };
        if self.below(2) == 1 || !shared.0.is_empty() {
            let members = self.members(1, "c");
            write!(text, "event.context := struct {{ {} {members} }};", shared.0).unwrap();
        }
        text.push_str("};");
        for id in 0..1 + self.below(3) {
            write!(text, "event {{ id = {id}; name = e{id};").unwrap();
            if self.below(3) == 1 {
                write!(text, "context := struct {{ {} }};", self.members(1, "s")).unwrap();
            }
            let members = self.members(2, "f");
            write!(text, "fields := struct {{ {members} {} }}; }};", shared.1).unwrap();
        }
        text
    }
}

/// What was shown, as text.
#[derive(Default)]
struct Shown(Vec<String>);

impl<'a> Visitor<'a> for Shown {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        self.0.push(format!("{} {} {value:?}", field.index, field.name()));
    }

    fn enter(&mut self, field: Field<'a>, shape: Shape) {
        self.0.push(format!("{} enter {shape:?}", field.index));
    }

    fn leave(&mut self, field: Field<'a>, shape: Shape) {
        self.0.push(format!("{} leave {shape:?}", field.index));
    }
}

/// An event record as decoded: class, end, time, fields.
type Record = (u32, u64, Option<i64>, Vec<String>);

/// Takes id and time from a header that is walked.
#[derive(Default)]
struct Head(Option<u64>, Option<(u64, u8)>);

impl<'a> Visitor<'a> for Head {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        let Some(int) = field.integer() else { return };
        match int.role {
            Some(Role::EventClassId) => self.0 = value.as_u64(),
            Some(Role::ClockTimestamp) => self.1 = value.as_u64().map(|value| (value, int.bits)),
            _ => {}
        }
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

/// All event records by walking from field to field, and what ends them.
fn walked(trace: &TraceClass, data: &[u8]) -> (Vec<Record>, Option<(u64, DecodeErrorKind)>) {
    let registers: Vec<Cell<u64>> = (0..trace.registers).map(|_| Cell::new(0)).collect();
    let stack = Stack::default();
    let limit = data.len() as u64 * 8;
    let context = Context { data, limit, registers: &registers, stack: &stack };
    let stream = &trace.streams[0];
    let (mut pos, mut clock) = (0, None);
    let mut records: Vec<Record> = Vec::new();
    // Of the last number, of whichever event record: the next one may begin inside of its last byte.
    let mut order = None;
    while pos < limit {
        let begin = pos;
        let mut scope = |layout: Option<&Layout>, pos: u64, shown: &mut Shown| {
            let Some(layout) = layout else { return Ok(pos) };
            // A layout outlives what is shown of it only in text.
            let mut walk = context.walk(layout, pos).after(order);
            order = walk.run(0, true, shown)?;
            Ok::<u64, crate::walk::Fault>(walk.pos)
        };
        let mut walk = || {
            let mut head = Head::default();
            if let Some(layout) = &stream.event_header {
                let _end = context.walk(layout, pos).run(0, true, &mut head)?;
            }
            let mut shown = Shown::default();
            pos = scope(stream.event_header.as_ref(), pos, &mut shown)?;
            let id = head.0.unwrap_or(stream.only_event_id.unwrap_or(0));
            let Some(class) = stream.event_ids.get(id) else {
                let kind = DecodeErrorKind::UnknownEventClass { id };
                return Err(crate::walk::Fault { pos: begin, node: 0, kind });
            };
            let declared = &trace.events[class as usize];
            pos = scope(stream.event_context.as_ref(), pos, &mut shown)?;
            pos = scope(declared.context.as_ref(), pos, &mut shown)?;
            pos = scope(declared.payload.as_ref(), pos, &mut shown)?;
            Ok((class, head.1, shown))
        };
        match walk() {
            Ok((class, time, shown)) => {
                if let Some((value, bits)) = time {
                    clock = Some(clock::update(clock.unwrap_or(0), value, bits));
                }
                let nanos = clock.zip(trace.clock_of(stream)).map(|(at, class)| class.to_ns(at));
                let nanos = match nanos.transpose() {
                    Ok(nanos) => nanos,
                    Err(kind) => return (records, Some((begin, kind))),
                };
                records.push((class, pos, nanos, shown.0));
            }
            Err(fault) => return (records, Some((fault.pos, fault.kind))),
        }
    }
    (records, None)
}

fn read(trace: &Arc<TraceClass>, data: &[u8]) -> (Vec<Record>, Option<DecodeError>) {
    let Outcome::Ready(mut reader) = EventReader::open(Arc::clone(trace), data).unwrap() else {
        panic!("there is no packet header that could want more");
    };
    let mut records = Vec::new();
    loop {
        match reader.next_event() {
            Ok(Some(event)) => {
                // Before the other scopes, whose fields it may refer to, were looked at.
                let mut payload = Shown::default();
                event.visit(Scope::Payload, &mut payload);
                let mut shown = Shown::default();
                for scope in [
                    Scope::EventHeader,
                    Scope::EventCommonContext,
                    Scope::EventSpecificContext,
                    Scope::Payload,
                ] {
                    event.visit(scope, &mut shown);
                }
                assert!(shown.0.ends_with(&payload.0), "{:?} in {:?}", payload.0, shown.0);
                for handle in
                    event.class().field_names().map(|name| event.class().field_handle(name))
                {
                    let handle = handle.unwrap();
                    let value = event.get(handle);
                    assert_eq!(event.u64(handle), value.and_then(|value| value.as_u64()));
                    assert_eq!(event.i64(handle), value.and_then(|value| value.as_i64()));
                    assert_eq!(event.bytes(handle), value.and_then(|value| value.as_bytes()));
                    if let Some(Value::Compound(compound)) = value {
                        let mut inner = Shown::default();
                        compound.visit(&mut inner);
                        let among = shown.0.windows(inner.0.len().max(1));
                        assert!(inner.0.is_empty() || among.into_iter().any(|w| w == inner.0));
                    }
                }
                let class = event.class().index();
                records.push((class, event.end_bits(), event.timestamp_ns(), shown.0));
            }
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn quick_decoding_counting_and_plain_walking_agree(
        choices in prop::collection::vec(any::<u8>(), 0..120),
        // Of tame bytes, event records follow each other; wild ones are soon at fault.
        data in prop_oneof![
            prop::collection::vec(prop_oneof![9 => 0..2_u8, 2 => 0..8_u8], 0..800),
            prop::collection::vec(prop_oneof![3 => 0..4_u8, 2 => any::<u8>()], 0..400),
        ],
    ) {
        let metadata = Choices(choices.iter()).metadata();
        let Ok(trace) = TraceClass::parse(metadata.as_bytes()) else {
            // Such as an enumeration's label for a number too wide, or a name used twice.
            return Err(TestCaseError::reject("not valid metadata"));
        };
        let trace = Arc::new(trace);
        let (records, error) = read(&trace, &data);
        let (expected, fault) = walked(&trace, &data);
        prop_assert_eq!(&records, &expected, "{}", metadata);
        let found = error.as_ref().map(|error| (error.offset_bits, error.kind));
        // An event record that does not fit is not looked through for byte orders, which the walk meets on its way.
        let clashes = fault.is_some_and(|fault| fault.1 == DecodeErrorKind::ByteOrderChange);
        if clashes {
            prop_assert!(found.is_some(), "{}", metadata);
        } else {
            prop_assert_eq!(found, fault, "{}", metadata);
        }

        let Outcome::Ready(mut reader) = EventReader::open(Arc::clone(&trace), &*data).unwrap()
        else { panic!("there is no packet header that could want more") };
        let times: Vec<i64> = records.iter().filter_map(|record| record.2).collect();
        let begin = times.iter().min().map_or(i64::MIN, |least| least + 1);
        let count = reader.count_rest(begin..i64::MAX);
        prop_assert_eq!(count.error.as_ref(), error.as_ref());
        prop_assert_eq!(count.events, times.iter().filter(|at| **at >= begin).count() as u64);
        prop_assert_eq!(count.untimed, (records.len() - times.len()) as u64);
        let backward = times.iter().zip(times.iter().skip(1)).filter(|(a, b)| b < a).count();
        prop_assert_eq!(count.backward, backward as u64);
    }
}
