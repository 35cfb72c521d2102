//! What the writer writes, our reader and babeltrace2 read with the same values.

use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;

use ctf::packet::{EventReader, Outcome};
use ctf::writer::{
    Appended, ArrayClass, ClassProblem, EventClass, EventHeader, Field, FieldClass, FloatClass,
    IntClass, Key, Length, Mapping, OpenPacket, OptionalClass, PacketStart, Record, Schema,
    StreamClass, Structure, TraceClass, VarIntClass, VariantClass, WriteError,
};
use ctf::{
    Base, ByteOrder, ClockClass, ClockOrigin, CtfVersion, Encoding, EnvValue, Scope, Shape, Uuid,
    Value, Visitor,
};
use proptest::prelude::*;

const ORIGIN_NS: i64 = 1_700_000_000_000_000_000;

fn clock() -> ClockClass {
    ClockClass {
        uuid: Some(Uuid([0xCD; 16])),
        offset_s: ORIGIN_NS / 1_000_000_000,
        origin: ClockOrigin::UnixEpoch,
        ..ClockClass::new("monotonic")
    }
}

fn int(name: &str, class: IntClass) -> Field {
    Field::new(name, FieldClass::Int(class))
}

/// A trace with a bit of everything that CTF 1.8 has.
fn everyday() -> Schema {
    let state = IntClass { signed: true, ..IntClass::U8 };
    let labels = vec![Mapping::one("gone", -1), Mapping::one("here", 2)];
    let narrow = IntClass { align: 1, ..IntClass::unsigned(3) };
    let pair = FieldClass::array(FieldClass::Int(IntClass::I32), Length::Fixed(2));
    let big = IntClass { byte_order: Some(ByteOrder::Big), ..IntClass::U16 };
    let kind = FieldClass::Enum(
        IntClass::U8,
        vec![Mapping::one("word", 0), Mapping { label: "number".to_owned(), first: 1, last: 9 }],
    );
    let options = vec![
        (Field::new("word", FieldClass::STRING), vec![(0, 0)]),
        (int("number", IntClass::HEX32), vec![(1, 9)]),
    ];
    let mut all = vec![
        int("small", IntClass::U16),
        int("large", IntClass::HEX64),
        Field::new("state", FieldClass::Enum(state, labels)),
        Field::new("path", FieldClass::STRING),
        Field::new("pair", pair),
    ];
    all.extend(Field::counted("bytes", IntClass::U8, Key(0)));
    all.extend([
        int("bits", narrow),
        int("more", IntClass { bits: 5, ..narrow }),
        int("swapped", big),
        Field::new("ratio", FieldClass::Float(FloatClass::F32)),
        Field::keyed("kind", kind, Key(1)),
        Field::new("either", FieldClass::Variant(VariantClass { selector: Key(1), options })),
        Field::new(
            "table",
            FieldClass::array(
                FieldClass::Structure(Structure::new(vec![
                    Field::keyed("n", FieldClass::Int(IntClass::U8), Key(2)),
                    Field::new("names", FieldClass::array(FieldClass::STRING, Length::Of(Key(2)))),
                ])),
                Length::Fixed(2),
            ),
        ),
    ]);
    let mut all = EventClass::new(31, "all", all);
    all.log_level = Some(13);
    all.emf_uri = Some("http://example.org/\"all\"".to_owned());
    all.context = Some(Structure::new(vec![int("depth", IntClass::U8)]));
    let context = vec![int("tid", IntClass::I32), Field::new("comm", FieldClass::text(6))];
    let env = vec![
        ("hostname".to_owned(), EnvValue::Text("a \"host\" \\ name".to_owned())),
        ("tracer_major".to_owned(), EnvValue::Integer(-3)),
    ];
    let events = vec![EventClass::new(0, "empty", vec![]), all];
    let mut class = TraceClass::per_cpu(Uuid([0xAB; 16]), clock(), env, context, events);
    class.streams[0].header = EventHeader::Compact;
    Schema::new(class).expect("classes are right")
}

fn write_all(record: &mut Record<'_>) -> Result<(), WriteError> {
    record.signed(-5)?;
    record.string(b"shell")?;
    record.unsigned(7)?;
    record.unsigned(65_535)?;
    record.unsigned(u64::MAX)?;
    record.signed(2)?;
    record.string(b"/etc/pass wd")?;
    record.elements(&[7, (-8_i64).cast_unsigned()])?;
    record.counted(&[1, 2, 255])?;
    record.unsigned(5)?;
    record.unsigned(17)?;
    record.unsigned(0x1234)?;
    record.float(0.25)?;
    record.unsigned(3)?;
    record.unsigned(0xBEEF)?;
    for names in [&["a"][..], &["b", "c"]] {
        record.unsigned(u64::try_from(names.len()).expect("right"))?;
        names.iter().try_for_each(|name| record.string(name.as_bytes()))?;
    }
    Ok(())
}

fn everyday_packet(schema: &Schema) -> Vec<u8> {
    let mut packet = schema.open_cpu(1, 10, 4096).expect("right");
    let empty = packet.append(0, 11, |record| {
        record.signed(1)?;
        record.string(b"longer name")
    });
    assert_eq!(empty, Ok(Appended::Yes));
    assert_eq!(packet.append(31, 12, write_all), Ok(Appended::Yes));
    packet.seal(13, 4).bytes
}

#[test]
fn babeltrace_prints_the_values_that_were_written() {
    let folder = tempfile::tempdir().expect("right");
    let schema = everyday();
    fs::write(folder.path().join("metadata"), schema.metadata()).expect("right");
    fs::write(folder.path().join("stream"), everyday_packet(&schema)).expect("right");
    let Ok(output) = Command::new("babeltrace2")
        .env("TZ", "UTC")
        .args(["--fields=loglevel,emf"])
        .arg(folder.path())
        .output()
    else {
        testkit::skip("babeltrace2 is not installed");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("right");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            r#"[22:13:20.000000011] (+?.?????????) empty: { cpu_id = 1 }, { tid = 1, comm = "longer" }, { }"#,
            r#"[22:13:20.000000012] (+0.000000001) TRACE_DEBUG_LINE (13):http://example.org/"all" all: { cpu_id = 1 }, { tid = -5, comm = "shell" }, { depth = 7 }, { small = 65535, large = 0xFFFFFFFFFFFFFFFF, state = ( "here" : container = 2 ), path = "/etc/pass wd", pair = [ [0] = 7, [1] = -8 ], _bytes_length = 3, bytes = [ [0] = 1, [1] = 2, [2] = 255 ], bits = 5, more = 17, swapped = 4660, ratio = 0.25, kind = ( "number" : container = 3 ), either = { 0xBEEF }, table = [ [0] = { n = 1, names = [ [0] = "a" ] }, [1] = { n = 2, names = [ [0] = "b", [1] = "c" ] } ] }"#,
        ]
    );
}

#[test]
fn a_packet_is_as_documented_byte_for_byte() {
    let fields = vec![
        Field::new("comm", FieldClass::text(4)),
        Field::new("pair", FieldClass::array(FieldClass::Int(IntClass::I32), Length::Fixed(2))),
    ];
    let context = vec![int("tid", IntClass::I32)];
    let events = vec![EventClass::new(0, "mixed", fields)];
    let class = TraceClass::per_cpu(Uuid([9; 16]), clock(), vec![], context, events);
    let schema = Schema::new(class).expect("right");
    let mut packet = schema.open_cpu(3, 1000, 4096).expect("right");
    let appended = packet.append(0, 1001, |record| {
        record.signed(-2)?;
        record.string(b"sh")?;
        record.elements(&[5, u64::MAX])
    });
    assert_eq!(appended, Ok(Appended::Yes));
    let sealed = packet.seal(1010, 7);
    let mut expected = vec![0xC1, 0x1F, 0xFC, 0xC1];
    expected.extend([9; 16]);
    expected.extend(0_u32.to_le_bytes());
    for word in [3_u64, 1000, 1010, 110 * 8, 110 * 8, 0, 7] {
        expected.extend(word.to_le_bytes());
    }
    expected.extend(3_u32.to_le_bytes());
    expected.extend([0, 0, 0xE9, 3, 0, 0, 0, 0, 0, 0, 0xFE, 0xFF, 0xFF, 0xFF, b's', b'h', 0, 0]);
    expected.extend([5, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
    assert_eq!(sealed.bytes, expected);
    assert_eq!((sealed.begin, sealed.end, sealed.records), (1000, 1010, 1));
}

fn small() -> Schema {
    let events = vec![EventClass::new(0, "name", vec![Field::new("name", FieldClass::STRING)])];
    let context = vec![int("tid", IntClass::I32)];
    Schema::new(TraceClass::per_cpu(Uuid([9; 16]), clock(), vec![], context, events))
        .expect("right")
}

fn append(packet: &mut OpenPacket<'_>, text: &[u8]) -> Result<Appended, WriteError> {
    packet.append(0, 1, |record| {
        record.signed(1)?;
        record.string(text)
    })
}

#[test]
fn a_record_that_does_not_fit_leaves_the_packet_as_it_was() {
    const HEADER: usize = 84;
    let schema = small();
    let mut packet = schema.open_cpu(0, 0, HEADER + 40).expect("right");
    assert_eq!(append(&mut packet, b"1234567"), Ok(Appended::Yes));
    assert_eq!(append(&mut packet, b"1234567"), Ok(Appended::Full));
    assert_eq!(append(&mut packet, b"12"), Ok(Appended::Yes));
    let first = packet.roll(2, 0);
    assert_eq!((first.records, first.bytes.len()), (2, HEADER + 22 + 17));
    let result = append(&mut packet, &[b'x'; 64]);
    assert_eq!(result, Err(WriteError::TooLarge { bytes: 79, max_bytes: 124 }));
    let second = packet.roll(1, 2);
    assert_eq!((second.begin, second.end, second.sequence_number), (2, 2, 1), "packets touch");
    assert_eq!(second.bytes.len(), HEADER);
    let opened = schema.open_cpu(0, 0, 83).map(|_| ());
    assert_eq!(opened, Err(WriteError::TooLarge { bytes: 84, max_bytes: 83 }));
}

#[test]
fn who_gives_elements_one_by_one_gives_nothing_to_an_array_without_any() {
    let bytes = |length| FieldClass::array(FieldClass::Int(IntClass::U8), length);
    let payload = vec![
        Field::keyed("count", FieldClass::Int(IntClass::U8), Key(0)),
        Field::new("counted", bytes(Length::Of(Key(0)))),
        Field::new("two", bytes(Length::Fixed(2))),
    ];
    let events = vec![EventClass::new(0, "arrays", payload)];
    let class = TraceClass::per_cpu(Uuid([1; 16]), clock(), vec![], vec![], events);
    let schema = Schema::new(class).expect("classes are right");
    let mut packet = schema.open_cpu(0, 0, 4096).expect("right");
    for count in [0, 1] {
        let appended = packet.append(0, 1, |record| {
            record.unsigned(count)?;
            (0..count).try_for_each(|_| record.unsigned(7))?;
            record.bytes(&[8, 9])
        });
        assert_eq!(appended, Ok(Appended::Yes), "{count} elements");
    }
    let sealed = packet.seal(2, 0).bytes;
    assert!(sealed.windows(3).any(|bytes| bytes == [0, 8, 9]));
    assert!(sealed.windows(4).any(|bytes| bytes == [1, 7, 8, 9]));
}

#[test]
fn values_that_do_not_match_the_class_are_refused_by_the_fields_name() {
    let schema = small();
    let mut packet = schema.open_cpu(0, 10, 4096).expect("right");
    let tid = || "stream event context.tid".to_owned();
    let kind = packet.append(0, 10, |record| record.string(b"x"));
    assert_eq!(kind, Err(WriteError::Kind { field: tid(), given: "a text" }));
    let missing = packet.append(0, 10, |record| record.signed(1));
    assert_eq!(missing, Err(WriteError::Missing { field: "payload.name".to_owned() }));
    let value = i64::from(i32::MAX) + 1;
    let range = packet.append(0, 10, |record| record.signed(value));
    assert_eq!(range, Err(WriteError::Range { field: tid(), value: value.into() }));
    assert_eq!(packet.append(9, 10, |_| Ok(())), Err(WriteError::NoClass(9)));
    let surplus = packet.append(0, 10, |record| {
        record.signed(1)?;
        record.string(b"")?;
        record.unsigned(1)
    });
    assert_eq!(surplus, Err(WriteError::Surplus { given: "an unsigned integer" }));
    assert_eq!(packet.seal(10, 0).bytes.len(), 84);
}

#[test]
fn classes_that_a_version_has_no_form_for_are_refused_by_the_fields_name() {
    let refused = |version, fields| {
        let event = EventClass::new(0, "e", fields);
        let header = EventHeader::suited_to(0, false);
        let class = TraceClass::new(version, vec![StreamClass::new(0, header, vec![event])]);
        Schema::new(class).map(|_| ()).map_err(|error| (error.place, error.problem))
    };
    let truth = || vec![Field::new("ok", FieldClass::Bool(IntClass::U8))];
    let place = || "e: payload.ok".to_owned();
    let what = "truth values";
    let problem = ClassProblem::NotInVersion { version: CtfVersion::V1_8, what };
    assert_eq!(refused(CtfVersion::V1_8, truth()), Err((place(), problem)));
    assert_eq!(refused(CtfVersion::V2, truth()), Ok(()));
    let list = |length| Field::new("ok", FieldClass::Text(length, Encoding::Utf8));
    let later =
        vec![list(Length::Of(Key(0))), Field::keyed("n", FieldClass::Int(IntClass::U8), Key(0))];
    let why = "comes later";
    let problem = ClassProblem::Reference { why };
    assert_eq!(refused(CtfVersion::V2, later), Err((place(), problem)));
    let signed =
        vec![Field::keyed("n", FieldClass::Int(IntClass::I32), Key(0)), list(Length::Of(Key(0)))];
    let problem = ClassProblem::Reference { why: "is signed" };
    assert_eq!(refused(CtfVersion::V1_8, signed), Err((place(), problem)));
    let mut deep = FieldClass::Int(IntClass::U8);
    for _ in 0..300 {
        deep = FieldClass::array(deep, Length::Fixed(1));
    }
    let problem = refused(CtfVersion::V2, vec![Field::new("ok", deep)]).unwrap_err().1;
    assert_eq!(problem, ClassProblem::Depth { limit: 256 });
    let odd = |name: &str| refused(CtfVersion::V1_8, vec![int(name, IntClass::U8)]);
    assert_eq!(odd("no-word").unwrap_err().1, ClassProblem::Name { name: "no-word".to_owned() });
    assert_eq!(odd("Bool").unwrap_err().1, ClassProblem::Name { name: "Bool".to_owned() });
    assert_eq!(odd("7th"), Ok(()));
}

/// A payload of a selector and a variant with these options.
fn with_options(version: CtfVersion, options: Vec<(Field, Vec<(i128, i128)>)>) -> TraceClass {
    let fields = vec![
        Field::keyed("which", FieldClass::Int(IntClass::U8), Key(0)),
        Field::new("one", FieldClass::Variant(VariantClass { selector: Key(0), options })),
    ];
    let header = EventHeader::suited_to(0, false);
    let event = EventClass::new(0, "e", fields);
    TraceClass::new(version, vec![StreamClass::new(0, header, vec![event])])
}

#[test]
fn options_of_ctf_2_need_no_names_but_values_that_choose_them() {
    let option = |ranges| (int("", IntClass::U16), ranges);
    let schema =
        Schema::new(with_options(CtfVersion::V2, vec![option(vec![(0, 0)]), option(vec![(1, 9)])]));
    let metadata = schema.expect("right").metadata().to_owned();
    assert!(ctf::TraceClass::parse(metadata.as_bytes()).is_ok(), "{metadata}");

    let class = with_options(CtfVersion::V2, vec![option(vec![(0, 0)]), option(vec![])]);
    let refused = Schema::new(class).map(|_| ()).map_err(|error| error.problem);
    assert_eq!(refused, Err(ClassProblem::Ranges("an option that no value chooses")));
}

#[test]
fn clocks_of_one_name_are_told_apart_in_ctf_2_whatever_the_others_are_called() {
    let header = EventHeader::suited_to(0, true);
    let stream =
        |id, clock| StreamClass { clock: Some(clock), ..StreamClass::new(id, header, vec![]) };
    let mut class = TraceClass::new(CtfVersion::V2, vec![stream(0, 0), stream(1, 1), stream(2, 2)]);
    class.clocks = ["clock-1", "same", "same"].map(ClockClass::new).to_vec();
    let schema = Schema::new(class).expect("right");
    let read = ctf::TraceClass::parse(schema.metadata().as_bytes()).expect("right");
    let clock = |id| read.clock_of(read.stream_class(id)?).map(|clock| clock.name.as_str());
    assert_eq!([clock(0), clock(1), clock(2)], [Some("clock-1"), Some("same"), Some("same")]);
    let second = read.stream_class(1).and_then(|stream| read.clock_of(stream));
    assert!(std::ptr::eq(second.expect("a clock"), &read.clock_classes()[1]));
}

#[test]
fn members_of_the_packet_context_cannot_be_called_as_the_writers_own() {
    for version in [CtfVersion::V1_8, CtfVersion::V2] {
        let class = |name: &str, sequence_numbers| {
            let mut stream = StreamClass::new(0, EventHeader::suited_to(0, false), vec![]);
            stream.packet.sequence_numbers = sequence_numbers;
            stream.packet.members = Structure::new(vec![int(name, IntClass::U8)]);
            TraceClass::new(version, vec![stream])
        };
        let refused = Schema::new(class("packet_seq_num", true)).map(|_| ());
        let (what, value) = ("the name", "packet_seq_num".to_owned());
        assert_eq!(
            refused.map_err(|error| error.problem),
            Err(ClassProblem::Duplicate { what, value })
        );
        assert!(Schema::new(class("packet_seq_num", false)).is_ok());
    }
}

#[test]
fn names_that_tsdl_keeps_for_itself_are_refused_where_no_underscore_precedes_them() {
    let mut class = TraceClass::new(CtfVersion::V1_8, vec![]);
    class.environment = vec![("event".to_owned(), EnvValue::Integer(1))];
    let refused = Schema::new(class).map(|_| ()).map_err(|error| error.problem);
    assert_eq!(refused, Err(ClassProblem::Name { name: "event".to_owned() }));
}

/// A scalar as it was given and as it is read.
#[derive(Debug, Clone, PartialEq)]
enum Given {
    Number(i128),
    Float(u64),
    Bytes(Vec<u8>),
}

/// Small choices from a seed: classes and values follow from it alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        // Steele's SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(u64::try_from(from.len()).expect("right"))).expect("right")]
    }
}

/// Makes classes.
struct Maker {
    dice: Dice,
    version: CtfVersion,
    next_key: u32,
    order: ByteOrder,
}

impl Maker {
    fn int(&mut self) -> IntClass {
        let bits = u8::try_from(1 + self.dice.below(64)).expect("right");
        let base = self.dice.pick(&[Base::Binary, Base::Octal, Base::Decimal, Base::Hexadecimal]);
        // The order may only change at byte boundaries: other orders are byte-aligned and of whole bytes.
        let other = self.dice.below(4) == 0;
        let swapped = match self.order {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        };
        IntClass {
            bits: if other { bits.div_ceil(8) * 8 } else { bits },
            signed: self.dice.below(2) == 0,
            base,
            byte_order: other.then_some(swapped),
            align: if other { 8 } else { self.dice.pick(&[1, 1, 2, 8, 32]) },
            reversed: self.version == CtfVersion::V2 && other && self.dice.below(2) == 0,
        }
    }

    fn mappings(&mut self) -> Vec<Mapping> {
        (0..1 + self.dice.below(3))
            .map(|index| {
                let first = i128::from(self.dice.below(50));
                let last = first + i128::from(self.dice.below(50));
                Mapping { label: format!("label \"{index}\""), first, last }
            })
            .collect()
    }

    fn key(&mut self) -> Key {
        self.next_key += 1;
        Key(self.next_key)
    }

    fn structure(&mut self, depth: u32) -> Structure {
        let mut members = Vec::new();
        for _ in 0..self.dice.below(5) {
            self.member(depth, &mut members);
        }
        // Underscores, digits and keywords in front must not matter.
        for (index, member) in members.iter_mut().enumerate() {
            let front = self.dice.pick(&["a", "_", "7", "struct", "id"]);
            member.name = format!("{front}{index}");
        }
        Structure { members, align: self.dice.pick(&[1, 8, 64]) }
    }

    /// A member, and before it the one it refers to if it does.
    fn member(&mut self, depth: u32, members: &mut Vec<Field>) {
        let is_2 = self.version == CtfVersion::V2;
        let kinds = if is_2 { 14 } else { 9 };
        let encoding = self.dice.pick(&[
            Encoding::Utf8,
            Encoding::Utf16Be,
            Encoding::Utf16Le,
            Encoding::Utf32Be,
            Encoding::Utf32Le,
        ]);
        let encoding = if is_2 { encoding } else { Encoding::Utf8 };
        let class = match self.dice.below(kinds) {
            0 | 1 => FieldClass::Int(self.int()),
            2 => {
                let int = self.int();
                FieldClass::Enum(IntClass { bits: int.bits.max(8), ..int }, self.mappings())
            }
            3 => {
                FieldClass::Float(FloatClass { bits: self.dice.pick(&[32, 64]), ..FloatClass::F32 })
            }
            4 => FieldClass::String(encoding),
            5 => FieldClass::Text(self.length(members), encoding),
            6 if depth > 0 => FieldClass::Structure(self.structure(depth - 1)),
            7 if depth > 0 => {
                let length = self.length(members);
                let element = self.element(depth - 1);
                let align = if is_2 { self.dice.pick(&[1, 16]) } else { 1 };
                FieldClass::Array(Box::new(ArrayClass { element, length, align }))
            }
            8 if depth > 0 => self.variant(depth - 1, members),
            9 => FieldClass::Bool(IntClass { signed: false, reversed: false, ..self.int() }),
            10 => {
                let signed = self.dice.below(2) == 0;
                let mappings = if self.dice.below(2) == 0 { self.mappings() } else { vec![] };
                FieldClass::VarInt(VarIntClass { signed, base: Base::Decimal }, mappings)
            }
            11 => FieldClass::Blob(self.length(members), String::new()),
            12 => FieldClass::Bits(IntClass { signed: false, ..self.int() }, vec![]),
            13 if depth > 0 => {
                let selector = self.key();
                let truth = IntClass { signed: false, reversed: false, ..self.int() };
                members.push(Field::keyed("", FieldClass::Bool(truth), selector));
                let class = self.element(depth - 1);
                FieldClass::Optional(Box::new(OptionalClass { selector, ranges: vec![], class }))
            }
            _ => FieldClass::Int(IntClass::U32),
        };
        members.push(Field::new("", class));
    }

    /// What an array or optional field holds: something that refers to nothing beside it.
    fn element(&mut self, depth: u32) -> FieldClass {
        match self.dice.below(3) {
            0 => FieldClass::Structure(self.structure(depth)),
            1 => FieldClass::Int(self.int()),
            _ => FieldClass::array(FieldClass::STRING, Length::Fixed(self.dice.below(3))),
        }
    }

    fn length(&mut self, members: &mut Vec<Field>) -> Length {
        if self.dice.below(2) == 0 {
            return Length::Fixed(self.dice.below(5) * 4);
        }
        let key = self.key();
        let counter = IntClass { signed: false, bits: 16, ..self.int() };
        members.push(Field::keyed("", FieldClass::Int(counter), key));
        Length::Of(key)
    }

    fn variant(&mut self, depth: u32, members: &mut Vec<Field>) -> FieldClass {
        let selector = self.key();
        let options: Vec<_> = (0..1 + self.dice.below(3))
            .map(|index| {
                let first = i128::from(index) * 10;
                let field = Field::new(format!("_option{index}"), self.element(depth));
                (field, vec![(first, first + i128::from(self.dice.below(10)))])
            })
            .collect();
        let named = |(field, ranges): &(Field, Vec<(i128, i128)>)| {
            let (first, last) = ranges[0];
            Mapping { label: field.name.clone(), first, last }
        };
        let tag = FieldClass::Enum(IntClass::U8, options.iter().map(named).collect());
        members.push(Field::keyed("", tag, selector));
        FieldClass::Variant(VariantClass { selector, options })
    }
}

/// Makes values for classes, and remembers them.
struct Feeder<'d> {
    dice: &'d mut Dice,
    keys: HashMap<Key, u64>,
    given: Vec<Given>,
}

impl Feeder<'_> {
    fn structure(&mut self, class: &Structure, to: &mut Record<'_>) -> Result<(), WriteError> {
        for (index, Field { class: field, key, .. }) in class.members.iter().enumerate() {
            // A selector's value must choose one of the options behind it.
            let choices = match class.members.get(index + 1).map(|next| &next.class) {
                Some(FieldClass::Variant(variant)) if Some(variant.selector) == *key => {
                    variant.options.iter().map(|(_, ranges)| ranges[0]).collect()
                }
                _ => vec![],
            };
            self.field(field, *key, &choices, to)?;
        }
        Ok(())
    }

    fn number(&mut self, int: IntClass, limit: Option<u64>) -> u64 {
        let raw = self.dice.roll();
        match limit {
            Some(limit) => raw % limit,
            None if int.bits < 64 => raw & ((1 << int.bits) - 1),
            None => raw,
        }
    }

    fn int(
        &mut self,
        int: IntClass,
        key: Option<Key>,
        choices: &[(i128, i128)],
        to: &mut Record<'_>,
    ) -> Result<(), WriteError> {
        // What counts bytes of text counts whole code units.
        let mut raw = self.number(int, key.map(|_| 3)) * if key.is_some() { 4 } else { 1 };
        if !choices.is_empty() {
            let (first, last) = self.dice.pick(choices);
            raw = u64::try_from(first).expect("right")
                + self.dice.below(u64::try_from(last - first + 1).expect("right"));
        }
        if let Some(key) = key {
            self.keys.insert(key, raw);
        }
        if int.signed {
            let unused = 64 - u32::from(int.bits);
            let value = (raw << unused).cast_signed() >> unused;
            self.given.push(Given::Number(value.into()));
            return to.signed(value);
        }
        self.given.push(Given::Number(raw.into()));
        to.unsigned(raw)
    }

    fn count(&self, length: Length) -> u64 {
        match length {
            Length::Fixed(length) => length,
            Length::Of(key) => self.keys[&key],
        }
    }

    fn field(
        &mut self,
        class: &FieldClass,
        key: Option<Key>,
        choices: &[(i128, i128)],
        to: &mut Record<'_>,
    ) -> Result<(), WriteError> {
        match class {
            FieldClass::Int(int) | FieldClass::Enum(int, _) | FieldClass::Bits(int, _) => {
                self.int(*int, key, choices, to)
            }
            FieldClass::VarInt(int, _) => {
                let shift = self.dice.below(64);
                let wide = IntClass { signed: int.signed, ..IntClass::U64 };
                let raw = self.dice.roll() >> shift;
                let value = if wide.signed { raw.cast_signed().into() } else { i128::from(raw) };
                self.given.push(Given::Number(value));
                if int.signed { to.signed(raw.cast_signed()) } else { to.unsigned(raw) }
            }
            FieldClass::Bool(_) => {
                let truth = self.dice.below(2);
                if let Some(key) = key {
                    self.keys.insert(key, truth);
                }
                self.given.push(Given::Number(truth.into()));
                to.boolean(truth != 0)
            }
            FieldClass::Float(_) => {
                let value =
                    f64::from(i32::try_from(self.dice.below(1 << 20)).expect("right")) / 64.0;
                self.given.push(Given::Float(value.to_bits()));
                to.float(value)
            }
            FieldClass::String(encoding) => self.text(*encoding, 16, to),
            FieldClass::Text(length, encoding) => self.text(*encoding, self.count(*length), to),
            FieldClass::Blob(length, _) => {
                let bytes: Vec<u8> = (0..self.count(*length)).map(|_| self.byte()).collect();
                self.given.push(Given::Bytes(bytes.clone()));
                to.bytes(&bytes)
            }
            FieldClass::Structure(structure) => self.structure(structure, to),
            // Nothing else tells an array without elements from the next one without.
            FieldClass::Array(array)
                if matches!(
                    (&array.element, array.length),
                    (FieldClass::Int(_), Length::Of(_))
                ) && self.count(array.length) == 0 =>
            {
                to.elements(&[])
            }
            FieldClass::Array(array) => (0..self.count(array.length))
                .try_for_each(|_| self.field(&array.element, None, &[], to)),
            FieldClass::Optional(optional) if self.keys[&optional.selector] == 0 => Ok(()),
            FieldClass::Optional(optional) => self.field(&optional.class, None, &[], to),
            FieldClass::Variant(variant) => {
                let value = i128::from(self.keys[&variant.selector]);
                let chosen = variant.options.iter().find(|(_, ranges)| {
                    ranges.iter().any(|(first, last)| (*first..=*last).contains(&value))
                });
                self.field(&chosen.expect("a choice").0.class, None, &[], to)
            }
        }
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(1 + self.dice.below(255)).expect("right")
    }

    /// A text of at most `most` bytes, in whole code units without NUL.
    fn text(
        &mut self,
        encoding: Encoding,
        most: u64,
        to: &mut Record<'_>,
    ) -> Result<(), WriteError> {
        let unit = match encoding {
            Encoding::Utf8 => 1,
            Encoding::Utf16Be | Encoding::Utf16Le => 2,
            _ => 4,
        };
        let units = self.dice.below(most / unit + 1);
        let bytes: Vec<u8> = (0..units * unit).map(|_| self.byte()).collect();
        self.given.push(Given::Bytes(bytes.clone()));
        to.string(&bytes)
    }
}

#[derive(Default)]
struct Seen(Vec<Given>);

impl<'a> Visitor<'a> for Seen {
    fn scalar(&mut self, field: ctf::Field<'a>, value: Value<'a>) {
        if field.is_structural() {
            return;
        }
        self.0.push(match value {
            Value::Unsigned(number) => Given::Number(number.into()),
            Value::Signed(number) => Given::Number(number.into()),
            Value::Enum(value) => Given::Number(value.number()),
            Value::Bool(truth) => Given::Number(truth.into()),
            Value::Bits(bits) => Given::Number(bits.raw().into()),
            Value::Float(value) => Given::Float(value.to_bits()),
            other => Given::Bytes(other.as_bytes().expect("a text or BLOB").to_vec()),
        });
    }

    fn enter(&mut self, _: ctf::Field<'a>, _: Shape) {}
    fn leave(&mut self, _: ctf::Field<'a>, _: Shape) {}
}

/// Random classes and values, written and read back.
fn round_trip(seed: u64, version: CtfVersion) -> Result<(), TestCaseError> {
    let mut dice = Dice(seed);
    let order = dice.pick(&[ByteOrder::Little, ByteOrder::Big]);
    let header = dice.pick(&[
        EventHeader::Compact,
        EventHeader::Large,
        EventHeader::Plain { id_bits: Some(7), time_bits: 33 },
        EventHeader::Plain { id_bits: Some(64), time_bits: 64 },
    ]);
    let mut maker = Maker { dice, version, next_key: 0, order };
    let ids = [0, 30, 31, 100];
    let events: Vec<EventClass> = ids
        .iter()
        .map(|id| EventClass {
            context: Some(maker.structure(1)),
            ..EventClass {
                payload: Some(maker.structure(3)),
                ..EventClass::new(*id, format!("event {id}"), vec![])
            }
        })
        .collect();
    let mut stream = StreamClass::new(7, header, events);
    stream.clock = Some(0);
    stream.context = Some(maker.structure(2));
    stream.packet.members = maker.structure(2);
    stream.packet.discarded_bits = Some(maker.dice.pick(&[8, 13, 32, 64]));
    let mut class = TraceClass::new(version, vec![stream]);
    (class.clocks, class.byte_order) = (vec![clock()], order);
    (class.uuid, class.instance_ids) = (Some(Uuid([5; 16])), true);
    let schema = Schema::new(class).expect("classes are right");

    let stream = &schema.class().streams[0];
    let mut keys = HashMap::new();
    let mut packet_values = Vec::new();
    let start = PacketStart {
        stream_class: 7,
        instance: 2,
        sequence_number: 3,
        begin: 1 << 40,
        max_bytes: 1 << 20,
    };
    let mut dice = maker.dice;
    let mut packet = schema
        .open(start, |context| {
            let mut feeder = Feeder { dice: &mut dice, keys: HashMap::new(), given: vec![] };
            feeder.structure(&stream.packet.members, context)?;
            (keys, packet_values) = (feeder.keys, feeder.given);
            Ok(())
        })
        .expect("values are right");
    let mut time = start.begin;
    let mut given = Vec::new();
    for _ in 0..6 {
        let event = &stream.events[usize::try_from(dice.below(4)).expect("right")];
        time += dice.roll() >> dice.pick(&[32, 40, 60]);
        let mut values = Vec::new();
        let appended = packet.append(event.id, time, |record| {
            let mut feeder = Feeder { dice: &mut dice, keys: keys.clone(), given: vec![] };
            for scope in [&stream.context, &event.context, &event.payload].into_iter().flatten() {
                feeder.structure(scope, record)?;
            }
            values = feeder.given;
            Ok(())
        });
        prop_assert_eq!(appended, Ok(Appended::Yes));
        given.push((event.name.clone(), time, values));
    }
    let sealed = packet.seal(time, 99);

    let metadata = schema.metadata().as_bytes();
    let read = ctf::TraceClass::parse(metadata)
        .map_err(|error| TestCaseError::fail(format!("{error}\n{}", schema.metadata())))?;
    let opened = EventReader::open(Arc::new(read), sealed.bytes.as_slice());
    let Ok(Outcome::Ready(mut reader)) = opened else {
        return Err(TestCaseError::fail(format!("{opened:?}\n{}", schema.metadata())));
    };
    let info = *reader.packet();
    prop_assert_eq!(info.content_bits, Some(sealed.content_bits));
    prop_assert_eq!((info.begin, info.end), (Some(1 << 40), Some(time)));
    prop_assert_eq!((info.stream_instance_id, info.sequence_number), (Some(2), Some(3)));
    prop_assert_eq!(info.events_discarded, Some(99));
    let mut seen = Seen::default();
    reader.visit_packet(Scope::PacketContext, &mut seen);
    prop_assert_eq!(seen.0, packet_values);
    for (name, time, values) in given {
        let event = reader.next_event();
        let Ok(Some(event)) = event else {
            return Err(TestCaseError::fail(format!("{event:?}\n{}", schema.metadata())));
        };
        prop_assert_eq!(event.name(), name);
        prop_assert_eq!(event.clock_value(), Some(time));
        let mut seen = Seen::default();
        for scope in [Scope::EventCommonContext, Scope::EventSpecificContext, Scope::Payload] {
            event.visit(scope, &mut seen);
        }
        prop_assert_eq!(seen.0, values, "{}", schema.metadata());
    }
    prop_assert!(matches!(reader.next_event(), Ok(None)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_classes_and_values_are_read_back_from_ctf_1_8(seed: u64) {
        round_trip(seed, CtfVersion::V1_8)?;
    }

    #[test]
    fn any_classes_and_values_are_read_back_from_ctf_2(seed: u64) {
        round_trip(seed, CtfVersion::V2)?;
    }
}
