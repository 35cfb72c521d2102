//! Where a relay should begin when earlier is not wanted.
//!
//! The relay knows clock values and no time; what relates the two is in the metadata, which come after attaching. So a
//! session is attached to twice: once for its metadata alone, then with the clock value that they give for the time.
//! lttng-relayd does not look at that value, and begins at the beginning: what is earlier is passed over here as before.

use std::io::{Read, Write};

use ctf::ClockClass;
use wire::live::viewer::{Seek, SessionEntry};

use crate::connection::Relay;
use crate::error::Error;
use crate::viewing::{Options, Viewing};

/// How much earlier than wanted: the metadata of different traces relate the same clock to time at different moments, between
/// which the time may have been set.
const MARGIN_NS: i64 = 10_000_000_000;

/// Where to begin in a session; the relay is left as it was.
pub(crate) fn find<S: Read + Write>(
    relay: Relay<S>,
    session: &SessionEntry,
    options: &Options,
) -> Result<(Relay<S>, Seek), Error> {
    if options.seek != Seek::Beginning || options.begin.nanos() == i64::MIN {
        return Ok((relay, options.seek));
    }
    let mut scout = Viewing::new(relay, options, std::slice::from_ref(session));
    scout.attach(session, Seek::Last)?;
    let begin = options.begin.nanos().saturating_sub(MARGIN_NS);
    let cycles = scout.clocks().map(|clock| cycles_at(clock, begin)).min();
    let mut relay = scout.into_relay();
    relay.detach(session.session)?;
    Ok((relay, cycles.filter(|cycles| *cycles > 0).map_or(Seek::Beginning, Seek::Since)))
}

/// The first value of a clock that is at this time or later.
fn cycles_at(clock: &ClockClass, nanos: i64) -> u64 {
    let is_earlier = |cycles| clock.to_ns(cycles).is_ok_and(|at| at < nanos);
    let (mut low, mut high) = (0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_earlier(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_the_first_clock_value_that_is_not_earlier() {
        let clock = ClockClass { offset_s: 1_000, offset: 5, ..ClockClass::new("monotonic") };
        let at = |nanos| cycles_at(&clock, nanos);
        assert_eq!(at(1_000_000_000_005), 0);
        assert_eq!(at(1_000_000_000_105), 100);
        assert_eq!(at(i64::MIN), 0);
        let slow = ClockClass { frequency: 3, ..clock };
        for nanos in [1_002_000_000_000, 1_002_333_333_333, 1_700_000_000_000_000_000] {
            let cycles = cycles_at(&slow, nanos);
            assert!(
                slow.to_ns(cycles).unwrap() >= nanos && slow.to_ns(cycles - 1).unwrap() < nanos
            );
        }
    }
}
