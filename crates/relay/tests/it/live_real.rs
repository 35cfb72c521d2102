//! Real producers are followed by real viewers through the relay's port for viewers.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::viewer::{Babeltrace2, Printed};

use crate::real::Setup;

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
