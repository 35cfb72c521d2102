//! The files with debug information that are here, by build id.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;

use crate::build_id::BuildId;
use crate::cache::Cache;
use crate::file::{DebugFile, build_id_of, has_debug_info};

/// Where files lie below a folder.
const FOLDER: &str = ".build-id";
/// How names of files with debug information alone end, and those of executables.
const DEBUG: &str = ".debug";
const EXECUTABLE: &str = "";
/// Files that are open at once.
const MAX_OPEN: usize = 64;
/// Memory for what was read of all files, but for the one that is read.
const MAX_BYTES: usize = 256 << 20;

/// Files are found, opened, and closed again when there are too many.
#[derive(Debug)]
pub(crate) struct Files {
    folders: Vec<PathBuf>,
    cache: Option<Cache>,
    open: HashMap<BuildId, Open>,
    /// Counts what was asked for.
    clock: u64,
}

#[derive(Debug)]
struct Open {
    file: DebugFile,
    is_cached: bool,
    used: u64,
}

impl Files {
    pub(crate) fn new(folders: Vec<PathBuf>, cache: Option<Cache>) -> Self {
        Self { folders, cache, open: HashMap::new(), clock: 0 }
    }

    /// The file with the debug information of that with this build id, or with its symbols alone.
    pub(crate) fn get(&mut self, build_id: &BuildId) -> Option<&mut DebugFile> {
        self.clock += 1;
        if !self.open.get(build_id).is_some_and(|open| self.is_best(build_id, open)) {
            let (debug, is_cached) = self.find(build_id)?;
            let executable = self.find_below(build_id, EXECUTABLE);
            let shared = |shared: &BuildId| self.find(shared).map(|(file, _)| file);
            let file = DebugFile::open(debug, executable, shared)?;
            self.open.insert(build_id.clone(), Open { file, is_cached, used: 0 });
        }
        let found = self.open.get_mut(build_id)?;
        found.used = self.clock;
        Some(&mut found.file)
    }

    /// Whether nothing came meanwhile that would tell more.
    fn is_best(&self, build_id: &BuildId, open: &Open) -> bool {
        let has_come = |it: &BuildId| self.cache.as_ref().is_some_and(|cache| cache.has(it));
        let is_better = !open.file.has_lines() && !open.is_cached && has_come(build_id);
        !is_better && open.file.missing().is_none_or(|shared| self.find(&shared).is_none())
    }

    /// Whether a server could tell more of a file: it has no debug information, and is not from there.
    pub(crate) fn wants_more(&self, build_id: &BuildId) -> bool {
        self.open.get(build_id).is_some_and(|open| !open.file.has_lines() && !open.is_cached)
    }

    /// Closes files that were not used the longest, while there are too many, and not this one.
    pub(crate) fn make_room(&mut self, last: &BuildId) {
        let bytes =
            |open: &HashMap<_, Open>| open.values().map(|it| it.file.bytes()).sum::<usize>();
        while self.open.len() > MAX_OPEN || bytes(&self.open) > MAX_BYTES {
            let others = self.open.iter().filter(|(id, _)| *id != last);
            let oldest = others.min_by_key(|(_, open)| open.used).map(|(id, _)| id.clone());
            let Some(oldest) = oldest else { break };
            self.open.remove(&oldest);
        }
    }

    /// The first file with debug information, or the first at all; and whether it is from the cache.
    fn find(&self, build_id: &BuildId) -> Option<(File, bool)> {
        let mut first = None;
        for end in [DEBUG, EXECUTABLE] {
            if let Some(file) = self.find_below(build_id, end) {
                if has_debug_info(&file) {
                    return Some((file, false));
                }
                first = first.or(Some((file, false)));
            }
        }
        let cached = self.cache.as_ref().and_then(|cache| cache.get(build_id));
        let cached = cached.filter(|file| build_id_of(file).as_ref() == Some(build_id));
        cached.map(|file| (file, true)).or(first)
    }

    fn find_below(&self, build_id: &BuildId, end: &str) -> Option<File> {
        let digits = build_id.to_string();
        let (first, rest) = digits.split_at_checked(2)?;
        self.folders.iter().find_map(|folder| {
            let path = folder.join(FOLDER).join(first).join(format!("{rest}{end}"));
            let is_file = path.metadata().is_ok_and(|about| about.is_file());
            let file = is_file.then(|| File::open(path).ok()).flatten()?;
            (build_id_of(&file).as_ref() == Some(build_id)).then_some(file)
        })
    }
}
