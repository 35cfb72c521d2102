//! The metadata of a chunk whose producer went away, or whose relay was killed, before all of them were there again.
//!
//! After a rotation a producer sends all metadata anew, behind the first packets of the new chunk; when metadata are
//! regenerated the old ones are emptied first. Until as much is there again, what was there before still describes
//! every packet: it lies in the chunk before, or beside the new ones under [`REPLACED`]. Metadata only grow, so the ones that
//! declare more are the right ones.

use std::collections::BTreeSet;
use std::io::Read;

use ctf::TraceClass;
use wire::live::RelativePath;

use crate::error::{FileContext, Result};
use crate::feed::Documents;
use crate::mend::{MAX_METADATA, METADATA, relative, whole_metadata_packets};
use crate::names::{self, ARCHIVES};
use crate::root::Root;
use crate::seal::parent;

/// Metadata that others are replacing.
pub(crate) const REPLACED: &str = ".metadata.old";
/// Chunks before that are looked at, the newest first.
const MAX_CHUNKS_BEFORE: usize = 16;

/// Gives the folders of a chunk's streams the metadata that they lack. `session` is the folder of the recording session.
/// Gives the metadata streams that are there now, by their paths in the chunk.
pub(crate) fn complete(
    root: &Root,
    session: &RelativePath,
    chunk: (u64, &RelativePath),
    streams: &BTreeSet<RelativePath>,
) -> Result<BTreeSet<RelativePath>> {
    let before = chunks_before(root, session, chunk)?;
    let mut there = BTreeSet::new();
    for path in streams.iter().map(parent).collect::<BTreeSet<_>>() {
        let folder = chunk.1.join_path(&path);
        // Nothing of the chunk's is there, or it is another one's.
        if !root.is_dir(&folder) || (!path.is_empty() && root.has_manifest(&folder)) {
            continue;
        }
        let spare =
            before.iter().map(|chunk| chunk.join_path(&path).join_path(&relative(METADATA)));
        complete_folder(root, &folder, spare)?;
        if root.exists(&folder.join_path(&relative(METADATA))) {
            there.insert(path.join_path(&relative(METADATA)));
        }
    }
    Ok(there)
}

/// Puts back the metadata that were to be replaced where those that came do not declare as much.
pub(crate) fn put_back(
    root: &Root,
    chunk: &RelativePath,
    streams: &BTreeSet<RelativePath>,
) -> Result<()> {
    for path in streams.iter().map(parent).collect::<BTreeSet<_>>() {
        let folder = chunk.join_path(&path);
        if root.exists(&folder.join_path(&relative(REPLACED))) {
            complete_folder(root, &folder, std::iter::empty())?;
        }
    }
    Ok(())
}

/// Replaces a folder's metadata by the first of those put aside and `spare` that declare more. Those that end with half a
/// declaration, which spoils all before it, end before that.
fn complete_folder(
    root: &Root,
    folder: &RelativePath,
    spare: impl Iterator<Item = RelativePath>,
) -> Result<()> {
    let replaced = folder.join_path(&relative(REPLACED));
    let place = folder.join_path(&relative(METADATA));
    let was_replaced = root.exists(&replaced);
    let own = Declared::read(root, &place)?.unwrap_or_default();
    let mut is_own = true;
    for from in was_replaced.then(|| replaced.clone()).into_iter().chain(spare) {
        let Some(other) = Declared::read(root, &from)?.filter(|other| other.is_more_than(&own))
        else {
            continue;
        };
        tracing::info!(%folder, %from, "metadata that were not whole are those from before again");
        root.write_whole(folder, METADATA, other.whole())?;
        is_own = false;
        break;
    }
    let is_all = (own.bytes.len() as u64) < MAX_METADATA;
    if is_own && is_all && own.whole().len() < own.bytes.len() {
        tracing::info!(%folder, "metadata end before a declaration that is not whole");
        root.cut_file(&place, own.whole().len() as u64)?;
    }
    if was_replaced { root.remove_file(&replaced) } else { Ok(()) }
}

/// Folders of the chunks of a session before this one, the newest first.
fn chunks_before(
    root: &Root,
    session: &RelativePath,
    (chunk, at): (u64, &RelativePath),
) -> Result<Vec<RelativePath>> {
    let archives = session.join_path(&relative(ARCHIVES));
    let mut found = Vec::new();
    for folder in [&archives, session] {
        for entry in root.list(folder)?.into_iter().filter(|entry| entry.is_dir) {
            let number = entry.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let number: Option<u64> = number.filter(|_| names::is_reserved(&entry.name));
            let place = folder.join_path(&relative(&entry.name));
            if let Some(number) = number.filter(|number| *number < chunk && place != *at) {
                found.push((number, place));
            }
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    let mut found: Vec<_> = found.into_iter().map(|(_, place)| place).collect();
    found.truncate(MAX_CHUNKS_BEFORE);
    // The first chunk of a session may lie in its folder.
    if session != at {
        found.push(session.clone());
    }
    Ok(found)
}

/// Metadata, and what they declare as far as they are whole.
#[derive(Debug, Default)]
struct Declared {
    bytes: Vec<u8>,
    /// How many bytes of them declare it; all of those that declare nothing.
    whole: usize,
    class: Option<TraceClass>,
}

impl Declared {
    /// `None` when there are none.
    fn read(root: &Root, place: &RelativePath) -> Result<Option<Self>> {
        if !root.exists(place) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        root.read(place)?.take(MAX_METADATA).read_to_end(&mut bytes).on("read", place.as_path())?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let (whole, class) = readable(&bytes).unzip();
        Ok(Some(Self { whole: whole.unwrap_or(bytes.len()), bytes, class }))
    }

    fn whole(&self) -> &[u8] {
        self.bytes.get(..self.whole).unwrap_or(&self.bytes)
    }

    fn is_more_than(&self, other: &Self) -> bool {
        match (&self.class, &other.class) {
            (Some(own), Some(other)) => covers(own, other) && !covers(other, own),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => other.bytes.is_empty(),
        }
    }
}

/// What metadata declare, but for half a declaration at their end, and how many bytes that takes.
fn readable(bytes: &[u8]) -> Option<(usize, TraceClass)> {
    let bytes = bytes.get(..whole_metadata_packets(bytes))?;
    if let Ok(class) = TraceClass::parse(bytes) {
        return Some((bytes.len(), class));
    }
    let mut documents = Documents::default();
    documents.push(bytes);
    let whole = usize::try_from(documents.whole()).ok()?;
    Some((whole, TraceClass::parse(bytes.get(..whole)?).ok()?))
}

/// Whether metadata declare all that others of the same trace do.
fn covers(class: &TraceClass, other: &TraceClass) -> bool {
    let is_same = class.uuid().is_none() || other.uuid().is_none() || class.uuid() == other.uuid();
    let streams: BTreeSet<u64> = class.stream_classes().iter().map(|it| it.id()).collect();
    let event = |it: &ctf::EventRecordClass| (it.stream_class_id(), it.id());
    let events: BTreeSet<_> = class.event_record_classes().iter().map(event).collect();
    is_same
        && other.stream_classes().iter().all(|it| streams.contains(&it.id()))
        && other.event_record_classes().iter().map(event).all(|it| events.contains(&it))
}
