//! Where a chunk and its manifest disagree.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::{Contents, Manifest, ManifestFile, ManifestStream};
use crate::error::Error;
use crate::survey::Told;

/// Where a chunk and its manifest disagree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// The manifest is damaged.
    #[error("the manifest cannot be read: {problem}")]
    Unreadable {
        /// Why.
        problem: String,
    },
    /// A file of the manifest is not there.
    #[error("the file is not there; the manifest names {bytes} bytes")]
    Missing {
        /// Its length by the manifest.
        bytes: u64,
    },
    /// A file is of another length.
    #[error("the file has {found} bytes, the manifest says {expected}")]
    Length {
        /// Length of the file.
        found: u64,
        /// Length by the manifest.
        expected: u64,
    },
    /// A file of the right length has other bytes.
    #[error(
        "the file's checksum is not the manifest's: its bytes were changed after it was sealed"
    )]
    Changed,
    /// A compressed file whose content is right, and which is not the one that the manifest describes.
    #[error("the file was compressed again after the manifest was written")]
    Recompressed,
    /// A file that the manifest does not name.
    #[error("the manifest does not name this file")]
    Unnamed,
    /// A count or bound of a stream is another one.
    #[error("{what} of the stream: the packets say {found}, the manifest {}", shown(*expected))]
    Stream {
        /// What.
        what: &'static str,
        /// By the packets.
        found: i128,
        /// By the manifest.
        expected: Option<i128>,
    },
    /// A stream of the manifest is not there, or one that is there is not in the manifest.
    #[error("{there} stream {class_id} of {files} files")]
    OtherStream {
        /// Which of both.
        there: &'static str,
        /// Data stream class id.
        class_id: u64,
        /// Its files.
        files: u64,
    },
}

impl ManifestStream {
    /// Every number of it, by name.
    fn numbers(&self) -> [(&'static str, Option<i128>); 11] {
        let number = |value: Option<u64>| value.map(i128::from);
        let time = |value: Option<i64>| value.map(i128::from);
        [
            ("instance id", number(self.instance_id)),
            ("packets", Some(self.packets.into())),
            ("bytes", Some(self.bytes.into())),
            ("content bits", Some(self.content_bits.into())),
            ("begin", time(self.begin_ns)),
            ("end", time(self.end_ns)),
            ("first packet", number(self.first_packet)),
            ("last packet", number(self.last_packet)),
            ("discarded event records", number(self.discarded_at_last)),
            ("lost event records", Some(self.lost.event_records.into())),
            ("lost packets", Some(self.lost.packets.into())),
        ]
    }
}

impl Manifest {
    /// Reads all bytes and packet headers of the chunk in `folder` again and tells where they differ, with the path of
    /// the file or of the stream's first file.
    ///
    /// # Errors
    /// As [`Contents::of`].
    pub fn differences(&self, folder: &Path) -> Result<Vec<(PathBuf, Difference)>, Error> {
        // A chunk that lies in its session's folder shares it with others: only what it names is its own.
        let own = self.contents.files.iter().filter_map(|file| {
            let mut components = Path::new(&file.path).components();
            match components.next() {
                Some(Component::Normal(top)) => Some(PathBuf::from(top)),
                _ => None,
            }
        });
        let tops: BTreeSet<PathBuf> = own.collect();
        let found = Contents::told(folder, Some(&tops), Told::ByHeaders)?;
        let mut differences = Vec::new();
        self.compare_files(&found, &mut differences);
        self.compare_streams(&found, &mut differences);
        Ok(differences.into_iter().map(|(path, what)| (folder.join(path), what)).collect())
    }

    fn compare_files(&self, found: &Contents, differences: &mut Vec<(String, Difference)>) {
        let there: BTreeMap<&str, &ManifestFile> =
            found.files.iter().map(|file| (&*file.path, file)).collect();
        let mut named = BTreeSet::new();
        for file in &self.contents.files {
            named.insert(&*file.path);
            let difference = match there.get(&*file.path) {
                None => Difference::Missing { bytes: file.bytes },
                Some(now) if now.bytes != file.bytes => {
                    Difference::Length { found: now.bytes, expected: file.bytes }
                }
                Some(now) if now.sha256 != file.sha256 => Difference::Changed,
                Some(ManifestFile { compressed: Some(now), .. })
                    if file.compressed.as_ref().is_some_and(|compressed| compressed != now) =>
                {
                    Difference::Recompressed
                }
                Some(_) => continue,
            };
            differences.push((file.path.clone(), difference));
        }
        if self.contents.files_unlisted == 0 {
            let unnamed = there.keys().filter(|path| !named.contains(**path));
            differences.extend(unnamed.map(|path| ((*path).to_owned(), Difference::Unnamed)));
        }
    }

    fn compare_streams(&self, found: &Contents, differences: &mut Vec<(String, Difference)>) {
        let by_files = |streams: &'_ [ManifestStream]| -> BTreeMap<Vec<String>, ManifestStream> {
            streams.iter().map(|stream| (stream.files.clone(), stream.clone())).collect()
        };
        let (told, mut there) = (by_files(&self.contents.streams), by_files(&found.streams));
        let mut other = |stream: &ManifestStream, there| {
            let files = stream.files.len() as u64;
            let what = Difference::OtherStream { there, class_id: stream.class_id, files };
            differences.push((stream.files.first().cloned().unwrap_or_default(), what));
        };
        let mut numbers = Vec::new();
        for (files, stream) in &told {
            let Some(now) = there.remove(files) else {
                other(stream, "nothing can be read of");
                continue;
            };
            let path = files.first().cloned().unwrap_or_default();
            for ((what, expected), (_, found)) in stream.numbers().into_iter().zip(now.numbers()) {
                // What packets do not tell, an index told.
                if let Some(found) = found.filter(|found| Some(*found) != expected) {
                    numbers.push((path.clone(), Difference::Stream { what, found, expected }));
                }
            }
        }
        there.values().for_each(|stream| other(stream, "the manifest does not name"));
        differences.extend(numbers);
    }
}

fn shown(number: Option<i128>) -> String {
    number.map_or_else(|| "nothing".to_owned(), |number| number.to_string())
}
