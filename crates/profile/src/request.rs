//! A request as it stands on the wire: tables, and indices into them that may lead nowhere.
//!
//! An index is looked up with a method that answers for any number, so that a reader of a damaged request shows less, and never
//! ends. Texts are borrowed from the bytes.

use crate::keys;
use crate::packet::PacketId;

/// An `ExportProfilesServiceRequest`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// What the profiles refer to.
    pub dictionary: Dictionary<'a>,
    /// One for each process.
    pub resources: Vec<ResourceProfiles<'a>>,
}

/// The tables that all profiles of a request share. Index 0 of each is the zero value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the tables of OTLP, by their names")]
pub struct Dictionary<'a> {
    pub mappings: Vec<Mapping>,
    pub locations: Vec<Location>,
    pub functions: Vec<Function>,
    pub links: Vec<LinkEntry<'a>>,
    pub strings: Vec<&'a str>,
    pub attributes: Vec<Attribute<'a>>,
    /// Locations, leaf first.
    pub stacks: Vec<Vec<u32>>,
}

/// What a resource did. Scopes are merged: profiles differ by type, not by who wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceProfiles<'a> {
    /// What says which process it is.
    pub attributes: Vec<Attribute<'a>>,
    /// How many scopes there were.
    pub scopes: usize,
    /// Of all scopes.
    pub profiles: Vec<Profile<'a>>,
}

/// Samples of one type.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile<'a> {
    /// What values count.
    pub sample_type: ValueType,
    /// The samples.
    pub samples: Vec<Sample>,
    /// Begin, in nanoseconds since the epoch.
    pub time_unix_ns: u64,
    /// Length in nanoseconds.
    pub duration_ns: u64,
    /// What a period counts.
    pub period_type: ValueType,
    /// Between two samples.
    pub period: i64,
    /// 16 bytes, or none.
    pub profile_id: &'a [u8],
    /// Format of a payload that it was made from.
    pub original_payload_format: &'a str,
    /// Into [`Dictionary::attributes`].
    pub attributes: Vec<u32>,
}

/// Kind and unit, into [`Dictionary::strings`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "said above")]
pub struct ValueType {
    pub kind: u32,
    pub unit: u32,
}

/// Events that differ in time and value only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// Into [`Dictionary::stacks`].
    pub stack: u32,
    /// Into [`Dictionary::attributes`].
    pub attributes: Vec<u32>,
    /// Into [`Dictionary::links`].
    pub link: u32,
    /// One for each event; none when each counts 1; one alone, without times, for any number of events.
    pub values: Vec<i64>,
    /// In nanoseconds since the epoch.
    pub times_unix_ns: Vec<u64>,
}

/// A mapped file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of OTLP, by their names")]
pub struct Mapping {
    pub memory_start: u64,
    pub memory_limit: u64,
    pub file_offset: u64,
    pub path: u32,
    pub attributes: Vec<u32>,
}

/// A place in code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Location {
    /// Into [`Dictionary::mappings`].
    pub mapping: u32,
    /// In the file.
    pub address: u64,
    /// Innermost inlined function first.
    pub lines: Vec<Line>,
    /// Into [`Dictionary::attributes`].
    pub attributes: Vec<u32>,
}

/// A function at a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of OTLP, by their names")]
pub struct Line {
    pub function: u32,
    pub line: i64,
    pub column: i64,
}

/// A function; names are indices into [`Dictionary::strings`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of OTLP, by their names")]
pub struct Function {
    pub name: u32,
    pub system_name: u32,
    pub file: u32,
    pub start_line: i64,
}

/// The span that samples belong to: 16 and 8 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of OTLP, by their names")]
pub struct LinkEntry<'a> {
    pub trace_id: &'a [u8],
    pub span_id: &'a [u8],
}

/// An attribute of a resource or of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Attribute<'a> {
    /// The key where it stands as text.
    pub key: &'a str,
    /// Into [`Dictionary::strings`], where it does not.
    pub key_index: u32,
    /// The value.
    pub value: AttributeValue<'a>,
    /// Into [`Dictionary::strings`].
    pub unit: u32,
}

/// An attribute's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum AttributeValue<'a> {
    /// Nothing.
    #[default]
    None,
    /// Text.
    Text(&'a str),
    /// Text, as an index into [`Dictionary::strings`].
    TextIndex(u32),
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// The bits of a 64-bit number of IEEE 754, which can be compared.
    DoubleBits(u64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list or a map, as it stands on the wire.
    Nested(&'a [u8]),
}

impl<'a> Dictionary<'a> {
    /// A string, empty for an index that leads nowhere.
    #[must_use]
    pub fn string(&self, index: u32) -> &'a str {
        self.strings.get(index as usize).copied().unwrap_or_default()
    }

    /// An attribute's key.
    #[must_use]
    pub fn key(&self, attribute: &Attribute<'a>) -> &'a str {
        if attribute.key.is_empty() { self.string(attribute.key_index) } else { attribute.key }
    }

    /// An attribute's value if it is text.
    #[must_use]
    pub fn text(&self, value: AttributeValue<'a>) -> Option<&'a str> {
        match value {
            AttributeValue::Text(text) => Some(text),
            AttributeValue::TextIndex(index) => Some(self.string(index)),
            _ => None,
        }
    }

    /// The value of the attribute with this key among some.
    #[must_use]
    pub fn find(&self, attributes: &[u32], key: &str) -> Option<AttributeValue<'a>> {
        self.attributes_of(attributes).find(|(found, _)| *found == key).map(|(_, value)| value)
    }

    /// Keys and values of some attributes.
    pub fn attributes_of<'s>(
        &'s self,
        attributes: &'s [u32],
    ) -> impl Iterator<Item = (&'a str, AttributeValue<'a>)> + 's {
        let all = attributes.iter().filter_map(|&index| self.attributes.get(index as usize));
        all.map(|attribute| (self.key(attribute), attribute.value))
    }

    /// The text of the attribute with this key among some.
    #[must_use]
    pub fn find_text(&self, attributes: &[u32], key: &str) -> Option<&'a str> {
        self.find(attributes, key).and_then(|value| self.text(value))
    }

    /// Locations of a stack, leaf first.
    pub fn stack(&self, index: u32) -> impl DoubleEndedIterator<Item = &Location> {
        let stack = self.stacks.get(index as usize).map(Vec::as_slice).unwrap_or_default();
        stack.iter().filter_map(|&index| self.locations.get(index as usize))
    }
}

impl<'a> ResourceProfiles<'a> {
    /// The value of the attribute with this key.
    #[must_use]
    pub fn find(&self, dictionary: &Dictionary<'a>, key: &str) -> Option<AttributeValue<'a>> {
        self.attributes.iter().find(|a| dictionary.key(a) == key).map(|a| a.value)
    }

    /// The text of the attribute with this key.
    #[must_use]
    pub fn find_text(&self, dictionary: &Dictionary<'a>, key: &str) -> Option<&'a str> {
        self.find(dictionary, key).and_then(|value| dictionary.text(value))
    }
}

impl Request<'_> {
    /// What the packet is called by whoever made it, if it is one of ours: the same packet twice has the same id.
    #[must_use]
    pub fn packet_id(&self) -> Option<PacketId> {
        let mut profiles = self.resources.iter().flat_map(|resource| &resource.profiles);
        let id = profiles.next()?.profile_id.first_chunk::<12>()?;
        Some(PacketId(*id)).filter(|id| id.0 != [0; 12])
    }

    /// Samples that were lost, by class, as the packet says.
    #[must_use]
    pub fn losses(&self) -> Vec<(String, u64)> {
        let Some(profile) = self.resources.iter().flat_map(|resource| &resource.profiles).next()
        else {
            return Vec::new();
        };
        self.dictionary
            .attributes_of(&profile.attributes)
            .filter_map(|(key, value)| match (key.strip_prefix(keys::LOST), value) {
                (Some(class), AttributeValue::Int(count)) => {
                    Some((class.to_owned(), u64::try_from(count).ok()?))
                }
                _ => None,
            })
            .collect()
    }
}

impl Sample {
    /// Times and values of the events; without times, one event at no time.
    pub fn events(&self) -> impl Iterator<Item = (Option<u64>, i64)> {
        let count = self.times_unix_ns.len().max(self.values.len());
        (0..count).map(|at| {
            (self.times_unix_ns.get(at).copied(), self.values.get(at).copied().unwrap_or(1))
        })
    }

    /// The sum of the values. What passes the range of numbers stays at its end.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.events().fold(0, |sum, (_, value)| sum.saturating_add(value))
    }
}
