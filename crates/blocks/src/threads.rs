//! The engine that needs nobody else: threads of this process.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::hands::Hands;
use crate::work::{Engine, EngineError, Outcome, Step, Stop, Work};

/// Does steps on threads of this process, each the next that nobody has begun.
#[derive(Debug)]
pub struct Threads<'h> {
    hands: &'h Hands,
    count: NonZeroUsize,
    stop: Stop,
}

impl<'h> Threads<'h> {
    /// So many threads; one for each CPU when absent.
    #[must_use]
    pub fn new(hands: &'h Hands, count: Option<NonZeroUsize>) -> Self {
        let all = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self { hands, count: count.unwrap_or_else(all), stop: Stop::default() }
    }

    /// The same, told by somebody else to end.
    #[must_use]
    pub fn until(self, stop: Stop) -> Self {
        Self { stop, ..self }
    }
}

impl Engine for Threads<'_> {
    fn run(
        &self,
        work: &Arc<Work>,
        steps: Vec<Step>,
        take: &mut dyn FnMut(Outcome) -> ControlFlow<()>,
    ) -> Result<(), EngineError> {
        let next = AtomicUsize::new(0);
        // As many outcomes may wait as there are threads.
        let (done, outcomes) = mpsc::sync_channel(self.count.get());
        thread::scope(|scope| {
            for _ in 0..self.count.get().min(steps.len()) {
                let done = done.clone();
                scope.spawn(|| {
                    // Ends with the last step, or when nobody listens.
                    let done = done;
                    while let Some(step) = steps.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if self.stop.is_set() || done.send(self.hands.run(work, step)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(done);
            // What comes after a break finds nobody who listens, and ends its thread.
            for outcome in outcomes {
                if take(outcome).is_break() {
                    break;
                }
            }
        });
        if self.stop.is_set() { Err(EngineError::Stopped) } else { Ok(()) }
    }

    fn cancel(&self) {
        self.stop.set();
    }

    fn is_cancelled(&self) -> bool {
        self.stop.is_set()
    }
}
