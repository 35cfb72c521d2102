//! Names for frames that have none: functions, source lines and inlined calls of native code, by the build id of its file.
//!
//! ```text
//! frame without a name ─▶ (build id, address) ─▶ folders ─▶ cache ─▶ file ─▶ debug information, symbol table ─▶ frames
//!                                                            ▲
//!                                        debuginfod ─ fetch ─┘  beside it, for whoever asks next
//! ```
//!
//! Nobody waits for a server: what is not on this machine is fetched while frames stay as they are, and is there the next time. A file is believed
//! when the build id inside of it is the one that was asked for.

mod build_id;
mod cache;
mod fetch;
mod file;
mod files;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::samples::{Batch, Frame, FrameId, TextId};

pub use self::build_id::BuildId;
use self::cache::Cache;
use self::fetch::Fetcher;
pub use self::fetch::{Fetches, SettingsError};
use self::file::Place;
use self::files::Files;

/// What frames are named here whose function is not known: [`Frame::kind`] of OpenTelemetry's `profile.frame.type`, empty where their client
/// says none.
const KINDS: [&str; 4] = ["", "native", "go", "rust"];

/// Functions that are inlined into each other at one address, at most: those farther inside are left out.
const MAX_INLINED: usize = 64;

/// Where debug information is.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Folders with files below `.build-id/`, as `/usr/lib/debug` is one.
    pub folders: Vec<PathBuf>,
    /// debuginfod servers, each asked when the ones before do not have a file.
    pub servers: Vec<http::Uri>,
    /// Where files of servers are kept; needed when there are some.
    pub cache: Option<PathBuf>,
    /// Bytes of it.
    pub cache_bytes: u64,
}

/// What became of frames without a name. A frame counts once in each batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Named {
    /// It has one now.
    pub named: u64,
    /// No file with its build id is here.
    pub no_file: u64,
    /// The file knows no function there.
    pub no_function: u64,
    /// It is an offset in a file whose program headers are not here, so that nothing says where that is in memory.
    pub no_headers: u64,
    /// There was no time for it, as the files are large.
    pub no_time: u64,
}

/// Names frames.
#[derive(Debug)]
pub struct Symbolizer {
    files: Mutex<Files>,
    fetcher: Option<Fetcher>,
    named: Mutex<Named>,
}

impl Symbolizer {
    /// # Errors
    ///
    /// [`SettingsError`]
    pub fn new(settings: &Settings) -> Result<Self, SettingsError> {
        let cache = match (&settings.cache, settings.servers.is_empty()) {
            (Some(folder), false) => Some(Cache::open(folder, settings.cache_bytes)?),
            _ => None,
        };
        let fetcher = cache.clone().map(|cache| Fetcher::start(&settings.servers, cache));
        Ok(Self {
            files: Mutex::new(Files::new(settings.folders.clone(), cache)),
            fetcher: fetcher.transpose()?,
            named: Mutex::default(),
        })
    }

    /// Names what frames of native code have no function, as far as the files that are here know it. After `patience` the rest stays as it
    /// is; one file may take a second or two beyond that.
    pub fn symbolize(&self, batch: &mut Batch, patience: Duration) {
        let begin = Instant::now();
        let mut named = Named::default();
        let mut by: HashMap<FrameId, Vec<FrameId>> = HashMap::new();
        for (build_id, frames) in unnamed(batch) {
            let count = frames.len() as u64;
            if begin.elapsed() >= patience {
                named.no_time += count;
                continue;
            }
            let mut files = lock(&self.files);
            let Some(file) = files.get(&build_id) else {
                drop(files);
                named.no_file += count;
                if let Some(fetcher) = &self.fetcher {
                    fetcher.ask(build_id);
                }
                continue;
            };
            for (id, frame) in frames {
                if begin.elapsed() >= patience {
                    named.no_time += 1;
                    continue;
                }
                // A client that says no kind (pprof) gives offsets in the file.
                let place = match batch.text_of(frame.kind) {
                    "" => file.address_of(frame.address),
                    _ => Some(frame.address),
                };
                let Some(address) = place else {
                    named.no_headers += 1;
                    continue;
                };
                let places = file.find(address);
                if places.iter().all(|place| place.function.is_empty()) {
                    named.no_function += 1;
                    continue;
                }
                named.named += 1;
                by.insert(id, frames_of(batch, frame, &places));
            }
            let missing = file.missing();
            let wants_more = files.wants_more(&build_id);
            files.make_room(&build_id);
            drop(files);
            if let Some(fetcher) = &self.fetcher {
                missing.into_iter().for_each(|shared| fetcher.ask(shared));
                if wants_more {
                    fetcher.ask(build_id);
                }
            }
        }
        if !by.is_empty() {
            batch.replace_frames(&by);
        }
        lock(&self.named).add(named);
    }

    /// What became of frames so far.
    #[must_use]
    pub fn named(&self) -> Named {
        *lock(&self.named)
    }

    /// What was asked of servers so far; nothing when there are none.
    #[must_use]
    pub fn fetches(&self) -> Option<Fetches> {
        self.fetcher.as_ref().map(Fetcher::fetches)
    }
}

impl Named {
    const fn add(&mut self, more: Self) {
        let Self { named, no_file, no_function, no_headers, no_time } = more;
        self.named += named;
        self.no_file += no_file;
        self.no_function += no_function;
        self.no_headers += no_headers;
        self.no_time += no_time;
    }
}

/// Frames of native code without a function, by the build id of their file, in an order that hangs on them alone.
fn unnamed(batch: &Batch) -> Vec<(BuildId, Vec<(FrameId, Frame)>)> {
    let mut ids: HashMap<TextId, Option<BuildId>> = HashMap::new();
    let mut found: HashMap<BuildId, Vec<(FrameId, Frame)>> = HashMap::new();
    for (id, frame) in batch.frames_of_stacks() {
        let is_unnamed = frame.function == TextId::default() && frame.address != 0;
        if !is_unnamed || !KINDS.contains(&batch.text_of(frame.kind)) {
            continue;
        }
        let known =
            ids.entry(frame.build_id).or_insert_with(|| batch.text_of(frame.build_id).parse().ok());
        if let Some(build_id) = known {
            found.entry(build_id.clone()).or_default().push((id, frame));
        }
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    // Neighbours are of one unit of debug information.
    found.iter_mut().for_each(|(_, frames)| frames.sort_by_key(|(_, frame)| frame.address));
    found
}

/// What stands for a frame: the functions at its address, the innermost first.
fn frames_of(batch: &mut Batch, frame: Frame, places: &[Place]) -> Vec<FrameId> {
    let places = places.get(places.len().saturating_sub(MAX_INLINED)..).unwrap_or_default();
    let mut frames = Vec::with_capacity(places.len());
    for (at, place) in (1..).zip(places) {
        let function = batch.text(&place.function);
        let file = batch.text(&place.file);
        let Place { line, start_line, .. } = *place;
        let is_inlined = at < places.len();
        let named = Frame { function, file, line, start_line, is_inlined, ..frame };
        frames.push(batch.frame(named));
    }
    frames
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
