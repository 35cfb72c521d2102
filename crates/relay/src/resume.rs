//! Recording sessions that may come back: which folder is whose, noted so that a producer that lost its relay goes on
//! in the same folder with the next chunk.
//!
//! One small file for each recording session that named itself, `ROOT/.relay/N.session`, made with its folder, written anew
//! when a producer that can resume is gone, and removed when the producer closed the session or the folder is gone. Lines of
//! `key value`:
//!
//! ```text
//! relay-session 3                      format and version
//! sessiond 00112233445566778899aabbccddeeff
//! id 3                                 of the session in that sessiond
//! created 1795191738                   by the producer's clock, seconds
//! wanted vm/cap-20261120-162218        the folder it asks for
//! folder vm/cap-20261120-162218-1      the folder it has
//! owner web-1                          who made it, when that was shown
//! last 17 5 kernel/ch_0                number of the last packet of a stream, and how many event records the tracer had discarded
//!                                      until then (`-`: not known); any number of such lines
//! ```
//!
//! Version 1 has no `last` lines, those of version 2 no count.

use std::collections::BTreeMap;
use std::io::Read;

use wire::live::{RelativePath, SessionIdentity, SessiondSessionId, SessiondUuid, UnixSeconds};

use crate::doors;
use crate::error::{Error, FileContext, Result};
use crate::journal::Number;
use crate::root::Root;

const FIRST_LINE: &str = "relay-session 3";
const FIRST_LINE_2: &str = "relay-session 2";
const FIRST_LINE_1: &str = "relay-session 1";
const SUFFIX: &str = ".session";
/// Longest file that is read or written, in bytes.
const MAX_LEN: usize = 1024 * 1024;
/// Streams whose last packets are known, of one session.
const MAX_POSITIONS: usize = 16 * 1024;

/// What a producer says of its recording session, the same each time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) sessiond: SessiondUuid,
    pub(crate) id: SessiondSessionId,
    pub(crate) created: UnixSeconds,
    pub(crate) wanted: RelativePath,
    pub(crate) owner: doors::Identity,
}

/// Where a recording session was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) number: Number,
    pub(crate) folder: RelativePath,
    /// The last packet of each stream, by its path in the chunk.
    pub(crate) positions: Positions,
}

/// Last packets by the stream's path in its chunk.
pub(crate) type Positions = BTreeMap<RelativePath, LastPacket>;

/// What is known of a stream's last packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LastPacket {
    /// Packet sequence number.
    pub(crate) number: u64,
    /// Event records that the tracer had discarded until then.
    pub(crate) discarded: Option<u64>,
}

impl Known {
    /// Notes the last packet of a stream.
    pub(crate) fn note(&mut self, stream: RelativePath, last: LastPacket) {
        if self.positions.len() < MAX_POSITIONS || self.positions.contains_key(&stream) {
            self.positions.insert(stream, last);
        }
    }
}

/// A recording session that named itself, while it is here.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) identity: Identity,
    pub(crate) known: Known,
    /// Whether no producer has closed what was recorded last.
    pub(crate) was_abandoned: bool,
    /// Whether the producer said that it comes back.
    pub(crate) can_resume: bool,
}

/// What session files say.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    /// Recording sessions whose folders are still there.
    pub(crate) known: Vec<(Identity, Known)>,
    /// Why others cannot be read.
    pub(crate) unreadable: Vec<Error>,
}

impl Identity {
    pub(crate) fn new(
        identity: &SessionIdentity,
        wanted: RelativePath,
        owner: doors::Identity,
    ) -> Self {
        Self {
            sessiond: identity.sessiond,
            id: identity.sessiond_session,
            created: identity.created,
            wanted,
            owner,
        }
    }

    /// Notes that the session has a folder, and what is there of its streams.
    pub(crate) fn write(&self, root: &Root, known: &Known) -> Result<()> {
        let Known { number, folder, positions } = known;
        let Self { sessiond, id, created, wanted, owner } = self;
        let owner = owner.as_text().map(|owner| format!("owner {owner}\n")).unwrap_or_default();
        let mut text = format!(
            "{FIRST_LINE}\nsessiond {sessiond}\nid {id}\ncreated {created}\nwanted {wanted}\nfolder {folder}\n{owner}"
        );
        for (path, LastPacket { number, discarded }) in positions {
            let discarded = discarded.map_or_else(|| "-".to_owned(), |count| count.to_string());
            let line = format!("last {number} {discarded} {path}\n");
            if text.len() + line.len() > MAX_LEN {
                tracing::warn!(%folder, "too many streams to note the last packets of all");
                break;
            }
            text.push_str(&line);
        }
        root.write_whole(&Root::own(""), &file_name(*number), text.as_bytes())
    }

    /// Reads what [`Identity::write`] wrote; the error is the number of the first line that is wrong, from 1.
    fn parse(text: &str) -> std::result::Result<(Self, RelativePath, Positions), usize> {
        let lines: Vec<&str> = text.lines().collect();
        let field = |number: usize, key: &str| -> std::result::Result<&str, usize> {
            let rest = lines.get(number - 1).and_then(|line| line.strip_prefix(key));
            rest.and_then(|rest| rest.strip_prefix(' ')).ok_or(number)
        };
        let count = |number, key| {
            field(number, key)?.parse::<u64>().map_err(|_problem| -> usize { number })
        };
        let path = |number, key| {
            RelativePath::new(field(number, key)?).map_err(|_problem| -> usize { number })
        };
        if !matches!(lines.first(), Some(&(FIRST_LINE | FIRST_LINE_2 | FIRST_LINE_1))) {
            return Err(1);
        }
        let hex = field(2, "sessiond")?;
        let uuid = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32).ok_or(2_usize)?;
        let owner = lines.get(6).and_then(|line| line.strip_prefix("owner "));
        let identity = Self {
            sessiond: SessiondUuid(uuid.to_be_bytes()),
            id: SessiondSessionId::new(count(3, "id")?),
            created: UnixSeconds::new(count(4, "created")?),
            wanted: path(5, "wanted")?,
            owner: owner.map(doors::Identity::new).unwrap_or_default(),
        };
        let folder = path(6, "folder")?;
        let mut positions = Positions::new();
        let has_count = lines.first() == Some(&FIRST_LINE);
        for number in 7 + usize::from(owner.is_some())..=lines.len() {
            let (last, mut path) = field(number, "last")?.split_once(' ').ok_or(number)?;
            let mut discarded = None;
            if has_count {
                let (count, rest) = path.split_once(' ').ok_or(number)?;
                path = rest;
                if count != "-" {
                    discarded = Some(count.parse().map_err(|_problem| number)?);
                }
            }
            let last = last.parse().map_err(|_problem| number)?;
            let last = LastPacket { number: last, discarded };
            positions.insert(RelativePath::new(path).map_err(|_problem| number)?, last);
        }
        Ok((identity, folder, positions))
    }
}

/// Forgets a recording session.
pub(crate) fn forget(root: &Root, number: Number) -> Result<()> {
    root.remove_file(&Root::own(&file_name(number)))
}

/// Brings a session's file to the disk.
pub(crate) fn sync(root: &Root, number: Number) -> Result<()> {
    let path = Root::own(&file_name(number));
    if root.exists(&path) {
        root.read(&path)?.sync_data().on("sync", path.as_path())?;
    }
    Ok(())
}

/// Reads all session files; those of folders that are gone are removed.
pub(crate) fn read_all(root: &Root) -> Result<Noted> {
    let mut noted = Noted::default();
    for entry in root.list(&Root::own(""))? {
        let number = entry.name.strip_suffix(SUFFIX).and_then(|stem| stem.parse().ok());
        let Some(number) = number.map(Number).filter(|_| !entry.is_dir) else { continue };
        match read(root, number) {
            Ok((identity, known)) if root.exists(&known.folder) => {
                noted.known.push((identity, known));
            }
            Ok(_) => forget(root, number)?,
            Err(error) => noted.unreadable.push(error),
        }
    }
    noted.known.sort_by_key(|(_, known)| known.number);
    Ok(noted)
}

fn read(root: &Root, number: Number) -> Result<(Identity, Known)> {
    let path = Root::own(&file_name(number));
    let mut text = String::new();
    let file = root.read(&path)?;
    file.take(MAX_LEN as u64).read_to_string(&mut text).on("read", path.as_path())?;
    let (identity, folder, positions) = Identity::parse(&text)
        .map_err(|line| Error::Journal { path: root.absolute(&path), line })?;
    Ok((identity, Known { number, folder, positions }))
}

fn file_name(Number(number): Number) -> String {
    format!("{number}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn last(number: u64, discarded: Option<u64>) -> LastPacket {
        LastPacket { number, discarded }
    }

    #[test]
    fn what_is_written_is_read_back_and_damage_is_named_by_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let plain = Identity {
            sessiond: SessiondUuid([0xa5; 16]),
            id: SessiondSessionId::new(3),
            created: UnixSeconds::new(7),
            wanted: RelativePath::new("h/s").unwrap(),
            owner: doors::Identity::default(),
        };
        let identity = Identity { owner: doors::Identity::new("web-1"), ..plain.clone() };
        let place = RelativePath::new("h/s-1").unwrap();
        let mut known = Known { number: Number(4), folder: place, positions: Positions::new() };
        for identity in [&plain, &identity] {
            known.positions.clear();
            identity.write(&root, &known).unwrap();
            assert_eq!(read(&root, Number(4)).unwrap(), (identity.clone(), known.clone()));
            known.note(RelativePath::new("kernel/ch_0").unwrap(), last(17, Some(5)));
            known.note(RelativePath::new("kernel/ch 1").unwrap(), last(0, None));
            identity.write(&root, &known).unwrap();
            assert_eq!(read(&root, Number(4)).unwrap(), (identity.clone(), known.clone()));
        }
        let text = std::fs::read_to_string(folder.path().join(".relay/4.session")).unwrap();
        let old = text.replace("session 3", "session 2").replace("last 17 5 ", "last 17 ");
        let old = old.replace("last 0 - ", "last 0 ");
        let without_count = [("kernel/ch 1", 0), ("kernel/ch_0", 17)];
        let without_count = without_count
            .map(|(path, number)| (RelativePath::new(path).unwrap(), last(number, None)));
        let without_count = Positions::from(without_count);
        assert_eq!(
            Identity::parse(&old),
            Ok((identity.clone(), known.folder.clone(), without_count))
        );
        let old = old.replace("session 2", "session 1").replace("last 17 kernel/ch_0\n", "");
        let old = old.replace("last 0 kernel/ch 1\n", "");
        assert_eq!(Identity::parse(&old), Ok((identity, known.folder, Positions::new())));
        let lines: Vec<&str> = text.lines().collect();
        for bad in 0..lines.len() {
            let mut damaged = lines.clone();
            damaged[bad] = "?";
            assert_eq!(Identity::parse(&damaged.join("\n")), Err(bad + 1));
        }
        assert_eq!(read_all(&root).unwrap().known, [], "its folder is gone");
        assert!(!folder.path().join(".relay/4.session").exists());
    }
}
