//! The same chunk given twice: copied, or put away under another name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tracedir::{StreamFile, TraceFolder};

use super::Folders;

/// How much of each stream file is compared: the header of its first packet names trace, stream, packet number and time.
const COMPARED: u64 = 512;

/// The names and lengths of a trace's stream files.
type Shape<'t> = Vec<(&'t str, u64)>;

/// Each trace folder at or below these paths once, when one of them holds what another one does, and a line for each that
/// is left out. `None` when there is none, which is nearly always so.
pub(super) fn once<P: AsRef<Path>>(paths: &[P]) -> Option<(Folders, Vec<String>)> {
    // What cannot be listed is told by who reads it.
    let found = tracedir::discover(paths).ok()?;
    let mut shapes: BTreeMap<Shape<'_>, usize> = BTreeMap::new();
    for folder in &found {
        *shapes.entry(shape(folder)).or_default() += 1;
    }
    let mut first: BTreeMap<Vec<Vec<u8>>, &TraceFolder> = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    let mut findings = Vec::new();
    for folder in found.iter().filter(|folder| shapes.get(&shape(folder)).is_some_and(|n| *n > 1)) {
        // Compressed, or gone: whoever reads it says what is wrong, if something is.
        let Ok(heads) = with_bytes(folder).map(head).collect::<io::Result<Vec<_>>>() else {
            continue;
        };
        match first.get(&heads).filter(|_| !heads.is_empty()) {
            None => {
                first.insert(heads, folder);
            }
            Some(known) => {
                let (again, known) = (folder.path.display(), known.path.display());
                findings.push(format!("{again}: given twice, also as {known}; left out"));
                left_out.insert(&folder.path);
            }
        }
    }
    let kept = found.iter().map(|folder| &folder.path).filter(|path| !left_out.contains(path));
    (!findings.is_empty()).then(|| (kept.cloned().collect(), findings))
}

fn with_bytes(folder: &TraceFolder) -> impl Iterator<Item = &StreamFile> {
    folder.stream_files.iter().filter(|file| file.len > 0)
}

fn shape(folder: &TraceFolder) -> Shape<'_> {
    with_bytes(folder)
        .filter_map(|file| Some((file.path.file_name()?.to_str()?, file.len)))
        .collect()
}

fn head(file: &StreamFile) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(&file.path)?.take(COMPARED).read_to_end(&mut bytes)?;
    Ok(bytes)
}
