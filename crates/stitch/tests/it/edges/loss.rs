//! What a loss of events makes uncertain.

use model::CpuId;
use stitch::Summary;
use stitch::fact::{CallArgs, Effect, FactKind, LeftAs, Missing};

use super::{Kinds, OPEN, bytes, dump, enter, leave, named, of_one, on, read, summary, switch};

fn lost(cpu: u32) -> Kinds {
    FactKind::Lost { what: Missing::Kernel(CpuId::new(cpu)), events: 3, packets: 0 }
}

/// Name, sure calls and uncertain ones of every call.
fn calls(summary: &Summary) -> Vec<(String, u64, u64)> {
    let answer = stitch::syscalls(summary);
    let calls = answer.processes.iter().flat_map(|process| &process.syscalls);
    let rows = calls.map(|call| (call.name.to_string(), call.calls, call.uncertain));
    rows.collect()
}

#[test]
fn a_call_that_is_matched_across_a_loss_is_uncertain() {
    let [enter_read, leave_read] = read();
    let summary = of_one([enter_read, lost(0), leave_read]);
    assert_eq!(calls(&summary), [("read".to_owned(), 0, 1)]);
    assert_eq!(bytes(&summary), []);
    let loss = stitch::loss(&summary);
    assert_eq!((loss.uncertain_calls, loss.calls_without_begin), (1, 0));
    assert_eq!(loss.events_discarded, 3);
}

#[test]
fn a_loss_taints_nothing_of_a_thread_that_was_not_on_that_cpu() {
    let [enter_read, leave_read] = read();
    let all = [
        (1, enter_read),
        (1, switch(1, LeftAs::Interruptible, 10)),
        (10, lost(0)),
        (10, switch(10, LeftAs::Preempted, 1)),
        (1, leave_read),
    ];
    let summary = summary(&all);
    assert_eq!(calls(&summary), [("read".to_owned(), 1, 0)]);
    let other_cpu = of_one([enter_read, lost(1), leave_read]);
    assert_eq!(calls(&other_cpu), [("read".to_owned(), 1, 0)]);
}

/// It was asleep in its call when events were lost, and is next seen to leave the CPU that lost them.
#[test]
fn a_loss_taints_the_call_of_a_thread_that_got_the_cpu_unseen() {
    let [enter_read, leave_read] = read();
    let span = |begins| {
        let span = stitch::fact::Span { name: "request", request: Some(7), is_request: true };
        if begins { FactKind::SpanBegin(span) } else { FactKind::SpanEnd(span) }
    };
    let all = [
        (1, span(true)),
        (1, enter_read),
        (1, switch(1, LeftAs::Interruptible, 10)),
        (10, lost(0)),
        (1, switch(1, LeftAs::Preempted, 10)),
        (10, switch(10, LeftAs::Preempted, 1)),
        (1, leave_read),
        (1, span(false)),
    ];
    let summary = summary(&all);
    assert_eq!(calls(&summary), [("read".to_owned(), 0, 1)]);
    let split = stitch::phases(&summary).request_list[0].split;
    assert_eq!((split.wall_ns, split.unknown_ns), (70, 20));
    assert_eq!((split.running_ns, split.waiting_ns), (40, 10));
}

#[test]
fn what_a_call_made_across_a_loss_has_no_name() {
    let all = [dump(3, "/old"), enter("openat", OPEN), lost(0), leave("openat", 3)];
    let summary = of_one(all.into_iter().chain(read()));
    assert_eq!(bytes(&summary), named(&[("(fd 3)", 10)]));
    let connect = on(3, Effect::Address("10.0.0.1:80"));
    let all = [enter("connect", connect), lost(0), leave("connect", 0)];
    let summary = of_one(all.into_iter().chain(read()));
    assert_eq!(bytes(&summary), named(&[("(fd 3)", 10)]));
}

#[test]
fn a_return_after_a_loss_that_is_of_no_call_that_began_is_without_begin() {
    let summary = of_one([enter("futex", CallArgs::NONE), lost(0), leave("read", 1)]);
    let loss = stitch::loss(&summary);
    assert_eq!((loss.uncertain_calls, loss.calls_without_begin), (0, 1));
}
