//! Makes what a killed relay was writing whole again: stream files end with a whole packet, index files have an entry
//! for each.
//!
//! Entries are written after their packets, so an entry is the witness of its packet. Packets without entry are found
//! by their headers when the metadata can be read; without metadata the file ends with the last entry's packet. Metadata end
//! with a whole declaration where that makes them readable.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use ctf::TraceClass;
use ctf::index::{HEADER_LEN, IndexEntry, IndexVersion, PacketIndex, StreamPosition};
use ctf::packet::{Outcome, PacketInfo, decode_packet_header};
use tracedir::seekable::ENDING;
use wire::live::{RelativePath, UnixSeconds};

use crate::error::{FileContext, Result};
use crate::feed::Documents;
use crate::names;
use crate::resume::{LastPacket, Positions};
use crate::root::Root;
use crate::seal::parent;

/// How deep a chunk's folders are looked at.
const MAX_DEPTH: usize = 16;
/// Bytes read of a packet for its header at first, and at most.
const FIRST_LOOK: usize = 4 << 10;
const MAX_LOOK: usize = 1 << 20;
/// Longest metadata that is read, in bytes.
pub(crate) const MAX_METADATA: u64 = 256 << 20;
/// Longest index file that is read, in bytes: 14 million packets.
const MAX_INDEX: u64 = 1 << 30;
pub(crate) const METADATA: &str = "metadata";
const INDEX: &str = "index";

/// What a chunk holds after it was mended.
#[derive(Debug)]
pub(crate) struct Mended {
    pub(crate) is_there: bool,
    /// Data files of streams.
    pub(crate) streams: usize,
    pub(crate) bytes: u64,
    /// Bytes of packets that were not whole, cut off.
    pub(crate) bytes_cut: u64,
    /// Packets that had no entry and were given one.
    pub(crate) packets_indexed: u64,
    pub(crate) without_metadata: Vec<PathBuf>,
    /// The end of the last packet.
    pub(crate) last_packet: Option<UnixSeconds>,
    /// The last change of a file.
    pub(crate) last_change: UnixSeconds,
    /// Files of streams and metadata, relative to the chunk's folder.
    pub(crate) members: BTreeSet<RelativePath>,
    /// The last packet of each stream file, by its path in the chunk.
    pub(crate) positions: Positions,
}

/// Which files of a chunk's folder are the chunk's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Parts<'a> {
    /// Those of these streams, by their paths in the folder.
    Streams(&'a BTreeSet<RelativePath>),
    /// What lies in these folders: of a chunk whose streams were not noted.
    Below(&'a BTreeSet<RelativePath>),
}

/// Mends a chunk in its folder. `makes_indexes` is false for chunks whose streams have no index files.
///
/// Never touched: compressed files, and what is in a folder below the chunk's that has a manifest: another chunk's.
pub(crate) fn mend(
    root: &Root,
    folder: &RelativePath,
    parts: Parts<'_>,
    makes_indexes: bool,
) -> Result<Mended> {
    let mended = Mended {
        is_there: root.exists(folder),
        streams: 0,
        bytes: 0,
        bytes_cut: 0,
        packets_indexed: 0,
        without_metadata: Vec::new(),
        last_packet: None,
        last_change: UnixSeconds::new(0),
        members: BTreeSet::new(),
        positions: Positions::new(),
    };
    let mut mender = Mender { root, folder, makes_indexes, mended };
    match parts {
        Parts::Below(tops) => {
            for top in tops.iter().filter(|top| root.is_dir(&folder.join_path(top))) {
                mender.all_in(top, MAX_DEPTH)?;
            }
        }
        Parts::Streams(streams) => mender.streams(streams)?,
    }
    Ok(mender.mended)
}

struct Mender<'a> {
    root: &'a Root,
    /// The chunk's.
    folder: &'a RelativePath,
    makes_indexes: bool,
    mended: Mended,
}

impl Mender<'_> {
    /// Mends the files of streams.
    fn streams(&mut self, streams: &BTreeSet<RelativePath>) -> Result<()> {
        let mut folders: BTreeMap<RelativePath, Vec<&RelativePath>> = BTreeMap::new();
        for stream in streams {
            folders.entry(parent(stream)).or_default().push(stream);
        }
        for (path, streams) in folders {
            if self.is_of_another(&path)? {
                continue;
            }
            let names: Vec<&str> = streams.iter().filter_map(|it| it.components().last()).collect();
            let entries = self.root.list(&self.folder.join_path(&path))?.into_iter();
            let files = entries.filter(|entry| !entry.is_dir && is_named(&names, &entry.name));
            let files = files.filter_map(|entry| RelativePath::new(&entry.name).ok()).collect();
            self.folder(&path, files)?;
        }
        Ok(())
    }

    /// Whether a folder of the chunk's is, or lies in, one with a manifest of its own.
    fn is_of_another(&self, path: &RelativePath) -> Result<bool> {
        for depth in 1..=path.components().count() {
            let above = names::first_components(path, depth)?;
            if self.root.has_manifest(&self.folder.join_path(&above)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Mends whatever is in a folder; `path` is relative to the chunk's.
    fn all_in(&mut self, path: &RelativePath, depth: usize) -> Result<()> {
        if !path.is_empty() && self.root.has_manifest(&self.folder.join_path(path)) {
            return Ok(());
        }
        let mut files = Vec::new();
        for entry in self.root.list(&self.folder.join_path(path))? {
            let Ok(name) = RelativePath::new(&entry.name) else { continue };
            match entry.is_dir {
                true if entry.name == INDEX || depth == 0 => {}
                true => self.all_in(&path.join_path(&name), depth - 1)?,
                // Streams have a folder in the chunk; what lies beside it is not theirs.
                false if path.is_empty() => {}
                false => files.push(name),
            }
        }
        self.folder(path, files)
    }

    /// Mends files of streams in a folder; `path` is relative to the chunk's.
    fn folder(&mut self, path: &RelativePath, mut files: Vec<RelativePath>) -> Result<()> {
        files.retain(|name| !name.as_str().ends_with(ENDING));
        if files.is_empty() {
            return Ok(());
        }
        let class = self.metadata(path, &files)?;
        let mut has_streams = false;
        for name in files.iter().filter(|name| name.as_str() != METADATA) {
            self.stream(path, name, class.as_ref())?;
            has_streams = true;
        }
        if self.is_all_empty(path, &files)? {
            return self.drop_empty(path, &files);
        }
        let metadata = self.folder.join_path(path).join_path(&relative(METADATA));
        let is_empty = !self.root.exists(&metadata) || self.root.file_len(&metadata)? == 0;
        if has_streams && is_empty {
            self.mended.without_metadata.push(self.root.absolute(&self.folder.join_path(path)));
        }
        Ok(())
    }

    fn is_all_empty(&self, path: &RelativePath, files: &[RelativePath]) -> Result<bool> {
        for name in files {
            if self.root.file_len(&self.folder.join_path(path).join_path(name))? > 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes away files that were made and never written to: no reader takes a folder with them for a trace.
    fn drop_empty(&mut self, path: &RelativePath, files: &[RelativePath]) -> Result<()> {
        let folder = self.folder.join_path(path);
        let index = folder.join_path(&relative(INDEX));
        for name in files {
            let index_file = index.join_path(&relative(&format!("{name}.idx")));
            if self.root.exists(&index_file) {
                self.root.remove_file(&index_file)?;
            }
            self.root.remove_file(&folder.join_path(name))?;
            self.mended.members.remove(&path.join_path(name));
            self.mended.streams -= usize::from(name.as_str() != METADATA);
        }
        Ok(())
    }

    /// The trace class that a folder's metadata declare, as far as they can be read.
    fn metadata(
        &mut self,
        path: &RelativePath,
        files: &[RelativePath],
    ) -> Result<Option<TraceClass>> {
        if !files.iter().any(|name| name.as_str() == METADATA) {
            return Ok(None);
        }
        let member = path.join_path(&relative(METADATA));
        let place = self.folder.join_path(&member);
        self.mended.members.insert(member);
        let file = self.root.read_write(&place)?;
        let len = self.note_change(&file, &place)?;
        let mut bytes = vec![0; usize::try_from(len.min(MAX_METADATA)).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).on("read", place.as_path())?;
        let whole = whole_metadata_packets(&bytes);
        if whole < bytes.len() && len <= MAX_METADATA {
            file.set_len(whole as u64).on("truncate", place.as_path())?;
            self.mended.bytes_cut += len - whole as u64;
            bytes.truncate(whole);
        }
        if let Ok(class) = TraceClass::parse(&bytes) {
            return Ok(Some(class));
        }
        // Half a declaration at the end spoils those before it.
        let mut documents = Documents::default();
        documents.push(&bytes);
        let whole = documents.whole();
        let kept = usize::try_from(whole).ok().and_then(|whole| bytes.get(..whole));
        let class = kept.and_then(|kept| TraceClass::parse(kept).ok());
        if class.is_some() && len <= MAX_METADATA {
            file.set_len(whole).on("truncate", place.as_path())?;
            self.mended.bytes_cut += bytes.len() as u64 - whole;
        }
        Ok(class)
    }

    fn stream(
        &mut self,
        path: &RelativePath,
        name: &RelativePath,
        class: Option<&TraceClass>,
    ) -> Result<()> {
        let member = path.join_path(name);
        let place = self.folder.join_path(&member);
        let file = self.root.read_write(&place)?;
        let len = self.note_change(&file, &place)?;
        let index_folder = self.folder.join_path(path).join_path(&relative(INDEX));
        let index_name = format!("{name}.idx");
        let old = self.index(&index_folder.join_path(&relative(&index_name)))?;
        let header_at = |offset| class.and_then(|class| header_at(&file, offset, class));
        let plan = plan(len, old.as_ref().map_or(&[], |(_, index)| &index.entries), &header_at);
        // The only copy of what cannot be read at all stays as it is.
        let is_readable =
            plan.len > 0 || len == 0 || class.is_some_and(|class| is_torn(&file, class));
        let can_tell = is_readable && (old.is_some() || class.is_some());
        if can_tell && plan.len < len {
            file.set_len(plan.len).on("truncate", place.as_path())?;
            self.mended.bytes_cut += len - plan.len;
        }
        self.mended.packets_indexed += plan.found;
        let is_full = plan.entries.iter().all(|entry| entry.position.is_some());
        let version = match &old {
            Some((_, index)) => index.version,
            None if is_full => IndexVersion::V1_1,
            None => IndexVersion::V1_0,
        };
        let index = PacketIndex { version, entries: plan.entries };
        let is_wanted = old.is_some() || (self.makes_indexes && !index.entries.is_empty());
        let bytes = index.encode();
        if is_wanted && old.is_none_or(|(written, _)| written != bytes) {
            drop(self.root.make_dirs(&index_folder)?);
            self.root.write_whole(&index_folder, &index_name, &bytes)?;
        }
        self.note_end(class, &index);
        if let Some(position) = index.entries.last().and_then(|last| last.position) {
            // A packet's own count may be wrong: see `losses`.
            let discarded = index.entries.iter().map(|entry| entry.events_discarded).max();
            let number = position.packet_seq_num;
            self.mended.positions.insert(member.clone(), LastPacket { number, discarded });
        }
        self.mended.streams += 1;
        self.mended.bytes += if can_tell { plan.len } else { len };
        self.mended.members.insert(member);
        Ok(())
    }

    /// The whole entries of an index file, and its bytes; `None` when there is no index that can be read.
    fn index(&self, place: &RelativePath) -> Result<Option<(Vec<u8>, PacketIndex)>> {
        if !self.root.exists(place) {
            return Ok(None);
        }
        let file = self.root.read(place)?;
        let len = file.metadata().on("look at", place.as_path())?.len().min(MAX_INDEX);
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        file.read_exact_at(&mut bytes, 0).on("read", place.as_path())?;
        let Ok(version) = IndexVersion::decode(&bytes) else { return Ok(None) };
        let body = bytes.get(HEADER_LEN..).unwrap_or(&[]);
        let records = body.chunks_exact(version.entry_len());
        let entries = records.filter_map(|record| IndexEntry::decode(record, version)).collect();
        Ok(Some((bytes, PacketIndex { version, entries })))
    }

    /// Notes when a file was changed; gives its length.
    fn note_change(&mut self, file: &std::fs::File, place: &RelativePath) -> Result<u64> {
        let about = file.metadata().on("look at", place.as_path())?;
        let changed = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let changed = UnixSeconds::new(changed.map_or(0, |since| since.as_secs()));
        self.mended.last_change = self.mended.last_change.max(changed);
        Ok(about.len())
    }

    fn note_end(&mut self, class: Option<&TraceClass>, index: &PacketIndex) {
        let Some((class, last)) = class.zip(index.entries.last()) else { return };
        let stream = class.stream_class(last.stream_class_id);
        let end = stream
            .and_then(|stream| class.clock_of(stream))
            .and_then(|clock| clock.to_ns(last.timestamp_end).ok())
            .and_then(|nanos| u64::try_from(nanos).ok());
        let end = end.map(|nanos| UnixSeconds::new(nanos / 1_000_000_000));
        self.mended.last_packet = self.mended.last_packet.max(end);
    }
}

/// What a stream file and its index are to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    entries: Vec<IndexEntry>,
    /// Length of the stream file: what follows is no whole packet.
    len: u64,
    /// Entries that are not from the index.
    found: u64,
}

/// Decides for a stream file of `len` bytes. `header_at` reads the packet at an offset; `None` when it cannot.
fn plan(len: u64, indexed: &[IndexEntry], header_at: &impl Fn(u64) -> Option<IndexEntry>) -> Plan {
    let end = |entry: &IndexEntry| {
        entry
            .offset_bytes
            .checked_add(entry.total_length_bits / 8)
            .filter(|end| *end <= len && *end > entry.offset_bytes)
    };
    // An index that speaks of another file is left over from the one that was there before.
    let is_of_this_file = indexed.first().is_none_or(|first| {
        header_at(first.offset_bytes).is_none_or(|header| {
            (header.total_length_bits, header.timestamp_begin)
                == (first.total_length_bits, first.timestamp_begin)
        })
    });
    let indexed = if is_of_this_file { indexed } else { &[] };
    let mut plan = Plan { entries: Vec::new(), len: 0, found: 0 };
    let find_up_to = |plan: &mut Plan, limit: u64| {
        while plan.len < limit
            && let Some(entry) = header_at(plan.len)
            && let Some(end) = end(&entry).filter(|end| *end <= limit)
        {
            plan.entries.push(entry);
            plan.found += 1;
            plan.len = end;
        }
    };
    for entry in indexed {
        let Some(end) = end(entry).filter(|_| entry.offset_bytes >= plan.len) else { continue };
        find_up_to(&mut plan, entry.offset_bytes);
        plan.entries.push(*entry);
        plan.len = end;
    }
    find_up_to(&mut plan, len);
    plan
}

/// What the header of the packet at an offset says of it.
fn header_at(file: &std::fs::File, offset: u64, class: &TraceClass) -> Option<IndexEntry> {
    match look_at(file, offset, class) {
        Look::Packet(info) => entry(offset, &info),
        Look::Torn | Look::Nothing => None,
    }
}

/// Whether a file begins with a packet that says how long it is, or with half of a header.
fn is_torn(file: &std::fs::File, class: &TraceClass) -> bool {
    match look_at(file, 0, class) {
        Look::Packet(info) => info.total_bits.is_some(),
        Look::Torn => true,
        Look::Nothing => false,
    }
}

/// What is at an offset.
enum Look {
    Packet(PacketInfo),
    /// The file ends within the header.
    Torn,
    /// Nothing that the metadata declare.
    Nothing,
}

fn look_at(file: &std::fs::File, offset: u64, class: &TraceClass) -> Look {
    let mut look = FIRST_LOOK;
    loop {
        let mut bytes = vec![0; look];
        let mut have = 0;
        while let Some(room) = bytes.get_mut(have..).filter(|room| !room.is_empty()) {
            match file.read_at(room, offset + have as u64) {
                Ok(0) => break,
                Ok(read) => have += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_unreadable) => return Look::Nothing,
            }
        }
        match decode_packet_header(class, bytes.get(..have).unwrap_or(&[])) {
            Ok(Outcome::Ready(info)) => return Look::Packet(info),
            Ok(Outcome::NeedMore { at_least_bytes })
                if have == look && at_least_bytes <= MAX_LOOK =>
            {
                look = at_least_bytes.max(look + 1);
            }
            Ok(Outcome::NeedMore { .. }) if have < look => return Look::Torn,
            Ok(Outcome::NeedMore { .. }) | Err(_) => return Look::Nothing,
        }
    }
}

/// The entry of a packet; `None` for one that does not say how long it is.
fn entry(offset_bytes: u64, info: &PacketInfo) -> Option<IndexEntry> {
    let total_length_bits = info.total_bits?;
    let position = info.sequence_number.map(|packet_seq_num| StreamPosition {
        stream_instance_id: info.stream_instance_id.unwrap_or(0),
        packet_seq_num,
    });
    Some(IndexEntry {
        offset_bytes,
        total_length_bits,
        content_length_bits: info.content_bits.unwrap_or(total_length_bits),
        timestamp_begin: info.begin.unwrap_or(0),
        timestamp_end: info.end.unwrap_or(0),
        events_discarded: info.events_discarded.unwrap_or(0),
        stream_class_id: info.stream_class_id,
        position,
    })
}

/// The first bytes of a packet of TSDL metadata, in either byte order.
const METADATA_MAGIC: u32 = 0x75D1_1D57;
const METADATA_HEADER_LEN: usize = 37;

/// Bytes of metadata up to the end of the last whole packet; all of them when they are not in packets.
pub(crate) fn whole_metadata_packets(bytes: &[u8]) -> usize {
    let word = |packet: &[u8], at: usize, is_big: bool| {
        let word = *packet.get(at..)?.first_chunk::<4>()?;
        Some(if is_big { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) })
    };
    let is_big = match (word(bytes, 0, true), word(bytes, 0, false)) {
        (Some(METADATA_MAGIC), _) => true,
        (_, Some(METADATA_MAGIC)) => false,
        _ => return bytes.len(),
    };
    let mut whole = 0;
    while let Some(packet) = bytes.get(whole..)
        && word(packet, 0, is_big) == Some(METADATA_MAGIC)
        && let Some(bits) = word(packet, 28, is_big)
        && let Ok(len) = usize::try_from(bits / 8)
        && (METADATA_HEADER_LEN..=packet.len()).contains(&len)
    {
        whole += len;
    }
    whole
}

/// Whether a file is of one of these streams: it has the name of one, or that and a number, as with trace file limits.
fn is_named(streams: &[&str], file: &str) -> bool {
    let of = file.rsplit_once('_').filter(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    streams.contains(&file) || of.is_some_and(|(stream, _)| streams.contains(&stream))
}

pub(crate) fn relative(name: &str) -> RelativePath {
    RelativePath::new(name).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ctf::CtfVersion;
    use ctf::writer::{EventHeader, Schema, StreamClass, TraceClass as WrittenTrace};

    use super::*;

    /// An entry of a packet of 100 bytes, or as many as given.
    fn packet(offset_bytes: u64, number: u64, len: u64) -> IndexEntry {
        IndexEntry {
            offset_bytes,
            total_length_bits: len * 8,
            content_length_bits: len * 8,
            timestamp_begin: number,
            timestamp_end: number,
            events_discarded: 0,
            stream_class_id: 0,
            position: Some(StreamPosition { stream_instance_id: 0, packet_seq_num: number }),
        }
    }

    /// A file of packets of 100 bytes, each with a header that can be read.
    fn header(offset: u64) -> Option<IndexEntry> {
        offset.is_multiple_of(100).then(|| packet(offset, offset / 100, 100))
    }

    fn entries(numbers: &[u64]) -> Vec<IndexEntry> {
        numbers.iter().map(|number| packet(number * 100, *number, 100)).collect()
    }

    #[test]
    fn the_tail_is_indexed_and_cut_to_whole_packets() {
        let plan = plan(350, &entries(&[0]), &header);
        assert_eq!(plan, Plan { entries: entries(&[0, 1, 2]), len: 300, found: 2 });
    }

    #[test]
    fn without_metadata_the_file_ends_with_its_last_entry() {
        let plan = plan(350, &entries(&[0, 1]), &|_| None);
        assert_eq!(plan, Plan { entries: entries(&[0, 1]), len: 200, found: 0 });
    }

    #[test]
    fn an_entry_that_never_came_is_made_from_the_packet() {
        let plan = plan(300, &entries(&[0, 2]), &header);
        assert_eq!(plan, Plan { entries: entries(&[0, 1, 2]), len: 300, found: 1 });
    }

    #[test]
    fn an_entry_beyond_the_file_is_dropped() {
        let plan = plan(250, &entries(&[0, 1, 2]), &header);
        assert_eq!(plan, Plan { entries: entries(&[0, 1]), len: 200, found: 0 });
    }

    #[test]
    fn an_index_of_another_file_is_made_anew() {
        let other = [packet(0, 7, 80), packet(80, 8, 80)];
        assert_eq!(plan(200, &other, &header).entries, entries(&[0, 1]));
    }

    #[test]
    fn lengths_that_lead_nowhere_end_the_search() {
        let zero = |_| Some(packet(0, 0, 0));
        assert_eq!(plan(100, &[], &zero), Plan { entries: Vec::new(), len: 0, found: 0 });
        let huge = |offset| Some(packet(offset, 0, u64::MAX / 8));
        assert_eq!(plan(100, &[], &huge).len, 0);
    }

    #[test]
    fn metadata_end_with_a_whole_packet() {
        let mut packet = vec![0; 50];
        packet[..4].copy_from_slice(&METADATA_MAGIC.to_le_bytes());
        packet[28..32].copy_from_slice(&400_u32.to_le_bytes());
        let two = [packet.clone(), packet].concat();
        assert_eq!(whole_metadata_packets(&two), 100);
        assert_eq!(whole_metadata_packets(&two[..99]), 50);
        assert_eq!(whole_metadata_packets(&two[..30]), 0);
        assert_eq!(whole_metadata_packets(b"/* CTF 1.8 */"), 13);
        assert_eq!(whole_metadata_packets(b""), 0);
    }
    /// What is left of metadata of which so many bytes were written.
    fn mended_metadata(bytes: &[u8]) -> (Vec<u8>, u64) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("ust")).unwrap();
        let file = folder.path().join("ust/metadata");
        std::fs::write(&file, bytes).unwrap();
        let tops = BTreeSet::from([relative("ust")]);
        let mended = mend(&root, &RelativePath::default(), Parts::Below(&tops), true).unwrap();
        (std::fs::read(file).unwrap(), mended.bytes_cut)
    }

    #[test]
    fn half_a_declaration_is_cut_off_in_both_languages() {
        for version in [CtfVersion::V1_8, CtfVersion::V2] {
            let mut stream = StreamClass::new(0, EventHeader::Large, Vec::new());
            stream.clock = Some(0);
            let mut trace = WrittenTrace::new(version, vec![stream]);
            trace.clocks = vec![ctf::ClockClass::new("monotonic")];
            let schema = Schema::new(trace).unwrap();
            let whole = schema.metadata().as_bytes();
            assert_eq!(mended_metadata(whole), (whole.to_vec(), 0), "{version:?}");
            // Said again, as a producer that adds an event class does, and torn in the middle.
            let half = match version {
                CtfVersion::V1_8 => &b"event { name = \"a\"; id = 1"[..],
                CtfVersion::V2 => &b"\x1e{\"type\": \"event-record-class\", \"id\""[..],
            };
            let torn = [whole, half].concat();
            let (left, cut) = mended_metadata(&torn);
            let left = String::from_utf8(left).unwrap();
            assert_eq!(left.trim_end(), schema.metadata().trim_end(), "{version:?}");
            assert_eq!(cut, (torn.len() - left.len()) as u64);
        }
    }

    #[test]
    fn only_files_of_the_streams_are_looked_at_and_what_cannot_be_read_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let bytes = [0xa5; 300];
        for dir in ["ust", "ust/sealed", "other"] {
            std::fs::create_dir(folder.path().join(dir)).unwrap();
            let files = ["ch_0", "ch_0_7", "ch_0_x", "ch_1", "ch_0.zst"];
            for file in files {
                std::fs::write(folder.path().join(dir).join(file), bytes).unwrap();
            }
            let mut stream = StreamClass::new(0, EventHeader::Large, Vec::new());
            stream.clock = Some(0);
            let mut trace = WrittenTrace::new(CtfVersion::V1_8, vec![stream]);
            trace.clocks = vec![ctf::ClockClass::new("monotonic")];
            let schema = Schema::new(trace).unwrap();
            std::fs::write(folder.path().join(dir).join("metadata"), schema.metadata()).unwrap();
        }
        std::fs::write(folder.path().join("ust/sealed/.manifest.json"), "{}").unwrap();
        let streams: BTreeSet<_> = ["ust/ch_0", "ust/metadata", "ust/sealed/ch_0", "ust/gone"]
            .map(relative)
            .into_iter()
            .collect();
        let chunk = RelativePath::default();
        let mended = mend(&root, &chunk, Parts::Streams(&streams), true).unwrap();
        let found = ["ust/ch_0", "ust/ch_0_7", "ust/metadata"].map(relative);
        assert_eq!(mended.members, BTreeSet::from(found));
        assert_eq!((mended.bytes, mended.bytes_cut), (600, 0));
        let tops = BTreeSet::from([relative("ust")]);
        let mended = mend(&root, &chunk, Parts::Below(&tops), true).unwrap();
        assert_eq!((mended.streams, mended.bytes_cut), (4, 0));
    }

    #[test]
    fn metadata_that_no_cut_makes_readable_stay() {
        let bytes = b"/* CTF 1.8 */ trace { nonsense";
        assert_eq!(mended_metadata(bytes), (bytes.to_vec(), 0));
    }
}
