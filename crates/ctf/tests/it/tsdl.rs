//! What metadata text means, by the values of event records that are read by it.

use std::sync::Arc;

use ctf::packet::{EventReader, Outcome};
use ctf::{Error, Field, Scope, Shape, TextProblem, TraceClass, Value, Visitor, WarningKind};

const HEAD: &str = "/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 16; align = 8; } := u16;
typealias integer { size = 8; signed = true; } := i8;
trace { major = 1; minor = 8; byte_order = le; };
";

fn parse(text: &str) -> Result<Arc<TraceClass>, Error> {
    TraceClass::parse(format!("{HEAD}{text}").as_bytes()).map(Arc::new)
}

fn with_fields(fields: &str) -> Result<Arc<TraceClass>, Error> {
    parse(&format!("event {{ name = e; fields := struct {{ {fields} }}; }};"))
}

#[derive(Default)]
struct Shown(String);

impl<'a> Visitor<'a> for Shown {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        let value = match value {
            Value::Str(text) => String::from_utf8_lossy(text).into_owned(),
            Value::Float(number) => number.to_string(),
            other => other.as_i64().map_or_else(|| "?".to_owned(), |number| number.to_string()),
        };
        self.0.push_str(&format!("{}={value} ", field.name()));
    }

    fn enter(&mut self, field: Field<'a>, _: Shape) {
        self.0.push_str(&format!("{}( ", field.name()));
    }

    fn leave(&mut self, _: Field<'a>, _: Shape) {
        self.0.push_str(") ");
    }
}

/// The payloads of all event records of one packet, and the error that ends them.
fn payloads(trace: &Arc<TraceClass>, bytes: &[u8]) -> (Vec<String>, Option<String>) {
    let Ok(Outcome::Ready(mut events)) = EventReader::open(Arc::clone(trace), bytes) else {
        panic!("the packet has no header");
    };
    let mut all = Vec::new();
    loop {
        match events.next_event() {
            Ok(Some(event)) => {
                let mut shown = Shown::default();
                event.visit(Scope::Payload, &mut shown);
                all.push(shown.0.trim_end().to_owned());
            }
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(format!("{}: {}", error.field, error.kind))),
        }
    }
}

/// The payloads by metadata that declare just these fields.
fn check(fields: &str, bytes: &[u8], expected: &[&str]) {
    let trace = with_fields(fields).unwrap_or_else(|error| panic!("{fields}: {error}"));
    assert_eq!(
        payloads(&trace, bytes),
        (expected.iter().map(|e| (*e).to_owned()).collect(), None),
        "{fields}"
    );
}

fn refused(fields: &str, expected: &str) {
    let Err(Error::MetadataText { problem, .. }) = with_fields(fields) else {
        panic!("{fields} is accepted")
    };
    assert_eq!(problem.to_string(), expected, "{fields}");
}

#[test]
fn a_character_literal_is_a_text() {
    let metadata = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le; }; env { x = 'a'; y = '\\''; };
        typealias integer { size = 8; } := u8;
        event { name = 'e'; fields := struct { enum : u8 { 'A', B } x; }; };";
    let trace = TraceClass::parse(metadata.as_bytes()).expect("right");
    let text = |name| trace.env(name).and_then(|value| value.as_str());
    assert_eq!((text("x"), text("y")), (Some("a"), Some("'")));
    assert_eq!(trace.event_record_classes()[0].name(), "e");
    let number = metadata.replace("'A', B", "A = 'a'");
    assert!(TraceClass::parse(number.as_bytes()).is_err(), "a text is no number");
}

#[test]
fn a_length_inside_an_array_is_that_of_the_current_element() {
    let expected = ["s( ( n=1 a( =7 ) ) ( n=2 a( =8 =9 ) ) )", "s( ( n=0 a( ) ) ( n=1 a( =5 ) ) )"];
    for path in ["n", "s.n", "event.fields.s.n"] {
        let fields = format!("struct {{ u8 n; u8 a[{path}]; }} s[2];");
        check(&fields, &[1, 7, 2, 8, 9, 0, 1, 5], &expected);
    }
    check(
        "struct { u8 n; u8 a[event.fields.s.n]; } s[1][2];",
        &[1, 7, 2, 8, 9],
        &["s( ( ( n=1 a( =7 ) ) ( n=2 a( =8 =9 ) ) ) )"],
    );
    refused(
        "struct { u8 n; } s[2]; u8 a[s.n];",
        "reference `s.n`: leads into an array that it does not stand in",
    );
}

#[test]
fn a_length_in_a_variant_is_that_of_the_option_decoded_last() {
    let tag = "enum : u8 { x, y } t;";
    let both =
        ["t=0 v( x( n=2 s=q ) ) a( =5 =6 )".to_owned(), "t=1 v( y( s=q n=1 ) ) a( =7 )".to_owned()];
    let bytes = [0, 2, b'q', 0, 5, 6, 1, b'q', 0, 1, 0, 7];
    let options = "struct { u8 n; string s; } x; struct { string s; u16 n; } y;";
    for path in ["v.n", "event.fields.v.n"] {
        let fields = format!("{tag} variant <t> {{ {options} }} v; u8 a[{path}];");
        let trace = with_fields(&fields).expect("both options have n");
        assert_eq!(payloads(&trace, &bytes), (both.to_vec(), None));
    }
    check(
        &format!("{tag} variant <t> {{ u8 x; u16 y; }} n; u8 a[n];"),
        &[0, 1, 9, 1, 2, 0, 8, 7],
        &["t=0 n( x=1 ) a( =9 )", "t=1 n( y=2 ) a( =8 =7 )"],
    );
    check(
        &format!(
            "{tag} variant <t> {{ variant <t> {{ u8 x; u16 y; }} x; u8 y; }} n; struct {{ string a[n]; }} b[1];"
        ),
        &[0, 1, b'k', 0, 1, 0],
        &["t=0 n( x( x=1 ) ) b( ( a( =k ) ) )", "t=1 n( y=0 ) b( ( a( ) ) )"],
    );
    refused(
        &format!("{tag} variant <t> {{ struct {{ u8 n; }} x; string y; }} v; u8 a[v.n];"),
        "reference `v.n`: leads to something other than an integer",
    );
    refused(
        &format!(
            "{tag} variant <t> {{ struct {{ u8 n; }} x; struct {{ i8 n; }} y; }} v; u8 a[v.n];"
        ),
        "reference `v.n`: leads to a signed integer",
    );
}

#[test]
fn two_references_to_different_sets_of_options_do_not_disturb_each_other() {
    check(
        "enum : u8 { x, y } t; variant <t> { u8 x; u8 y; } v; enum : u8 { p, q } r; variant <r> { u8 p; u8 q; } w;
         u8 a[v]; u8 b[w]; u8 c[v];",
        &[0, 1, 1, 2, 10, 20, 21, 30],
        &["t=0 v( x=1 ) r=1 w( q=2 ) a( =10 ) b( =20 =21 ) c( =30 )"],
    );
}

#[test]
fn a_reference_to_one_option_needs_that_option() {
    let fields = "enum : u8 { x, y } t; variant <t> { struct { u8 n; } x; struct { u8 m; } y; } v; u8 a[v.x.n];";
    check(fields, &[0, 1, 9], &["t=0 v( x( n=1 ) ) a( =9 )"]);
    let trace = with_fields(fields).expect("x has n");
    let (read, error) = payloads(&trace, &[0, 1, 9, 1, 1, 9]);
    assert_eq!(read, ["t=0 v( x( n=1 ) ) a( =9 )"]);
    let error = error.expect("the option before must not count");
    assert!(error.starts_with("payload.a[]: 18446744073709551615 elements"), "{error}");
}

#[test]
fn a_reference_from_inside_an_option_leads_to_that_option() {
    for path in ["n", "v.n", "v.x.n", "event.fields.v.n", "event.fields.v.x.n"] {
        let fields = format!(
            "enum : u8 {{ x, y }} t; variant <t> {{ struct {{ u8 n; u8 a[{path}]; }} x; struct {{ string n; }} y; }} v;"
        );
        check(&fields, &[0, 2, 5, 6, 1, 0], &["t=0 v( x( n=2 a( =5 =6 ) ) )", "t=1 v( y( n= ) )"]);
    }
}

#[test]
fn selectors_are_not_looked_for_in_other_variants() {
    refused(
        "enum : u8 { x, y } t; variant <t> { enum : u8 { p } x; enum : u8 { p } y; } s; variant <s> { u8 p; } v;",
        "reference `s`: leads into a variant that it does not stand in",
    );
}

#[test]
fn a_type_keeps_the_fields_that_it_refers_to_where_it_is_declared() {
    check(
        "u8 n; typedef struct { u8 a[n]; } T; struct { string n; T x; } f;",
        &[2, b'k', 0, 5, 6],
        &["n=2 f( n=k x( a( =5 =6 ) ) )"],
    );
    check(
        "u8 n; typealias struct { u8 a[n]; } := T; struct { u8 n; struct { T x; } g; } f;",
        &[1, 0, 5],
        &["n=1 f( n=0 g( x( a( =5 ) ) ) )"],
    );
    // Declared where there is no such field, it means one where it is used.
    let trace = parse(
        "struct T { u8 a[n]; }; event { name = e; fields := struct { u8 n; struct { struct T x; } f; }; };",
    );
    let trace = trace.expect("n is there");
    assert_eq!(payloads(&trace, &[1, 9]).0, ["n=1 f( x( a( =9 ) ) )"]);
}

#[test]
fn aliases_have_brackets_stars_and_several_words() {
    check(
        "typealias u8 := T[2][3]; T a;",
        &[1, 2, 3, 4, 5, 6],
        &["a( ( =1 =2 =3 ) ( =4 =5 =6 ) )"],
    );
    check("typedef u8 T[2]; T a[1];", &[1, 2], &["a( ( =1 =2 ) )"]);
    check("typealias u8 := struct page *; struct page * a;", &[1], &["a=1"]);
    check("typealias u8 := unsigned long *; unsigned long * a;", &[1], &["a=1"]);
    check("typealias u8 := T * const *; T * * a;", &[1], &["a=1"]);
}

#[test]
fn floats_of_16_bits_are_read_in_both_orders() {
    check(
        "floating_point { exp_dig = 5; mant_dig = 11; } a; floating_point { exp_dig = 5; mant_dig = 11; byte_order = be; } b;",
        &[0x00, 0x3E, 0xC0, 0x00],
        &["a=1.5 b=-2"],
    );
}

/// The first error of a stream class whose packet context is empty, by the fields of each scope.
fn clash(header: &str, common: &str, fields: &str, bytes: &[u8]) -> (usize, Option<String>) {
    let trace = parse(&format!(
        "typealias integer {{ size = 3; }} := le3; typealias integer {{ size = 3; byte_order = be; }} := be3;
         stream {{ event.header := struct {{ {header} }}; event.context := struct {{ {common} }}; }};
         event {{ name = e; fields := struct {{ {fields} }}; }};"
    ));
    let (read, error) = payloads(&trace.expect("metadata"), bytes);
    (read.len(), error)
}

#[test]
fn the_byte_order_cannot_change_inside_a_byte_not_even_between_scopes() {
    let error = |field: &str| Some(format!("{field}: the byte order changes inside a byte"));
    let bytes = [0; 4];
    assert_eq!(clash("le3 a;", "be3 b;", "", &bytes), (0, error("stream event context.b")));
    assert_eq!(clash("le3 a;", "", "be3 b;", &bytes), (0, error("payload.b")));
    assert_eq!(clash("le3 a; be3 b;", "", "", &bytes), (0, error("event header.b")));
    // From one event record to the next.
    assert_eq!(clash("le3 a;", "", "u8 c; be3 b;", &[0; 8]), (1, error("event header.a")));
    assert_eq!(clash("", "", "string s; be3 b[2]; u8 n; le3 c[n];", &bytes[..3]).1, None);
    assert_eq!(clash("le3 a; u8 c;", "", "be3 b; u8 d;", &bytes), (1, None));
    assert_eq!(clash("le3 a;", "le3 c;", "le3 b; struct { be3 d; } align(8) e;", &[0; 3]).0, 1);
}

#[test]
fn a_variant_may_be_given_another_selector() {
    check(
        "enum : u8 { x, y } t; variant V <t> { u8 x; u16 y; } v; enum : u8 { x, y } u; variant V <u> w;",
        &[0, 1, 1, 2, 0],
        &["t=0 v( x=1 ) u=1 w( y=2 )"],
    );
}

#[test]
fn what_nothing_knows_is_a_warning_with_its_place() {
    let text = "clock { name = c; feq = 3; };
stream { event.header := struct { integer { size = 8; map = clock.c.value; displays = 3; } timestamp; };
  packet.contxt := struct { u8 a; }; };
env { a = 1; b = c; a = 2; };
event { name = e; fields := struct { string { encodin = UTF8; } s; }; };
";
    let trace = parse(text).expect("only warnings");
    let found: Vec<_> = trace.warnings().iter().map(|w| (w.line, w.kind.to_string())).collect();
    let unknown = |line, name: &str, block: &str| {
        (line, format!("`{name}` has no meaning in {block} and is left out"))
    };
    let expected = [
        unknown(6, "feq", "a clock block"),
        unknown(7, "displays", "an integer"),
        unknown(8, "packet.contxt", "a stream block"),
        (9, "the value of environment entry `b` has no quotes".to_owned()),
        (9, "environment entry `a` is given again; the last value holds".to_owned()),
        unknown(10, "encodin", "a string"),
    ];
    assert_eq!(found, expected);
    assert_eq!(trace.unlisted_warnings(), 0);
    assert_eq!(trace.env("a").and_then(ctf::EnvValue::as_integer), Some(2));
    let first = &trace.warnings()[0];
    assert_eq!(first.offset_bytes, HEAD.len() + text.find("feq").expect("there"));
}

#[test]
fn warnings_have_a_bound_and_the_rest_is_counted() {
    let clocks: String = (0..1000).map(|i| format!("clock {{ name = c{i}; x = 1; }};\n")).collect();
    let trace = parse(&clocks).expect("only warnings");
    assert_eq!((trace.warnings().len(), trace.unlisted_warnings()), (256, 744));
}

#[test]
fn members_with_a_meaning_and_an_unfit_class_are_ordinary_fields() {
    let text = "/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le;
        packet.header := struct { string magic; string stream_id; string uuid[16]; }; };
        stream { packet.context := struct { string content_size; integer { size = 8; signed = true; } events_discarded; }; };";
    let trace = TraceClass::parse(text.as_bytes()).expect("only warnings");
    let kinds: Vec<_> = trace.warnings().iter().map(|warning| &warning.kind).collect();
    assert_eq!(kinds.len(), 5);
    assert!(
        kinds.iter().all(|kind| matches!(kind, WarningKind::OrdinaryField { .. })),
        "{kinds:?}"
    );
}

#[test]
fn text_without_signature_is_read_with_a_warning_if_it_can_be() {
    let text = "trace { major = 1; minor = 8; byte_order = le; };";
    let trace = TraceClass::parse(text.as_bytes()).expect("TSDL");
    assert_eq!(trace.warnings()[0].kind, WarningKind::NoSignature);
    assert!(matches!(TraceClass::parse(b"trace { major = 1;"), Err(Error::NotMetadata { .. })));
}

#[test]
fn packets_of_another_trace_are_read_and_say_so() {
    let text = r#"/* CTF 1.8 */ trace { major = 1; minor = 8; byte_order = le;
        uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f"; packet.header := struct { integer { size = 8; } uuid[16]; }; };
        event { name = e; fields := struct { integer { size = 8; } a; }; };"#;
    let trace = Arc::new(TraceClass::parse(text.as_bytes()).expect("metadata"));
    for (last, foreign) in [(15, false), (16, true)] {
        let mut bytes: Vec<u8> = (0..15).collect();
        bytes.extend([last, 7]);
        let Ok(Outcome::Ready(events)) = EventReader::open(Arc::clone(&trace), &bytes) else {
            panic!("a whole packet")
        };
        assert_eq!(events.packet().foreign_uuid.is_some(), foreign);
        assert_eq!(payloads(&trace, &bytes).0, ["a=7"]);
    }
}

#[test]
fn clocks_that_times_are_mapped_to_must_exist_where_they_are_used() {
    let mapped = "integer { size = 8; map = clock.nope.value; }";
    let error = with_fields(&format!("{mapped} a;")).expect_err("no clock");
    assert!(
        matches!(
            &error,
            Error::MetadataText { problem: TextProblem::Unknown { what: "clock", .. }, .. }
        ),
        "{error}"
    );
    assert!(with_fields(&format!("typealias {mapped} := unused; u8 a;")).is_ok());
}

#[test]
fn times_without_a_clock_have_one_of_1_ghz_also_inside_of_a_headers_members() {
    let declared = "clock { name = c; freq = 1000; };";
    let header = "enum : u8 { a = 0 ... 30, b } id; variant <id> { struct { u8 timestamp; } a; struct { u16 timestamp; } b; } v;";
    for (clock, ns) in [("", 5), (declared, 5_000_000)] {
        let trace = parse(&format!(
            "{clock} stream {{ event.header := struct {{ {header} }}; }}; event {{ name = e; id = 0; }};"
        ));
        let Ok(Outcome::Ready(mut events)) =
            EventReader::open(trace.expect("metadata"), [0, 5, 0, 5])
        else {
            panic!("no header")
        };
        let mut times = Vec::new();
        while let Ok(Some(event)) = events.next_event() {
            times.push(event.timestamp_ns());
        }
        assert_eq!(times, [Some(ns), Some(ns)]);
    }
}
