//! The law: every cut and every grouping gives the answer of the whole, byte for byte.

use std::sync::Arc;

use model::{Tid, Timestamp};
use proptest::prelude::*;
use stitch::fact::{Fact, FactKind};
use stitch::{Assumption, Cover, Error, Identities, LookAhead, Summary, Window};

use crate::compare::{answers, same};
use crate::kernel_like::{Step, facts};

fn cover(begin: Timestamp, end: Timestamp) -> Cover {
    Cover { host: "host".into(), begin, end }
}

/// The summary of a window of these facts, mapped behind those before it.
pub(crate) fn map(facts: &[Fact<&str>], begin: Timestamp, end: Timestamp) -> Summary {
    map_after(facts, begin, end, learnt_at(facts, begin, &[]))
}

/// What the facts before a time say about who is who, but for those in gaps.
pub(crate) fn learnt_at(
    facts: &[Fact<&str>],
    begin: Timestamp,
    gaps: &[(Timestamp, Timestamp)],
) -> Identities {
    let mut known = Identities::default();
    let mut gaps = gaps.iter().filter(|(from, _)| *from < begin).peekable();
    for fact in facts.iter().filter(|fact| fact.at < begin) {
        while gaps.next_if(|(_, to)| *to <= fact.at).is_some() {
            known.forget_cpus();
        }
        if gaps.peek().is_none_or(|(from, _)| fact.at < *from) {
            known.learn(fact);
        }
    }
    gaps.for_each(|_| known.forget_cpus());
    known
}

/// The summaries of ten windows, some of which are missing.
pub(crate) fn tenths(all: &[Fact<&str>], end: Timestamp, missing: &[bool]) -> Vec<Summary> {
    let tenth = |n: i64| Timestamp::from_nanos(end.nanos() * n / 10);
    let windows = (0..10_i64).map(|n| (tenth(n), tenth(n + 1))).zip(missing);
    let windows: Vec<_> = windows.filter(|((from, to), _)| from < to).collect();
    let gaps = windows.iter().filter(|(_, missing)| **missing).map(|(window, _)| *window);
    let gaps: Vec<_> = gaps.collect();
    let parts = windows.iter().map(|((from, to), missing)| match missing {
        true => Summary::gap(cover(*from, *to)),
        false => map_after(all, *from, *to, learnt_at(all, *from, &gaps)),
    });
    parts.collect()
}

fn map_after(facts: &[Fact<&str>], begin: Timestamp, end: Timestamp, entry: Identities) -> Summary {
    let mut window = Window::after(cover(begin, end), Arc::new(entry));
    for fact in facts.iter().filter(|fact| begin <= fact.at && fact.at < end) {
        window.add(fact);
    }
    window.finish()
}

/// Merges neighbours in the order that `choices` says, until one is left.
pub(crate) fn reduce(mut parts: Vec<Summary>, choices: &[u16]) -> Summary {
    let mut choices = choices.iter().cycle();
    while parts.len() > 1 {
        let at = usize::from(*choices.next().unwrap()) % (parts.len() - 1);
        let right = parts.remove(at + 1);
        let left = std::mem::replace(&mut parts[at], Summary::identity());
        parts[at] = left.merge(right).unwrap();
    }
    parts.pop().unwrap_or_default()
}

/// The begins and ends of the windows between `begin` and `end` that these cuts give.
pub(crate) fn windows(
    mut cuts: Vec<Timestamp>,
    begin: Timestamp,
    end: Timestamp,
) -> Vec<(Timestamp, Timestamp)> {
    cuts.retain(|cut| begin < *cut && *cut < end);
    cuts.push(begin);
    cuts.push(end);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn check(all: &[Fact<&str>], cuts: Vec<Timestamp>, end: Timestamp, choices: &[u16]) {
    let begin = Timestamp::from_nanos(0);
    let whole = answers(&map(all, begin, end));
    let parts: Vec<Summary> =
        windows(cuts, begin, end).into_iter().map(|(from, to)| map(all, from, to)).collect();
    let stitched = answers(&reduce(parts, choices));
    same(&whole.0, &stitched.0);
    same(&whole.1, &stitched.1);
}

/// How many sequences a property is tried on; `STITCH_CASES` asks for a longer search.
#[expect(clippy::disallowed_methods, reason = "how long a test searches is its caller's choice")]
pub(crate) fn cases() -> u32 {
    std::env::var("STITCH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(300)
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(any::<Step>(), 0..400)
}

/// What the facts before a time, and the first switches of all, say about who is who.
fn known_at(facts: &[Fact<&str>], begin: Timestamp) -> Identities {
    let mut ahead = LookAhead::new(Timestamp::from_nanos(0));
    let mut known = Identities::default();
    for fact in facts {
        ahead.take(fact);
        if fact.at < begin {
            known.learn(fact);
        }
    }
    ahead.complete(&mut known);
    known
}

/// The facts as a tracer writes them that does not say whose they are.
fn anonymous(mut facts: Vec<Fact<&'static str>>) -> Vec<Fact<&'static str>> {
    for fact in &mut facts {
        let is_span = matches!(fact.kind, FactKind::SpanBegin(_) | FactKind::SpanEnd(_));
        let tells_thread = matches!(fact.kind, FactKind::Exec { old: Some(_), .. });
        let of_kernel = fact.tid.filter(|_| !is_span && !tells_thread);
        fact.pid = None;
        if of_kernel.is_some_and(|tid| tid != Tid::IDLE) {
            fact.tid = None;
        }
    }
    facts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn random_cuts_and_groupings_give_the_answer_of_the_whole(
        steps in steps(),
        cuts in prop::collection::vec(0.0..1.0_f64, 0..12),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        #[expect(clippy::cast_possible_truncation, reason = "the sequences last microseconds")]
        let at = |part: f64| Timestamp::from_nanos((part * end.nanos() as f64) as i64);
        check(&all, cuts.into_iter().map(at).collect(), end, &choices);
    }

    #[test]
    fn a_window_for_every_event_gives_the_answer_of_the_whole(
        steps in prop::collection::vec(any::<Step>(), 0..150),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        check(&all, all.iter().map(|fact| fact.at).collect(), end, &choices);
    }

    #[test]
    fn facts_that_do_not_say_whose_they_are_give_the_answer_of_the_whole_for_every_cut(
        steps in prop::collection::vec(any::<Step>(), 0..200),
        cuts in prop::collection::vec(0.0..1.0_f64, 0..6),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        let all = anonymous(all);
        #[expect(clippy::cast_possible_truncation, reason = "the sequences last microseconds")]
        let at = |part: f64| Timestamp::from_nanos((part * end.nanos() as f64) as i64);
        let begin = Timestamp::from_nanos(0);
        let map = |(from, to)| map_after(&all, from, to, known_at(&all, from));
        let parts = windows(cuts.into_iter().map(at).collect(), begin, end).into_iter().map(map);
        let parts: Vec<Summary> = parts.collect();
        // Window by window, each behind what the summaries before it know.
        let mut in_order = Summary::identity();
        for part in &parts {
            let Some(cover) = part.cover() else { continue };
            let mut entry = in_order.identities();
            if in_order.cover().is_none() {
                entry = known_at(&all, begin);
            }
            let next = map_after(&all, cover.begin, cover.end, entry);
            in_order = in_order.merge(next).unwrap();
        }
        let whole = answers(&map((begin, end)));
        prop_assert_eq!(&answers(&in_order), &whole);
        prop_assert_eq!(&answers(&reduce(parts, &choices)), &whole);
    }

    #[test]
    fn missing_windows_give_one_answer_for_every_grouping(
        steps in steps(),
        missing in prop::collection::vec(any::<bool>(), 10),
        one in prop::collection::vec(any::<u16>(), 1..8),
        other in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (all, end) = facts(&steps);
        let parts = tenths(&all, end, &missing);
        prop_assert_eq!(answers(&reduce(parts.clone(), &one)), answers(&reduce(parts, &other)));
    }

    #[test]
    fn the_identity_changes_nothing(steps in steps()) {
        let (all, end) = facts(&steps);
        let some = map(&all, Timestamp::from_nanos(0), end);
        let left = Summary::identity().merge(some.clone()).unwrap();
        let right = some.clone().merge(Summary::identity()).unwrap();
        prop_assert_eq!(&left, &some);
        prop_assert_eq!(&right, &some);
    }
}

#[test]
fn the_same_time_twice_and_a_hole_are_refused() {
    let part = |begin, end| map(&[], Timestamp::from_nanos(begin), Timestamp::from_nanos(end));
    assert!(matches!(part(0, 10).merge(part(0, 10)), Err(Error::CoveredTwice { .. })));
    assert!(matches!(part(0, 10).merge(part(9, 20)), Err(Error::CoveredTwice { .. })));
    assert!(matches!(part(0, 10).merge(part(11, 20)), Err(Error::NotAdjacent { .. })));
    let mut other = Window::new(cover(Timestamp::from_nanos(10), Timestamp::from_nanos(20)));
    other.add(&Fact {
        at: Timestamp::from_nanos(11),
        cpu: None,
        tid: None,
        pid: None,
        kind: stitch::fact::FactKind::Seen,
    });
    assert!(part(0, 10).merge(other.finish()).is_ok());
}

/// A window behind a neighbour that its facts were not told of would blame the wrong thread.
#[test]
fn a_window_mapped_behind_another_neighbour_is_refused() {
    use model::{CpuId, Pid};
    let at = |ns, tid, kind| Fact {
        at: Timestamp::from_nanos(ns),
        cpu: Some(CpuId::new(0)),
        tid,
        pid: None,
        kind,
    };
    let switch = |ns, prev, next| {
        let (prev, next) = (Tid::new(prev), Tid::new(next));
        let left_as = stitch::fact::LeftAs::Preempted;
        let kind = FactKind::Switch { prev, prev_comm: "", left_as, next, next_comm: "" };
        at(ns, None, kind)
    };
    let dump = |ns, pid| {
        let pid = Some(Pid::new(pid));
        let kind = FactKind::DumpThread { tid: Tid::new(8), pid, table: None, comm: "a" };
        Fact { cpu: None, ..at(ns, None, kind) }
    };
    let seen = at(15, None, FactKind::Seen);
    let of = |facts: &[Fact<&str>], begin, end, entry| {
        map_after(facts, Timestamp::from_nanos(begin), Timestamp::from_nanos(end), entry)
    };
    let left = |pid| of(&[dump(1, pid), switch(2, 7, 8)], 0, 10, Identities::default());
    let right = of(&[seen], 10, 20, left(3).identities());
    assert!(left(3).merge(right.clone()).is_ok());
    let stale = |left: Summary, right: Summary| match left.merge(right) {
        Err(Error::StaleAssumption { who }) => who,
        other => panic!("{other:?}"),
    };
    let (tid, cpu) = (Tid::new(8), CpuId::new(0));
    let other_process = Assumption::ProcessOf { tid, pid: Some(Pid::new(3)) };
    assert_eq!(stale(left(4), right.clone()), other_process);
    let other_thread = of(&[dump(1, 3), switch(2, 7, 9)], 0, 10, Identities::default());
    let on_cpu = Assumption::OnCpu { cpu, tid: Some(tid) };
    assert_eq!(stale(other_thread, right.clone()), on_cpu);
    let gap = Summary::gap(cover(Timestamp::from_nanos(0), Timestamp::from_nanos(10)));
    assert_eq!(stale(gap, right.clone()), on_cpu);
    // What a first switch further right says must be what was assumed.
    let ahead = known_at(&[seen, switch(25, 8, 7)], Timestamp::from_nanos(10));
    let early = of(&[seen], 10, 20, ahead);
    let late = |prev| of(&[switch(25, prev, 7)], 20, 30, Identities::default());
    assert!(early.clone().merge(late(8)).is_ok());
    assert_eq!(stale(early, late(6)), on_cpu);
}

/// Time of a span that goes on is collected only where the window was told that it may go on.
#[test]
fn a_window_that_was_told_of_no_span_is_refused_behind_one_that_goes_on() {
    let span = stitch::fact::Span { name: "request", request: None, is_request: true };
    let at = |ns, kind| Fact {
        at: Timestamp::from_nanos(ns),
        cpu: None,
        tid: Some(Tid::new(8)),
        pid: None,
        kind,
    };
    let of = |facts: &[Fact<&str>], begin, end, entry| {
        map_after(facts, Timestamp::from_nanos(begin), Timestamp::from_nanos(end), entry)
    };
    let nobody = || Identities::default().outside_spans();
    let begun = of(&[at(2, FactKind::SpanBegin(span))], 0, 10, nobody());
    let ended =
        of(&[at(2, FactKind::SpanBegin(span)), at(3, FactKind::SpanEnd(span))], 0, 10, nobody());
    let more = [at(12, FactKind::Seen), at(15, FactKind::SpanEnd(span))];
    let behind = of(&more, 10, 20, begun.identities());
    let answer = stitch::phases(&begun.clone().merge(behind.clone()).unwrap());
    assert_eq!((answer.requests.complete, answer.requests.wall_ns), (1, 13));
    assert!(ended.clone().merge(behind).is_ok());
    let stale = |left: &Summary, tid| match left.clone().merge(of(&[], 10, 20, nobody())) {
        Err(Error::StaleAssumption { who }) => assert_eq!(who, Assumption::OutsideSpans { tid }),
        other => panic!("{other:?}"),
    };
    stale(&begun, Some(Tid::new(8)));
    stale(&of(&[], 0, 10, begun.identities()), Some(Tid::new(8)));
    stale(&of(&[], 0, 10, Identities::default()), None);
    assert!(ended.merge(of(&[], 10, 20, nobody())).is_ok());
}
