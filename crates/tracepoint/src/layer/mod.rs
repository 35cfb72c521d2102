//! Spans and events of crate `tracing` as records.
//!
//! ```text
//! a call site of `tracing` ─▶ Sites: its pair of call sites here, made once
//! a span's Id ─▶ Open: its Context, for as long as it is open          values ─▶ Made: words on the stack ─▶ ring
//! ```
//! Nothing is allocated after a call site's first use, and nothing is locked.

mod open;
mod sites;
mod values;

use std::cell::RefCell;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Interest, Metadata, Subscriber};
use tracing_subscriber::layer::{Context as Subscribed, Layer};

use self::values::Values;
use crate::arena;
use crate::context::{self, Context, NONE};
use crate::field::Made;
use crate::layout::{DropReason, Status};
use crate::ring;
use crate::site::Site;

/// A layer of `tracing-subscriber` that writes spans and events of crate `tracing` as records of this process's rings.
///
/// A span is in the one that `tracing` says, or else in the [`Context`] that the thread has entered; so a request's
/// [`traceparent`](Context::from_traceparent) is entered around the span that serves it. Which call sites are written is for a filter of
/// `tracing-subscriber` to say, and, by the spans' names, for the agent.
///
/// ```
/// use tracing_subscriber::layer::SubscriberExt;
///
/// let subscriber = tracing_subscriber::registry().with(tracepoint::Tracepoints);
/// tracing::subscriber::with_default(subscriber, || {
///     let _request = tracing::info_span!("request", path = "/a").entered();
///     tracing::info!(bytes = 512, "sent");
/// });
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Tracepoints;

/// Spans that a thread may be in at a time; in those beyond it nothing is told of the innermost.
const MAX_DEPTH: usize = 64;

/// The spans that a thread is in, the innermost last.
struct Stack {
    entries: [(u64, Context); MAX_DEPTH],
    depth: usize,
}

thread_local! {
    static STACK: RefCell<Stack> =
        const { RefCell::new(Stack { entries: [(0, NONE); MAX_DEPTH], depth: 0 }) };
}

impl<S: Subscriber> Layer<S> for Tracepoints {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        sites::enlist(metadata);
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Subscribed<'_, S>) {
        let parent = match attributes.parent() {
            Some(parent) => open::find(parent.into_u64()).map_or(NONE, |it| it.context),
            None if attributes.is_root() => NONE,
            None => context::current(),
        };
        let Some(sites) = sites::of_span(attributes.metadata()) else { return };
        if !sites.begin.is_on() {
            // Its children are its parent's.
            open::insert(id.into_u64(), parent, None);
            return;
        }
        let context = Context::begin(parent);
        let is_written = context.is_sampled();
        if !open::insert(id.into_u64(), context, is_written.then_some(sites)) {
            // Neither its begin nor its end, and its children are whose it can be found out that they are.
            return arena::count_drop(DropReason::TooManySpans);
        }
        if is_written {
            let [high, low, own] = context.words();
            let mut values = Values::new();
            attributes.record(&mut values);
            let span = [high, low, own, parent.span_id()];
            ring::write_in_span(&sites.begin, &span, &Made(values.words()));
        }
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, _: Subscribed<'_, S>) {
        let Some(open) = open::find(id.into_u64()) else { return };
        if let Some(sites) = open.sites {
            let mut values = Values::new();
            record.record(&mut values);
            ring::write_in_span(&sites.record, &open.context.words(), &Made(values.words()));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Subscribed<'_, S>) {
        let Some(site) = sites::of_event(event.metadata()) else { return };
        let context = match event.parent() {
            Some(parent) => open::find(parent.into_u64()).map_or(NONE, |it| it.context),
            None if event.is_root() => NONE,
            None => context::current(),
        };
        if context.is_sampled() && site.is_on() {
            write_event(site, context, event);
        }
    }

    fn on_enter(&self, id: &Id, _: Subscribed<'_, S>) {
        let id = id.into_u64();
        let Some(open) = open::find(id) else { return };
        with_stack(|stack| {
            if let Some(place) = stack.entries.get_mut(stack.depth) {
                *place = (id, context::replace(open.context));
                stack.depth += 1;
            }
        });
    }

    fn on_exit(&self, id: &Id, _: Subscribed<'_, S>) {
        let id = id.into_u64();
        with_stack(|stack| {
            let entered = stack.entries.get_mut(..stack.depth).unwrap_or_default();
            let Some(at) = entered.iter().rposition(|(entered, _)| *entered == id) else { return };
            // What is around it; those that were entered after it and are still there are in that.
            let around = entered.get(at).map_or(NONE, |(_, around)| *around);
            match entered.get_mut(at + 1) {
                Some((_, before)) => *before = around,
                None => {
                    context::replace(around);
                }
            }
            entered.copy_within(at + 1.., at);
            stack.depth -= 1;
        });
    }

    fn on_close(&self, id: Id, _: Subscribed<'_, S>) {
        let Some(open) = open::remove(id.into_u64()) else { return };
        if let Some(sites) = open.sites {
            let [high, low, own] = open.context.words();
            let span = [high, low, own, Status::Unset as u64];
            ring::write_in_span(&sites.end, &span, &());
        }
    }
}

#[inline]
fn write_event(site: &'static Site, context: Context, event: &Event<'_>) {
    let mut values = Values::new();
    event.record(&mut values);
    ring::write_in_span(site, &context.words(), &Made(values.words()));
}

/// A thread that ends, or a signal handler in the middle of this, has no stack.
fn with_stack(act: impl FnOnce(&mut Stack)) {
    STACK.with(|stack| {
        if let Ok(mut stack) = stack.try_borrow_mut() {
            act(&mut stack);
        }
    });
}
