//! Collects one window's samples.

use std::collections::BTreeMap;

use crate::error::AddError;
use crate::keys;
use crate::model::{
    BuildId, Control, Frame, FrameId, FrameKind, Line, Link, Mapping, Names, Process, ProcessId,
    Sample, SampleKind, Status, Unnamed, Window,
};
use crate::packet::Packet;
use crate::seal;
use model::intern::{Lists, Table, Texts};

/// Bytes of a request that receivers are ready to take; [`Builder::add`] refuses what could need more.
pub const MAX_PACKET_BYTES: usize = 64 << 20;

/// Frames of one stack.
pub const MAX_STACK_FRAMES: usize = 4_096;

/// Bytes of one name or path: what is longer is cut, and ends with [`CUT`].
pub const MAX_TEXT_BYTES: usize = 16 << 10;

/// Times of samples are whole multiples of this, rounded down but never before the packet's window: below it lies how long the
/// interrupt that sampled took to come, which no compressor can make smaller.
pub const TIME_STEP_NS: u64 = 1_024;

/// Classes of losses, besides `other`.
const MAX_CLASSES: usize = 64;

/// How a text ends that was cut at [`MAX_TEXT_BYTES`].
pub const CUT: &str = "…[cut]";

/// Takes the samples of one window and gives a [`Packet`].
///
/// Values are kept once, however often they come, so a sample whose stack was seen costs a few dozen bytes. Nothing of it
/// shows in the packet: the same samples in another order, or with more frames and processes that no sample has, give the
/// same bytes. What a builder holds is bounded by [`MAX_PACKET_BYTES`] of the packet it would write, and one frame that
/// had no room.
#[derive(Debug)]
pub struct Builder {
    pub(crate) window: Window,
    pub(crate) kind: SampleKind,
    pub(crate) strings: Texts,
    pub(crate) attributes: Table<Attribute>,
    pub(crate) mappings: Table<MappingItem>,
    pub(crate) functions: Table<FunctionItem>,
    pub(crate) locations: Table<LocationItem>,
    /// Function and line.
    pub(crate) lines: Lists<(u32, u32)>,
    pub(crate) stacks: Lists<FrameId>,
    pub(crate) links: Table<Option<Link>>,
    pub(crate) processes: Table<ProcessItem>,
    /// Key and value, by key.
    pub(crate) labels: Lists<(u32, u32)>,
    /// Labels of the machine.
    pub(crate) machine: u32,
    pub(crate) threads: Table<(u32, u32)>,
    pub(crate) groups: Table<Group>,
    pub(crate) events: Vec<Event>,
    pub(crate) lost: BTreeMap<String, u64>,
    pub(crate) control: Option<(Control<'static>, String)>,
    /// Attributes with a word of few, which come with every frame or sample.
    words: Vec<(Word, u32)>,
    /// The mapping and the attribute with a path that were named last: frames of one file come one after another.
    last_mapping: u32,
    last_path: u32,
    /// Functions and lines of the frame that is added.
    named: Vec<(u32, u32)>,
    /// More than the packet will have.
    bytes: usize,
}

/// An attribute's value that is one of few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Kind(FrameKind),
    Unnamed(Unnamed),
    Status(Status),
}

/// An attribute: strings by number. The zero value has the empty key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Attribute {
    pub(crate) key: u32,
    pub(crate) value: AttributeValue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum AttributeValue {
    Text(u32),
    Number(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct MappingItem {
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) path: u32,
    /// Attributes in the order GNU, Go, hash; 0 where there is none.
    pub(crate) build_ids: [u32; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct FunctionItem {
    pub(crate) name: u32,
    pub(crate) system_name: u32,
    pub(crate) file: u32,
    pub(crate) start_line: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct LocationItem {
    pub(crate) mapping: u32,
    pub(crate) address: u64,
    pub(crate) lines: u32,
    /// Frame type, reason for having no name, path without build ID; 0 where there is none.
    pub(crate) attributes: [u32; 3],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct ProcessItem {
    pub(crate) pid: u32,
    pub(crate) start_boot_ns: u64,
    pub(crate) name: u32,
    pub(crate) path: u32,
    pub(crate) labels: u32,
}

/// What makes samples the same but for their time and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub(crate) process: u32,
    pub(crate) thread: u32,
    pub(crate) cpu: u32,
    pub(crate) status: Status,
    pub(crate) stack: u32,
    pub(crate) link: u32,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) group: u32,
    pub(crate) at_unix_ns: u64,
    pub(crate) value: u64,
}

impl Builder {
    /// An empty packet.
    #[must_use]
    pub fn new(window: Window, kind: SampleKind) -> Self {
        let no_group =
            Group { process: 0, thread: 0, cpu: 0, status: Status::Root, stack: 0, link: 0 };
        Self {
            window,
            kind,
            strings: Texts::new(),
            attributes: Table::new(Attribute { key: 0, value: AttributeValue::Number(0) }),
            mappings: Table::new(MappingItem::default()),
            functions: Table::new(FunctionItem::default()),
            locations: Table::new(LocationItem::default()),
            lines: Lists::new(),
            stacks: Lists::new(),
            links: Table::new(None),
            processes: Table::new(ProcessItem::default()),
            labels: Lists::new(),
            machine: 0,
            threads: Table::new((0, 0)),
            groups: Table::new(no_group),
            events: Vec::new(),
            lost: BTreeMap::new(),
            control: None,
            words: Vec::new(),
            last_mapping: 0,
            last_path: 0,
            named: Vec::new(),
            bytes: 4_096,
        }
    }

    /// A process that samples of this packet can be of.
    ///
    /// # Errors
    ///
    /// [`AddError::Full`].
    pub fn process(&mut self, process: &Process<'_>) -> Result<ProcessId, AddError> {
        let own = process.executable_name.len() + process.executable_path.len();
        let before = self.processes.len();
        let labels = self.labels(process.attributes, own)?;
        let item = ProcessItem {
            pid: process.pid,
            start_boot_ns: process.start_boot_ns,
            name: self.text(process.executable_name),
            path: self.text(process.executable_path),
            labels,
        };
        let id = self.processes.intern(item);
        if self.processes.len() > before {
            self.bytes += 512 + label_bytes(process.attributes);
        }
        Ok(ProcessId(id))
    }

    /// Attributes of a resource but for those that a process has always; where there is room for them and so much more text. Of two with
    /// one key the last stays.
    fn labels(&mut self, attributes: &[(&str, &str)], more_bytes: usize) -> Result<u32, AddError> {
        let built_in =
            [keys::PID, keys::START_BOOT_NS, keys::EXECUTABLE_NAME, keys::EXECUTABLE_PATH];
        self.room(512 + label_bytes(attributes) + more_bytes)?;
        let texts: BTreeMap<&str, &str> =
            attributes.iter().copied().filter(|(key, _)| !built_in.contains(key)).collect();
        let labels: Vec<_> =
            texts.iter().map(|(key, value)| (self.text(key), self.text(value))).collect();
        Ok(self.labels.intern(&labels))
    }

    /// A frame that stacks of this packet can hold. Whoever resolves addresses may keep the number for the packet's time, or ask again: one
    /// that is known has room, however full the packet is.
    ///
    /// # Errors
    ///
    /// [`AddError::Full`].
    pub fn frame(&mut self, frame: &Frame<'_>) -> Result<FrameId, AddError> {
        let lines = match frame.names {
            Names::Known(lines) => lines,
            Names::Unnamed(_) => &[],
        };
        let before = self.locations.len();
        let mut named = std::mem::take(&mut self.named);
        named.clear();
        named.extend(lines.iter().filter_map(|line| self.line(line)));
        let unnamed = match frame.names {
            Names::Unnamed(reason) => Some(reason),
            Names::Known(_) if named.is_empty() => Some(Unnamed::Empty),
            Names::Known(_) => None,
        };
        let unidentified = frame.mapping.filter(|mapping| mapping.build_ids.is_empty());
        let identified = frame.mapping.filter(|mapping| !mapping.build_ids.is_empty());
        let item = LocationItem {
            mapping: identified.map_or(0, |mapping| self.mapping(mapping)),
            address: frame.address,
            lines: self.lines.intern(&named),
            attributes: [
                self.word(Word::Kind(frame.kind)),
                unnamed.map_or(0, |reason| self.word(Word::Unnamed(reason))),
                unidentified.map_or(0, |mapping| self.mapped_path(mapping.path)),
            ],
        };
        let id = self.locations.intern(item);
        let is_new = self.locations.len() > before;
        if is_new {
            self.bytes += 64 + 32 * named.len();
        }
        self.named = named;
        if is_new {
            self.room(256 + 64 * lines.len())?;
        }
        Ok(FrameId(id))
    }

    /// Adds a sample.
    ///
    /// # Errors
    ///
    /// The sample is not taken: [`AddError::OutsideWindow`], [`AddError::Value`], [`AddError::TooDeep`],
    /// [`AddError::ForeignId`], or [`AddError::Full`], after which the packet can be finished and the sample added to the next.
    pub fn add(&mut self, sample: &Sample<'_>) -> Result<(), AddError> {
        if !self.window.holds(sample.at_unix_ns) {
            return Err(AddError::OutsideWindow { at_unix_ns: sample.at_unix_ns });
        }
        let value_fits = match self.kind {
            SampleKind::OnCpu { .. } => sample.value == 1,
            SampleKind::OffCpu => i64::try_from(sample.value).is_ok(),
        };
        if !value_fits {
            return Err(AddError::Value { value: sample.value });
        }
        if sample.frames.len() > MAX_STACK_FRAMES {
            return Err(AddError::TooDeep { frames: sample.frames.len() });
        }
        let known = |id: &FrameId| id.0 != 0 && (id.0 as usize) < self.locations.len();
        let (process, processes) = (sample.process.0, self.processes.len());
        if process == 0 || process as usize >= processes || !sample.frames.iter().all(known) {
            return Err(AddError::ForeignId);
        }
        self.room(256 + sample.thread_name.len() + 5 * sample.frames.len())?;
        let (stacks, groups) = (self.stacks.len(), self.groups.len());
        let name = self.text(sample.thread_name);
        let group = Group {
            process,
            thread: self.threads.intern((sample.tid, name)),
            cpu: sample.cpu,
            status: sample.status,
            stack: self.stacks.intern(sample.frames),
            link: sample.link.map_or(0, |link| self.links.intern(Some(link))),
        };
        let group = self.groups.intern(group);
        let (stacks, groups) = (self.stacks.len() - stacks, self.groups.len() - groups);
        self.bytes += 18 + stacks * (16 + 5 * sample.frames.len()) + groups * 192;
        let step = sample.at_unix_ns - sample.at_unix_ns % TIME_STEP_NS;
        let at_unix_ns = step.max(self.window.begin_unix_ns);
        self.events.push(Event { group, at_unix_ns, value: sample.value });
        Ok(())
    }

    /// Counts samples that were lost, by a class such as `ring_full`. Classes after the 64th count as `other`.
    pub fn lost(&mut self, class: &str, samples: u64) {
        if samples != 0 {
            let known = self.lost.len() < MAX_CLASSES || self.lost.contains_key(class);
            let class = if known { class } else { "other" };
            let count = self.lost.entry(class.to_owned()).or_default();
            *count = count.saturating_add(samples);
        }
    }

    /// Says what the control loop had decided.
    pub fn control(&mut self, control: &Control<'_>) {
        self.control = Some((Control { reason: "", ..*control }, control.reason.to_owned()));
    }

    /// Samples added so far.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.events.len()
    }

    /// More than the bytes of the packet as it stands, before compression.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.bytes
    }

    /// Says of what machine the packet is: what its one resource has when samples were lost and none is there. Attributes that a
    /// packet has no room for are left out.
    pub fn machine(&mut self, attributes: &[(&str, &str)]) {
        self.machine = self.labels(attributes, 0).unwrap_or_default();
    }

    /// The packet: a resource with a profile for each process that has samples. When none has and some were lost, a resource of
    /// the machine with a profile that has no samples says so; when none was lost either, there is none.
    #[must_use]
    pub fn finish(mut self) -> Packet {
        seal::seal(&mut self)
    }

    fn room(&self, bytes: usize) -> Result<(), AddError> {
        if self.bytes.saturating_add(bytes) > MAX_PACKET_BYTES {
            Err(AddError::Full)
        } else {
            Ok(())
        }
    }

    fn text(&mut self, text: &str) -> u32 {
        let before = self.strings.len();
        let id = if text.len() > MAX_TEXT_BYTES {
            let short = text.floor_char_boundary(MAX_TEXT_BYTES - CUT.len());
            self.strings.intern(&format!("{}{CUT}", text.get(..short).unwrap_or_default()))
        } else {
            self.strings.intern(text)
        };
        if self.strings.len() > before {
            self.bytes += 8 + text.len().min(MAX_TEXT_BYTES);
        }
        id
    }

    pub(crate) fn attribute(&mut self, key: &str, text: &str) -> u32 {
        let value = AttributeValue::Text(self.text(text));
        self.attribute_of(key, value)
    }

    pub(crate) fn attribute_of(&mut self, key: &str, value: AttributeValue) -> u32 {
        let key = self.text(key);
        self.attributes.intern(Attribute { key, value })
    }

    pub(crate) fn word(&mut self, word: Word) -> u32 {
        if let Some(&(_, known)) = self.words.iter().find(|(known, _)| *known == word) {
            return known;
        }
        let id = match word {
            Word::Kind(kind) => self.attribute(keys::FRAME_TYPE, kind.as_str()),
            Word::Unnamed(reason) => self.attribute(keys::UNNAMED, reason.as_str()),
            Word::Status(status) => self.attribute(keys::STATUS, status.as_str()),
        };
        self.words.push((word, id));
        id
    }

    fn line(&mut self, line: &Line<'_>) -> Option<(u32, u32)> {
        let system_name = if line.system_name == line.function { "" } else { line.system_name };
        let function = FunctionItem {
            name: self.text(line.function),
            system_name: self.text(system_name),
            file: self.text(line.file),
            start_line: line.start_line,
        };
        let named = (function.name, function.system_name, function.file) != (0, 0, 0);
        named.then(|| (self.functions.intern(function), line.line))
    }

    fn mapping(&mut self, mapping: &Mapping<'_>) -> u32 {
        if !self.is_mapping(self.last_mapping, mapping) {
            self.last_mapping = self.add_mapping(mapping);
        }
        self.last_mapping
    }

    /// Whether a mapping has this number; `false` also when that is not sure.
    fn is_mapping(&self, id: u32, mapping: &Mapping<'_>) -> bool {
        let item = self.mappings.get(id);
        let has = |build_id: &BuildId<'_>| {
            let [gnu, go, hash] = item.build_ids;
            match *build_id {
                BuildId::Gnu(text) => self.has_text(gnu, text),
                BuildId::Go(text) => self.has_text(go, text),
                BuildId::HtlHash(text) => self.has_text(hash, text),
            }
        };
        item.start == mapping.memory_start
            && item.limit == mapping.memory_limit
            && item.offset == mapping.file_offset
            && self.strings.get(item.path) == mapping.path
            && item.build_ids.iter().filter(|id| **id != 0).count() == mapping.build_ids.len()
            && mapping.build_ids.iter().all(has)
    }

    fn has_text(&self, attribute: u32, text: &str) -> bool {
        match self.attributes.get(attribute).value {
            AttributeValue::Text(value) => self.strings.get(value) == text,
            AttributeValue::Number(_) => false,
        }
    }

    fn mapped_path(&mut self, path: &str) -> u32 {
        if !self.has_text(self.last_path, path) {
            self.last_path = self.attribute(keys::MAPPED_PATH, path);
        }
        self.last_path
    }

    fn add_mapping(&mut self, mapping: &Mapping<'_>) -> u32 {
        let mut build_ids = [0; 3];
        let [gnu, go, hash] = &mut build_ids;
        for id in mapping.build_ids {
            match id {
                BuildId::Gnu(text) => *gnu = self.attribute(keys::BUILD_ID_GNU, text),
                BuildId::Go(text) => *go = self.attribute(keys::BUILD_ID_GO, text),
                BuildId::HtlHash(text) => *hash = self.attribute(keys::BUILD_ID_HTLHASH, text),
            }
        }
        let path = self.text(mapping.path);
        let (start, limit) = if mapping.memory_start < mapping.memory_limit {
            (mapping.memory_start, mapping.memory_limit)
        } else {
            (0, 0)
        };
        self.mappings.intern(MappingItem {
            start,
            limit,
            offset: mapping.file_offset,
            path,
            build_ids,
        })
    }
}

/// How many bytes attributes of a resource take, at most.
fn label_bytes(attributes: &[(&str, &str)]) -> usize {
    attributes.iter().map(|(key, value)| key.len() + value.len() + 16).sum()
}
