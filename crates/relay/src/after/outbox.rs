//! Who is still to be told of which sealed chunk, kept on the disk.
//!
//! One small file for each chunk and target, `ROOT/.relay/outbox/N`, written after the chunk reached its last place and
//! before its journal entry goes, removed when the target has been told:
//!
//! ```text
//! relay-announcement 1                format and version
//! to webhook http://ci.example/new    the target
//! folder vm/cap-…/archives/…          the chunk
//! ```
//! Where chunks are compressed, there is one `to compress` first, and the others follow when that is done.
//! A relay that is killed in between finds either the journal entry, and writes the file again, or the file. So each target
//! is told at least once, and never of a chunk that is not whole in its last place.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;
use tokio_rustls::rustls::ClientConfig;
use wire::live::RelativePath;

use super::{Announce, Target};
use crate::counters::Counters;
use crate::error::{FileContext, Result};
use crate::root::Root;

const FOLDER: &str = "outbox";
const FIRST_LINE: &str = "relay-announcement 1";
/// What chunks wait for that are to be compressed.
const COMPRESS: &str = "compress";
/// Longest file that is read, in bytes: a path and a URL.
const MAX_LEN: u64 = 64 * 1024;

/// What waits, for each target.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) announce: Announce,
    queues: Vec<Queue>,
    /// What is to be compressed before anybody is told of it.
    compress: Option<Queue>,
    /// What `https` targets are trusted by; there when there are any.
    pub(crate) trust: Option<Arc<ClientConfig>>,
    next: AtomicU64,
}

/// What waits for one target, or to be compressed.
#[derive(Debug)]
pub(crate) struct Queue {
    /// `None` for what is to be compressed.
    pub(crate) target: Option<Target>,
    name: String,
    waiting: Mutex<Waiting>,
    pub(crate) added: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    entries: VecDeque<Entry>,
    /// The one that is being told of, or compressed: it does not wait, and is not dropped for others.
    in_hand: Option<u64>,
}

/// A chunk that a target is to be told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    number: u64,
    /// Relative to the root.
    pub(crate) folder: RelativePath,
    pub(crate) since: Instant,
}

/// Why a target will not be told of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// More chunks wait than may.
    Full,
    /// It has waited too long.
    TooOld,
    /// The chunk was deleted, or the target is not in the configuration any more.
    Gone,
}

impl Outbox {
    /// Reads what an earlier run has left.
    pub(crate) fn open(
        root: &Root,
        announce: Announce,
        compresses: bool,
        counters: &Counters,
    ) -> Result<Self> {
        let queue =
            |target, name| Queue { target, name, waiting: Mutex::default(), added: Notify::new() };
        let mut queues = Vec::new();
        for target in &announce.targets {
            queues.push(queue(Some(target.clone()), target.name()?));
        }
        let compress = compresses.then(|| queue(None, COMPRESS.to_owned()));
        let is_https =
            |target: &Target| matches!(target, Target::Webhook(webhook) if webhook.is_https());
        let trust = match announce.targets.iter().any(is_https) {
            true => Some(door::client_config(announce.ca.as_deref(), None)?),
            false => None,
        };
        let outbox = Self { announce, queues, compress, trust, next: AtomicU64::new(0) };
        let mut numbers: Vec<u64> = root
            .list(&Root::own(FOLDER))?
            .iter()
            .filter_map(|entry| entry.name.parse().ok())
            .collect();
        numbers.sort_unstable();
        outbox.next.store(numbers.last().map_or(0, |last| last + 1), Ordering::Relaxed);
        for number in numbers {
            outbox.load(root, number, counters)?;
        }
        Ok(outbox)
    }

    fn load(&self, root: &Root, number: u64, counters: &Counters) -> Result<()> {
        let path = file(number);
        let mut text = String::new();
        root.read(&path)?.take(MAX_LEN).read_to_string(&mut text).on("read", path.as_path())?;
        let parsed = parse(&text);
        if let Some((COMPRESS, folder)) = &parsed
            && self.compress.is_none()
        {
            self.announce(root, folder, counters)?;
            return root.remove_file(&path);
        }
        let found = parsed
            .and_then(|(to, folder)| Some((self.all().find(|queue| queue.name == to)?, folder)));
        let Some((queue, folder)) = found else {
            tracing::warn!(text, "an announcement for nobody in the configuration is dropped");
            count(counters, Dropped::Gone);
            return root.remove_file(&path);
        };
        // A note that could be neither finished nor taken back.
        if queue.has(&folder) {
            return root.remove_file(&path);
        }
        queue.push(Entry { number, folder, since: Instant::now() });
        self.make_room(root, queue, counters);
        Ok(())
    }

    /// Notes that every target is to be told of the chunk in its last place `folder`, once it is compressed where it
    /// is to be. It is on the disk afterwards.
    pub(crate) fn add(
        &self,
        root: &Root,
        folder: &RelativePath,
        counters: &Counters,
    ) -> Result<()> {
        match &self.compress {
            Some(queue) => self.add_to(std::slice::from_ref(queue), root, folder, counters),
            None => self.announce(root, folder, counters),
        }
    }

    /// The targets are to be told of a chunk that is compressed, or will not be. When it fails, none of them is told, so
    /// that it can be tried again.
    pub(crate) fn announce(
        &self,
        root: &Root,
        folder: &RelativePath,
        counters: &Counters,
    ) -> Result<()> {
        self.add_to(&self.queues, root, folder, counters)
    }

    /// Notes it in all the queues that do not have it, or in none.
    fn add_to(
        &self,
        queues: &[Queue],
        root: &Root,
        folder: &RelativePath,
        counters: &Counters,
    ) -> Result<()> {
        let mut noted = Vec::new();
        for queue in queues.iter().filter(|queue| !queue.has(folder)) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            noted.push((queue, number));
            let text = format!("{FIRST_LINE}\nto {}\nfolder {folder}\n", queue.name);
            let name = number.to_string();
            let written = root.write_whole_synced(&Root::own(FOLDER), &name, text.as_bytes());
            if let Err(error) = written {
                // One that stays is told after the next start too: at least once.
                noted.iter().for_each(|(_, number)| drop(root.remove_file(&file(*number))));
                return Err(error);
            }
        }
        for (queue, number) in noted {
            queue.push(Entry { number, folder: folder.clone(), since: Instant::now() });
            queue.added.notify_one();
            self.make_room(root, queue, counters);
        }
        Ok(())
    }

    /// Drops what waited longest while more wait than may. What is to be compressed is announced as it is; where that fails
    /// it goes on waiting, until one more comes.
    fn make_room(&self, root: &Root, queue: &Queue, counters: &Counters) {
        let most = match queue.target {
            Some(Target::Copy(_)) => self.announce.waiting_copies,
            _ => self.announce.waiting,
        };
        while let Some(entry) = queue.take_excess(most) {
            if queue.target.is_some() {
                tracing::warn!(to = queue.name, chunk = %entry.folder, "too many chunks wait: not announced");
                count(counters, Dropped::Full);
            } else {
                tracing::warn!(chunk = %entry.folder, "too many chunks wait: not compressed");
                if let Err(error) = self.announce(root, &entry.folder, counters) {
                    counters.outbox_failures.add(1);
                    tracing::error!(error = &error as &dyn std::error::Error, "outbox");
                    queue.lock().entries.push_front(entry);
                    return;
                }
                counters.compressions_skipped.add(1);
            }
            if let Err(error) = root.remove_file(&file(entry.number)) {
                counters.outbox_failures.add(1);
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "outbox; the next start finds what was dropped"
                );
            }
        }
    }

    /// One for each target.
    pub(crate) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    pub(crate) const fn to_compress(&self) -> Option<&Queue> {
        self.compress.as_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().chain(&self.compress)
    }

    /// Chunks that are still to be compressed, or that somebody is still to be told of.
    pub(crate) fn folders(&self) -> BTreeSet<RelativePath> {
        let all = self.all().flat_map(|queue| {
            queue.lock().entries.iter().map(|entry| entry.folder.clone()).collect::<Vec<_>>()
        });
        all.collect()
    }
}

impl Queue {
    /// Takes the next to be told of in hand; it stays in the queue until [`Queue::done`] or [`Queue::later`].
    pub(crate) fn next(&self) -> Option<Entry> {
        let mut waiting = self.lock();
        let next = waiting.entries.front().cloned();
        waiting.in_hand = next.as_ref().map(|entry| entry.number);
        next
    }

    /// Puts an entry behind the others, so that a chunk that cannot be told of does not hold them.
    pub(crate) fn later(&self, entry: &Entry) {
        let entry = self.lock().remove(entry.number);
        entry.into_iter().for_each(|entry| self.push(entry));
    }

    /// Forgets an entry: the target has been told.
    pub(crate) fn done(&self, root: &Root, entry: &Entry) -> Result<()> {
        root.remove_file(&file(entry.number))?;
        self.lock().remove(entry.number);
        Ok(())
    }

    /// Says that the target will not be told of a chunk.
    pub(crate) fn drops(&self, entry: &Entry, why: Dropped, counters: &Counters) {
        tracing::warn!(to = self.name, chunk = %entry.folder, ?why, "not announced");
        count(counters, why);
    }

    fn has(&self, folder: &RelativePath) -> bool {
        self.lock().entries.iter().any(|entry| entry.folder == *folder)
    }

    /// Takes the one that waited longest, if more than `most` wait.
    fn take_excess(&self, most: usize) -> Option<Entry> {
        let mut waiting = self.lock();
        let in_hand = waiting.in_hand;
        let waits = |entry: &&Entry| Some(entry.number) != in_hand;
        if waiting.entries.iter().filter(waits).count() <= most.max(1) {
            return None;
        }
        let oldest = waiting.entries.iter().filter(waits).map(|entry| entry.number).min()?;
        waiting.remove(oldest)
    }

    /// Whether chunks are copied, not only told of.
    pub(crate) const fn copies(&self) -> bool {
        matches!(self.target, Some(Target::Copy(_)))
    }

    /// As logs name the target.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn push(&self, entry: Entry) {
        self.lock().entries.push_back(entry);
    }

    /// A panic while it was held has been reported where it happened; the queue is whole before and after each step.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Takes an entry out, wherever it is; nobody has it in hand any longer.
    fn remove(&mut self, number: u64) -> Option<Entry> {
        self.in_hand = self.in_hand.filter(|in_hand| *in_hand != number);
        let at = self.entries.iter().position(|entry| entry.number == number)?;
        self.entries.remove(at)
    }
}

fn count(counters: &Counters, why: Dropped) {
    match why {
        Dropped::Full => counters.announcements_dropped_full.add(1),
        Dropped::TooOld => counters.announcements_dropped_old.add(1),
        Dropped::Gone => counters.announcements_dropped_gone.add(1),
    }
}

fn file(number: u64) -> RelativePath {
    Root::own(&format!("{FOLDER}/{number}"))
}

/// The target's name and the chunk's folder.
fn parse(text: &str) -> Option<(&str, RelativePath)> {
    let mut lines = text.lines();
    let is_ours = lines.next() == Some(FIRST_LINE);
    let to = lines.next()?.strip_prefix("to ")?;
    let folder = RelativePath::new(lines.next()?.strip_prefix("folder ")?).ok()?;
    (is_ours && lines.next().is_none()).then_some((to, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelativePath {
        RelativePath::new(text).unwrap()
    }

    fn announce(programs: &[&str], waiting: usize) -> Announce {
        let targets = programs.iter().map(|program| Target::Program(program.into())).collect();
        Announce { targets, waiting, ..Announce::default() }
    }

    fn folders(queue: &Queue) -> Vec<String> {
        queue.lock().entries.iter().map(|entry| entry.folder.to_string()).collect()
    }

    #[test]
    fn what_waits_is_there_after_a_restart_for_targets_that_are_still_configured() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let counters = Counters::default();
        let outbox = Outbox::open(&root, announce(&["/a", "/b"], 10), false, &counters).unwrap();
        for name in ["h/1", "h/2", "h/2", "h/3"] {
            outbox.add(&root, &path(name), &counters).unwrap();
        }
        let [first, _] = outbox.queues() else { panic!("two targets") };
        let entry = first.next().unwrap();
        first.done(&root, &entry).unwrap();

        let again = Outbox::open(&root, announce(&["/b", "/a"], 10), false, &counters).unwrap();
        let [b, a] = again.queues() else { panic!("two targets") };
        assert_eq!(folders(a), ["h/2", "h/3"]);
        assert_eq!(folders(b), ["h/1", "h/2", "h/3"]);
        assert_eq!(again.folders().len(), 3);
        again.add(&root, &path("h/4"), &counters).unwrap();

        let less = Outbox::open(&root, announce(&["/a"], 10), false, &counters).unwrap();
        assert_eq!(folders(less.queues().first().unwrap()), ["h/2", "h/3", "h/4"]);
        assert_eq!(counters.totals().announcements_dropped_gone, 4);
        let left = std::fs::read_dir(folder.path().join(".relay/outbox")).unwrap().count();
        assert_eq!(left, 3);
    }

    #[test]
    fn when_too_many_wait_the_oldest_are_dropped_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let counters = Counters::default();
        let outbox = Outbox::open(&root, announce(&["/a"], 2), false, &counters).unwrap();
        for name in ["h/1", "h/2"] {
            outbox.add(&root, &path(name), &counters).unwrap();
        }
        let queue = outbox.queues().first().unwrap();
        queue.later(&queue.next().unwrap());
        assert_eq!(folders(queue), ["h/2", "h/1"]);
        outbox.add(&root, &path("h/3"), &counters).unwrap();
        assert_eq!(folders(queue), ["h/2", "h/3"], "the oldest, wherever it is in the queue");
        assert_eq!(counters.totals().announcements_dropped_full, 1);
        assert_eq!(std::fs::read_dir(folder.path().join(".relay/outbox")).unwrap().count(), 2);
    }

    #[test]
    fn what_is_being_told_is_not_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let counters = Counters::default();
        let outbox = Outbox::open(&root, announce(&["/a"], 1), false, &counters).unwrap();
        let queue = outbox.queues().first().unwrap();
        outbox.add(&root, &path("h/1"), &counters).unwrap();
        let entry = queue.next().unwrap();
        for name in ["h/2", "h/3"] {
            outbox.add(&root, &path(name), &counters).unwrap();
        }
        assert_eq!(folders(queue), ["h/1", "h/3"]);
        queue.done(&root, &entry).unwrap();
        assert_eq!(
            (folders(queue), counters.totals().announcements_dropped_full),
            (vec!["h/3".to_owned()], 1)
        );
    }

    #[test]
    fn each_target_is_noted_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let counters = Counters::default();
        let outbox = Outbox::open(&root, announce(&["/a", "/b"], 10), false, &counters).unwrap();
        let all = || outbox.queues().iter().map(folders).collect::<Vec<_>>();
        let files = || std::fs::read_dir(folder.path().join(".relay/outbox")).unwrap().count();
        std::fs::create_dir_all(folder.path().join(".relay/outbox/.1.new")).unwrap();
        outbox.add(&root, &path("h/1"), &counters).unwrap_err();
        assert_eq!((all(), files()), (vec![Vec::<String>::new(); 2], 1));
        outbox.add(&root, &path("h/1"), &counters).unwrap();
        assert_eq!((all(), files()), (vec![vec!["h/1".to_owned()]; 2], 3));
    }

    #[test]
    fn only_whole_files_are_read() {
        let text = "relay-announcement 1\nto program /a\nfolder h/1\n";
        assert_eq!(parse(text), Some(("program /a", path("h/1"))));
        for bad in ["", "relay-announcement 1\nto program /a\n", "x\nto a\nfolder b\n"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(parse("relay-announcement 1\nto a\nfolder ../../etc\n"), None);
        assert_eq!(parse(&format!("{text}more\n")), None);
    }

    #[test]
    fn a_program_is_one_line_of_text() {
        assert!(Target::Program("/a b".into()).name().is_ok());
        assert!(Target::Program("/a\nfolder x".into()).name().is_err());
        assert!(Target::Program("".into()).name().is_err());
    }

    #[test]
    fn what_is_to_be_compressed_is_told_of_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let counters = Counters::default();
        let open =
            |compresses| Outbox::open(&root, announce(&["/a"], 2), compresses, &counters).unwrap();
        let told = |outbox: &Outbox| folders(outbox.queues().first().unwrap());
        let outbox = open(true);
        for name in ["h/1", "h/2"] {
            outbox.add(&root, &path(name), &counters).unwrap();
        }
        assert_eq!(told(&outbox), [""; 0]);
        assert_eq!(outbox.folders().len(), 2, "nobody may delete them");
        let outbox = open(true);
        let waiting = outbox.to_compress().unwrap();
        let entry = waiting.next().unwrap();
        outbox.announce(&root, &entry.folder, &counters).unwrap();
        waiting.done(&root, &entry).unwrap();
        assert_eq!(
            (folders(waiting), told(&outbox)),
            (vec!["h/2".to_owned()], vec!["h/1".to_owned()])
        );
        for name in ["h/3", "h/4"] {
            outbox.add(&root, &path(name), &counters).unwrap();
        }
        assert_eq!(folders(waiting), ["h/3", "h/4"], "no more wait than may");
        assert_eq!(told(&outbox), ["h/1", "h/2"]);
        assert_eq!(counters.totals().compressions_skipped, 1);
        // Told not to compress any more.
        assert_eq!(told(&open(false)), ["h/3", "h/4"]);
        assert_eq!(counters.totals().announcements_dropped_full, 2);
    }
}
