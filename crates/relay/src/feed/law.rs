//! What may be said of a stream's future, and what must hold for every answer: the rules of the feed as functions of
//! values, used by the feed, its tests and its simulation alike.
//!
//! Times are in cycles of the trace clock. A **bound** of a stream is a time before which no event of it is still to
//! come. There are three sources:
//!
//! - **packet**: the end of the last packet that was released;
//! - **beacon**: what the producer said, once every packet up to the beacon's number is released or lost, and unless
//!   an entry with a larger number came before it;
//! - **silence**, only for sessions without live timer: a stream that released nothing for a while is taken to have
//!   nothing before what other streams had reached when that while began. The while is a grace and the longest time
//!   between begin and end of the session's packets, their [`span`]: what happened before would have been sent since. This one is
//!   a guess, and packets that prove it wrong are withheld from viewers who were told so.

use std::time::Duration;

use wire::live::NetSeqNum;

/// No packet is taken to need longer than this.
pub(crate) const MOST_SPAN: Duration = Duration::from_secs(60);

/// What becomes of a beacon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beacon {
    /// It holds.
    Effective,
    /// Packets up to its number are still on their way.
    Waits,
    /// A later entry came before it: it says nothing of what is to come.
    Stale,
}

/// Judges a beacon that was sent after the packet `sent`; [`NetSeqNum::NONE`] when none was.
/// `lowest_waiting` is the lowest number of which only one half is there, `last_entry` the last one that came on the
/// control connection.
pub(crate) fn beacon(
    sent: NetSeqNum,
    lowest_waiting: Option<NetSeqNum>,
    last_entry: Option<NetSeqNum>,
) -> Beacon {
    if last_entry.is_some_and(|last| last.distance_from(sent) > 0) {
        Beacon::Stale
    } else if lowest_waiting.is_some_and(|lowest| lowest.distance_from(sent) <= 0) {
        Beacon::Waits
    } else {
        Beacon::Effective
    }
}

/// Whether a packet keeps what was promised of its stream.
pub(crate) fn keeps_promise(begin: u64, beacon: Option<u64>) -> bool {
    beacon.is_none_or(|beacon| begin >= beacon)
}

/// Whether a packet may be given to a viewer who was told that nothing before `told` is still to come: a viewer's
/// time never goes back.
pub(crate) const fn may_follow(begin: u64, told: u64) -> bool {
    begin >= told
}

/// How long packets of a stream take from begin to end, after another one: the longest, of which each packet takes a
/// sixteenth off. A cycle is taken for a nanosecond, as it is with LTTng.
pub(crate) fn span(before: Duration, begin: u64, end: u64) -> Duration {
    let faded = before - before / 16;
    faded.max(Duration::from_nanos(end.saturating_sub(begin)).min(MOST_SPAN))
}

/// Whether numbers are released in their order.
pub(crate) fn in_order(last: Option<NetSeqNum>, next: NetSeqNum) -> bool {
    last.is_none_or(|last| next.distance_from(last) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: u64) -> NetSeqNum {
        NetSeqNum::new(number)
    }

    #[test]
    fn a_beacon_holds_when_all_before_it_is_released() {
        let check = |sent, waiting: Option<u64>, last: Option<u64>| {
            beacon(number(sent), waiting.map(number), last.map(number))
        };
        assert_eq!(check(3, None, Some(3)), Beacon::Effective);
        assert_eq!(check(3, Some(3), Some(3)), Beacon::Waits);
        assert_eq!(check(3, Some(2), Some(3)), Beacon::Waits);
        assert_eq!(check(3, Some(4), Some(3)), Beacon::Effective, "a packet that ran ahead");
        assert_eq!(check(3, None, Some(4)), Beacon::Stale);
        assert_eq!(check(u64::MAX, None, None), Beacon::Effective, "no packet was sent yet");
        assert_eq!(check(u64::MAX, None, Some(0)), Beacon::Stale);
    }

    #[test]
    fn time_stands_but_never_goes_back() {
        assert!(may_follow(10, 10));
        assert!(!may_follow(9, 10));
        assert!(keeps_promise(9, None));
        assert!(!keeps_promise(9, Some(10)));
    }
}
