//! Spans: a record when one begins and one when it ends.

use std::cell::Cell;

use crate::context::{self, Context, Entered, NONE};
use crate::field::Fields;
use crate::layout::{SiteKind, Status};
use crate::ring;
use crate::site::{FieldInfo, Site};

/// The two call sites of a span. [`span!`](crate::span) makes a static of each pair.
#[derive(Debug)]
pub struct SpanSite {
    begin: Site,
    end: Site,
}

impl SpanSite {
    /// Of a place in the source; the macro calls this.
    #[must_use]
    pub const fn new(
        name: &'static str,
        target: &'static str,
        place: (&'static str, u32),
        fields: &'static [FieldInfo],
    ) -> Self {
        Self {
            begin: Site::new(SiteKind::SpanBegin, name, target, place, fields),
            end: Site::new(SiteKind::SpanEnd, name, target, place, &[]),
        }
    }

    /// Whether spans would be written now.
    #[inline(always)]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.begin.is_on()
    }
}

/// A span, which ends when it is dropped. Made by [`span!`](crate::span).
#[derive(Debug)]
pub struct Span {
    /// Its own; its parent's when it is not written itself.
    context: Context,
    /// `None` when it is not written.
    site: Option<&'static SpanSite>,
    status: Cell<Status>,
}

impl Span {
    /// Begins a span; in `parent`, or begins a trace when that is `None`.
    #[inline]
    #[doc(hidden)]
    pub fn begin(site: &'static SpanSite, parent: Option<Context>, fields: &impl Fields) -> Self {
        let parent = parent.unwrap_or(NONE);
        let context = Context::begin(parent);
        if !context.is_sampled() {
            return Self::without(Some(context));
        }
        let [high, low, own] = context.words();
        let parent_id = parent.span_id();
        ring::write_in_span(&site.begin, &[high, low, own, parent_id], fields);
        Self { context, site: Some(site), status: Cell::default() }
    }

    /// None: what is in it is in `context`.
    #[doc(hidden)]
    #[must_use]
    pub fn without(context: Option<Context>) -> Self {
        Self { context: context.unwrap_or(NONE), site: None, status: Cell::default() }
    }

    /// What children elsewhere are to be told, by [`Context`]'s `Display` for example; `None` when there is neither this span nor one around it.
    #[must_use]
    pub fn context(&self) -> Option<Context> {
        Some(self.context).filter(|context| *context != NONE)
    }

    /// Has this thread be in the span until the guard is dropped: spans and events that begin there are in it.
    #[must_use = "the thread is in the span for as long as the guard lives"]
    pub fn enter(&self) -> Entered<'_> {
        Entered::of_span(self.context)
    }

    /// Calls `act` in the span.
    pub fn in_scope<T>(&self, act: impl FnOnce() -> T) -> T {
        let _entered = self.enter();
        act()
    }

    /// Says how it went; told at its end.
    pub fn set_status(&self, status: Status) {
        self.status.set(status);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(site) = self.site {
            let [high, low, own] = self.context.words();
            ring::write_in_span(&site.end, &[high, low, own, self.status.get() as u64], &());
        }
    }
}

/// Writes a record of the span that this thread is in: see [`event!`](crate::event). Nothing when its trace is not written.
#[inline(always)]
#[doc(hidden)]
pub fn write_event(site: &'static Site, fields: &impl Fields) {
    let context = context::current();
    if context.is_sampled() {
        ring::write_in_span(site, &context.words(), fields);
    }
}

/// Begins a [`Span`]: a name, and fields as those of [`tracepoint!`](crate::tracepoint). It is in the span that this thread is in, or in the one that `parent:
/// OPTION,` says.
///
/// ```
/// use tracepoint::{Context, span};
///
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let request = span!(parent: Context::from_traceparent(header), "request", path: str = "/a");
/// let _in_request = request.enter();
/// let decode = span!("decode");
/// assert_eq!(decode.context().map(|it| it.trace_id()), request.context().map(|it| it.trace_id()));
/// ```
#[macro_export]
macro_rules! span {
    (parent: $parent:expr, $name:literal $(, $field:ident : $type:ty = $value:expr)* $(,)?) => {{
        static SITE: $crate::SpanSite = $crate::SpanSite::new(
            $name,
            ::core::module_path!(),
            (::core::file!(), ::core::line!()),
            &[$($crate::FieldInfo {
                name: ::core::stringify!($field),
                kind: <$type as $crate::Field>::TYPE,
            }),*],
        );
        let parent: ::core::option::Option<$crate::Context> = $parent;
        match SITE.is_on() {
            true => $crate::Span::begin(&SITE, parent, &$crate::values!($($type = $value,)*)),
            false => $crate::Span::without(parent),
        }
    }};
    ($name:literal $($rest:tt)*) => {
        $crate::span!(parent: $crate::Context::current(), $name $($rest)*)
    };
}

/// Writes a record as [`tracepoint!`](crate::tracepoint) does, of the span that this thread is in.
#[macro_export]
macro_rules! event {
    ($name:literal $(, $field:ident : $type:ty = $value:expr)* $(,)?) => {{
        static SITE: $crate::Site = $crate::Site::new(
            $crate::layout::SiteKind::SpanEvent,
            $name,
            ::core::module_path!(),
            (::core::file!(), ::core::line!()),
            &[$($crate::FieldInfo {
                name: ::core::stringify!($field),
                kind: <$type as $crate::Field>::TYPE,
            }),*],
        );
        if SITE.is_on() {
            $crate::write_event(&SITE, &$crate::values!($($type = $value,)*));
        }
    }};
}
