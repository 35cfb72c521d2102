//! The unwind tables of files, where the program finds them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use cpython::Interpreter;
use libbpf_rs::MapCore;
use model::Pid;
use rustix::event::{EventfdFlags, eventfd};

use super::code::{Code, ForWhom, OpenError, Stamp, WithoutRows};
use super::maps;
use super::processes::{CodeFile, Process};
use super::rows;
use crate::error::{Error, Result};

/// Tables at the same time, as the program has room for; the first number stands for none.
const MAX_TABLES: u32 = 16_383;

/// Files that no process has mapped any more and whose tables are kept for the next one that does, those that were used last; one at least.
const MAX_UNUSED: usize = 256;
/// Bytes of memory of these together.
const MAX_UNUSED_BYTES: usize = 8 << 20;

/// Files that were read and wait for being taken, and those that are given to the program at once: the map of each is an open file until
/// the program has it.
const MAX_READ: usize = 32;

/// How often files could not be used, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesLeftOut {
    /// They could not be read, or were other ones than what is mapped.
    pub unreadable: u64,
    /// They are no executables of this machine, or without call frame information.
    pub without_rows: u64,
    /// There were too many, or no memory or file descriptor for them.
    pub no_room: u64,
    /// They are CPython of a version that is not supported, or do not tell where its parts are.
    pub python_unsupported: u64,
}

/// Files that processes have mapped, and their tables. Files are read by a thread of its own, so that nothing waits for them.
#[derive(Debug)]
pub(super) struct Tables {
    /// Files that were opened, by their state: one that several names lead to is read once.
    opened: HashMap<Stamp, Weak<Code>>,
    /// Those whose tables the program has, by number.
    numbered: BTreeMap<u32, Arc<Code>>,
    free: Vec<u32>,
    /// Numbers of those that no process has mapped, in the order in which that came to be known. At most [`MAX_UNUSED`].
    unused: VecDeque<u32>,
    /// To the thread that reads, and back when it has.
    unread: Sender<Arc<Code>>,
    read: Receiver<Read>,
    /// Counts what was read that should not wait for a tick.
    news: Arc<OwnedFd>,
    /// Bounded by the files that processes have mapped.
    being_read: usize,
    pub(super) left_out: FilesLeftOut,
    for_whom: ForWhom,
}

impl Tables {
    /// Starts the thread that reads; it ends when this is dropped and it has read the file that it is at.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn new(for_whom: ForWhom) -> io::Result<Self> {
        let (unread, to_read) = channel::<Arc<Code>>();
        let (done, read) = sync_channel(MAX_READ);
        let news = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let to_tell = Arc::clone(&news);
        thread::spawn(move || read_all(&to_read, &done, &to_tell));
        Ok(Self {
            opened: HashMap::new(),
            numbered: BTreeMap::new(),
            free: Vec::new(),
            unused: VecDeque::new(),
            unread,
            read,
            news,
            being_read: 0,
            left_out: FilesLeftOut::default(),
            for_whom,
        })
    }

    /// Readable when something was read that should not wait for a tick.
    pub(super) fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Opens a process's files, and has them read. Whether it is known of each what the program has of it.
    pub(super) fn prepare(&mut self, pid: Pid, process: &Process) -> bool {
        let mut is_ready = true;
        for (begin, mapping) in &process.code {
            if mapping.file.is_anonymous() {
                continue;
            }
            let Some(code) = self.meet(&mapping.file, pid, (*begin, mapping.end)) else { continue };
            if code.is_settled() {
                continue;
            }
            is_ready = false;
            if code.ask() && self.unread.send(code).is_ok() {
                self.being_read += 1;
            }
        }
        is_ready
    }

    /// Gives tables that were read to the program, if there is one; whether there were any. Waits for the next one, if something is being read, but no
    /// longer than this.
    ///
    /// # Errors
    /// [`Error::Bpf`] when the kernel takes no more tables.
    pub(super) fn take_read(
        &mut self,
        outer: Option<&impl MapCore>,
        patience: Duration,
    ) -> Result<bool> {
        let _none_since_the_last_time = rustix::io::read(&*self.news, &mut [0; 8]);
        let mut patience = patience;
        let mut any = false;
        let mut numbers = Vec::new();
        while self.being_read > 0 {
            match self.read.recv_timeout(patience) {
                Ok(Read::Interpreter) => {}
                Ok(Read::Whole(code)) => {
                    self.being_read -= 1;
                    numbers.extend(self.number(code, outer));
                    if numbers.len() >= MAX_READ {
                        self.settle(&std::mem::take(&mut numbers), outer)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                // Nothing is read any more.
                Err(RecvTimeoutError::Disconnected) => self.being_read = 0,
            }
            (any, patience) = (true, Duration::ZERO);
        }
        self.settle(&numbers, outer)?;
        Ok(any)
    }

    /// How many files are being read.
    pub(super) const fn being_read(&self) -> usize {
        self.being_read
    }

    /// The number that a file's table gets, if it has one that the program is to read. A file without is settled.
    fn number(&mut self, code: Arc<Code>, outer: Option<&impl MapCore>) -> Option<u32> {
        self.left_out.no_room += code.debug_files().left_out;
        self.left_out.python_unsupported += u64::from(matches!(code.python(), Some(Err(_))));
        let has_map = match code.rows() {
            Ok(rows) => rows.has_map(),
            Err(why) => {
                *match why {
                    WithoutRows::Unreadable => &mut self.left_out.unreadable,
                    WithoutRows::NoneFound => &mut self.left_out.without_rows,
                    WithoutRows::NoMemory => &mut self.left_out.no_room,
                } += 1;
                false
            }
        };
        if !has_map {
            code.settle(0);
            return None;
        }
        if self.free.is_empty() && self.numbered.len() >= MAX_TABLES as usize {
            self.forget_all_unused(outer);
        }
        let next = u32::try_from(self.numbered.len()).unwrap_or(u32::MAX) + 1;
        let number = self.free.pop().or((next <= MAX_TABLES).then_some(next));
        if let Some(number) = number {
            self.numbered.insert(number, code);
        } else {
            self.left_out.no_room += 1;
            code.settle(0);
        }
        number
    }

    /// Gives the program the tables of these numbers.
    fn settle(&self, numbers: &[u32], outer: Option<&impl MapCore>) -> Result<()> {
        let codes = || numbers.iter().filter_map(|it| Some((*it, self.numbered.get(it)?)));
        if let Some(outer) = outer {
            // Open until the program has them.
            let tables: Vec<_> = codes()
                .filter_map(|(number, code)| {
                    Some((number.to_ne_bytes(), code.rows().ok()?.take_map()?))
                })
                .collect();
            let tables: Vec<_> = tables.iter().map(|(number, map)| (*number, map)).collect();
            maps::put(outer, &tables).map_err(Error::bpf("give the program unwind tables"))?;
        }
        codes().for_each(|(number, code)| code.settle(number));
        Ok(())
    }

    /// Forgets files that no process has mapped, but for some.
    pub(super) fn forget_unused(&mut self, outer: Option<&impl MapCore>) {
        self.forget_beyond(MAX_UNUSED, MAX_UNUSED_BYTES, outer);
    }

    /// Forgets all files that no process has mapped.
    pub(super) fn forget_all_unused(&mut self, outer: Option<&impl MapCore>) {
        self.forget_beyond(0, 0, outer);
    }

    fn forget_beyond(&mut self, files: usize, bytes: usize, outer: Option<&impl MapCore>) {
        let Self { numbered, unused, .. } = self;
        let is_unused = |code: &Arc<Code>| Arc::strong_count(code) == 1;
        unused.retain(|number| numbered.get(number).is_some_and(is_unused));
        for (number, code) in &*numbered {
            if is_unused(code) && !unused.contains(number) {
                unused.push_back(*number);
            }
        }
        let held = |number: &u32| numbered.get(number).map_or(0, |code| code.held_bytes());
        let mut sum: usize = unused.iter().map(held).sum();
        let mut gone = Vec::new();
        while unused.len() > files || (sum > bytes && unused.len() > 1) {
            let Some(number) = unused.pop_front() else { break };
            sum -= held(&number);
            gone.push(number);
        }
        if outer.is_none_or(|outer| self.empty(outer, &gone).is_ok()) {
            for number in &gone {
                self.numbered.remove(number);
            }
            self.free.extend(gone);
        }
        self.opened.retain(|_, code| code.strong_count() > 0);
    }

    /// Takes tables from the program: the kernel empties an array of maps one by one only, but fills it at once.
    fn empty(&self, outer: &impl MapCore, numbers: &[u32]) -> libbpf_rs::Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let none = rows::no_rows()?;
        let entries: Vec<_> = numbers.iter().map(|number| (number.to_ne_bytes(), &none)).collect();
        maps::put(outer, &entries)
    }

    /// The code of a file, which a process has mapped at these addresses; opened at the first time.
    fn meet(&mut self, file: &CodeFile, pid: Pid, range: (u64, u64)) -> Option<Arc<Code>> {
        if let Some(known) = file.code() {
            return Some(Arc::clone(known));
        }
        // Another process may have it where it can be opened.
        let code = match Code::open(file, pid, range, self.for_whom) {
            Ok(code) => code,
            Err(OpenError::Unreadable) => {
                self.left_out.unreadable += 1;
                return None;
            }
            Err(OpenError::NoRoom) => {
                self.left_out.no_room += 1;
                return None;
            }
        };
        let same = code.stamp().and_then(|stamp| self.opened.get(&stamp)?.upgrade());
        let code = same.filter(|same| same.is_of(&file.contents)).unwrap_or_else(|| {
            let code = Arc::new(code);
            if let Some(stamp) = code.stamp() {
                self.opened.insert(stamp, Arc::downgrade(&code));
            }
            code
        });
        file.set_code(Arc::clone(&code));
        Some(code)
    }
}

/// What the thread that reads has done.
enum Read {
    /// It knows what a file tells of its interpreter, which is of use before the rest is known.
    Interpreter,
    /// It has read all of a file.
    Whole(Arc<Code>),
}

/// Reads files, of those that wait the shortest first: most processes have small ones, and are not to wait for a browser's. Interpreters come
/// before all others: what they run cannot be learnt from a copy of the stack.
fn read_all(to_read: &Receiver<Arc<Code>>, done: &SyncSender<Read>, news: &OwnedFd) {
    let tell = || {
        let _full_when_it_fails = rustix::io::write(news, &1_u64.to_ne_bytes());
    };
    let mut waiting = BTreeMap::new();
    let mut number = 0_u64;
    loop {
        let first = if waiting.is_empty() { to_read.recv().ok() } else { None };
        for code in first.into_iter().chain(to_read.try_iter()) {
            number += 1;
            waiting.insert((!Interpreter::is_file_name(code.name()), code.bytes(), number), code);
        }
        // Whoever asks or listens is gone when sampling is over: what is still to be read is of no use then.
        let Some((_, code)) = waiting.pop_first() else { break };
        if matches!(code.python(), Some(Ok(_))) && done.send(Read::Interpreter).is_ok() {
            tell();
        }
        let (_rows, _variable) = (code.rows(), code.thread_context());
        let _found = code.debug_files();
        if done.send(Read::Whole(code)).is_err() {
            break;
        }
        if waiting.is_empty() {
            tell();
        }
    }
}
