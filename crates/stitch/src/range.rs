//! Summaries read from left to right: counting that begins somewhere, and logs taken out on the way.

use crate::fold::Items;
use crate::requests::Requests;
use crate::stack::Outcome;
use crate::summary::{Cover, LossCount, Summary};

/// Things that ended in a stretch of time, each by itself; [`crate::Tables::log`] makes rows of them.
#[derive(Debug, Clone)]
pub struct Log(pub(crate) Items);

impl Summary {
    /// What is known at the end of this, with nothing to its left and nothing counted: merged with what follows it gives
    /// what happened since. A call, a latency, a request that ends there counts whole, also where it began before; CPU time
    /// counts from here on.
    #[must_use]
    pub fn counting_from_its_end(mut self) -> Self {
        let Some(Cover { host, end, .. }) = self.cover.take() else { return self };
        self.cover = Some(Cover { host, begin: end, end });
        self.close();
        for thread in self.threads.values_mut() {
            let (stack, Outcome { .. }) = std::mem::take(&mut thread.stack).closed();
            thread.stack = stack;
            thread.counted.empty();
            thread.left_life = None;
        }
        self.lives = self.lives.emptied();
        self.processes.clear();
        self.phases.clear();
        self.requests = Requests::default();
        self.loss = LossCount::default();
        self.paths.count_from_here();
        self.folds = std::mem::take(&mut self.folds).counting_from(end);
        self
    }

    /// Takes out what ended so far, which is complete only where nothing is missing to the left: of the windows of a
    /// recording, merged from the first one on, the logs taken out after each merge follow each other in time. `None` where
    /// the selection asks for no log.
    pub fn take_log(&mut self) -> Option<Log> {
        self.close();
        let waits = self.paths.waits.sieve.take_log();
        self.folds.take_log().map(|items| Log(Items { waits, ..items }))
    }

    /// Puts nothing to the left of what is counted.
    fn close(&mut self) {
        let threads = self.threads.iter_mut().map(|(tid, thread)| {
            let of_left = thread.left_life.as_mut().map(|life| &mut life.counted);
            (*tid, &mut thread.counted, of_left)
        });
        self.folds = std::mem::take(&mut self.folds).closed(threads);
    }
}
