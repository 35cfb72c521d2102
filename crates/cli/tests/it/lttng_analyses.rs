//! The tables against those of lttng-analyses, row by row; every difference has its reason and its number here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::process::THROUGHLINE;

/// Count, least, mean, greatest and deviation; mean and deviation are null where there are none.
type Figures = (u64, u64, Value, u64, Value);

/// Figures of calls by thread and name.
type Calls = BTreeMap<(u64, String), Figures>;

/// A kernel trace as the peer wants it: in a folder named `kernel`, with the soft interrupts' names from before LTTng 2.7,
/// the only ones that it knows.
struct Peer {
    kernel: PathBuf,
    _folder: tempfile::TempDir,
}

impl Peer {
    fn of(name: &str) -> Option<(Self, PathBuf)> {
        let skip = |what: &str| {
            testkit::skip(what);
            None
        };
        if !Path::new("/usr/bin/lttng-syscallstats-mi").exists() {
            return skip("no lttng-analyses (Debian: python3-lttnganalyses)");
        }
        let Some(trace) = testkit::unpacked_trace(name) else {
            return skip(&format!("no recording {name}"));
        };
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("kernel");
        fs::create_dir(&kernel).unwrap();
        for file in fs::read_dir(trace_folder(&trace)).unwrap() {
            let file = file.unwrap();
            let to = kernel.join(file.file_name());
            if file.file_name() == "metadata" {
                fs::write(&to, old_names(&file.path())).unwrap();
            } else if file.file_type().unwrap().is_file() {
                symlink(file.path(), &to).unwrap();
            }
        }
        Some((Self { kernel, _folder: folder }, trace))
    }

    /// The tables of one of its commands, by class.
    fn tables(&self, command: &str) -> Vec<(String, String, Vec<Value>)> {
        let limit: &[&str] = match command {
            "cputop" | "memtop" | "iousagetop" => &["--limit", "1000000"],
            _ => &[],
        };
        let output = Command::new(format!("/usr/bin/lttng-{command}-mi"))
            .args(["--no-intersection", "--skip-validation"])
            .args(limit)
            .arg(&self.kernel)
            .output()
            .unwrap();
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("{command}: {error}: {}", String::from_utf8_lossy(&output.stderr))
        });
        let tables = answer["results"].as_array().unwrap().iter().map(|table| {
            let class = table["class"].as_str().or(table["class"]["inherit"].as_str()).unwrap();
            let title = table["class"]["title"].as_str().unwrap_or_default();
            (class.to_owned(), title.to_owned(), table["data"].as_array().unwrap().clone())
        });
        tables.collect()
    }

    fn rows(&self, command: &str, class: &str) -> Vec<Value> {
        let tables = self.tables(command).into_iter().filter(|(found, ..)| found == class);
        tables.flat_map(|(_, _, rows)| rows).collect()
    }
}

/// The folder in or below a recording that holds its metadata.
fn trace_folder(folder: &Path) -> PathBuf {
    if folder.join("metadata").exists() {
        return folder.to_owned();
    }
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders = entries.filter(|path| path.is_dir());
    trace_folder(&folders.next().unwrap_or_else(|| panic!("no metadata in {}", folder.display())))
}

/// The metadata, plain, with the names of events that the peer waits for.
fn old_names(metadata: &Path) -> String {
    let text = Command::new("babeltrace2")
        .args(["--output-format=ctf-metadata"])
        .arg(metadata.parent().unwrap())
        .output()
        .unwrap();
    assert!(text.status.success(), "{}", String::from_utf8_lossy(&text.stderr));
    String::from_utf8(text.stdout).unwrap().replace("irq_softirq_", "softirq_")
}

/// All tables of ours, by class.
fn ours(trace: &Path) -> BTreeMap<String, Vec<Value>> {
    let output = Command::new(THROUGHLINE)
        .args(["analyze", "all", "--format", "json"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["format"], "throughline-table/1");
    let tables = answer["tables"].as_array().unwrap().iter();
    let tables = tables.map(|table| {
        let rows = table["rows"].as_array().unwrap().clone();
        (table["class"].as_str().unwrap().to_owned(), rows)
    });
    tables.collect()
}

/// Five cells of the peer's.
fn of_peer(row: &Value, from: usize) -> Figures {
    let value = |n: usize| row[from + n]["value"].clone();
    let number = |n: usize| value(n).as_u64().unwrap();
    (number(0), number(1), value(2), number(3), value(4))
}

/// Five cells of ours; what is certain of a count.
fn of_ours(row: &Value, from: usize) -> Figures {
    let number = |n: usize| certain(&row[from + n]);
    (number(0), number(1), row[from + 2].clone(), number(3), row[from + 4].clone())
}

fn certain(cell: &Value) -> u64 {
    cell.as_u64().or(cell[0].as_u64()).unwrap()
}

/// Rows that are not in both, or differ. Fractions agree to a billionth; the peer may have no deviation of two values.
fn differences<K: Ord + Clone>(peer: &BTreeMap<K, Figures>, ours: &BTreeMap<K, Figures>) -> Vec<K> {
    let near = |one: &Value, other: &Value| match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(1.0),
        (one, other) => one.is_none() && other.is_none(),
    };
    let equal = |one: &Figures, other: &Figures| {
        (one.0, one.1, one.3) == (other.0, other.1, other.3)
            && near(&one.2, &other.2)
            && (near(&one.4, &other.4) || (one.0 == 2 && one.4.is_null()))
    };
    let mut keys: Vec<K> = peer.keys().chain(ours.keys()).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| match (peer.get(key), ours.get(key)) {
        (Some(one), Some(other)) => !equal(one, other),
        _ => true,
    });
    keys
}

/// The peer's calls and ours.
fn calls(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>) -> (Calls, Calls) {
    let mut theirs = BTreeMap::new();
    for (class, title, rows) in peer.tables("syscallstats") {
        if class != "per-tid" {
            continue;
        }
        let tid = title.rsplit("TID: ").next().unwrap().trim_end_matches([')', ']']);
        let tid: u64 = tid.parse().unwrap();
        for row in &rows {
            let name = row[0]["name"].as_str().unwrap().to_owned();
            theirs.insert((tid, name), of_peer(row, 1));
        }
    }
    let rows = ours["syscalls-per-thread"].iter().filter(|row| certain(&row[2]) > 0);
    let rows = rows.map(|row| {
        let tid = row[0]["tid"].as_u64().unwrap();
        ((tid, row[1].as_str().unwrap().to_owned()), of_ours(row, 2))
    });
    (theirs, rows.collect())
}

/// Rows by what `key` says of their first cell.
fn by_key<K: Ord>(
    rows: &[Value],
    key: impl Fn(&Value) -> K,
    figures: impl Fn(&Value) -> Figures,
) -> BTreeMap<K, Figures> {
    rows.iter().map(|row| (key(&row[0]), figures(row))).collect()
}

fn tid_of(cell: &Value) -> u64 {
    cell["tid"].as_u64().unwrap()
}

/// What the peer calls `unknown`, and we by their names.
const NAMED_BY_NUMBER: [&str; 5] = ["arch_prctl", "vfork", "capget", "capset", "membarrier"];

/// Calls of a name in all threads.
fn count_of(calls: &Calls, names: &[&str]) -> u64 {
    let of_name = calls.iter().filter(|((_, name), _)| names.contains(&name.as_str()));
    of_name.map(|(_, figures)| figures.0).sum()
}

#[test]
fn a_desktop_gives_the_same_rows() {
    let Some((peer, trace)) = Peer::of("kernel-basic-lttng210") else { return };
    let ours = ours(&trace);
    let (theirs, own) = calls(&peer, &ours);
    let differ = differences(&theirs, &own);
    let of_names = differ
        .iter()
        .filter(|(_, name)| name == "unknown" || NAMED_BY_NUMBER.contains(&name.as_str()));
    assert_eq!(differ.len(), of_names.count(), "{differ:?}");
    assert_eq!((theirs.len(), own.len()), (1_026, 1_038));
    assert_eq!(count_of(&theirs, &["unknown"]), 71);
    assert_eq!(count_of(&own, &NAMED_BY_NUMBER), 71);
    same_latencies(&peer, &ours, 53);
    same_interrupts(&peer, &ours, 3, 5);
    same_disks(&peer, &ours);
    same_operations(&peer, &ours);
    same_usage(&peer, &ours);
    same_pages(&peer, &ours);
    same_cpu_time(&peer, &ours, &[(0, 0), (1, 91_443)]);
}

#[test]
fn a_thread_storm_gives_the_same_rows() {
    let Some((peer, trace)) = Peer::of("kernel-many-threads") else { return };
    let ours = ours(&trace);
    let (theirs, own) = calls(&peer, &ours);
    let differ = differences(&theirs, &own);
    let of_names = differ
        .iter()
        .filter(|(_, name)| name == "unknown" || NAMED_BY_NUMBER.contains(&name.as_str()));
    assert_eq!(differ.len(), of_names.count(), "{differ:?}");
    assert_eq!((count_of(&theirs, &["unknown"]), count_of(&own, &NAMED_BY_NUMBER)), (6, 3));
    same_latencies(&peer, &ours, 418);
    same_interrupts(&peer, &ours, 3, 5);
}

/// The rows of a log of ours.
fn log(name: &str, trace: &Path) -> Vec<Value> {
    let output = Command::new(THROUGHLINE)
        .args(["analyze", name, "--format", "json"])
        .arg(trace)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// The keys of rows, sorted.
fn keys<K: Ord>(rows: &[Value], key: impl Fn(&Value) -> K) -> Vec<K> {
    let mut keys: Vec<K> = rows.iter().map(key).collect();
    keys.sort_unstable();
    keys
}

/// Those of the one that the other has not; both are sorted.
fn only<K: Ord + Clone>(one: &[K], other: &[K]) -> Vec<K> {
    let missing = one.iter().filter(|key| other.binary_search(key).is_err());
    missing.cloned().collect()
}

#[test]
fn logs_have_the_same_rows() {
    let Some((peer, trace)) = Peer::of("kernel-basic-lttng210") else { return };
    let number = |cell: &Value| cell.as_i64();

    let theirs = keys(&peer.rows("irqlog", "log"), |row| {
        let range = [number(&row[0]["begin"]["value"]), number(&row[0]["end"]["value"])];
        let line = (row[3]["hard"].as_bool(), number(&row[3]["nr"]));
        (range, number(&row[1]["value"]), number(&row[2]["id"]), line)
    });
    let own = keys(&log("irqlog", &trace), |row| {
        let line = (row["irq"]["hard"].as_bool(), number(&row["irq"]["nr"]));
        let range = [number(&row["begin"]), number(&row["end"])];
        (range, number(&row["raised"]), number(&row["cpu"]), line)
    });
    assert_eq!(own.len(), 2_207);
    assert!(theirs == own, "{:?} {:?}", only(&theirs, &own), only(&own, &theirs));

    let theirs = keys(&peer.rows("schedlog", "log"), |row| {
        let times = [0, 1, 2].map(|n| number(&row[n]["value"]));
        (times, number(&row[4]["id"]), number(&row[5]["tid"]), number(&row[6]["tid"]))
    });
    let own = keys(&log("schedlog", &trace), |row| {
        let times = ["wakeup", "switch", "latency"].map(|name| number(&row[name]));
        let threads = ["wakee", "context"].map(|name| number(&row[name]["tid"]));
        (times, number(&row["cpu"]), threads[0], threads[1])
    });
    assert_eq!(own.len(), 906);
    // Who wakes before the first switch of a CPU, the peer does not know.
    let (theirs_only, own_only) = (only(&theirs, &own), only(&own, &theirs));
    assert_eq!((theirs_only.len(), own_only.len()), (1, 1));
    assert_eq!((theirs_only[0].3, own_only[0].3), (None, Some(11_925)));

    let theirs = keys(&peer.rows("iolog", "log"), |row| {
        let range = [number(&row[0]["begin"]["value"]), number(&row[0]["end"]["value"])];
        let name = row[3]["name"].as_str().unwrap().to_owned();
        (name, range, number(&row[5]["tid"]), number(&row[7]["fd"]))
    });
    let rows = log("iolog", &trace);
    let own = keys(&rows, |row| {
        let name = row["syscall"].as_str().unwrap().to_owned();
        let range = [number(&row["begin"]), number(&row["end"])];
        (name, range, number(&row["process"]["tid"]), number(&row["fd"]))
    });
    assert_eq!(only(&theirs, &own), []);
    // It drops calls on two descriptors, and knows no `sendmmsg`.
    let own_only = only(&own, &theirs);
    let named = |name: &str| own_only.iter().filter(|row| row.0 == name).count();
    assert_eq!((own_only.len(), named("splice"), named("sendmmsg")), (164, 162, 2));
}

fn same_latencies(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>, threads: usize) {
    let theirs = peer.rows("schedstats", "per_tid_stats");
    let theirs = by_key(&theirs, tid_of, |row| of_peer(row, 1));
    let own = by_key(&ours["sched-latency-per-thread"], tid_of, |row| of_ours(row, 1));
    assert_eq!(differences(&theirs, &own), Vec::<u64>::new());
    assert_eq!(own.len(), threads);
}

fn same_interrupts(
    peer: &Peer,
    ours: &BTreeMap<String, Vec<Value>>,
    hard_lines: usize,
    soft_lines: usize,
) {
    let number = |cell: &Value| cell["nr"].as_u64().unwrap();
    for (theirs, class, lines) in
        [("hard-stats", "irq-hard", hard_lines), ("soft-stats", "irq-soft", soft_lines)]
    {
        let rows = peer.rows("irqstats", theirs);
        let theirs = by_key(&rows, number, |row| of_peer(row, 1));
        let own = by_key(&ours[class], number, |row| of_ours(row, 1));
        assert_eq!(differences(&theirs, &own), Vec::<u64>::new(), "{class}");
        assert_eq!(own.len(), lines);
    }
    let theirs = by_key(&peer.rows("irqstats", "soft-stats"), number, |row| of_peer(row, 6));
    let own = by_key(&ours["irq-soft"], number, |row| of_ours(row, 6));
    assert_eq!(differences(&theirs, &own), Vec::<u64>::new(), "raise latencies");
}

/// The peer has a row for each partition that requests were mapped from, we one for each device and kind of request.
fn same_disks(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>) {
    let theirs = peer.rows("iolatencystats", "disk-latency-stats");
    let own = &ours["disk-latency"];
    assert_eq!((theirs.len(), own.len()), (1, 1));
    assert_eq!(theirs[0][0]["name"], own[0][6], "the partition");
    let theirs = BTreeMap::from([(0, of_peer(&theirs[0], 1))]);
    let own = BTreeMap::from([(0, of_ours(&own[0], 1))]);
    assert_eq!(differences(&theirs, &own), Vec::<i32>::new());
}

/// Bytes by process, thread and interface. The peer drops `splice` on pipes it saw no name of: 663,552 bytes of the tracer's
/// consumer daemon.
fn same_usage(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>) {
    let tables = peer.tables("iousagetop");
    let rows = |class: &str, what: &str| {
        let of = |(found, title, _): &&(String, String, Vec<Value>)| {
            found == class && title.contains(what)
        };
        let rows = tables.iter().filter(of).flat_map(|(_, _, rows)| rows.clone());
        rows.filter(|row| row[1]["value"].as_u64() != Some(0)).collect::<Vec<Value>>()
    };
    let pid = |cell: &Value| cell["pid"].as_u64().or(cell["tid"].as_u64()).unwrap();
    for (what, column, spliced) in [("[read]", 5, 663_552), ("[written]", 6, 663_720)] {
        let mut theirs: BTreeMap<u64, u64> = BTreeMap::new();
        for row in rows("per-process-top", what) {
            *theirs.entry(pid(&row[0])).or_default() += row[1]["value"].as_u64().unwrap();
        }
        let own = ours["io-per-process"].iter().filter(|row| certain(&row[column]) > 0);
        let own: BTreeMap<u64, u64> =
            own.map(|row| (pid(&row[0]), certain(&row[column]))).collect();
        let differ: Vec<_> = own.iter().filter(|(pid, own)| theirs.get(pid) != Some(own)).collect();
        assert_eq!(differ, [(&12_032, &spliced)], "{what}");
        assert!(theirs.keys().all(|pid| own.contains_key(pid)), "{what}");
        assert!(own.len() > 30, "{what}: {}", own.len());
    }
    let theirs = rows("per-process-top-block", "[written]");
    let theirs = keys(&theirs, |row| (tid_of(&row[0]), row[1]["value"].as_u64().unwrap()));
    let own = keys(&ours["block-per-thread"], |row| (tid_of(&row[0]), certain(&row[2])));
    assert_eq!(theirs, own);
    assert_eq!(own.len(), 13);
    let sent = rows("per-netif-top", "[sent]");
    let own = &ours["net-per-interface"];
    assert_eq!((sent.len(), own.len()), (1, 1));
    assert_eq!((&sent[0][0]["name"], &sent[0][1]["value"]), (&own[0][0], &own[0][2]));
    assert_eq!(certain(&own[0][2]), 20_256);
}

/// Calls of the page allocator by thread. The peer does not know who has a CPU before its first switch, and ignores frees
/// while more was given back than it saw taken.
fn same_pages(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>) {
    for (class, column, expected) in [
        ("allocd", 3, vec![(11_925, 226, 256)]),
        ("freed", 4, vec![(11_925, 117, 132), (13_635, 11, 12), (13_655, 119, 159)]),
    ] {
        let theirs: BTreeMap<u64, u64> = (peer.rows("memtop", class).iter())
            .map(|row| (tid_of(&row[0]), row[1]["value"].as_u64().unwrap()))
            .collect();
        let own = ours["memory-per-thread"].iter();
        let differ = own.filter_map(|row| {
            let (tid, own) = (tid_of(&row[0]), certain(&row[column]));
            let theirs = theirs.get(&tid).copied().unwrap_or(0);
            (theirs != own).then_some((tid, theirs, own))
        });
        let mut differ: Vec<(u64, u64, u64)> = differ.collect();
        differ.sort_unstable();
        assert_eq!(differ, expected, "{class}");
        assert_eq!(ours["memory-per-thread"].len(), theirs.len(), "{class}");
    }
}

/// The peer knows no `sendmmsg`, which writes, and has no row for calls that close or that read and write.
fn same_operations(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>) {
    let named = |cell: &Value| cell["value"].as_str().unwrap().to_lowercase();
    let theirs = peer.rows("iolatencystats", "syscall-latency-stats");
    let theirs = by_key(&theirs, named, |row| of_peer(row, 1));
    let named = |cell: &Value| cell.as_str().unwrap().to_owned();
    let mut own = by_key(&ours["io-latency"], named, |row| of_ours(row, 1));
    own.retain(|name, _| theirs.contains_key(name));
    assert_eq!(differences(&theirs, &own), ["write"]);
    assert_eq!((theirs["write"].0, own["write"].0), (826, 828));
    assert_eq!(theirs.len(), 4);
}

/// The peer counts the time before a CPU's first switch as busy, and as the idle thread's, also where that switch takes
/// the idle thread away: so much on each CPU.
fn same_cpu_time(peer: &Peer, ours: &BTreeMap<String, Vec<Value>>, idle_heads: &[(u64, u64)]) {
    let ratio = |cell: &Value| cell["value"].as_f64().unwrap();
    let whole = |row: &Value| certain(&row[2]) + certain(&row[3]) + certain(&row[4]);
    let threads: BTreeMap<u64, &Value> =
        ours["cpu-per-thread"].iter().map(|row| (tid_of(&row[0]), row)).collect();
    let theirs = peer.rows("cputop", "per-process");
    assert!(theirs.len() >= 10, "{}", theirs.len());
    let all_heads: u64 = idle_heads.iter().map(|(_, ns)| ns).sum();
    for row in &theirs {
        let tid = tid_of(&row[0]);
        if tid == 0 {
            let expected = all_heads as f64 / whole(&ours["cpu-per-cpu"][0]) as f64;
            assert!((ratio(&row[3]) - expected).abs() < 1e-12, "{row}");
            continue;
        }
        let own = threads.get(&tid).unwrap_or_else(|| panic!("we have no row for {row}"));
        assert_eq!(row[1]["value"], own[1], "migrations of {}", own[0]);
        let (theirs, own) = (ratio(&row[3]), own[2].as_f64().unwrap());
        assert!((theirs - own).abs() < 1e-12, "{row}: {theirs} and {own}");
    }
    let theirs = peer.rows("cputop", "per-cpu");
    assert_eq!(theirs.len(), idle_heads.len());
    for ((cpu, idle_head), row) in idle_heads.iter().zip(&theirs) {
        let own = ours["cpu-per-cpu"].iter().find(|own| own[0] == *cpu).unwrap();
        assert_eq!(row[0]["id"], *cpu);
        let counted = certain(&own[2]) + idle_head;
        let expected = counted as f64 / whole(own) as f64;
        assert!((ratio(&row[1]) - expected).abs() < 1e-12, "CPU {cpu}: {row} and {own}");
    }
}
