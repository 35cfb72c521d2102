//! Classes as a JSON text sequence (CTF 2): each fragment is one line after the record separator U+001E.

use std::fmt::{Display, Write};

use super::class::{
    EventClass, EventHeader, FieldClass, IntClass, Length, Mapping, OptionalClass, StreamClass,
    TraceClass, VariantClass,
};
use super::quoted::Quoted;
use super::tree::{Kind, Target, Tree};
use crate::class::{Base, ByteOrder, EnvValue, Identity};
use crate::clock::{ClockClass, ClockOrigin, Uuid};
use crate::log_level;
use crate::value::{Encoding, Scope};

/// Preamble, trace class and clock classes.
pub(super) fn begin(class: &TraceClass) -> String {
    let mut text = String::new();
    fragment(&mut text, |json| {
        json.text("type", "preamble");
        json.number("version", 2);
        if let Some(Uuid(bytes)) = class.uuid {
            json.array("uuid", bytes.iter(), |json, byte| json.push(byte));
        }
    });
    fragment(&mut text, |json| {
        json.text("type", "trace-class");
        json.identity(&class.identity);
        if !class.environment.is_empty() {
            json.object("environment", |json| {
                for (name, value) in &class.environment {
                    match value {
                        EnvValue::Text(value) => json.text(name, value),
                        EnvValue::Integer(value) => json.number(name, *value),
                    }
                }
            });
        }
        json.object("packet-header-field-class", |json| packet_header(json, class));
    });
    for (index, clock) in class.clocks.iter().enumerate() {
        fragment(&mut text, |json| clock_class(json, &clock_id(&class.clocks, index), clock));
    }
    text
}

/// A data stream class without its event record classes.
pub(super) fn stream(
    text: &mut String,
    class: &TraceClass,
    stream: &StreamClass,
    packet: &Tree<'_>,
    context: Option<&Tree<'_>>,
) {
    fragment(text, |json| {
        json.text("type", "data-stream-class");
        json.number("id", stream.id);
        json.identity(&stream.identity);
        if let Some(clock) = stream.clock {
            json.text("default-clock-class-id", &clock_id(&class.clocks, clock));
        }
        json.object("packet-context-field-class", |json| {
            packet_context(json, class, stream, packet);
        });
        json.object("event-record-header-field-class", |json| event_header(json, class, stream));
        if let Some(context) = context {
            json.object("event-record-common-context-field-class", |json| {
                Classes { class, trees: &[packet, context] }.write(json, context, 0);
            });
        }
    });
}

/// An event record class; `trees` are its scopes and those before it.
pub(super) fn event(
    text: &mut String,
    class: &TraceClass,
    stream: &StreamClass,
    event: &EventClass,
    trees: &[&Tree<'_>],
) {
    fragment(text, |json| {
        json.text("type", "event-record-class");
        json.number("id", event.id);
        json.number("data-stream-class-id", stream.id);
        let Identity { namespace, uid, .. } = &event.identity;
        json.identity(&Identity {
            namespace: namespace.clone(),
            name: Some(event.name.clone()).filter(|name| !name.is_empty()),
            uid: uid.clone(),
        });
        attributes(json, event);
        for (scope, key) in [
            (Scope::EventSpecificContext, "specific-context-field-class"),
            (Scope::Payload, "payload-field-class"),
        ] {
            if let Some(tree) = trees.iter().find(|tree| tree.scope == scope) {
                json.object(key, |json| Classes { class, trees }.write(json, tree, 0));
            }
        }
    });
}

/// The namespace and the values are Babeltrace's, which writes LTTng's levels by name.
fn attributes(json: &mut Json<'_>, event: &EventClass) {
    let level = event.log_level.and_then(log_level::ctf2_name);
    if level.is_none() && event.emf_uri.is_none() {
        return;
    }
    json.object("attributes", |json| {
        json.object("babeltrace.org,2020", |json| {
            if let Some(level) = level {
                json.text("log-level", level);
            }
            if let Some(uri) = &event.emf_uri {
                json.text("emf-uri", uri);
            }
        });
    });
}

/// The clock's name where that tells it from the others, else its position, spelled as no clock is called.
fn clock_id(clocks: &[ClockClass], index: usize) -> String {
    let name = clocks.get(index).map_or("", |clock| &clock.name);
    let called = |name: &str| clocks.iter().filter(|clock| clock.name == name).count();
    if called(name) == 1 && !name.is_empty() {
        return name.to_owned();
    }
    let mut id = format!("clock-{index}");
    while called(&id) > 0 {
        id.push('-');
    }
    id
}

fn clock_class(json: &mut Json<'_>, id: &str, clock: &ClockClass) {
    json.text("type", "clock-class");
    json.text("id", id);
    json.identity(&Identity {
        namespace: clock.namespace.clone(),
        name: Some(clock.name.clone()),
        uid: clock.uid.clone().or_else(|| clock.uuid.map(|uuid| uuid.to_string())),
    });
    if let Some(description) = &clock.description {
        json.text("description", description);
    }
    json.number("frequency", clock.frequency);
    if clock.precision != 0 {
        json.number("precision", clock.precision);
    }
    if let Some(accuracy) = clock.accuracy {
        json.number("accuracy", accuracy);
    }
    // Cycles must be less than a second's worth.
    let frequency = clock.frequency.max(1);
    let seconds = i128::from(clock.offset_s) + i128::from(clock.offset / frequency);
    json.object("offset-from-origin", |json| {
        json.number("seconds", seconds);
        json.number("cycles", clock.offset % frequency);
    });
    match &clock.origin {
        ClockOrigin::Unknown => {}
        ClockOrigin::UnixEpoch => json.text("origin", "unix-epoch"),
        ClockOrigin::Custom { namespace, name, uid } => json.object("origin", |json| {
            if let Some(namespace) = namespace {
                json.text("namespace", namespace);
            }
            json.text("name", name);
            json.text("uid", uid);
        }),
    }
}

fn packet_header(json: &mut Json<'_>, class: &TraceClass) {
    let order = class.byte_order;
    json.text("type", "structure");
    json.members(|members| {
        members.own("magic", 32, order, &["packet-magic-number"]);
        if class.uuid.is_some() {
            members.add("uuid", |json| {
                json.text("type", "static-length-blob");
                json.number("length", 16);
                json.roles(&["metadata-stream-uuid"]);
            });
        }
        members.own("stream_id", class.stream_id_bits(), order, &["data-stream-class-id"]);
        if class.instance_ids {
            members.own("stream_instance_id", 64, order, &["data-stream-id"]);
        }
    });
}

fn packet_context(
    json: &mut Json<'_>,
    class: &TraceClass,
    stream: &StreamClass,
    packet: &Tree<'_>,
) {
    let order = class.byte_order;
    json.text("type", "structure");
    if let Some(align) = packet.nodes.first().map(|root| root.align).filter(|align| *align > 8) {
        json.number("minimum-alignment", align);
    }
    json.members(|members| {
        if stream.clock.is_some() {
            members.own("timestamp_begin", 64, order, &["default-clock-timestamp"]);
            members.own("timestamp_end", 64, order, &["packet-end-default-clock-timestamp"]);
        }
        members.own("content_size", 64, order, &["packet-content-length"]);
        members.own("packet_size", 64, order, &["packet-total-length"]);
        if stream.packet.sequence_numbers {
            members.own("packet_seq_num", 64, order, &["packet-sequence-number"]);
        }
        if let Some(bits) = stream.packet.discarded_bits {
            let role = "discarded-event-record-counter-snapshot";
            members.own("events_discarded", bits, order, &[role]);
        }
        Classes { class, trees: &[packet] }.members(members, packet, 0);
    });
}

fn event_header(json: &mut Json<'_>, class: &TraceClass, stream: &StreamClass) {
    const ID: &[&str] = &["event-record-class-id"];
    const TIME: &[&str] = &["default-clock-timestamp"];
    let order = class.byte_order;
    json.text("type", "structure");
    let (id_bits, last, time_bits) = match stream.header {
        EventHeader::Plain { id_bits, time_bits } => {
            json.members(|members| {
                if let Some(bits) = id_bits {
                    members.own("id", bits, order, ID);
                }
                if stream.clock.is_some() {
                    members.own("timestamp", time_bits, order, TIME);
                }
            });
            return;
        }
        EventHeader::Compact => (5, 30, 27),
        EventHeader::Large => (16, 65_534, 32),
    };
    json.number("minimum-alignment", 8);
    let align = if id_bits == 5 { 1 } else { 8 };
    let int = |bits| IntClass { align, ..IntClass::unsigned(bits) };
    json.members(|members| {
        members.add("id", |json| integer(json, &int(id_bits), "unsigned-", order, ID));
        members.add("v", |json| {
            json.text("type", "variant");
            json.object("selector-field-location", |json| {
                json.text("origin", "event-record-header");
                json.array("path", ["id"].iter(), |json, name| json.push_text(name));
            });
            json.array("options", [false, true].iter(), |json, extended| {
                json.nested(|json| {
                    json.text("name", if *extended { "extended" } else { "compact" });
                    let range = if *extended { (last + 1, last + 1) } else { (0, last) };
                    json.ranges("selector-field-ranges", &[range]);
                    json.object("field-class", |json| {
                        json.text("type", "structure");
                        json.members(|members| {
                            if *extended {
                                members.own("id", 32, order, ID);
                                members.own("timestamp", 64, order, TIME);
                            } else {
                                members.add("timestamp", |json| {
                                    integer(json, &int(time_bits), "unsigned-", order, TIME);
                                });
                            }
                        });
                    });
                });
            });
        });
    });
}

/// Writes field classes whose references go to `trees`.
struct Classes<'w, 'c> {
    class: &'w TraceClass,
    trees: &'w [&'w Tree<'c>],
}

impl Classes<'_, '_> {
    /// The members of the object that describes a field.
    fn write(&self, json: &mut Json<'_>, tree: &Tree<'_>, index: usize) {
        let Some(node) = tree.nodes.get(index) else { return };
        match node.kind {
            Kind::Structure(structure) => {
                json.text("type", "structure");
                if structure.align > 1 {
                    json.number("minimum-alignment", structure.align);
                }
                json.members(|members| self.members(members, tree, index));
            }
            Kind::Other(class) => self.other(json, tree, index, class),
        }
    }

    fn members(&self, members: &mut Members<'_, '_>, tree: &Tree<'_>, parent: usize) {
        for (child, name) in children(tree, parent) {
            members.add(name, |json| self.write(json, tree, child));
        }
    }

    fn other(&self, json: &mut Json<'_>, tree: &Tree<'_>, index: usize, class: &FieldClass) {
        let order = |order: Option<ByteOrder>| order.unwrap_or(self.class.byte_order);
        let sign = |signed| if signed { "signed-" } else { "unsigned-" };
        match class {
            FieldClass::Int(int) => {
                integer(json, int, sign(int.signed), order(int.byte_order), &[]);
            }
            FieldClass::Enum(int, labels) => {
                integer(json, int, sign(int.signed), order(int.byte_order), &[]);
                mappings(json, "mappings", labels);
            }
            FieldClass::VarInt(int, labels) => {
                json.text("type", &format!("variable-length-{}integer", sign(int.signed)));
                json.number("preferred-display-base", base_number(int.base));
                if !labels.is_empty() {
                    mappings(json, "mappings", labels);
                }
            }
            FieldClass::Bool(int) => bits(json, int, "boolean", order(int.byte_order)),
            FieldClass::Bits(int, flags) if flags.is_empty() => {
                bits(json, int, "bit-array", order(int.byte_order));
            }
            FieldClass::Bits(int, flags) => {
                bits(json, int, "bit-map", order(int.byte_order));
                mappings(json, "flags", flags);
            }
            FieldClass::Float(float) => {
                let int = IntClass {
                    align: float.align,
                    reversed: float.reversed,
                    ..IntClass::unsigned(float.bits)
                };
                bits(json, &int, "floating-point-number", order(float.byte_order));
            }
            FieldClass::String(encoding) => {
                json.text("type", "null-terminated-string");
                text_encoding(json, *encoding);
            }
            FieldClass::Text(length, encoding) => {
                self.length(json, tree, index, *length, "string");
                text_encoding(json, *encoding);
            }
            FieldClass::Blob(length, media_type) => {
                self.length(json, tree, index, *length, "blob");
                if !media_type.is_empty() {
                    json.text("media-type", media_type);
                }
            }
            FieldClass::Array(array) => {
                self.length(json, tree, index, array.length, "array");
                if array.align > 1 {
                    json.number("minimum-alignment", array.align);
                }
                json.object("element-field-class", |json| self.write(json, tree, index + 1));
            }
            FieldClass::Variant(variant) => self.variant(json, tree, index, variant),
            FieldClass::Optional(optional) => self.optional(json, tree, index, optional),
            // Its node is of the other kind.
            FieldClass::Structure(_) => {}
        }
    }

    fn length(
        &self,
        json: &mut Json<'_>,
        tree: &Tree<'_>,
        index: usize,
        length: Length,
        what: &str,
    ) {
        match length {
            Length::Fixed(length) => {
                json.text("type", &format!("static-length-{what}"));
                json.number("length", length);
            }
            Length::Of(_) => {
                json.text("type", &format!("dynamic-length-{what}"));
                self.location(json, "length-field-location", tree, index);
            }
        }
    }

    fn variant(&self, json: &mut Json<'_>, tree: &Tree<'_>, index: usize, variant: &VariantClass) {
        json.text("type", "variant");
        self.location(json, "selector-field-location", tree, index);
        let options: Vec<_> = children(tree, index).zip(&variant.options).collect();
        json.array("options", options.iter(), |json, ((child, name), (_, ranges))| {
            json.nested(|json| {
                if !name.is_empty() {
                    json.text("name", name);
                }
                json.ranges("selector-field-ranges", ranges);
                json.object("field-class", |json| self.write(json, tree, *child));
            });
        });
    }

    fn optional(
        &self,
        json: &mut Json<'_>,
        tree: &Tree<'_>,
        index: usize,
        optional: &OptionalClass,
    ) {
        json.text("type", "optional");
        self.location(json, "selector-field-location", tree, index);
        if !optional.ranges.is_empty() {
            json.ranges("selector-field-ranges", &optional.ranges);
        }
        json.object("field-class", |json| self.write(json, tree, index + 1));
    }

    /// Where the field lies that another one refers to: from its scope on, or, inside of the same array element, from
    /// the structure that holds the referring field.
    fn location(&self, json: &mut Json<'_>, key: &str, tree: &Tree<'_>, from: usize) {
        let Some(Target { scope, node }) = tree.nodes.get(from).and_then(|node| node.target) else {
            return;
        };
        let Some(target) = self.trees.iter().find(|tree| tree.scope == scope) else { return };
        let is_structure = |tree: &Tree<'_>, at: usize| {
            matches!(tree.nodes.get(at).map(|node| node.kind), Some(Kind::Structure(_)))
        };
        let around: Vec<usize> = tree.containers(from).collect();
        let shares_element = scope == tree.scope
            && target.containers(node).any(|at| around.contains(&at) && !is_structure(target, at));
        let top = if shares_element {
            let shared = target.containers(node);
            shared.filter(|at| is_structure(target, *at)).find(|at| around.contains(at))
        } else {
            Some(0)
        };
        let top = top.unwrap_or(0);
        let mut names: Vec<Option<&str>> = Vec::new();
        let inner = std::iter::once(node).chain(target.containers(node));
        for at in inner.take_while(|at| *at != top) {
            // A field that holds another one without being a structure has no name of its own on the way.
            let is_step = is_structure(target, at) || at == node;
            names.extend(target.nodes.get(at).filter(|_| is_step).map(|node| Some(node.name)));
        }
        if shares_element {
            let ups = around.iter().take_while(|at| **at != top);
            names.extend(ups.filter(|at| is_structure(tree, **at)).map(|_| None));
        }
        names.reverse();
        json.object(key, |json| {
            if !shares_element {
                json.text("origin", scope_name(scope));
            }
            json.array("path", names.iter(), |json, name| match name {
                Some(name) => json.push_text(name),
                None => json.push("null"),
            });
        });
    }
}

/// Children of a field with their names.
fn children<'t>(tree: &'t Tree<'_>, parent: usize) -> impl Iterator<Item = (usize, &'t str)> {
    let end = tree.nodes.get(parent).map_or(0, |node| node.end);
    let mut at = parent + 1;
    std::iter::from_fn(move || {
        let node = tree.nodes.get(at).filter(|_| at < end)?;
        Some((std::mem::replace(&mut at, node.end), node.name))
    })
}

fn integer(json: &mut Json<'_>, int: &IntClass, sign: &str, order: ByteOrder, roles: &[&str]) {
    bits(json, int, &format!("{sign}integer"), order);
    json.number("preferred-display-base", base_number(int.base));
    json.roles(roles);
}

/// A field of fixed length in bits.
fn bits(json: &mut Json<'_>, int: &IntClass, what: &str, order: ByteOrder) {
    json.text("type", &format!("fixed-length-{what}"));
    json.number("length", int.bits);
    let is_little = order == ByteOrder::Little;
    json.text("byte-order", if is_little { "little-endian" } else { "big-endian" });
    if int.align > 1 {
        json.number("alignment", int.align);
    }
    if int.reversed {
        json.text("bit-order", if is_little { "last-to-first" } else { "first-to-last" });
    }
}

/// Ranges by name, in the order of the names' first ranges.
fn mappings(json: &mut Json<'_>, key: &str, mappings: &[Mapping]) {
    let mut names: Vec<(&str, Vec<(i128, i128)>)> = Vec::new();
    let mut positions = std::collections::HashMap::new();
    for Mapping { label, first, last } in mappings {
        let position = *positions.entry(label.as_str()).or_insert_with(|| {
            names.push((label, Vec::new()));
            names.len() - 1
        });
        if let Some((_, ranges)) = names.get_mut(position) {
            ranges.push((*first, *last));
        }
    }
    json.object(key, |json| {
        names.iter().for_each(|(name, ranges)| json.ranges(name, ranges));
    });
}

fn text_encoding(json: &mut Json<'_>, encoding: Encoding) {
    let name = match encoding {
        Encoding::Utf8 => return,
        Encoding::Utf16Be => "utf-16be",
        Encoding::Utf16Le => "utf-16le",
        Encoding::Utf32Be => "utf-32be",
        Encoding::Utf32Le => "utf-32le",
    };
    json.text("encoding", name);
}

const fn base_number(base: Base) -> u8 {
    match base {
        Base::Binary => 2,
        Base::Octal => 8,
        Base::Decimal => 10,
        Base::Hexadecimal => 16,
    }
}

const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::PacketHeader => "packet-header",
        Scope::PacketContext => "packet-context",
        Scope::EventHeader => "event-record-header",
        Scope::EventCommonContext => "event-record-common-context",
        Scope::EventSpecificContext => "event-record-specific-context",
        Scope::Payload => "event-record-payload",
    }
}

fn fragment(text: &mut String, write: impl FnOnce(&mut Json<'_>)) {
    text.push('\u{1E}');
    Json { text: &mut *text, is_first: true }.nested(write);
    text.push('\n');
}

/// An object that is being written.
struct Json<'t> {
    text: &'t mut String,
    is_first: bool,
}

impl Json<'_> {
    fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.text.push(',');
        }
        self.push_text(key);
        self.text.push(':');
    }

    fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        self.push_text(value);
    }

    fn number(&mut self, key: &str, value: impl Display) {
        self.key(key);
        self.push(value);
    }

    fn object(&mut self, key: &str, write: impl FnOnce(&mut Json<'_>)) {
        self.key(key);
        self.nested(write);
    }

    /// An object without a key: a fragment, or an element of an array.
    fn nested(&mut self, write: impl FnOnce(&mut Json<'_>)) {
        self.text.push('{');
        write(&mut Json { text: &mut *self.text, is_first: true });
        self.text.push('}');
    }

    fn array<T>(
        &mut self,
        key: &str,
        elements: impl Iterator<Item = T>,
        mut write: impl FnMut(&mut Json<'_>, T),
    ) {
        self.key(key);
        self.text.push('[');
        for (index, element) in elements.enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            write(&mut Json { text: &mut *self.text, is_first: true }, element);
        }
        self.text.push(']');
    }

    fn ranges(&mut self, key: &str, ranges: &[(i128, i128)]) {
        self.array(key, ranges.iter(), |json, (first, last)| {
            json.push(format_args!("[{first},{last}]"));
        });
    }

    fn roles(&mut self, roles: &[&str]) {
        if !roles.is_empty() {
            self.array("roles", roles.iter(), |json, role| json.push_text(role));
        }
    }

    fn identity(&mut self, identity: &Identity) {
        let Identity { namespace, name, uid } = identity;
        for (key, value) in [("namespace", namespace), ("name", name), ("uid", uid)] {
            if let Some(value) = value {
                self.text(key, value);
            }
        }
    }

    fn members(&mut self, write: impl FnOnce(&mut Members<'_, '_>)) {
        self.key("member-classes");
        self.text.push('[');
        write(&mut Members { json: &mut Json { text: &mut *self.text, is_first: true } });
        self.text.push(']');
    }

    fn push(&mut self, value: impl Display) {
        write!(self.text, "{value}").expect("a String takes all that is written to it");
    }

    fn push_text(&mut self, value: &str) {
        self.push(Quoted::json(value));
    }
}

/// An array of members that is being written.
struct Members<'m, 't> {
    json: &'m mut Json<'t>,
}

impl Members<'_, '_> {
    fn add(&mut self, name: &str, write: impl FnOnce(&mut Json<'_>)) {
        if !std::mem::replace(&mut self.json.is_first, false) {
            self.json.text.push(',');
        }
        self.json.nested(|json| {
            json.text("name", name);
            json.object("field-class", write);
        });
    }

    /// An unsigned integer that the packet reader uses itself.
    fn own(&mut self, name: &str, bits: u8, order: ByteOrder, roles: &[&str]) {
        self.add(name, |json| {
            integer(json, &IntClass::unsigned(bits), "unsigned-", order, roles);
        });
    }
}
