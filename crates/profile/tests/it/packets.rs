//! What must hold of every packet, whatever is put into it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use profile::request::AttributeValue;
use profile::{
    AddError, BuildId, Builder, Control, Frame, FrameId, FrameKind, Limits, Line, Link, Mapping,
    Names, Packet, Process, Request, Sample, SampleKind, Status, Unnamed, Window, keys,
};

use crate::stream::{self, Stream};

const WINDOW: Window = Window { begin_unix_ns: 1_000, duration_ns: 5_000 };

/// A sample as small numbers, from which everything else is made.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Toy {
    process: u8,
    tid: u8,
    at: u16,
    value: u8,
    span: Option<u8>,
    frames: Vec<u8>,
    status: u8,
}

fn toy() -> impl Strategy<Value = Toy> {
    let frames = prop::collection::vec(0..24u8, 0..6);
    (0..5u8, 0..4u8, 0..5_000u16, 1..4u8, prop::option::weighted(0.2, 0..3u8), frames, 0..6u8)
        .prop_map(|(process, tid, at, value, span, frames, status)| Toy {
            process,
            tid,
            at,
            value,
            span,
            frames,
            status,
        })
}

const STATUSES: [Status; 6] = [
    Status::Root,
    Status::Truncated,
    Status::NoRow,
    Status::Fault,
    Status::NoMapping,
    Status::Interpreter,
];

fn add_frame(builder: &mut Builder, id: u8) -> FrameId {
    let name = format!("f{}", id / 2);
    let build_id = format!("{:040x}", id % 3);
    let outer = Line { function: &name, file: "a.c", line: u32::from(id), ..Line::default() };
    let inner = Line { function: "inlined", system_name: "_Zi", ..Line::default() };
    let ids = [BuildId::HtlHash("aa"), BuildId::Gnu(&build_id)];
    let mapping = Mapping {
        memory_start: 4_096,
        memory_limit: 8_192,
        file_offset: 0,
        path: "/lib/a",
        build_ids: if id.is_multiple_of(11) { &[] } else { &ids },
    };
    let frame = Frame {
        kind: if id.is_multiple_of(7) { FrameKind::Kernel } else { FrameKind::Native },
        mapping: (!id.is_multiple_of(5)).then_some(&mapping),
        address: u64::from(id) * 16,
        names: match id % 6 {
            0 if id.is_multiple_of(5) => Names::Unnamed(Unnamed::Anonymous),
            0 => Names::Unnamed(Unnamed::NoSymbol),
            1 => Names::Known(&[inner, outer]),
            _ => Names::Known(&[outer]),
        },
    };
    builder.frame(&frame).unwrap()
}

fn add(builder: &mut Builder, toy: &Toy, kind: SampleKind) {
    let name = format!("app{}", toy.process / 2);
    let process = Process {
        pid: u32::from(toy.process) + 1,
        start_boot_ns: 7,
        executable_name: &name,
        executable_path: "",
        attributes: &[("z", "1"), (keys::CONTAINER_ID, &name), ("z", "2"), (keys::PID, "ignored")],
    };
    let process = builder.process(&process).unwrap();
    let frames: Vec<FrameId> = toy.frames.iter().map(|&id| add_frame(builder, id)).collect();
    let link = toy.span.map(|span| Link { trace_id: [span + 1; 16], span_id: [span + 2; 8] });
    let sample = Sample {
        process,
        tid: toy.tid.into(),
        thread_name: if toy.tid == 0 { "" } else { "worker" },
        cpu: u32::from(toy.tid % 2),
        at_unix_ns: WINDOW.begin_unix_ns + u64::from(toy.at),
        value: if kind == SampleKind::OffCpu { toy.value.into() } else { 1 },
        link,
        frames: &frames,
        status: STATUSES[usize::from(toy.status)],
    };
    builder.add(&sample).unwrap();
}

const ON_CPU: SampleKind = SampleKind::OnCpu { period_ns: 100 };

fn packet<'a>(toys: impl IntoIterator<Item = &'a Toy>, kind: SampleKind) -> Packet {
    let mut builder = Builder::new(WINDOW, kind);
    builder.lost("ring_full", 3);
    builder.control(&Control {
        frequency_hz: 99,
        window_ns: 5_000,
        max_frames: 128,
        reason: "budget",
    });
    toys.into_iter().for_each(|toy| add(&mut builder, toy, kind));
    let most = builder.max_bytes();
    let packet = builder.finish();
    assert!(packet.bytes.len() <= most, "{} bytes, {most} were the most", packet.bytes.len());
    packet
}

/// Every event of a request, said in full by text, with how often it is there.
fn events(bytes: &[u8]) -> BTreeMap<String, usize> {
    let request = Request::decode(bytes, Limits::default()).unwrap();
    let d = &request.dictionary;
    let say = |attributes: &[u32]| {
        let mut all: Vec<_> = d.attributes_of(attributes).collect();
        all.sort_by_key(|(key, _)| *key);
        format!("{all:?}")
    };
    let mut events = BTreeMap::new();
    for resource in &request.resources {
        for profile in &resource.profiles {
            let kind = d.string(profile.sample_type.kind);
            for sample in &profile.samples {
                let frames: Vec<String> = d
                    .stack(sample.stack)
                    .map(|location| {
                        let lines = location.lines.iter().map(|line| {
                            let f = d.functions[line.function as usize];
                            let [name, system, file] =
                                [f.name, f.system_name, f.file].map(|s| d.string(s));
                            format!("{name} {system} {file} {} {}", f.start_line, line.line)
                        });
                        let lines = lines.collect::<Vec<_>>();
                        let m = &d.mappings[location.mapping as usize];
                        let mapping = format!(
                            "{} {} {}",
                            d.string(m.path),
                            m.memory_start,
                            say(&m.attributes)
                        );
                        format!(
                            "{mapping} {} {lines:?} {}",
                            location.address,
                            say(&location.attributes)
                        )
                    })
                    .collect();
                let link = d.links[sample.link as usize];
                for event in sample.events() {
                    let attributes = say(&sample.attributes);
                    let said = format!(
                        "{:?} {kind} {frames:?} {attributes} {link:?} {event:?}",
                        resource.attributes
                    );
                    *events.entry(said).or_default() += 1;
                }
            }
        }
    }
    events
}

fn merge(into: &mut BTreeMap<String, usize>, from: BTreeMap<String, usize>) {
    for (event, count) in from {
        *into.entry(event).or_default() += count;
    }
}

proptest! {
    #[test]
    fn order_does_not_show(
        toys in prop::collection::vec(toy(), 1..40).prop_flat_map(|toys| (Just(toys.clone()), Just(toys).prop_shuffle())),
        off_cpu: bool,
    ) {
        let (toys, shuffled) = toys;
        let kind = if off_cpu { SampleKind::OffCpu } else { ON_CPU };
        prop_assert_eq!(packet(&toys, kind), packet(&shuffled, kind));
    }

    #[test]
    fn frames_and_processes_without_samples_do_not_show(
        toys in prop::collection::vec(toy(), 1..20),
        more in prop::collection::vec(0..24u8, 1..20),
    ) {
        let mut builder = Builder::new(WINDOW, ON_CPU);
        for id in more {
            add_frame(&mut builder, id);
            let process = Process {
                pid: 500 + u32::from(id),
                start_boot_ns: 0,
                executable_name: "unused",
                executable_path: "/unused",
                attributes: &[("key", "unused")],
            };
            builder.process(&process).unwrap();
        }
        let mut plain = Builder::new(WINDOW, ON_CPU);
        for toy in &toys {
            add(&mut builder, toy, ON_CPU);
            add(&mut plain, toy, ON_CPU);
        }
        prop_assert_eq!(builder.finish(), plain.finish());
    }

    #[test]
    fn every_packet_is_right_alone(toys in prop::collection::vec(toy(), 1..40), off_cpu: bool) {
        let packet = packet(&toys, if off_cpu { SampleKind::OffCpu } else { ON_CPU });
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        prop_assert_eq!(request.check(), []);
        prop_assert_eq!(request.losses(), [("ring_full".to_owned(), 3)]);
        prop_assert_eq!(events(&packet.bytes).values().sum::<usize>(), toys.len());
        prop_assert_eq!(profile::packet_id(&packet.bytes).unwrap(), packet.id);
        prop_assert_eq!(profile::ungzip(&packet.gzip(), Limits::default()).unwrap(), packet.bytes);
    }

    /// The samples of a packet are those of its samples in packets of their own.
    #[test]
    fn packets_hold_what_was_added(toys in prop::collection::vec(toy(), 1..30), off_cpu: bool) {
        let kind = if off_cpu { SampleKind::OffCpu } else { ON_CPU };
        let mut apart = BTreeMap::new();
        for toy in &toys {
            merge(&mut apart, events(&packet([toy], kind).bytes));
        }
        prop_assert_eq!(events(&packet(&toys, kind).bytes), apart);
    }

    /// Shuffled, duplicated and dropped, packets give the samples of those that came, each once.
    #[test]
    fn s2_packets_need_no_order_and_duplicates_are_known(
        windows in prop::collection::vec(prop::collection::vec(toy(), 1..8), 1..8),
        arrivals in prop::collection::vec(any::<prop::sample::Index>(), 0..16),
    ) {
        let mut seen = BTreeMap::new();
        let packets: Vec<Packet> = windows.iter().map(|toys| packet(toys, ON_CPU)).collect();
        let mut got = BTreeMap::new();
        let mut expected = BTreeMap::new();
        for arrival in arrivals {
            let at = arrival.index(packets.len());
            let request = Request::decode(&packets[at].bytes, Limits::default()).unwrap();
            if seen.insert(request.packet_id().unwrap(), at).is_none() {
                merge(&mut got, events(&packets[at].bytes));
            }
        }
        let mut came: Vec<&[Toy]> = seen.values().map(|&at| windows[at].as_slice()).collect();
        came.sort();
        for toys in came {
            for toy in toys {
                merge(&mut expected, events(&packet([toy], ON_CPU).bytes));
            }
        }
        prop_assert_eq!(got, expected);
    }

    /// A packet of which a byte was changed is no packet, or not the one that its id says.
    #[test]
    fn a_changed_byte_is_noticed(at: prop::sample::Index, bit in 0..8u32) {
        let toys = [Toy { process: 1, tid: 1, at: 9, value: 1, span: None, frames: vec![1, 2, 3], status: 0 }];
        let mut bytes = packet(&toys, ON_CPU).bytes;
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(request) = Request::decode(&bytes, Limits::default()) {
            let said = request.packet_id();
            let is = profile::packet_id(&bytes).unwrap();
            let profile = request.resources.iter().flat_map(|r| &r.profiles).next();
            let place = profile.map(|p| p.profile_id.get(12..) != Some(&[0, 0, 0, 1]));
            prop_assert!(said != Some(is) || place == Some(true));
            drop(request.check());
        }
    }

    #[test]
    fn cut_and_damaged_bytes_are_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = Request::decode(&bytes, Limits::default()) {
            drop(request.check());
        }
    }
}

#[test]
fn real_proportions_are_right_alone() {
    let stream = Stream::like_a_real_one();
    let window = Window { begin_unix_ns: stream::BEGIN, duration_ns: 5_000_000_000 };
    let mut builder = Builder::new(window, ON_CPU);
    for event in stream.events.iter().filter(|event| event.at < window.duration_ns) {
        let owner = &stream.processes[event.process];
        let process = owner.with(|process| builder.process(process)).unwrap();
        let stack = &stream.stacks[event.stack];
        let frames: Vec<_> =
            stack.iter().map(|&at| stream.frame(&mut builder, at, at % 2 == 0)).collect();
        let sample = Sample {
            process,
            tid: event.tid,
            thread_name: &owner.name,
            cpu: event.cpu,
            at_unix_ns: stream::BEGIN + event.at,
            value: 1,
            link: None,
            frames: &frames,
            status: Status::Root,
        };
        builder.add(&sample).unwrap();
    }
    let (most, samples) = (builder.max_bytes(), builder.samples());
    let packet = builder.finish();
    assert!(
        packet.bytes.len() <= most && most < 6 * packet.bytes.len(),
        "{most} for {}",
        packet.bytes.len()
    );
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    assert_eq!(request.check(), []);
    assert_eq!(packet.samples, samples);
    let found: usize = request
        .resources
        .iter()
        .flat_map(|r| &r.profiles)
        .flat_map(|p| &p.samples)
        .map(|s| s.times_unix_ns.len())
        .sum();
    assert_eq!(found, samples);
}

#[test]
fn the_same_bytes_as_ever() {
    let toys = [Toy {
        process: 1,
        tid: 1,
        at: 9,
        value: 1,
        span: Some(1),
        frames: vec![1, 2, 6],
        status: 1,
    }];
    let id = packet(&toys, ON_CPU).id;
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "79a317d7d55c7b93bc1f2ded");
}

/// The window's begin is no whole number of steps, and no time may lie before it.
#[test]
fn times_are_whole_steps_inside_the_window() {
    let window = Window { begin_unix_ns: 1_000_000, duration_ns: 5_000 };
    let mut builder = Builder::new(window, ON_CPU);
    let process = Process {
        pid: 1,
        start_boot_ns: 0,
        executable_name: "a",
        executable_path: "",
        attributes: &[],
    };
    let process = builder.process(&process).unwrap();
    for at_unix_ns in [1_000_001, 1_000_447, 1_000_448, 1_004_999] {
        builder
            .add(&Sample {
                process,
                tid: 1,
                thread_name: "",
                cpu: 0,
                at_unix_ns,
                value: 1,
                link: None,
                frames: &[],
                status: Status::Root,
            })
            .unwrap();
    }
    let packet = builder.finish();
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    assert_eq!(request.check(), []);
    let times = &request.resources[0].profiles[0].samples[0].times_unix_ns;
    assert_eq!(times[..], [1_000_000, 1_000_000, 1_000_448, 1_004_544]);
}

#[test]
fn what_does_not_belong_is_refused() {
    let mut builder = Builder::new(WINDOW, ON_CPU);
    let process = Process {
        pid: 1,
        start_boot_ns: 0,
        executable_name: "a",
        executable_path: "",
        attributes: &[],
    };
    let process = builder.process(&process).unwrap();
    let frame = add_frame(&mut builder, 1);
    let right = Sample {
        process,
        tid: 1,
        thread_name: "",
        cpu: 0,
        at_unix_ns: 5_999,
        value: 1,
        link: None,
        frames: &[frame],
        status: Status::Root,
    };
    let deep = vec![frame; profile::MAX_STACK_FRAMES + 1];
    builder.add(&right).unwrap();
    let mut refused = |sample| builder.add(&sample).unwrap_err();
    assert_eq!(
        refused(Sample { at_unix_ns: 6_000, ..right }),
        AddError::OutsideWindow { at_unix_ns: 6_000 }
    );
    assert_eq!(
        refused(Sample { at_unix_ns: 999, ..right }),
        AddError::OutsideWindow { at_unix_ns: 999 }
    );
    assert_eq!(refused(Sample { value: 2, ..right }), AddError::Value { value: 2 });
    assert_eq!(
        refused(Sample { frames: &deep, ..right }),
        AddError::TooDeep { frames: deep.len() }
    );
    let mut other = Builder::new(WINDOW, ON_CPU);
    assert_eq!(other.add(&right), Err(AddError::ForeignId));
    assert_eq!(builder.finish().samples, 1);
}

#[test]
fn a_full_packet_says_so_and_can_be_read() {
    let mut builder = Builder::new(WINDOW, ON_CPU);
    let long = "x".repeat(3 * profile::MAX_TEXT_BYTES);
    let mut names = 0;
    let refused = loop {
        let name = format!("{names}{long}");
        let line = Line { function: &name, ..Line::default() };
        let frame = Frame {
            kind: FrameKind::Jvm,
            mapping: None,
            address: names,
            names: Names::Known(&[line]),
        };
        let added = builder.frame(&frame).and_then(|frame| {
            let process = Process {
                pid: 1,
                start_boot_ns: 0,
                executable_name: "a",
                executable_path: "",
                attributes: &[],
            };
            let process = builder.process(&process)?;
            builder.add(&Sample {
                process,
                tid: 1,
                thread_name: "",
                cpu: 0,
                at_unix_ns: 1_000,
                value: 1,
                link: None,
                frames: &[frame],
                status: Status::Root,
            })
        });
        match added {
            Ok(()) => names += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused, AddError::Full);
    let packet = builder.finish();
    assert!(
        packet.bytes.len() <= profile::MAX_PACKET_BYTES
            && packet.bytes.len() > profile::MAX_PACKET_BYTES / 2
    );
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    assert_eq!(request.check(), []);
    let cut = request.dictionary.strings.iter().filter(|text| text.ends_with(profile::CUT)).count();
    assert_eq!(cut as u64, names);
}

/// Whoever kept its number would not have asked: that nobody did may not end a packet earlier.
#[test]
fn s3_a_frame_that_is_known_is_given_again_however_full_the_packet_is() {
    let mut builder = Builder::new(WINDOW, ON_CPU);
    let mut frame = |address: u64| {
        let name = format!("{address}{}", "n".repeat(100_000));
        let line = Line { function: &name, ..Line::default() };
        let names = Names::Known(&[line]);
        builder.frame(&Frame { kind: FrameKind::Native, mapping: None, address, names })
    };
    let known: Vec<_> = (0..).map_while(|address| frame(address).ok()).collect();
    assert!(known.len() > 1000, "{}", known.len());
    let again = known.len() as u64;
    assert_eq!(frame(again + 1), Err(AddError::Full));
    let given: Vec<_> = (0..again).map(|address| frame(address).unwrap()).collect();
    assert_eq!(given, known);
}

#[test]
fn attributes_are_those_of_the_conventions() {
    let toys =
        [Toy { process: 1, tid: 1, at: 9, value: 1, span: Some(1), frames: vec![1], status: 1 }];
    let bytes = packet(&toys, ON_CPU).bytes;
    let request = Request::decode(&bytes, Limits::default()).unwrap();
    let d = &request.dictionary;
    let resource = &request.resources[0];
    assert_eq!(resource.find(d, "process.pid"), Some(AttributeValue::Int(2)));
    assert_eq!(resource.find_text(d, "process.executable.name"), Some("app0"));
    assert_eq!(resource.find_text(d, "z"), Some("2"));
    let profile = &resource.profiles[0];
    assert_eq!(d.string(profile.sample_type.kind), "samples");
    assert_eq!(d.string(profile.period_type.unit), "nanoseconds");
    assert_eq!(profile.period, 100);
    assert_eq!(
        d.find(&profile.attributes, "throughline.control.frequency_hz"),
        Some(AttributeValue::Int(99))
    );
    let sample = &profile.samples[0];
    assert_eq!(d.find(&sample.attributes, "thread.id"), Some(AttributeValue::Int(1)));
    assert_eq!(d.find_text(&sample.attributes, "thread.name"), Some("worker"));
    assert_eq!(d.find(&sample.attributes, "cpu.logical_number"), Some(AttributeValue::Int(1)));
    assert_eq!(d.find_text(&sample.attributes, "throughline.stack.status"), Some("truncated"));
    assert_eq!(d.links[sample.link as usize].trace_id, [2; 16]);
}
