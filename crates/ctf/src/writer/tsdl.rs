//! Classes as TSDL text (CTF 1.8).

use std::fmt::{self, Write};

use super::class::{
    EventClass, EventHeader, FieldClass, FloatClass, IntClass, Length, Mapping, StreamClass,
    TraceClass,
};
use super::quoted::Quoted;
use super::tree::{Kind, Target, Tree, is_label_of};
use crate::class::{Base, ByteOrder, EnvValue};
use crate::clock::{ClockClass, ClockOrigin};
use crate::value::Scope;

/// What a `String` answers when it is written to.
const INFALLIBLE: &str = "a String takes all that is written to it";

/// Trace, environment and clocks.
pub(super) fn begin(class: &TraceClass) -> String {
    let mut text = String::from("/* CTF 1.8 */\n\n");
    trace(&mut text, class).expect(INFALLIBLE);
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
    write_stream(text, class, stream, packet, context).expect(INFALLIBLE);
}

/// An event record class; `trees` are its scopes and those before it.
pub(super) fn event(
    text: &mut String,
    class: &TraceClass,
    stream: &StreamClass,
    event: &EventClass,
    trees: &[&Tree<'_>],
) {
    write_event(text, class, stream, event, trees).expect(INFALLIBLE);
}

fn trace(text: &mut String, class: &TraceClass) -> fmt::Result {
    for (size, name) in [(8, "uint8_t"), (16, "uint16_t"), (32, "uint32_t"), (64, "uint64_t")] {
        writeln!(
            text,
            "typealias integer {{ size = {size}; align = 8; signed = false; }} := {name};"
        )?;
    }
    text.push_str("\ntrace {\n\tmajor = 1;\n\tminor = 8;\n");
    if let Some(uuid) = class.uuid {
        writeln!(text, "\tuuid = \"{uuid}\";")?;
    }
    writeln!(text, "\tbyte_order = {};", order_name(class.byte_order))?;
    text.push_str("\tpacket.header := struct {\n\t\tuint32_t magic;\n");
    if class.uuid.is_some() {
        text.push_str("\t\tuint8_t uuid[16];\n");
    }
    writeln!(text, "\t\tuint{}_t stream_id;", class.stream_id_bits())?;
    if class.instance_ids {
        text.push_str("\t\tuint64_t stream_instance_id;\n");
    }
    text.push_str("\t};\n};\n\n");
    if !class.environment.is_empty() {
        environment(text, &class.environment)?;
    }
    class.clocks.iter().try_for_each(|class| clock(text, class))
}

fn environment(text: &mut String, entries: &[(String, EnvValue)]) -> fmt::Result {
    text.push_str("env {\n");
    for (name, value) in entries {
        match value {
            EnvValue::Text(value) => writeln!(text, "\t{name} = {};", Quoted::tsdl(value))?,
            EnvValue::Integer(value) => writeln!(text, "\t{name} = {value};")?,
        }
    }
    text.push_str("};\n\n");
    Ok(())
}

fn clock(text: &mut String, clock: &ClockClass) -> fmt::Result {
    writeln!(text, "clock {{\n\tname = \"{}\";", clock.name)?;
    if let Some(uuid) = clock.uuid {
        writeln!(text, "\tuuid = \"{uuid}\";")?;
    }
    if let Some(description) = &clock.description {
        writeln!(text, "\tdescription = {};", Quoted::tsdl(description))?;
    }
    writeln!(text, "\tfreq = {};", clock.frequency)?;
    if clock.precision != 0 {
        writeln!(text, "\tprecision = {};", clock.precision)?;
    }
    if clock.offset_s != 0 {
        writeln!(text, "\toffset_s = {};", clock.offset_s)?;
    }
    writeln!(text, "\toffset = {};", clock.offset)?;
    let is_absolute = clock.origin == ClockOrigin::UnixEpoch;
    writeln!(text, "\tabsolute = {is_absolute};\n}};\n")?;
    for (size, name) in [(27, "uint27"), (32, "uint32"), (64, "uint64")] {
        let align = if size == 27 { 1 } else { 8 };
        writeln!(
            text,
            "typealias integer {{ size = {size}; align = {align}; signed = false; map = clock.{}.value; }} := {name}_{}_t;",
            clock.name, clock.name
        )?;
    }
    text.push('\n');
    Ok(())
}

fn write_stream(
    text: &mut String,
    class: &TraceClass,
    stream: &StreamClass,
    packet: &Tree<'_>,
    context: Option<&Tree<'_>>,
) -> fmt::Result {
    let clock = stream.clock.and_then(|clock| class.clocks.get(clock));
    writeln!(text, "stream {{\n\tid = {};\n\tpacket.context := struct {{", stream.id)?;
    if let Some(ClockClass { name, .. }) = clock {
        writeln!(text, "\t\tuint64_{name}_t timestamp_begin;\n\t\tuint64_{name}_t timestamp_end;")?;
    }
    text.push_str("\t\tuint64_t content_size;\n\t\tuint64_t packet_size;\n");
    if stream.packet.sequence_numbers {
        text.push_str("\t\tuint64_t packet_seq_num;\n");
    }
    if let Some(bits) = stream.packet.discarded_bits {
        writeln!(text, "\t\t{} events_discarded;", plain(bits))?;
    }
    let mut writer = Writer { text, class, trees: &[packet], depth: 2 };
    writer.members(packet, 0)?;
    let align = packet.nodes.first().map_or(1, |root| root.align);
    if align > 8 {
        writeln!(text, "\t}} align({align});")?;
    } else {
        text.push_str("\t};\n");
    }
    event_header(text, stream.header, clock.map(|clock| clock.name.as_str()))?;
    if let Some(context) = context {
        text.push_str("\tevent.context := ");
        let mut writer = Writer { text, class, trees: &[packet, context], depth: 1 };
        writer.structure(context, 0)?;
        text.push_str(";\n");
    }
    text.push_str("};\n\n");
    Ok(())
}

/// An unsigned integer in a packet's or event record's own fields.
fn plain(bits: u8) -> String {
    match bits {
        8 | 16 | 32 | 64 => format!("uint{bits}_t"),
        _ => format!("integer {{ size = {bits}; align = 8; signed = false; }}"),
    }
}

fn event_header(text: &mut String, header: EventHeader, clock: Option<&str>) -> fmt::Result {
    text.push_str("\tevent.header := struct {\n");
    let clock_name = clock.unwrap_or_default();
    match header {
        EventHeader::Plain { id_bits, time_bits } => {
            if let Some(bits) = id_bits {
                writeln!(text, "\t\t{} id;", plain(bits))?;
            }
            if let Some(clock) = clock {
                writeln!(
                    text,
                    "\t\tinteger {{ size = {time_bits}; align = 8; signed = false; map = clock.{clock}.value; }} timestamp;"
                )?;
            }
        }
        EventHeader::Compact => writeln!(
            text,
            "\t\tenum : integer {{ size = 5; align = 1; signed = false; }} {{ compact = 0 ... 30, extended = 31 }} id;\n\
             \t\tvariant <id> {{\n\t\t\tstruct {{\n\t\t\t\tuint27_{clock_name}_t timestamp;\n\t\t\t}} compact;\n\
             \t\t\tstruct {{\n\t\t\t\tuint32_t id;\n\t\t\t\tuint64_{clock_name}_t timestamp;\n\t\t\t}} extended;\n\t\t}} v;"
        )?,
        EventHeader::Large => writeln!(
            text,
            "\t\tenum : uint16_t {{ compact = 0 ... 65534, extended = 65535 }} id;\n\
             \t\tvariant <id> {{\n\t\t\tstruct {{\n\t\t\t\tuint32_{clock_name}_t timestamp;\n\t\t\t}} compact;\n\
             \t\t\tstruct {{\n\t\t\t\tuint32_t id;\n\t\t\t\tuint64_{clock_name}_t timestamp;\n\t\t\t}} extended;\n\t\t}} v;"
        )?,
    }
    text.push_str("\t} align(8);\n");
    Ok(())
}

fn write_event(
    text: &mut String,
    class: &TraceClass,
    stream: &StreamClass,
    event: &EventClass,
    trees: &[&Tree<'_>],
) -> fmt::Result {
    writeln!(
        text,
        "event {{\n\tname = {};\n\tid = {};\n\tstream_id = {};",
        Quoted::tsdl(&event.name),
        event.id,
        stream.id
    )?;
    if let Some(level) = event.log_level {
        writeln!(text, "\tloglevel = {level};")?;
    }
    if let Some(uri) = &event.emf_uri {
        writeln!(text, "\tmodel.emf.uri = {};", Quoted::tsdl(uri))?;
    }
    for (scope, left) in [(Scope::EventSpecificContext, "context"), (Scope::Payload, "fields")] {
        if let Some(tree) = trees.iter().find(|tree| tree.scope == scope) {
            write!(text, "\t{left} := ")?;
            Writer { text, class, trees, depth: 1 }.structure(tree, 0)?;
            text.push_str(";\n");
        }
    }
    text.push_str("};\n\n");
    Ok(())
}

struct Writer<'w, 'c> {
    text: &'w mut String,
    class: &'w TraceClass,
    trees: &'w [&'w Tree<'c>],
    depth: usize,
}

impl Writer<'_, '_> {
    fn indent(&mut self) {
        self.text.extend(std::iter::repeat_n('\t', self.depth));
    }

    fn structure(&mut self, tree: &Tree<'_>, index: usize) -> fmt::Result {
        self.text.push_str("struct {\n");
        self.depth += 1;
        self.members(tree, index)?;
        self.depth -= 1;
        self.indent();
        self.text.push('}');
        let declared = match tree.nodes.get(index).map(|node| node.kind) {
            Some(Kind::Structure(structure)) => structure.align,
            _ => 1,
        };
        if declared > 1 { write!(self.text, " align({declared})") } else { Ok(()) }
    }

    fn members(&mut self, tree: &Tree<'_>, parent: usize) -> fmt::Result {
        let end = tree.nodes.get(parent).map_or(0, |node| node.end);
        let mut at = parent + 1;
        while let Some(node) = tree.nodes.get(at).filter(|_| at < end) {
            self.indent();
            let mut lengths = String::new();
            self.class_of(tree, at, &mut lengths)?;
            let name = self.option_label(tree, at).map_or_else(|| spelled(tree, at), str::to_owned);
            writeln!(self.text, " {name}{lengths};")?;
            at = node.end;
        }
        Ok(())
    }

    /// The class of a field; lengths of arrays come behind the field's name.
    fn class_of(&mut self, tree: &Tree<'_>, index: usize, lengths: &mut String) -> fmt::Result {
        let Some(node) = tree.nodes.get(index) else { return Ok(()) };
        let class = match node.kind {
            Kind::Structure(_) => return self.structure(tree, index),
            Kind::Other(class) => class,
        };
        match class {
            FieldClass::Int(int) => self.integer(int, ""),
            FieldClass::Enum(int, mappings) => {
                self.text.push_str("enum : ");
                self.integer(int, "")?;
                self.mappings(mappings)
            }
            FieldClass::Float(float) => self.float(float),
            FieldClass::String(_) => {
                self.text.push_str("string");
                Ok(())
            }
            FieldClass::Text(length, _) => {
                self.length(tree, index, *length, lengths)?;
                self.integer(&IntClass::U8, "encoding = UTF8; ")
            }
            FieldClass::Array(array) => {
                self.length(tree, index, array.length, lengths)?;
                self.class_of(tree, index + 1, lengths)
            }
            FieldClass::Variant(_) => self.variant(tree, index),
            // Checking has refused what CTF 1.8 has no form for.
            _ => Ok(()),
        }
    }

    fn integer(&mut self, int: &IntClass, more: &str) -> fmt::Result {
        let base = match int.base {
            Base::Binary => 2,
            Base::Octal => 8,
            Base::Decimal => 10,
            Base::Hexadecimal => 16,
        };
        write!(
            self.text,
            "integer {{ size = {}; align = {}; signed = {}; base = {base}; {more}",
            int.bits, int.align, int.signed
        )?;
        self.order(int.byte_order)?;
        self.text.push('}');
        Ok(())
    }

    fn order(&mut self, order: Option<ByteOrder>) -> fmt::Result {
        match order.filter(|order| *order != self.class.byte_order) {
            Some(order) => write!(self.text, "byte_order = {}; ", order_name(order)),
            None => Ok(()),
        }
    }

    fn float(&mut self, float: &FloatClass) -> fmt::Result {
        let (exponent, mantissa) = if float.bits == 32 { (8, 24) } else { (11, 53) };
        write!(
            self.text,
            "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {}; ",
            float.align
        )?;
        self.order(float.byte_order)?;
        self.text.push('}');
        Ok(())
    }

    fn mappings(&mut self, mappings: &[Mapping]) -> fmt::Result {
        self.text.push_str(" { ");
        for (index, Mapping { label, first, last }) in mappings.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(self.text, "{comma}{} = {first}", Quoted::tsdl(label))?;
            if last != first {
                write!(self.text, " ... {last}")?;
            }
        }
        self.text.push_str(" }");
        Ok(())
    }

    fn variant(&mut self, tree: &Tree<'_>, index: usize) -> fmt::Result {
        self.text.push_str("variant <");
        let tag = self.reference(tree, index);
        writeln!(self.text, "{tag}> {{")?;
        self.depth += 1;
        self.members(tree, index)?;
        self.depth -= 1;
        self.indent();
        self.text.push('}');
        Ok(())
    }

    /// The label of the selector that chooses this option, which must be spelled like it.
    fn option_label(&self, tree: &Tree<'_>, index: usize) -> Option<&str> {
        let node = tree.nodes.get(index)?;
        let parent = tree
            .nodes
            .get(node.parent)
            .filter(|parent| matches!(parent.kind, Kind::Other(FieldClass::Variant(_))))?;
        let target = parent.target?;
        let target_tree = self.trees.iter().find(|tree| tree.scope == target.scope)?;
        let Kind::Other(FieldClass::Enum(_, mappings)) = target_tree.nodes.get(target.node)?.kind
        else {
            return None;
        };
        let mut labels = mappings.iter().map(|mapping| mapping.label.as_str());
        labels.find(|label| is_label_of(label, node.name))
    }

    fn length(
        &self,
        tree: &Tree<'_>,
        index: usize,
        length: Length,
        lengths: &mut String,
    ) -> fmt::Result {
        match length {
            Length::Fixed(length) => write!(lengths, "[{length}]"),
            Length::Of(_) => write!(lengths, "[{}]", self.reference(tree, index)),
        }
    }

    /// How a field names the one it refers to: by the first name that is found from here, or else from the scope on.
    fn reference(&self, tree: &Tree<'_>, from: usize) -> String {
        let Some(Target { scope, node }) = tree.nodes.get(from).and_then(|node| node.target) else {
            return String::new();
        };
        let Some(target) = self.trees.iter().find(|tree| tree.scope == scope) else {
            return String::new();
        };
        // From the innermost structure around both on.
        let around: Vec<usize> = tree.containers(from).collect();
        let common = target
            .containers(node)
            .find(|at| scope == tree.scope && around.contains(at) && is_structure(target, *at))
            .unwrap_or(0);
        let names = |top: usize| {
            let mut names = vec![spelled(target, node)];
            let inner = target.containers(node).take_while(|at| *at != top);
            names.extend(inner.filter(|at| *at != top).map(|at| spelled(target, at)));
            names.reverse();
            names
        };
        let relative = names(common);
        if scope == tree.scope && !self.is_hidden(tree, from, common, &relative) {
            return relative.join(".");
        }
        format!("{}.{}", scope_name(scope), names(0).join("."))
    }

    /// Whether a structure between a field and `common` has an earlier member of that name.
    fn is_hidden(&self, tree: &Tree<'_>, from: usize, common: usize, relative: &[String]) -> bool {
        let Some(first) = relative.first() else { return false };
        let mut below = tree.containers(from).take_while(|at| *at != common);
        below.any(|structure| {
            is_structure(tree, structure)
                && (structure + 1..from).any(|at| {
                    tree.nodes.get(at).is_some_and(|node| node.parent == structure)
                        && spelled(tree, at) == *first
                })
        })
    }
}

fn is_structure(tree: &Tree<'_>, at: usize) -> bool {
    matches!(tree.nodes.get(at).map(|node| node.kind), Some(Kind::Structure(_)))
}

/// A member's name behind an underscore; the packet's CPU is known by its plain name.
fn spelled(tree: &Tree<'_>, at: usize) -> String {
    let name = tree.nodes.get(at).map_or("", |node| node.name);
    let is_cpu = tree.scope == Scope::PacketContext && name == "cpu_id";
    if is_cpu { name.to_owned() } else { format!("_{name}") }
}

const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::PacketHeader => "trace.packet.header",
        Scope::PacketContext => "stream.packet.context",
        Scope::EventHeader => "stream.event.header",
        Scope::EventCommonContext => "stream.event.context",
        Scope::EventSpecificContext => "event.context",
        Scope::Payload => "event.fields",
    }
}

const fn order_name(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    }
}
