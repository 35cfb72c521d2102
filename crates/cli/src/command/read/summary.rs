//! What a reading came to, for standard error.

use model::Timestamp;
use tracedir::{Findings, Loss, LossKind};

use crate::outcome::complain;
use crate::units::rfc3339;

/// What was lost when the traces were recorded.
#[derive(Default)]
pub(crate) struct Losses {
    event_records: u64,
    packets: u64,
    places: u64,
}

impl Losses {
    /// The most losses that are named one by one.
    const NAMED: u64 = 20;

    pub(crate) fn add(&mut self, loss: &Loss<'_>) {
        let what = match loss.kind {
            LossKind::EventRecords => {
                self.event_records += loss.count;
                "event records"
            }
            LossKind::Packets => {
                self.packets += loss.count;
                "packets"
            }
        };
        self.places += 1;
        if self.places <= Self::NAMED {
            let key = loss.stream.key();
            let instance = key.instance_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
            complain(&format!(
                "lost: {} {what}{}, stream class {}, stream {instance}",
                loss.count,
                span(loss),
                key.class_id,
            ));
        }
    }

    pub(crate) fn complain(&self) {
        if self.places > Self::NAMED {
            complain(&format!(
                "lost: {} event records and {} packets at {} places in all",
                self.event_records, self.packets, self.places
            ));
        }
    }
}

/// Says how often time went backwards in a stream, if it did.
pub(crate) fn tell_backward(backward: u64) {
    if backward > 0 {
        complain(&format!(
            "time went backwards: {backward} event records are earlier than what precedes them in their stream"
        ));
    }
}

/// Says how often a stream told of a time that the others had passed, if one did.
pub(crate) fn tell_late(late: u64) {
    if late > 0 {
        complain(&format!(
            "late: {late} event records were written too late to come in order of time"
        ));
    }
}

/// Says what could not be read, if anything.
pub(crate) fn tell(findings: &Findings) -> bool {
    findings.kept().iter().for_each(|finding| complain(&format!("unreadable: {finding}")));
    if findings.more() > 0 {
        complain(&format!("unreadable: {} more", findings.more()));
    }
    !findings.is_empty()
}

/// When it was lost, as far as the packets say so.
fn span(loss: &Loss) -> String {
    match (loss.begin, loss.end) {
        (_, Timestamp::MIN) => String::new(),
        (Timestamp::MIN, end) => format!(" before {}", rfc3339(end)),
        (begin, end) => format!(" between {} and {}", rfc3339(begin), rfc3339(end)),
    }
}
