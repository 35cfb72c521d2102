//! From a builder's values to the bytes of a packet.
//!
//! Each table is numbered by content: strings by text, what refers to strings by their numbers, and so on up to samples. So
//! the order in which samples came does not show. Only what a sample reaches is numbered: there are no orphans.
//!
//! The orders are chosen so that neighbours look alike, which is what a compressor finds: stacks stand by their frames from
//! the root, so that one ends as the one before; locations by mapping and address.

use std::cmp::Ordering;

use sha2::{Digest as _, Sha256};

use crate::builder::{Attribute, AttributeValue, Builder, Event, Group, LocationItem, MappingItem};
use crate::decode;
use crate::intern::{Table, item, number};
use crate::keys;
use crate::model::SampleKind;
use crate::packet::{Packet, PacketId};
use crate::proto::Writer;

pub(crate) fn seal(builder: &mut Builder) -> Packet {
    let common = Common::of(builder);
    let numbers = Numbers::of(builder, &common);
    let mut out = Writer { bytes: Vec::with_capacity(128 * builder.events.len() + 4_096) };
    resources(builder, &common, &numbers, &mut out);
    out.message(2, |out| dictionary(builder, &numbers, out));
    let mut bytes = out.bytes;
    let id = sign(&mut bytes);
    let begin_unix_ns = builder.window.begin_unix_ns;
    Packet { id, bytes, begin_unix_ns, kind: builder.kind, samples: builder.events.len() }
}

/// Names the packet after its content and writes the name into its profiles.
fn sign(bytes: &mut [u8]) -> PacketId {
    let places = decode::profile_id_places(bytes).expect("a packet's own bytes can be read");
    let digest = Sha256::digest(&*bytes);
    let id = PacketId(std::array::from_fn(|i| digest.get(i).copied().unwrap_or_default()));
    for (place, profile) in places.into_iter().zip(1u32..) {
        if let Some((head, tail)) =
            bytes.get_mut(place..place + 16).and_then(|id| id.split_at_mut_checked(12))
        {
            head.copy_from_slice(&id.0);
            tail.copy_from_slice(&profile.to_be_bytes());
        }
    }
    id
}

/// What all profiles of the packet say alike, and the attributes that samples have.
struct Common {
    sample_type: (u32, u32),
    period_type: (u32, u32),
    period: u64,
    attributes: Vec<u32>,
    /// For each group: thread number, thread name (or 0), CPU, status.
    groups: Vec<[u32; 4]>,
}

impl Common {
    fn of(builder: &mut Builder) -> Self {
        let nanoseconds = builder.strings.text(keys::NANOSECONDS);
        let (sample_type, period_type, period) = match builder.kind {
            SampleKind::OnCpu { period_ns } => (
                (builder.strings.text(keys::SAMPLES), builder.strings.text(keys::COUNT)),
                (builder.strings.text(keys::CPU_TIME), nanoseconds),
                period_ns,
            ),
            SampleKind::OffCpu => ((builder.strings.text(keys::OFF_CPU), nanoseconds), (0, 0), 0),
        };
        let mut attributes = Vec::new();
        for (class, count) in std::mem::take(&mut builder.lost) {
            let key = format!("{}{class}", keys::LOST);
            attributes.push(builder.attribute_of(&key, AttributeValue::Number(count)));
        }
        if let Some((control, reason)) = builder.control.take() {
            for (key, value) in [
                (keys::FREQUENCY_HZ, u64::from(control.frequency_hz)),
                (keys::WINDOW_NS, control.window_ns),
                (keys::MAX_FRAMES, u64::from(control.max_frames)),
            ] {
                attributes.push(builder.attribute_of(key, AttributeValue::Number(value)));
            }
            if !reason.is_empty() {
                attributes.push(builder.attribute(keys::CONTROL_REASON, &reason));
            }
        }
        let all: Vec<Group> = builder.groups.iter().copied().collect();
        let groups = all
            .iter()
            .map(|group| {
                let (tid, name) = *builder.threads.get(group.thread);
                let number = |n: u32| AttributeValue::Number(u64::from(n));
                let name = match name {
                    0 => 0,
                    name => builder.attribute_of(keys::THREAD_NAME, AttributeValue::Text(name)),
                };
                [
                    builder.attribute_of(keys::THREAD_ID, number(tid)),
                    name,
                    builder.attribute_of(keys::CPU, number(group.cpu)),
                    builder.attribute(keys::STATUS, group.status.as_str()),
                ]
            })
            .collect();
        Self { sample_type, period_type, period, attributes, groups }
    }
}

/// The order of a table's items in the packet, and each item's number there. What is not used has number 0, as the zero value.
struct Order {
    list: Vec<u32>,
    numbers: Vec<u32>,
}

impl Order {
    fn of(used: &Used, mut compare: impl FnMut(u32, u32) -> Ordering) -> Self {
        let mut list: Vec<u32> =
            (0..).zip(&used.0).skip(1).filter(|(_, used)| **used).map(|(id, _)| id).collect();
        list.sort_unstable_by(|&a, &b| compare(a, b));
        let mut numbers = vec![0; used.0.len()];
        for (at, &id) in (1..).zip(&list) {
            if let Some(number) = numbers.get_mut(id as usize) {
                *number = at;
            }
        }
        Self { list, numbers }
    }

    fn number(&self, id: u32) -> u32 {
        *item(&self.numbers, id)
    }
}

/// Which items of a table a sample reaches.
struct Used(Vec<bool>);

impl Used {
    fn none<T>(table: &Table<T>) -> Self {
        Self(vec![false; table.len()])
    }

    fn mark(&mut self, id: u32) {
        if let Some(used) = self.0.get_mut(id as usize) {
            *used = true;
        }
    }

    fn of<T>(table: &Table<T>, ids: impl IntoIterator<Item = u32>) -> Self {
        let mut used = Self::none(table);
        ids.into_iter().for_each(|id| used.mark(id));
        used
    }

    fn ids(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.0).skip(1).filter(|(_, used)| **used).map(|(id, _)| id)
    }
}

struct Numbers {
    /// By text, of all strings that are used anywhere: what orders the rest.
    texts: Order,
    strings: Order,
    attributes: Order,
    mappings: Order,
    functions: Order,
    locations: Order,
    stacks: Order,
    links: Order,
}

impl Numbers {
    fn of(builder: &Builder, common: &Common) -> Self {
        let Builder {
            strings,
            attributes,
            mappings,
            functions,
            locations,
            stacks,
            links,
            groups,
            ..
        } = builder;
        let used_stacks = Used::of(stacks, groups.iter().skip(1).map(|group| group.stack));
        let used_links = Used::of(links, groups.iter().skip(1).map(|group| group.link));
        let frames = used_stacks.ids().flat_map(|id| stacks.get(id).iter().map(|frame| frame.0));
        let used_locations = Used::of(locations, frames);
        let used_mappings =
            Used::of(mappings, used_locations.ids().map(|id| locations.get(id).mapping));
        let lines = used_locations.ids().flat_map(|id| &locations.get(id).lines);
        let used_functions = Used::of(functions, lines.map(|(function, _)| *function));

        let mut used_attributes = Used::of(attributes, common.attributes.iter().copied());
        common.groups.iter().skip(1).flatten().for_each(|&id| used_attributes.mark(id));
        used_locations
            .ids()
            .flat_map(|id| locations.get(id).attributes)
            .chain(used_mappings.ids().flat_map(|id| mappings.get(id).build_ids))
            .for_each(|id| used_attributes.mark(id));

        let used_strings =
            strings_used(builder, common, &used_functions, &used_mappings, &used_attributes);
        let used_texts = texts_used(builder, &used_strings, &used_attributes);
        let texts = Order::of(&used_texts, |a, b| strings.get(a).cmp(strings.get(b)));
        let text = |id: u32| texts.number(id);
        let strings = Order::of(&used_strings, |a, b| text(a).cmp(&text(b)));

        let attributes = Order::of(&used_attributes, |a, b| {
            let key = |id: u32| {
                let Attribute { key, value } = *attributes.get(id);
                match value {
                    AttributeValue::Text(value) => (text(key), 0, u64::from(text(value))),
                    AttributeValue::Number(value) => (text(key), 1, value),
                }
            };
            key(a).cmp(&key(b))
        });
        let functions = Order::of(&used_functions, |a, b| {
            let key = |id: u32| {
                let function = functions.get(id);
                (
                    text(function.name),
                    text(function.system_name),
                    text(function.file),
                    function.start_line,
                )
            };
            key(a).cmp(&key(b))
        });
        let mappings = Order::of(&used_mappings, |a, b| {
            let key = |id: u32| {
                let MappingItem { start, limit, offset, path, build_ids } = *mappings.get(id);
                (text(path), start, limit, offset, build_ids.map(|id| attributes.number(id)))
            };
            key(a).cmp(&key(b))
        });
        let locations = Order::of(&used_locations, |a, b| {
            let (a, b) = (locations.get(a), locations.get(b));
            let key = |l: &LocationItem| {
                (
                    mappings.number(l.mapping),
                    l.address,
                    l.attributes.map(|id| attributes.number(id)),
                )
            };
            let lines = |l: &LocationItem| -> Vec<(u32, u32)> {
                l.lines.iter().map(|&(function, line)| (functions.number(function), line)).collect()
            };
            key(a).cmp(&key(b)).then_with(|| lines(a).cmp(&lines(b)))
        });
        let stacks = Order::of(&used_stacks, |a, b| {
            let frames =
                |id: u32| stacks.get(id).iter().rev().map(|frame| locations.number(frame.0));
            frames(a).cmp(frames(b))
        });
        let links = Order::of(&used_links, |a, b| links.get(a).cmp(links.get(b)));
        Self { texts, strings, attributes, mappings, functions, locations, stacks, links }
    }
}

/// Strings that stand in the string table.
fn strings_used(
    builder: &Builder,
    common: &Common,
    functions: &Used,
    mappings: &Used,
    attributes: &Used,
) -> Used {
    let (kind, unit) = common.sample_type;
    let (period, period_unit) = common.period_type;
    let mut used = Used::of(&builder.strings, [kind, unit, period, period_unit]);
    for id in functions.ids() {
        let function = builder.functions.get(id);
        [function.name, function.system_name, function.file].iter().for_each(|&id| used.mark(id));
    }
    mappings.ids().for_each(|id| used.mark(builder.mappings.get(id).path));
    attributes.ids().for_each(|id| used.mark(builder.attributes.get(id).key));
    used
}

/// These, and the texts that stand where they are used.
fn texts_used(builder: &Builder, strings: &Used, attributes: &Used) -> Used {
    let mut used = Used(strings.0.clone());
    for id in attributes.ids() {
        if let AttributeValue::Text(text) = builder.attributes.get(id).value {
            used.mark(text);
        }
    }
    for process in builder.processes.iter() {
        used.mark(process.name);
        used.mark(process.path);
        for &(key, value) in &process.attributes {
            used.mark(key);
            used.mark(value);
        }
    }
    used
}

/// A sample's place in the packet: its process's, its stack, its attributes, its link.
type Place = (u32, u32, [u32; 4], u32);

/// One Resource with one Profile for each process that has samples.
fn resources(builder: &Builder, common: &Common, numbers: &Numbers, out: &mut Writer) {
    let used =
        Used::of(&builder.processes, builder.groups.iter().skip(1).map(|group| group.process));
    let text = |id: u32| numbers.texts.number(id);
    let processes = Order::of(&used, |a, b| {
        let (a, b) = (builder.processes.get(a), builder.processes.get(b));
        let labels = |list: &[(u32, u32)]| -> Vec<(u32, u32)> {
            list.iter().map(|&(key, value)| (text(key), text(value))).collect()
        };
        (a.pid, a.start_boot_ns, text(a.name), text(a.path))
            .cmp(&(b.pid, b.start_boot_ns, text(b.name), text(b.path)))
            .then_with(|| labels(&a.attributes).cmp(&labels(&b.attributes)))
    });
    let places: Vec<Place> = builder
        .groups
        .iter()
        .zip(&common.groups)
        .map(|(group, attributes)| {
            let mut attributes = attributes.map(|id| numbers.attributes.number(id));
            attributes.sort_unstable();
            let (stack, link) =
                (numbers.stacks.number(group.stack), numbers.links.number(group.link));
            (processes.number(group.process), stack, attributes, link)
        })
        .collect();
    let groups = Order::of(&Used::of(&builder.groups, 1..number(builder.groups.len())), |a, b| {
        item(&places, a).cmp(item(&places, b))
    });
    let mut events = builder.events.clone();
    events
        .sort_unstable_by_key(|event| (groups.number(event.group), event.at_unix_ns, event.value));
    let samples: Vec<&[Event]> = events.chunk_by(|a, b| a.group == b.group).collect();
    let place = |events: &&[Event]| events.first().map(|event| item(&places, event.group));
    let mut profile_attributes: Vec<u32> =
        common.attributes.iter().map(|&id| numbers.attributes.number(id)).collect();
    profile_attributes.sort_unstable();

    let of_processes = samples.chunk_by(|a, b| place(a).map(|p| p.0) == place(b).map(|p| p.0));
    for (samples, &process) in of_processes.zip(&processes.list) {
        out.message(1, |out| {
            out.message(1, |out| resource(builder, process, out));
            out.message(2, |out| {
                out.message(1, |out| {
                    out.text(1, "throughline");
                    out.text(2, env!("CARGO_PKG_VERSION"));
                });
                out.message(2, |out| {
                    value_type(1, common.sample_type, numbers, out);
                    for events in samples {
                        if let Some(place) = place(events) {
                            out.message(2, |out| sample(place, events, builder.kind, out));
                        }
                    }
                    out.fixed64(3, builder.window.begin_unix_ns);
                    out.uint(4, builder.window.duration_ns);
                    if common.period != 0 {
                        value_type(5, common.period_type, numbers, out);
                        out.uint(6, common.period);
                    }
                    out.blob(7, &[0; 16]);
                    out.packed(11, profile_attributes.iter().map(|&id| u64::from(id)));
                });
            });
        });
    }
}

fn value_type(field: u32, (kind, unit): (u32, u32), numbers: &Numbers, out: &mut Writer) {
    out.message(field, |out| {
        out.uint(1, numbers.strings.number(kind).into());
        out.uint(2, numbers.strings.number(unit).into());
    });
}

fn sample(
    (_, stack, attributes, link): &Place,
    events: &[Event],
    kind: SampleKind,
    out: &mut Writer,
) {
    out.uint(1, (*stack).into());
    let attributes = attributes.iter().skip_while(|id| **id == 0).copied();
    out.packed(2, attributes.map(u64::from).collect::<Vec<_>>().into_iter());
    out.uint(3, (*link).into());
    if kind == SampleKind::OffCpu {
        out.packed(4, events.iter().map(|event| event.value));
    }
    out.packed_fixed64(5, events.iter().map(|event| event.at_unix_ns));
}

fn resource(builder: &Builder, process: u32, out: &mut Writer) {
    let process = builder.processes.get(process);
    let text = |id: u32| &**builder.strings.get(id);
    let mut number = |key: &str, value: u64| {
        out.message(1, |out| {
            out.text(1, key);
            out.message(2, |out| out.uint_always(3, value));
        });
    };
    number(keys::PID, process.pid.into());
    number(keys::START_BOOT_NS, process.start_boot_ns);
    let named = [(keys::EXECUTABLE_NAME, process.name), (keys::EXECUTABLE_PATH, process.path)];
    let named =
        named.iter().filter(|(_, value)| *value != 0).map(|&(key, value)| (key, text(value)));
    let others = process.attributes.iter().map(|&(key, value)| (text(key), text(value)));
    for (key, value) in named.chain(others) {
        out.message(1, |out| {
            out.text(1, key);
            out.message(2, |out| out.blob(1, value.as_bytes()));
        });
    }
}

/// All tables; the zero value of each stands first.
fn dictionary(builder: &Builder, numbers: &Numbers, out: &mut Writer) {
    let some = |ids: &[u32], order: &Order| -> Vec<u64> {
        let mut numbers: Vec<u64> =
            ids.iter().filter(|id| **id != 0).map(|&id| order.number(id).into()).collect();
        numbers.sort_unstable();
        numbers
    };
    out.message(1, |_| ());
    for &id in &numbers.mappings.list {
        let mapping = builder.mappings.get(id);
        out.message(1, |out| {
            out.uint(1, mapping.start);
            out.uint(2, mapping.limit);
            out.uint(3, mapping.offset);
            out.uint(4, numbers.strings.number(mapping.path).into());
            out.packed(5, some(&mapping.build_ids, &numbers.attributes).into_iter());
        });
    }
    out.message(2, |_| ());
    for &id in &numbers.locations.list {
        let location = builder.locations.get(id);
        out.message(2, |out| {
            out.uint(1, numbers.mappings.number(location.mapping).into());
            out.uint(2, location.address);
            for &(function, line) in &location.lines {
                out.message(3, |out| {
                    out.uint(1, numbers.functions.number(function).into());
                    out.uint(2, line.into());
                });
            }
            out.packed(4, some(&location.attributes, &numbers.attributes).into_iter());
        });
    }
    out.message(3, |_| ());
    for &id in &numbers.functions.list {
        let function = builder.functions.get(id);
        out.message(3, |out| {
            out.uint(1, numbers.strings.number(function.name).into());
            out.uint(2, numbers.strings.number(function.system_name).into());
            out.uint(3, numbers.strings.number(function.file).into());
            out.uint(4, function.start_line.into());
        });
    }
    out.message(4, |out| {
        out.blob(1, &[0; 16]);
        out.blob(2, &[0; 8]);
    });
    for link in numbers.links.list.iter().filter_map(|&id| *builder.links.get(id)) {
        out.message(4, |out| {
            out.blob(1, &link.trace_id);
            out.blob(2, &link.span_id);
        });
    }
    out.blob(5, b"");
    for &id in &numbers.strings.list {
        out.blob(5, builder.strings.get(id).as_bytes());
    }
    out.message(6, |_| ());
    for &id in &numbers.attributes.list {
        let Attribute { key, value } = *builder.attributes.get(id);
        out.message(6, |out| {
            out.uint(1, numbers.strings.number(key).into());
            out.message(2, |out| match value {
                AttributeValue::Text(text) => out.blob(1, builder.strings.get(text).as_bytes()),
                AttributeValue::Number(value) => out.uint_always(3, value),
            });
        });
    }
    out.message(7, |_| ());
    for &id in &numbers.stacks.list {
        let frames = builder.stacks.get(id).iter();
        out.message(7, |out| {
            out.packed(1, frames.map(|frame| numbers.locations.number(frame.0).into()));
        });
    }
}
