//! What is being written, noted so that the next start knows after a crash.
//!
//! One small file for each chunk that has streams, `ROOT/.relay/N.chunk`, made when the first stream enters and
//! removed when the chunk is sealed or deleted. Lines of `key value`:
//!
//! ```text
//! relay-chunk 3               format and version
//! host vm
//! session cap                 name of the recording session
//! folder vm/cap-20261120-…    the session's folder
//! chunk 3
//! at vm/cap-…/20261120T…-3    where the chunk is; equal to `folder` for one written in place
//! begin 1795191738            by the producer's clock, seconds; `-` for one that is never archived
//! to vm/cap-…/archives/…      only while it moves: where to
//! sealed                      with `to`: the move ends the chunk; without this line it goes on being written
//! ```
//! Version 1 has no line `begin`.
//!
//! Its streams stand beside it, `ROOT/.relay/N.streams`, each before its first file is made: lines of paths in the chunk, with
//! empty ones between them. With that and the line `at` a start knows which files are the chunk's; it touches no others. The
//! first two versions have no such file.
//!
//! While packets that ran ahead of a rotation follow it into the chunk, `ROOT/.relay/N.moving` says what a start has to change so that
//! they are in one chunk only: first what is being made is to go, then, when all of it is there, what it was made from.
//! Lines of `gone PATH` and `cut LENGTH PATH`, relative to the root.
//!
//! Losses are noted beside it as they are seen, `ROOT/.relay/N.lost`, one a line: `CAUSE FIRST LAST COUNT STREAM`
//! with what [`Loss`] says, with empty lines between them.
//!
//! Names cannot contain line breaks, see [`wire::live::RelativePath`].

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use wire::live::{ChunkId, RelativePath, UnixSeconds};

use crate::error::{Error, FileContext, Result};
use crate::losses::{ChunkLosses, Loss};
use crate::root::Root;

const FIRST_LINE: &str = "relay-chunk 3";
const FIRST_LINE_2: &str = "relay-chunk 2";
const FIRST_LINE_1: &str = "relay-chunk 1";
const FIRST_LINE_OF_MOVE: &str = "relay-move 1";
const SUFFIX: &str = ".chunk";
const MOVING_SUFFIX: &str = ".moving";
/// Behind the name of a note that cannot be understood.
const ASIDE_SUFFIX: &str = ".unread";
/// Longest note of a move that is read, in bytes: two files for each file of a stream.
const MAX_MOVING_LEN: u64 = 64 << 20;
/// Longest journal file that is read, in bytes: five paths and names.
const MAX_LEN: u64 = 64 * 1024;
/// Longest list of streams that is read, in bytes.
const MAX_STREAMS_LEN: u64 = 256 << 20;

/// Number of a journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(pub(crate) u64);

/// The content of a journal file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) host: String,
    pub(crate) session: String,
    pub(crate) folder: RelativePath,
    pub(crate) chunk: ChunkId,
    pub(crate) at: RelativePath,
    /// When it began; `None` for one that stays where it is.
    pub(crate) begin: Option<UnixSeconds>,
    pub(crate) moving: Option<Move>,
    /// Whether its streams are noted beside it.
    pub(crate) names_streams: bool,
}

/// A move that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) to: RelativePath,
    /// Whether the chunk is complete with it.
    pub(crate) sealed: bool,
}

impl Entry {
    /// Writes the entry in place of the one that has its number.
    pub(crate) fn write(&self, root: &Root, number: Number) -> Result<()> {
        root.write_whole(&Root::own(""), &file_name(number), self.to_text().as_bytes())
    }

    /// As [`Self::write`]; afterwards it is on the disk, as is every entry of the folder.
    pub(crate) fn write_synced(&self, root: &Root, number: Number) -> Result<()> {
        root.write_whole_synced(&Root::own(""), &file_name(number), self.to_text().as_bytes())
    }

    fn to_text(&self) -> String {
        let Self { host, session, folder, chunk, at, begin, moving, names_streams } = self;
        let first_line = if *names_streams { FIRST_LINE } else { FIRST_LINE_2 };
        let begin = begin.map_or_else(|| "-".to_owned(), |begin| begin.to_string());
        let mut text = format!(
            "{first_line}\nhost {host}\nsession {session}\nfolder {folder}\nchunk {chunk}\nat {at}\nbegin {begin}\n"
        );
        if let Some(Move { to, sealed }) = moving {
            text.push_str(&format!("to {to}\n"));
            text.push_str(if *sealed { "sealed\n" } else { "" });
        }
        text
    }

    /// Reads an entry; the error is the number of the first line that is wrong, from 1.
    fn parse(text: &str) -> std::result::Result<Self, usize> {
        let lines: Vec<&str> = text.lines().collect();
        let field = |number: usize, key: &str| -> std::result::Result<&str, usize> {
            let rest = lines.get(number - 1).and_then(|line| line.strip_prefix(key));
            rest.and_then(|rest| rest.strip_prefix(' ')).ok_or(number)
        };
        let path = |number, key| {
            RelativePath::new(field(number, key)?).map_err(|_problem| -> usize { number })
        };
        let has_begin = match lines.first() {
            Some(&(FIRST_LINE | FIRST_LINE_2)) => true,
            Some(&FIRST_LINE_1) => false,
            _ => return Err(1),
        };
        let (host, session) = (field(2, "host")?.to_owned(), field(3, "session")?.to_owned());
        let folder = path(4, "folder")?;
        let chunk = ChunkId::new(field(5, "chunk")?.parse().map_err(|_problem| 5_usize)?);
        let at = path(6, "at")?;
        let begin = match has_begin.then(|| field(7, "begin")).transpose()? {
            None | Some("-") => None,
            Some(text) => Some(UnixSeconds::new(text.parse().map_err(|_problem| 7_usize)?)),
        };
        let to = if has_begin { 8 } else { 7 };
        let moving = match lines.get(to - 1..).unwrap_or(&[]) {
            [] => None,
            [_] => Some(Move { to: path(to, "to")?, sealed: false }),
            [_, "sealed"] => Some(Move { to: path(to, "to")?, sealed: true }),
            _ => {
                path(to, "to")?;
                return Err(to + 1);
            }
        };
        let names_streams = lines.first() == Some(&FIRST_LINE);
        Ok(Self { host, session, folder, chunk, at, begin, moving, names_streams })
    }
}

/// A change of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// It goes.
    Gone(RelativePath),
    /// It is cut to so many bytes.
    Cut(RelativePath, u64),
}

/// Changes that are all to be made if the relay is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moving {
    pub(crate) changes: Vec<Change>,
}

impl Moving {
    /// Notes them in place of those that were noted.
    pub(crate) fn write(&self, root: &Root, number: Number) -> Result<()> {
        let mut text = format!("{FIRST_LINE_OF_MOVE}\n");
        for change in &self.changes {
            text.push_str(&match change {
                Change::Gone(path) => format!("gone {path}\n"),
                Change::Cut(path, len) => format!("cut {len} {path}\n"),
            });
        }
        root.write_whole(&Root::own(""), &moving_name(number), text.as_bytes())
    }

    /// Makes them, and forgets them.
    pub(crate) fn finish(&self, root: &Root, number: Number) -> Result<()> {
        for change in &self.changes {
            match change {
                Change::Gone(path) if root.exists(path) => root.remove_file(path)?,
                Change::Cut(path, len) if root.exists(path) => root.cut_file(path, *len)?,
                Change::Gone(_) | Change::Cut(..) => {}
            }
        }
        root.remove_file(&Root::own(&moving_name(number)))
    }

    /// Reads what [`Moving::write`] wrote; the error is the number of the first line that is wrong, from 1.
    fn parse(text: &str) -> std::result::Result<Self, usize> {
        let mut lines = text.lines().zip(1_usize..);
        if lines.next().is_none_or(|(line, _)| line != FIRST_LINE_OF_MOVE) {
            return Err(1);
        }
        let change = |(line, number): (&str, usize)| {
            let (what, rest) = line.split_once(' ').ok_or(number)?;
            let path = |text| RelativePath::new(text).map_err(|_problem| number);
            match (what, rest.split_once(' ')) {
                ("gone", _) => Ok(Change::Gone(path(rest)?)),
                ("cut", Some((len, rest))) => {
                    Ok(Change::Cut(path(rest)?, len.parse().map_err(|_problem| number)?))
                }
                _ => Err(number),
            }
        };
        Ok(Self { changes: lines.map(change).collect::<std::result::Result<_, _>>()? })
    }
}

/// Makes the changes that a killed relay was about to make; gives why some cannot be made. A note that says nothing is put aside:
/// it is told once.
pub(crate) fn finish_moves(root: &Root) -> Result<Vec<Error>> {
    let mut failed = Vec::new();
    for entry in root.list(&Root::own(""))? {
        let number = entry.name.strip_suffix(MOVING_SUFFIX).and_then(|stem| stem.parse().ok());
        let Some(number) = number.map(Number).filter(|_| !entry.is_dir) else { continue };
        if let Err(error) = finish_move(root, number) {
            failed.push(error);
        }
    }
    Ok(failed)
}

fn finish_move(root: &Root, number: Number) -> Result<()> {
    let name = moving_name(number);
    let path = Root::own(&name);
    let mut bytes = Vec::new();
    root.read(&path)?.take(MAX_MOVING_LEN).read_to_end(&mut bytes).on("read", path.as_path())?;
    let text = std::str::from_utf8(&bytes);
    let line_of = |error: std::str::Utf8Error| {
        bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() + 1
    };
    match text.map_err(line_of).and_then(Moving::parse) {
        Ok(moving) => moving.finish(root, number),
        Err(line) => {
            let aside = Root::own(&format!("{name}{ASIDE_SUFFIX}"));
            root.remove_file(&aside)?;
            root.rename(&path, &aside)?;
            Err(Error::Journal { path: root.absolute(&aside), line })
        }
    }
}

fn moving_name(Number(number): Number) -> String {
    format!("{number}{MOVING_SUFFIX}")
}

/// Removes a journal file.
pub(crate) fn remove(root: &Root, number: Number) -> Result<()> {
    root.remove_file(&Root::own(&losses_name(number)))?;
    root.remove_file(&Root::own(&file_name(number)))?;
    // Last, for the entry is believed: without streams it would name nothing.
    root.remove_file(&Root::own(&streams_name(number)))
}

/// Notes that a stream is in the chunk.
pub(crate) fn append_stream(root: &Root, number: Number, stream: &RelativePath) -> Result<()> {
    // A line of its own also behind half of one, which a full disk may have left.
    let line = format!("\n{stream}\n");
    let name = streams_name(number);
    root.append(&Root::own(""), &name, line.as_bytes())
}

/// Brings the list of streams to the disk, as far as there is one.
pub(crate) fn sync_streams(root: &Root, number: Number) -> Result<()> {
    let path = Root::own(&streams_name(number));
    if root.exists(&path) {
        root.read(&path)?.sync_data().on("sync", path.as_path())?;
    }
    Ok(())
}

/// The streams of a chunk, relative to its folder; `None` of an entry that does not name them. A line that was cut short
/// is left out: its stream has no file yet.
pub(crate) fn read_streams(
    root: &Root,
    number: Number,
    entry: &Entry,
) -> Result<Option<BTreeSet<RelativePath>>> {
    let path = Root::own(&streams_name(number));
    if !entry.names_streams {
        return Ok(None);
    }
    let mut text = String::new();
    if root.exists(&path) {
        let file = root.read(&path)?;
        file.take(MAX_STREAMS_LEN).read_to_string(&mut text).on("read", path.as_path())?;
    }
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    let lines = lines.filter(|line| !line.is_empty());
    Ok(Some(lines.filter_map(|line| RelativePath::new(line).ok()).collect()))
}

fn streams_name(Number(number): Number) -> String {
    format!("{number}.streams")
}

/// Notes a loss.
pub(crate) fn append_loss(
    root: &Root,
    number: Number,
    stream: &RelativePath,
    loss: &Loss,
) -> Result<()> {
    let Loss { cause, first, last, count } = loss;
    let line = format!("\n{cause} {first} {last} {count} {stream}\n");
    let name = losses_name(number);
    root.append(&Root::own(""), &name, line.as_bytes())
}

/// The losses noted; a line that was cut short is left out.
pub(crate) fn read_losses(root: &Root, number: Number, max: usize) -> Result<ChunkLosses> {
    let path = Root::own(&losses_name(number));
    let mut losses = ChunkLosses::default();
    if !root.exists(&path) {
        return Ok(losses);
    }
    let file = BufReader::new(root.read(&path)?);
    // Beside empty ones, those of a full disk are lines that were cut short.
    for line in file.lines().take(max.saturating_mul(4)) {
        let line = line.on("read", path.as_path())?;
        let mut words = line.splitn(5, ' ');
        let cause = words.next().and_then(|word| word.parse().ok());
        let mut number = || words.next().and_then(|word| word.parse().ok());
        if let (Some(cause), Some(first), Some(last), Some(count)) =
            (cause, number(), number(), number())
            && let Some(stream) = words.next().and_then(|path| RelativePath::new(path).ok())
        {
            losses.add(stream, Loss { cause, first, last, count }, max);
        }
    }
    Ok(losses)
}

fn losses_name(Number(number): Number) -> String {
    format!("{number}.lost")
}

/// Every journal file: its number and what it says, or why it cannot be read.
pub(crate) fn read_all(root: &Root) -> Result<Vec<(Number, Result<Entry>)>> {
    let mut found = Vec::new();
    for entry in root.list(&Root::own(""))? {
        let number = entry.name.strip_suffix(SUFFIX).and_then(|stem| stem.parse().ok());
        if let (Some(number), false) = (number.map(Number), entry.is_dir) {
            found.push((number, read(root, number)));
        }
    }
    found.sort_by_key(|(number, _)| *number);
    Ok(found)
}

fn read(root: &Root, number: Number) -> Result<Entry> {
    let path = Root::own(&file_name(number));
    let mut text = String::new();
    let file = root.read(&path)?;
    file.take(MAX_LEN).read_to_string(&mut text).on("read", path.as_path())?;
    Entry::parse(&text).map_err(|line| Error::Journal { path: root.absolute(&path), line })
}

fn file_name(Number(number): Number) -> String {
    format!("{number}{SUFFIX}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(moving: Option<Move>) -> Entry {
        let path = |text| RelativePath::new(text).unwrap();
        Entry {
            host: "h".into(),
            session: "s with space".into(),
            folder: path("h/s"),
            chunk: ChunkId::new(7),
            at: path("h/s/a"),
            begin: Some(UnixSeconds::new(5)),
            moving,
            names_streams: true,
        }
    }

    #[test]
    fn the_first_versions_are_read() {
        let old = |moving| Entry { names_streams: false, ..entry(moving) };
        let text = entry(None).to_text().replace("chunk 3\n", "chunk 2\n");
        assert_eq!(Entry::parse(&text), Ok(old(None)));
        assert_eq!(old(None).to_text(), text);
        let text = text.replace("chunk 2\n", "chunk 1\n").replace("begin 5\n", "");
        assert_eq!(Entry::parse(&text), Ok(Entry { begin: None, ..old(None) }));
        let moved = format!("{text}to h/s/b\nsealed\n");
        let to = RelativePath::new("h/s/b").unwrap();
        let moving = Some(Move { to, sealed: true });
        assert_eq!(Entry::parse(&moved), Ok(Entry { begin: None, ..old(moving) }));
    }

    #[test]
    fn streams_are_read_back_but_for_half_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = |text| RelativePath::new(text).unwrap();
        let read = || read_streams(&root, Number(3), &entry(None)).unwrap();
        assert_eq!(read(), Some(BTreeSet::new()));
        append_stream(&root, Number(3), &path("ust/a b")).unwrap();
        root.append(&Root::own(""), "3.streams", b"\nust/ha").unwrap();
        assert_eq!(read(), Some(BTreeSet::from([path("ust/a b")])));
        append_stream(&root, Number(3), &path("ust/c")).unwrap();
        assert!(read().unwrap().is_superset(&BTreeSet::from([path("ust/a b"), path("ust/c")])));
        assert_eq!(
            read_streams(&root, Number(3), &Entry { names_streams: false, ..entry(None) }).unwrap(),
            None
        );
    }

    #[test]
    fn changes_are_read_back_and_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = |text| RelativePath::new(text).unwrap();
        std::fs::write(folder.path().join("a b"), [0; 10]).unwrap();
        std::fs::write(folder.path().join("c"), [0; 10]).unwrap();
        let changes = vec![
            Change::Cut(path("a b"), 4),
            Change::Gone(path("c")),
            Change::Gone(path("none/x")),
        ];
        let moving = Moving { changes };
        for _ in 0..2 {
            moving.write(&root, Number(2)).unwrap();
            assert!(finish_moves(&root).unwrap().is_empty());
            assert_eq!(std::fs::read(folder.path().join("a b")).unwrap(), [0; 4]);
            assert!(!folder.path().join("c").exists());
            assert_eq!(root.list(&Root::own("")).unwrap(), []);
        }
        std::fs::write(folder.path().join(".relay/7.moving"), "relay-move 1\ncut x y\n").unwrap();
        let failed = finish_moves(&root).unwrap();
        assert!(matches!(failed.as_slice(), [Error::Journal { line: 2, .. }]), "{failed:?}");
        let aside = folder.path().join(".relay/7.moving.unread");
        assert_eq!(std::fs::read(&aside).unwrap(), b"relay-move 1\ncut x y\n");
        assert!(finish_moves(&root).unwrap().is_empty(), "it is told once");
        std::fs::write(folder.path().join(".relay/8.moving"), b"relay-move 1\n\xff").unwrap();
        // One that cannot be read at all keeps nobody from the rest.
        let nowhere = folder.path().join(".relay/9.moving");
        std::os::unix::fs::symlink("nowhere", nowhere).unwrap();
        let failed = finish_moves(&root).unwrap();
        let kinds = matches!(
            failed.as_slice(),
            [Error::Journal { line: 2, .. }, Error::File { action: "open", .. }]
        );
        assert!(kinds, "{failed:?}");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let to = RelativePath::new("h/s/archives/x").unwrap();
        for moving in [
            None,
            Some(Move { to: to.clone(), sealed: true }),
            Some(Move { to: to.clone(), sealed: false }),
        ] {
            let entry = entry(moving);
            assert_eq!(Entry::parse(&entry.to_text()), Ok(entry));
        }
    }

    #[test]
    fn damage_is_named_by_its_line() {
        let text = entry(None).to_text();
        let lines: Vec<&str> = text.lines().collect();
        for bad in 0..lines.len() {
            let mut damaged = lines.clone();
            damaged[bad] = "?";
            assert_eq!(Entry::parse(&damaged.join("\n")), Err(bad + 1));
            assert_eq!(Entry::parse(&lines[..bad].join("\n")), Err(bad + 1));
        }
        assert_eq!(Entry::parse(&format!("{text}more\n")), Err(8));
    }
}
