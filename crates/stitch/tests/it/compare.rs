//! Answers compared byte for byte, and what must hold inside each. Shared with the tests of crate `mapper`.

use stitch::answer::{CriticalPath, Phases, Split};
use stitch::{Question, Subject, Summary};

pub(crate) fn answers(summary: &Summary) -> (String, String) {
    (
        serde_json::to_string_pretty(&stitch::phases(summary)).unwrap(),
        serde_json::to_string_pretty(&stitch::syscalls(summary)).unwrap() + &tables(summary),
    )
}

/// Every table, a line for each row.
pub(crate) fn tables(summary: &Summary) -> String {
    let question = Question::default();
    let tables =
        Subject::ALL.iter().flat_map(|subject| stitch::tables(summary, *subject, &question));
    let lines = tables.map(|table| {
        let rows: String = table.rows.iter().map(|row| format!("{row:?}\n")).collect();
        format!("\n{} of {:?}\n{rows}", table.class.name, table.range)
    });
    lines.collect()
}

/// Compares answers; a failure shows the first line that differs, not both texts.
pub(crate) fn same(whole: &str, stitched: &str) {
    let lines = whole.lines().zip(stitched.lines()).enumerate();
    let differs = lines.clone().find(|(_, (one, other))| one != other);
    let before = differs.map(|(at, _)| whole.lines().take(at).skip(at.saturating_sub(30)));
    assert!(
        whole == stitched,
        "{differs:?} after\n{}",
        before.map(|lines| lines.collect::<Vec<_>>().join("\n")).unwrap_or_default(),
    );
}

fn parts(split: &Split) -> u64 {
    let blocked = split.blocked_ns;
    let asleep = blocked.disk
        + blocked.network
        + blocked.lock
        + blocked.timer
        + blocked.pipe
        + blocked.child
        + blocked.other;
    split.running_ns + split.waiting_ns + split.unknown_ns + asleep
}

/// The totals of a path are its length, and so are its stretches, which follow each other without a hole.
pub(crate) fn path_holds(path: &CriticalPath, wall_ns: u64) {
    let totals: u64 = path.totals.iter().map(|total| total.ns).sum();
    assert_eq!(totals, wall_ns, "{path:?}");
    let mut reached = wall_ns;
    for hop in path.hops.iter().rev() {
        assert_eq!(hop.offset_ns + hop.ns, reached, "{path:?}");
        reached = hop.offset_ns;
    }
    assert!(reached == 0 || path.is_longer, "{path:?}");
}

pub(crate) fn sums_hold(answer: &Phases) {
    for request in &answer.request_list {
        assert_eq!(parts(&request.split), request.split.wall_ns, "{request:?}");
        let phases: u64 = request.phases.iter().map(|phase| phase.split.wall_ns).sum();
        assert_eq!(phases, request.split.wall_ns, "{request:?}");
        for phase in &request.phases {
            assert_eq!(parts(&phase.split), phase.split.wall_ns);
        }
        if let Some(path) = &request.critical_path {
            path_holds(path, request.split.wall_ns);
        }
    }
    let phases: u64 = answer.phases.iter().map(|phase| phase.split.wall_ns).sum();
    assert_eq!(phases, answer.requests.wall_ns);
    let listed: u64 = answer.request_list.iter().map(|request| request.split.wall_ns).sum();
    assert_eq!(listed, answer.requests.wall_ns);
    for phase in &answer.phases {
        let blamed: u64 = phase.waited_for.iter().map(|row| row.ns).sum();
        assert!(blamed <= phase.split.waiting_ns, "{phase:?}");
    }
}
