//! Lines of event records: those of compiled programs against a plain formatter, for any classes and bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use ctf::format::json::JsonWriter;
use ctf::format::text::{Names, TextOptions, TextWriter};
use ctf::format::{Output, StreamText};
use ctf::packet::{EventReader, Outcome, Packets};
use ctf::{Base, EventRecord, Field, Scope, Shape, TraceClass, Value, Visitor};
use proptest::prelude::*;
use serde_json::Value as Json;

use crate::support::{read_trace, stream_files, trace_folders};

/// The fields of a scope.
#[derive(Debug)]
enum Tree<L> {
    Leaf(L),
    Structure(Vec<(String, Self)>),
    Array(Vec<(String, Self)>),
    Variant(Vec<(String, Self)>),
    Optional(Vec<(String, Self)>),
}

/// Puts fields into a tree.
struct Planter<L> {
    open: Vec<Vec<(String, Tree<L>)>>,
    leaf: fn(&Field<'_>, &Value<'_>) -> L,
}

impl<L> Planter<L> {
    fn plant(&mut self, field: &Field<'_>, tree: Tree<L>) {
        self.open.last_mut().expect("a parent").push((field.name().to_owned(), tree));
    }
}

impl<'a, L> Visitor<'a> for Planter<L> {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        let leaf = (self.leaf)(&field, &value);
        self.plant(&field, Tree::Leaf(leaf));
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {
        self.open.push(Vec::new());
    }

    fn leave(&mut self, field: Field<'a>, shape: Shape) {
        let children = self.open.pop().expect("entered");
        let tree = match shape {
            Shape::Structure => Tree::Structure(children),
            Shape::Array { length } => {
                assert_eq!(u64::try_from(children.len()), Ok(length));
                Tree::Array(children)
            }
            Shape::Variant => Tree::Variant(children),
            Shape::Optional { present } => {
                assert_eq!(children.len(), usize::from(present));
                Tree::Optional(children)
            }
        };
        self.plant(&field, tree);
    }
}

fn planted<L>(
    record: &EventRecord<'_>,
    scope: Scope,
    leaf: fn(&Field<'_>, &Value<'_>) -> L,
) -> Option<Tree<L>> {
    let mut planter = Planter { open: vec![Vec::new()], leaf };
    record.visit(scope, &mut planter);
    record.has(scope).then(|| Tree::Structure(planter.open.pop().expect("the root")))
}

const SCOPES: [Scope; 3] = [Scope::EventCommonContext, Scope::EventSpecificContext, Scope::Payload];

// Text, written slowly.

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for byte in text {
        match byte {
            b'\\' | b'"' | b'\'' | b'?' => out.extend([b'\\', *byte]),
            7..=13 => out.extend([b'\\', b"abtnvfr"[usize::from(byte - 7)]]),
            0x1B => out.extend(b"\\e"),
            0..0x20 | 0x7F => out.extend(format!("\\x{byte:02x}").bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
    out
}

fn number(field: &Field<'_>, number: i128) -> String {
    let bits = u32::from(field.bits());
    let low = |bits: u32| number & ((1_i128 << bits.min(64)) - 1);
    match field.base() {
        Base::Decimal => number.to_string(),
        Base::Hexadecimal => format!("0x{:X}", low(bits.next_multiple_of(4))),
        Base::Octal => format!("0{:o}", low(bits.next_multiple_of(3))),
        Base::Binary => format!("0b{:0width$b}", low(bits), width = usize::from(field.bits())),
    }
}

/// `%g` by way of the standard library's exponential form.
fn general(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
    }
    let text = format!("{value:.5e}");
    let (mantissa, exponent) = text.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let trimmed = |text: &str| match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        // The rounded number, not the number itself, has this many digits behind the point.
        let rounded: f64 = text.parse().expect("a number");
        trimmed(&format!("{rounded:.*}", usize::try_from(5 - exponent).expect("small")))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

fn text_leaf(field: &Field<'_>, value: &Value<'_>) -> Vec<u8> {
    match value {
        Value::Unsigned(value) => number(field, i128::from(*value)).into(),
        Value::Signed(value) => number(field, i128::from(*value)).into(),
        Value::Float(value) => general(*value).into(),
        Value::Str(text) => quoted(text),
        Value::WideStr(text) => quoted(text.chars().collect::<String>().as_bytes()),
        Value::Bool(truth) => truth.to_string().into(),
        Value::Enum(value) => {
            let labels: Vec<_> = value.labels().map(|label| quoted(label.as_bytes())).collect();
            let shown = match labels.as_slice() {
                [] => b"<unknown>".to_vec(),
                [one] => one.clone(),
                several => [b"{ ", several.join(&b", "[..]).as_slice(), b" }"].concat(),
            };
            let container = number(field, value.number());
            [b"( ", shown.as_slice(), b" : container = ", container.as_bytes(), b" )"].concat()
        }
        Value::Bits(bits) => {
            let mut out = format!("0x{:X}", bits.raw()).into_bytes();
            let flags: Vec<_> = bits.flags().map(|flag| quoted(flag.as_bytes())).collect();
            if !flags.is_empty() {
                out.extend([b" { ", flags.join(&b", "[..]).as_slice(), b" }"].concat());
            }
            out
        }
        Value::Blob(bytes) => {
            let digits = bytes.iter().fold(String::new(), |mut all, byte| {
                write!(all, "{byte:02x} ").expect("a string");
                all
            });
            format!("{{ {digits}}}").into()
        }
        other => panic!("{other:?} is no leaf"),
    }
}

fn text_of(tree: &Tree<Vec<u8>>, names: bool) -> Vec<u8> {
    let members = |children: &[(String, Tree<Vec<u8>>)], numbered: bool| -> Vec<u8> {
        let shown = children.iter().enumerate().map(|(at, (name, child))| {
            let label = match (names, numbered) {
                (false, _) => String::new(),
                (true, true) => format!("[{at}] = "),
                (true, false) => format!("{name} = "),
            };
            [label.as_bytes(), &text_of(child, names)].concat()
        });
        let shown: Vec<_> = shown.collect();
        let space: &[u8] = if shown.is_empty() { b"" } else { b" " };
        [space, &shown.join(&b", "[..])].concat()
    };
    match tree {
        Tree::Leaf(text) => text.clone(),
        Tree::Structure(children) => [b"{", members(children, false).as_slice(), b" }"].concat(),
        Tree::Array(children) => [b"[", members(children, true).as_slice(), b" ]"].concat(),
        Tree::Variant(children) | Tree::Optional(children) => match children.as_slice() {
            [] => b"<none>".to_vec(),
            [(_, child), ..] => [b"{ ", text_of(child, names).as_slice(), b" }"].concat(),
        },
    }
}

/// A line without time, packet context and environment.
fn plain_line(record: &EventRecord<'_>, names: bool) -> Vec<u8> {
    let scopes = SCOPES.into_iter().filter_map(|scope| planted(record, scope, text_leaf));
    let scopes: Vec<_> = scopes.map(|tree| text_of(&tree, names)).collect();
    [record.name().as_bytes(), b": ", &scopes.join(&b", "[..]), b"\n"].concat()
}

// JSON, by way of its values.

fn json_leaf(_: &Field<'_>, value: &Value<'_>) -> Json {
    let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
    let integer = |number: i128| match u64::try_from(number) {
        Ok(number) => Json::from(number),
        Err(_) => Json::from(i64::try_from(number).expect("64 bits")),
    };
    match value {
        Value::Unsigned(number) => Json::from(*number),
        Value::Signed(number) => Json::from(*number),
        Value::Float(number) if number.is_finite() => Json::from(*number),
        Value::Float(number) if number.is_nan() => Json::from("NaN"),
        Value::Float(number) => Json::from(if *number > 0.0 { "Infinity" } else { "-Infinity" }),
        Value::Str(text) => Json::from(lossy(text)),
        Value::WideStr(text) => Json::from(text.chars().collect::<String>()),
        Value::Bool(truth) => Json::from(*truth),
        Value::Enum(value) => {
            let labels: Vec<_> = value.labels().collect();
            serde_json::json!({"value": integer(value.number()), "labels": labels})
        }
        Value::Bits(bits) => {
            let flags: Vec<_> = bits.flags().collect();
            serde_json::json!({"value": bits.raw(), "flags": flags})
        }
        Value::Blob(bytes) => Json::from(bytes.to_vec()),
        other => panic!("{other:?} is no leaf"),
    }
}

fn json_of(tree: Tree<Json>) -> Json {
    match tree {
        Tree::Leaf(value) => value,
        Tree::Structure(children) => {
            Json::Object(children.into_iter().map(|(name, child)| (name, json_of(child))).collect())
        }
        Tree::Array(children) => children.into_iter().map(|(_, child)| json_of(child)).collect(),
        Tree::Variant(mut children) | Tree::Optional(mut children) => {
            children.pop().map_or(Json::Null, |(_, child)| json_of(child))
        }
    }
}

/// Equal, but for the last bits of floats, which the parser of the test may round, and for bits without names.
fn same(one: &Json, other: &Json) -> bool {
    match (one, other) {
        (Json::Object(bits), Json::Number(_)) => {
            bits["value"] == *other && bits["flags"] == Json::Array(Vec::new())
        }
        (Json::Object(one), Json::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| other.get(key).is_some_and(|o| same(value, o)))
        }
        (Json::Array(one), Json::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Json::Number(one), Json::Number(other)) if one.is_f64() && other.is_f64() => {
            let (one, other) = (one.as_f64().expect("f64"), other.as_f64().expect("f64"));
            (one - other).abs() <= one.abs() * 1e-15 + 1e-320
        }
        _ => one == other,
    }
}

/// How deep brackets are nested, those in texts counted too.
fn depth(line: &[u8]) -> usize {
    let step = |(now, most): (usize, usize), byte: &u8| match byte {
        b'{' | b'[' => (now + 1, most.max(now + 1)),
        b'}' | b']' => (now.saturating_sub(1), most),
        _ => (now, most),
    };
    line.iter().fold((0, 0), step).1
}

fn check_json(record: &EventRecord<'_>, line: &[u8]) {
    // The parser of the test goes no deeper.
    if depth(line) > 120 {
        return;
    }
    let line: Json = serde_json::from_slice(line).expect("a line is JSON");
    assert_eq!(line["name"], record.name());
    for (scope, key) in SCOPES.into_iter().zip(["common_context", "context", "payload"]) {
        let expected = planted(record, scope, json_leaf).map(json_of);
        let found = line.get(key);
        assert!(
            match (&expected, found) {
                (Some(expected), Some(found)) => same(expected, found),
                (expected, found) => expected.is_none() && found.is_none(),
            },
            "{key}: {expected:?} is shown as {found:?}"
        );
    }
}

/// Compares the lines of all event records that can be read; returns how many there are.
fn check_stream(trace: &Arc<TraceClass>, bytes: &[u8], most: u64) -> u64 {
    let names = |names| TextOptions { delta: false, names, ..TextOptions::default() };
    let mut writers = [(Names::default(), true), (Names::NONE, false)]
        .map(|(set, shown)| (TextWriter::new(names(set), Box::new(|_| 0)), shown));
    let mut json = JsonWriter::new();
    let (mut stream, mut out) = (StreamText::new(""), Output::new());
    let mut events = 0;
    for packet in Packets::new(trace, bytes) {
        let Ok(packet) = packet else { break };
        let Ok(Outcome::Ready(mut reader)) = EventReader::open(Arc::clone(trace), packet.bytes)
        else {
            break;
        };
        while events < most
            && let Ok(Some(record)) = reader.next_event()
        {
            events += 1;
            for (writer, shown) in &mut writers {
                out.clear();
                writer.write(&record, &stream, &mut out);
                let line = out.as_bytes();
                let plain = plain_line(&record, *shown);
                assert!(
                    line.ends_with(&plain),
                    "{:?}\n{:?}",
                    String::from_utf8_lossy(line),
                    String::from_utf8_lossy(&plain)
                );
            }
            out.clear();
            json.write(&record, &stream, &mut out);
            check_json(&record, out.as_bytes());
        }
        // A packet's context may be anything; it stands in each line of the packet.
        json.enter_packet(&mut stream, |fields| {
            reader.visit_packet(Scope::PacketContext, fields);
        });
        stream = StreamText::new("");
    }
    events
}

/// Declarations of a structure's members, and how many there are so far.
fn members(depth: u32) -> BoxedStrategy<String> {
    let integer = (1..=64_u32, any::<bool>(), 0..4_usize, any::<bool>()).prop_map(
        |(size, signed, base, wide)| {
            let base = [2, 8, 10, 16][base];
            let align = if wide { 8 } else { 1 };
            format!(
                "integer {{ size = {size}; signed = {signed}; base = {base}; align = {align}; }} @;"
            )
        },
    );
    let byte = "integer { size = 8; encoding = UTF8; }";
    let leaf = prop_oneof![
        4 => integer,
        2 => Just("string @;".to_owned()),
        1 => Just("floating_point { exp_dig = 8; mant_dig = 24; align = 8; } @;".to_owned()),
        1 => Just("floating_point { exp_dig = 11; mant_dig = 53; align = 1; } @;".to_owned()),
        1 => (0..20_u32).prop_map(move |len| format!("{byte} @[{len}];")),
        1 => Just(format!("integer {{ size = 4; }} _n@; {byte} @[_n@];")),
        1 => Just("integer { size = 5; align = 8; } _n@; integer { size = 16; base = 16; } @[_n@];".to_owned()),
        1 => (0..70_u32).prop_map(|len| format!("integer {{ size = 3; align = 1; }} @[{len}];")),
        1 => Just("enum : integer { size = 8; signed = true; } { A = 1, B = 1 ... 40, \"c \\\"?\" = -3 } @;".to_owned()),
    ];
    let one = if depth == 0 {
        leaf.boxed()
    } else {
        let inner = members(depth - 1);
        prop_oneof![
            6 => leaf,
            1 => inner.clone().prop_map(|members| format!("struct {{ {members} }} @;")),
            1 => (inner.clone(), 0..4_u32)
                .prop_map(|(members, len)| format!("struct {{ {members} }} @[{len}];")),
            1 => inner.clone().prop_map(|members| {
                format!("integer {{ size = 2; }} _n@; struct {{ {members} }} @[_n@];")
            }),
            1 => (inner.clone(), inner).prop_map(|(one, other)| {
                format!(
                    "enum : integer {{ size = 1; }} {{ x, y }} _t@; \
                     variant <_t@> {{ struct {{ {one} }} x; struct {{ {other} }} y; }} @;"
                )
            }),
        ]
        .boxed()
    };
    prop::collection::vec(one, 0..6)
        .prop_map(move |members| {
            // `@` stands for a name that is unique in its structure.
            let named = members.iter().enumerate();
            named.map(|(at, member)| rename(member, depth, at)).collect()
        })
        .boxed()
}

/// Gives the members at one depth their names; those of deeper structures have theirs.
fn rename(member: &str, depth: u32, at: usize) -> String {
    member.replace('@', &format!("_f{depth}x{at}"))
}

fn metadata() -> impl Strategy<Value = String> {
    (members(2), members(1), any::<bool>(), any::<bool>()).prop_map(
        |(payload, context, has_context, big)| {
            let order = if big { "be" } else { "le" };
            let context = if has_context {
                format!("event.context := struct {{ {context} }};")
            } else {
                String::new()
            };
            format!(
                "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = {order}; }}; \
                 stream {{ {context} }}; \
                 event {{ name = \"e\"; fields := struct {{ {payload} }}; }};"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn programs_write_what_a_plain_formatter_writes(
        metadata in metadata(),
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), 0x20..0x7F_u8], 0..600),
    ) {
        let trace = TraceClass::parse(metadata.as_bytes()).expect("metadata");
        check_stream(&Arc::new(trace), &bytes, 200);
    }
}

#[test]
fn programs_write_what_a_plain_formatter_writes_of_conformance_inputs() {
    let Some(root) = testkit::unpacked_trace("conformance") else {
        return testkit::skip("no conformance inputs");
    };
    let mut events = 0;
    for folder in trace_folders(&root) {
        let Ok(trace) = read_trace(&folder) else { continue };
        for file in stream_files(&folder) {
            let bytes = std::fs::read(&file).expect("stream");
            events += check_stream(&trace, &bytes, 500);
        }
    }
    assert!(events > 5_000, "{events} event records were compared");
}
