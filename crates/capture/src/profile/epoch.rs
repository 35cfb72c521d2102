//! From the trace clock to the time of day, for packets whose times never go backwards.

/// Two readings differ by less when nobody has set the clock: how exactly two clocks can be read one after the other.
const SET_BACK_NS: u64 = 1_000_000_000;

/// What to add to a time of `CLOCK_MONOTONIC` for nanoseconds since the Unix epoch.
///
/// The rule: it is read for each window, and a smaller one than before is not taken. So a window never begins before an earlier one
/// of the same process: when the time of day is set forward, or the machine wakes from sleep, the next window follows; when it is
/// set back, times stay ahead by as much until it has caught up, or the process starts anew.
#[derive(Debug)]
pub(super) struct Epoch {
    read: Option<fn() -> u64>,
    offset_ns: u64,
    is_ahead: bool,
}

impl Epoch {
    /// `read` gives the difference as both clocks stand.
    pub(super) fn new(read: fn() -> u64) -> Self {
        Self { read: Some(read), offset_ns: 0, is_ahead: false }
    }

    /// The same for all windows.
    pub(super) fn fixed(offset_ns: u64) -> Self {
        Self { read: None, offset_ns, is_ahead: false }
    }

    /// For a window that begins.
    pub(super) fn of_window(&mut self) -> u64 {
        let read = self.read.map_or(self.offset_ns, |read| read());
        let ahead_ns = self.offset_ns.saturating_sub(read);
        let was_ahead = std::mem::replace(&mut self.is_ahead, ahead_ns > SET_BACK_NS);
        if self.is_ahead && !was_ahead {
            let ahead_s = ahead_ns / 1_000_000_000;
            tracing::warn!(ahead_s, "the time of day was set back: times of profiles stay ahead");
        }
        self.offset_ns = self.offset_ns.max(read);
        self.offset_ns
    }
}
