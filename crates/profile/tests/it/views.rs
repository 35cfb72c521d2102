//! What views show of packets.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use profile::view::{self, Weights};
use profile::{
    Builder, Frame, FrameKind, Limits, Line, Mapping, Names, Packet, Process, Request, Sample,
    SampleKind, Status, TIME_STEP_NS, Unnamed, Window,
};

/// Stacks by name, root first, of one process; `k:` before a kernel's, `i:` before what is inlined into the one before, `?` for a frame without name.
fn packet(stacks: &[(&str, u64)], period_ns: u64, begin_unix_ns: u64) -> Packet {
    let window = Window { begin_unix_ns, duration_ns: 1_000 * TIME_STEP_NS };
    let mut builder = Builder::new(window, SampleKind::OnCpu { period_ns });
    builder.lost("ring_full", 2);
    let process = Process {
        pid: 7,
        start_boot_ns: 1,
        executable_name: "app",
        executable_path: "/bin/app",
        attributes: &[],
    };
    let process = builder.process(&process).unwrap();
    let mapping = Mapping {
        memory_start: 0x1000,
        memory_limit: 0x9000,
        file_offset: 0,
        path: "/lib/a.so",
        build_ids: &[profile::BuildId::Gnu("abcd")],
    };
    for (at, (stack, count)) in (0..).zip(stacks) {
        let mut frames = Vec::new();
        let names: Vec<&str> = stack.split(';').collect();
        let mut rest = names.as_slice();
        while let Some((outer, tail)) = rest.split_first() {
            let inlined = tail.iter().take_while(|name| name.starts_with("i:")).count();
            let lines = [&[*outer], &tail[..inlined]].concat();
            let lines: Vec<Line<'_>> = lines
                .iter()
                .rev()
                .map(|name| Line {
                    function: name.trim_start_matches("i:").trim_start_matches("k:"),
                    file: "a.c",
                    line: 3,
                    ..Line::default()
                })
                .collect();
            let frame = Frame {
                kind: if outer.starts_with("k:") { FrameKind::Kernel } else { FrameKind::Native },
                mapping: Some(&mapping),
                address: 0x1234,
                names: match *outer {
                    "?" => Names::Unnamed(Unnamed::NoSymbol),
                    _ => Names::Known(&lines),
                },
            };
            frames.push(builder.frame(&frame).unwrap());
            rest = &tail[inlined..];
        }
        frames.reverse();
        for tick in 0..*count {
            let sample = Sample {
                process,
                tid: 7,
                thread_name: "worker",
                cpu: 0,
                at_unix_ns: begin_unix_ns + (10 * at + tick) * TIME_STEP_NS,
                value: 1,
                link: None,
                frames: &frames,
                status: if names.len() > 3 { Status::Truncated } else { Status::Root },
            };
            builder.add(&sample).unwrap();
        }
    }
    builder.finish()
}

const STACKS: &[(&str, u64)] =
    &[("main;work;i:fast", 3), ("main", 1), ("main;work;k:read;k:copy", 2), ("main;?", 1)];

fn weights<'p>(packets: impl IntoIterator<Item = &'p Packet>) -> Weights {
    let mut weights = Weights::new();
    for packet in packets {
        weights.add(&Request::decode(&packet.bytes, Limits::default()).unwrap());
    }
    weights
}

#[test]
fn folded_lines_add_up_over_packets_of_different_frequency() {
    let packets = [packet(STACKS, 1_000_000, 0), packet(&STACKS[..1], 2_000_000, 5_000)];
    let expected = "app;main 1000000\n\
                    app;main;a.so+0x1234 1000000\n\
                    app;main;work;read_[k];copy_[k] 2000000\n\
                    app;main;work;fast_[i] 9000000\n";
    let mut lines: Vec<&str> = expected.lines().collect();
    lines.sort_unstable();
    let folded = view::folded(&weights(&packets));
    let mut found: Vec<&str> = folded.lines().collect();
    found.sort_unstable();
    assert_eq!(found, lines);
}

#[test]
fn a_packet_that_comes_twice_counts_once() {
    let packets =
        [packet(STACKS, 1_000_000, 0), packet(STACKS, 1_000_000, 0), packet(STACKS, 1_000_000, 9)];
    let weights = weights(&packets);
    assert_eq!(weights.samples(), 14);
    assert_eq!(weights.lost(), &BTreeMap::from([("ring_full".to_owned(), 4)]));
}

#[test]
fn names_do_not_break_folded_lines() {
    let folded = view::folded(&weights([&packet(&[("a\nb c", 1)], 5, 0)]));
    assert_eq!(folded, "app;a b c 5\n");
}

#[test]
fn the_hottest_functions_and_stacks_come_first_leaf_up() {
    let text = view::hottest(&weights([&packet(STACKS, 1_000_000, 0)]), 1, 60);
    assert_eq!(
        text,
        "7.0 ms of cpu in 7 samples, 4 stacks, 71.4 % of the samples to the root\n\
         lost: 2 samples (ring_full)\n\
         \n\
         \x20             self               total  function\n\
         \x2042.9 %     3.0 ms   42.9 %     3.0 ms  fast  (a.so)\n\
         \n\
         \x2042.9 %     3.0 ms  app\n\
         \x20                   fast  (inlined)\n\
         \x20                   work\n\
         \x20                   main\n"
    );
    let narrow =
        view::hottest(&weights([&packet(&[("a_function_with_a_long_name", 1)], 5, 0)]), 9, 30);
    assert!(narrow.lines().skip(2).all(|line| line.chars().count() <= 30), "{narrow}");
    assert_eq!(view::hottest(&Weights::new(), 10, 80).lines().count(), 1);
}

#[test]
fn functions_count_recursion_once() {
    let costs = view::functions(&weights([&packet(&[("main;f;g;f", 4), ("main;f", 1)], 1, 0)]));
    let cost = |name: &str| {
        let found = costs.iter().find(|((function, _), _)| function == name).unwrap();
        (found.1.self_value, found.1.total)
    };
    assert_eq!([cost("main"), cost("f"), cost("g")], [(0, 5), (5, 5), (0, 4)]);
    assert_eq!(costs.len(), 3);
}

#[test]
fn diff_names_what_changed_most() {
    let before = weights([&packet(&[("main;a", 8), ("main;b", 2)], 1_000_000, 0)]);
    let after = weights([&packet(&[("main;a", 8), ("main;c", 12)], 1_000_000, 0)]);
    let changes = view::diff(&before, &after);
    let names: Vec<&str> = changes.iter().map(|change| change.function.0.as_str()).collect();
    assert_eq!(names, ["c", "b", "main"]);
    assert_eq!((changes[0].before.self_value, changes[0].after.total), (0, 12_000_000));
    let text = view::diff_text(&before, &after, 9);
    let line = text.lines().find(|line| line.ends_with("  c")).unwrap();
    assert_eq!(
        line.split_whitespace().collect::<Vec<_>>(),
        ["+12.0", "ms", "+60.00", "+12.0", "ms", "+60.00", "c"]
    );
    assert_eq!(view::diff(&before, &before), []);
}

#[test]
fn the_page_holds_every_stack_and_no_markup_of_names() {
    let hostile = "</script><img src=x>";
    let packets = [packet(STACKS, 1_000_000, 0), packet(&[(hostile, 1)], 1_000_000, 9)];
    let page = view::flame_graph(&weights(&packets), "{{script}} <b>");
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("</script>").count(), 2);
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(data["title"], "{{script}} <b>");
    let nodes = data["nodes"].as_array().unwrap();
    let selves: i64 = nodes.chunks(3).map(|node| node[2].as_i64().unwrap()).sum();
    assert_eq!(selves, 8_000_000);
    let names: Vec<String> = nodes
        .chunks(3)
        .map(|node| {
            let label = usize::try_from(node[0].as_i64().unwrap()).unwrap();
            format!("{} {}", node[1], data["labels"][label][0].as_str().unwrap())
        })
        .collect();
    // Each node once: main's children are joined below it.
    assert_eq!(names.iter().filter(|name| *name == "1 main").count(), 1);
    assert_eq!(nodes.len() / 3, 8, "{names:?}");
    assert!(!page.contains("://"), "nothing is loaded from elsewhere");
}

#[test]
fn firefox_threads_hold_each_sample_at_its_time() {
    let packet = packet(STACKS, 1_000_000, 5_000 * TIME_STEP_NS);
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    let text = view::firefox(&[request.clone(), request]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["meta"]["preprocessedProfileVersion"], 48);
    let threads = json["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 1);
    let thread = &threads[0];
    assert_eq!(thread["name"], "worker");
    assert_eq!(thread["samples"]["length"], 7);
    let index = |value: &serde_json::Value| value.as_u64().map(|at| usize::try_from(at).unwrap());
    let named = |sample: usize| {
        let mut names = Vec::new();
        let mut stack = index(&thread["samples"]["stack"][sample]);
        while let Some(at) = stack {
            let frame = index(&thread["stackTable"]["frame"][at]).unwrap();
            let function = index(&thread["frameTable"]["func"][frame]).unwrap();
            let name = index(&thread["funcTable"]["name"][function]).unwrap();
            names.push(thread["stringArray"][name].as_str().unwrap());
            stack = index(&thread["stackTable"]["prefix"][at]);
        }
        names
    };
    assert_eq!(named(0), ["fast", "work", "main"]);
    assert_eq!(named(6), ["a.so+0x1234", "main"]);
    assert_eq!(thread["samples"]["time"][1].as_f64(), Some(0.001_024));
    for table in ["stackTable", "frameTable", "funcTable", "samples"] {
        let table = thread[table].as_object().unwrap();
        let length = index(&table["length"]).unwrap();
        for (name, column) in table.iter().filter(|(_, column)| column.is_array()) {
            assert_eq!(column.as_array().unwrap().len(), length, "{name}");
        }
    }
}

/// `go tool pprof` itself where there is one.
#[test]
fn pprof_reads_what_is_written_for_it() {
    let packet = packet(STACKS, 1_000_000, 0);
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    let bytes = view::pprof(&[request.clone(), request]);
    let plain = profile::ungzip(&bytes, Limits::default()).unwrap();
    let fields = fields(&plain);
    let texts: Vec<&[u8]> =
        fields.iter().filter(|(field, _)| *field == 6).map(|(_, bytes)| *bytes).collect();
    assert_eq!(texts[0], b"");
    for text in [
        "main",
        "fast",
        "copy",
        "/lib/a.so",
        "abcd",
        "thread.id",
        "worker",
        "a.c",
        "cpu",
        "nanoseconds",
    ] {
        assert!(texts.contains(&text.as_bytes()), "{text}");
    }
    assert_eq!(fields.iter().filter(|(field, _)| *field == 2).count(), 4, "samples");
    assert_eq!(fields.iter().filter(|(field, _)| *field == 3).count(), 1, "mappings");

    let file = std::env::temp_dir().join(format!("profile-view-{}.pb.gz", std::process::id()));
    #[expect(clippy::disallowed_methods, reason = "the peer reads a file")]
    std::fs::write(&file, &bytes).unwrap();
    let out =
        Command::new("go").args(["tool", "pprof", "-top"]).arg(&file).stdin(Stdio::null()).output();
    std::fs::remove_file(&file).unwrap();
    match out {
        Err(error) => println!("skipped: go tool pprof: {error}"),
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success() && text.contains("fast"), "{text}");
        }
    }
}

proptest! {
    /// Every view has an answer for what a damaged packet refers to, however it does.
    #[test]
    fn damaged_packets_are_refused_or_shown(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = packet(STACKS, 1_000_000, 0).bytes;
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(request) = Request::decode(&bytes, Limits::default()) {
            drop(request.check());
            let weights = weights([&Packet { bytes: bytes.clone(), id: profile::packet_id(&bytes).unwrap(), begin_unix_ns: 0, kind: profile::SampleKind::OffCpu, samples: 0 }]);
            let folded: i64 = view::folded(&weights)
                .lines()
                .filter_map(|line| line.rsplit(' ').next()?.parse::<i64>().ok())
                .fold(0, i64::saturating_add);
            prop_assert_eq!(folded, weights.total());
            drop(view::hottest(&weights, 10, 80));
            drop(view::diff_text(&weights, &Weights::new(), 10));
            drop(view::flame_graph(&weights, ""));
            drop(view::pprof(std::slice::from_ref(&request)));
            drop(view::firefox(&[request]));
        }
    }
}

/// Few bytes that stand for very many lines: as many processes as stacks, and all stacks long.
#[test]
fn what_has_no_room_is_counted() {
    let mut weights = Weights::with_room(100_000);
    let long = vec!["f"; 400].join(";");
    let packet = packet(&[(&long, 1)], 1, 0);
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    let mut many = request.clone();
    many.resources = (0..500i64)
        .map(|pid| {
            let mut resource = request.resources[0].clone();
            resource.attributes = vec![profile::request::Attribute {
                key: "process.pid",
                value: profile::request::AttributeValue::Int(pid),
                ..Default::default()
            }];
            resource
        })
        .collect();
    weights.add(&many);
    assert_eq!(weights.samples() + weights.left_out(), 500);
    assert_eq!(weights.samples(), 100_000 / 401);
}

/// Fields that have bytes, of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut fields = Vec::new();
    let varint = |bytes: &mut &[u8]| {
        let mut value = 0;
        for place in 0.. {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << (7 * place);
            if *byte < 0x80 {
                break;
            }
        }
        value
    };
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let number = varint(&mut bytes);
        if key & 7 == 2 {
            let (value, rest) = bytes.split_at(usize::try_from(number).unwrap());
            fields.push((key >> 3, value));
            bytes = rest;
        }
    }
    fields
}
