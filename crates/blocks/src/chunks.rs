//! Sealed chunks in a bucket, found by their manifests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctf::TraceClass;
use mapper::SpanRules;
use mapper::job::Survey;
use objects::{Io, Store};
use sha2::{Digest, Sha256};
use tracedir::MAX_METADATA_BYTES;
use tracedir::manifest::{HIDDEN_MANIFEST, MANIFEST, MAX_MANIFEST_BYTES, Manifest, ManifestFile};

use crate::error::Error;
use crate::work::{Piece, Place};

/// How many manifests are asked for at a time.
const AT_ONCE: usize = 16;

/// A sealed chunk and what it says of itself.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) piece: Piece,
    pub(crate) survey: Survey,
}

/// The folder, below `root`, that the chunk in `folder` below `url` has on a disk: there, sessions and chunks are called as in
/// the bucket, so that what belongs together is found together.
pub(crate) fn folder_of(root: &Path, url: &str, folder: &str) -> PathBuf {
    let inner = url.split_once("://").map_or(url, |(_, inner)| inner);
    let names = inner.split('/').chain(folder.split('/'));
    let names = names.filter(|name| !name.is_empty() && *name != "." && *name != "..");
    root.join("chunks").join(names.collect::<PathBuf>())
}

/// All sealed chunks at or below a URL, surveyed by their manifests and metadata; nothing else of them is read.
pub(crate) fn find(
    url: &str,
    rules: &SpanRules,
    root: &Path,
    io: &Io,
) -> Result<Vec<Sealed>, Error> {
    let store = Store::open(url, io)?;
    let is_manifest = |name: &str| name == MANIFEST || name == HIDDEN_MANIFEST;
    let found: Vec<(String, String)> = store
        .list("")?
        .into_iter()
        .filter_map(|name| {
            let (folder, file) = name.rsplit_once('/').unwrap_or(("", &name));
            is_manifest(file).then(|| (folder.to_owned(), file.to_owned()))
        })
        .collect();
    let names: Vec<String> = found.iter().map(|(folder, file)| joined(folder, file)).collect();
    let manifests = store.get_all(&names, MAX_MANIFEST_BYTES, AT_ONCE)?;
    let mut classes = Classes { store: &store, known: BTreeMap::new() };
    let mut sealed = Vec::new();
    for ((folder, manifest_name), bytes) in found.into_iter().zip(manifests) {
        // Deleted since it was listed.
        let Some(bytes) = bytes else { continue };
        let name = format!("{url}/{}", joined(&folder, &manifest_name));
        let problem = |problem: String| Error::Manifest { name: name.clone(), problem };
        let manifest = Manifest::parse(&bytes).map_err(|error| problem(error.to_string()))?;
        // Else a `manifest.json` of somebody else.
        let Some(manifest) = manifest else { continue };
        if manifest.contents.files_unlisted > 0 {
            return Err(problem("it does not list all files".to_owned()));
        }
        let classes = classes.of(&folder, &manifest).map_err(|error| match error {
            Error::Manifest { problem: why, .. } => problem(why),
            error => error,
        })?;
        let survey =
            Survey::of_manifest(&folder_of(root, url, &folder), &manifest, &classes, rules);
        let bytes_of = |file: &ManifestFile| file.stored_bytes();
        let piece = Piece {
            checksum: Sha256::digest(&bytes).into(),
            bytes: manifest.contents.files.iter().map(bytes_of).sum(),
            place: Place::Bucket { url: url.to_owned(), folder, manifest: manifest_name },
        };
        sealed.push(Sealed { piece, survey });
    }
    if sealed.is_empty() {
        return Err(Error::NoChunk { url: url.to_owned() });
    }
    Ok(sealed)
}

/// A name in a folder, which may be the top.
pub(crate) fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Trace classes by the checksum of their metadata: chunks of one session share theirs. Bound: metadata files that differ.
struct Classes<'s> {
    store: &'s Store,
    known: BTreeMap<String, Arc<TraceClass>>,
}

impl Classes<'_> {
    /// The classes of a chunk's traces, by the traces' folders in it.
    fn of(
        &mut self,
        folder: &str,
        manifest: &Manifest,
    ) -> Result<BTreeMap<PathBuf, Arc<TraceClass>>, Error> {
        let mut classes = BTreeMap::new();
        for file in &manifest.contents.files {
            let path = Path::new(&file.path);
            if path.file_name().is_none_or(|name| name != "metadata") || file.bytes == 0 {
                continue;
            }
            let class = match self.known.get(&file.sha256) {
                Some(class) => Arc::clone(class),
                None => match self.fetch(folder, file)? {
                    Some(class) => class,
                    // The manifest's problems have it.
                    None => continue,
                },
            };
            self.known.insert(file.sha256.clone(), Arc::clone(&class));
            classes.insert(path.parent().unwrap_or(Path::new("")).to_owned(), class);
        }
        Ok(classes)
    }

    /// `None` for metadata that cannot be understood.
    fn fetch(&self, folder: &str, file: &ManifestFile) -> Result<Option<Arc<TraceClass>>, Error> {
        let name = joined(folder, &file.path);
        let refused = |problem: &str| Error::Manifest {
            name: name.clone(),
            problem: format!("{}: {problem}", file.path),
        };
        let bytes = self.store.get(&name, MAX_METADATA_BYTES)?;
        let bytes = bytes.ok_or_else(|| refused("is not there"))?;
        Ok(TraceClass::parse(&bytes).ok().map(Arc::new))
    }
}
