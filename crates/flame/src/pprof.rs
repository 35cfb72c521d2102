//! Stacks as one pprof profile, with addresses, files and lines.
//!
//! Each frame is a location of one line; functions inlined into each other are locations one behind the other. Tables are in the order in
//! which a walk over the tree of stacks first meets their entries, so equal samples give equal bytes.

use hashbrown::HashMap;
use model::intern::{Table, Texts};
use model::samples::{Batch, Frame, ProfileType, TextId};
use wire::pyroscope::pprof::{Function, Line, Location, Mapping, Profile, Sample, ValueType};

use crate::arena::{Arena, Flat, ROOT, ranks};
use crate::select::Millis;
use crate::stacks::{Sums, Walk};
use crate::tree::{NO_STACK, OTHER};

/// Values by stack of places. Merging is adding batch after batch, in any order.
#[derive(Debug)]
pub struct PlaceTree {
    texts: Texts,
    places: Table<Place>,
    nodes: Arena<1>,
}

/// What a frame says, by numbers of texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Place {
    function: u32,
    system_name: u32,
    file: u32,
    line: u32,
    start_line: u32,
    mapping: u32,
    build_id: u32,
    address: u64,
}

impl Default for PlaceTree {
    fn default() -> Self {
        Self { texts: Texts::new(), places: Table::new(Place::default()), nodes: Arena::default() }
    }
}

impl PlaceTree {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds values by stack of a batch, whose sums these are. Each stack is walked once.
    pub fn add(&mut self, batch: &Batch, sums: &Sums, walk: Walk) {
        let mut places = vec![u32::MAX; batch.frame_count()];
        for (stack, value) in sums.iter() {
            let frames = batch.frames_of(stack);
            let length = frames.len().min(walk.keep());
            let mut node = ROOT;
            if length == 0 {
                let place = self.named(NO_STACK);
                node = self.nodes.child(ROOT, place);
            }
            for (depth, frame) in (1..).zip(frames.take(walk.keep()).rev()) {
                let Some(place) = places.get_mut(frame.index()) else { continue };
                if *place == u32::MAX {
                    *place = self.place(batch, &batch.frame_of(frame));
                }
                let mut place = *place;
                if walk.aggregate_callees && depth == length {
                    let without_line = Place { line: 0, ..*self.places.get(place) };
                    place = self.places.intern(without_line);
                }
                node = self.nodes.child(node, place);
            }
            self.nodes.add(node, [value]);
        }
    }

    /// A profile of at most so many nodes and those that stand for the rest. Its sample type is the profile type's, its time the range's.
    #[must_use]
    pub fn profile(&mut self, of: &ProfileType, time: Millis, max_nodes: usize) -> Profile {
        let other = self.named(OTHER);
        let ranks = ranks(self.places.iter().map(|place| self.content(place)));
        let cut = self.nodes.cut(max_nodes, &ranks, other);
        let mut writer = Writer::new(self);
        let kind = |writer: &mut Writer<'_>, kind: &str, unit: &str| ValueType {
            kind: writer.text(kind),
            unit: writer.text(unit),
        };
        let sample_type = kind(&mut writer, &of.sample_type, &of.sample_unit);
        let period_type = kind(&mut writer, &of.period_type, &of.period_unit);
        writer.out.sample_type.push(sample_type);
        writer.out.period_type = Some(period_type).filter(|_| !of.period_type.is_empty());
        writer.out.time_nanos = time.start.saturating_mul(1_000_000);
        let length = time.end.saturating_sub(time.start);
        writer.out.duration_nanos = length.saturating_mul(1_000_000);
        writer.samples(&cut.flat(&ranks));
        writer.out
    }

    fn named(&mut self, name: &str) -> u32 {
        let function = self.texts.intern(name);
        self.places.intern(Place { function, ..Place::default() })
    }

    fn place(&mut self, batch: &Batch, frame: &Frame) -> u32 {
        let mut text = |id: TextId| self.texts.intern(batch.text_of(id));
        let place = Place {
            function: text(frame.function),
            system_name: text(frame.system_name),
            file: text(frame.file),
            line: frame.line,
            start_line: frame.start_line,
            mapping: text(frame.mapping),
            build_id: text(frame.build_id),
            address: frame.address,
        };
        self.places.intern(place)
    }

    /// A place by what it says.
    fn content(&self, place: &Place) -> ([&str; 5], u64, u32, u32) {
        let Place { function, system_name, file, mapping, build_id, .. } = *place;
        let texts = [function, system_name, file, mapping, build_id];
        (texts.map(|text| self.texts.get(text)), place.address, place.line, place.start_line)
    }
}

struct Writer<'a> {
    tree: &'a PlaceTree,
    out: Profile,
    texts: HashMap<String, i64>,
    mappings: HashMap<(u32, u32), u64>,
    functions: HashMap<(u32, u32, u32, u32), u64>,
    locations: HashMap<u32, u64>,
}

impl<'a> Writer<'a> {
    fn new(tree: &'a PlaceTree) -> Self {
        let out = Profile { string_table: vec![String::new()], ..Profile::default() };
        Self {
            tree,
            out,
            texts: HashMap::from([(String::new(), 0)]),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
        }
    }

    fn samples(&mut self, flat: &[Flat<1>]) {
        let mut path: Vec<u64> = Vec::new();
        for node in flat.iter().skip(1) {
            path.truncate(node.depth - 1);
            path.push(self.location(node.key));
            let [value] = node.own;
            if value != 0 {
                let location_id = path.iter().rev().copied().collect();
                self.out.sample.push(Sample { location_id, value: vec![value], label: Vec::new() });
            }
        }
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = i64::try_from(self.out.string_table.len()).unwrap_or(i64::MAX);
        self.out.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }

    fn location(&mut self, place: u32) -> u64 {
        if let Some(id) = self.locations.get(&place) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(place, id);
        let place = *self.tree.places.get(place);
        let mapping_id = self.mapping(&place);
        let mut line = Vec::new();
        if place.function != 0 || place.system_name != 0 {
            line.push(Line {
                function_id: self.function(&place),
                line: place.line.into(),
                column: 0,
            });
        }
        self.out.location.push(Location {
            id,
            mapping_id,
            address: place.address,
            line,
            is_folded: false,
        });
        id
    }

    /// The mapping of a place. Readers do not look up what has functions, so it says so only where all places have them.
    fn mapping(&mut self, place: &Place) -> u64 {
        if (place.mapping, place.build_id) == (0, 0) {
            return 0;
        }
        let next = self.mappings.len() as u64 + 1;
        let id = *self.mappings.entry((place.mapping, place.build_id)).or_insert(next);
        if id == next {
            let filename = self.text(self.tree.texts.get(place.mapping));
            let build_id = self.text(self.tree.texts.get(place.build_id));
            let has_functions = true;
            self.out.mapping.push(Mapping {
                id,
                filename,
                build_id,
                has_functions,
                ..Mapping::default()
            });
        }
        let at = usize::try_from(id - 1).unwrap_or(usize::MAX);
        if let Some(mapping) = self.out.mapping.get_mut(at) {
            mapping.has_functions &= place.function != 0 || place.system_name != 0;
            mapping.has_filenames |= place.file != 0;
            mapping.has_line_numbers |= place.line != 0;
        }
        id
    }

    fn function(&mut self, place: &Place) -> u64 {
        let key = (place.function, place.system_name, place.file, place.start_line);
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry(key).or_insert(next);
        if id == next {
            let text = |of: u32| self.tree.texts.get(of);
            let [function, system_name] = [text(place.function), text(place.system_name)];
            let name = if function.is_empty() { system_name } else { function };
            let file = text(place.file);
            let function = Function {
                id,
                name: self.text(name),
                system_name: self.text(system_name),
                filename: self.text(file),
                start_line: place.start_line.into(),
            };
            self.out.function.push(function);
        }
        id
    }
}
