//! The programs of the trace classes that a writer has met.

use std::sync::Arc;

use super::program::Op;
use super::stream::StreamText;
use crate::event::EventRecord;
use crate::program;

/// The most operations that are kept, of all programs together: some 15 MB.
const MAX_OPS: usize = 1 << 18;

/// The most trace classes whose programs are kept.
const MAX_TRACES: usize = 4_096;

/// Programs by trace class, event record class and whether there is a time. When there are too many, all are dropped.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    /// A trace class is known by the programs that decode it: while they are kept, no other can take their place.
    traces: Vec<(Arc<program::Programs>, Vec<OfClass>)>,
    ops: usize,
}

/// The programs of an event record class, without and with a time.
type OfClass = [Option<Box<[Op]>>; 2];

impl Programs {
    /// The program for an event record; `compile` makes it when it is the first of its kind.
    #[inline]
    pub(crate) fn get(
        &mut self,
        record: &EventRecord<'_>,
        stream: &StreamText,
        compile: impl FnOnce() -> Box<[Op]>,
    ) -> &[Op] {
        let key = Key::of(record);
        if self.find(stream.slot.get(), record, key).is_none() {
            let slot = self.fill(record, key, compile);
            stream.slot.set(slot);
        }
        self.find(stream.slot.get(), record, key).unwrap_or_default()
    }

    #[inline]
    fn find(&self, slot: usize, record: &EventRecord<'_>, key: Key) -> Option<&[Op]> {
        let (_, classes) =
            self.traces.get(slot).filter(|(token, _)| Arc::ptr_eq(token, record.programs()))?;
        let [without, with] = classes.get(key.class)?;
        (if key.timed { with } else { without }).as_deref()
    }

    /// Makes sure that the program is there; returns the trace class's place.
    #[cold]
    fn fill(
        &mut self,
        record: &EventRecord<'_>,
        key: Key,
        compile: impl FnOnce() -> Box<[Op]>,
    ) -> usize {
        if self.ops > MAX_OPS || self.traces.len() > MAX_TRACES {
            *self = Self::default();
        }
        let slot = self.traces.iter().position(|(token, _)| Arc::ptr_eq(token, record.programs()));
        let slot = slot.unwrap_or_else(|| {
            self.traces.push((Arc::clone(record.programs()), Vec::new()));
            self.traces.len() - 1
        });
        let Some((_, classes)) = self.traces.get_mut(slot) else { return slot };
        if classes.len() <= key.class {
            classes.resize_with(key.class + 1, Default::default);
        }
        let Some([without, with]) = classes.get_mut(key.class) else { return slot };
        let place = if key.timed { with } else { without };
        if place.is_none() {
            let program = compile();
            self.ops += program.len();
            *place = Some(program);
        }
        slot
    }
}

#[derive(Debug, Clone, Copy)]
struct Key {
    class: usize,
    timed: bool,
}

impl Key {
    #[inline]
    fn of(record: &EventRecord<'_>) -> Self {
        let class = usize::try_from(record.class().index()).unwrap_or(usize::MAX);
        Self { class, timed: record.timestamp_ns().is_some() }
    }
}
