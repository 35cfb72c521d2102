//! What the metadata declares: the trace class and, in it, clock, data stream and event record classes.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::clock::{ClockClass, Uuid};
use crate::error::Error;
use crate::header::HeaderPlan;
use crate::layout::Layout;
use crate::metadata::{self, MetadataWarning, Warnings};
use crate::program::Programs;
use crate::value::{FieldHandle, Scope};

/// The order of bytes, and with it of bits, in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// How a number likes to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Base {
    /// Base 2.
    Binary,
    /// Base 8.
    Octal,
    /// Base 10.
    #[default]
    Decimal,
    /// Base 16.
    Hexadecimal,
}

/// The value of an entry of the trace's environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvValue {
    /// A number, from −2⁶³ to 2⁶⁴ − 1.
    Integer(i128),
    /// A text.
    Text(String),
}

impl EnvValue {
    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Integer(_) => None,
        }
    }

    /// The number, if it is one.
    #[must_use]
    pub const fn as_integer(&self) -> Option<i128> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

/// The names of a class that hold beyond its trace (CTF 2); all absent in CTF 1.8.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Identity {
    /// Whose name it is.
    pub namespace: Option<String>,
    /// The name; of event record classes see [`EventRecordClass::name`].
    pub name: Option<String>,
    /// What tells it from others of the same name.
    pub uid: Option<String>,
}

/// The version of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CtfVersion {
    /// CTF 1.8: TSDL text.
    V1_8,
    /// CTF 2: a JSON text sequence.
    V2,
}

/// Everything that the metadata of one trace declares, ready for decoding its packets.
#[derive(Debug)]
pub struct TraceClass {
    pub(crate) version: CtfVersion,
    pub(crate) identity: Identity,
    pub(crate) uuid: Option<Uuid>,
    pub(crate) byte_order: ByteOrder,
    pub(crate) environment: Vec<(String, EnvValue)>,
    pub(crate) clocks: Vec<ClockClass>,
    pub(crate) packet_header: Option<Layout>,
    pub(crate) streams: Vec<StreamClass>,
    pub(crate) events: Vec<EventRecordClass>,
    /// How many values of earlier fields must be kept at once for references to them.
    pub(crate) registers: u32,
    pub(crate) warnings: Warnings,
    /// Made when the first packet is opened.
    pub(crate) programs: OnceLock<Arc<Programs>>,
}

impl TraceClass {
    /// Reads a whole metadata file: packetised in either byte order, or plain text.
    ///
    /// # Errors
    /// [`Error::MetadataPacket`], [`Error::MetadataText`] and, for CTF 2, [`Error::MetadataJson`] with the place of the
    /// first thing that is wrong, or [`Error::NotMetadata`].
    pub fn parse(metadata: &[u8]) -> Result<Self, Error> {
        metadata::parse(metadata)
    }

    /// What the metadata say that was read past, such as attributes that nothing knows; by rising offset.
    ///
    /// The list is bounded: see [`Self::unlisted_warnings`].
    #[must_use]
    pub fn warnings(&self) -> &[MetadataWarning] {
        &self.warnings.list
    }

    /// How many warnings there are beyond [`Self::warnings`].
    #[must_use]
    pub const fn unlisted_warnings(&self) -> u64 {
        self.warnings.more
    }

    /// The version of its metadata.
    #[must_use]
    pub const fn version(&self) -> CtfVersion {
        self.version
    }

    /// Its names beyond the trace.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The UUID that the metadata declares; packets that carry another say so in
    /// [`crate::packet::PacketInfo::foreign_uuid`].
    #[must_use]
    pub const fn uuid(&self) -> Option<Uuid> {
        self.uuid
    }

    /// The byte order of fields that do not say otherwise.
    #[must_use]
    pub const fn byte_order(&self) -> ByteOrder {
        self.byte_order
    }

    /// The entry `name` of the environment, such as `hostname` or `tracer_name`.
    #[must_use]
    pub fn env(&self, name: &str) -> Option<&EnvValue> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// All entries of the environment in the order of the metadata.
    pub fn environment(&self) -> impl ExactSizeIterator<Item = (&str, &EnvValue)> {
        self.environment.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// All clock classes in the order of the metadata.
    #[must_use]
    pub fn clock_classes(&self) -> &[ClockClass] {
        &self.clocks
    }

    /// All data stream classes, by rising id.
    #[must_use]
    pub fn stream_classes(&self) -> &[StreamClass] {
        &self.streams
    }

    /// The data stream class with this id.
    #[must_use]
    pub fn stream_class(&self, id: u64) -> Option<&StreamClass> {
        let index = self.streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        self.streams.get(index)
    }

    /// All event record classes in the order of the metadata; [`EventRecordClass::index`] is the position here.
    #[must_use]
    pub fn event_record_classes(&self) -> &[EventRecordClass] {
        &self.events
    }

    /// The same with all times `nanos` nanoseconds later; `None` when one of the clocks cannot say so ([`ClockClass::shifted`]).
    #[must_use]
    pub fn with_shifted_clocks(mut self, nanos: i128) -> Option<Self> {
        self.clocks =
            self.clocks.iter().map(|clock| clock.shifted(nanos)).collect::<Option<_>>()?;
        Some(self)
    }

    /// The clock of a data stream class.
    #[must_use]
    pub fn clock_of(&self, stream: &StreamClass) -> Option<&ClockClass> {
        self.clocks.get(stream.clock?)
    }
}

/// A data stream class: what the packets of its streams have in common.
#[derive(Debug)]
pub struct StreamClass {
    pub(crate) id: u64,
    pub(crate) identity: Identity,
    /// Position in the trace class's list.
    pub(crate) index: u32,
    /// Position of its clock in the trace class's list.
    pub(crate) clock: Option<usize>,
    pub(crate) packet_context: Option<Layout>,
    pub(crate) event_header: Option<Layout>,
    pub(crate) header_plan: HeaderPlan,
    pub(crate) event_context: Option<Layout>,
    pub(crate) event_ids: EventIds,
    /// The id of the only event record class, when there is only one.
    pub(crate) only_event_id: Option<u64>,
    /// Whether event records must be looked through for byte orders that change inside a byte.
    pub(crate) orders_may_clash: bool,
}

impl StreamClass {
    /// The number that packets carry.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its names beyond the trace.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A handle to a field of the context that all its event records carry, such as `vtid` or `procname`.
    ///
    /// Names are given as shown, without the one leading underscore of the metadata; `a.b` reaches into structures.
    #[must_use]
    pub fn event_context_handle(&self, name: &str) -> Option<FieldHandle> {
        FieldHandle::find(self.event_context.as_ref()?, Scope::EventCommonContext, self.index, name)
    }

    /// How many bits the counter of discarded event records has: loss is counted modulo 2 to this power.
    #[must_use]
    pub fn discarded_counter_bits(&self) -> Option<u8> {
        self.packet_context.as_ref()?.role_bits(crate::layout::Role::DiscardedEvents)
    }
}

/// An event record class: one kind of event record, what `sched_switch` is.
#[derive(Debug)]
pub struct EventRecordClass {
    pub(crate) id: u64,
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) stream_class_id: u64,
    pub(crate) log_level: Option<i64>,
    pub(crate) emf_uri: Option<String>,
    pub(crate) context: Option<Layout>,
    pub(crate) payload: Option<Layout>,
}

impl EventRecordClass {
    /// The number that event records carry; unique in its data stream class.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Position in [`TraceClass::event_record_classes`]: dense, for tables by class.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The name; empty when it has none, which CTF 2 allows.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its names beyond the trace.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The id of its data stream class.
    #[must_use]
    pub const fn stream_class_id(&self) -> u64 {
        self.stream_class_id
    }

    /// The tracer's number for its severity; LTTng: 0 emergency to 14 debug.
    #[must_use]
    pub const fn log_level(&self) -> Option<i64> {
        self.log_level
    }

    /// The URI of its description in the Eclipse Modeling Framework.
    #[must_use]
    pub fn emf_uri(&self) -> Option<&str> {
        self.emf_uri.as_deref()
    }

    /// A handle to a payload field.
    ///
    /// Names are given as shown, without the one leading underscore of CTF 1.8's metadata; `a.b` reaches into
    /// structures, options of variants by their name, and through optional fields. What is not there in an event record
    /// has no value in it. `None` when there is no such field or it lies inside an array.
    #[must_use]
    pub fn field_handle(&self, name: &str) -> Option<FieldHandle> {
        FieldHandle::find(self.payload.as_ref()?, Scope::Payload, self.index, name)
    }

    /// As [`Self::field_handle`], in the context that only this class has.
    #[must_use]
    pub fn context_handle(&self, name: &str) -> Option<FieldHandle> {
        FieldHandle::find(self.context.as_ref()?, Scope::EventSpecificContext, self.index, name)
    }

    /// The names of the payload's fields, as shown, in order.
    pub fn field_names(&self) -> impl Iterator<Item = &str> {
        self.payload.iter().flat_map(Layout::member_names)
    }
}

/// From an event record's id to the position of its class.
#[derive(Debug)]
pub(crate) enum EventIds {
    /// Position by id; `u32::MAX` where there is none. For ids that are mostly in use.
    Dense(Vec<u32>),
    /// For sparse ids.
    Sparse(HashMap<u64, u32>),
}

impl EventIds {
    const NONE: u32 = u32::MAX;

    /// Builds the quicker table when it needs at most about four times the entries.
    pub(crate) fn new(ids: &[(u64, u32)]) -> Self {
        let highest = ids.iter().map(|(id, _)| *id).max().unwrap_or(0);
        let dense = usize::try_from(highest)
            .ok()
            .filter(|n| *n < ids.len().saturating_mul(4).saturating_add(1024));
        let Some(highest) = dense else { return Self::Sparse(ids.iter().copied().collect()) };
        let mut table = vec![Self::NONE; highest + 1];
        for (id, index) in ids {
            if let Some(entry) = usize::try_from(*id).ok().and_then(|id| table.get_mut(id)) {
                *entry = *index;
            }
        }
        Self::Dense(table)
    }

    #[inline]
    pub(crate) fn get(&self, id: u64) -> Option<u32> {
        match self {
            Self::Dense(table) => {
                table.get(usize::try_from(id).ok()?).copied().filter(|index| *index != Self::NONE)
            }
            Self::Sparse(table) => table.get(&id).copied(),
        }
    }
}
