//! A trace class that has been checked and compiled.

use std::collections::{HashMap, HashSet};

use super::class::{EventClass, EventHeader, StreamClass, Structure, TraceClass};
use super::error::{ClassError, ClassProblem};
use super::program::{Program, compile};
use super::tree::{Tree, is_tsdl_name, resolve};
use super::{json, tsdl};
use crate::class::{CtfVersion, EnvValue};
use crate::value::Scope;

/// A trace class that can be written: checked, with its metadata and all that packets need.
#[derive(Debug)]
pub struct Schema {
    class: TraceClass,
    metadata: String,
    pub(super) streams: Vec<StreamPlan>,
}

/// What the packets of a stream class need.
#[derive(Debug)]
pub(super) struct StreamPlan {
    pub(super) id: u64,
    pub(super) has_clock: bool,
    pub(super) header: EventHeader,
    pub(super) sequence_numbers: bool,
    pub(super) discarded_bits: Option<u8>,
    pub(super) packet: Program,
    pub(super) packet_align: u64,
    pub(super) common: Program,
    pub(super) events: Vec<EventPlan>,
    by_id: HashMap<u64, usize>,
    /// How many values of earlier fields must be kept at once.
    pub(super) registers: usize,
}

#[derive(Debug)]
pub(super) struct EventPlan {
    pub(super) id: u64,
    pub(super) specific: Program,
    pub(super) payload: Program,
}

impl StreamPlan {
    /// The event record class with this id, most often at the position of the same number.
    #[inline]
    pub(super) fn event(&self, id: u64) -> Option<&EventPlan> {
        let at_once = usize::try_from(id).ok().and_then(|id| self.events.get(id));
        match at_once.filter(|event| event.id == id) {
            Some(event) => Some(event),
            None => self.events.get(*self.by_id.get(&id)?),
        }
    }
}

impl Schema {
    /// Checks and compiles.
    ///
    /// # Errors
    /// [`ClassError`] for the first class or field that contradicts itself, or that the version has no form for.
    pub fn new(class: TraceClass) -> Result<Self, ClassError> {
        check_trace(&class)?;
        let mut writer = match class.version {
            CtfVersion::V1_8 => Metadata::Tsdl(tsdl::begin(&class)),
            CtfVersion::V2 => Metadata::Json(json::begin(&class)),
        };
        let mut streams = Vec::with_capacity(class.streams.len());
        for stream in &class.streams {
            streams.push(stream_plan(&class, stream, &mut writer)?);
        }
        let (Metadata::Tsdl(metadata) | Metadata::Json(metadata)) = writer;
        Ok(Self { class, metadata, streams })
    }

    /// What was declared.
    #[must_use]
    pub const fn class(&self) -> &TraceClass {
        &self.class
    }

    /// The metadata: TSDL that begins with `/* CTF 1.8 */`, or a JSON text sequence.
    #[must_use]
    pub fn metadata(&self) -> &str {
        &self.metadata
    }
}

enum Metadata {
    Tsdl(String),
    Json(String),
}

fn check_trace(class: &TraceClass) -> Result<(), ClassError> {
    let error = |place: &str, problem| Err(ClassError { place: place.to_owned(), problem });
    let is_old = class.version == CtfVersion::V1_8;
    let mut names = HashSet::new();
    for clock in &class.clocks {
        if clock.frequency == 0 {
            return error(&clock.name, ClassProblem::Frequency);
        }
        if is_old && !is_tsdl_name(&clock.name) {
            return error("clock", ClassProblem::Name { name: clock.name.clone() });
        }
        if is_old && !names.insert(&clock.name) {
            let value = clock.name.clone();
            return error("clock", ClassProblem::Duplicate { what: "the name", value });
        }
    }
    let mut names = HashSet::new();
    for (name, value) in &class.environment {
        if is_old && !is_tsdl_name(name) {
            return error("environment", ClassProblem::Name { name: name.clone() });
        }
        if !names.insert(name) {
            let value = name.clone();
            return error("environment", ClassProblem::Duplicate { what: "the name", value });
        }
        if let EnvValue::Integer(number) = value
            && !(i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(number)
        {
            return error(name, ClassProblem::Ranges("a number of more than 64 bits"));
        }
    }
    let mut ids = HashSet::new();
    match class.streams.iter().find(|stream| !ids.insert(stream.id)) {
        Some(twice) => {
            let value = twice.id.to_string();
            error("stream class", ClassProblem::Duplicate { what: "the id", value })
        }
        None => Ok(()),
    }
}

fn check_stream(class: &TraceClass, stream: &StreamClass) -> Result<(), ClassError> {
    let error = |problem| Err(ClassError { place: format!("stream class {}", stream.id), problem });
    if let Some(index) = stream.clock.filter(|index| *index >= class.clocks.len()) {
        return error(ClassProblem::Clock { index, clocks: class.clocks.len() });
    }
    let mut ids = HashSet::new();
    if let Some(twice) = stream.events.iter().find(|event| !ids.insert(event.id)) {
        let value = twice.id.to_string();
        return error(ClassProblem::Duplicate { what: "the id", value });
    }
    let is_width = |bits: u8| (1..=64).contains(&bits);
    let highest = match stream.header {
        EventHeader::Plain { id_bits: Some(bits), time_bits } => {
            let bits = if is_width(bits) { time_bits } else { bits };
            if !is_width(bits) {
                return error(ClassProblem::Width { bits });
            }
            u64::MAX >> (64 - u32::from(id_width(stream.header)))
        }
        EventHeader::Plain { id_bits: None, time_bits } if !is_width(time_bits) => {
            return error(ClassProblem::Width { bits: time_bits });
        }
        EventHeader::Plain { id_bits: None, .. } => {
            return match &*stream.events {
                [] | [_] => Ok(()),
                [_, second, ..] => error(ClassProblem::Id { id: second.id }),
            };
        }
        EventHeader::Compact | EventHeader::Large if stream.clock.is_none() => {
            return error(ClassProblem::NoClock);
        }
        EventHeader::Compact | EventHeader::Large => u64::from(u32::MAX),
    };
    match stream.events.iter().find(|event| event.id > highest) {
        Some(event) => error(ClassProblem::Id { id: event.id }),
        None => Ok(()),
    }
}

fn id_width(header: EventHeader) -> u8 {
    match header {
        EventHeader::Plain { id_bits, .. } => id_bits.unwrap_or(64).clamp(1, 64),
        EventHeader::Compact | EventHeader::Large => 32,
    }
}

/// Checks and compiles one stream class, and writes its metadata.
fn stream_plan(
    class: &TraceClass,
    stream: &StreamClass,
    metadata: &mut Metadata,
) -> Result<StreamPlan, ClassError> {
    check_stream(class, stream)?;
    let (version, order) = (class.version, class.byte_order);
    let owner = format!("stream class {}", stream.id);
    let tree = |scope, root| Tree::new(version, &owner, scope, root);
    let mut registers = 0;

    let mut packet = tree(Scope::PacketContext, &stream.packet.members)?;
    packet.refuse_names(&stream.packet.own_names(stream.clock.is_some()))?;
    resolve(&mut packet, &mut [], &mut registers)?;
    let mut common = stream
        .context
        .as_ref()
        .map(|context| tree(Scope::EventCommonContext, context))
        .transpose()?;
    if let Some(common) = &mut common {
        resolve(common, &mut [&mut packet], &mut registers)?;
    }
    let mut events = Vec::with_capacity(stream.events.len());
    for event in &stream.events {
        events.push(EventTrees::new(version, event, &mut packet, common.as_mut(), &mut registers)?);
    }
    match metadata {
        Metadata::Tsdl(text) => tsdl::stream(text, class, stream, &packet, common.as_ref()),
        Metadata::Json(text) => json::stream(text, class, stream, &packet, common.as_ref()),
    }
    let packet_align = packet.nodes.first().map_or(1, |root| root.align).max(8);
    let packet_program = compile(&packet, &[&packet], order);
    let common_program = common
        .as_ref()
        .map_or_else(Program::default, |common| compile(common, &[&packet, common], order));
    let mut plans = Vec::with_capacity(events.len());
    for EventTrees { event, specific, payload } in &events {
        let all = [Some(&packet), common.as_ref(), specific.as_ref(), payload.as_ref()];
        let all: Vec<&Tree<'_>> = all.into_iter().flatten().collect();
        let program = |tree: &Option<Tree<'_>>| {
            tree.as_ref().map_or_else(Program::default, |tree| compile(tree, &all, order))
        };
        let (specific, payload) = (program(specific), program(payload));
        plans.push(EventPlan { id: event.id, specific, payload });
        match metadata {
            Metadata::Tsdl(text) => tsdl::event(text, class, stream, event, &all),
            Metadata::Json(text) => json::event(text, class, stream, event, &all),
        }
    }
    let by_id = plans.iter().enumerate().map(|(index, plan)| (plan.id, index)).collect();
    Ok(StreamPlan {
        id: stream.id,
        has_clock: stream.clock.is_some(),
        header: stream.header,
        sequence_numbers: stream.packet.sequence_numbers,
        discarded_bits: stream.packet.discarded_bits,
        packet: packet_program,
        packet_align,
        common: common_program,
        events: plans,
        by_id,
        registers,
    })
}

/// The scopes of an event record class.
struct EventTrees<'c> {
    event: &'c EventClass,
    specific: Option<Tree<'c>>,
    payload: Option<Tree<'c>>,
}

impl<'c> EventTrees<'c> {
    fn new(
        version: CtfVersion,
        event: &'c EventClass,
        packet: &mut Tree<'c>,
        mut common: Option<&mut Tree<'c>>,
        registers: &mut usize,
    ) -> Result<Self, ClassError> {
        let tree = |scope, root: &'c Option<Structure>| {
            root.as_ref().map(|root| Tree::new(version, &event.name, scope, root)).transpose()
        };
        let mut specific = tree(Scope::EventSpecificContext, &event.context)?;
        let mut payload = tree(Scope::Payload, &event.payload)?;
        if let Some(specific) = &mut specific {
            let mut before = present([Some(&mut *packet), common.as_deref_mut(), None]);
            resolve(specific, &mut before, registers)?;
        }
        if let Some(payload) = &mut payload {
            resolve(payload, &mut present([Some(packet), common, specific.as_mut()]), registers)?;
        }
        Ok(Self { event, specific, payload })
    }
}

fn present<'t, 'c>(trees: [Option<&'t mut Tree<'c>>; 3]) -> Vec<&'t mut Tree<'c>> {
    trees.into_iter().flatten().collect()
}
