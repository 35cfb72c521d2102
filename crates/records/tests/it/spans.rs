//! Spans of their ends, in whatever batches these come.

use std::time::Duration;

use records::{Assembler, Bound, Limits, RingBatch, Span};
use tracepoint::{Context, Status, event, span};

use crate::{at, batch_of, process, trace};

fn assembled(limits: Limits, batches: &[RingBatch]) -> (Assembler, Vec<Span>) {
    let mut assembler = Assembler::new(limits);
    for batch in batches {
        assembler.add(batch, at(0)).unwrap();
    }
    let (spans, _) = assembler.take(at(10));
    (assembler, spans)
}

#[test]
fn spans_have_what_was_recorded_of_them() {
    let mut assembler = Assembler::new(Limits::default());
    assembler.add(&batch_of(trace), at(0)).unwrap();
    // Other threads may have events of it.
    assert!(assembler.take(at(0)).0.is_empty());
    let (spans, _) = assembler.take(at(2));
    let [request, phase] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((&*request.name, &*phase.name), ("request", "phase"));
    assert_eq!((phase.parent_id, phase.trace_id), (request.span_id, request.trace_id));
    assert_eq!((request.status, phase.status), (Status::Unset, Status::Error));
    assert_eq!((request.records, phase.records, phase.events.len()), (2, 3, 1));
    let [Bound::Hard(begin), Bound::Hard(end)] = [phase.begin, phase.end] else { panic!() };
    assert!(begin <= phase.events[0].time && phase.events[0].time <= end);
}

#[test]
fn what_is_in_no_span_comes_at_once() {
    let mut assembler = Assembler::new(Limits::default());
    assembler.add(&batch_of(trace), at(0)).unwrap();
    let (_, events) = assembler.take(at(0));
    let [beside] = &events[..] else { panic!("{events:?}") };
    assert_eq!((&*beside.name, beside.attributes.len()), ("beside", 1));
}

/// The begin on one thread and the end on another.
fn across() -> [RingBatch; 2] {
    let (give, take) = std::sync::mpsc::channel();
    let begin = batch_of(move || give.send(span!("across")).unwrap());
    let end = batch_of(move || {
        let span = take.recv().unwrap();
        span.in_scope(|| event!("late"));
        drop(span);
    });
    [begin, end]
}

#[test]
fn ends_meet_in_any_order_and_over_a_restart() {
    let [begin, end] = across();
    let (_, one) = assembled(Limits::default(), &[begin, end]);
    let [begin, end] = across();
    let (_, other) = assembled(Limits::default(), &[end, begin]);
    for spans in [&one, &other] {
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert!(matches!((span.begin, span.end), (Bound::Hard(_), Bound::Hard(_))));
        assert_eq!(span.events.len(), 1);
    }
    let [begin, end] = across();
    let (before, none) = assembled(Limits::default(), &[begin]);
    assert!(none.is_empty() && before.partial() == 1);
    let mut after = Assembler::restore(Limits::default(), &before.save().unwrap()).unwrap();
    after.add(&end, at(20)).unwrap();
    assert_eq!(after.take(at(30)).0.len(), 1);
}

#[test]
fn an_end_that_does_not_come_is_soft() {
    let [begin, end] = across();
    let limits = Limits { unfinished: Duration::from_secs(5), ..Limits::default() };
    let (_, spans) = assembled(limits, &[begin]);
    assert!(matches!((spans[0].begin, spans[0].end), (Bound::Hard(_), Bound::Soft(_))));
    let (_, spans) = assembled(limits, &[end]);
    let [span] = &spans[..] else { panic!() };
    // It was not before its first event.
    assert_eq!(span.begin, Bound::Soft(span.events[0].time));
    assert!(matches!(span.end, Bound::Hard(_)));
}

#[test]
fn spans_of_a_process_that_has_ended_are_given_as_they_are() {
    let [begin, _] = across();
    let (mut assembler, none) = assembled(Limits::default(), &[begin]);
    assert!(none.is_empty());
    let mut other = process();
    other.file.0 += 1;
    assembler.end_process(&other);
    assert_eq!(assembler.partial(), 1);
    assembler.end_process(&process());
    assert!(matches!(assembler.take(at(10)).0[0].end, Bound::Soft(_)));
}

#[test]
fn there_are_no_more_partial_spans_than_may_be() {
    let limits = Limits { partial: 10, events: 3, ..Limits::default() };
    let batch = batch_of(|| {
        for number in 0..30u64 {
            let open = span!(parent: Context::current(), "open", number: u64 = number);
            open.in_scope(|| (0..5).for_each(|_| event!("inside")));
            std::mem::forget(open);
        }
    });
    let mut assembler = Assembler::new(limits);
    assembler.add(&batch, at(0)).unwrap();
    assert_eq!(assembler.partial(), 10);
    let (spans, _) = assembler.take(at(0));
    assert_eq!(spans.len(), 20);
    assert!(spans[..19].iter().all(|span| span.events.len() == 3 && span.dropped_events == 2));
}
