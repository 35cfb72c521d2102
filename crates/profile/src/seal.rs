//! From a builder's values to the bytes of a packet.
//!
//! Each table is numbered by content, so the order in which samples came does not show. Only what a sample reaches is
//! numbered: there are no orphans.
//!
//! The orders are chosen so that neighbours look alike, which is what a compressor finds: locations by mapping and address,
//! functions and then strings by the locations that name them first, stacks by their frames from the root, so that one ends
//! as the one before, samples by thread and stack.

mod order;

use std::cmp::Ordering;

use sha2::{Digest as _, Sha256};

use self::order::{Numbers, Order, Used};
use crate::builder::{Attribute, AttributeValue, Builder, Group, Word};
use crate::keys;
use crate::model::SampleKind;
use crate::packet::{Packet, PacketId};
use model::intern::item;
use wire::proto::Writer;

pub(crate) fn seal(builder: &mut Builder) -> Packet {
    let common = Common::of(builder);
    let numbers = Numbers::of(builder, &common);
    let mut out = Writer { bytes: Vec::with_capacity(128 * builder.events.len() + 4_096) };
    let places = resources(builder, &common, &numbers, &mut out);
    out.message(2, |out| dictionary(builder, &numbers, out));
    let mut bytes = out.bytes;
    let id = sign(&mut bytes, places);
    let begin_unix_ns = builder.window.begin_unix_ns;
    Packet { id, bytes, begin_unix_ns, kind: builder.kind, samples: builder.events.len() }
}

/// Names the packet after its content and writes the name into the places for the ids of its profiles.
fn sign(bytes: &mut [u8], places: Vec<usize>) -> PacketId {
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
    /// Whether samples were lost.
    is_lossy: bool,
    sample_type: (u32, u32),
    period_type: (u32, u32),
    period: u64,
    attributes: Vec<u32>,
    /// For each group: thread number, thread name (or 0), CPU, status.
    groups: Vec<[u32; 4]>,
}

impl Common {
    fn of(builder: &mut Builder) -> Self {
        let nanoseconds = builder.strings.intern(keys::NANOSECONDS);
        let (sample_type, period_type, period) = match builder.kind {
            SampleKind::OnCpu { period_ns } => (
                (builder.strings.intern(keys::SAMPLES), builder.strings.intern(keys::COUNT)),
                (builder.strings.intern(keys::CPU_TIME), nanoseconds),
                period_ns,
            ),
            SampleKind::OffCpu => ((builder.strings.intern(keys::OFF_CPU), nanoseconds), (0, 0), 0),
        };
        let is_lossy = !builder.lost.is_empty();
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
        let groups = groups(builder);
        Self { is_lossy, sample_type, period_type, period, attributes, groups }
    }
}

/// For each group: CPU, thread number, thread name (or 0), status.
fn groups(builder: &mut Builder) -> Vec<[u32; 4]> {
    let [tid_key, name_key, cpu_key] =
        [keys::THREAD_ID, keys::THREAD_NAME, keys::CPU].map(|key| builder.strings.intern(key));
    let attributes = &mut builder.attributes;
    let mut attribute = |key, value| attributes.intern(Attribute { key, value });
    let threads: Vec<[u32; 2]> = builder
        .threads
        .iter()
        .map(|&(tid, name)| {
            let name = match name {
                0 => 0,
                name => attribute(name_key, AttributeValue::Text(name)),
            };
            [attribute(tid_key, AttributeValue::Number(tid.into())), name]
        })
        .collect();
    let all: Vec<Group> = builder.groups.iter().copied().collect();
    all.iter()
        .map(|group| {
            let [tid, name] = *item(&threads, group.thread);
            let cpu = AttributeValue::Number(group.cpu.into());
            let cpu = builder.attributes.intern(Attribute { key: cpu_key, value: cpu });
            [cpu, tid, name, builder.word(Word::Status(group.status))]
        })
        .collect()
}

/// A sample's place in the packet: its process's, its attributes, its stack, its link.
type Place = (u32, [u32; 4], u32, u32);

/// One Resource with one Profile for each process that has samples, or for the machine when all were lost. Gives where the ids
/// of the profiles stand.
fn resources(
    builder: &Builder,
    common: &Common,
    numbers: &Numbers,
    out: &mut Writer,
) -> Vec<usize> {
    let processes = processes(builder);
    let of_groups: Vec<Place> = builder
        .groups
        .iter()
        .zip(&common.groups)
        .map(|(group, attributes)| {
            let mut attributes = attributes.map(|id| numbers.attributes.number(id));
            attributes.sort_unstable();
            let (stack, link) =
                (numbers.stacks.number(group.stack), numbers.links.number(group.link));
            (processes.number(group.process), attributes, stack, link)
        })
        .collect();
    let groups = Order::by(&Used::all(builder.groups.len()), |a, b| {
        item(&of_groups, a).cmp(item(&of_groups, b))
    });
    // Place of the group, time, value.
    let mut events: Vec<(u32, u64, u64)> = builder
        .events
        .iter()
        .map(|event| (groups.number(event.group), event.at_unix_ns, event.value))
        .collect();
    events.sort_unstable();
    let mut profile_attributes: Vec<u32> =
        common.attributes.iter().map(|&id| numbers.attributes.number(id)).collect();
    profile_attributes.sort_unstable();

    let mut samples = groups
        .list
        .iter()
        .map(|&group| item(&of_groups, group))
        .zip(events.chunk_by(|a, b| a.0 == b.0))
        .peekable();
    let machine = [0];
    let whose = match processes.list.as_slice() {
        [] if common.is_lossy => machine.as_slice(),
        processes => processes,
    };
    let mut places = Vec::with_capacity(whose.len());
    for (at, &process) in (1..).zip(whose) {
        // What stands before the id moves when lengths are written; what stands behind it does not change.
        let mut behind_id = 0;
        out.message(1, |out| {
            out.message(1, |out| resource(builder, process, out));
            out.message(2, |out| {
                out.message(1, |out| {
                    out.text(1, "throughline");
                    out.text(2, env!("CARGO_PKG_VERSION"));
                });
                out.message(2, |out| {
                    value_type(1, common.sample_type, numbers, out);
                    while let Some((place, events)) = samples.next_if(|(place, _)| place.0 == at) {
                        out.message(2, |out| sample(place, events, builder.kind, out));
                    }
                    out.fixed64(3, builder.window.begin_unix_ns);
                    out.uint(4, builder.window.duration_ns);
                    if common.period != 0 {
                        value_type(5, common.period_type, numbers, out);
                        out.uint(6, common.period);
                    }
                    out.blob(7, &[0; 16]);
                    let id_end = out.bytes.len();
                    out.packed(11, profile_attributes.iter().map(|&id| u64::from(id)));
                    behind_id = out.bytes.len() - id_end;
                });
            });
        });
        places.push(out.bytes.len() - behind_id - 16);
    }
    places
}

/// The processes that have samples.
fn processes(builder: &Builder) -> Order {
    let used = Used::of(builder.processes.len(), builder.groups.iter().map(|group| group.process));
    let text = |id: u32| builder.strings.get(id);
    let labels = |list: &[(u32, u32)], other: &[(u32, u32)]| -> Ordering {
        let texts = |&(key, value): &(u32, u32)| (text(key), text(value));
        list.iter().map(texts).cmp(other.iter().map(texts))
    };
    Order::by(&used, |a, b| {
        let (a, b) = (builder.processes.get(a), builder.processes.get(b));
        (a.pid, a.start_boot_ns, text(a.name), text(a.path))
            .cmp(&(b.pid, b.start_boot_ns, text(b.name), text(b.path)))
            .then_with(|| labels(builder.labels.get(a.labels), builder.labels.get(b.labels)))
    })
}

fn value_type(field: u32, (kind, unit): (u32, u32), numbers: &Numbers, out: &mut Writer) {
    out.message(field, |out| {
        out.uint(1, numbers.strings.number(kind).into());
        out.uint(2, numbers.strings.number(unit).into());
    });
}

fn sample(
    (_, attributes, stack, link): &Place,
    events: &[(u32, u64, u64)],
    kind: SampleKind,
    out: &mut Writer,
) {
    out.uint(1, (*stack).into());
    out.packed(2, attributes.iter().filter(|id| **id != 0).map(|&id| id.into()));
    out.uint(3, (*link).into());
    if kind == SampleKind::OffCpu {
        out.packed(4, events.iter().map(|(_, _, value)| *value));
    }
    out.packed_fixed64(5, events.iter().map(|(_, at_unix_ns, _)| *at_unix_ns));
}

/// Of a process, or of the machine, which has number 0.
fn resource(builder: &Builder, process: u32, out: &mut Writer) {
    if process == 0 {
        labels(builder, builder.machine, out);
        return;
    }
    let process = builder.processes.get(process);
    let text = |id: u32| builder.strings.get(id);
    let mut number = |key: &str, value: u64| {
        out.message(1, |out| {
            out.text(1, key);
            out.message(2, |out| out.uint_always(3, value));
        });
    };
    number(keys::PID, process.pid.into());
    number(keys::START_BOOT_NS, process.start_boot_ns);
    let named = [(keys::EXECUTABLE_NAME, process.name), (keys::EXECUTABLE_PATH, process.path)];
    for (key, value) in named.into_iter().filter(|(_, value)| *value != 0) {
        label(key, text(value), out);
    }
    labels(builder, process.labels, out);
}

fn labels(builder: &Builder, labels: u32, out: &mut Writer) {
    let text = |id: u32| builder.strings.get(id);
    for &(key, value) in builder.labels.get(labels) {
        label(text(key), text(value), out);
    }
}

fn label(key: &str, value: &str, out: &mut Writer) {
    out.message(1, |out| {
        out.text(1, key);
        out.message(2, |out| out.blob(1, value.as_bytes()));
    });
}

/// All tables; the zero value of each stands first.
fn dictionary(builder: &Builder, numbers: &Numbers, out: &mut Writer) {
    let some = |ids: [u32; 3]| {
        let mut attributes = ids.map(|id| numbers.attributes.number(id));
        attributes.sort_unstable();
        attributes.into_iter().filter(|id| *id != 0).map(u64::from)
    };
    out.message(1, |_| ());
    for &id in &numbers.mappings.list {
        let mapping = builder.mappings.get(id);
        out.message(1, |out| {
            out.uint(1, mapping.start);
            out.uint(2, mapping.limit);
            out.uint(3, mapping.offset);
            out.uint(4, numbers.strings.number(mapping.path).into());
            out.packed(5, some(mapping.build_ids));
        });
    }
    out.message(2, |_| ());
    for &id in &numbers.locations.list {
        let location = builder.locations.get(id);
        out.message(2, |out| {
            out.uint(1, numbers.mappings.number(location.mapping).into());
            out.uint(2, location.address);
            for &(function, line) in builder.lines.get(location.lines) {
                out.message(3, |out| {
                    out.uint(1, numbers.functions.number(function).into());
                    out.uint(2, line.into());
                });
            }
            out.packed(4, some(location.attributes));
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
