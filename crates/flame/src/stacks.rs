//! From samples to values by stack, and what frames are called.

use std::borrow::Cow;

use model::samples::{Batch, Frame, Sample, StackId};

/// Sums of values by stack of one batch: 8 bytes for each stack of the batch, and 4 for each that has a value.
#[derive(Debug, Clone)]
pub struct Sums {
    by_stack: Vec<i64>,
    /// Stacks with a value, in the order in which they came.
    seen: Vec<StackId>,
}

impl Sums {
    /// Of no sample yet.
    #[must_use]
    pub fn new(batch: &Batch) -> Self {
        Self { by_stack: vec![0; batch.stack_count()], seen: Vec::new() }
    }

    /// Of samples of the batch.
    pub fn of<'a>(batch: &Batch, samples: impl IntoIterator<Item = &'a Sample>) -> Self {
        let mut sums = Self::new(batch);
        for sample in samples {
            sums.add(sample.stack, sample.value);
        }
        sums
    }

    /// Adds a value to a stack of the batch. Values below 1 are passed over.
    #[inline]
    pub fn add(&mut self, stack: StackId, value: i64) {
        let Some(sum) = self.by_stack.get_mut(stack.index()) else { return };
        if value <= 0 {
            return;
        }
        if *sum == 0 {
            self.seen.push(stack);
        }
        *sum = sum.saturating_add(value);
    }

    /// Stacks with their values, each once.
    pub fn iter(&self) -> impl Iterator<Item = (StackId, i64)> {
        let value = |stack: StackId| self.by_stack.get(stack.index()).copied().unwrap_or_default();
        self.seen.iter().map(move |&stack| (stack, value(stack)))
    }
}

/// What of stacks is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Walk {
    /// How many frames at the leaf are kept; 0 for all. Go's profile-guided optimisation looks at few.
    pub keep_leaves: u32,
    /// Whether the line in the leaf's function does not count.
    pub aggregate_callees: bool,
}

impl Walk {
    pub(crate) fn keep(self) -> usize {
        if self.keep_leaves == 0 { usize::MAX } else { self.keep_leaves as usize }
    }
}

/// What a frame is called: its function, or the file and the address in it, as the views of crate `profile` call it.
#[must_use]
pub fn frame_name<'a>(batch: &'a Batch, frame: &Frame) -> Cow<'a, str> {
    let texts = [frame.function, frame.system_name].map(|text| batch.text_of(text));
    if let Some(name) = texts.into_iter().find(|text| !text.is_empty()) {
        return Cow::Borrowed(name);
    }
    let path = batch.text_of(frame.mapping);
    let file = path.rsplit('/').next().filter(|file| !file.is_empty()).unwrap_or("?");
    Cow::Owned(format!("{file}+{:#x}", frame.address))
}
