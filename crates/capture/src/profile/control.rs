//! Keeps what profiling costs within a budget.
//!
//! What costs too much CPU time or too many bytes is answered by longer windows first, because a longer one says the same names
//! fewer times; then by fewer samples; then by shorter stacks. What takes too much memory is answered by emptying caches first, and never by
//! longer windows. When there is room again for long enough, the steps are taken back in the other order.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What profiling may cost. What is `None` is not looked at.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    /// Nanoseconds of CPU time in a second and for each CPU: of the sampling program, and of this process as a whole.
    pub cpu_ns: Option<NonZeroU64>,
    /// Bytes in a second, as they are counted by `sent`.
    pub bytes: Option<NonZeroU64>,
    /// Bytes of memory that this process has for itself.
    pub memory_bytes: Option<NonZeroU64>,
    /// How often it is looked at; zero: every ten seconds.
    pub interval: Duration,
    /// Whoever sends or writes packets counts their bytes here.
    pub sent: Arc<AtomicU64>,
}

/// How samples are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How often a second on each CPU.
    pub frequency_hz: u64,
    /// How many times as long as they are meant to be windows are.
    pub windows: u32,
    /// The most user frames of a stack.
    pub max_frames: u32,
    /// What was beyond the budget when it last changed for less; `None` when nothing is lowered.
    pub reason: Option<Reason>,
}

/// What was beyond its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// CPU time.
    Cpu,
    /// Bytes that were sent.
    Bytes,
    /// Memory.
    Memory,
}

impl Reason {
    /// The word that a packet says.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Bytes => "bytes",
            Self::Memory => "memory",
        }
    }
}

/// What was used until a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Nanoseconds.
    pub(super) cpu_ns: u64,
    pub(super) bytes: u64,
    /// At the moment.
    pub(super) memory_bytes: u64,
}

/// Windows get twice as long so often: a minute in place of five seconds.
const LONGEST_WINDOWS: u32 = 3;
/// The most user frames of a stack, as in `bpf/sample.h`.
const MAX_FRAMES: u32 = 1024;
/// Stacks get no shorter.
const FEWEST_FRAMES: u32 = 64;
/// Looks at the budget for which there must be room before a step is taken back.
const PATIENCE: u32 = 6;
/// Room is left below so many hundredths of the budget: a step back about doubles the cost.
const ROOM_PERCENT: u128 = 40;

/// Decides.
#[derive(Debug)]
pub(super) struct Controller {
    budget: Budget,
    interval_ns: u64,
    cpus: u64,
    highest_hz: u64,
    now: Settings,
    /// What was used when it was last looked at, and when that was.
    before: Option<(u64, Used)>,
    /// For how many looks there has been room.
    with_room: u32,
    /// Whether there was too much memory at the last look.
    was_short_of_memory: bool,
    /// Whether caches are to be emptied.
    forget: bool,
}

impl Controller {
    pub(super) fn new(budget: Budget, frequency_hz: u64, cpus: usize) -> Self {
        let interval = budget.interval;
        let interval = if interval.is_zero() { Duration::from_secs(10) } else { interval };
        let highest_hz = frequency_hz.max(1);
        let now =
            Settings { frequency_hz: highest_hz, windows: 1, max_frames: MAX_FRAMES, reason: None };
        Self {
            budget,
            interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
            cpus: cpus.max(1) as u64,
            highest_hz,
            now,
            before: None,
            with_room: 0,
            was_short_of_memory: false,
            forget: false,
        }
    }

    /// How samples are to be taken.
    pub(super) const fn settings(&self) -> Settings {
        self.now
    }

    /// What the packets took until now.
    pub(super) fn bytes_sent(&self) -> u64 {
        self.budget.sent.load(Ordering::Relaxed)
    }

    /// Whether it is time to look again: `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.before
            .is_none_or(|(before_ns, _)| now_ns.saturating_sub(before_ns) >= self.interval_ns)
    }

    /// Looks at what was used until now. Whether the settings are others than before.
    pub(super) fn look(&mut self, now_ns: u64, used: Used) -> bool {
        let Some((before_ns, before)) = self.before.replace((now_ns, used)) else { return false };
        let length_ns = now_ns.saturating_sub(before_ns).max(1);
        // In hundredths of what is allowed.
        let rate = |amount: u64, allowed: Option<NonZeroU64>, times: u64| {
            let allowed = u128::from(allowed?.get()) * u128::from(times) * u128::from(length_ns);
            Some(u128::from(amount) * 100 * 1_000_000_000 / allowed.max(1))
        };
        let cpu_ns = used.cpu_ns.saturating_sub(before.cpu_ns);
        let bytes = used.bytes.saturating_sub(before.bytes);
        let memory = self
            .budget
            .memory_bytes
            .map(|allowed| u128::from(used.memory_bytes) * 100 / u128::from(allowed.get()));
        let is_short = memory.is_some_and(|percent| percent > 100);
        let was_short = std::mem::replace(&mut self.was_short_of_memory, is_short);
        self.forget = is_short;
        // Caches may be all that is too much.
        let memory = if is_short && !was_short { Some(100) } else { memory };
        let percents = [
            (rate(cpu_ns, self.budget.cpu_ns, self.cpus), Reason::Cpu),
            (rate(bytes, self.budget.bytes, 1), Reason::Bytes),
            (memory, Reason::Memory),
        ];
        let known = percents.into_iter().filter_map(|(percent, reason)| Some((percent?, reason)));
        let Some((percent, reason)) = known.max_by_key(|(percent, _)| *percent) else {
            return false;
        };
        let settings = self.now;
        if percent > 100 {
            self.with_room = 0;
            self.lower(reason);
        } else if percent < ROOM_PERCENT {
            self.with_room += 1;
            if self.with_room >= PATIENCE {
                self.with_room = 0;
                self.raise();
            }
        } else {
            self.with_room = 0;
        }
        settings != self.now
    }

    /// Whether caches are to be emptied because of what the last look saw; says so once.
    pub(super) fn take_forget(&mut self) -> bool {
        std::mem::take(&mut self.forget)
    }

    fn lower(&mut self, reason: Reason) {
        let now = &mut self.now;
        now.reason = Some(reason);
        if reason == Reason::Memory && now.windows > 1 {
            now.windows /= 2;
        } else if reason != Reason::Memory && now.windows < 1 << LONGEST_WINDOWS {
            now.windows *= 2;
        } else if now.frequency_hz > 1 {
            now.frequency_hz /= 2;
        } else if now.max_frames > FEWEST_FRAMES {
            now.max_frames /= 2;
        }
    }

    fn raise(&mut self) {
        let highest_hz = self.highest_hz;
        let now = &mut self.now;
        if now.max_frames < MAX_FRAMES {
            now.max_frames *= 2;
        } else if now.frequency_hz < highest_hz {
            // By the steps on which it was lowered.
            let steps = (0..).map(|step| highest_hz >> step);
            now.frequency_hz =
                steps.take_while(|step| *step > now.frequency_hz).last().unwrap_or(highest_hz);
        } else if now.windows > 1 {
            now.windows /= 2;
        }
        if (now.max_frames, now.frequency_hz, now.windows) == (MAX_FRAMES, highest_hz, 1) {
            now.reason = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn budget() -> Budget {
        Budget {
            cpu_ns: NonZeroU64::new(1_000_000),
            bytes: NonZeroU64::new(1_000),
            memory_bytes: NonZeroU64::new(1_000),
            ..Budget::default()
        }
    }

    /// What comes of looks after seconds in each of which so much was used.
    fn after(controller: &mut Controller, looks: u64, each: Used) -> Vec<(u64, u32, u32)> {
        let (mut at_ns, mut used) = controller.before.unwrap_or_default();
        let mut seen = Vec::new();
        for _ in 0..looks {
            at_ns += SECOND_NS;
            used.cpu_ns += each.cpu_ns;
            used.bytes += each.bytes;
            used.memory_bytes = each.memory_bytes;
            controller.look(at_ns, used);
            let Settings { frequency_hz, windows, max_frames, .. } = controller.settings();
            seen.push((frequency_hz, windows, max_frames));
        }
        seen
    }

    #[test]
    fn windows_get_longer_then_samples_fewer_then_stacks_shorter_and_back() {
        let mut controller = Controller::new(budget(), 19, 2);
        let much = Used { cpu_ns: 2_100_000, ..Used::default() };
        let seen = after(&mut controller, 14, much);
        let expected = [
            (19, 1, 1024),
            (19, 2, 1024),
            (19, 4, 1024),
            (19, 8, 1024),
            (9, 8, 1024),
            (4, 8, 1024),
            (2, 8, 1024),
            (1, 8, 1024),
            (1, 8, 512),
            (1, 8, 256),
            (1, 8, 128),
            (1, 8, 64),
            (1, 8, 64),
            (1, 8, 64),
        ];
        assert_eq!(seen, expected);
        assert_eq!(controller.settings().reason, Some(Reason::Cpu));
        // Half of the budget: nothing changes.
        let half = Used { cpu_ns: 1_000_000, ..Used::default() };
        assert!(after(&mut controller, 50, half).iter().all(|it| *it == (1, 8, 64)));
        let mut back = after(&mut controller, 100, Used::default());
        back.dedup();
        let mut expected: Vec<_> = expected[..12].iter().rev().copied().collect();
        expected.dedup();
        assert_eq!(back, expected);
        assert_eq!(controller.settings().reason, None);
    }

    #[test]
    fn memory_is_not_answered_by_longer_windows() {
        let mut controller = Controller::new(budget(), 99, 2);
        after(&mut controller, 3, Used { bytes: 1_100, ..Used::default() });
        assert_eq!(controller.settings().windows, 4);
        let much = Used { memory_bytes: 1_100, ..Used::default() };
        let seen = after(&mut controller, 5, much);
        let expected = [(99, 4, 1024), (99, 2, 1024), (99, 1, 1024), (49, 1, 1024), (24, 1, 1024)];
        assert_eq!(seen, expected);
        assert_eq!(controller.settings().reason, Some(Reason::Memory));
    }

    #[test]
    fn too_much_memory_empties_caches_before_anything_is_lowered() {
        let mut controller = Controller::new(budget(), 99, 2);
        let mut look = |memory_bytes| {
            let seen = after(&mut controller, 1, Used { memory_bytes, ..Used::default() });
            (controller.take_forget(), controller.take_forget(), seen[0].0)
        };
        // The first look has nothing to compare with.
        assert_eq!(look(900), (false, false, 99));
        assert_eq!(look(1_100), (true, false, 99));
        assert_eq!(look(900), (false, false, 99));
        assert_eq!(look(1_100), (true, false, 99));
        assert_eq!(look(1_100), (true, false, 49));
    }

    #[test]
    fn without_a_budget_nothing_changes() {
        let mut controller = Controller::new(Budget::default(), 99, 2);
        let much = Used { cpu_ns: SECOND_NS, bytes: 1 << 40, memory_bytes: 1 << 40 };
        assert!(after(&mut controller, 20, much).iter().all(|it| *it == (99, 1, 1024)));
    }

    #[test]
    fn it_is_due_after_an_interval() {
        let budget = Budget { interval: Duration::from_secs(3), ..budget() };
        let mut controller = Controller::new(budget, 99, 2);
        assert!(controller.is_due(5));
        controller.look(5, Used::default());
        assert!(!controller.is_due(3 * SECOND_NS));
        assert!(controller.is_due(3 * SECOND_NS + 5));
    }
}
