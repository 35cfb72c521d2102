//! The same stacks in the views of crate `profile`.

use flame::{CallTree, Sums, Walk};
use model::Timestamp;
use model::samples::{Batch, Labels, Sample, Series};
use profile::view::Weights;
use profile::{
    Builder, FrameKind, Limits, Line, Mapping, Names, Process, Request, SampleKind, Status,
    TIME_STEP_NS, Unnamed, Window,
};

/// Root first; `?` is a function without a name.
const STACKS: &[(&[&str], i64)] = &[
    (&["main", "work", "fast"], 3),
    (&["main"], 1),
    (&["main", "work", "read", "copy"], 2),
    (&["main", "?"], 4),
];

fn as_profile() -> Vec<(Vec<String>, i64)> {
    let window = Window { begin_unix_ns: 0, duration_ns: 1_000 * TIME_STEP_NS };
    let mut builder = Builder::new(window, SampleKind::OnCpu { period_ns: 1 });
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
        build_ids: &[],
    };
    let mut tick = 0;
    for (stack, count) in STACKS {
        let frame = |name: &&str| {
            let line = [Line { function: name, file: "a.c", line: 3, ..Line::default() }];
            let names =
                if *name == "?" { Names::Unnamed(Unnamed::NoSymbol) } else { Names::Known(&line) };
            let frame = profile::Frame {
                kind: FrameKind::Native,
                mapping: Some(&mapping),
                address: 0x1234,
                names,
            };
            builder.frame(&frame).unwrap()
        };
        let frames: Vec<_> = stack.iter().rev().map(frame).collect();
        for _ in 0..*count {
            tick += 1;
            let sample = profile::Sample {
                process,
                tid: 7,
                thread_name: "worker",
                cpu: 0,
                at_unix_ns: tick * TIME_STEP_NS,
                value: 1,
                link: None,
                frames: &frames,
                status: Status::Root,
            };
            builder.add(&sample).unwrap();
        }
    }
    let packet = builder.finish();
    let mut weights = Weights::new();
    weights.add(&Request::decode(&packet.bytes, Limits::default()).unwrap());
    // Without the process, which is the first line of each.
    let names = |(stack, value): (Vec<&profile::view::Label>, i64)| {
        (stack.iter().skip(1).map(|label| label.name.clone()).collect(), value)
    };
    weights.stacks().into_iter().map(names).collect()
}

#[test]
fn trees_have_the_stacks_of_the_views() {
    let mut batch = Batch::new();
    let profile_type = super::samples::CPU.parse().unwrap();
    let series = batch.series(Series { profile_type, labels: Labels::default() });
    let [mapping, file] = ["/lib/a.so", "a.c"].map(|text| batch.text(text));
    for (stack, value) in STACKS {
        let frames: Vec<_> = stack
            .iter()
            .rev()
            .map(|name| {
                let function = batch.text(if *name == "?" { "" } else { name });
                let frame = model::samples::Frame {
                    function,
                    file,
                    mapping,
                    address: 0x1234,
                    ..model::samples::Frame::default()
                };
                batch.frame(frame)
            })
            .collect();
        let stack = batch.stack(&frames);
        let at = Timestamp::from_nanos(0);
        batch.add(Sample { series, stack, at, value: *value, profile: 0, span_id: 0, trace_id: 0 });
    }
    let mut tree = CallTree::new();
    tree.add(&batch, &Sums::of(&batch, batch.samples()), Walk::default());
    let mut stacks: Vec<(Vec<String>, i64)> = tree
        .stacks()
        .into_iter()
        .map(|(stack, value)| (stack.into_iter().map(str::to_owned).collect(), value))
        .collect();
    stacks.sort();
    let mut expected = as_profile();
    expected.sort();
    assert_eq!(stacks, expected);
    assert!(stacks.contains(&(vec!["main".to_owned(), "a.so+0x1234".to_owned()], 4)));
}
