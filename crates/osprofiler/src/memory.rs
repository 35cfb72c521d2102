//! Traces in memory.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::traces::{Key, Page, StoreError, TextKey, Traces};

/// What an entry takes beside its key and values, about.
const ENTRY_LEN: usize = 192;
/// What a value takes beside its bytes, about.
const VALUE_LEN: usize = 48;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In all. The oldest trace or text goes first.
    pub bytes: usize,
    /// Traces and texts. The oldest goes first.
    pub keys: usize,
    /// Of a trace. What comes then is dropped.
    pub trace_notifications: usize,
    /// Of a trace, and so of a reply. What comes then is dropped.
    pub trace_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            keys: 100_000,
            trace_notifications: 100_000,
            trace_bytes: 32 << 20,
        }
    }
}

/// What was taken and is not there any more, or was not taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Traces that went for others.
    pub evicted_traces: u64,
    /// Their notifications.
    pub evicted_notifications: u64,
    /// Texts that went for others.
    pub evicted_texts: u64,
    /// Notifications of traces that have too many, or too large ones.
    pub long_traces: u64,
    /// Notifications and texts that have no room alone.
    pub full: u64,
}

impl Losses {
    /// Each count with its name.
    #[must_use]
    pub const fn by_reason(&self) -> [(&'static str, u64); 5] {
        let Self { evicted_traces, evicted_notifications, evicted_texts, long_traces, full } =
            *self;
        [
            ("evicted_traces", evicted_traces),
            ("evicted_notifications", evicted_notifications),
            ("evicted_texts", evicted_texts),
            ("long_traces", long_traces),
            ("full", full),
        ]
    }
}

/// Traces and texts in memory, each since it began.
#[derive(Debug)]
pub struct MemoryTraces {
    limits: Limits,
    /// By age: numbers only grow, from 1 on, and are the cursors.
    entries: BTreeMap<u64, Entry>,
    numbers: HashMap<Arc<str>, u64>,
    last_number: u64,
    bytes: usize,
    losses: Losses,
}

#[derive(Debug)]
struct Entry {
    key: Arc<str>,
    content: Content,
    /// With what it takes beside values.
    bytes: usize,
}

#[derive(Debug)]
enum Content {
    /// The newest last.
    Trace(Vec<Arc<[u8]>>),
    Text(Arc<[u8]>),
}

impl MemoryTraces {
    /// None yet.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            entries: BTreeMap::new(),
            numbers: HashMap::new(),
            last_number: 0,
            bytes: 0,
            losses: Losses::default(),
        }
    }

    /// What was lost so far.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }

    /// What all that is kept takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn entry(&self, key: Key<'_>) -> Option<&Entry> {
        self.entries.get(self.numbers.get(key.to_string().as_str())?)
    }

    fn trace(&self, base_id: &str) -> &[Arc<[u8]>] {
        match self.entry(Key::Trace(base_id)).map(|entry| &entry.content) {
            Some(Content::Trace(notifications)) => notifications,
            _ => &[],
        }
    }

    /// Refuses an entry of so many bytes for which all others together would not make room.
    fn fits(&mut self, bytes: usize) -> Result<(), StoreError> {
        if bytes > self.limits.bytes || self.limits.keys == 0 {
            self.losses.full += 1;
            return Err(StoreError::Full);
        }
        Ok(())
    }

    /// Makes room for so many bytes more of an entry, or of another one, by what is older than all but that.
    fn make_room(&mut self, kept: Option<u64>, bytes: usize) {
        let keys = usize::from(kept.is_none());
        while self.bytes + bytes > self.limits.bytes || self.entries.len() + keys > self.limits.keys
        {
            let oldest = self.entries.keys().copied().find(|number| Some(*number) != kept);
            let Some(entry) = oldest.and_then(|oldest| self.remove(oldest)) else { break };
            match entry.content {
                Content::Text(_) => self.losses.evicted_texts += 1,
                Content::Trace(notifications) => {
                    self.losses.evicted_traces += 1;
                    self.losses.evicted_notifications += notifications.len() as u64;
                }
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.numbers.remove(&entry.key);
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// For an entry that has room: a new one, or one that was removed and has its number.
    fn add(&mut self, number: Option<u64>, key: Key<'_>, content: Content, bytes: usize) {
        let key: Arc<str> = key.to_string().into();
        let number = number.unwrap_or(self.last_number + 1);
        self.last_number = self.last_number.max(number);
        self.numbers.insert(Arc::clone(&key), number);
        self.entries.insert(number, Entry { key, content, bytes });
        self.bytes += bytes;
    }
}

impl Traces for MemoryTraces {
    fn push(&mut self, base_id: &str, notification: &[u8]) -> Result<usize, StoreError> {
        let key = Key::Trace(base_id);
        let number = self.numbers.get(key.to_string().as_str()).copied();
        let (len, taken) = match number.and_then(|number| self.entries.get(&number)) {
            Some(Entry { content: Content::Trace(known), bytes, .. }) => (known.len(), *bytes),
            _ => (0, ENTRY_LEN + base_id.len()),
        };
        let bytes = notification.len() + VALUE_LEN;
        if len >= self.limits.trace_notifications || taken + bytes > self.limits.trace_bytes {
            self.losses.long_traces += 1;
            return Ok(len);
        }
        self.fits(taken + bytes)?;
        let bytes = if number.is_some() { bytes } else { taken + bytes };
        self.make_room(number, bytes);
        match number.and_then(|number| self.entries.get_mut(&number)) {
            Some(Entry { content: Content::Trace(known), bytes: taken, .. }) => {
                known.push(notification.into());
                *taken += bytes;
                self.bytes += bytes;
            }
            _ => self.add(None, key, Content::Trace(vec![notification.into()]), bytes),
        }
        Ok(len + 1)
    }

    fn set(&mut self, key: TextKey<'_>, text: &[u8]) -> Result<(), StoreError> {
        let key = Key::Text(key);
        let whole = key.to_string();
        let bytes = text.len() + whole.len() + VALUE_LEN + ENTRY_LEN;
        self.fits(bytes)?;
        let number = self.numbers.get(whole.as_str()).copied();
        drop(number.and_then(|number| self.remove(number)));
        self.make_room(None, bytes);
        self.add(number, key, Content::Text(text.into()), bytes);
        Ok(())
    }

    fn get(&self, key: TextKey<'_>) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(match self.entry(Key::Text(key)).map(|entry| &entry.content) {
            Some(Content::Text(text)) => Some(Arc::clone(text)),
            _ => None,
        })
    }

    fn len(&self, base_id: &str) -> Result<usize, StoreError> {
        Ok(self.trace(base_id).len())
    }

    fn range(&self, base_id: &str, places: Range<usize>) -> Result<Vec<Arc<[u8]>>, StoreError> {
        let newest_first = self.trace(base_id).iter().rev();
        Ok(newest_first.skip(places.start).take(places.len()).cloned().collect())
    }

    fn keys(&self, prefix: &str, cursor: u64, most: usize) -> Result<Page, StoreError> {
        let Some(from) = cursor.checked_add(1) else { return Ok(Page::default()) };
        let mut page = Page { keys: Vec::new(), cursor };
        let mut rest = self.entries.range(from..);
        for (number, entry) in rest.by_ref().take(most.max(1)) {
            page.cursor = *number;
            if entry.key.starts_with(prefix) {
                page.keys.push(entry.key.to_string());
            }
        }
        if rest.next().is_none() {
            page.cursor = 0;
        }
        Ok(page)
    }
}
