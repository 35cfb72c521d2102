//! Reading a recording while it is written, until Ctrl-C.

use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::Context;
use model::Timestamp;
use tracedir::{Error, Follow, FollowOptions};

use super::Reading;
use crate::outcome::complain;
use crate::stop;

/// How often the folders are looked at, at the most.
const EVERY: Duration = Duration::from_millis(200);

/// Looking takes no more than one part in so many of the time: a folder of thousands of chunks is looked at less often.
const SHARE: u32 = 20;

/// How often they are looked at, at the least.
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// How many times in a row looking may fail: folders vanish between two steps of a rotation.
const MISSED: u32 = 10;

/// Gives event records to `reading` as they are written; returns at the first SIGINT or SIGTERM, at the limit, and when
/// the end of the range is passed. `unwritten` says what output that cannot be written is an error about.
pub(super) fn follow(
    follow: &mut Follow,
    options: &FollowOptions,
    reading: &mut Reading,
    unwritten: impl Fn() -> String,
) -> anyhow::Result<()> {
    let stop = stop::on_signal()?;
    let begin = Instant::now();
    let now = || {
        let elapsed = i64::try_from(begin.elapsed().as_nanos());
        Timestamp::from_nanos(elapsed.unwrap_or(i64::MAX))
    };
    let mut missed = None;
    loop {
        let looked = Instant::now();
        let polled = follow.poll(now());
        let every = (looked.elapsed() * (SHARE - 1)).clamp(EVERY, AT_LEAST_EVERY);
        match polled {
            Ok(()) => missed = Some(0),
            Err(error @ Error::Io { .. }) => match &mut missed {
                Some(times) if *times < MISSED => *times += 1,
                _ => return Err(error).context("cannot follow"),
            },
            Err(error) => return Err(error).context("cannot follow"),
        }
        drain(follow, reading).with_context(&unwritten)?;
        if let Some(doubt) = reading.selection.doubt() {
            complain(&format!("note: --grep: {doubt}, so far"));
        }
        let end = options.range.end;
        if reading.is_full() || end < Timestamp::MAX && follow.has_come_to(end) {
            return Ok(());
        }
        match stop.recv_timeout(every) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    follow.finish(now()).context("cannot follow")?;
    drain(follow, reading).with_context(unwritten)
}

fn drain(follow: &mut Follow, reading: &mut Reading) -> io::Result<()> {
    while !reading.is_full()
        && let Some(item) = follow.next_item()
    {
        reading.take(&item)?;
    }
    reading.printer.flush()
}
