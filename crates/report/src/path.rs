//! A critical path for a terminal: what was done when, and how it adds up.

use model::Nanos;
use stitch::answer::{PathAnswer, PathHop};

use crate::text::{self, Table, printable};

/// How many characters the drawn time has.
const WIDTH: u64 = 40;

/// The path of a request or thread, stretch by stretch, and its time by thread and state.
#[must_use]
pub fn path(answer: &PathAnswer) -> String {
    let wall_ns = answer.end_ns.abs_diff(answer.begin_ns);
    let thread = format!("{} ({})", printable(&answer.comm), answer.tid);
    let what = match (&answer.request, answer.id) {
        (Some(name), Some(id)) => format!("{} {id} in thread {thread}", printable(name)),
        (Some(name), None) => format!("{} in thread {thread}", printable(name)),
        (None, _) => format!("thread {thread}"),
    };
    let mut out = format!("{what}: {}\n\n", Nanos::new(wall_ns));
    if answer.path.is_longer {
        text::write_line(&mut out, "what came before the first line is only in the sums");
    }
    let is_name = vec![false, false, true, true, true, true];
    let mut hops = Table::with_names(&["after", "for", "thread", "state", "when", ""], is_name);
    for hop in &answer.path.hops {
        hops.row([
            Nanos::new(hop.offset_ns).to_string(),
            Nanos::new(hop.ns).to_string(),
            format!("{} ({})", printable(&hop.comm), hop.tid),
            hop.state.word().to_owned(),
            bar(hop, wall_ns),
            why(hop),
        ]);
    }
    hops.render(&mut out);
    out.push('\n');
    let is_name = vec![true, true, false, false];
    let mut sums = Table::with_names(&["thread", "state", "time", "share"], is_name);
    for total in &answer.path.totals {
        let tenths = u128::from(total.ns) * 1_000 / u128::from(wall_ns.max(1));
        sums.row([
            format!("{} ({})", printable(&total.comm), total.tid),
            total.state.word().to_owned(),
            Nanos::new(total.ns).to_string(),
            format!("{}.{} %", tenths / 10, tenths % 10),
        ]);
    }
    sums.render(&mut out);
    text::loss(&answer.loss, &mut out);
    out
}

/// Where in the path a stretch lies: at least one character of [`WIDTH`].
fn bar(hop: &PathHop, wall_ns: u64) -> String {
    let at = |ns: u64| {
        let at = u128::from(ns) * u128::from(WIDTH) / u128::from(wall_ns.max(1));
        usize::try_from(at).unwrap_or(0)
    };
    let begin = at(hop.offset_ns).min(at(wall_ns).saturating_sub(1));
    let end = at(hop.offset_ns.saturating_add(hop.ns)).max(begin + 1);
    " ".repeat(begin) + &"█".repeat(end - begin)
}

fn why(hop: &PathHop) -> String {
    match (&hop.woken_by, &hop.ended_by) {
        (Some(waker), _) => format!("woken by {}", printable(waker)),
        (None, Some(waker)) => format!("ended by {}", printable(waker)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use stitch::answer::{CriticalPath, PATH_FORMAT, PathState, PathTotal};

    use super::*;

    fn hop(offset_ns: u64, ns: u64, tid: i32, state: PathState) -> PathHop {
        let comm = "a\u{1b}b".into();
        PathHop { offset_ns, ns, comm, tid, state, ended_by: None, woken_by: None }
    }

    #[test]
    fn stretches_are_drawn_below_each_other_and_no_name_reaches_the_terminal_as_it_is() {
        let first = PathHop {
            ended_by: Some("interrupt 5 eth0".into()),
            ..hop(0, 1_000, 7, PathState::Disk)
        };
        let last = PathHop {
            woken_by: Some("a\u{1b}b (7)".into()),
            ..hop(1_000, 1_000, 8, PathState::Waiting)
        };
        let sum = |tid, state| PathTotal { comm: "".into(), tid, state, ns: 1_000 };
        let answer = PathAnswer {
            format: PATH_FORMAT.into(),
            host: "h".into(),
            request: Some("request".into()),
            id: Some(3),
            comm: "a".into(),
            tid: 8,
            begin_ns: 10,
            end_ns: 2_010,
            path: CriticalPath {
                totals: vec![sum(7, PathState::Disk), sum(8, PathState::Waiting)],
                hops: vec![first, last],
                is_longer: false,
            },
            loss: stitch::loss(&stitch::Summary::identity()),
        };
        let text = path(&answer);
        assert!(text.starts_with("request 3 in thread a (8): "), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let half = "█".repeat(20);
        assert!(lines[3].contains(&format!("disk     {half}")), "{text}");
        assert!(lines[3].ends_with("ended by interrupt 5 eth0"), "{text}");
        assert!(lines[4].contains(&format!("waiting  {}{half}", " ".repeat(20))), "{text}");
        assert!(lines[4].ends_with("woken by a\u{fffd}b (7)"), "{text}");
        assert!(text.ends_with("50.0 %\n"), "{text}");
    }
}
