//! How many event records there are, in all or by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::ValueEnum;
use ctf::TraceClass;
use serde_json::json;
use tracedir::Event;

use crate::table::{Align, Table};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Count {
    /// All event records together
    All,
    /// Those of each name
    ByName,
}

/// Counts event records of each class, and by name only at the end.
#[derive(Default)]
pub(crate) struct Counts {
    /// Of each stream: the trace class it is read by, and the counts of that class's event record classes.
    of_stream: Vec<Option<(Arc<TraceClass>, Vec<u64>)>>,
    done: BTreeMap<String, u64>,
}

impl Counts {
    #[inline]
    pub(crate) fn add(&mut self, event: &Event<'_>) {
        let class = event.trace_class();
        let slot = self.of_stream.get_mut(event.stream_index).and_then(Option::as_mut);
        if let Some((known, counts)) = slot
            && Arc::ptr_eq(known, class)
            && let Ok(index) = usize::try_from(event.record.class().index())
            && let Some(count) = counts.get_mut(index)
        {
            *count += 1;
            return;
        }
        self.turn_to(event.stream_index, class);
        *self.done.entry(event.record.name().to_owned()).or_default() += 1;
    }

    #[cold]
    fn turn_to(&mut self, stream: usize, class: &Arc<TraceClass>) {
        if self.of_stream.len() <= stream {
            self.of_stream.resize_with(stream + 1, || None);
        }
        let counts = vec![0; class.event_record_classes().len()];
        let slot = self.of_stream.get_mut(stream);
        if let Some((known, counts)) =
            slot.and_then(|slot| slot.replace((Arc::clone(class), counts)))
        {
            self.settle(&known, &counts);
        }
    }

    fn settle(&mut self, class: &TraceClass, counts: &[u64]) {
        let counted = class.event_record_classes().iter().zip(counts);
        for (class, count) in counted.filter(|(_, count)| **count > 0) {
            *self.done.entry(class.name().to_owned()).or_default() += count;
        }
    }

    /// Names and how many of each, the most frequent first, then by name.
    pub(crate) fn finish(mut self) -> Vec<(String, u64)> {
        for (class, counts) in std::mem::take(&mut self.of_stream).into_iter().flatten() {
            self.settle(&class, &counts);
        }
        let mut counts: Vec<(String, u64)> = self.done.into_iter().collect();
        counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        counts
    }
}

/// One line for each name.
pub(crate) fn table(counts: &[(String, u64)]) -> String {
    let mut table = Table::new(["events", "name"], [Align::Right, Align::Left]);
    for (name, count) in counts {
        table.row([count.to_string(), name.clone()]);
    }
    let mut out = String::new();
    table.render("", &mut out);
    out
}

/// One JSON object for each name.
pub(crate) fn json_lines(counts: &[(String, u64)]) -> String {
    counts
        .iter()
        .map(|(name, count)| format!("{}\n", json!({"name": name, "events": count})))
        .collect()
}
