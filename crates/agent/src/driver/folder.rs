//! A folder of files that can be read, and sent, alone.

use std::collections::{BTreeMap, btree_map};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::Attempt;
use crate::name::PacketName;
use crate::spool::files::write_whole;

/// What stays in a folder: of what is more, the oldest packets are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Bytes of all packets in it.
    pub bytes: u64,
    /// From a packet's begin to that of the one that came last; `None`: any.
    pub age: Option<Duration>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { bytes: 10 << 30, age: None }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Folder {
    path: PathBuf,
    keep: Keep,
    /// Bytes of each packet in it, once it was listed; bounded by what the folder may hold.
    held: Arc<Mutex<Option<BTreeMap<PacketName, u64>>>>,
}

impl Folder {
    pub(super) fn new(path: &Path, keep: Keep) -> Self {
        Self { path: path.to_owned(), keep, held: Arc::default() }
    }

    pub(super) async fn send(&self, name: PacketName, packet: Bytes) -> Attempt {
        let folder = self.clone();
        let writing = tokio::task::spawn_blocking(move || folder.write(name, &packet));
        let why = match writing.await {
            Ok(Ok(())) => return Attempt::Delivered { rejected_profiles: 0 },
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        Attempt::Again { after: None, why: format!("{}: {why}", self.path.display()) }
    }

    fn write(&self, name: PacketName, packet: &[u8]) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_none() {
            fs::create_dir_all(&self.path)?;
            *held = Some(list(&self.path)?);
        }
        let Some(held) = held.as_mut() else { return Ok(()) };
        // The same name is the same content.
        if let btree_map::Entry::Vacant(place) = held.entry(name) {
            write_whole(&self.path.join(name.to_string()), packet)?;
            place.insert(packet.len() as u64);
        }
        self.prune(held, name.begin_unix_ns)
    }

    fn prune(&self, held: &mut BTreeMap<PacketName, u64>, last_unix_ns: u64) -> io::Result<()> {
        let age_ns =
            self.keep.age.map_or(u64::MAX, |age| u64::try_from(age.as_nanos()).unwrap_or(u64::MAX));
        let oldest_ns = last_unix_ns.saturating_sub(age_ns);
        let mut bytes: u64 = held.values().sum();
        while let Some(first) = held.first_entry() {
            if bytes <= self.keep.bytes && first.key().begin_unix_ns >= oldest_ns {
                break;
            }
            match fs::remove_file(self.path.join(first.key().to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => bytes -= first.remove(),
            }
        }
        Ok(())
    }
}

fn list(folder: &Path) -> io::Result<BTreeMap<PacketName, u64>> {
    let mut held = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(name) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            held.insert(name, entry.metadata()?.len());
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use profile::PacketId;

    use super::*;
    use crate::Kind;

    fn name(second: u64) -> PacketName {
        let begin_unix_ns = second * 1_000_000_000;
        PacketName { begin_unix_ns, kind: Kind::Cpu, id: PacketId([7; 12]), samples: 1 }
    }

    fn files(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_folder_keeps_the_youngest_and_touches_nothing_of_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("notes"), [0; 1_000]).unwrap();
        let by_size = Folder::new(folder.path(), Keep { bytes: 250, age: None });
        for second in [1, 2, 2, 3] {
            by_size.write(name(second), &[0; 100]).unwrap();
        }
        let expected = |names: &[PacketName]| {
            let packets = names.iter().map(ToString::to_string);
            packets.chain(["notes".to_owned()]).collect::<Vec<_>>()
        };
        assert_eq!(files(folder.path()), expected(&[name(2), name(3)]));
        // Another that begins there knows what is there.
        let age = Some(Duration::from_secs(10));
        let by_age = Folder::new(folder.path(), Keep { bytes: 1_000, age });
        by_age.write(name(12), &[0; 100]).unwrap();
        assert_eq!(files(folder.path()), expected(&[name(2), name(3), name(12)]));
        by_age.write(name(13), &[0; 100]).unwrap();
        assert_eq!(files(folder.path()), expected(&[name(3), name(12), name(13)]));
    }
}
