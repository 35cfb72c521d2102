//! Flight recordings of Java, compared with what the JDK's own `jfr print` reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use intake::{Error, Ingest, Limits, Taken, ingest};
use model::Timestamp;
use proptest::prelude::*;
use serde_json::Value;
use wire::proto::Writer;

use crate::support::{NOW, any_time, captured};

const QUERY: &str = "name=shop%7Bregion%3Dnorth%7D&format=jfr&sampleRate=50&spyName=javaspy";
const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const WALL: &str = "wall:wall:nanoseconds:wall:nanoseconds";

fn take(content_type: &str, body: &[u8], limits: &Limits) -> Result<Taken, Error> {
    ingest(Ingest { query: QUERY, content_type, body }, limits, Timestamp::from_nanos(NOW))
}

/// Stacks with lines, the innermost frame first, and what is counted of each.
type Stacks = BTreeMap<Vec<(String, u64)>, i64>;

/// What was taken of a type.
fn taken(taken: &Taken, profile_type: &str) -> Stacks {
    let batch = &taken.batch;
    let mut stacks = Stacks::new();
    for sample in batch.samples() {
        if batch.series_of(sample.series).profile_type.to_string() != profile_type {
            continue;
        }
        let frames = batch.frames_of(sample.stack).map(|frame| {
            let frame = batch.frame_of(frame);
            (batch.text_of(frame.function).to_owned(), frame.line.into())
        });
        *stacks.entry(frames.collect()).or_default() += sample.value;
    }
    stacks
}

/// What `jfr print` finds of an event; `value` of none leaves it out.
fn printed(file: &Path, event: &str, value: impl Fn(&Value) -> Option<i64>) -> Option<Stacks> {
    let mut command = Command::new("jfr");
    let printed = command.args(["print", "--json", "--stack-depth", "2048", "--events", event]);
    let Ok(printed) = printed.arg(file).output() else {
        testkit::skip("the JDK's jfr is not installed");
        return None;
    };
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    let mut stacks = Stacks::new();
    for event in printed["recording"]["events"].as_array().unwrap() {
        let Some(value) = value(&event["values"]) else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let frame = |frame: &Value| {
            let method = &frame["method"];
            let name = match text(&method["type"]["name"]).as_str() {
                "" => text(&method["name"]),
                class => format!("{}.{}", unnumbered(class), text(&method["name"])),
            };
            (name, frame["lineNumber"].as_u64().unwrap_or_default())
        };
        let frames = event["values"]["stackTrace"]["frames"].as_array();
        let frames = frames.map(|frames| frames.iter().map(frame).collect());
        *stacks.entry(frames.unwrap_or_default()).or_default() += value;
    }
    Some(stacks)
}

/// Classes that are made while a program runs, without what numbers them.
fn unnumbered(class: &str) -> String {
    let class = class.split(['+', '/']).take_while(|part| !part.starts_with("0x"));
    let class = class.collect::<Vec<_>>().join("/");
    for mark in ["$$Lambda$", "$$Lambda", "GeneratedMethodAccessor", "GeneratedConstructorAccessor"]
    {
        if let Some((of, number)) = class.rsplit_once(mark)
            && number.parse::<u32>().is_ok()
        {
            return format!("{of}{mark}_");
        }
    }
    class
}

/// `PT0.067843704S`.
fn duration_ns(value: &Value) -> i64 {
    let text = value["duration"].as_str().unwrap();
    let text = text.strip_prefix("PT").unwrap().strip_suffix('S').unwrap();
    let (seconds, nanos) = text.split_once('.').unwrap_or((text, "0"));
    seconds.parse::<i64>().unwrap() * 1_000_000_000 + format!("{nanos:0<9}").parse::<i64>().unwrap()
}

const TURN_NS: i64 = 20_000_000;

/// Compares each type with what the JDK finds.
fn check(file: &Path, taken_of: &Taken) -> Option<()> {
    let is_awake = |values: &Value| values["state"] != "STATE_SLEEPING";
    let turn = |values: &Value| is_awake(values).then_some(TURN_NS);
    let cpu = printed(file, "jdk.ExecutionSample", turn)?;
    let names = |stacks: &Stacks| stacks.keys().flatten().cloned().collect::<BTreeSet<_>>();
    let ours = taken(taken_of, CPU);
    assert_eq!(names(&ours), names(&cpu));
    assert_eq!(ours, cpu);
    assert!(!cpu.is_empty());
    let sized = |values: &Value| values["tlabSize"].as_i64();
    let tlab = printed(file, "jdk.ObjectAllocationInNewTLAB", sized)?;
    assert_eq!(taken(taken_of, "memory:alloc_in_new_tlab_bytes:bytes:space:bytes"), tlab);
    let counted = printed(file, "jdk.ObjectAllocationInNewTLAB", |_| Some(1))?;
    assert_eq!(taken(taken_of, "memory:alloc_in_new_tlab_objects:count:space:bytes"), counted);
    let weight = |values: &Value| values["weight"].as_i64();
    let sampled = printed(file, "jdk.ObjectAllocationSample", weight)?;
    assert_eq!(taken(taken_of, "memory:alloc_sample_bytes:bytes:space:bytes"), sampled);
    for (event, name) in [("jdk.JavaMonitorEnter", "mutex"), ("jdk.ThreadPark", "block")] {
        let delays = printed(file, event, |values| Some(duration_ns(values)))?;
        assert_eq!(taken(taken_of, &format!("{name}:delay:nanoseconds:{name}:count")), delays);
        let counted = printed(file, event, |_| Some(1))?;
        assert_eq!(taken(taken_of, &format!("{name}:contentions:count:{name}:count")), counted);
    }
    Some(())
}

fn file_of(body: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".jfr").tempfile().unwrap();
    std::fs::write(file.path(), body).unwrap();
    file
}

#[test]
fn what_async_profiler_records_is_what_the_jdk_reads() {
    let Some(body) = captured("async-profiler-3.0-itimer-alloc-lock.jfr") else { return };
    let of = take("", &body, &any_time()).unwrap();
    let values = |profile_type| taken(&of, profile_type).values().sum::<i64>();
    assert_eq!(values(CPU), 180 * TURN_NS);
    assert_eq!(values("memory:alloc_in_new_tlab_objects:count:space:bytes"), 194);
    assert_eq!(values("mutex:contentions:count:mutex:count"), 26);
    assert!(of.profiles.iter().all(|it| it.as_ref().unwrap().left_out.missing == 0));
    let (_, series) = of.batch.all_series().next().unwrap();
    let labels: Vec<String> =
        series.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected =
        "__delta__=false jfr_event=itimer pyroscope_spy=javaspy region=north service_name=shop";
    assert_eq!(labels.join(" "), expected);
    check(file_of(&body).path(), &of);
    // The same recording has the same ids.
    let again = take("", &body, &any_time()).unwrap();
    assert_eq!(of.profiles, again.profiles);
}

#[test]
fn sleep_counts_on_the_wall_only() {
    let Some(body) = captured("async-profiler-3.0-wall.jfr") else { return };
    let of = take("", &body, &any_time()).unwrap();
    assert_eq!(taken(&of, CPU).values().sum::<i64>(), 604 * TURN_NS);
    let wall = taken(&of, WALL);
    assert_eq!(wall.values().sum::<i64>(), 6_584 * TURN_NS);
    let file = file_of(&body);
    let printed = printed(file.path(), "jdk.ExecutionSample", |_| Some(TURN_NS));
    assert!(printed.is_none_or(|printed| printed == wall));
}

/// Two threads that are busy and wait for each other.
const BUSY: &str = r#"
public class Busy {
    static final Object LOCK = new Object();
    static long sum;
    static long work(int n) { return n < 2 ? n : work(n - 1) + work(n - 2); }
    static void turns() {
        long end = System.nanoTime() + 2_000_000_000L;
        while (System.nanoTime() < end) synchronized (LOCK) {
            sum += work(27);
            sum += new byte[1 << 16].length;
        }
    }
    public static void main(String[] args) throws Exception {
        Thread other = new Thread(Busy::turns);
        other.start();
        turns();
        other.join();
    }
}
"#;

#[test]
fn what_a_jvm_records_is_what_the_jdk_reads() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("Busy.java");
    std::fs::write(&source, BUSY).unwrap();
    let file = folder.path().join("busy.jfr");
    let option = format!("-XX:StartFlightRecording=settings=profile,filename={}", file.display());
    let mut command = Command::new("java");
    let Ok(ran) = command.arg(option).arg(&source).output() else {
        return testkit::skip("java is not installed");
    };
    if !ran.status.success() {
        return testkit::skip("this java runs no source file: a JDK of 11 or later does");
    }
    let body = std::fs::read(&file).unwrap();
    let of = take("", &body, &any_time()).unwrap();
    check(&file, &of);
    let is_work = |(name, _): &(String, u64)| name == "Busy.work";
    assert!(taken(&of, CPU).keys().flatten().any(is_work));
}

#[test]
fn a_form_has_a_recording_and_labels_of_its_contexts() {
    let Some(body) = captured("async-profiler-3.0-itimer-alloc-lock.jfr") else { return };
    let form = |parts: &[(&str, &[u8])]| {
        let mut form = Vec::new();
        for (name, content) in parts {
            form.extend(
                format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").bytes(),
            );
            form.extend_from_slice(content);
            form.extend(b"\r\n");
        }
        form.extend(b"--xx--\r\n");
        form
    };
    let kind = "multipart/form-data; boundary=xx";
    // All events of this recording are of the context 0.
    let mut labels = Writer::default();
    labels.message(1, |out| {
        out.message(2, |out| {
            out.message(1, |out| {
                out.uint(1, 7);
                out.uint(2, 8);
            });
        });
    });
    for (number, text) in [(7, "controller"), (8, "slow")] {
        labels.message(2, |out| {
            out.uint(1, number);
            out.text(2, text);
        });
    }
    let plain = take(kind, &form(&[("jfr", &body)]), &any_time()).unwrap();
    let parts: [(&str, &[u8]); 2] = [("labels", &labels.bytes), ("jfr", &body)];
    let labelled = take(kind, &form(&parts), &any_time()).unwrap();
    assert_eq!(taken(&plain, CPU), taken(&labelled, CPU));
    let label = |taken: &Taken| {
        let (_, series) = taken.batch.all_series().next().unwrap();
        let found = series.labels.iter().find(|(name, _)| *name == "controller");
        found.map(|(_, value)| value.to_owned())
    };
    assert_eq!((label(&plain), label(&labelled)), (None, Some("slow".to_owned())));
    let refused =
        |parts: &[(&str, &[u8])]| take(kind, &form(parts), &any_time()).unwrap_err().to_string();
    assert_eq!(refused(&[("other", &body)]), "the form has no part called jfr");
    assert!(refused(&[("jfr", &body), ("labels", b"\xff")]).contains("in labels"));
}

#[test]
fn what_is_no_recording_is_refused_with_its_place() {
    let Some(body) = captured("async-profiler-3.0-itimer-alloc-lock.jfr") else { return };
    let check = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut body = body.clone();
        change(&mut body);
        let error = take("", &body, &any_time()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&|it| it[0] = b'X', "the begin of a chunk of JFR at byte 0, in jfr");
    check(&|it| it[5] = 1, "version 1 of JFR is not supported");
    check(&|it| it.truncate(40), "bytes are needed");
    check(&|it| it.truncate(it.len() - 1), "30820 bytes are needed, 30819 are there");
    check(&|it| it[8] = 0x7f, "bytes are needed, 30820 are there");
    check(&|it| it[68..72].fill(0), "at byte");
    check(&|it| it.extend(b"more"), "at byte 30820");
    // Its samples are too old by default.
    let of = take("", &body, &Limits { oldest: None, ..Limits::default() }).unwrap();
    assert!(of.profiles.iter().all(Result::is_ok));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_change_of_bytes_is_taken_or_refused(
        changes in prop::collection::vec((0.0..1.0f64, any::<u8>()), 1..8),
        end in 0.0..1.2f64,
    ) {
        let Some(mut body) = captured("async-profiler-3.0-itimer-alloc-lock.jfr") else { return Ok(()) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the body")]
        let place = |part: f64| (part * body.len() as f64) as usize;
        let places: Vec<(usize, u8)> = changes.iter().map(|&(at, to)| (place(at), to)).collect();
        let end = place(end);
        for (at, to) in places {
            body[at] = to;
        }
        body.truncate(end);
        if let Ok(taken) = take("", &body, &any_time()) {
            prop_assert!(taken.profiles.len() <= 9);
        }
    }
}
