//! Real producers are followed by real viewers through the relay's port for viewers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::viewer::{Babeltrace2, Printed};
use wire::live::ViewedSessionId;
use wire::live::viewer::{NewStreamsReply, NextIndex, Request, Seek, StreamEntry};

use crate::real::Setup;
use crate::viewer::Viewer as Asker;
use crate::viewer_replay::Reply;

/// How long what was traced may take until it is printed.
const PATIENCE: Duration = Duration::from_secs(30);

impl Setup {
    fn follow(&self, session: &str) -> Babeltrace2 {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let path = format!("/host/{}/{session}", host.trim());
        Babeltrace2::start(self.relay.viewers_addr(), &path).unwrap()
    }

    /// Waits until a session has so many viewers.
    fn wait_for_viewers(&self, session: &str, count: u32) {
        let deadline = Instant::now() + PATIENCE;
        let listed = format!("{count} client(s) connected");
        loop {
            let lister = Babeltrace2::start(self.relay.viewers_addr(), "").unwrap();
            let text = lister.finish(PATIENCE).unwrap().text();
            if text.lines().any(|line| line.contains(session) && line.contains(&listed)) {
                return;
            }
            assert!(Instant::now() < deadline, "{text}");
        }
    }
}

/// Events as text, one a line, without what a viewer's folder adds: both print alike.
fn recorded(folder: &Path) -> String {
    let output = Command::new("babeltrace2").arg("--clock-cycles").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn check(printed: &Printed, expected: &str) {
    assert!(printed.status.success(), "{}", printed.errors);
    assert_eq!(printed.text(), expected, "{}", printed.errors);
}

#[test]
fn babeltrace2_prints_what_is_recorded_while_it_is() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("seen", "--live=100000");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    // The session is there before its first program, the stream only with it.
    let mut first = setup.follow("seen");
    let second = setup.follow("seen");
    setup.wait_for_viewers("seen", 2);
    setup.emit(500);
    assert!(first.wait_for(500, PATIENCE), "{:?}", first.lines().len());
    setup.emit(250);
    assert!(first.wait_for(750, PATIENCE), "{:?}", first.lines().len());
    setup.lttng("stop");
    setup.lttng("destroy seen");
    let sealed = setup.next_sealed();
    let expected = recorded(&sealed.folder);
    assert_eq!(expected.lines().count(), 750);
    for viewer in [first, second] {
        check(&viewer.finish(PATIENCE).expect("babeltrace2 ends"), &expected);
    }
    assert_eq!(setup.relay.totals().packets_withheld, 0);
    assert_eq!(setup.relay.totals().promises_broken, 0);
    setup.end();
}

#[test]
fn programs_that_come_and_go_are_followed() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("visits", "--live=100000");
    setup.lttng("enable-channel -u ch --buffers-pid --subbuf-size=4096 --num-subbuf=16");
    setup.lttng("enable-event -u testkit:tick -c ch");
    setup.lttng("start");
    let mut viewer = setup.follow("visits");
    setup.wait_for_viewers("visits", 1);
    for visit in 1..=3 {
        setup.emit(40);
        assert!(viewer.wait_for(40 * visit, PATIENCE), "{visit}: {:?}", viewer.lines().len());
    }
    setup.lttng("destroy visits");
    let sealed = setup.next_sealed();
    let expected = recorded(&sealed.folder);
    assert_eq!(expected.lines().count(), 120);
    check(&viewer.finish(PATIENCE).expect("babeltrace2 ends"), &expected);
    setup.end();
}

#[test]
fn metadata_that_grow_come_before_what_they_describe() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("growing", "--live=100000");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    let mut viewer = setup.follow("growing");
    setup.wait_for_viewers("growing", 1);
    setup.emit(10);
    assert!(viewer.wait_for(10, PATIENCE));
    // Another event of the same process: its description is sent only now.
    setup.lttng("enable-event -u lttng_ust_statedump:*");
    setup.emit(10);
    assert!(viewer.wait_for(30, PATIENCE), "{:?}", viewer.lines().len());
    setup.lttng("destroy growing");
    let sealed = setup.next_sealed();
    let printed = viewer.finish(PATIENCE).expect("babeltrace2 ends");
    check(&printed, &recorded(&sealed.folder));
    assert!(printed.text().contains("statedump"), "{}", printed.text());
    setup.end();
}

#[test]
fn a_session_that_is_cleared_is_followed_on() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("swept", "--live=100000");
    setup.lttng("enable-event -u testkit:tick");
    setup.lttng("start");
    let mut viewer = setup.follow("swept");
    setup.wait_for_viewers("swept", 1);
    setup.emit(100);
    assert!(viewer.wait_for(100, PATIENCE));
    setup.lttng("clear");
    setup.emit(50);
    assert!(viewer.wait_for(150, PATIENCE), "{:?}", viewer.lines().len());
    setup.lttng("destroy swept");
    let sealed = setup.next_sealed();
    let expected = recorded(&sealed.folder);
    assert_eq!(expected.lines().count(), 50);
    let printed = viewer.finish(PATIENCE).expect("babeltrace2 ends");
    assert!(printed.status.success(), "{}", printed.errors);
    let without_delta = |line: &str| line.split_once(") ").map(|(_, rest)| rest.to_owned());
    let last: Vec<_> =
        printed.lines.iter().skip(100).map(|(_, line)| without_delta(line)).collect();
    assert_eq!(last, expected.lines().map(without_delta).collect::<Vec<_>>());
    setup.end();
}

#[test]
fn a_session_without_live_timer_is_followed_through_its_rotations() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("plain", "");
    setup.lttng("enable-channel -u metadata --switch-timer=200000");
    setup.lttng("enable-channel -u ch --switch-timer=300000");
    setup.lttng("enable-event -u testkit:tick -c ch");
    setup.lttng("start");
    let mut viewer = setup.follow("plain");
    setup.wait_for_viewers("plain", 1);
    let mut seen = 0;
    for count in [200, 150, 100] {
        setup.emit(count);
        seen += usize::try_from(count).unwrap();
        setup.lttng("rotate");
    }
    assert!(viewer.wait_for(seen, PATIENCE), "{:?}", viewer.lines().len());
    setup.emit(50);
    setup.lttng("destroy plain");
    for _ in 0..4 {
        setup.next_sealed();
    }
    let expected = recorded(setup.root.path());
    assert_eq!(expected.lines().count(), 500);
    check(&viewer.finish(PATIENCE).expect("babeltrace2 ends"), &expected);
    assert_eq!(setup.relay.totals().packets_withheld, 0);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.end();
}

/// Viewers of the test's own, beside babeltrace2; `VIEWERS` says another number.
const MANY: usize = 200;

#[test]
fn many_viewers_see_everything_once_and_cost_the_producer_nothing() {
    let Some(mut setup) = Setup::new() else { return };
    setup.create("crowd", "--live=100000");
    setup.lttng("enable-channel -u ch --subbuf-size=16384 --num-subbuf=8");
    setup.lttng("enable-event -u testkit:tick -c ch");
    setup.lttng("start");
    // Its streams and metadata are there before the viewers.
    setup.emit(1);
    let real: Vec<Babeltrace2> = (0..3).map(|_| setup.follow("crowd")).collect();
    setup.wait_for_viewers("crowd", 3);
    let relay = setup.relay.viewers_addr();
    let many = std::env::var("VIEWERS").map_or(MANY, |many| many.parse().unwrap());
    let crowd: Vec<_> =
        (0..4).map(|_| std::thread::spawn(move || follow_all(relay, many / 4))).collect();
    let all = u32::try_from(many / 4 * 4 + 3).unwrap();
    setup.wait_for_viewers("crowd", all);
    setup.emit_slowly(4000, 500);
    setup.lttng("destroy crowd");
    let sealed = setup.next_sealed();
    let trace = sealed.folder.join("ust/uid/0/64-bit");
    for thread in crowd {
        for seen in thread.join().unwrap() {
            assert!(!seen.is_empty());
            for (channel, bytes) in seen {
                let file = std::fs::read(trace.join(&channel)).unwrap();
                assert!(file == bytes, "{channel}: {} of {} bytes", bytes.len(), file.len());
            }
        }
    }
    let expected = recorded(&sealed.folder);
    assert_eq!(expected.lines().count(), 4001, "nothing was discarded");
    for viewer in real {
        let printed = viewer.finish(PATIENCE).expect("babeltrace2 ends");
        assert!(printed.status.success(), "{}", printed.errors);
        let seen = printed.text();
        assert!(seen.lines().count() >= 4000, "{}", seen.lines().count());
        let rest =
            |text: &str| text.lines().rev().take(3999).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rest(&seen), rest(&expected));
    }
    setup.end();
}

/// Reads the only session with so many viewers from its beginning to its end; gives each one's bytes of each stream.
fn follow_all(relay: SocketAddr, count: usize) -> Vec<BTreeMap<String, Vec<u8>>> {
    let mut viewers: Vec<Follower> = (0..count).map(|_| Follower::attach(relay)).collect();
    while viewers.iter().any(|viewer| !viewer.has_ended) {
        for viewer in &mut viewers {
            viewer.look();
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    viewers.into_iter().map(|viewer| viewer.seen).collect()
}

struct Follower {
    asker: Asker,
    session: ViewedSessionId,
    streams: Vec<StreamEntry>,
    seen: BTreeMap<String, Vec<u8>>,
    has_ended: bool,
}

impl Follower {
    fn attach(relay: SocketAddr) -> Self {
        let mut asker = Asker::connect_to(relay, 15);
        let session = asker.sessions().first().unwrap().session;
        let mut streams = asker.attach(session, Seek::Beginning);
        streams.retain(|stream| !stream.is_metadata);
        Self { asker, session, streams, seen: BTreeMap::new(), has_ended: false }
    }

    fn look(&mut self) {
        if self.has_ended {
            return;
        }
        let asker = &mut self.asker;
        let seen = &mut self.seen;
        self.streams.retain(|stream| {
            loop {
                match asker.next(stream.stream).index {
                    NextIndex::Packet(entry) => {
                        let bytes = seen.entry(stream.channel.clone()).or_default();
                        assert_eq!(entry.offset_bytes, bytes.len() as u64, "once and in order");
                        assert_eq!(entry.events_discarded, 0);
                        let len = u32::try_from(entry.packet_size_bits / 8).unwrap();
                        let (_, packet) = asker.bytes(stream.stream, entry.offset_bytes, len);
                        assert_eq!(packet.len(), len as usize);
                        bytes.extend(packet);
                    }
                    NextIndex::HangUp => return false,
                    NextIndex::NotYet | NextIndex::Inactive { .. } => return true,
                    other => panic!("{other:?}"),
                }
            }
        });
        if self.streams.is_empty() {
            let request = Request::GetNewStreams(self.session);
            self.has_ended =
                asker.ask(&request) == Reply::Streams(NewStreamsReply::HangUp, Vec::new());
        }
    }
}
