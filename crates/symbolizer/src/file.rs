//! A file with debug information.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use object::ReadCache;
use symbols::{DebugLinks, Functions, Lines, SourceLine, readable};
use unwind::{Image, Segment, code_address};

use crate::build_id::BuildId;

/// Memory for units that were read of one file.
const UNITS_ROOM: usize = 32 << 20;
/// Answers that are kept of one file, some 200 bytes each.
const MAX_ANSWERS: usize = 64 << 10;
const ANSWER_BYTES: usize = 200;

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// As it was written; empty where it is not known.
    pub(crate) function: Arc<str>,
    /// Path of the source file; empty where it is not known.
    pub(crate) file: Arc<str>,
    /// 0 where it is not known.
    pub(crate) line: u32,
    /// 0 where it is not known.
    pub(crate) start_line: u32,
}

/// Read when it is first asked.
#[derive(Debug)]
pub(crate) struct DebugFile {
    debug: File,
    /// That it shares entries in with others.
    shared: Option<File>,
    /// The build id of that, where it is not here.
    missing: Option<BuildId>,
    /// Stretches of the executable that have bytes in the file which says so.
    segments: Vec<Segment>,
    functions: Option<Functions>,
    lines: Option<Lines>,
    answers: HashMap<u64, Arc<[Place]>>,
}

/// The build id in a file.
pub(crate) fn build_id_of(file: &File) -> Option<BuildId> {
    unwind::build_id(&ReadCache::new(file)).and_then(BuildId::new)
}

/// Whether a file has debug information itself.
pub(crate) fn has_debug_info(file: &File) -> bool {
    DebugLinks::of(&ReadCache::new(file)).is_some_and(|links| links.has_own)
}

impl DebugFile {
    /// The file with the debug information, and the executable itself if that is here.
    pub(crate) fn open(
        debug: File,
        executable: Option<File>,
        find: impl FnOnce(&BuildId) -> Option<File>,
    ) -> Option<Self> {
        let links = DebugLinks::of(&ReadCache::new(&debug))?;
        let shared_id = links.shared.and_then(|(_, id)| BuildId::new(&id));
        let shared = shared_id.as_ref().and_then(find);
        let missing = shared_id.filter(|_| shared.is_none());
        let segments = segments(executable.as_ref().unwrap_or(&debug));
        let (functions, lines) = {
            let bytes = ReadCache::new(&debug);
            let of_shared = shared.as_ref().map(ReadCache::new);
            let lines = Lines::with_room(&bytes, of_shared.as_ref(), UNITS_ROOM).ok();
            (Functions::of(&bytes).ok(), lines)
        };
        Some(Self { debug, shared, missing, segments, functions, lines, answers: HashMap::new() })
    }

    /// A file that this one shares entries in, and that is not here.
    pub(crate) fn missing(&self) -> Option<BuildId> {
        self.missing.clone()
    }

    /// Whether there is debug information.
    pub(crate) const fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    /// The address of a byte of the executable, if its program headers say where it is.
    pub(crate) fn address_of(&self, offset: u64) -> Option<u64> {
        code_address(&self.segments, offset)
    }

    /// The functions at an address, the innermost first.
    pub(crate) fn find(&mut self, address: u64) -> Arc<[Place]> {
        if let Some(known) = self.answers.get(&address) {
            return Arc::clone(known);
        }
        let bytes = ReadCache::new(&self.debug);
        let shared = self.shared.as_ref().map(ReadCache::new);
        let lines = self.lines.as_mut();
        let found = lines.and_then(|lines| lines.find(&bytes, shared.as_ref(), address).ok());
        let found = found.unwrap_or_default();
        let symbol = self.functions.as_ref().and_then(|all| all.find(&bytes, address));
        let symbol = symbol.map(|symbol| Arc::from(readable(&symbol.name)));
        let places: Arc<[Place]> = places(&found, symbol).into();
        if self.answers.len() >= MAX_ANSWERS {
            self.answers = HashMap::new();
        }
        self.answers.insert(address, Arc::clone(&places));
        places
    }

    /// Bytes of memory that this takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let functions = self.functions.as_ref().map_or(0, Functions::bytes);
        let lines = self.lines.as_ref().map_or(0, Lines::bytes);
        functions + lines + self.answers.len() * ANSWER_BYTES
    }
}

/// The function whose code it is has the name that the symbol table has for it, as in the packets of agents: of a function that was split it
/// tells the part.
fn places(lines: &[SourceLine], symbol: Option<Arc<str>>) -> Vec<Place> {
    let outermost = lines.len().saturating_sub(1);
    if lines.is_empty() {
        let file = Arc::from("");
        let place = symbol.map(|function| Place { function, file, line: 0, start_line: 0 });
        return place.into_iter().collect();
    }
    let place = |(at, line): (usize, &SourceLine)| {
        let symbol = symbol.clone().filter(|_| at == outermost);
        let written = || line.function.as_ref().map(|it| Arc::from(it.readable.as_str()));
        Place {
            function: symbol.or_else(written).unwrap_or_default(),
            file: line.file.clone().unwrap_or_default(),
            line: line.line,
            start_line: line.start_line,
        }
    };
    lines.iter().enumerate().map(place).collect()
}

/// What of a file is loaded to memory. Files with debug information alone have the addresses of it and none of the bytes.
fn segments(file: &File) -> Vec<Segment> {
    let bytes = ReadCache::new(file);
    let image = Image::parse(&bytes).ok();
    let all = image.as_ref().map(Image::segments).unwrap_or_default();
    all.iter().filter(|segment| segment.file_bytes > 0).copied().collect()
}
