//! Recording sessions that may come back: which folder is whose, noted so that a producer that lost its relay goes on
//! in the same folder with the next chunk.
//!
//! One small file for each recording session that named itself, `ROOT/.relay/N.session`, made with its folder and
//! removed when the producer closed the session or the folder is gone. Lines of `key value`:
//!
//! ```text
//! relay-session 1                      format and version
//! sessiond 00112233445566778899aabbccddeeff
//! id 3                                 of the session in that sessiond
//! created 1795191738                   by the producer's clock, seconds
//! wanted vm/cap-20261120-162218        the folder it asks for
//! folder vm/cap-20261120-162218-1      the folder it has
//! owner web-1                          who made it, when that was shown
//! ```

use std::collections::BTreeMap;
use std::io::Read;

use wire::live::{RelativePath, SessionIdentity, SessiondSessionId, SessiondUuid, UnixSeconds};

use crate::doors;
use crate::error::{Error, FileContext, Result};
use crate::journal::Number;
use crate::root::Root;

const FIRST_LINE: &str = "relay-session 1";
const SUFFIX: &str = ".session";
/// Longest file that is read, in bytes.
const MAX_LEN: u64 = 64 * 1024;

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
    /// Packet sequence number of the last packet of each stream, by its path in the chunk.
    pub(crate) positions: BTreeMap<RelativePath, u64>,
}

/// A recording session that named itself, while it is here.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) identity: Identity,
    pub(crate) known: Known,
    /// Whether all producers left while a chunk was open.
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

    /// Notes that the session has a folder.
    pub(crate) fn write(&self, root: &Root, number: Number, folder: &RelativePath) -> Result<()> {
        let Self { sessiond, id, created, wanted, owner } = self;
        let owner = owner.as_text().map(|owner| format!("owner {owner}\n")).unwrap_or_default();
        let text = format!(
            "{FIRST_LINE}\nsessiond {sessiond}\nid {id}\ncreated {created}\nwanted {wanted}\nfolder {folder}\n{owner}"
        );
        root.write_whole(&Root::own(""), &file_name(number), text.as_bytes())
    }

    /// Reads what [`Identity::write`] wrote; the error is the number of the first line that is wrong, from 1.
    fn parse(text: &str) -> std::result::Result<(Self, RelativePath), usize> {
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
        if lines.first() != Some(&FIRST_LINE) {
            return Err(1);
        }
        let hex = field(2, "sessiond")?;
        let uuid = u128::from_str_radix(hex, 16).ok().filter(|_| hex.len() == 32).ok_or(2_usize)?;
        let identity = Self {
            sessiond: SessiondUuid(uuid.to_be_bytes()),
            id: SessiondSessionId::new(count(3, "id")?),
            created: UnixSeconds::new(count(4, "created")?),
            wanted: path(5, "wanted")?,
            owner: match lines.get(6) {
                Some(_) => doors::Identity::new(field(7, "owner")?),
                None => doors::Identity::default(),
            },
        };
        let folder = path(6, "folder")?;
        if lines.len() > 7 { Err(8) } else { Ok((identity, folder)) }
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
            Ok((identity, folder)) if root.exists(&folder) => {
                noted.known.push((identity, Known { number, folder, positions: BTreeMap::new() }));
            }
            Ok(_) => forget(root, number)?,
            Err(error) => noted.unreadable.push(error),
        }
    }
    noted.known.sort_by_key(|(_, known)| known.number);
    Ok(noted)
}

fn read(root: &Root, number: Number) -> Result<(Identity, RelativePath)> {
    let path = Root::own(&file_name(number));
    let mut text = String::new();
    let file = root.read(&path)?;
    file.take(MAX_LEN).read_to_string(&mut text).on("read", path.as_path())?;
    Identity::parse(&text).map_err(|line| Error::Journal { path: root.absolute(&path), line })
}

fn file_name(Number(number): Number) -> String {
    format!("{number}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        plain.write(&root, Number(4), &place).unwrap();
        assert_eq!(read(&root, Number(4)).unwrap(), (plain, place.clone()));
        identity.write(&root, Number(4), &place).unwrap();
        assert_eq!(read(&root, Number(4)).unwrap(), (identity, place.clone()));
        let text = std::fs::read_to_string(folder.path().join(".relay/4.session")).unwrap();
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
