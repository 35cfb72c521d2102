//! Field classes of CTF 2 as the fragments declare them, before locations are resolved to registers.
//!
//! They live in one table and refer to each other by position: an alias costs one entry however often it is used, and
//! neither reading nor dropping nested ones needs call depth.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::reader::{Value, shorten};
use crate::class::{Base, ByteOrder};
use crate::error::TextProblem;
use crate::layout::{Meaning, Role};
use crate::metadata::lexer::Problem;
use crate::metadata::types::MAX_DEPTH;
use crate::value::{Encoding, Mapping, Mappings, Scope};

type Result<T> = std::result::Result<T, Problem>;

/// Position in [`Classes`].
pub(super) type ClassId = u32;

/// Inclusive ranges of integers, rising and apart.
pub(super) type Ranges = Vec<(i128, i128)>;

/// Where a length or selector is, relative to an origin or to the structure with the field that asks.
#[derive(Debug)]
pub(super) struct Location {
    pub(super) at: usize,
    pub(super) origin: Option<Scope>,
    /// Names of members; `None` goes up to the structure around.
    pub(super) path: Vec<Option<Box<str>>>,
}

#[derive(Debug)]
pub(super) enum LengthOf {
    Fixed(u64),
    Field(Location),
}

#[derive(Debug)]
pub(super) struct IntegerClass {
    pub(super) bits: u8,
    pub(super) is_variable: bool,
    pub(super) signed: bool,
    pub(super) order: ByteOrder,
    pub(super) reversed: bool,
    pub(super) base: Base,
    pub(super) meaning: Meaning,
    pub(super) mappings: Option<Arc<Mappings>>,
    pub(super) roles: Vec<Role>,
}

#[derive(Debug)]
pub(super) struct Member {
    /// Empty for options without a name.
    pub(super) name: Box<str>,
    pub(super) class: ClassId,
}

#[derive(Debug)]
pub(super) enum Kind {
    Integer(IntegerClass),
    Float { bits: u8, order: ByteOrder, reversed: bool },
    Text(Encoding),
    TextArray(LengthOf, Encoding),
    Blob { length: LengthOf, media_type: Box<str>, is_uuid: bool },
    Structure(Vec<Member>),
    Array { length: LengthOf, element: ClassId },
    Optional { class: ClassId, selector: Location, ranges: Option<Ranges> },
    Variant { selector: Location, options: Vec<Member>, ranges: Vec<Ranges> },
}

#[derive(Debug)]
pub(super) struct Class {
    /// Where it is declared in the text.
    pub(super) at: usize,
    /// Least alignment in bits, that of contained classes left out.
    pub(super) align: u64,
    pub(super) kind: Kind,
    depth: u32,
}

/// All field classes of the metadata so far.
#[derive(Debug, Default)]
pub(super) struct Classes {
    all: Vec<Class>,
    aliases: HashMap<Box<str>, ClassId>,
}

/// Field classes of one fragment that are read already, by the position of their values.
type Done = HashMap<usize, ClassId>;

impl Classes {
    pub(super) fn get(&self, id: ClassId) -> Option<&Class> {
        self.all.get(usize::try_from(id).ok()?)
    }

    /// Gives a class a name for later uses.
    pub(super) fn declare(&mut self, name: Value<'_>, class: ClassId) -> Result<()> {
        let text = expect_text(name, "name")?;
        match self.aliases.insert(text.into(), class) {
            None => Ok(()),
            Some(_) => {
                let what = "field class alias";
                Err((name.at(), TextProblem::Duplicate { what, name: shorten(text) }))
            }
        }
    }

    /// Reads a field class and all it contains. Of several things that are wrong, gives the first in the text.
    pub(super) fn read(&mut self, root: Value<'_>) -> Result<ClassId> {
        // Containing classes come before contained ones, so backwards those are done first.
        let mut found = vec![root];
        let mut at = 0;
        while let Some(value) = found.get(at).copied() {
            found.extend(contained(value));
            at += 1;
        }
        let (mut done, mut first) = (Done::new(), None::<Problem>);
        let mut last = 0;
        for value in found.into_iter().rev() {
            match self.read_one(value, &done) {
                Ok(id) => {
                    done.insert(value.index(), id);
                    last = id;
                }
                Err(problem) => {
                    if first.as_ref().is_none_or(|(at, _)| problem.0 < *at) {
                        first = Some(problem);
                    }
                }
            }
        }
        first.map_or(Ok(last), Err)
    }

    /// Reads a class whose contained classes are done, except for those that are wrong.
    fn read_one(&mut self, value: Value<'_>, done: &Done) -> Result<ClassId> {
        if let Some(name) = value.text() {
            let unknown = || {
                let what = "field class alias";
                (value.at(), TextProblem::Unknown { what, name: shorten(name) })
            };
            return self.aliases.get(name).copied().ok_or_else(unknown);
        }
        let (align, kind) = kind_of(value, done)?;
        let depth_of = |id: &ClassId| self.get(*id).map_or(0, |class| class.depth);
        let inner = match &kind {
            Kind::Structure(members) | Kind::Variant { options: members, .. } => {
                members.iter().map(|member| depth_of(&member.class)).max().unwrap_or(0)
            }
            Kind::Array { element: class, .. } | Kind::Optional { class, .. } => depth_of(class),
            _ => 0,
        };
        if inner >= MAX_DEPTH {
            let limit = MAX_DEPTH.into();
            return Err((value.at(), TextProblem::TooMany { what: "levels of nesting", limit }));
        }
        let too_many = TextProblem::TooMany { what: "field classes", limit: u32::MAX.into() };
        let id = u32::try_from(self.all.len()).map_err(|_more| (value.at(), too_many))?;
        self.all.push(Class { at: value.at(), align, kind, depth: inner + 1 });
        Ok(id)
    }
}

/// The field classes directly inside of one, as far as it is well-formed.
fn contained(class: Value<'_>) -> Vec<Value<'_>> {
    let inside = |list: &str| {
        let list = class.get(list).into_iter().flat_map(|list| list.elements());
        list.filter_map(|member| member.get("field-class")).collect()
    };
    match class.get("type").and_then(|name| name.text()) {
        Some("structure") => inside("member-classes"),
        Some("variant") => inside("options"),
        Some("static-length-array" | "dynamic-length-array") => {
            class.get("element-field-class").into_iter().collect()
        }
        Some("optional") => class.get("field-class").into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The members that each kind may have, besides `type`, `attributes` and `extensions`.
fn members_of(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "fixed-length-bit-array"
        | "fixed-length-boolean"
        | "fixed-length-floating-point-number" => {
            &["length", "byte-order", "bit-order", "alignment"]
        }
        "fixed-length-bit-map" => &["length", "byte-order", "bit-order", "alignment", "flags"],
        "fixed-length-unsigned-integer" => &[
            "length",
            "byte-order",
            "bit-order",
            "alignment",
            "preferred-display-base",
            "mappings",
            "roles",
        ],
        "fixed-length-signed-integer" => &[
            "length",
            "byte-order",
            "bit-order",
            "alignment",
            "preferred-display-base",
            "mappings",
        ],
        "variable-length-unsigned-integer" => &["preferred-display-base", "mappings", "roles"],
        "variable-length-signed-integer" => &["preferred-display-base", "mappings"],
        "null-terminated-string" => &["encoding"],
        "static-length-string" => &["length", "encoding"],
        "dynamic-length-string" => &["length-field-location", "encoding"],
        "static-length-blob" => &["length", "media-type", "roles"],
        "dynamic-length-blob" => &["length-field-location", "media-type"],
        "structure" => &["member-classes", "minimum-alignment"],
        "static-length-array" => &["element-field-class", "length", "minimum-alignment"],
        "dynamic-length-array" => {
            &["element-field-class", "length-field-location", "minimum-alignment"]
        }
        "optional" => &["field-class", "selector-field-location", "selector-field-ranges"],
        "variant" => &["options", "selector-field-location"],
        _ => return None,
    })
}

/// The least alignment and the kind of the class that `value` declares.
fn kind_of(value: Value<'_>, done: &Done) -> Result<(u64, Kind)> {
    expect_object(value, "a field class")?;
    let name = required(value, "type", "the type of a field class")?;
    let kind = expect_text(name, "type")?;
    let known = members_of(kind).ok_or_else(|| wrong(name, "type"))?;
    closed(value, known)?;
    let class_at = |value: Value<'_>| done.get(&value.index()).copied().unwrap_or(0);
    let one_class = |member: &'static str| {
        required(value, member, "the field class inside a field class").map(class_at)
    };
    Ok(match kind {
        "variable-length-unsigned-integer" | "variable-length-signed-integer" => {
            let signed = kind == "variable-length-signed-integer";
            let bits = Bits { bits: 64, order: ByteOrder::Little, reversed: false };
            (8, Kind::Integer(integer(value, bits, signed, true)?))
        }
        "null-terminated-string" => (8, Kind::Text(encoding(value)?)),
        "static-length-string" | "dynamic-length-string" => {
            let (length, encoding) = (length_of(value)?, encoding(value)?);
            if let (LengthOf::Fixed(length), Some(at)) = (&length, value.get("length"))
                && !length.is_multiple_of(encoding.unit_bytes())
            {
                return Err(wrong(at, "length"));
            }
            (8, Kind::TextArray(length, encoding))
        }
        "static-length-blob" | "dynamic-length-blob" => (8, blob(value)?),
        "structure" => {
            let members = named_classes(value, "member-classes", &["name", "field-class"], done)?;
            (alignment(value, "minimum-alignment")?, Kind::Structure(members))
        }
        "static-length-array" | "dynamic-length-array" => {
            let element = one_class("element-field-class")?;
            let align = alignment(value, "minimum-alignment")?;
            (align, Kind::Array { length: length_of(value)?, element })
        }
        "optional" => {
            let class = one_class("field-class")?;
            let selector = location(value, "selector-field-location")?;
            let ranges = value.get("selector-field-ranges").map(ranges).transpose()?;
            (1, Kind::Optional { class, selector, ranges: ranges.map(united) })
        }
        "variant" => (1, variant(value, done)?),
        _ => fixed_length(value, kind)?,
    })
}

/// Kinds of a fixed number of bits.
fn fixed_length(value: Value<'_>, kind: &str) -> Result<(u64, Kind)> {
    let align = alignment(value, "alignment")?;
    let bits = Bits::of(value)?;
    if kind == "fixed-length-floating-point-number" {
        let Bits { bits, order, reversed } = bits;
        return Ok((align, Kind::Float { bits, order, reversed }));
    }
    let mut class = integer(value, bits, kind == "fixed-length-signed-integer", false)?;
    match kind {
        "fixed-length-boolean" => class.meaning = Meaning::Boolean,
        "fixed-length-bit-array" => class.meaning = Meaning::Bits,
        "fixed-length-bit-map" => {
            class.meaning = Meaning::Bits;
            let flags = required(value, "flags", "the flags of a bit map")?;
            class.mappings = Some(mappings(flags, "flags", 0..=i128::from(class.bits) - 1)?);
            if flags.members().next().is_none() {
                return Err((flags.at(), TextProblem::Missing("a flag of the bit map")));
            }
        }
        _ => {}
    }
    Ok((align, Kind::Integer(class)))
}

struct Bits {
    bits: u8,
    order: ByteOrder,
    reversed: bool,
}

impl Bits {
    fn of(value: Value<'_>) -> Result<Self> {
        let length = required(value, "length", "the length of a field class")?;
        let bits = unsigned(length, "length")?;
        let is_float =
            value.get("type").and_then(|t| t.text()) == Some("fixed-length-floating-point-number");
        let is_read =
            if is_float { matches!(bits, 16 | 32 | 64) } else { (1..=64).contains(&bits) };
        let bits = u8::try_from(bits).ok().filter(|_| is_read);
        let bits = bits.ok_or_else(|| wrong(length, "length"))?;

        let name = required(value, "byte-order", "the byte order of a field class")?;
        let order = match name.text() {
            Some("little-endian") => ByteOrder::Little,
            Some("big-endian") => ByteOrder::Big,
            _ => return Err(wrong(name, "byte-order")),
        };
        let reversed = match value.get("bit-order") {
            None => false,
            Some(name) => match name.text() {
                Some("first-to-last") => order == ByteOrder::Big,
                Some("last-to-first") => order == ByteOrder::Little,
                _ => return Err(wrong(name, "bit-order")),
            },
        };
        Ok(Self { bits, order, reversed })
    }
}

fn integer(value: Value<'_>, bits: Bits, signed: bool, is_variable: bool) -> Result<IntegerClass> {
    let base = match value.get("preferred-display-base") {
        None => Base::Decimal,
        Some(base) => match base.integer() {
            Some(2) => Base::Binary,
            Some(8) => Base::Octal,
            Some(10) => Base::Decimal,
            Some(16) => Base::Hexadecimal,
            _ => return Err(wrong(base, "preferred-display-base")),
        },
    };
    let range = if signed { i64::MIN.into()..=i64::MAX.into() } else { 0..=u64::MAX.into() };
    let mappings = value.get("mappings").map(|all| mappings(all, "mappings", range)).transpose()?;
    let Bits { bits, order, reversed } = bits;
    Ok(IntegerClass {
        bits,
        is_variable,
        signed,
        order,
        reversed,
        base,
        meaning: Meaning::Number,
        mappings: mappings.filter(|mappings| !mappings.entries.is_empty()),
        roles: roles(value, false)?,
    })
}

fn roles(value: Value<'_>, is_blob: bool) -> Result<Vec<Role>> {
    let Some(list) = value.get("roles") else { return Ok(Vec::new()) };
    expect_array(list, "roles")?;
    let role_of = |name: Value<'_>| {
        let role = match name.text() {
            Some("metadata-stream-uuid") if is_blob => Some(Role::TraceUuid),
            _ if is_blob => None,
            Some("packet-magic-number") => Some(Role::Magic),
            Some("data-stream-class-id") => Some(Role::StreamClassId),
            Some("data-stream-id") => Some(Role::StreamInstanceId),
            Some("packet-total-length") => Some(Role::PacketTotal),
            Some("packet-content-length") => Some(Role::PacketContent),
            Some("default-clock-timestamp") => Some(Role::ClockTimestamp),
            Some("packet-end-default-clock-timestamp") => Some(Role::PacketEnd),
            Some("discarded-event-record-counter-snapshot") => Some(Role::DiscardedEvents),
            Some("packet-sequence-number") => Some(Role::SequenceNumber),
            Some("event-record-class-id") => Some(Role::EventClassId),
            _ => None,
        };
        role.ok_or_else(|| wrong(name, "roles"))
    };
    list.elements().map(role_of).collect()
}

fn blob(value: Value<'_>) -> Result<Kind> {
    let media_type = match value.get("media-type") {
        None => "",
        Some(name) => expect_text(name, "media-type")?,
    };
    let length = length_of(value)?;
    let is_uuid = !roles(value, true)?.is_empty();
    if is_uuid
        && let (LengthOf::Fixed(bytes), Some(at)) = (&length, value.get("length"))
        && *bytes != 16
    {
        let (what, expected) = ("the length of a UUID", "16");
        return Err((at.at(), TextProblem::Class { what, expected }));
    }
    Ok(Kind::Blob { length, media_type: media_type.into(), is_uuid })
}

/// The members of a structure or options of a variant, with names that differ.
fn named_classes(
    value: Value<'_>,
    list: &'static str,
    known: &[&str],
    done: &Done,
) -> Result<Vec<Member>> {
    let Some(all) = value.get(list) else { return Ok(Vec::new()) };
    expect_array(all, list)?;
    let mut names = HashSet::new();
    let mut members = Vec::new();
    for member in all.elements() {
        expect_object(member, "a member or option")?;
        closed_with(member, known, &["attributes", "extensions"])?;
        let name = match member.get("name") {
            Some(name) => {
                let text = expect_text(name, "name")?;
                if !names.insert(text) {
                    let what = if list == "options" { "option" } else { "field" };
                    let name = (name.at(), TextProblem::Duplicate { what, name: shorten(text) });
                    return Err(name);
                }
                text
            }
            None if list == "options" => "",
            None => return Err((member.at(), TextProblem::Missing("the name of a member"))),
        };
        let class = required(member, "field-class", "the field class of a member or option")?;
        let class = done.get(&class.index()).copied().unwrap_or(0);
        members.push(Member { name: name.into(), class });
    }
    Ok(members)
}

fn variant(value: Value<'_>, done: &Done) -> Result<Kind> {
    let selector = location(value, "selector-field-location")?;
    let known = ["name", "field-class", "selector-field-ranges"];
    let list = required(value, "options", "the options of a variant")?;
    let options = named_classes(value, "options", &known, done)?;
    if options.is_empty() {
        return Err((list.at(), TextProblem::Missing("an option of the variant")));
    }
    let mut all = Vec::with_capacity(options.len());
    for option in list.elements() {
        let list = required(option, "selector-field-ranges", "the selector ranges of an option")?;
        all.push(united(ranges(list)?));
    }
    Ok(Kind::Variant { selector, options, ranges: all })
}

fn encoding(value: Value<'_>) -> Result<Encoding> {
    let Some(name) = value.get("encoding") else { return Ok(Encoding::Utf8) };
    Ok(match name.text() {
        Some("utf-8") => Encoding::Utf8,
        Some("utf-16be") => Encoding::Utf16Be,
        Some("utf-16le") => Encoding::Utf16Le,
        Some("utf-32be") => Encoding::Utf32Be,
        Some("utf-32le") => Encoding::Utf32Le,
        _ => return Err(wrong(name, "encoding")),
    })
}

fn length_of(value: Value<'_>) -> Result<LengthOf> {
    let is_fixed =
        value.get("type").and_then(|t| t.text()).is_some_and(|t| t.starts_with("static"));
    if is_fixed {
        let length = required(value, "length", "the length of a field class")?;
        return unsigned(length, "length").map(LengthOf::Fixed);
    }
    location(value, "length-field-location").map(LengthOf::Field)
}

fn location(value: Value<'_>, member: &'static str) -> Result<Location> {
    let location = required(value, member, "the location of a length or selector")?;
    expect_object(location, "a field location")?;
    closed_exactly(location, &["origin", "path"])?;
    let origin = match location.get("origin") {
        None => None,
        Some(name) => Some(match name.text() {
            Some("packet-header") => Scope::PacketHeader,
            Some("packet-context") => Scope::PacketContext,
            Some("event-record-header") => Scope::EventHeader,
            Some("event-record-common-context") => Scope::EventCommonContext,
            Some("event-record-specific-context") => Scope::EventSpecificContext,
            Some("event-record-payload") => Scope::Payload,
            _ => return Err(wrong(name, "origin")),
        }),
    };
    let list = required(location, "path", "the path of a field location")?;
    expect_array(list, "path")?;
    let step = |step: Value<'_>| match step.text() {
        Some(name) => Ok(Some(Box::from(name))),
        None if step.is_null() => Ok(None),
        None => Err(wrong(step, "path")),
    };
    let path = list.elements().map(step).collect::<Result<Vec<Option<Box<str>>>>>()?;
    if !matches!(path.last(), Some(Some(_))) {
        return Err((list.at(), TextProblem::Missing("the last name of a field location")));
    }
    Ok(Location { at: location.at(), origin, path })
}

// Ranges.

/// The ranges of integers in an array of pairs, at least one.
fn ranges(list: Value<'_>) -> Result<Ranges> {
    expect_array(list, "ranges")?;
    let pair = |pair: Value<'_>| {
        let mut bounds = pair.elements();
        let (Some(first), Some(last), None) = (bounds.next(), bounds.next(), bounds.next()) else {
            return Err(wrong(pair, "a range"));
        };
        let first_bound = first.integer().ok_or_else(|| wrong(first, "a range"))?;
        let last_bound = last.integer().ok_or_else(|| wrong(last, "a range"))?;
        if first_bound > last_bound {
            let found = format!("[{first_bound}, {last_bound}]");
            return Err((pair.at(), TextProblem::Value { attribute: "a range", found }));
        }
        Ok((first_bound, last_bound))
    };
    let all = list.elements().map(pair).collect::<Result<Ranges>>()?;
    if all.is_empty() {
        return Err((list.at(), TextProblem::Missing("a range")));
    }
    Ok(all)
}

/// The same integers in rising ranges that are apart.
fn united(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut apart: Ranges = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match apart.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => apart.push((first, last)),
        }
    }
    apart
}

/// Names of ranges, whose bounds must all lie in `bounds`.
fn mappings(
    value: Value<'_>,
    what: &'static str,
    bounds: std::ops::RangeInclusive<i128>,
) -> Result<Arc<Mappings>> {
    if !value.is_object() {
        return Err(wrong(value, what));
    }
    let mut entries = Vec::new();
    for (name, list) in value.members() {
        let label = name.text().unwrap_or("");
        // United, so that no value has the same name twice.
        for (first, last) in united(ranges(list)?) {
            if !bounds.contains(&first) || !bounds.contains(&last) {
                let found = format!("[{first}, {last}]");
                return Err((list.at(), TextProblem::Value { attribute: "a range", found }));
            }
            entries.push(Mapping { label: label.into(), first, last });
        }
    }
    if what == "flags" {
        // The members of an object have no order; the reference shows flags in that of their names.
        entries.sort_by(|one, other| one.label.cmp(&other.label));
    }
    Ok(Arc::new(Mappings::new(entries)))
}

// Values.

pub(super) fn wrong(value: Value<'_>, attribute: &'static str) -> Problem {
    (value.at(), TextProblem::Value { attribute, found: value.describe() })
}

pub(super) fn required<'j>(object: Value<'j>, name: &str, what: &'static str) -> Result<Value<'j>> {
    object.get(name).ok_or((object.at(), TextProblem::Missing(what)))
}

pub(super) fn expect_text<'j>(value: Value<'j>, attribute: &'static str) -> Result<&'j str> {
    value.text().ok_or_else(|| wrong(value, attribute))
}

pub(super) fn expect_object(value: Value<'_>, expected: &'static str) -> Result<()> {
    let found = || (value.at(), TextProblem::Unexpected { expected, found: value.describe() });
    if value.is_object() { Ok(()) } else { Err(found()) }
}

fn expect_array(value: Value<'_>, attribute: &'static str) -> Result<()> {
    if value.is_array() { Ok(()) } else { Err(wrong(value, attribute)) }
}

pub(super) fn unsigned(value: Value<'_>, attribute: &'static str) -> Result<u64> {
    let number = value.integer().and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| wrong(value, attribute))
}

/// A power of two of bits, up to 2³²; 1 when it is not given.
fn alignment(object: Value<'_>, name: &'static str) -> Result<u64> {
    let Some(value) = object.get(name) else { return Ok(1) };
    let align = unsigned(value, name)?;
    if align.is_power_of_two() && align <= 1 << 32 { Ok(align) } else { Err(wrong(value, name)) }
}

/// Refuses members that an object cannot have.
pub(super) fn closed(object: Value<'_>, known: &[&str]) -> Result<()> {
    closed_with(object, known, &["type", "attributes", "extensions"])
}

/// As [`closed`], of objects that are nothing but their own members.
pub(super) fn closed_exactly(object: Value<'_>, known: &[&str]) -> Result<()> {
    closed_with(object, known, &[])
}

fn closed_with(object: Value<'_>, known: &[&str], more: &[&str]) -> Result<()> {
    for (key, value) in object.members() {
        let name = key.text().unwrap_or("");
        if !known.contains(&name) && !more.contains(&name) {
            let expected = "a member of this object's kind";
            let found = format!("\"{}\"", shorten(name));
            return Err((key.at(), TextProblem::Unexpected { expected, found }));
        }
        match name {
            "attributes" => expect_object(value, "attributes")?,
            "extensions" => no_extensions(value)?,
            _ => {}
        }
    }
    Ok(())
}

/// No extension is known, and a reader that does not know one cannot read what uses it.
fn no_extensions(value: Value<'_>) -> Result<()> {
    expect_object(value, "extensions")?;
    match value.members().next() {
        None => Ok(()),
        Some((key, _)) => {
            let name = shorten(key.text().unwrap_or(""));
            Err((key.at(), TextProblem::Unsupported { what: "extension", name }))
        }
    }
}
