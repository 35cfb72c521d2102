//! Answers compared byte for byte, and what must hold inside each. Shared with the tests of crate `mapper`.

use stitch::answer::{CriticalPath, Durations, Phases, Request, Split, Timeline};
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

/// Every request is in the bucket of its length and in the slot of its end, with all of its time.
fn groups_hold(answer: &Phases) {
    let Durations { percentiles, buckets } = &answer.durations;
    let requests = &answer.request_list;
    for bucket in buckets {
        let took =
            |request: &&Request| (bucket.low_ns..=bucket.high_ns).contains(&request.split.wall_ns);
        group_holds(requests.iter().filter(took), bucket.requests, &bucket.split);
    }
    let Timeline { slot_ns, slots } = &answer.timeline;
    let width = i64::try_from(*slot_ns).unwrap();
    for slot in slots {
        assert_eq!(slot.begin_ns % width, 0);
        let ended =
            |request: &&Request| (slot.begin_ns..slot.begin_ns + width).contains(&request.end_ns);
        let inside = requests.iter().filter(ended);
        let longest = inside.clone().map(|request| request.split.wall_ns).max();
        assert_eq!(longest, Some(slot.longest_ns), "{slot:?}");
        group_holds(inside, slot.requests, &slot.split);
    }
    let counts = [
        buckets.iter().map(|bucket| bucket.requests).sum::<u64>(),
        slots.iter().map(|slot| slot.requests).sum::<u64>(),
    ];
    assert_eq!(counts, [answer.requests.complete; 2]);
    let mut lengths: Vec<u64> = requests.iter().map(|request| request.split.wall_ns).collect();
    lengths.sort_unstable();
    for percentile in percentiles {
        let rank = (lengths.len() * usize::from(percentile.percent)).div_ceil(100);
        let exact = lengths.get(rank - 1).unwrap();
        assert!((percentile.low_ns..=percentile.high_ns).contains(exact), "{percentile:?}");
    }
    assert_eq!(percentiles.is_empty(), lengths.is_empty());
}

fn group_holds<'a>(requests: impl Iterator<Item = &'a Request> + Clone, count: u64, split: &Split) {
    assert_eq!(requests.clone().count() as u64, count, "{split:?}");
    let times =
        |of: fn(&Split) -> u64| requests.clone().map(|request| of(&request.split)).sum::<u64>();
    let parts: [fn(&Split) -> u64; 5] = [
        |split| split.wall_ns,
        |split| split.running_ns,
        |split| split.waiting_ns,
        |split| split.blocked_ns.network,
        |split| split.unknown_ns,
    ];
    for of in parts {
        assert_eq!(of(split), times(of), "{split:?}");
    }
    assert_eq!(crate::compare::parts(split), split.wall_ns);
}

pub(crate) fn sums_hold(answer: &Phases) {
    groups_hold(answer);
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
