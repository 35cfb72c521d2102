//! Last-waker critical paths: known ones, and random ones against a walk over all facts at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{CpuId, Tid, Timestamp};
use proptest::prelude::*;
use stitch::answer::{CriticalPath, PathState};
use stitch::fact::{Fact, FactKind, LeftAs, Line};
use stitch::{Cover, Identities, Window};

use crate::compare::path_holds;
use crate::kernel_like::facts;
use crate::laws::{cases, map, reduce, windows};
use crate::story::{
    self, Moment, begin, born, end, enters, goes_to, handled, interrupt, leaves, sleeps, summary,
    wakes,
};

/// Thread, state and nanoseconds of each stretch of the path of the story's only request.
fn hops(story: &[Moment]) -> Vec<(i32, &'static str, u64)> {
    let answer = stitch::phases(&summary(story));
    let [request] = answer.request_list.as_slice() else { panic!("{:?}", answer.requests) };
    let path = request.critical_path.as_ref().unwrap();
    path_holds(path, request.split.wall_ns);
    path.hops.iter().map(|hop| (hop.tid, hop.state.word(), hop.ns)).collect()
}

#[test]
fn a_wait_that_a_thread_ends_is_what_that_thread_did() {
    let story = [
        (1, 2, leaves("read")),
        (0, 1, begin("request")),
        (0, 1, sleeps(1, 0)),
        (1, 2, enters("futex")),
        (1, 2, wakes(1)),
        (0, 0, goes_to(0, 1)),
        (0, 1, end("request")),
    ];
    assert_eq!(hops(&story), [(2, "running", 30), (1, "waiting", 10), (1, "running", 10)]);
}

#[test]
fn a_wait_that_an_interrupt_ends_stays_in_the_path() {
    let line = Line::Hard(4);
    let story = [
        (1, 2, leaves("read")),
        (0, 1, begin("request")),
        (0, 1, enters("fsync")),
        (0, 1, sleeps(1, 0)),
        (1, 2, interrupt(line)),
        (1, 2, wakes(1)),
        (1, 2, handled(line)),
        (0, 0, goes_to(0, 1)),
        (0, 1, end("request")),
    ];
    let own = [(1, "running", 20), (1, "disk", 20), (1, "waiting", 20), (1, "running", 10)];
    assert_eq!(hops(&story), own);
}

#[test]
fn a_clock_wakes_by_itself_also_where_nobody_recorded_its_interrupt() {
    let story = [
        (1, 2, leaves("read")),
        (0, 1, begin("request")),
        (0, 1, enters("clock_nanosleep")),
        (0, 1, sleeps(1, 0)),
        (1, 2, wakes(1)),
        (0, 0, goes_to(0, 1)),
        (0, 1, end("request")),
    ];
    let own = [(1, "running", 20), (1, "timer", 10), (1, "waiting", 10), (1, "running", 10)];
    assert_eq!(hops(&story), own);
}

#[test]
fn a_path_goes_through_several_threads_and_begins_where_the_request_does() {
    let story = [
        (2, 3, leaves("read")),
        (1, 2, sleeps(2, 0)),
        (0, 1, begin("request")),
        (0, 1, sleeps(1, 0)),
        (2, 3, wakes(2)),
        (1, 0, goes_to(0, 2)),
        (1, 2, wakes(1)),
        (0, 0, goes_to(0, 1)),
        (0, 1, end("request")),
    ];
    let through = [
        (3, "running", 20),
        (2, "waiting", 10),
        (2, "running", 10),
        (1, "waiting", 10),
        (1, "running", 10),
    ];
    assert_eq!(hops(&story), through);
}

#[test]
fn a_thread_that_is_born_comes_from_its_parent() {
    let story = [
        (1, 2, leaves("read")),
        (0, 1, begin("request")),
        (0, 1, sleeps(1, 0)),
        (1, 2, born(3)),
        (1, 2, wakes(3)),
        (2, 0, goes_to(0, 3)),
        (2, 3, wakes(1)),
        (0, 0, goes_to(0, 1)),
        (0, 1, end("request")),
    ];
    let through = [
        (2, "running", 30),
        (3, "waiting", 10),
        (3, "running", 10),
        (1, "waiting", 10),
        (1, "running", 10),
    ];
    assert_eq!(hops(&story), through);
}

/// Two threads that wake each other so many times while a request of the first one is open.
fn ping_pong(times: usize) -> Vec<Moment> {
    let mut story = vec![(1, 2, leaves("read")), (0, 1, begin("request"))];
    for _ in 0..times {
        story.extend([(0, 1, wakes(2)), (0, 1, sleeps(1, 0)), (1, 0, goes_to(0, 2))]);
        story.extend([(1, 2, wakes(1)), (1, 2, sleeps(2, 0)), (0, 0, goes_to(0, 1))]);
    }
    story.push((0, 1, end("request")));
    story
}

#[test]
fn of_a_long_path_the_last_stretches_are_kept_and_all_is_in_the_sums() {
    let answer = stitch::phases(&summary(&ping_pong(40)));
    let path = answer.request_list[0].critical_path.as_ref().unwrap();
    path_holds(path, answer.request_list[0].split.wall_ns);
    assert!(path.is_longer);
    assert_eq!(path.hops.len(), stitch::MAX_HOPS);
    let short = stitch::phases(&summary(&ping_pong(20)));
    let path = short.request_list[0].critical_path.as_ref().unwrap();
    assert!(!path.is_longer && path.hops[0].offset_ns == 0, "{path:?}");
}

/// The right part holds all of a request, but not who slept before it: what that thread's waker did may yet be drawn.
#[test]
fn a_request_that_waits_for_the_left_part_keeps_what_its_path_may_be_drawn_from() {
    let all = story::facts(&[
        (1, 2, sleeps(2, 3)),
        (1, 3, leaves("read")),
        (0, 1, begin("request")),
        (1, 3, goes_to(3, 4)),
        (1, 4, goes_to(4, 3)),
        (1, 3, wakes(2)),
        (1, 3, sleeps(3, 2)),
        (0, 1, sleeps(1, 0)),
        (1, 2, wakes(1)),
        (0, 0, goes_to(0, 1)),
        (0, 1, end("request")),
    ]);
    let part = |from, to| {
        let (begin, end) = (Timestamp::from_nanos(from), Timestamp::from_nanos(to));
        let mut known = Identities::default().outside_spans();
        all.iter().filter(|fact| fact.at < begin).for_each(|fact| known.learn(fact));
        let cover = Cover { host: "host".into(), begin, end };
        let mut window = Window::after(cover, Arc::new(known));
        let inside = all.iter().filter(|fact| begin <= fact.at && fact.at < end);
        inside.for_each(|fact| window.add(fact));
        window.finish()
    };
    let merged = part(0, 15).merge(part(15, 120)).unwrap();
    let answer = stitch::phases(&merged);
    let path = answer.request_list[0].critical_path.as_ref().unwrap();
    path_holds(path, 80);
    assert!(!path.is_longer, "{path:?}");
    let drawn: Vec<_> = path.hops.iter().map(|hop| (hop.tid, hop.ns)).collect();
    let expected = [(3, 10), (3, 10), (3, 10), (2, 10), (2, 20), (1, 10), (1, 10)];
    assert_eq!(drawn, expected);
    let whole = stitch::phases(&part(0, 120));
    assert_eq!(Some(path), whole.request_list[0].critical_path.as_ref());
}

#[test]
fn of_many_requests_the_slowest_keep_their_path_whatever_the_cuts() {
    let mut story = vec![(1, 2, leaves("read"))];
    for n in 0..stitch::MAX_PATHS + 10 {
        story.push((0, 1, begin("request")));
        story.extend(std::iter::repeat_n((0, 1, enters("futex")), 1 + n % 7));
        story.push((0, 1, end("request")));
    }
    let answer = stitch::phases(&summary(&story));
    let walls: Vec<(u64, bool)> = answer
        .request_list
        .iter()
        .map(|request| (request.split.wall_ns, request.critical_path.is_some()))
        .collect();
    assert_eq!(walls.len(), stitch::MAX_PATHS + 10);
    assert!(walls[..stitch::MAX_PATHS].iter().all(|(_, has_path)| *has_path), "{walls:?}");
    assert!(walls[stitch::MAX_PATHS..].iter().all(|(_, has_path)| !has_path), "{walls:?}");
}

/// What one thread does from some time on, and what a path goes on with before that.
#[derive(Clone, Copy)]
struct Stretch {
    since: i64,
    state: char,
    came_from: Option<Tid>,
}

/// What every thread did, from all facts in order: `r`unning, `w`aiting, `b`locked, not yet woken `n`, `d`ead or `u`nknown.
#[derive(Default)]
struct Lives {
    threads: BTreeMap<Tid, Vec<Stretch>>,
    /// Wake-ups that count if the thread turns out to have slept.
    pending: BTreeMap<Tid, (i64, Option<Tid>)>,
    calls: BTreeMap<Tid, &'static str>,
    /// The call in which each thread fell asleep.
    asleep_in: BTreeMap<Tid, &'static str>,
    handlers: BTreeMap<CpuId, usize>,
}

impl Lives {
    fn of(all: &[Fact<&'static str>]) -> Self {
        let mut lives = Self::default();
        all.iter().for_each(|fact| lives.take(fact));
        lives
    }

    fn state(&self, tid: Tid) -> char {
        self.threads.get(&tid).and_then(|life| life.last()).map_or('u', |stretch| stretch.state)
    }

    fn go_on(&mut self, tid: Tid, since: i64, state: char, came_from: Option<Tid>) {
        self.threads.entry(tid).or_default().push(Stretch { since, state, came_from });
        self.pending.remove(&tid);
    }

    fn take(&mut self, fact: &Fact<&'static str>) {
        let (at, cpu, tid) = (fact.at.nanos(), fact.cpu.unwrap(), fact.tid.unwrap());
        if let FactKind::Switch { prev, left_as, next, .. } = fact.kind {
            self.handlers.insert(cpu, 0);
            if prev != Tid::IDLE {
                let state = match left_as {
                    LeftAs::Preempted => 'w',
                    LeftAs::Dead => 'd',
                    LeftAs::Interruptible | LeftAs::Uninterruptible => 'b',
                };
                self.asleep_in.insert(prev, self.calls.get(&prev).copied().unwrap_or(""));
                self.go_on(prev, at, state, None);
            }
            if next != Tid::IDLE {
                if let ('u', Some((woken, by))) = (self.state(next), self.pending.remove(&next)) {
                    self.go_on(next, woken, 'w', by);
                }
                self.go_on(next, at, 'r', None);
            }
            return;
        }
        if tid != Tid::IDLE && self.state(tid) != 'r' {
            self.go_on(tid, at, 'r', None);
        }
        match fact.kind {
            FactKind::IrqEntry { .. } => *self.handlers.entry(cpu).or_default() += 1,
            FactKind::IrqExit { .. } => {
                let depth = self.handlers.entry(cpu).or_default();
                *depth = depth.saturating_sub(1);
            }
            FactKind::CallEntry { name, .. } => {
                self.handlers.insert(cpu, 0);
                self.calls.insert(tid, name);
            }
            FactKind::CallExit { .. } => {
                self.handlers.insert(cpu, 0);
                self.calls.remove(&tid);
            }
            FactKind::Fork { child, .. } => {
                self.calls.remove(&child);
                self.go_on(child, at, 'n', Some(tid).filter(|tid| *tid != Tid::IDLE));
            }
            // Who starts another program goes on under the number of its process.
            FactKind::Exec { old: Some(old), .. } if old != tid => {
                self.calls.remove(&old);
                self.go_on(old, at, 'd', None);
            }
            FactKind::Wakeup { tid: woken, .. } => {
                let in_handler = self.handlers.get(&cpu).is_some_and(|depth| *depth > 0);
                let by = Some(tid).filter(|tid| *tid != Tid::IDLE && !in_handler);
                self.wake(woken, at, by);
            }
            _ => {}
        }
    }

    fn wake(&mut self, woken: Tid, at: i64, by: Option<Tid>) {
        match self.state(woken) {
            'b' => {
                let call = self.asleep_in.get(&woken).copied().unwrap_or("");
                self.go_on(woken, at, 'w', by.filter(|_| call != "clock_nanosleep"));
            }
            'n' => self.go_on(woken, at, 'w', by),
            'u' => {
                self.pending.entry(woken).or_insert((at, by));
            }
            _ => {}
        }
    }

    /// Time by thread and state on the way back from the end to the begin.
    fn walk(&self, mut tid: Tid, end: i64) -> BTreeMap<(i32, char), u64> {
        let mut sums: BTreeMap<(i32, char), u64> = BTreeMap::new();
        let mut at = end;
        while at > 0 {
            let life = self.threads.get(&tid).map(Vec::as_slice).unwrap_or_default();
            let found = life.iter().rposition(|stretch| stretch.since < at);
            let stretch = found.map(|n| life[n]);
            // Of several stretches that begin at one time the path has come from the last that says so.
            let Stretch { since, state, came_from } =
                stretch.unwrap_or(Stretch { since: 0, state: 'u', came_from: None });
            let state = if state == 'n' { 'w' } else { state };
            if state == 'd' {
                *sums.entry((tid.get(), 'u')).or_default() += u64::try_from(at).unwrap();
                break;
            }
            *sums.entry((tid.get(), state)).or_default() += u64::try_from(at - since).unwrap();
            at = since;
            let mut n = found.unwrap_or(0);
            let mut next = came_from;
            while next.is_none() && n > 0 && life[n - 1].since == at {
                n -= 1;
                next = life[n].came_from;
                if life[n].state == 'd' {
                    break;
                }
            }
            if let Some(before) = next {
                tid = before;
            }
        }
        sums
    }
}

fn found(path: &CriticalPath) -> BTreeMap<(i32, char), u64> {
    let mut sums = BTreeMap::new();
    for total in &path.totals {
        let state = match total.state {
            PathState::Running => 'r',
            PathState::Waiting => 'w',
            PathState::Unknown => 'u',
            _ => 'b',
        };
        *sums.entry((total.tid, state)).or_default() += total.ns;
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn paths_of_all_threads_to_any_time_equal_a_walk_over_all_facts(
        // Time passes with every step, so that no two stretches begin at once.
        steps in prop::collection::vec((0..248_u8, any::<u8>(), 1..32_u8), 0..300),
        part in 0.1..1.0_f64,
        cuts in prop::collection::vec(0.0..1.0_f64, 0..8),
        choices in prop::collection::vec(any::<u16>(), 1..8),
    ) {
        let (mut all, end) = facts(&steps);
        #[expect(clippy::cast_possible_truncation, reason = "the sequences last microseconds")]
        let at = |part: f64| Timestamp::from_nanos((part * end.nanos() as f64) as i64);
        let end = at(part);
        all.retain(|fact| fact.at < end);
        let begin = Timestamp::from_nanos(0);
        let parts = windows(cuts.into_iter().map(at).collect(), begin, end);
        let parts = parts.into_iter().map(|(from, to)| map(&all, from, to)).collect();
        let stitched = reduce(parts, &choices);
        let lives = Lives::of(&all);
        for tid in (1..=5).map(Tid::new).filter(|tid| lives.threads.contains_key(tid)) {
            let Some(answer) = stitch::thread_path(&stitched, tid, begin) else {
                prop_assert_eq!(lives.state(tid), 'd');
                continue;
            };
            path_holds(&answer.path, u64::try_from(end.nanos()).unwrap());
            prop_assert_eq!(found(&answer.path), lives.walk(tid, end.nanos()), "thread {}", tid);
        }
    }
}
