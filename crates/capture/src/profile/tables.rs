//! The unwind tables of files, where the program finds them.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags};
use model::Pid;

use super::code::{Code, ForWhom, Stamp, WithoutRows};
use super::processes::{CodeFile, Process};
use crate::error::{Error, Result};

/// Tables at the same time, as the program has room for; the first number stands for none.
const MAX_TABLES: u32 = 16_383;

/// How often files could not be used, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesLeftOut {
    /// They could not be read, or were other ones than what is mapped.
    pub unreadable: u64,
    /// They are no executables of this machine, or without call frame information.
    pub without_rows: u64,
    /// There were too many, or no memory for them.
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
    /// To the thread that reads, and back when it has.
    unread: Sender<Arc<Code>>,
    read: Receiver<Arc<Code>>,
    /// Bounded by the files that processes have mapped.
    being_read: usize,
    pub(super) left_out: FilesLeftOut,
    for_whom: ForWhom,
}

impl Tables {
    /// Starts the thread that reads; it ends when this is dropped and it has read the file that it is at.
    pub(super) fn new(for_whom: ForWhom) -> Self {
        let (unread, to_read) = channel::<Arc<Code>>();
        let (done, read) = channel();
        thread::spawn(move || read_all(&to_read, &done));
        Self {
            opened: HashMap::new(),
            numbered: BTreeMap::new(),
            free: Vec::new(),
            unread,
            read,
            being_read: 0,
            left_out: FilesLeftOut::default(),
            for_whom,
        }
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
        let mut any = false;
        let mut patience = patience;
        while self.being_read > 0 {
            match self.read.recv_timeout(patience) {
                Ok(code) => {
                    self.being_read -= 1;
                    self.settle(code, outer)?;
                }
                Err(RecvTimeoutError::Timeout) => break,
                // Nothing is read any more.
                Err(RecvTimeoutError::Disconnected) => self.being_read = 0,
            }
            (any, patience) = (true, Duration::ZERO);
        }
        Ok(any)
    }

    /// How many files are being read.
    pub(super) const fn being_read(&self) -> usize {
        self.being_read
    }

    fn settle(&mut self, code: Arc<Code>, outer: Option<&impl MapCore>) -> Result<()> {
        self.left_out.python_unsupported += u64::from(matches!(code.python(), Some(Err(_))));
        let rows = match code.rows() {
            Ok(rows) => rows,
            Err(why) => {
                *match why {
                    WithoutRows::Unreadable => &mut self.left_out.unreadable,
                    WithoutRows::NoneFound => &mut self.left_out.without_rows,
                    WithoutRows::NoMemory => &mut self.left_out.no_room,
                } += 1;
                code.settle(0);
                return Ok(());
            }
        };
        let Some((outer, map)) = outer.zip(rows.map()) else {
            code.settle(0);
            return Ok(());
        };
        let next = u32::try_from(self.numbered.len()).unwrap_or(u32::MAX) + 1;
        let Some(number) = self.free.pop().or((next <= MAX_TABLES).then_some(next)) else {
            self.left_out.no_room += 1;
            code.settle(0);
            return Ok(());
        };
        let descriptor = map.as_fd().as_raw_fd().to_ne_bytes();
        outer
            .update(&number.to_ne_bytes(), &descriptor, MapFlags::ANY)
            .map_err(Error::bpf("give the program an unwind table"))?;
        code.settle(number);
        self.numbered.insert(number, code);
        Ok(())
    }

    /// Forgets files that no process has mapped.
    pub(super) fn forget_unused(&mut self, outer: Option<&impl MapCore>) {
        let free = &mut self.free;
        self.numbered.retain(|number, code| {
            let is_used = Arc::strong_count(code) > 1;
            let delete = || outer.is_none_or(|it| it.delete(&number.to_ne_bytes()).is_ok());
            let gone = !is_used && delete();
            if gone {
                free.push(*number);
            }
            !gone
        });
        self.opened.retain(|_, code| code.strong_count() > 0);
    }

    /// The code of a file, which a process has mapped at these addresses; opened at the first time.
    fn meet(&mut self, file: &CodeFile, pid: Pid, range: (u64, u64)) -> Option<Arc<Code>> {
        if let Some(known) = file.code() {
            return Some(Arc::clone(known));
        }
        // Another process may have it where it can be opened.
        let Ok(code) = Code::open(file, pid, range, self.for_whom) else {
            self.left_out.unreadable += 1;
            return None;
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

/// Reads files, of those that wait the shortest first: most processes have small ones, and are not to wait for a browser's.
fn read_all(to_read: &Receiver<Arc<Code>>, done: &Sender<Arc<Code>>) {
    let mut waiting = BTreeMap::new();
    let mut number = 0_u64;
    loop {
        let first = if waiting.is_empty() { to_read.recv().ok() } else { None };
        for code in first.into_iter().chain(to_read.try_iter()) {
            number += 1;
            waiting.insert((code.bytes(), number), code);
        }
        // Whoever asks or listens is gone when sampling is over: what is still to be read is of no use then.
        let Some((_, code)) = waiting.pop_first() else { break };
        let (_rows, _interpreter, _variable) = (code.rows(), code.python(), code.thread_context());
        let _found = code.debug_files();
        if done.send(code).is_err() {
            break;
        }
    }
}
