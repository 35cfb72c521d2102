//! Between the thread that reads a session and the connection of the page that shows it.
//!
//! Bounded in events and bytes: what finds no room pushes out the oldest, which is counted. A page that takes nothing for
//! [`PATIENCE`] while something waits for it is left.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::{MAX_FIELDS_BYTES, MAX_WAITING_BYTES, MAX_WAITING_EVENTS, TailState, json};

/// How long a page may take nothing while something waits for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Events that are sent in one piece. With [`PACE`], at most 12,500 a second: more than a person reads, and what a browser shows
/// without being kept busy by it.
const PIECE_EVENTS: usize = 250;
/// Notes that wait for a page; further ones are dropped: they say what is so "so far".
const MAX_NOTES: usize = 16;
/// Between two pieces; what comes one by one meanwhile is sent together.
const PACE: Duration = Duration::from_millis(20);

/// Where a source puts what a page is to show. The tail ends when it is dropped.
#[derive(Debug)]
pub struct TailSender(Arc<Shared>);

/// An event on its way to a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailEvent<'a> {
    /// Its time in nanoseconds since the epoch.
    pub at_ns: i64,
    /// The file of its stream, such as `channel_0`.
    pub stream: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The fields of its payload, as text.
    pub payload: &'a str,
    /// The fields of its contexts, as text.
    pub context: &'a str,
}

/// The page's end.
#[derive(Debug)]
pub(crate) struct TailReader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug)]
struct Queue {
    /// Each as JSON.
    events: VecDeque<String>,
    bytes: usize,
    /// Events that were pushed out since the last piece was taken.
    left_out: u64,
    notes: VecDeque<String>,
    state: Option<String>,
    /// Whether the last piece held events: a state does not wait for all that follow.
    had_events: bool,
    ended: Option<String>,
    has_reader: bool,
    /// Since when something waits; `None` when nothing does.
    waiting_since: Option<Instant>,
    /// One of the server's places, and of the connection's replies that go on: while the sender is there.
    place: Option<(OwnedSemaphorePermit, Going)>,
}

/// Counts replies that go on by themselves, for the connection that carries them.
#[derive(Debug)]
pub(crate) struct Going(Arc<AtomicUsize>);

impl Going {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is sent in one piece: the name of a server-sent event, and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: &'static str,
    pub(crate) data: String,
}

/// Both ends of a tail.
pub(crate) fn tail(place: OwnedSemaphorePermit, going: Going) -> (TailSender, TailReader) {
    let queue = Queue {
        events: VecDeque::new(),
        bytes: 0,
        left_out: 0,
        notes: VecDeque::new(),
        state: None,
        had_events: false,
        ended: None,
        has_reader: true,
        waiting_since: None,
        place: Some((place, going)),
    };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Notify::new() });
    (TailSender(Arc::clone(&shared)), TailReader(shared))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, put: impl FnOnce(&mut Queue)) {
        let mut queue = self.lock();
        put(&mut queue);
        queue.waiting_since.get_or_insert_with(Instant::now);
        drop(queue);
        self.changed.notify_one();
    }
}

impl TailSender {
    /// An event. Its texts may hold any characters.
    pub fn event(&self, event: &TailEvent<'_>) {
        let event = event.json();
        self.0.put(|queue| queue.push(event));
    }

    /// How it stands; replaces what was told before and not taken yet.
    pub fn state(&self, state: &TailState) {
        let state = json(state);
        self.0.put(|queue| queue.state = Some(state));
    }

    /// One line that the page shows beside the events.
    pub fn note(&self, line: &str) {
        self.0.put(|queue| {
            if queue.notes.len() < MAX_NOTES {
                queue.notes.push_back(line.to_owned());
            }
        });
    }

    /// Nothing more comes; one line for a reader says why.
    pub fn end(&self, why: &str) {
        self.0.put(|queue| queue.ended = Some(why.to_owned()));
    }

    /// How many events wait for the page.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.lock().events.len()
    }

    /// Whether nobody waits for anything any more: the page was closed, or does not read.
    #[must_use]
    pub fn is_left(&self) -> bool {
        let queue = self.0.lock();
        let is_stuck = queue.waiting_since.is_some_and(|since| since.elapsed() > PATIENCE);
        !queue.has_reader || is_stuck
    }
}

impl Drop for TailSender {
    fn drop(&mut self) {
        self.0.put(|queue| queue.place = None);
    }
}

impl Drop for TailReader {
    fn drop(&mut self) {
        self.0.lock().has_reader = false;
    }
}

impl TailReader {
    /// The next message; `None` at the end.
    pub(crate) async fn next_paced(&mut self) -> Option<Message> {
        tokio::time::sleep(PACE).await;
        self.next().await
    }

    async fn next(&mut self) -> Option<Message> {
        loop {
            let changed = self.0.changed.notified();
            {
                let mut queue = self.0.lock();
                if let Some(message) = queue.take() {
                    return Some(message);
                }
                // The sender has gone.
                queue.place.as_ref()?;
            }
            changed.await;
        }
    }
}

impl Queue {
    fn push(&mut self, event: String) {
        self.bytes += event.len();
        self.events.push_back(event);
        while self.events.len() > MAX_WAITING_EVENTS || self.bytes > MAX_WAITING_BYTES {
            let Some(oldest) = self.events.pop_front() else { return };
            self.bytes -= oldest.len();
            self.left_out += 1;
        }
    }

    fn take(&mut self) -> Option<Message> {
        let message = self.take_message();
        let is_empty = self.events.is_empty()
            && self.notes.is_empty()
            && self.state.is_none()
            && self.ended.is_none();
        self.waiting_since = (!is_empty).then(Instant::now);
        message
    }

    /// One piece of events comes before the counts that include it.
    fn take_message(&mut self) -> Option<Message> {
        if let Some(note) = self.notes.pop_front() {
            return Some(Message { kind: "note", data: text_json(&note) });
        }
        let is_states_turn = std::mem::take(&mut self.had_events) && self.state.is_some();
        if !self.events.is_empty() && !is_states_turn {
            self.had_events = true;
            return Some(self.take_events());
        }
        if let Some(data) = self.state.take() {
            return Some(Message { kind: "state", data });
        }
        self.ended.take().map(|why| Message { kind: "end", data: text_json(&why) })
    }

    fn take_events(&mut self) -> Message {
        let mut data =
            format!("{{\"left_out\":{},\"events\":[", std::mem::take(&mut self.left_out));
        for at in 0..PIECE_EVENTS {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= event.len();
            data.push_str(if at > 0 { "," } else { "" });
            data.push_str(&event);
        }
        data.push_str("]}");
        Message { kind: "events", data }
    }
}

impl TailEvent<'_> {
    /// `t` is a string: not every reader of JSON keeps 19 digits.
    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Event<'a> {
            t: String,
            s: &'a str,
            n: &'a str,
            f: Cow<'a, str>,
            c: Cow<'a, str>,
        }
        json(&Event {
            t: self.at_ns.to_string(),
            s: self.stream,
            n: self.name,
            f: cut(self.payload),
            c: cut(self.context),
        })
    }
}

fn cut(fields: &str) -> Cow<'_, str> {
    let end = fields.floor_char_boundary(MAX_FIELDS_BYTES);
    match fields.get(..end) {
        Some(kept) if end < fields.len() => {
            format!("{kept}… ({} bytes in all)", fields.len()).into()
        }
        _ => fields.into(),
    }
}

fn text_json(text: &str) -> String {
    json(&serde_json::json!({ "text": text }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> (TailSender, TailReader) {
        let place = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
        tail(place, Going::new(&Arc::default()))
    }

    fn event(at_ns: i64, payload: &str) -> TailEvent<'_> {
        TailEvent { at_ns, stream: "ch_0", name: "e", payload, context: "cpu_id = 0" }
    }

    fn next(reader: &mut TailReader) -> Option<Message> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(reader.next())
    }

    fn data(reader: &mut TailReader, kind: &str) -> serde_json::Value {
        let message = next(reader).unwrap();
        assert_eq!(message.kind, kind);
        assert!(!message.data.contains(['\n', '\r']), "{}", message.data);
        serde_json::from_str(&message.data).unwrap()
    }

    #[test]
    fn what_finds_no_room_pushes_out_the_oldest_and_is_counted() {
        let (sender, mut reader) = both();
        for n in 0..MAX_WAITING_EVENTS + 7 {
            sender.event(&event(i64::try_from(n).unwrap(), ""));
        }
        let first = data(&mut reader, "events");
        assert_eq!(first["left_out"], 7);
        assert_eq!(first["events"][0]["t"], "7");
        let mut got = first["events"].as_array().unwrap().len();
        while got < MAX_WAITING_EVENTS {
            let more = data(&mut reader, "events");
            assert_eq!(more["left_out"], 0);
            got += more["events"].as_array().unwrap().len();
        }
        assert_eq!(got, MAX_WAITING_EVENTS);
    }

    #[test]
    fn memory_is_bounded_by_bytes_whatever_the_events_hold() {
        let (sender, mut reader) = both();
        let long = "\u{1}<script>\"'\u{202e}é".repeat(MAX_FIELDS_BYTES);
        for _ in 0..500 {
            sender.event(&event(i64::MIN, &long));
            let queue = sender.0.lock();
            assert!(queue.bytes <= MAX_WAITING_BYTES);
            assert_eq!(queue.bytes, queue.events.iter().map(String::len).sum::<usize>());
        }
        let events = data(&mut reader, "events");
        let shown = events["events"].as_array().unwrap();
        let fields = shown[0]["f"].as_str().unwrap();
        assert!(fields.ends_with(&format!("… ({} bytes in all)", long.len())));
        assert!(long.starts_with(fields.split('…').next().unwrap()));
        let left = events["left_out"].as_u64().unwrap() + shown.len() as u64;
        assert_eq!(left + sender.0.lock().events.len() as u64, 500);
    }

    #[test]
    fn events_come_before_the_counts_that_include_them_and_the_end_comes_last() {
        let (sender, mut reader) = both();
        sender.state(&TailState { events: 1, ..TailState::default() });
        sender.event(&event(1, "a = 1"));
        sender.state(&TailState { events: 2, ..TailState::default() });
        sender.note("so far");
        sender.end("it ended");
        drop(sender);
        assert_eq!(data(&mut reader, "note")["text"], "so far");
        assert_eq!(data(&mut reader, "events")["events"][0]["f"], "a = 1");
        assert_eq!(data(&mut reader, "state")["events"], 2);
        assert_eq!(data(&mut reader, "end")["text"], "it ended");
        assert_eq!(next(&mut reader), None);
    }

    #[test]
    fn counts_come_however_many_events_do() {
        let (sender, mut reader) = both();
        let more = || (0..300).for_each(|n| sender.event(&event(n, "")));
        more();
        for round in 0..10 {
            sender.state(&TailState { events: round, ..TailState::default() });
            data(&mut reader, "events");
            more();
            assert_eq!(data(&mut reader, "state")["events"], round);
        }
    }

    #[test]
    fn a_sender_knows_when_the_page_has_left() {
        let (sender, reader) = both();
        assert!(!sender.is_left());
        drop(reader);
        assert!(sender.is_left());
        sender.event(&event(1, ""));
        assert!(sender.is_left());
    }

    #[test]
    fn a_page_that_takes_nothing_for_long_is_left_and_one_that_nothing_waits_for_is_not() {
        let (sender, mut reader) = both();
        let long_ago = Instant::now().checked_sub(PATIENCE + Duration::from_secs(1));
        sender.event(&event(1, ""));
        sender.0.lock().waiting_since = long_ago;
        // What is added meanwhile changes nothing.
        sender.event(&event(2, ""));
        assert!(sender.is_left());
        data(&mut reader, "events");
        assert_eq!(sender.0.lock().waiting_since, None);
        assert!(!sender.is_left());
    }
}
