//! The folders of a spool.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::state::{MAX_QUEUES, queues};
use crate::error::{Error, Result, Step};
use crate::ledger::{Kind, Loss};
use crate::name::PacketName;

/// How the name of a file ends that is being written.
const PART: &str = "part";

/// The longest file of losses that is read, in bytes.
const MAX_LOSSES: u64 = 64 << 10;

/// Held for as long as the spool is open.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held, not read")] File);

/// Where packets wait.
#[derive(Debug)]
pub(super) struct Folders {
    root: PathBuf,
    incoming: PathBuf,
    /// Those of the targets first.
    queues: Vec<PathBuf>,
}

impl Folders {
    /// Opens or makes a spool with queues of these names; what an earlier agent left half done is finished or removed.
    pub(super) fn open(root: &Path, names: &[String]) -> Result<(Self, Lock)> {
        let make = |path: &Path| {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.on("make the folder", path)
        };
        make(root)?;
        let path = root.join("lock");
        let lock = File::create(&path).on("open", &path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Taken { path: root.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(error).on("lock", &path),
        }
        let (incoming, parent) = (root.join("incoming"), root.join("queues"));
        make(&incoming)?;
        let mut queues: Vec<PathBuf> = names.iter().map(|name| parent.join(name)).collect();
        queues.iter().try_for_each(|path| make(path))?;
        for entry in fs::read_dir(&parent).on("list", &parent)? {
            let entry = entry.on("list", &parent)?;
            let path = entry.path();
            let is_folder = entry.file_type().on("list", &parent)?.is_dir();
            if !is_folder || queues.contains(&path) {
                continue;
            }
            if queues.len() == MAX_QUEUES {
                tracing::warn!(folder = %path.display(), "too many queues: this one is left alone");
                continue;
            }
            queues.push(path);
        }
        let folders = Self { root: root.to_owned(), incoming, queues };
        folders.finish_incoming((1 << names.len()) - 1)?;
        Ok((folders, Lock(lock)))
    }

    /// Folders of queues.
    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Puts what is whole into the queues, and removes what is not.
    fn finish_incoming(&self, mask: u64) -> Result<()> {
        let folder = &self.incoming;
        for entry in fs::read_dir(folder).on("list", folder)? {
            let path = entry.on("list", folder)?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if let Ok(name) = name.parse::<PacketName>() {
                self.link(&path, &name, mask).on("link", &path)?;
            } else if path.extension().is_none_or(|it| it != PART) {
                // Nobody knows whose it is.
                continue;
            }
            fs::remove_file(&path).on("remove", &path)?;
        }
        Ok(())
    }

    /// The packets in a queue, and the bytes of each.
    pub(super) fn list(&self, queue: usize) -> Result<Vec<(PacketName, u64)>> {
        let Some(folder) = self.queues.get(queue) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).on("list", folder)? {
            let entry = entry.on("list", folder)?;
            if let Some(name) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                let length = entry.metadata().on("look at", &entry.path())?.len();
                found.push((name, length));
            }
        }
        Ok(found)
    }

    /// Where a packet of a queue is.
    pub(super) fn path(&self, queue: usize, name: &PacketName) -> PathBuf {
        self.queues.get(queue).unwrap_or(&self.incoming).join(name.to_string())
    }

    /// Puts a packet into queues. It is durable in all of them, or in none.
    pub(super) fn write(&self, name: &PacketName, bytes: &[u8], mask: u64) -> io::Result<()> {
        let path = self.incoming.join(name.to_string());
        write_whole(&path, bytes)?;
        let linked = self.link(&path, name, mask);
        if linked.is_err() {
            queues(mask).for_each(|queue| self.remove(queue, name));
        }
        let removed = fs::remove_file(&path);
        linked.and(removed)
    }

    fn link(&self, path: &Path, name: &PacketName, mask: u64) -> io::Result<()> {
        for folder in queues(mask).filter_map(|queue| self.queues.get(queue)) {
            match fs::hard_link(path, folder.join(name.to_string())) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => sync_folder(folder)?,
            }
        }
        Ok(())
    }

    /// Takes a packet out of a queue.
    pub(super) fn remove(&self, queue: usize, name: &PacketName) {
        let path = self.path(queue, name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => tracing::warn!(
                path = %path.display(),
                error = &error as &dyn std::error::Error,
                "cannot remove a packet: the next start sends it again"
            ),
            _ => {}
        }
    }

    /// Losses that were still to be told.
    pub(super) fn read_losses(&self) -> Result<BTreeMap<Loss, u64>> {
        let path = self.root.join("losses");
        let mut text = String::new();
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => {
                let file = opened.on("open", &path)?;
                file.take(MAX_LOSSES).read_to_string(&mut text).on("read", &path)?;
            }
        }
        let read = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (count, word, class) = (words.next()?, words.next()?, words.next()?);
            let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == word)?;
            Some((Loss { kind, class: class.to_owned() }, count.parse().ok()?))
        };
        Ok(text.lines().filter_map(read).collect())
    }

    /// Writes down losses that are still to be told.
    pub(super) fn write_losses(&self, losses: &BTreeMap<Loss, u64>) -> io::Result<()> {
        let lines = losses
            .iter()
            .map(|(Loss { kind, class }, count)| format!("{count} {} {class}\n", kind.as_str()));
        write_whole(&self.root.join("losses"), lines.collect::<String>().as_bytes())
    }
}

/// Writes a file that is there whole, and durable, or not at all. One that is there is replaced.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".");
    part.push(PART);
    let part = PathBuf::from(part);
    let write = || {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    let written = write();
    if written.is_err() {
        // A full disk has room again without it; where even this fails, the next start removes it.
        drop(fs::remove_file(&part));
    }
    written?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
