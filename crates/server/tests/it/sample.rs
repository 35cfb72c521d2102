//! An answer like that of a thumbnail server, made request by request so that all its sums hold.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

const BEGIN_NS: i64 = 1_795_204_862_123_456_789;
const BLOCKED: [&str; 7] = ["disk", "network", "lock", "timer", "pipe", "child", "other"];
/// Name, then typical nanoseconds of running, waiting, blocked on disk, network, lock, timer, pipe, child, other, and unknown.
const PHASES: [(&str, [u64; 10]); 6] = [
    ("open", [310_000, 40_000, 2_600_000, 0, 0, 0, 0, 0, 9_000, 0]),
    ("seek", [900_000, 120_000, 4_100_000, 0, 0, 0, 0, 0, 0, 0]),
    ("decode", [41_000_000, 9_500_000, 1_300_000, 0, 3_200_000, 0, 0, 0, 70_000, 0]),
    ("encode", [12_500_000, 2_900_000, 0, 0, 450_000, 0, 180_000, 0, 0, 0]),
    ("send", [260_000, 90_000, 0, 5_200_000, 0, 0, 0, 0, 0, 0]),
    ("(between)", [70_000, 15_000, 0, 0, 0, 400_000, 0, 90_000, 0, 25_000]),
];
/// Phase, call, typical calls per request, nanoseconds per call, bytes per call, one call in so many fails, file.
const CALLS: [(&str, &str, u64, u64, u64, u64, &str); 14] = [
    ("open", "openat", 1, 38_000, 0, 0, "/srv/media/harbour.mp4"),
    ("open", "openat", 1, 9_000, 0, 1, "/srv/thumbnails/cache/harbour.jpg"),
    ("open", "fstat", 1, 1_400, 0, 0, "/srv/media/harbour.mp4"),
    ("open", "read", 6, 410_000, 32_768, 0, "/srv/media/harbour.mp4"),
    ("seek", "lseek", 4, 900, 0, 0, "/srv/media/harbour.mp4"),
    ("seek", "read", 9, 440_000, 32_768, 0, "/srv/media/harbour.mp4"),
    ("decode", "read", 11, 118_000, 32_768, 0, "/srv/media/harbour.mp4"),
    ("decode", "futex", 24, 131_000, 0, 6, "(futex)"),
    ("decode", "mmap", 3, 14_000, 0, 0, "(memory)"),
    ("encode", "futex", 5, 90_000, 0, 9, "(futex)"),
    ("encode", "openat", 1, 21_000, 0, 0, "/etc/thumbnailer/quality.conf"),
    ("encode", "read", 1, 6_000, 214, 0, "/etc/thumbnailer/quality.conf"),
    ("send", "sendto", 3, 1_750_000, 9_400, 40, "tcp 127.0.0.1:8080 <- 127.0.0.1:48212"),
    ("(between)", "epoll_wait", 1, 400_000, 0, 0, "(epoll)"),
];

/// Numbers that look random and are the same on every run (Knuth, TAOCP 2, section 3.3.4, the multiplier of MMIX).
struct Series(u64);

impl Series {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// Between half of and one and a half times `typical`, now and then four times as much.
    fn around(&mut self, typical: u64) -> u64 {
        let tail = if self.next().is_multiple_of(17) { 4 } else { 1 };
        typical / 2 * tail + self.next() % typical.max(1)
    }
}

type Count = [u64; 4];
type Calls = BTreeMap<(&'static str, &'static str, &'static str), Count>;

struct Request {
    id: u64,
    tid: u64,
    begin_ns: i64,
    phases: Vec<[u64; 10]>,
    calls: Calls,
}

impl Request {
    fn make(id: u64, series: &mut Series) -> Self {
        let slow = if id % 13 == 5 { 3 } else { 1 };
        let phases =
            PHASES.iter().map(|(_, typical)| typical.map(|ns| series.around(ns * slow))).collect();
        let mut calls = Calls::new();
        for (phase, call, times, ns, bytes, failing, file) in CALLS {
            let times = series.around(times).max(1);
            let errors = times.checked_div(failing).unwrap_or(0);
            calls.insert(
                (phase, call, file),
                [times, times * series.around(ns), times * bytes, errors],
            );
        }
        let begin_ns =
            BEGIN_NS + i64::try_from(id * 31_000_000 + series.next() % 9_000_000).expect("fits");
        Self { id, tid: 4201 + series.next() % 4, begin_ns, phases, calls }
    }

    fn split(&self) -> [u64; 10] {
        total(self.phases.iter().copied())
    }

    fn wall_ns(&self) -> u64 {
        self.split().iter().sum()
    }

    fn end_ns(&self) -> i64 {
        self.begin_ns + i64::try_from(self.wall_ns()).expect("fits")
    }

    fn json(&self) -> Value {
        let split = self.split();
        let phases: Vec<Value> = PHASES
            .iter()
            .zip(&self.phases)
            .map(|((name, _), split)| row(json!({"name": name, "spans": 1}), &split_json(*split)))
            .collect();
        let by_name = grouped(self.calls.iter().map(|((_, call, _), count)| (*call, *count)));
        let head = json!({
            "id": self.id, "name": "GET /thumbnail", "process": "thumbnailer", "tid": self.tid,
            "begin_ns": self.begin_ns, "end_ns": self.end_ns(),
            "phases": phases, "syscalls": call_rows(&by_name),
        });
        row(head, &split_json(split))
    }
}

/// An answer about this many requests; the same one on every call.
pub(crate) fn answer(requests: u64) -> Value {
    let mut series = Series(2026);
    let made: Vec<Request> = (1..=requests).map(|id| Request::make(id, &mut series)).collect();
    let phases: Vec<Value> = (0..PHASES.len()).map(|index| phase_json(index, &made)).collect();
    let wall = made.iter().map(|request| request.split().iter().sum::<u64>()).sum::<u64>();
    let mut list: Vec<Value> = made.iter().map(Request::json).collect();
    list.sort_by_key(|request| {
        (Reverse(request["wall_ns"].as_u64()), request["begin_ns"].as_i64())
    });
    list.iter_mut().take(3).for_each(add_path);
    let end_ns =
        list.iter().filter_map(|request| request["end_ns"].as_i64()).max().unwrap_or(BEGIN_NS);
    let (durations, timeline) = (durations(&made), timeline(&made));
    let files = grouped(
        made.iter()
            .flat_map(|request| request.calls.iter().map(|((_, _, file), count)| (*file, *count))),
    );
    json!({
        "format": "throughline-phases/1", "host": "vm", "begin_ns": BEGIN_NS, "end_ns": end_ns + 1_234_567,
        "requests": {"complete": requests, "partial": 0, "wall_ns": wall, "listed": requests, "unlisted": 0},
        "durations": durations, "timeline": timeline, "phases": by_wall(phases), "request_list": list, "files": rows(&files),
        "loss": {
            "events_discarded": 0, "packets_lost": 0, "gaps": 0, "unmatched_span_ends": 0, "abandoned_phases": 0,
            "phases_outside_requests": 0, "calls_without_begin": 0, "bytes_without_begin": 0, "uncertain_calls": 0,
            "ring_operations": 0, "without_thread": 0, "backward_times": 0,
        },
    })
}

/// Requests by how long they took, in buckets of the width that the analyses give them: 32 an octave.
fn durations(requests: &[Request]) -> Value {
    let mut buckets = BTreeMap::<u64, Vec<&Request>>::new();
    for request in requests {
        let wall = request.wall_ns();
        buckets.entry(wall & !bucket_mask(wall)).or_default().push(request);
    }
    let mut lengths: Vec<u64> = requests.iter().map(Request::wall_ns).collect();
    lengths.sort_unstable();
    let percentile = |percent: usize| {
        let exact = lengths.get((lengths.len() * percent).div_ceil(100).checked_sub(1)?)?;
        let (low, high) = (exact & !bucket_mask(*exact), exact | bucket_mask(*exact));
        Some(json!({"percent": percent, "low_ns": low, "high_ns": high}))
    };
    let percentiles: Vec<Value> = [50, 95, 99].into_iter().filter_map(percentile).collect();
    let rows = buckets.into_iter().map(|(low, some)| {
        let head =
            json!({"low_ns": low, "high_ns": low | bucket_mask(low), "requests": some.len()});
        row(head, &split_json(total(some.iter().map(|request| request.split()))))
    });
    json!({"percentiles": percentiles, "buckets": rows.collect::<Vec<_>>()})
}

/// The bits that the values of a bucket differ in.
fn bucket_mask(value: u64) -> u64 {
    (1 << value.ilog2().saturating_sub(5)) - 1
}

/// Requests by when they ended, in slots of 10 ms.
fn timeline(requests: &[Request]) -> Value {
    const SLOT_NS: i64 = 10_000_000;
    let mut slots = BTreeMap::<i64, Vec<&Request>>::new();
    for request in requests {
        slots.entry(request.end_ns() / SLOT_NS).or_default().push(request);
    }
    let rows = slots.into_iter().map(|(slot, some)| {
        let longest = some.iter().map(|request| request.wall_ns()).max();
        let head =
            json!({"begin_ns": slot * SLOT_NS, "requests": some.len(), "longest_ns": longest});
        row(head, &split_json(total(some.iter().map(|request| request.split()))))
    });
    json!({"slot_ns": SLOT_NS, "slots": rows.collect::<Vec<_>>()})
}

/// A request that a loader and the disk kept waiting: the same shape for every wall time, in whole nanoseconds.
fn add_path(request: &mut Value) {
    let (wall, tid) = (number(request, "wall_ns"), request["tid"].clone());
    let comm = request["process"].clone();
    let parts = [
        (json!({"comm": comm, "tid": tid, "state": "running"}), 20),
        (json!({"comm": "loader", "tid": 4190, "state": "running"}), 10),
        (
            json!({"comm": "loader", "tid": 4190, "state": "disk", "ended_by": "interrupt 11 nvme0q1"}),
            35,
        ),
        (json!({"comm": "loader", "tid": 4190, "state": "running"}), 5),
        (json!({"comm": comm, "tid": tid, "state": "waiting", "woken_by": "loader (4190)"}), 8),
        (json!({"comm": comm, "tid": tid, "state": "running"}), 22),
    ];
    let (mut hops, mut totals) = (Vec::new(), BTreeMap::<(u64, String), (Value, u64)>::new());
    let (mut offset, last) = (0, parts.len() - 1);
    for (n, (mut hop, percent)) in parts.into_iter().enumerate() {
        let ns = if n == last { wall - offset } else { wall / 100 * percent };
        hop["offset_ns"] = offset.into();
        hop["ns"] = ns.into();
        offset += ns;
        let key = (number(&hop, "tid"), hop["state"].to_string());
        totals.entry(key).or_insert((hop.clone(), 0)).1 += ns;
        hops.push(hop);
    }
    let total = |(hop, ns): (Value, u64)| json!({"comm": hop["comm"], "tid": hop["tid"], "state": hop["state"], "ns": ns});
    let mut totals: Vec<Value> = totals.into_values().map(total).collect();
    totals.sort_by_key(|total| Reverse(total["ns"].as_u64()));
    request["critical_path"] = json!({"totals": totals, "hops": hops, "is_longer": false});
}

fn phase_json(index: usize, requests: &[Request]) -> Value {
    let name = PHASES[index].0;
    let split = total(requests.iter().map(|request| request.phases[index]));
    let of_phase = |request: &'_ Request| {
        request
            .calls
            .iter()
            .filter(|((phase, ..), _)| *phase == name)
            .map(|(key, count)| (*key, *count))
            .collect::<Vec<_>>()
    };
    let calls: Vec<_> = requests.iter().flat_map(of_phase).collect();
    let mut syscalls =
        call_rows(&grouped(calls.iter().map(|((_, call, _), count)| (*call, *count))));
    for syscall in &mut syscalls {
        let own = calls.iter().filter(|((_, call, _), _)| syscall["name"] == *call);
        syscall["files"] = rows(&grouped(own.map(|((_, _, file), count)| (*file, *count)))).into();
    }
    let waiting = split[1];
    let holders = [
        ("thumbnailer", 4202, waiting / 2),
        ("thumbnailer", 4204, waiting / 4),
        ("kworker/1:2", 77, waiting / 9),
    ];
    let waited_for: Vec<Value> =
        holders.iter().map(|(comm, tid, ns)| json!({"comm": comm, "tid": tid, "ns": ns})).collect();
    let head = json!({"name": name, "spans": requests.len(), "waited_for": waited_for, "syscalls": syscalls});
    row(head, &split_json(split))
}

fn by_wall(mut phases: Vec<Value>) -> Vec<Value> {
    phases.sort_by_key(|phase| Reverse(phase["wall_ns"].as_u64()));
    phases
}

fn total(splits: impl Iterator<Item = [u64; 10]>) -> [u64; 10] {
    splits.fold([0; 10], |sum, split| std::array::from_fn(|part| sum[part] + split[part]))
}

fn split_json(split: [u64; 10]) -> Value {
    let [running, waiting, disk, network, lock, timer, pipe, child, other, unknown] = split;
    json!({
        "wall_ns": split.iter().sum::<u64>(), "running_ns": running, "waiting_ns": waiting,
        "blocked_ns": {
            "disk": disk, "network": network, "lock": lock, "timer": timer, "pipe": pipe, "child": child, "other": other,
        },
        "unknown_ns": unknown,
    })
}

fn row(head: Value, split: &Value) -> Value {
    let fields = |value: &Value| value.as_object().expect("an object").clone();
    Value::Object(fields(&head).into_iter().chain(fields(split)).collect::<Map<_, _>>())
}

fn grouped<'a>(counts: impl Iterator<Item = (&'a str, Count)>) -> BTreeMap<&'a str, Count> {
    let mut groups = BTreeMap::new();
    for (name, count) in counts {
        let group: &mut Count = groups.entry(name).or_default();
        *group = std::array::from_fn(|part| group[part] + count[part]);
    }
    groups
}

fn rows(groups: &BTreeMap<&str, Count>) -> Vec<Value> {
    let mut rows: Vec<_> = groups.iter().collect();
    rows.sort_by_key(|(name, [_, ns, ..])| (Reverse(*ns), **name));
    let json = |(name, [calls, ns, bytes, errors]): (&&str, &Count)| json!({"name": name, "calls": calls, "ns": ns, "bytes": bytes, "errors": errors});
    rows.into_iter().map(json).collect()
}

/// Rows of calls, all of whose returns are sure.
fn call_rows(groups: &BTreeMap<&str, Count>) -> Vec<Value> {
    let mut rows = rows(groups);
    rows.iter_mut().for_each(|row| row["uncertain"] = 0.into());
    rows
}

/// The sums that every answer keeps, of the whole answer and of each part in it.
pub(crate) fn assert_sums(answer: &Value) {
    let phases = list(answer, "phases");
    let requests = list(answer, "request_list");
    for split in phases
        .iter()
        .chain(requests)
        .chain(requests.iter().flat_map(|request| list(request, "phases")))
    {
        let blocked: u64 = BLOCKED.iter().map(|cause| number(&split["blocked_ns"], cause)).sum();
        let parts = number(split, "running_ns")
            + number(split, "waiting_ns")
            + blocked
            + number(split, "unknown_ns");
        assert_eq!(parts, number(split, "wall_ns"), "parts of {}", split["name"]);
    }
    let sum = |rows: &[Value], key| rows.iter().map(|row| number(row, key)).sum::<u64>();
    for key in ["wall_ns", "running_ns", "waiting_ns", "unknown_ns"] {
        for request in requests {
            assert_eq!(
                sum(list(request, "phases"), key),
                number(request, key),
                "{key} of request {}",
                request["id"]
            );
        }
        assert_eq!(sum(phases, key), sum(requests, key), "{key} of all");
    }
    assert_eq!(sum(phases, "wall_ns"), number(&answer["requests"], "wall_ns"));
    for key in ["calls", "ns", "bytes", "errors"] {
        let syscalls = || phases.iter().flat_map(|phase| list(phase, "syscalls"));
        for syscall in syscalls() {
            assert_eq!(
                sum(list(syscall, "files"), key),
                number(syscall, key),
                "{key} of {}",
                syscall["name"]
            );
        }
        let all: u64 = syscalls().map(|syscall| number(syscall, key)).sum();
        assert_eq!(sum(list(answer, "files"), key), all, "{key} of files");
        let by_request: u64 =
            requests.iter().map(|request| sum(list(request, "syscalls"), key)).sum();
        assert_eq!(by_request, all, "{key} of requests");
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no list {key} in {value}"))
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no count {key} in {value}"))
}

/// `tests/data/phases.json` is for those who work on the page: open it with `server::page::standalone`.
#[test]
fn the_sample_file_is_current_and_its_sums_hold() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/phases.json");
    let current = format!("{:#}\n", answer(12));
    if std::env::var_os("UPDATE_SAMPLES").is_some() {
        std::fs::write(path, &current).expect("written");
    }
    let file = std::fs::read_to_string(path).expect("the sample");
    assert!(file == current, "run this test with UPDATE_SAMPLES=1");
    assert_sums(&serde_json::from_str(&file).expect("JSON"));
}

#[test]
fn the_sample_has_the_shape_of_an_answer() {
    let sample = answer(3);
    let answer: stitch::answer::Phases = serde_json::from_value(sample.clone()).expect("the shape");
    assert_eq!(serde_json::to_value(answer).expect("JSON"), sample);
}

#[test]
fn the_answers_about_nothing_have_the_shape_of_answers() {
    use server::AnswerSource as _;
    let nothing = server::Published::new();
    let phases = nothing.phases_json().bytes;
    let typed: stitch::answer::Phases = serde_json::from_slice(&phases).expect("the shape");
    assert_eq!(
        serde_json::to_value(typed).expect("JSON"),
        serde_json::from_slice::<Value>(&phases).expect("JSON")
    );
    let syscalls = nothing.syscalls_json().bytes;
    let typed: stitch::answer::Syscalls = serde_json::from_slice(&syscalls).expect("the shape");
    assert_eq!(
        serde_json::to_value(typed).expect("JSON"),
        serde_json::from_slice::<Value>(&syscalls).expect("JSON")
    );
}
