//! A recording that is read while a writer grows it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use model::{TimeRange, Timestamp};
use tracedir::{Error, Follow, FollowOptions, Item};

use crate::made::{Packet, Trace, open, packet, read};

const GRACE_NS: u64 = 100;

fn follow(path: &Path) -> Follow {
    Follow::new(&[path], FollowOptions { grace_ns: GRACE_NS, ..FollowOptions::default() })
}

/// Looks at the folder at `now`; times of what it then gives, losses as negative counts.
fn poll(follow: &mut Follow, now: i64) -> Vec<i64> {
    follow.poll(Timestamp::from_nanos(now)).unwrap();
    drain(follow)
}

fn drain(follow: &mut Follow) -> Vec<i64> {
    let mut times = Vec::new();
    while let Some(item) = follow.next_item() {
        times.push(match item {
            Item::Event(event) => event.timestamp.nanos(),
            Item::Loss(loss) => -i64::try_from(loss.count).unwrap(),
        });
    }
    times
}

fn finish(follow: &mut Follow, now: i64) -> Vec<i64> {
    follow.finish(Timestamp::from_nanos(now)).unwrap();
    drain(follow)
}

fn append(path: &Path, bytes: &[u8]) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(bytes).unwrap();
}

fn of(stream: u64, packet: Packet) -> Packet {
    Packet { stream, ..packet }
}

fn no_findings(follow: &Follow) {
    assert!(follow.findings().is_empty(), "{:?}", follow.findings());
    assert_eq!(follow.late(), 0);
}

#[test]
fn half_of_a_packet_is_not_enough_yet_wherever_it_is_cut() {
    let trace = Trace::default();
    let bytes = trace.stream(&[packet(0, &[10, 20]), packet(1, &[30, 40])]);
    let half = bytes.len() / 2;
    for cut in 0..=bytes.len() {
        let folder = tempfile::tempdir().unwrap();
        let path = trace.write(folder.path(), "ch", &[]);
        let mut follow = follow(folder.path());
        append(&path, &bytes[..cut]);
        let expected: &[i64] = match cut {
            cut if cut < half => &[],
            cut if cut < bytes.len() => &[10, 20],
            _ => &[10, 20, 30, 40],
        };
        assert_eq!(poll(&mut follow, 0), expected, "cut at {cut}");
        append(&path, &bytes[cut..]);
        assert_eq!([expected, &poll(&mut follow, 1)].concat(), [10, 20, 30, 40], "cut at {cut}");
        assert_eq!(finish(&mut follow, 2), [] as [i64; 0]);
        no_findings(&follow);
    }
}

#[test]
fn an_item_waits_for_every_stream_to_come_to_its_time() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let a = trace.write(folder.path(), "a", &[packet(0, &[10, 20, 30])]);
    let b = trace.write(folder.path(), "b", &[of(1, packet(0, &[5, 20]))]);
    let mut follow = follow(folder.path());
    assert_eq!(poll(&mut follow, 0), [5, 10, 20, 20]);
    assert_eq!(follow.horizon(), Timestamp::from_nanos(20));
    append(&a, &trace.bytes(&packet(1, &[50, 60])));
    assert_eq!(poll(&mut follow, 1), [] as [i64; 0]);
    append(&b, &trace.bytes(&of(1, packet(1, &[25, 55]))));
    assert_eq!(poll(&mut follow, 2), [25, 30, 50, 55]);
    assert_eq!(finish(&mut follow, 3), [60]);
    no_findings(&follow);
}

#[test]
fn a_silent_stream_is_not_waited_for_longer_than_the_grace_time() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let a = trace.write(folder.path(), "a", &[packet(0, &[10, 20])]);
    let b = trace.write(folder.path(), "b", &[of(1, packet(0, &[5]))]);
    // A file without anything in it may still tell of any time.
    let c = trace.write(folder.path(), "c", &[]);
    let mut follow = follow(folder.path());
    assert_eq!(poll(&mut follow, 0), [] as [i64; 0]);
    append(&a, &trace.bytes(&packet(1, &[30, 40])));
    assert_eq!(poll(&mut follow, 60), [] as [i64; 0]);
    // Both others have been silent for the grace time, the growing one has not.
    assert_eq!(poll(&mut follow, 100), [5, 10, 20, 30, 40]);
    no_findings(&follow);
    // What tells of earlier times after that is late, and given.
    append(&b, &trace.bytes(&of(1, packet(1, &[15, 50]))));
    append(&c, &trace.bytes(&of(2, packet(0, &[35]))));
    assert_eq!(poll(&mut follow, 101), [15, 35]);
    assert_eq!(follow.late(), 2);
    assert_eq!(finish(&mut follow, 102), [50]);
}

#[test]
fn silence_and_emptiness_are_no_end() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let mut follow = follow(folder.path());
    let has_come = |follow: &Follow, at| follow.has_come_to(Timestamp::from_nanos(at));
    assert_eq!(poll(&mut follow, 0), [] as [i64; 0]);
    assert!(!has_come(&follow, 0) && !has_come(&follow, i64::MAX), "nothing is there yet");
    let a = trace.write(folder.path(), "a", &[packet(0, &[10, 20])]);
    trace.write(folder.path(), "b", &[of(1, packet(0, &[5, 30]))]);
    poll(&mut follow, 1);
    assert!(has_come(&follow, 20) && !has_come(&follow, 21), "one may still tell of 21");
    poll(&mut follow, 1_000);
    assert!(has_come(&follow, 30) && !has_come(&follow, 31), "both are silent");
    append(&a, &trace.bytes(&packet(1, &[40])));
    assert_eq!(poll(&mut follow, 1_001), [40]);
    assert!(has_come(&follow, 40) && !has_come(&follow, i64::MAX));
    // Without a clock, there is no time to come to.
    let untimed = Trace { clock: None, ..trace };
    let other = tempfile::tempdir().unwrap();
    untimed.write(other.path(), "a", &[packet(0, &[10])]);
    let mut follow = self::follow(other.path());
    assert_eq!(poll(&mut follow, 0).len(), 1);
    assert!(!has_come(&follow, 0));
}

#[test]
fn a_rotation_moves_files_and_nothing_is_read_twice_or_missed() {
    for instance in [true, false] {
        let trace = Trace { instance, ..Trace::default() };
        let session = tempfile::tempdir().unwrap();
        let at = |path: &str| session.path().join(path);
        let file = trace.write(&at("ust"), "ch", &[packet(0, &[10, 20])]);
        let mut follow = follow(session.path());
        assert_eq!(poll(&mut follow, 0), [10, 20]);
        append(&file, &trace.bytes(&packet(1, &[30])));
        follow.poll(Timestamp::from_nanos(1)).unwrap();
        // Moved between looking and reading, with one packet that was not looked at.
        append(&file, &trace.bytes(&packet(2, &[40])));
        let archive = "archives/20261120T164407+0000-20261120T164408+0000-0";
        fs::create_dir_all(at(archive)).unwrap();
        fs::rename(at("ust"), at(archive).join("ust")).unwrap();
        let mut all = drain(&mut follow);
        let next = "20261120T164408+0000-1/ust";
        let file = trace.write(&at(next), "ch", &[Packet { discarded: 4, ..packet(3, &[50]) }]);
        all.extend(poll(&mut follow, 2));
        append(&file, &trace.bytes(&Packet { discarded: 4, ..packet(4, &[60]) }));
        all.extend(poll(&mut follow, 3));
        all.extend(finish(&mut follow, 4));
        assert_eq!(all, [30, 40, -4, 50, 60], "instance ids: {instance}");
        assert_eq!(follow.streams(), 1);
        no_findings(&follow);
    }
}

#[test]
fn packets_that_two_snapshots_hold_are_given_once() {
    let trace = Trace::default();
    let session = tempfile::tempdir().unwrap();
    let at = |snapshot: &str| session.path().join(snapshot).join("ust");
    let packets: Vec<Packet> = (0..6).map(|n| packet(n, &[n * 10])).collect();
    trace.write(&at("snapshot-1"), "ch", &packets[..3]);
    let mut follow = follow(session.path());
    assert_eq!(poll(&mut follow, 0), [0, 10, 20]);
    trace.write(&at("snapshot-2"), "ch", &packets[1..5]);
    trace.write(&at("copy-of-1"), "ch", &packets[..3]);
    let mut more = Vec::new();
    for now in 1..5 {
        more.extend(poll(&mut follow, now));
    }
    assert_eq!(more, [30, 40]);
    trace.write(&at("snapshot-3"), "ch", &packets[..6]);
    more.extend(poll(&mut follow, 5));
    more.extend(poll(&mut follow, 6));
    more.extend(finish(&mut follow, 7));
    assert_eq!((more.as_slice(), follow.streams()), ([30, 40, 50].as_slice(), 1));
    no_findings(&follow);
}

#[test]
fn what_is_added_to_a_file_after_the_next_one_was_seen_comes_first() {
    let trace = Trace::default();
    let session = tempfile::tempdir().unwrap();
    let at = |chunk: &str| session.path().join(chunk).join("ust");
    let old = trace.write(&at("20261120T164407+0000-0"), "ch", &[packet(0, &[10, 20])]);
    let mut follow = follow(session.path());
    assert_eq!(poll(&mut follow, 0), [10, 20]);
    trace.write(&at("20261120T164408+0000-1"), "ch", &[packet(2, &[50])]);
    assert_eq!(poll(&mut follow, 1), [] as [i64; 0]);
    append(&old, &trace.bytes(&packet(1, &[30])));
    assert_eq!(poll(&mut follow, 2), [30, 50]);
    assert_eq!(finish(&mut follow, 3), [] as [i64; 0]);
    no_findings(&follow);
}

#[test]
fn a_file_that_is_not_found_while_it_is_moved_holds_up_the_next_one() {
    let trace = Trace::default();
    let session = tempfile::tempdir().unwrap();
    let at = |chunk: &str| session.path().join(chunk).join("ust");
    let old = trace.write(&at(""), "ch", &[packet(0, &[10, 20])]);
    let mut follow = follow(session.path());
    assert_eq!(poll(&mut follow, 0), [10, 20]);
    // The next chunk's file is there, and empty; the last packet of the one before comes later.
    let new = trace.write(&at("20261120T164408+0000-1"), "ch", &[]);
    assert_eq!(poll(&mut follow, 1), [] as [i64; 0]);
    append(&new, &trace.bytes(&packet(2, &[50])));
    assert_eq!(poll(&mut follow, 2), [] as [i64; 0]);
    append(&old, &trace.bytes(&packet(1, &[30])));
    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(at(""), elsewhere.path().join("ust")).unwrap();
    assert_eq!(poll(&mut follow, 3), [] as [i64; 0], "not found");
    let archive = at("archives/20261120T164407+0000-20261120T164408+0000-0");
    fs::create_dir_all(archive.parent().unwrap()).unwrap();
    fs::rename(elsewhere.path().join("ust"), archive).unwrap();
    assert_eq!(poll(&mut follow, 4), [30, 50]);
    // One that was deleted is not waited for.
    trace.write(&at("20261120T164409+0000-2"), "ch", &[packet(3, &[60])]);
    fs::remove_file(new).unwrap();
    let later: Vec<i64> = (5..10).flat_map(|now| poll(&mut follow, now)).collect();
    assert_eq!(later, [60]);
    no_findings(&follow);
}

#[test]
fn files_of_a_stream_that_are_seen_together_are_read_in_order_of_time_not_of_names() {
    let trace = Trace::default();
    let session = tempfile::tempdir().unwrap();
    let at = |chunk: &str| session.path().join(chunk).join("ust");
    trace.write(&at("20261120T164408+0000-1"), "ch", &[packet(1, &[30])]);
    let archive = at("archives/20261120T164407+0000-20261120T164408+0000-0");
    trace.write(&archive, "ch", &[packet(0, &[10, 20])]);
    let mut follow = follow(session.path());
    // Of the later one, more may have been listed than of the earlier one.
    assert_eq!([poll(&mut follow, 0), poll(&mut follow, 1)].concat(), [10, 20, 30]);
    no_findings(&follow);
}

#[test]
fn a_new_folder_is_a_new_trace_once_its_metadata_can_be_read() {
    let trace = Trace::default();
    let other = Trace { uuid: Some(9), ..Trace::default() };
    let session = tempfile::tempdir().unwrap();
    let mut follow = follow(session.path());
    assert_eq!(poll(&mut follow, 0), [] as [i64; 0]);
    let a = trace.write(&session.path().join("a"), "ch", &[packet(0, &[10])]);
    let text = other.metadata();
    let b = session.path().join("b");
    other.write(&b, "ch", &[packet(0, &[5, 30])]);
    fs::write(b.join("metadata"), &text[..text.len() / 2]).unwrap();
    assert_eq!(poll(&mut follow, 1), [] as [i64; 0], "the other trace could tell of earlier times");
    append(&b.join("metadata"), &text.as_bytes()[text.len() / 2..]);
    assert_eq!(poll(&mut follow, 2), [5, 10]);
    append(&a, &trace.bytes(&packet(1, &[40])));
    assert_eq!(poll(&mut follow, 3), [30]);
    assert_eq!(finish(&mut follow, 4), [40]);
    no_findings(&follow);
}

#[test]
fn packets_are_read_by_the_metadata_that_grew_with_them() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let file = trace.write(folder.path(), "ch", &[packet(0, &[10])]);
    let mut follow = follow(folder.path());
    assert_eq!(poll(&mut follow, 0), [10]);
    let tock = "event { name = tock; id = 1; stream_id = 0; fields := struct { u64 at; }; };";
    append(&folder.path().join("metadata"), tock.as_bytes());
    append(&file, &trace.bytes(&Packet { event: 1, ..packet(1, &[20]) }));
    follow.poll(Timestamp::from_nanos(1)).unwrap();
    let Some(Item::Event(event)) = follow.next_item() else { panic!("an event record") };
    assert_eq!((event.record.name(), event.timestamp.nanos()), ("tock", 20));
    no_findings(&follow);
}

#[test]
fn in_the_end_what_is_not_whole_is_read_as_far_as_it_goes_and_told() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let whole = trace.bytes(&packet(0, &[10, 20]));
    let file = trace.write(folder.path(), "a", &[packet(0, &[1])]);
    let mut follow = follow(folder.path());
    append(&file, &whole[..whole.len() - 1]);
    fs::write(folder.path().join("b"), trace.bytes(&of(1, packet(0, &[5, 6])))).unwrap();
    let cut = trace.bytes(&of(2, packet(0, &[7, 8])));
    fs::write(folder.path().join("c"), &cut[..cut.len() - 1]).unwrap();
    assert_eq!(poll(&mut follow, 0), [] as [i64; 0]);
    assert_eq!(finish(&mut follow, 1), [1, 5, 6, 7, 10]);
    let told: Vec<String> = follow.findings().kept().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told.iter().any(|finding| finding.contains(&folder.path().join("a").display().to_string()))
    );
}

#[test]
fn a_file_that_vanished_unread_is_told_and_the_others_go_on() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let a = trace.write(folder.path(), "a", &[packet(0, &[10, 30])]);
    trace.write(folder.path(), "b", &[of(1, packet(0, &[5, 20]))]);
    let mut follow = follow(folder.path());
    follow.poll(Timestamp::from_nanos(0)).unwrap();
    fs::remove_file(&a).unwrap();
    assert_eq!(drain(&mut follow), [5]);
    assert_eq!(poll(&mut follow, 1), [] as [i64; 0]);
    assert_eq!(poll(&mut follow, 2), [20]);
    assert_eq!(finish(&mut follow, 3), [] as [i64; 0]);
    let told = follow.findings().kept();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].to_string().contains(&a.display().to_string()), "{}", told[0]);
}

#[test]
fn files_that_were_read_and_deleted_are_forgotten_at_last() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let name = |n: u64| format!("ch_{n:05}");
    let write = |range: std::ops::Range<u64>| {
        range.for_each(|n| drop(trace.write(folder.path(), &name(n), &[packet(n, &[n * 10])])));
    };
    let times = |range: std::ops::Range<i64>| range.map(|n| n * 10).collect::<Vec<i64>>();
    write(0..1_500);
    let mut follow = follow(folder.path());
    let first = [poll(&mut follow, 0), poll(&mut follow, 1)].concat();
    assert_eq!(first, times(0..1_500));
    (0..1_490).for_each(|n| fs::remove_file(folder.path().join(name(n))).unwrap());
    write(1_500..1_502);
    assert_eq!(poll(&mut follow, 2), [] as [i64; 0]);
    follow.poll(Timestamp::from_nanos(3)).unwrap();
    let Some(Item::Event(event)) = follow.next_item() else { panic!("an event record") };
    assert_eq!((event.timestamp.nanos(), event.stream.files().len()), (15_000, 1_026));
    assert_eq!(drain(&mut follow), [15_010]);
    no_findings(&follow);
}

#[test]
fn a_range_is_kept_and_a_clock_that_cannot_be_compared_is_refused() {
    let trace = Trace::default();
    let session = tempfile::tempdir().unwrap();
    trace.write(&session.path().join("a"), "ch", &[packet(0, &[10, 20, 30])]);
    let range = crate::made::range(15, 30);
    let options = FollowOptions { range, ..FollowOptions::default() };
    let mut follow = Follow::new(&[session.path()], options);
    assert_eq!(poll(&mut follow, 0), [20]);
    let other = Trace { uuid: Some(9), clock: Some("name = other;"), ..Trace::default() };
    other.write(&session.path().join("b"), "ch", &[packet(0, &[10])]);
    let refused = follow.poll(Timestamp::from_nanos(1));
    assert!(matches!(refused, Err(Error::Uncorrelated(_))), "{refused:?}");
}

/// A session as LTTng's daemon rotates it: the chunk that is written lies in the session's folder, the one before is
/// put away until its last packets are written, and then archived.
struct Rotating {
    session: tempfile::TempDir,
    trace: Trace,
    /// Packets that the tracer has not got rid of, of the chunk before and of this one.
    unwritten: [Vec<u64>; 2],
    begun: u64,
    is_rotating: bool,
    archived: u64,
}

impl Rotating {
    const OLD: &str = ".tmp_old_chunk";

    fn new() -> Self {
        let session = tempfile::tempdir().unwrap();
        let trace = Trace::default();
        trace.write(&session.path().join("ust"), "ch", &[]);
        let unwritten = [Vec::new(), Vec::new()];
        Self { session, trace, unwritten, begun: 0, is_rotating: false, archived: 0 }
    }

    fn at(&self, place: &str) -> std::path::PathBuf {
        self.session.path().join(place)
    }

    fn begin_packet(&mut self) {
        self.unwritten[1].push(self.begun);
        self.begun += 1;
    }

    /// Writes the oldest packet.
    fn write(&mut self) {
        let old = usize::from(self.unwritten[0].is_empty());
        if self.unwritten[old].is_empty() {
            return;
        }
        let number = self.unwritten[old].remove(0);
        let place = if old == 0 { format!("{}/ust/ch", Self::OLD) } else { "ust/ch".to_owned() };
        append(&self.at(&place), &self.trace.bytes(&packet(number, &[number * 10 + 1])));
    }

    fn rotate(&mut self) {
        if self.is_rotating {
            return;
        }
        self.is_rotating = true;
        self.unwritten[0] = std::mem::take(&mut self.unwritten[1]);
        fs::create_dir_all(self.at(Self::OLD)).unwrap();
        fs::rename(self.at("ust"), self.at(Self::OLD).join("ust")).unwrap();
        self.trace.write(&self.at("ust"), "ch", &[]);
    }

    fn archive(&mut self) {
        if !self.is_rotating || !self.unwritten[0].is_empty() {
            return;
        }
        let chunk = format!("archives/20261120T164407+0000-20261120T164408+0000-{}", self.archived);
        fs::create_dir_all(self.at("archives")).unwrap();
        fs::rename(self.at(Self::OLD), self.at(&chunk)).unwrap();
        (self.is_rotating, self.archived) = (false, self.archived + 1);
    }
}

#[test]
fn a_chunk_that_is_put_away_until_it_is_archived_comes_before_the_next_one() {
    let mut writer = Rotating::new();
    let mut follow = follow(writer.session.path());
    assert_eq!(poll(&mut follow, 0), [] as [i64; 0]);
    (0..2).for_each(|_| writer.begin_packet());
    writer.rotate();
    (0..2).for_each(|_| writer.begin_packet());
    (0..4).for_each(|_| writer.write());
    // A rotation of a busy machine takes as long as it likes.
    let mut given: Vec<i64> = (1..9).flat_map(|now| poll(&mut follow, now)).collect();
    writer.archive();
    given.extend((9..12).flat_map(|now| poll(&mut follow, now)));
    assert_eq!(given, [1, 11, 21, 31]);
    no_findings(&follow);
}

#[test]
fn however_a_session_rotates_each_packet_is_given_once_and_in_order() {
    for seed in 0..40 {
        let mut next = numbers(seed);
        let mut writer = Rotating::new();
        let mut follow = follow(writer.session.path());
        let mut given = Vec::new();
        let mut looked = 0;
        let looks = 1 + next(6);
        for _ in 0..120 {
            match next(6 + looks) {
                0 | 1 => writer.begin_packet(),
                2 | 3 => writer.write(),
                4 => writer.rotate(),
                5 => writer.archive(),
                number if number % 2 == 0 => given.extend(drain(&mut follow)),
                _ => {
                    follow.poll(Timestamp::from_nanos(looked)).unwrap();
                    looked += 1;
                }
            }
        }
        (0..writer.begun).for_each(|_| writer.write());
        writer.archive();
        // Chunks without a packet are silent by then.
        for now in (1_000..1_400).step_by(100) {
            given.extend(poll(&mut follow, now));
        }
        let all: Vec<i64> = (0..)
            .map(|number| number * 10 + 1)
            .take(usize::try_from(writer.begun).unwrap())
            .collect();
        assert_eq!(given, all, "seed {seed}");
        given.extend(finish(&mut follow, 1_400));
        assert_eq!(given, all, "seed {seed}");
        no_findings(&follow);
    }
}

/// Numbers that look random and are the same each time.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn however_a_session_grows_the_end_is_what_a_reader_of_the_whole_sees() {
    for seed in 0..40 {
        let mut next = numbers(seed);
        let trace = Trace::default();
        let session = tempfile::tempdir().unwrap();
        let streams = 1 + next(4);
        let mut follow = Follow::new(
            &[session.path()],
            FollowOptions { grace_ns: u64::MAX, ..FollowOptions::default() },
        );
        let mut given = Vec::new();
        let mut time = 0;
        let mut sequence = 0;
        for chunk in 0..3 {
            let folder = session.path().join(format!("20261120T16440{chunk}+0000-{chunk}/ust"));
            let mut pending: Vec<Vec<u8>> = (0..streams).map(|_| Vec::new()).collect();
            for stream in 0..streams {
                trace.write(&folder, &format!("ch_{stream}"), &[]);
            }
            for _ in 0..4 {
                for (stream, bytes) in (0..).zip(&mut pending) {
                    let times: Vec<u64> = (0..next(5))
                        .map(|_| {
                            time += next(9);
                            time
                        })
                        .collect();
                    let begin = times.first().copied().unwrap_or(time);
                    let packet = Packet { begin, end: time, ..packet(sequence, &times) };
                    bytes.extend(trace.bytes(&of(stream, packet)));
                }
                sequence += 1;
            }
            while pending.iter().any(|bytes| !bytes.is_empty()) {
                for (stream, bytes) in pending.iter_mut().enumerate() {
                    let step = usize::try_from(next(200)).unwrap().min(bytes.len());
                    let part: Vec<u8> = bytes.drain(..step).collect();
                    append(&folder.join(format!("ch_{stream}")), &part);
                }
                given.extend(poll(&mut follow, 0));
            }
            let archives = session.path().join("archives");
            fs::create_dir_all(&archives).unwrap();
            let archive = archives
                .join(format!("20261120T16440{chunk}+0000-20261120T16441{chunk}+0000-{chunk}"));
            fs::rename(folder.parent().unwrap(), archive).unwrap();
        }
        assert!(!given.is_empty(), "seed {seed}: something is given before the end");
        given.extend(finish(&mut follow, 1));
        no_findings(&follow);
        assert!(given.is_sorted(), "seed {seed}: {given:?}");
        let whole = read(&open(session.path()), TimeRange::ALL);
        assert_eq!(given, whole.times, "seed {seed}");
    }
}
