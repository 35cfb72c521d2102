//! Call sites of `tracing` as call sites of ours.
//!
//! A table of pointers by the address of a call site's metadata; entries are made once and stay.
#![expect(unsafe_code, reason = "pointers to what is never given back")]

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use tracing_core::{Level, Metadata};

use crate::layout::{FieldType, MAX_FIELDS, Severity, SiteKind};
use crate::site::{FieldInfo, Site};

/// Twice as many as call sites have numbers.
const PLACES: usize = 8192;
/// How far from a call site's own place it may be.
const MAX_STEPS: usize = 64;

/// The call sites of a span's records.
pub(super) struct SpanSites {
    pub(super) begin: Site,
    pub(super) record: Site,
    pub(super) end: Site,
}

enum Sites {
    Span(SpanSites),
    Event(Site),
}

struct Entry {
    /// The address of the metadata; 0: free.
    metadata: AtomicU64,
    /// Null while it is being made.
    sites: AtomicPtr<Sites>,
}

static TABLE: [Entry; PLACES] =
    [const { Entry { metadata: AtomicU64::new(0), sites: AtomicPtr::new(ptr::null_mut()) } };
        PLACES];

fn address(metadata: &Metadata<'_>) -> u64 {
    ptr::from_ref(metadata).addr() as u64
}

fn entries(address: u64) -> impl Iterator<Item = &'static Entry> {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, section 6.4).
    let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - PLACES.trailing_zeros());
    let first = usize::try_from(hash).unwrap_or_default();
    (0..MAX_STEPS).filter_map(move |step| TABLE.get((first + step) % PLACES))
}

/// Makes the call sites; where there is no room for them they are never written.
pub(super) fn enlist(metadata: &'static Metadata<'static>) {
    let address = address(metadata);
    for entry in entries(address) {
        let taken =
            entry.metadata.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
        match taken {
            Ok(_) => {
                let sites = Box::leak(Box::new(Sites::of(metadata)));
                entry.sites.store(sites, Ordering::Release);
                return;
            }
            Err(other) if other == address => return,
            Err(_) => {}
        }
    }
}

#[inline]
fn find(metadata: &Metadata<'_>) -> Option<&'static Sites> {
    let address = address(metadata);
    for entry in entries(address) {
        match entry.metadata.load(Ordering::Acquire) {
            0 => return None,
            found if found == address => {
                // SAFETY: null, or leaked for good.
                return unsafe { entry.sites.load(Ordering::Acquire).cast_const().as_ref() };
            }
            _ => {}
        }
    }
    None
}

#[inline]
pub(super) fn of_event(metadata: &Metadata<'_>) -> Option<&'static Site> {
    match find(metadata)? {
        Sites::Event(site) => Some(site),
        Sites::Span(_) => None,
    }
}

pub(super) fn of_span(metadata: &Metadata<'_>) -> Option<&'static SpanSites> {
    match find(metadata)? {
        Sites::Span(sites) => Some(sites),
        Sites::Event(_) => None,
    }
}

impl Sites {
    fn of(metadata: &'static Metadata<'static>) -> Self {
        let kind = FieldType::Tagged;
        let names = metadata.fields().iter().map(|field| FieldInfo { name: field.name(), kind });
        let fields: Vec<FieldInfo> = names.take(MAX_FIELDS).collect();
        let fields: &'static [FieldInfo] = Vec::leak(fields);
        let site = |kind, fields| {
            let place = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
            Site::new(kind, metadata.name(), metadata.target(), place, fields)
                .with_severity(severity(metadata.level()))
        };
        if metadata.is_event() {
            return Self::Event(site(SiteKind::SpanEvent, fields));
        }
        Self::Span(SpanSites {
            begin: site(SiteKind::SpanBegin, fields),
            record: site(SiteKind::SpanRecord, fields),
            end: site(SiteKind::SpanEnd, &[]),
        })
    }
}

const fn severity(level: &Level) -> Severity {
    match *level {
        Level::TRACE => Severity::Trace,
        Level::DEBUG => Severity::Debug,
        Level::INFO => Severity::Info,
        Level::WARN => Severity::Warn,
        Level::ERROR => Severity::Error,
    }
}
