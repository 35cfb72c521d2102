//! What a request must hold to be read alone and taken by any receiver: the rules of OpenTelemetry's `profcheck`, and those of the
//! data model that it does not check (each thing once, nothing unused, each frame named or said why not).

use std::hash::Hash;

use hashbrown::{HashMap, HashSet};

use crate::keys;
use crate::request::{
    AttributeValue, Dictionary, Location, Profile, Request, ResourceProfiles, Sample,
};

/// So many problems of one request are told.
const MAX_PROBLEMS: usize = 1_000;

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Something that must be there is not.
    #[error("there is no {what}")]
    Missing {
        /// What.
        what: &'static str,
    },
    /// Index 0 of a table is not the zero value.
    #[error("{table}[0] is not the zero value")]
    NoZero {
        /// The table.
        table: &'static str,
    },
    /// An index leads nowhere.
    #[error("{from}[{at}] refers to {table}[{index}], which is not there")]
    Dangling {
        /// Table or list that refers.
        from: &'static str,
        /// Which entry of it.
        at: usize,
        /// Table that is referred to.
        table: &'static str,
        /// The index.
        index: u32,
    },
    /// Two entries say the same.
    #[error("{table}[{at}] is {table}[{first}] again")]
    Duplicate {
        /// The table.
        table: &'static str,
        /// The later entry.
        at: usize,
        /// The earlier entry.
        first: usize,
    },
    /// Nothing refers to an entry.
    #[error("nothing refers to {table}[{at}]")]
    Orphan {
        /// The table.
        table: &'static str,
        /// The entry.
        at: usize,
    },
    /// An entry breaks a rule.
    #[error("{table}[{at}] {rule}")]
    Broken {
        /// Table or list.
        table: &'static str,
        /// The entry; samples count through the whole request.
        at: usize,
        /// What it does that it must not.
        rule: &'static str,
    },
}

impl Request<'_> {
    /// All problems, at most a thousand; none if it can be read alone.
    #[must_use]
    pub fn check(&self) -> Vec<Problem> {
        let mut check =
            Check { dictionary: &self.dictionary, problems: Vec::new(), used: Default::default() };
        check.zeros();
        check.resources(&self.resources);
        check.tables();
        check.duplicates();
        check.orphans();
        check.problems
    }
}

/// The tables, in the order of their field numbers.
#[derive(Clone, Copy)]
enum Table {
    Mapping,
    Location,
    Function,
    Link,
    String,
    Attribute,
    Stack,
}

impl Table {
    const ALL: [Self; 7] = [
        Self::Mapping,
        Self::Location,
        Self::Function,
        Self::Link,
        Self::String,
        Self::Attribute,
        Self::Stack,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Mapping => "mapping_table",
            Self::Location => "location_table",
            Self::Function => "function_table",
            Self::Link => "link_table",
            Self::String => "string_table",
            Self::Attribute => "attribute_table",
            Self::Stack => "stack_table",
        }
    }

    fn length(self, dictionary: &Dictionary<'_>) -> usize {
        match self {
            Self::Mapping => dictionary.mappings.len(),
            Self::Location => dictionary.locations.len(),
            Self::Function => dictionary.functions.len(),
            Self::Link => dictionary.links.len(),
            Self::String => dictionary.strings.len(),
            Self::Attribute => dictionary.attributes.len(),
            Self::Stack => dictionary.stacks.len(),
        }
    }
}

/// Values and times of a sample: all samples of a profile should have them alike.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    OneValue,
    Times,
    Both,
}

struct Check<'r, 'a> {
    dictionary: &'r Dictionary<'a>,
    problems: Vec<Problem>,
    /// What was referred to, by table.
    used: [HashSet<u32>; 7],
}

impl<'r, 'a> Check<'r, 'a> {
    fn problem(&mut self, problem: Problem) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        }
    }

    fn broken(&mut self, table: &'static str, at: usize, rule: &'static str) {
        self.problem(Problem::Broken { table, at, rule });
    }

    fn refer(&mut self, from: &'static str, at: usize, table: Table, index: u32) {
        if index as usize >= table.length(self.dictionary) {
            self.problem(Problem::Dangling { from, at, table: table.name(), index });
        } else if let Some(used) = self.used.get_mut(table as usize) {
            used.insert(index);
        }
    }

    /// Index 0 of each table is there and is the zero value.
    fn zeros(&mut self) {
        let d = self.dictionary;
        fn zero<T: Default + PartialEq>(first: Option<&T>) -> bool {
            first.is_some_and(|first| *first == T::default())
        }
        let link = |link: &crate::request::LinkEntry<'_>| {
            link.trace_id.iter().chain(link.span_id).all(|byte| *byte == 0)
        };
        for table in Table::ALL {
            let there = match table {
                Table::Mapping => zero(d.mappings.first()),
                Table::Location => zero(d.locations.first()),
                Table::Function => zero(d.functions.first()),
                Table::Link => d.links.first().is_some_and(link),
                Table::String => zero(d.strings.first()),
                Table::Attribute => zero(d.attributes.first()),
                Table::Stack => zero(d.stacks.first()),
            };
            if !there {
                self.problem(Problem::NoZero { table: table.name() });
            }
        }
    }

    fn resources(&mut self, resources: &'r [ResourceProfiles<'a>]) {
        if resources.is_empty() {
            self.problem(Problem::Missing { what: "resource" });
        }
        let mut samples = 0;
        let mut ids = HashMap::new();
        let mut profiles = 0;
        for (at, resource) in resources.iter().enumerate() {
            if resource.scopes == 0 || resource.profiles.is_empty() {
                self.broken("resource_profiles", at, "has no profile");
            }
            let mut seen = HashSet::new();
            for attribute in &resource.attributes {
                if attribute.key_index != 0 {
                    self.refer("resource_profiles", at, Table::String, attribute.key_index);
                }
                let key = self.dictionary.key(attribute);
                if key.is_empty() || !seen.insert(key) {
                    self.broken(
                        "resource_profiles",
                        at,
                        "has an attribute without a key of its own",
                    );
                }
                if let AttributeValue::TextIndex(index) = attribute.value {
                    self.refer("resource_profiles", at, Table::String, index);
                }
            }
            for profile in &resource.profiles {
                self.profile(profiles, profile, &mut samples);
                if !profile.profile_id.is_empty()
                    && let Some(first) = ids.insert(profile.profile_id, profiles)
                {
                    self.problem(Problem::Duplicate { table: "profile_id", at: profiles, first });
                }
                profiles += 1;
            }
        }
    }

    fn profile(&mut self, at: usize, profile: &'r Profile<'a>, samples: &mut usize) {
        for index in [
            profile.sample_type.kind,
            profile.sample_type.unit,
            profile.period_type.kind,
            profile.period_type.unit,
        ] {
            self.refer("profiles", at, Table::String, index);
        }
        if profile.sample_type.kind == 0 {
            self.broken("profiles", at, "has no sample type");
        }
        if ![0, 16].contains(&profile.profile_id.len()) {
            self.broken("profiles", at, "has an id that is not of 16 bytes");
        }
        self.attributes("profiles", at, &profile.attributes);
        let mut seen = HashMap::new();
        let mut shapes = Vec::new();
        for sample in &profile.samples {
            let at = *samples;
            *samples += 1;
            self.sample(at, sample, profile);
            let shape = match (sample.values.len(), sample.times_unix_ns.len()) {
                (1, 0) => Some(Shape::OneValue),
                (0, 1..) => Some(Shape::Times),
                (values, times) if values == times && times != 0 => Some(Shape::Both),
                _ => None,
            };
            match shape {
                None => self.broken(
                    "samples",
                    at,
                    "has other than one value, times, or a value for each time",
                ),
                Some(shape) if !shapes.contains(&shape) => shapes.push(shape),
                Some(_) => {}
            }
            let identity = (sample.stack, sorted(&sample.attributes), sample.link);
            if let Some(first) = seen.insert(identity, at) {
                self.problem(Problem::Duplicate { table: "samples", at, first });
            }
        }
        if shapes.len() > 1 {
            self.broken("profiles", at, "has samples of several shapes");
        }
    }

    fn sample(&mut self, at: usize, sample: &Sample, profile: &Profile<'_>) {
        self.refer("samples", at, Table::Stack, sample.stack);
        self.refer("samples", at, Table::Link, sample.link);
        self.attributes("samples", at, &sample.attributes);
        let inside = |time: &u64| {
            time.checked_sub(profile.time_unix_ns).is_some_and(|after| after < profile.duration_ns)
        };
        if !sample.times_unix_ns.iter().all(inside) {
            self.broken("samples", at, "has a time outside its profile's");
        }
    }

    fn attributes(&mut self, from: &'static str, at: usize, attributes: &[u32]) {
        let mut seen = HashSet::new();
        for &index in attributes {
            self.refer(from, at, Table::Attribute, index);
            let key =
                self.dictionary.attributes.get(index as usize).map(|a| self.dictionary.key(a));
            if index == 0 || key.is_some_and(|key| !seen.insert(key)) {
                self.broken(from, at, "has an attribute without a key of its own");
            }
        }
    }

    fn tables(&mut self) {
        let d = self.dictionary;
        for (at, stack) in d.stacks.iter().enumerate() {
            for &index in stack {
                self.refer("stack_table", at, Table::Location, index);
                if index == 0 {
                    self.broken("stack_table", at, "holds the zero location");
                }
            }
        }
        for (at, location) in d.locations.iter().enumerate().skip(1) {
            self.refer("location_table", at, Table::Mapping, location.mapping);
            self.attributes("location_table", at, &location.attributes);
            for line in &location.lines {
                self.refer("location_table", at, Table::Function, line.function);
                if line.line < 0 || line.column < 0 {
                    self.broken("location_table", at, "has a negative line or column");
                }
            }
            self.frame_is_told(at, location);
        }
        for (at, function) in d.functions.iter().enumerate().skip(1) {
            let names = [function.name, function.system_name, function.file];
            names.iter().for_each(|&index| self.refer("function_table", at, Table::String, index));
            if names == [0; 3] {
                self.broken("function_table", at, "has no name");
            }
            if function.start_line < 0 {
                self.broken("function_table", at, "has a negative line");
            }
        }
        for (at, mapping) in d.mappings.iter().enumerate().skip(1) {
            self.refer("mapping_table", at, Table::String, mapping.path);
            self.attributes("mapping_table", at, &mapping.attributes);
            let range = (mapping.memory_start, mapping.memory_limit);
            if range.0 >= range.1 && range != (0, 0) {
                self.broken("mapping_table", at, "ends before it begins");
            }
            if !self.identified(&mapping.attributes) {
                self.broken("mapping_table", at, "has no build ID");
            }
        }
        for (at, attribute) in d.attributes.iter().enumerate().skip(1) {
            self.refer("attribute_table", at, Table::String, attribute.key_index);
            self.refer("attribute_table", at, Table::String, attribute.unit);
            if attribute.key_index == 0 {
                self.broken("attribute_table", at, "has no key");
            }
            if let AttributeValue::TextIndex(index) = attribute.value {
                self.refer("attribute_table", at, Table::String, index);
            }
        }
        for (at, link) in d.links.iter().enumerate().skip(1) {
            if (link.trace_id.len(), link.span_id.len()) != (16, 8) {
                self.broken("link_table", at, "has ids that are not of 16 and 8 bytes");
            }
        }
    }

    fn identified(&self, attributes: &[u32]) -> bool {
        [keys::BUILD_ID_GNU, keys::BUILD_ID_GO, keys::BUILD_ID_HTLHASH]
            .iter()
            .any(|key| self.dictionary.find_text(attributes, key).is_some_and(|id| !id.is_empty()))
    }

    /// A frame has a name, or a reason for having none and what it takes to find one elsewhere. Where there is no file
    /// there is nothing to be found.
    fn frame_is_told(&mut self, at: usize, location: &Location) {
        let d = self.dictionary;
        let named = location.lines.iter().any(|line| {
            d.functions
                .get(line.function as usize)
                .is_some_and(|f| (f.name, f.system_name, f.file) != (0, 0, 0))
        });
        if named {
            return;
        }
        let reason = d.find_text(&location.attributes, keys::UNNAMED);
        let path = d.find_text(&location.attributes, keys::MAPPED_PATH);
        let mapping = d.mappings.get(location.mapping as usize).filter(|_| location.mapping != 0);
        match reason {
            None | Some("") => {
                self.broken("location_table", at, "has neither a name nor a reason for having none")
            }
            Some(_) if path.is_some() => {}
            Some(_) if mapping.is_some_and(|mapping| self.identified(&mapping.attributes)) => {}
            Some("anonymous" | "no_mapping" | "hidden" | "empty") => {}
            Some(_) => self.broken("location_table", at, "has neither a name nor a build ID"),
        }
    }

    /// Entries that refer to equal entries are equal: where the tables below have no duplicates, equal indices are equal values.
    fn duplicates(&mut self) {
        let d = self.dictionary;
        let mappings = d.mappings.iter().map(|m| {
            (m.memory_start, m.memory_limit, m.file_offset, m.path, sorted(&m.attributes))
        });
        self.each_once(Table::Mapping, mappings);
        let locations =
            d.locations.iter().map(|l| (l.mapping, l.address, &l.lines, sorted(&l.attributes)));
        self.each_once(Table::Location, locations);
        self.each_once(Table::Function, d.functions.iter());
        self.each_once(Table::Link, d.links.iter());
        self.each_once(Table::String, d.strings.iter());
        self.each_once(Table::Attribute, d.attributes.iter());
        self.each_once(Table::Stack, d.stacks.iter());
    }

    fn each_once<T: Hash + Eq>(&mut self, table: Table, entries: impl Iterator<Item = T>) {
        let mut seen = HashMap::new();
        for (at, entry) in entries.enumerate() {
            let first = *seen.entry(entry).or_insert(at);
            if first != at {
                self.problem(Problem::Duplicate { table: table.name(), at, first });
            }
        }
    }

    fn orphans(&mut self) {
        for table in Table::ALL {
            let used = self.used.get_mut(table as usize).map(std::mem::take).unwrap_or_default();
            for (at, index) in (0u32..).take(table.length(self.dictionary)).enumerate().skip(1) {
                if !used.contains(&index) {
                    self.problem(Problem::Orphan { table: table.name(), at });
                }
            }
        }
    }
}

fn sorted(attributes: &[u32]) -> Vec<u32> {
    let mut sorted = attributes.to_vec();
    sorted.sort_unstable();
    sorted
}
