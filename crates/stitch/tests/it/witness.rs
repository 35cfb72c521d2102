//! A second opinion: figures worked out from all facts at once, by other means than the analysis.

use std::collections::BTreeMap;

use model::{CpuId, Tid, Timestamp};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use stitch::answer::{Split, Syscalls};
use stitch::fact::{Fact, FactKind, LeftAs, Missing};

use crate::compare::sums_hold;
use crate::kernel_like::facts;
use crate::laws::{cases, map, steps};

/// Calls, nanoseconds, bytes, errors and uncertain returns.
type Figures = (u64, u64, u64, u64, u64);

/// Those of each process and call name.
fn calls(all: &[Fact<&str>]) -> BTreeMap<(i32, String), Figures> {
    let mut table = BTreeMap::new();
    for (n, exit) in all.iter().enumerate() {
        let FactKind::CallExit { name, ret, .. } = exit.kind else { continue };
        let Some((entry, sure)) = begin_of(&all[..n], exit.tid.unwrap(), name) else { continue };
        let row: &mut Figures =
            table.entry((exit.pid.unwrap().get(), name.to_owned())).or_default();
        if !sure {
            row.4 += 1;
            continue;
        }
        row.0 += 1;
        row.1 += exit.at.since(entry).get();
        row.2 += if matches!(name, "read" | "write") { u64::try_from(ret).unwrap_or(0) } else { 0 };
        row.3 += u64::from(ret < 0 && ret != -512);
    }
    table
}

/// When the call began that a return right after these facts ends, and whether no loss lies between: looks back for the
/// last thing that a thread's call register can tell.
fn begin_of(before: &[Fact<&str>], mut tid: Tid, call: &str) -> Option<(Timestamp, bool)> {
    let mut sure = true;
    for (n, fact) in before.iter().enumerate().rev() {
        match fact.kind {
            FactKind::CallEntry { name, .. } if fact.tid == Some(tid) => {
                return (name == call).then_some((fact.at, sure));
            }
            FactKind::CallExit { .. } if fact.tid == Some(tid) => return None,
            FactKind::Fork { child, .. } if child == tid => return None,
            FactKind::Exec { old: Some(old), .. } if fact.tid != Some(old) => {
                if fact.tid == Some(tid) {
                    tid = old;
                } else if tid == old {
                    return None;
                }
            }
            FactKind::Lost { what: Missing::KernelEverywhere, .. } => sure = false,
            FactKind::Lost { what: Missing::Kernel(cpu), .. } => {
                sure &= !runs_on(&before[..n], tid, cpu);
            }
            FactKind::Switch { prev, .. } if prev == tid => {
                sure &= !came_unseen(&before[..n], tid, fact.cpu.unwrap());
            }
            _ => {}
        }
    }
    None
}

/// Whether the last that is known of a CPU is a loss, and the thread was not seen since.
fn came_unseen(before: &[Fact<&str>], tid: Tid, cpu: CpuId) -> bool {
    let lost = before.iter().rev().find_map(|fact| match fact.kind {
        FactKind::Lost { what: Missing::Kernel(lost), .. } if lost == cpu => Some(Some(fact.at)),
        FactKind::Lost { what: Missing::KernelEverywhere, .. } => Some(Some(fact.at)),
        FactKind::Lost { .. } => None,
        _ if fact.cpu != Some(cpu) => None,
        FactKind::Switch { .. } => Some(None),
        _ => fact.tid.filter(|tid| *tid != Tid::IDLE).map(|_| None),
    });
    let seen = before.iter().rev().find(|fact| match fact.kind {
        FactKind::Switch { prev, next, .. } => prev == tid || next == tid,
        FactKind::Lost { .. } => false,
        FactKind::Fork { child, .. } if child == tid => true,
        _ => fact.tid == Some(tid),
    });
    lost.flatten().is_some_and(|lost| seen.is_none_or(|seen| seen.at <= lost))
}

/// Whether the thread was the last one seen on the CPU and was seen running last, there.
fn runs_on(before: &[Fact<&str>], tid: Tid, cpu: CpuId) -> bool {
    let of_thread = before.iter().rev().find_map(|fact| match fact.kind {
        FactKind::Switch { prev, next, .. } if prev == tid || next == tid => {
            Some((next == tid).then_some(fact.cpu).flatten())
        }
        FactKind::Switch { .. } => None,
        FactKind::Lost { what: Missing::KernelEverywhere, .. } => Some(None),
        FactKind::Lost { .. } => None,
        FactKind::Fork { child, .. } if child == tid => Some(None),
        FactKind::Exec { old: Some(old), .. } if old == tid && fact.tid != Some(tid) => Some(None),
        _ if fact.tid == Some(tid) => Some(fact.cpu),
        _ => None,
    });
    let of_cpu =
        before.iter().rev().filter(|fact| fact.cpu == Some(cpu)).find_map(|fact| match fact.kind {
            FactKind::Switch { next, .. } => Some(Some(next)),
            FactKind::Lost { what: Missing::Kernel(lost), .. } => (lost == cpu).then_some(None),
            FactKind::Lost { what: Missing::KernelEverywhere, .. } => Some(None),
            FactKind::Lost { .. } => None,
            _ => fact.tid.filter(|tid| *tid != Tid::IDLE).map(Some),
        });
    of_thread == Some(Some(cpu)) && of_cpu == Some(Some(tid))
}

/// What the thread did, nanosecond by nanosecond: a letter and the length of each stretch inside `[begin, end)`.
fn split(all: &[Fact<&str>], tid: Tid, begin: Timestamp, end: Timestamp) -> (u64, u64, u64) {
    let (mut running, mut waiting, mut blocked) = (0, 0, 0);
    let mut doing = 'r';
    let mut since = begin;
    for fact in all.iter().skip_while(|fact| fact.at < begin).take_while(|fact| fact.at <= end) {
        let now = match fact.kind {
            FactKind::Switch { next, .. } if next == tid => 'r',
            FactKind::Switch { prev, left_as, .. } if prev == tid => {
                if left_as == LeftAs::Preempted { 'w' } else { 'b' }
            }
            FactKind::Switch { .. } => continue,
            FactKind::Wakeup { tid: woken, .. } if woken == tid && doing == 'b' => 'w',
            _ if fact.tid == Some(tid) => 'r',
            _ => continue,
        };
        let length = fact.at.since(since).get();
        match doing {
            'r' => running += length,
            'w' => waiting += length,
            _ => blocked += length,
        }
        (doing, since) = (now, fact.at);
    }
    (running, waiting, blocked)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn call_figures_equal_those_of_a_search_through_all_facts(steps in steps()) {
        let (all, end) = facts(&steps);
        let answer: Syscalls = stitch::syscalls(&map(&all, Timestamp::from_nanos(0), end));
        let mut found = BTreeMap::new();
        for process in &answer.processes {
            for call in &process.syscalls {
                let figures =
                    (call.calls, call.ns, call.bytes, call.errors, call.uncertain);
                found.insert((process.pid, call.name.to_string()), figures);
            }
        }
        prop_assert_eq!(found, calls(&all));
    }

    #[test]
    fn the_parts_of_every_request_add_up_to_its_wall_time(steps in steps()) {
        let (all, end) = facts(&steps);
        sums_hold(&stitch::phases(&map(&all, Timestamp::from_nanos(0), end)));
    }

    #[test]
    fn the_split_of_every_request_equals_a_walk_over_its_thread(
        steps in prop::collection::vec((0..248_u8, any::<u8>(), any::<u8>()), 0..400),
    ) {
        let (all, end) = facts(&steps);
        let answer = stitch::phases(&map(&all, Timestamp::from_nanos(0), end));
        for request in &answer.request_list {
            let at = Timestamp::from_nanos;
            let walked =
                split(&all, Tid::new(request.tid), at(request.begin_ns), at(request.end_ns));
            let asleep = request.split.blocked_ns;
            let blocked = asleep.disk
                + asleep.network
                + asleep.lock
                + asleep.timer
                + asleep.pipe
                + asleep.child
                + asleep.other;
            let found = (request.split.running_ns, request.split.waiting_ns, blocked);
            prop_assert_eq!(found, walked, "{:?}", request);
        }
    }
}

#[test]
fn the_generator_makes_requests_with_waiting_and_blocking() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = prop::collection::vec(any::<crate::kernel_like::Step>(), 20_000);
    let steps = tree.new_tree(&mut runner).unwrap().current();
    let (all, end) = facts(&steps);
    let answer = stitch::phases(&map(&all, Timestamp::from_nanos(0), end));
    let total = answer.phases.iter().fold(Split::default(), |mut sum, phase| {
        sum.waiting_ns += phase.split.waiting_ns;
        sum.blocked_ns.disk += phase.split.blocked_ns.disk;
        sum.blocked_ns.network += phase.split.blocked_ns.network;
        sum.blocked_ns.lock += phase.split.blocked_ns.lock;
        sum
    });
    assert!(answer.requests.complete > 40, "{:?}", answer.requests);
    assert!(total.waiting_ns > 0 && total.blocked_ns.disk > 0, "{total:?}");
    assert!(total.blocked_ns.network > 0 && total.blocked_ns.lock > 0, "{total:?}");
    assert!(answer.phases.iter().any(|phase| !phase.waited_for.is_empty()));
    assert!(answer.files.iter().any(|file| &*file.name == "/data/a"));
}
