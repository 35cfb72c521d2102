//! The fragments and what they declare: ids, clocks, scopes; in the end the trace class.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::classes::{
    ClassId, Classes, closed, closed_exactly, expect_object, expect_text, required, unsigned, wrong,
};
use super::reader::{Value, shorten};
use super::scope::{Allowed, Draft, Earlier, Shared, Writer};
use crate::class::{
    ByteOrder, CtfVersion, EnvValue, EventIds, EventRecordClass, Identity, StreamClass, TraceClass,
};
use crate::clock::{ClockClass, ClockOrigin, Uuid};
use crate::error::TextProblem;
use crate::header::HeaderPlan;
use crate::layout::Layout;
use crate::log_level;
use crate::metadata::lexer::Problem;
use crate::metadata::{Warnings, lower};
use crate::order;
use crate::value::Scope;

type Result<T> = std::result::Result<T, Problem>;

/// Whose attributes hold log levels and URIs, in the order in which they are asked.
const ATTRIBUTE_NAMESPACES: [&str; 2] = ["babeltrace.org,2020", "lttng.org,2009"];

/// What the fragments so far declare.
#[derive(Debug, Default)]
pub(super) struct Document {
    has_preamble: bool,
    uuid: Option<Uuid>,
    classes: Classes,
    has_trace_class: bool,
    identity: Identity,
    environment: Vec<(String, EnvValue)>,
    packet_header: Option<Draft>,
    clocks: Vec<ClockClass>,
    clock_ids: HashMap<String, usize>,
    streams: Vec<StreamDraft>,
    /// Position of each data stream class by its id.
    stream_ids: HashMap<u64, usize>,
    events: Vec<EventDraft>,
    /// Data stream class id and event record class id of each event record class.
    event_ids: HashSet<(u64, u64)>,
    shared: Shared,
}

#[derive(Debug)]
struct StreamDraft {
    id: u64,
    identity: Identity,
    clock: Option<usize>,
    packet_context: Option<Draft>,
    event_header: Option<Draft>,
    event_context: Option<Draft>,
    /// Id and position of its event record classes.
    events: Vec<(u64, u32)>,
}

#[derive(Debug)]
struct EventDraft {
    /// Without its layouts.
    class: EventRecordClass,
    context: Option<Draft>,
    payload: Option<Draft>,
}

impl Document {
    /// An empty one, for text of so many bytes.
    pub(super) fn new(text_bytes: usize) -> Self {
        Self { shared: Shared::new(text_bytes), ..Self::default() }
    }

    /// Takes in the next fragment.
    pub(super) fn add(&mut self, fragment: Value<'_>) -> Result<()> {
        expect_object(fragment, "a fragment, which is an object")?;
        let name = required(fragment, "type", "the type of a fragment")?;
        let kind = expect_text(name, "type")?;
        if !self.has_preamble && kind != "preamble" {
            return Err((fragment.at(), TextProblem::Missing("the preamble")));
        }
        match kind {
            "preamble" => self.preamble(fragment),
            "field-class-alias" => self.alias(fragment),
            "trace-class" => self.trace_class(fragment),
            "clock-class" => self.clock_class(fragment),
            "data-stream-class" => self.stream_class(fragment),
            "event-record-class" => self.event_class(fragment),
            _ => Err(wrong(name, "type")),
        }
    }

    fn preamble(&mut self, fragment: Value<'_>) -> Result<()> {
        closed(fragment, &["version", "uuid"])?;
        if std::mem::replace(&mut self.has_preamble, true) {
            return Err(twice(fragment, "fragment", "preamble"));
        }
        let version = required(fragment, "version", "the version of the preamble")?;
        if version.integer() != Some(2) {
            return Err(wrong(version, "version"));
        }
        self.uuid = fragment.get("uuid").map(uuid).transpose()?;
        Ok(())
    }

    fn alias(&mut self, fragment: Value<'_>) -> Result<()> {
        closed(fragment, &["name", "field-class"])?;
        let name = required(fragment, "name", "the name of a field class alias")?;
        let class = required(fragment, "field-class", "the field class of an alias")?;
        let class = self.classes.read(class)?;
        self.classes.declare(name, class)
    }

    fn trace_class(&mut self, fragment: Value<'_>) -> Result<()> {
        closed(
            fragment,
            &["namespace", "name", "uid", "packet-header-field-class", "environment"],
        )?;
        if std::mem::replace(&mut self.has_trace_class, true) {
            return Err(twice(fragment, "fragment", "trace-class"));
        }
        if !self.streams.is_empty() {
            let (what, expected) = ("the trace class", "before all data stream classes");
            return Err((fragment.at(), TextProblem::Class { what, expected }));
        }
        self.identity = identity(fragment)?;
        if let Some(entries) = fragment.get("environment") {
            self.environment = environment(entries)?;
        }
        let scope = Scope::PacketHeader;
        self.packet_header =
            self.scope(fragment, "packet-header-field-class", scope, None, None)?;
        Ok(())
    }

    fn clock_class(&mut self, fragment: Value<'_>) -> Result<()> {
        let id = required(fragment, "id", "the id of a clock class")?;
        let text = expect_text(id, "id")?;
        let clock = clock_class(fragment)?;
        if self.clock_ids.insert(text.to_owned(), self.clocks.len()).is_some() {
            return Err(twice(id, "clock class id", text));
        }
        self.clocks.push(clock);
        Ok(())
    }

    fn stream_class(&mut self, fragment: Value<'_>) -> Result<()> {
        let members = [
            "id",
            "namespace",
            "name",
            "uid",
            "default-clock-class-id",
            "packet-context-field-class",
            "event-record-header-field-class",
            "event-record-common-context-field-class",
        ];
        closed(fragment, &members)?;
        // Without a trace class fragment there is one of no properties.
        self.has_trace_class = true;
        let id = id_or_0(fragment, "id")?;
        let position = self.streams.len();
        if self.stream_ids.insert(id, position).is_some() {
            return Err(twice(fragment, "data stream class id", &id.to_string()));
        }
        let clock = match fragment.get("default-clock-class-id") {
            None => None,
            Some(name) => {
                let text = expect_text(name, "default-clock-class-id")?;
                let what = "clock class";
                let unknown = || (name.at(), TextProblem::Unknown { what, name: shorten(text) });
                Some(self.clock_ids.get(text).copied().ok_or_else(unknown)?)
            }
        };
        self.streams.push(StreamDraft {
            id,
            identity: identity(fragment)?,
            clock,
            packet_context: None,
            event_header: None,
            event_context: None,
            events: Vec::new(),
        });
        for (name, scope) in [
            ("packet-context-field-class", Scope::PacketContext),
            ("event-record-header-field-class", Scope::EventHeader),
            ("event-record-common-context-field-class", Scope::EventCommonContext),
        ] {
            let draft = self.scope(fragment, name, scope, Some(position), None)?;
            let Some(stream) = self.streams.get_mut(position) else { continue };
            match scope {
                Scope::PacketContext => stream.packet_context = draft,
                Scope::EventHeader => stream.event_header = draft,
                _ => stream.event_context = draft,
            }
        }
        Ok(())
    }

    fn event_class(&mut self, fragment: Value<'_>) -> Result<()> {
        let members = [
            "id",
            "data-stream-class-id",
            "namespace",
            "name",
            "uid",
            "specific-context-field-class",
            "payload-field-class",
        ];
        closed(fragment, &members)?;
        let stream_class_id = id_or_0(fragment, "data-stream-class-id")?;
        let Some(stream) = self.stream_ids.get(&stream_class_id).copied() else {
            let (what, name) = ("data stream class", stream_class_id.to_string());
            return Err((fragment.at(), TextProblem::Unknown { what, name }));
        };
        let id = id_or_0(fragment, "id")?;
        if !self.event_ids.insert((stream_class_id, id)) {
            return Err(twice(fragment, "event record class id", &id.to_string()));
        }
        let too_many =
            TextProblem::TooMany { what: "event record classes", limit: u32::MAX.into() };
        let index = u32::try_from(self.events.len()).map_err(|_more| (fragment.at(), too_many))?;
        let identity = identity(fragment)?;
        let attributes = fragment.get("attributes");

        self.shared.local.clear();
        let (scope, name) = (Scope::EventSpecificContext, "specific-context-field-class");
        let mut context = self.scope(fragment, name, scope, Some(stream), None)?;
        let (scope, name) = (Scope::Payload, "payload-field-class");
        let mut payload = self.scope(fragment, name, scope, Some(stream), context.as_mut())?;
        for draft in [&mut context, &mut payload].into_iter().flatten() {
            let local = &self.shared.local;
            lower::rename_registers(&mut draft.nodes, |register| local.settle(register));
        }
        let class = EventRecordClass {
            id,
            index,
            name: identity.name.clone().unwrap_or_default(),
            identity,
            stream_class_id,
            log_level: log_level(attributes),
            emf_uri: attribute(attributes, "emf-uri").map(str::to_owned),
            context: None,
            payload: None,
        };
        self.events.push(EventDraft { class, context, payload });
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.events.push((id, index));
        }
        Ok(())
    }

    /// Reads the field class of a scope and writes it out. `stream` is the position of its data stream class, `context`
    /// the specific context before a payload.
    fn scope(
        &mut self,
        fragment: Value<'_>,
        member: &str,
        scope: Scope,
        stream: Option<usize>,
        context: Option<&mut Draft>,
    ) -> Result<Option<Draft>> {
        let Some(value) = fragment.get(member) else { return Ok(None) };
        let class: ClassId = self.classes.read(value)?;
        let Self { classes, packet_header, streams, shared, uuid, .. } = self;
        let stream = stream.and_then(|position| streams.get_mut(position));
        let clock = stream.as_ref().is_some_and(|stream| stream.clock.is_some());
        let allowed = Allowed { clock, uuid: uuid.is_some() };
        let mut earlier: Earlier<'_> = Vec::new();
        let mut add = |scope, draft: Option<_>| earlier.extend(draft.map(|draft| (scope, draft)));
        add(Scope::PacketHeader, packet_header.as_mut());
        if let Some(stream) = stream {
            add(Scope::PacketContext, stream.packet_context.as_mut());
            add(Scope::EventHeader, stream.event_header.as_mut());
            add(Scope::EventCommonContext, stream.event_context.as_mut());
        }
        add(Scope::EventSpecificContext, context);
        Writer::draft(shared, classes, scope, Some((value.at(), class)), allowed, earlier)
    }

    /// The trace class; `end` is where the text ends.
    pub(super) fn finish(self, end: usize) -> Result<TraceClass> {
        if !self.has_preamble {
            return Err((end, TextProblem::Missing("the preamble")));
        }
        if self.streams.is_empty() {
            return Err((end, TextProblem::Missing("a data stream class")));
        }
        let shared = self.shared.shared;
        let first_local = shared.count();
        let compile = |draft: Option<Draft>| {
            draft.map(|mut draft| {
                let rename = |register| shared.place(register, first_local);
                lower::rename_registers(&mut draft.nodes, rename);
                Layout::compile(draft.nodes)
            })
        };
        let event = |draft: EventDraft| {
            let (context, payload) = (compile(draft.context), compile(draft.payload));
            EventRecordClass { context, payload, ..draft.class }
        };
        let events: Vec<_> = self.events.into_iter().map(event).collect();
        let packet_header = compile(self.packet_header);
        let mut drafts = self.streams;
        drafts.sort_by_key(|draft| draft.id);
        let stream = |(index, draft): (u32, StreamDraft)| {
            let is_referenced = draft.event_header.as_ref().is_some_and(|header| header.referenced);
            let packet_context = compile(draft.packet_context);
            let event_header = compile(draft.event_header);
            let event_context = compile(draft.event_context);
            let own = draft.events.iter().filter_map(|(_, index)| {
                let class: &EventRecordClass = events.get(usize::try_from(*index).ok()?)?;
                Some([class.context.as_ref(), class.payload.as_ref()])
            });
            let orders_may_clash = order::may_change_inside_a_byte(
                [packet_header.as_ref(), packet_context.as_ref()],
                [event_header.as_ref(), event_context.as_ref()],
                own,
            );
            StreamClass {
                id: draft.id,
                identity: draft.identity,
                index,
                clock: draft.clock,
                packet_context,
                header_plan: HeaderPlan::new(event_header.as_ref().filter(|_| !is_referenced)),
                event_header,
                event_context,
                event_ids: EventIds::new(&draft.events),
                only_event_id: match &*draft.events {
                    [(id, _)] => Some(*id),
                    _ => None,
                },
                orders_may_clash,
            }
        };
        let streams = (0_u32..).zip(drafts).map(stream).collect();
        Ok(TraceClass {
            version: CtfVersion::V2,
            identity: self.identity,
            uuid: self.uuid,
            byte_order: ByteOrder::Little,
            packet_header,
            environment: self.environment,
            clocks: self.clocks,
            streams,
            events,
            registers: first_local + self.shared.most_local,
            warnings: Warnings::default(),
            programs: OnceLock::new(),
        })
    }
}

// Members of fragments.

fn twice(value: Value<'_>, what: &'static str, name: &str) -> Problem {
    (value.at(), TextProblem::Duplicate { what, name: shorten(name) })
}

fn id_or_0(fragment: Value<'_>, name: &'static str) -> Result<u64> {
    fragment.get(name).map_or(Ok(0), |id| unsigned(id, name))
}

fn optional_text(object: Value<'_>, name: &'static str) -> Result<Option<String>> {
    let text = object.get(name).map(|value| expect_text(value, name)).transpose()?;
    Ok(text.map(str::to_owned))
}

fn identity(fragment: Value<'_>) -> Result<Identity> {
    Ok(Identity {
        namespace: optional_text(fragment, "namespace")?,
        name: optional_text(fragment, "name")?,
        uid: optional_text(fragment, "uid")?,
    })
}

/// Sixteen numbers below 256.
fn uuid(value: Value<'_>) -> Result<Uuid> {
    let byte = |byte: Value<'_>| byte.integer().and_then(|byte| u8::try_from(byte).ok());
    let bytes: Option<Vec<u8>> = value.elements().map(byte).collect();
    let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    bytes.map(Uuid).ok_or_else(|| wrong(value, "uuid"))
}

fn environment(entries: Value<'_>) -> Result<Vec<(String, EnvValue)>> {
    expect_object(entries, "an environment")?;
    let entry = |(key, value): (Value<'_>, Value<'_>)| {
        let number = value.integer().map(EnvValue::Integer);
        let text = || value.text().map(|text| EnvValue::Text(text.to_owned()));
        let found = number.or_else(text).ok_or_else(|| wrong(value, "an environment entry"))?;
        Ok((key.text().unwrap_or("").to_owned(), found))
    };
    entries.members().map(entry).collect()
}

fn clock_class(fragment: Value<'_>) -> Result<ClockClass> {
    let members = [
        "id",
        "frequency",
        "namespace",
        "name",
        "uid",
        "description",
        "origin",
        "offset-from-origin",
        "precision",
        "accuracy",
    ];
    closed(fragment, &members)?;
    let Identity { namespace, name, uid } = identity(fragment)?;
    let value = required(fragment, "frequency", "the frequency of a clock class")?;
    let frequency = unsigned(value, "frequency")?;
    if frequency == 0 {
        return Err(wrong(value, "frequency"));
    }
    let cycles =
        |name: &'static str| fragment.get(name).map(|value| unsigned(value, name)).transpose();
    let (mut offset_s, mut offset) = (0, 0);
    if let Some(value) = fragment.get("offset-from-origin") {
        expect_object(value, "an offset")?;
        closed_exactly(value, &["seconds", "cycles"])?;
        if let Some(seconds) = value.get("seconds") {
            let number = seconds.integer().and_then(|number| i64::try_from(number).ok());
            offset_s = number.ok_or_else(|| wrong(seconds, "seconds"))?;
        }
        if let Some(cycles) = value.get("cycles") {
            offset = unsigned(cycles, "cycles")?;
            if offset >= frequency {
                return Err(wrong(cycles, "cycles"));
            }
        }
    }
    let origin = fragment.get("origin").map_or(Ok(ClockOrigin::Unknown), origin)?;
    Ok(ClockClass {
        description: optional_text(fragment, "description")?,
        frequency,
        precision: cycles("precision")?.unwrap_or(0),
        accuracy: cycles("accuracy")?,
        offset_s,
        offset,
        origin,
        namespace,
        uid,
        ..ClockClass::new(&name.unwrap_or_default())
    })
}

fn origin(value: Value<'_>) -> Result<ClockOrigin> {
    match value.text() {
        Some("unix-epoch") => return Ok(ClockOrigin::UnixEpoch),
        Some(_) => return Err(wrong(value, "origin")),
        None => {}
    }
    expect_object(value, "\"unix-epoch\" or an object")?;
    closed_exactly(value, &["namespace", "name", "uid"])?;
    let text = |name: &'static str, what| expect_text(required(value, name, what)?, name);
    Ok(ClockOrigin::Custom {
        namespace: optional_text(value, "namespace")?,
        name: text("name", "the name of a clock origin")?.to_owned(),
        uid: text("uid", "the uid of a clock origin")?.to_owned(),
    })
}

/// The attribute `name` of an event record class, if it is a text.
fn attribute<'j>(attributes: Option<Value<'j>>, name: &str) -> Option<&'j str> {
    let attributes = attributes?;
    ATTRIBUTE_NAMESPACES
        .into_iter()
        .find_map(|namespace| attributes.get(namespace)?.get(name)?.text())
}

fn log_level(attributes: Option<Value<'_>>) -> Option<i64> {
    let name = attribute(attributes, "log-level")?;
    log_level::ctf2_number(name)
}
