//! From the document to the trace class: ids, roles, clocks, compiled layouts.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use super::lexer::Problem;
use super::parser::{Document, EventBlock, StreamBlock, shorten};
use super::scope::{Draft, Earlier, LOCAL, Shared, Writer, max_nodes};
use super::warning::{Found, WarningKind, Warnings};
use crate::class::{CtfVersion, EventIds, EventRecordClass, Identity, StreamClass, TraceClass};
use crate::clock::ClockClass;
use crate::error::TextProblem;
use crate::header::HeaderPlan;
use crate::layout::{Integer, Kind, Layout, Length, Node, Register, Role};
use crate::order;
use crate::value::Scope;

type Result<T> = std::result::Result<T, Problem>;

/// The name of the clock that exists when none is declared and event records have times all the same.
const IMPLICIT_CLOCK: &str = "default";

/// The trace class, with what is noticed on the way there.
pub(crate) fn trace_class(document: Document) -> Result<(TraceClass, Found)> {
    let Document { types, trace, environment, clocks, mut streams, events, warnings, text_bytes } =
        document;
    let mut clocks = Clocks::new(clocks);
    let trace = trace.ok_or((0, TextProblem::Missing("the trace block")))?;
    let byte_order = trace.byte_order.ok_or((0, TextProblem::Missing("the trace's byte_order")))?;
    if streams.is_empty() && events.iter().all(|event| event.stream_id.is_none()) {
        streams.push(StreamBlock { id: Some(0), ..StreamBlock::default() });
    }
    let stream_ids = stream_ids(&streams)?;

    let mut shared = Shared {
        types: &types,
        native: byte_order,
        environment: environment.iter().map(|(name, value)| (name.as_str(), value)).collect(),
        warnings,
        max_nodes: max_nodes(text_bytes),
        nodes_left: max_nodes(text_bytes),
        registers: 0,
        local_registers: 0,
        most_local_registers: 0,
    };
    let mut header =
        Writer::draft(&mut shared, Scope::PacketHeader, trace.packet_header, Vec::new())?;
    if let Some(draft) = &mut header {
        let at = trace.packet_header.map_or(0, |root| root.at);
        packet_header_roles(draft, at, streams.len(), &mut shared.warnings)?;
    }
    let mut drafts = Vec::with_capacity(streams.len());
    for (block, id) in streams.iter().zip(stream_ids) {
        drafts.push(StreamDraft::new(&mut shared, block, id, &mut header, &mut clocks)?);
    }
    drafts.sort_by_key(|draft| draft.id);
    let event_classes = event_classes(&mut shared, events, &mut header, &mut drafts, &clocks)?;

    let warnings = shared.warnings;
    let shared_registers = shared.registers;
    let registers = shared_registers + shared.most_local_registers;
    let compile = |draft: Option<Draft>| draft.map(|draft| compile(draft, shared_registers));
    let mut classes = Vec::with_capacity(event_classes.len());
    for (index, draft) in (0_u32..).zip(event_classes) {
        let EventDraft { block, id, stream, context, payload } = draft;
        if let Some(stream) = drafts.get_mut(stream) {
            stream.events.push((id, index));
        }
        classes.push(EventRecordClass {
            id,
            index,
            name: block.name,
            identity: Identity::default(),
            stream_class_id: drafts.get(stream).map_or(0, |stream| stream.id),
            log_level: block.log_level,
            emf_uri: block.emf_uri,
            context: compile(context),
            payload: compile(payload),
        });
    }
    let packet_header = compile(header);
    let streams = (0_u32..)
        .zip(drafts)
        .map(|(index, draft)| {
            draft.finish(index, shared_registers, packet_header.as_ref(), &classes)
        })
        .collect();
    let trace = TraceClass {
        version: CtfVersion::V1_8,
        identity: Identity::default(),
        uuid: trace.uuid,
        byte_order,
        packet_header,
        environment,
        clocks: clocks.all,
        streams,
        events: classes,
        registers,
        warnings: Warnings::default(),
        programs: OnceLock::new(),
    };
    Ok((trace, warnings))
}

/// The id of each stream block; one alone may leave it out.
fn stream_ids(streams: &[StreamBlock]) -> Result<Vec<u64>> {
    let mut seen = HashSet::new();
    let id_of = |stream: &StreamBlock| {
        let implied = (streams.len() == 1).then_some(0);
        let id =
            stream.id.or(implied).ok_or((stream.at, TextProblem::Missing("the id of a stream")))?;
        if seen.insert(id) { Ok(id) } else { Err(duplicate(stream.at, "stream id", id)) }
    };
    streams.iter().map(id_of).collect()
}

fn duplicate(at: usize, what: &'static str, id: u64) -> Problem {
    (at, TextProblem::Duplicate { what, name: id.to_string() })
}

struct StreamDraft {
    id: u64,
    clock: Option<usize>,
    packet_context: Option<Draft>,
    event_header: Option<Draft>,
    event_context: Option<Draft>,
    events: Vec<(u64, u32)>,
}

impl StreamDraft {
    fn new(
        shared: &mut Shared<'_>,
        block: &StreamBlock,
        id: u64,
        header: &mut Option<Draft>,
        clocks: &mut Clocks,
    ) -> Result<Self> {
        let before = earlier([(Scope::PacketHeader, header.as_mut())]);
        let mut packet_context =
            Writer::draft(shared, Scope::PacketContext, block.packet_context, before)?;
        let before = earlier([
            (Scope::PacketHeader, header.as_mut()),
            (Scope::PacketContext, packet_context.as_mut()),
        ]);
        let mut event_header =
            Writer::draft(shared, Scope::EventHeader, block.event_header, before)?;
        let before = earlier([
            (Scope::PacketHeader, header.as_mut()),
            (Scope::PacketContext, packet_context.as_mut()),
            (Scope::EventHeader, event_header.as_mut()),
        ]);
        let event_context =
            Writer::draft(shared, Scope::EventCommonContext, block.event_context, before)?;
        if let Some(draft) = &mut packet_context {
            let at = block.packet_context.map_or(0, |root| root.at);
            packet_context_roles(draft, at, &mut shared.warnings);
        }
        if let Some(draft) = &mut event_header {
            event_header_roles(draft, block.event_header.map_or(0, |root| root.at))?;
        }
        let mut clock = None;
        for draft in [&mut packet_context, &mut event_header].into_iter().flatten() {
            take_clock(draft, clocks, &mut clock)?;
        }
        if let Some(draft) = &event_context {
            check_clocks(draft, clocks)?;
        }
        imply_clock(block.at, [&mut packet_context, &mut event_header], clocks, &mut clock)?;
        Ok(Self { id, clock, packet_context, event_header, event_context, events: Vec::new() })
    }

    fn finish(
        self,
        index: u32,
        shared_registers: Register,
        packet_header: Option<&Layout>,
        classes: &[EventRecordClass],
    ) -> StreamClass {
        let header_is_referenced = self.event_header.as_ref().is_some_and(|draft| draft.referenced);
        let compile = |draft: Option<Draft>| draft.map(|draft| compile(draft, shared_registers));
        let event_header = compile(self.event_header);
        let only_event_id = match &*self.events {
            [(id, _)] => Some(*id),
            _ => None,
        };
        let packet_context = compile(self.packet_context);
        let event_context = compile(self.event_context);
        let own = self.events.iter().filter_map(|(_, index)| {
            let class = classes.get(usize::try_from(*index).ok()?)?;
            Some([class.context.as_ref(), class.payload.as_ref()])
        });
        let orders_may_clash = order::may_change_inside_a_byte(
            [packet_header, packet_context.as_ref()],
            [event_header.as_ref(), event_context.as_ref()],
            own,
        );
        StreamClass {
            id: self.id,
            identity: Identity::default(),
            index,
            clock: self.clock,
            packet_context,
            header_plan: HeaderPlan::new(event_header.as_ref().filter(|_| !header_is_referenced)),
            event_header,
            event_context,
            orders_may_clash,
            event_ids: EventIds::new(&self.events),
            only_event_id,
        }
    }
}

struct EventDraft {
    block: EventBlock,
    id: u64,
    /// Position of its stream class.
    stream: usize,
    context: Option<Draft>,
    payload: Option<Draft>,
}

fn event_classes(
    shared: &mut Shared<'_>,
    events: Vec<EventBlock>,
    header: &mut Option<Draft>,
    streams: &mut [StreamDraft],
    clocks: &Clocks,
) -> Result<Vec<EventDraft>> {
    let mut seen = HashSet::new();
    // The only event of a stream may leave out its id.
    let mut by_stream = HashMap::<_, u32>::new();
    for block in &events {
        *by_stream.entry(block.stream_id).or_default() += 1;
    }
    let mut drafts = Vec::with_capacity(events.len());
    for block in events {
        let stream_id = match (block.stream_id, &*streams) {
            (Some(id), _) => id,
            (None, [only]) => only.id,
            _ => return Err((block.at, TextProblem::Missing("the stream_id of an event"))),
        };
        let unknown =
            || (block.at, TextProblem::Unknown { what: "stream", name: stream_id.to_string() });
        let stream = streams
            .binary_search_by_key(&stream_id, |stream| stream.id)
            .map_err(|_place| unknown())?;
        let alone = by_stream.get(&block.stream_id) == Some(&1);
        let id = block
            .id
            .or(alone.then_some(0))
            .ok_or((block.at, TextProblem::Missing("the id of an event")))?;
        if !seen.insert((stream, id)) {
            return Err(duplicate(block.at, "event id", id));
        }
        shared.local_registers = 0;
        let Some(parent) = streams.get_mut(stream) else { return Err(unknown()) };
        let earlier = before(header, parent, None);
        let mut context =
            Writer::draft(shared, Scope::EventSpecificContext, block.context, earlier)?;
        let earlier = before(header, parent, context.as_mut());
        let payload = Writer::draft(shared, Scope::Payload, block.payload, earlier)?;
        for draft in [&context, &payload].into_iter().flatten() {
            check_clocks(draft, clocks)?;
        }
        drafts.push(EventDraft { block, id, stream, context, payload });
    }
    Ok(drafts)
}

/// The scopes before an event record class's own.
fn before<'d>(
    header: &'d mut Option<Draft>,
    stream: &'d mut StreamDraft,
    context: Option<&'d mut Draft>,
) -> Earlier<'d> {
    earlier([
        (Scope::PacketHeader, header.as_mut()),
        (Scope::PacketContext, stream.packet_context.as_mut()),
        (Scope::EventHeader, stream.event_header.as_mut()),
        (Scope::EventCommonContext, stream.event_context.as_mut()),
        (Scope::EventSpecificContext, context),
    ])
}

fn earlier<'d, const N: usize>(scopes: [(Scope, Option<&'d mut Draft>); N]) -> Earlier<'d> {
    scopes.into_iter().filter_map(|(scope, draft)| Some((scope, draft?))).collect()
}

// Roles.

/// Direct members of a scope's root structure.
fn members(nodes: &[Node]) -> Vec<usize> {
    let mut all = Vec::new();
    let mut at = 1;
    while let Some(node) = nodes.get(at) {
        all.push(at);
        at = usize::try_from(node.next).unwrap_or(usize::MAX);
    }
    all
}

fn integer(draft: &mut Draft, node: usize) -> Option<&mut Integer> {
    match &mut draft.nodes.get_mut(node)?.kind {
        Kind::Integer(int) => Some(int),
        _ => None,
    }
}

fn name_of(draft: &Draft, node: usize) -> Box<str> {
    draft.nodes.get(node).map_or_else(Box::default, |node| node.name.clone())
}

/// A role whose field is of another class is an error where the packet could be taken for something that it is not,
/// else a warning.
fn packet_header_roles(
    draft: &mut Draft,
    at: usize,
    streams: usize,
    warnings: &mut Found,
) -> Result<()> {
    let wrong = |what, expected| (at, TextProblem::Class { what, expected });
    let mut has_stream_id = false;
    for (position, node) in members(&draft.nodes).into_iter().enumerate() {
        let name = name_of(draft, node);
        let (role, what) = match &*name {
            "magic" if position == 0 => (Role::Magic, "the packet header's magic"),
            "magic" => return Err(wrong("the packet header's magic", "the first member")),
            "stream_id" => (Role::StreamClassId, "the packet header's stream_id"),
            "stream_instance_id" => {
                (Role::StreamInstanceId, "the packet header's stream_instance_id")
            }
            "uuid" => {
                if uuid_role(draft, node).is_none() {
                    let (what, expected) = ("the packet header's uuid", "an array of 16 bytes");
                    warnings.add(at, WarningKind::OrdinaryField { what, expected });
                }
                continue;
            }
            _ => continue,
        };
        let Some(int) = integer(draft, node).filter(|int| !int.signed) else {
            let expected = "an unsigned integer";
            warnings.add(at, WarningKind::OrdinaryField { what, expected });
            continue;
        };
        has_stream_id |= role == Role::StreamClassId;
        if role == Role::Magic && int.bits != 32 {
            return Err(wrong("the packet header's magic", "32 bits wide"));
        }
        int.role = Some(role);
    }
    if streams > 1 && !has_stream_id {
        return Err((at, TextProblem::Missing("the packet header's stream_id")));
    }
    Ok(())
}

fn uuid_role(draft: &mut Draft, node: usize) -> Option<()> {
    match &mut draft.nodes.get_mut(node)?.kind {
        Kind::Array(Length::Fixed(16)) => {
            let int = integer(draft, node + 1).filter(|int| int.bits == 8 && !int.signed)?;
            int.role = Some(Role::TraceUuid);
            Some(())
        }
        _ => None,
    }
}

fn packet_context_roles(draft: &mut Draft, at: usize, warnings: &mut Found) {
    for node in members(&draft.nodes) {
        let (role, what) = match &*name_of(draft, node) {
            "packet_size" => (Role::PacketTotal, "the packet context's packet_size"),
            "content_size" => (Role::PacketContent, "the packet context's content_size"),
            "timestamp_begin" => (Role::ClockTimestamp, "the packet context's timestamp_begin"),
            "timestamp_end" => (Role::PacketEnd, "the packet context's timestamp_end"),
            "events_discarded" => (Role::DiscardedEvents, "the packet context's events_discarded"),
            "packet_seq_num" => (Role::SequenceNumber, "the packet context's packet_seq_num"),
            "cpu_id" => (Role::CpuId, "the packet context's cpu_id"),
            _ => continue,
        };
        match integer(draft, node).filter(|int| !int.signed) {
            Some(int) => int.role = Some(role),
            // Tracers may call what they like `cpu_id`.
            None if role == Role::CpuId => {}
            None => {
                let expected = "an unsigned integer";
                warnings.add(at, WarningKind::OrdinaryField { what, expected });
            }
        }
    }
}

/// `id`, and what a compound in the header calls `id` when it can be one; times are found by their clocks.
fn event_header_roles(draft: &mut Draft, at: usize) -> Result<()> {
    for node in members(&draft.nodes) {
        let is_id = &*name_of(draft, node) == "id";
        if is_id && integer(draft, node).is_none_or(|int| int.signed) {
            let (what, expected) = ("an event header's id", "an unsigned integer");
            return Err((at, TextProblem::Class { what, expected }));
        }
    }
    for node in draft.nodes.iter_mut().filter(|node| &*node.name == "id") {
        if let Kind::Integer(int) = &mut node.kind
            && !int.signed
        {
            int.role = Some(Role::EventClassId);
        }
    }
    Ok(())
}

// Clocks.

/// Clock classes, with their positions by name.
struct Clocks {
    all: Vec<ClockClass>,
    by_name: HashMap<String, usize>,
}

impl Clocks {
    fn new(all: Vec<ClockClass>) -> Self {
        let by_name =
            all.iter().enumerate().map(|(index, clock)| (clock.name.clone(), index)).collect();
        Self { all, by_name }
    }
}

fn clock_index(path: &super::types::Path, clocks: &Clocks) -> Result<usize> {
    let name = path.names.first().map_or("", |name| name);
    let index = clocks.by_name.get(name).copied();
    index.ok_or_else(|| (path.at, TextProblem::Unknown { what: "clock", name: shorten(name) }))
}

/// Times outside of packet contexts and event headers are ordinary numbers, but their clocks must exist.
fn check_clocks(draft: &Draft, clocks: &Clocks) -> Result<()> {
    draft.clocks.iter().try_for_each(|(_, path)| clock_index(path, clocks).map(|_| ()))
}

/// Marks the times of a packet context or event header; all must be of one clock.
fn take_clock(draft: &mut Draft, clocks: &Clocks, clock: &mut Option<usize>) -> Result<()> {
    for (node, path) in std::mem::take(&mut draft.clocks) {
        let index = clock_index(&path, clocks)?;
        if *clock.get_or_insert(index) != index {
            let what = "the clock of a stream's times";
            return Err((path.at, TextProblem::Class { what, expected: "the same for all" }));
        }
        let int = usize::try_from(node)
            .ok()
            .and_then(|node| integer(draft, node))
            .filter(|int| !int.signed);
        if let Some(int) = int {
            int.role = int.role.or(Some(Role::ClockTimestamp));
        }
    }
    Ok(())
}

/// Times that name no clock belong to the only one; when there is none, to one of 1 GHz. In an event header they may
/// lie inside of other members.
fn imply_clock(
    at: usize,
    drafts: [&mut Option<Draft>; 2],
    clocks: &mut Clocks,
    clock: &mut Option<usize>,
) -> Result<()> {
    let [context, header] = drafts;
    let header_nodes = header.iter_mut().flat_map(|draft| &mut draft.nodes);
    let unmapped: Vec<_> = header_nodes.filter_map(unmapped_time).collect();
    let is_bound = |node: &Node| {
        let Kind::Integer(int) = &node.kind else { return false };
        matches!(int.role, Some(Role::ClockTimestamp | Role::PacketEnd))
    };
    let has_bounds = context.iter().flat_map(|draft| &draft.nodes).any(is_bound);
    let is_needed = clock.is_none() && (has_bounds || !unmapped.is_empty());
    match clocks.all.len() {
        0 if is_needed => clocks.all.push(ClockClass::new(IMPLICIT_CLOCK)),
        1 => {}
        // One of several is known already, or none is needed.
        _ if !is_needed || unmapped.is_empty() => return Ok(()),
        _ => return Err((at, TextProblem::Missing("the clock of an event header's timestamp"))),
    }
    if is_needed {
        *clock = Some(0);
    }
    for int in unmapped {
        int.role = Some(Role::ClockTimestamp);
    }
    Ok(())
}

/// A `timestamp` at any depth, as in LTTng's headers, that names no clock.
fn unmapped_time(node: &mut Node) -> Option<&mut Integer> {
    match &mut node.kind {
        Kind::Integer(int) if &*node.name == "timestamp" && !int.signed && int.role.is_none() => {
            Some(int)
        }
        _ => None,
    }
}

// Compiling.

fn compile(mut draft: Draft, shared_registers: Register) -> Layout {
    rename_registers(&mut draft.nodes, |register| match register & LOCAL {
        0 => register,
        _ => (register & !LOCAL) + shared_registers,
    });
    Layout::compile(draft.nodes)
}

/// Gives each register that is kept or asked another name.
pub(super) fn rename_registers(nodes: &mut [Node], rename: impl Fn(Register) -> Register) {
    let place = |register: &mut Register| *register = rename(*register);
    for node in nodes {
        match &mut node.kind {
            Kind::Integer(Integer { save, shared_saves, .. })
            | Kind::VarInteger(Integer { save, shared_saves, .. }) => {
                save.iter_mut().chain(shared_saves).for_each(place);
            }
            Kind::Array(Length::Register(register))
            | Kind::Blob(Length::Register(register), _)
            | Kind::TextArray(Length::Register(register), _) => place(register),
            Kind::Variant(selector) | Kind::Optional(selector) => {
                place(&mut selector.register);
                selector.clears.iter_mut().for_each(place);
            }
            _ => {}
        }
    }
}
