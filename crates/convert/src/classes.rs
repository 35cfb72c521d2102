//! From the classes of a trace that is read to those of the trace that is written.
//!
//! Fields keep their order, names and values. Where the target has no form for a class, another one takes its place,
//! and where a reference cannot be kept, a member of its own says the length or the choice ([`Extra`]).

use std::collections::{BTreeMap, HashMap, HashSet};

use ctf::writer::{
    ArrayClass, ClassError, ClassProblem, EventClass, EventHeader, Field, FieldClass, FloatClass,
    IntClass, Key, Length, MAX_DEPTH, Mapping, OptionalClass, PacketContext, StreamClass,
    Structure, TraceClass, VarIntClass, VariantClass,
};
use ctf::{
    Base, ByteOrder, ClockClass, ClockOrigin, CtfVersion, Encoding, FieldClassKind, FieldKey,
    Identity, IntegerClass, LengthClass, Meaning, Role, Scope, SelectorClass, Uuid,
};

/// A class of the trace that is read.
type Source<'a> = ctf::FieldClass<'a>;

/// What precedes a field's value that the source does not have there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Extra {
    /// Nothing.
    #[default]
    Nothing,
    /// Its length.
    Length,
    /// Whether it is there, as 0 or 1.
    Presence,
    /// Its number among the options of a variant.
    Option(u64),
    /// That, and its length or whether it is there.
    OptionAndLength(u64),
}

/// The extras of a scope, by [`ctf::Field::position`].
pub(crate) type Extras = Vec<Extra>;

/// What the target takes the place of, each kind with how many fields it hit.
#[derive(Debug, Default)]
pub(crate) struct Notes(BTreeMap<&'static str, u64>);

impl Notes {
    fn add(&mut self, what: &'static str) {
        self.add_each(what, 1);
    }

    fn add_each(&mut self, what: &'static str, count: u64) {
        if count > 0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// One line for each kind.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(what, count)| (*what, *count))
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            let known = self.0.entry(what).or_default();
            *known = (*known).max(*count);
        }
    }
}

/// The classes to write, and what to write them with.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) class: TraceClass,
    /// Of the packet context and common context of each stream class, by its position.
    pub(crate) streams: Vec<[Extras; 2]>,
    /// Of the specific context and payload of each event record class, by its position.
    pub(crate) events: Vec<[Extras; 2]>,
    pub(crate) notes: Notes,
}

/// Maps all classes of a trace.
///
/// # Errors
/// [`ClassProblem::Depth`], before anything walks down so deep.
pub(crate) fn map(source: &ctf::TraceClass, version: CtfVersion) -> Result<Mapped, ClassError> {
    for stream in source.stream_classes() {
        let owner = format!("stream class {}", stream.id());
        check_depth(&owner, [stream.packet_context_class(), stream.event_context_class()])?;
    }
    for event in source.event_record_classes() {
        check_depth(event.name(), [event.context_class(), event.payload_class()])?;
    }
    let mut notes = Notes::default();
    let mut class = TraceClass::new(version, Vec::new());
    (class.uuid, class.byte_order) = (source.uuid(), source.byte_order());
    class.identity = trace_identity(source, version, &mut notes);
    class.environment = environment(source, version, &mut notes);
    class.clocks = clocks(source, version, &mut notes);
    class.instance_ids = has_role(source.packet_header_class(), Role::StreamInstanceId);
    notes.add_each(
        "a packet header member that says nothing of its packet is left out",
        without_role(source.packet_header_class()),
    );
    let mut streams = Vec::new();
    let mut events = vec![Default::default(); source.event_record_classes().len()];
    for stream in source.stream_classes() {
        let mut mapper = Mapper::new(version, source.byte_order(), &mut notes);
        let (mapped, extras) = stream_class(source, stream, &mut mapper, &mut events);
        class.streams.push(mapped);
        streams.push(extras);
    }
    Ok(Mapped { class, streams, events, notes })
}

/// Refuses fields that are nested deeper than the writer takes them.
fn check_depth(owner: &str, roots: [Option<Source<'_>>; 2]) -> Result<(), ClassError> {
    let limit = MAX_DEPTH;
    let mut open: Vec<(Source<'_>, usize)> =
        roots.into_iter().flatten().map(|root| (root, 0)).collect();
    while let Some((class, depth)) = open.pop() {
        if depth > limit {
            return Err(ClassError {
                place: owner.to_owned(),
                problem: ClassProblem::Depth { limit },
            });
        }
        open.extend(class.children().map(|child| (child, depth + 1)));
    }
    Ok(())
}

fn has_role(class: Option<Source<'_>>, role: Role) -> bool {
    let mut open: Vec<Source<'_>> = class.into_iter().collect();
    while let Some(class) = open.pop() {
        if class.role() == Some(role) {
            return true;
        }
        open.extend(class.children());
    }
    false
}

/// How many fields have neither a role nor others that refer to them: the writer's headers have no place for these.
fn without_role(class: Option<Source<'_>>) -> u64 {
    let mut open: Vec<Source<'_>> = class.into_iter().collect();
    let mut count = 0;
    while let Some(class) = open.pop() {
        let inside = open.len();
        open.extend(class.children());
        let is_scalar = open.len() == inside && !matches!(class.kind(), FieldClassKind::Structure);
        count += u64::from(is_scalar && class.role().is_none() && class.key().is_none());
    }
    count
}

/// What CTF 1.8 has no place for, of anything with a name beyond its trace.
const NO_NAMESPACE: &str = "a namespace, uid or name of a stream class is left out";

fn trace_identity(source: &ctf::TraceClass, version: CtfVersion, notes: &mut Notes) -> Identity {
    let known = source.identity();
    let own_uid = source.uuid().map(|uuid| uuid.to_string());
    match version {
        CtfVersion::V2 if *known == Identity::default() => {
            // By these a reader joins the chunks of one trace.
            Identity {
                namespace: None,
                name: own_uid.as_ref().map(|_| String::new()),
                uid: own_uid,
            }
        }
        CtfVersion::V2 => known.clone(),
        CtfVersion::V1_8 => {
            let is_said = known.uid.is_none() || known.uid == own_uid;
            if !is_said || known.name.as_ref().is_some_and(|name| !name.is_empty()) {
                notes.add("the name beyond the trace is left out");
            }
            Identity::default()
        }
    }
}

fn environment(
    source: &ctf::TraceClass,
    version: CtfVersion,
    notes: &mut Notes,
) -> Vec<(String, ctf::EnvValue)> {
    let mut names = Names::new(version, Spelling::Identifier);
    let entries = source.environment();
    entries.map(|(name, value)| (names.take(name, name, notes), value.clone())).collect()
}

fn clocks(source: &ctf::TraceClass, version: CtfVersion, notes: &mut Notes) -> Vec<ClockClass> {
    let mut names = Names::new(version, Spelling::Identifier);
    let tracer = source.env("tracer_name").and_then(|name| name.as_str()).unwrap_or_default();
    let map = |clock: &ClockClass| {
        let mut clock = clock.clone();
        match version {
            CtfVersion::V1_8 => {
                clock.name = names.take(&clock.name, &clock.name, notes);
                let uid = clock.uid.take();
                let parsed = uid.as_deref().and_then(Uuid::parse);
                if clock.namespace.is_some() || uid.is_some() && parsed.is_none() {
                    notes.add(NO_NAMESPACE);
                }
                clock.uuid = clock.uuid.or(parsed);
                if clock.accuracy.take().is_some() {
                    notes.add("the accuracy of a clock is left out");
                }
                if matches!(clock.origin, ClockOrigin::Custom { .. }) {
                    notes.add("the origin of a clock is left out");
                }
            }
            // LTTng's clock of CTF 1.8 counts from the epoch and does not say so; readers of CTF 2 want it said.
            CtfVersion::V2
                if clock.origin == ClockOrigin::Unknown
                    && clock.name == "monotonic"
                    && tracer.starts_with("lttng") =>
            {
                clock.origin = ClockOrigin::UnixEpoch;
            }
            CtfVersion::V2 => {}
        }
        clock
    };
    source.clock_classes().iter().map(map).collect()
}

fn stream_class(
    source: &ctf::TraceClass,
    stream: &ctf::StreamClass,
    mapper: &mut Mapper<'_>,
    extras: &mut [[Extras; 2]],
) -> (StreamClass, [Extras; 2]) {
    let clock = source.clock_of(stream);
    let clock = clock.and_then(|clock| {
        source.clock_classes().iter().position(|other| std::ptr::eq(other, clock))
    });
    let packet = stream.packet_context_class();
    let mut packet_context = PacketContext {
        sequence_numbers: has_role(packet, Role::SequenceNumber),
        discarded_bits: stream.discarded_counter_bits(),
        members: Structure::default(),
    };
    mapper.reserved = packet_context.own_names(clock.is_some());
    let (members, packet_extras) = mapper.scope(Scope::PacketContext, packet);
    packet_context.members = members.unwrap_or_default();
    mapper.notes.add_each(
        "an event record header member beyond id and time is left out",
        without_role(stream.event_header_class()),
    );
    if mapper.is_old() && *stream.identity() != Identity::default() {
        mapper.notes.add(NO_NAMESPACE);
    }
    let (context, common_extras) =
        mapper.scope(Scope::EventCommonContext, stream.event_context_class());
    let shared = mapper.keys.clone();
    let mut events = Vec::new();
    let own = source.event_record_classes().iter().filter(|e| e.stream_class_id() == stream.id());
    for event in own {
        let (context, context_extras) =
            mapper.scope(Scope::EventSpecificContext, event.context_class());
        let (payload, payload_extras) = mapper.scope(Scope::Payload, event.payload_class());
        mapper.keys.clone_from(&shared);
        let position = usize::try_from(event.index()).unwrap_or(usize::MAX);
        if let Some(slot) = extras.get_mut(position) {
            *slot = [context_extras, payload_extras];
        }
        let Identity { namespace, uid, .. } = event.identity();
        if mapper.is_old() && (namespace.is_some() || uid.is_some()) {
            mapper.notes.add(NO_NAMESPACE);
        }
        let log_level = event.log_level();
        if mapper.version == CtfVersion::V2 && log_level.is_some_and(|l| !(0..15).contains(&l)) {
            mapper.notes.add("a log level beyond LTTng's is left out");
        }
        events.push(EventClass {
            id: event.id(),
            name: event.name().to_owned(),
            identity: event.identity().clone(),
            log_level,
            emf_uri: event.emf_uri().map(str::to_owned),
            context,
            payload,
        });
    }
    let highest = events.iter().map(|event| event.id).max().unwrap_or(0);
    let mapped = StreamClass {
        id: stream.id(),
        identity: stream.identity().clone(),
        clock,
        header: EventHeader::suited_to(highest, clock.is_some()),
        packet: packet_context,
        context,
        events,
    };
    (mapped, [packet_extras, common_extras])
}

/// A field that later ones may refer to.
#[derive(Debug, Clone)]
struct Keyed {
    key: Key,
    scope: Scope,
    /// The arrays, options and optional fields around it.
    around: Vec<u32>,
    signed: bool,
    is_truth: bool,
    mappings: Vec<Mapping>,
}

struct Mapper<'n> {
    version: CtfVersion,
    order: ByteOrder,
    notes: &'n mut Notes,
    keys: HashMap<FieldKey, Keyed>,
    next_key: u32,
    scope: Scope,
    /// Names in the packet context that are the writer's own.
    reserved: Vec<&'static str>,
    around: Vec<u32>,
    extras: Extras,
}

impl<'n> Mapper<'n> {
    fn new(version: CtfVersion, order: ByteOrder, notes: &'n mut Notes) -> Self {
        Self {
            version,
            order,
            notes,
            keys: HashMap::new(),
            next_key: 0,
            scope: Scope::PacketContext,
            reserved: Vec::new(),
            around: Vec::new(),
            extras: Vec::new(),
        }
    }

    fn scope(&mut self, scope: Scope, root: Option<Source<'_>>) -> (Option<Structure>, Extras) {
        self.scope = scope;
        let structure = root.map(|root| self.structure(root));
        (structure, std::mem::take(&mut self.extras))
    }

    fn is_old(&self) -> bool {
        self.version == CtfVersion::V1_8
    }

    fn key(&mut self) -> Key {
        self.next_key += 1;
        Key(self.next_key)
    }

    fn set_extra(&mut self, class: Source<'_>, extra: Extra) {
        let position = usize::try_from(class.position()).unwrap_or(usize::MAX);
        if self.extras.len() <= position {
            self.extras.resize(position.saturating_add(1), Extra::Nothing);
        }
        if let Some(slot) = self.extras.get_mut(position) {
            *slot = match *slot {
                Extra::Option(number) => Extra::OptionAndLength(number),
                _ => extra,
            };
        }
    }

    fn structure(&mut self, class: Source<'_>) -> Structure {
        let mut names = Names::new(self.version, Spelling::Member);
        if self.scope == Scope::PacketContext && class.position() == 0 {
            names.taken.extend(self.reserved.iter().map(|name| (*name).to_owned()));
        }
        let mut members = Vec::new();
        let mut inner = 1;
        for child in class.children() {
            inner = inner.max(child.alignment());
            // What the packet reader uses itself is the writer's own to write.
            let is_own = child.role().is_some_and(|role| role != Role::CpuId);
            if is_own && matches!(self.scope, Scope::PacketContext) {
                continue;
            }
            let name = names.take(child.name(), child.spelled_name(), self.notes);
            let (before, field) = self.field(child, name);
            if let Some(mut before) = before {
                before.name = names.take(&before.name, &before.name, self.notes);
                members.push(before);
            }
            members.push(field);
        }
        let align = class.alignment();
        Structure { members, align: if align > inner { align } else { 1 } }
    }

    /// A member, and the one before it that says its length or choice when the source has it elsewhere.
    fn field(&mut self, class: Source<'_>, name: String) -> (Option<Field>, Field) {
        let mut own_key = None;
        if let (Some(of), FieldClassKind::Integer(int)) = (class.key(), class.kind()) {
            let key = self.key();
            own_key = Some(key);
            let keyed = Keyed {
                key,
                scope: self.scope,
                around: self.around.clone(),
                signed: int.is_signed(),
                is_truth: int.meaning() == Meaning::Boolean,
                mappings: self.labels(int),
            };
            self.keys.insert(of, keyed);
        }
        let (before, mapped) = self.class(class, &name);
        (before, Field { name, class: mapped, key: own_key })
    }

    /// A class where no other member can come before it.
    fn inner(&mut self, class: Source<'_>) -> FieldClass {
        match self.class(class, "value") {
            (None, mapped) => mapped,
            (Some(before), mapped) => {
                FieldClass::Structure(Structure::new(vec![before, Field::new("value", mapped)]))
            }
        }
    }

    /// [`Self::inner`], as a part of an array, variant or optional field.
    fn part(&mut self, class: Source<'_>) -> FieldClass {
        self.around.push(class.position());
        let mapped = self.inner(class);
        self.around.pop();
        mapped
    }

    fn class(&mut self, class: Source<'_>, name: &str) -> (Option<Field>, FieldClass) {
        match class.kind() {
            FieldClassKind::Integer(int) => (None, self.integer(class, int)),
            FieldClassKind::Float { bits, byte_order, reversed } => {
                let float = FloatClass {
                    bits,
                    byte_order: self.other_order(byte_order),
                    align: class.alignment(),
                    reversed: reversed && !self.is_old(),
                };
                (None, FieldClass::Float(float))
            }
            FieldClassKind::Text(encoding) => (None, FieldClass::String(self.encoding(encoding))),
            FieldClassKind::TextArray(_, encoding)
                if self.is_old() && encoding != Encoding::Utf8 =>
            {
                (None, FieldClass::String(self.encoding(encoding)))
            }
            FieldClassKind::TextArray(length, encoding) => {
                let (before, length) = self.length(class, name, length);
                (before, FieldClass::Text(length, encoding))
            }
            FieldClassKind::Blob(length, media_type) => {
                let (before, length) = self.length(class, name, length);
                if !self.is_old() {
                    let media_type = media_type.unwrap_or_default().to_owned();
                    return (before, FieldClass::Blob(length, media_type));
                }
                self.notes.add("a BLOB becomes an array of bytes");
                let byte = IntClass { base: Base::Hexadecimal, ..IntClass::U8 };
                (before, FieldClass::array(FieldClass::Int(byte), length))
            }
            FieldClassKind::Structure => (None, FieldClass::Structure(self.structure(class))),
            FieldClassKind::Array(length) => self.array(class, name, length),
            FieldClassKind::Variant(selector) => self.variant(class, name, selector),
            FieldClassKind::Optional(selector) => self.optional(class, name, selector),
            // A kind that is not known here has no values that are.
            _ => (None, FieldClass::Structure(Structure::default())),
        }
    }

    fn other_order(&self, order: ByteOrder) -> Option<ByteOrder> {
        (order != self.order).then_some(order)
    }

    fn encoding(&mut self, encoding: Encoding) -> Encoding {
        if self.is_old() && encoding != Encoding::Utf8 {
            self.notes.add("a text in UTF-16 or UTF-32 becomes one in UTF-8");
            return Encoding::Utf8;
        }
        encoding
    }

    /// The names of values as the target has them; in CTF 1.8 only those of values that fit.
    fn labels(&self, int: IntegerClass<'_>) -> Vec<Mapping> {
        if int.meaning() != Meaning::Number {
            return Vec::new();
        }
        let values = 1_i128 << int.bits().min(64);
        let (least, most) =
            if int.is_signed() { (-values / 2, values / 2 - 1) } else { (0, values - 1) };
        let is_old = self.is_old();
        let fit = |(label, first, last): (&str, i128, i128)| {
            let (first, last) =
                if is_old { (first.max(least), last.min(most)) } else { (first, last) };
            (first <= last).then(|| Mapping { label: label.to_owned(), first, last })
        };
        int.mappings().filter_map(fit).collect()
    }

    fn integer(&mut self, class: Source<'_>, int: IntegerClass<'_>) -> FieldClass {
        let mut mapped = IntClass {
            bits: int.bits(),
            signed: int.is_signed(),
            base: int.base(),
            byte_order: self.other_order(int.byte_order()),
            align: class.alignment(),
            reversed: int.is_reversed(),
        };
        let labels = self.labels(int);
        if int.is_variable_length() && !self.is_old() {
            let class = VarIntClass { signed: int.is_signed(), base: int.base() };
            return FieldClass::VarInt(class, labels);
        }
        if self.is_old() {
            mapped.reversed = false;
            if int.is_reversed() {
                self.notes.add("bits in reversed order come in the usual one");
            }
            if int.is_variable_length() {
                self.notes.add("an integer of variable length becomes one of 64 bits");
                (mapped.byte_order, mapped.align) = (None, 8);
            }
        }
        match (int.meaning(), self.is_old()) {
            (Meaning::Number, _) if int.has_mappings() && !(labels.is_empty() && self.is_old()) => {
                FieldClass::Enum(mapped, labels)
            }
            (Meaning::Number, _) => FieldClass::Int(mapped),
            (Meaning::Boolean, false) => FieldClass::Bool(mapped),
            (Meaning::Boolean, true) => {
                self.notes.add("a truth value becomes an enumeration of `false` and `true`");
                let labels = vec![Mapping::one("false", 0), Mapping::one("true", 1)];
                // One bit of an unsigned number holds both.
                FieldClass::Enum(IntClass { signed: false, ..mapped }, labels)
            }
            (Meaning::Bits, false) => {
                let flag = |(label, first, last): (&str, i128, i128)| Mapping {
                    label: label.to_owned(),
                    first,
                    last,
                };
                FieldClass::Bits(mapped, int.mappings().map(flag).collect())
            }
            (Meaning::Bits, true) => {
                self.notes.add("a bit array or bit map becomes an integer");
                FieldClass::Int(IntClass { base: Base::Hexadecimal, ..mapped })
            }
        }
    }

    /// The field with this key, when the target can refer to it from here.
    fn reachable(&self, of: FieldKey) -> Option<&Keyed> {
        let keyed = self.keys.get(&of)?;
        let is_near = if keyed.scope == self.scope {
            self.around.starts_with(&keyed.around)
        } else {
            keyed.around.is_empty()
        };
        is_near.then_some(keyed)
    }

    /// A length, and the member that says it when the field that does cannot be referred to.
    fn length(
        &mut self,
        class: Source<'_>,
        name: &str,
        length: LengthClass,
    ) -> (Option<Field>, Length) {
        let of = match length {
            LengthClass::Fixed(length) => return (None, Length::Fixed(length)),
            LengthClass::Field(of) => of,
        };
        let usable = self.reachable(of).filter(|keyed| !keyed.signed && !keyed.is_truth);
        if let Some(keyed) = usable {
            return (None, Length::Of(keyed.key));
        }
        self.notes.add("a length that lies elsewhere is said again before its array");
        let before = self.before(class, &format!("_{name}_length"), Extra::Length);
        let key = before.key.unwrap_or(Key(0));
        (Some(before), Length::Of(key))
    }

    /// A member that the source does not have.
    fn before(&mut self, class: Source<'_>, name: &str, extra: Extra) -> Field {
        self.set_extra(class, extra);
        let bits = if extra == Extra::Length { 64 } else { 8 };
        Field::keyed(name, FieldClass::Int(IntClass::unsigned(bits)), self.key())
    }

    fn array(
        &mut self,
        class: Source<'_>,
        name: &str,
        length: LengthClass,
    ) -> (Option<Field>, FieldClass) {
        let (before, length) = self.length(class, name, length);
        let element = class.children().next();
        let inner = element.map_or(1, |element| element.alignment());
        let align = if class.alignment() > inner && !self.is_old() { class.alignment() } else { 1 };
        let element = element
            .map_or(FieldClass::Structure(Structure::default()), |element| self.part(element));
        (before, FieldClass::Array(Box::new(ArrayClass { element, length, align })))
    }

    fn optional(
        &mut self,
        class: Source<'_>,
        name: &str,
        selector: SelectorClass<'_>,
    ) -> (Option<Field>, FieldClass) {
        let usable = self.reachable(selector.key()).map(|keyed| (keyed.key, keyed.is_truth));
        let usable = usable.filter(|_| !self.is_old());
        let before = if usable.is_none() {
            self.notes.add("an optional field becomes an array of no or one element");
            Some(self.before(class, &format!("_{name}_length"), Extra::Presence))
        } else {
            None
        };
        let inner = class
            .children()
            .next()
            .map_or(FieldClass::Structure(Structure::default()), |child| self.part(child));
        match (usable, before) {
            (Some((selector, is_truth)), _) => {
                let ranges = class_ranges(class).filter(|_| !is_truth).unwrap_or_default();
                let optional = OptionalClass { selector, ranges, class: inner };
                (None, FieldClass::Optional(Box::new(optional)))
            }
            (None, before) => {
                let key = before.as_ref().and_then(|before| before.key).unwrap_or(Key(0));
                (before, FieldClass::array(inner, Length::Of(key)))
            }
        }
    }

    fn variant(
        &mut self,
        class: Source<'_>,
        name: &str,
        selector: SelectorClass<'_>,
    ) -> (Option<Field>, FieldClass) {
        let children: Vec<Source<'_>> = class.children().collect();
        let mut ranges: Vec<Vec<(i128, i128)>> = vec![Vec::new(); children.len()];
        for (first, last, option) in selector.ranges() {
            if let Some(ranges) = ranges.get_mut(option) {
                ranges.push((first, last));
            }
        }
        let names: Vec<String> = children.iter().map(|child| child.name().to_owned()).collect();
        let is_old = self.is_old();
        let keyed = self.reachable(selector.key()).filter(|keyed| {
            !keyed.is_truth && (!is_old || labels_choose(&names, &ranges, &keyed.mappings))
        });
        // CTF 2 has no options that nothing chooses; no value is of such a one.
        let is_chosen = |ranges: &Vec<(i128, i128)>| is_old || !ranges.is_empty();
        let keyed = keyed.filter(|_| ranges.iter().any(is_chosen)).map(|keyed| keyed.key);
        let (before, key, names, ranges) = match keyed {
            Some(key) => (None, key, names, ranges),
            None => self.own_selector(name, &children, &names),
        };
        let mut options = Vec::with_capacity(children.len());
        for ((child, name), ranges) in children.into_iter().zip(names).zip(ranges) {
            let mapped = self.part(child);
            if !is_old && ranges.is_empty() {
                self.notes.add("an option that no value chooses is left out");
                continue;
            }
            options.push((Field::new(name, mapped), ranges));
        }
        (before, FieldClass::Variant(VariantClass { selector: key, options }))
    }

    #[expect(clippy::type_complexity, reason = "the parts of a variant, taken apart at once")]
    fn own_selector(
        &mut self,
        name: &str,
        children: &[Source<'_>],
        names: &[String],
    ) -> (Option<Field>, Key, Vec<String>, Vec<Vec<(i128, i128)>>) {
        self.notes.add("a variant's choice is said again before it");
        let mut spelled = Names::new(self.version, Spelling::Label);
        let names: Vec<String> =
            names.iter().map(|name| spelled.take(name, name, self.notes)).collect();
        let mut labels = Vec::with_capacity(names.len());
        for (index, (child, name)) in (0_u64..).zip(children.iter().zip(&names)) {
            labels.push(Mapping::one(name.clone(), index));
            self.set_extra(*child, Extra::Option(index));
        }
        let ranges = labels.iter().map(|label| vec![(label.first, label.last)]).collect();
        let key = self.key();
        let tag = FieldClass::Enum(IntClass::U32, labels);
        (Some(Field::keyed(format!("_{name}_option"), tag, key)), key, names, ranges)
    }
}

/// The values with which an optional field is there.
fn class_ranges(class: Source<'_>) -> Option<Vec<(i128, i128)>> {
    match class.kind() {
        FieldClassKind::Optional(selector) => {
            Some(selector.ranges().map(|(first, last, _)| (first, last)).collect())
        }
        _ => None,
    }
}

/// Whether the labels of a selector choose just the options of their names, as CTF 1.8 has it.
fn labels_choose(names: &[String], ranges: &[Vec<(i128, i128)>], mappings: &[Mapping]) -> bool {
    names.iter().zip(ranges).all(|(name, ranges)| {
        let of_name = |mapping: &&Mapping| {
            mapping.label == *name || mapping.label.strip_prefix('_') == Some(name)
        };
        let mut named: Vec<(i128, i128)> =
            mappings.iter().filter(of_name).map(|mapping| (mapping.first, mapping.last)).collect();
        let mut ranges = ranges.clone();
        named.sort_unstable();
        ranges.sort_unstable();
        let label = mappings.iter().find(of_name).map_or("", |mapping| &mapping.label);
        named == ranges && Spelling::Label.allows(label)
    })
}

/// What a name is for, which in CTF 1.8 limits how it can be spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    /// A member, which has an underscore in front.
    Member,
    /// An environment entry or clock.
    Identifier,
    /// A label that an option is called by.
    Label,
}

impl Spelling {
    fn allows(self, name: &str) -> bool {
        match self {
            Self::Member => ctf::writer::is_tsdl_member(name),
            Self::Identifier | Self::Label => ctf::writer::is_tsdl_name(name),
        }
    }
}

/// The names of one structure, each made one that the target can spell and that is there once.
struct Names {
    version: CtfVersion,
    spelling: Spelling,
    taken: HashSet<String>,
}

impl Names {
    fn new(version: CtfVersion, spelling: Spelling) -> Self {
        Self { version, spelling, taken: HashSet::new() }
    }

    /// Whether there is such a name; labels choose options of their name with and without an underscore in front.
    fn is_taken(&self, name: &str) -> bool {
        let is_label = self.spelling == Spelling::Label;
        let bare = name.strip_prefix('_').filter(|_| is_label);
        self.taken.contains(name)
            || bare.is_some_and(|bare| self.taken.contains(bare))
            || is_label && self.taken.contains(&format!("_{name}"))
    }

    fn take(&mut self, name: &str, spelled: &str, notes: &mut Notes) -> String {
        let fitting = |name: &str| {
            self.version == CtfVersion::V2 && self.spelling != Spelling::Label
                || self.spelling.allows(name)
        };
        let mut candidate = name.to_owned();
        if !fitting(name) {
            candidate = name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' })
                .collect();
            if !fitting(&candidate) {
                candidate.insert(0, '_');
            }
        }
        if self.is_taken(&candidate) && fitting(spelled) {
            candidate = spelled.to_owned();
        }
        let stem = candidate.clone();
        let mut number = 2_u64;
        while self.is_taken(&candidate) {
            candidate = format!("{stem}_{number}");
            number += 1;
        }
        if candidate != name {
            notes.add("a name that cannot be kept is spelled in another way");
        }
        self.taken.insert(candidate.clone());
        candidate
    }
}
