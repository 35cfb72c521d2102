//! Notifications of OSProfiler: those that came over a connection, as an entry, and those that a driver wrote into rings.

use rings::{Item, Record, Value};
use serde::{Deserialize, Serialize};

use crate::batch::RingBatch;
use crate::error::Error;

/// The call site of package `throughline-osprofiler`: its records have a text `base_id`, and the JSON in pieces.
const SITE: (&str, &str) = ("osprofiler", "throughline_osprofiler");
const BASE_ID: &str = "base_id";
const JSON: &str = "json";

/// What a client of OSProfiler's store asked to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notified<'a> {
    /// A notification's JSON, in front of others of its trace.
    Push {
        /// The trace.
        base_id: &'a str,
        /// As it came.
        json: &'a [u8],
    },
    /// A text under a key.
    Set {
        /// The whole key.
        key: &'a str,
        /// As it came.
        text: &'a [u8],
    },
}

/// Some, as the bytes of an entry.
///
/// # Errors
/// [`Error::Form`]; there are none of which that is known.
pub fn encode_notified(notified: &[Notified<'_>]) -> Result<Vec<u8>, Error> {
    Ok(postcard::to_allocvec(notified)?)
}

/// Those of an entry, in the order in which they came.
///
/// # Errors
/// [`Error::Form`].
pub fn decode_notified(bytes: &[u8]) -> Result<Vec<Notified<'_>>, Error> {
    Ok(postcard::from_bytes(bytes)?)
}

/// A notification that was written into a ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingNotification {
    /// When, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic_ns: i64,
    /// The trace.
    pub base_id: String,
    /// Its JSON.
    pub json: Vec<u8>,
}

/// Whether a record is a notification.
pub(crate) fn is_notification(record: &Record<'_>) -> bool {
    (record.site.name.as_str(), record.site.target.as_str()) == SITE
}

/// Those of a batch, in its order.
///
/// # Errors
/// [`Error::Records`].
pub fn ring_notifications(batch: &RingBatch) -> Result<Vec<RingNotification>, Error> {
    let mut all = Vec::new();
    if batch.has_site(SITE) {
        batch.each(|item| {
            if let Item::Record(record) = item
                && is_notification(record)
            {
                all.push(of(batch, record));
            }
        })?;
    }
    Ok(all)
}

fn of(batch: &RingBatch, record: &Record<'_>) -> RingNotification {
    let (mut base_id, mut json) = (String::new(), Vec::new());
    for (field, value) in record.fields() {
        let name = record.site.fields.get(field).map(|(name, _)| name.as_str());
        match (name, value) {
            (Some(BASE_ID), Value::Text(text)) => {
                base_id = String::from_utf8_lossy(text.bytes).into_owned();
            }
            (Some(JSON), Value::Text(piece) | Value::Bytes(piece)) => {
                json.extend_from_slice(piece.bytes);
            }
            _ => {}
        }
    }
    RingNotification { monotonic_ns: batch.times.monotonic_ns(record.time), base_id, json }
}
