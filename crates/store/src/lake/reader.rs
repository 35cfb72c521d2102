//! Blocks in a place, read by somebody who does not write there: beside a store that runs, or without any.

use std::collections::HashSet;
use std::path::Path;

use bytes::Bytes;
use objects::{Io, Store};
use rules::Book;

use super::job::fetch;
use super::name::{BlockName, Tenant};
use super::{CATALOGUE, MAX_BLOCK_BYTES};
use crate::block::header;
use crate::catalogue::{self, live_blocks, url_of_file};
use crate::cells::KnownSeries;
use crate::error::Error;

/// The blocks that a place had when it was opened. Of those that a store merges meanwhile the files stay for
/// [`ENDED_STAY`](super::ENDED_STAY); who reads longer is told that they are gone.
#[derive(Debug)]
pub struct Reader {
    store: Store,
    /// The URL of the catalogue, if there is one.
    catalogue: Option<String>,
    blocks: Vec<Block>,
}

/// A block that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// One that is named as the store does it.
    Named(BlockName),
    /// A file with a name of its own.
    File(String),
}

impl Block {
    /// Its name, from which its times are known before it is read.
    #[must_use]
    pub const fn name(&self) -> Option<&BlockName> {
        match self {
            Self::Named(name) => Some(name),
            Self::File(_) => None,
        }
    }

    /// Whose samples are in it, where its name says it.
    #[must_use]
    pub fn tenant(&self) -> Option<&Tenant> {
        self.name().map(|name| &name.tenant)
    }

    /// What is wrong with it, with its name.
    #[must_use]
    pub fn blame(&self, error: Error) -> Error {
        match self {
            Self::Named(name) => error.of(name),
            Self::File(name) => Error::File { name: name.clone(), source: Box::new(error) },
        }
    }
}

impl Reader {
    /// Opens one block's file, a folder or a bucket. Which blocks there are is what the catalogue says: at `catalogue`, or in the folder.
    /// Where there is none it is what blocks say: those that others stand for are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Objects`], [`Error::Catalogue`]; [`Error::NoBlocks`] for a place that is not there or has none; [`Error::Block`] for a block
    /// that cannot be read, where there is no catalogue.
    pub fn open(place: &str, catalogue: Option<&str>, io: &Io) -> Result<Self, Error> {
        let path = Path::new(place.strip_prefix("file://").unwrap_or(place));
        if path.is_file() {
            return Self::of_file(path, io);
        }
        // A folder that is opened to write is made, and nothing is made here.
        let is_bucket = place.contains("://") && !place.starts_with("file://");
        if !is_bucket && !path.is_dir() {
            return Err(Error::NoBlocks { place: place.to_owned() });
        }
        let store = Store::open(place, io)?;
        let inside = store.folder().map(|folder| folder.join(CATALOGUE)).filter(|it| it.is_file());
        let catalogue = catalogue.map(ToOwned::to_owned).or_else(|| Some(url_of_file(&inside?)));
        let names = match &catalogue {
            Some(url) => live_blocks(url)?,
            None => by_headers(&store)?,
        };
        let blocks = names.into_iter().map(Block::Named).collect();
        Ok(Self { store, catalogue, blocks })
    }

    /// One block alone.
    fn of_file(path: &Path, io: &Io) -> Result<Self, Error> {
        let missing = || Error::NoBlocks { place: path.display().to_string() };
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = parent.unwrap_or(Path::new(".")).to_str().ok_or_else(missing)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(missing)?;
        let block = name.parse().map_or_else(|_| Block::File(name.to_owned()), Block::Named);
        let store = Store::open(folder, io)?;
        Ok(Self { store, catalogue: None, blocks: vec![block] })
    }

    /// The blocks, by tenant and time.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The rules of a tenant and its series that were exported, as the catalogue has them at this moment; none where there is no catalogue.
    ///
    /// # Errors
    ///
    /// [`Error::Catalogue`].
    pub fn exported(&self, tenant: &Tenant) -> Result<Option<(Book, KnownSeries)>, Error> {
        let url = self.catalogue.as_deref();
        Ok(url.map(|url| catalogue::exported(url, tenant)).transpose()?)
    }

    /// Bytes of all blocks, as their names say.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().filter_map(Block::name).map(|name| name.bytes).sum()
    }

    /// The bytes of a block.
    ///
    /// # Errors
    ///
    /// [`Error::Gone`], [`Error::Changed`], [`Error::Objects`].
    pub fn read(&self, block: &Block) -> Result<Bytes, Error> {
        match block {
            Block::Named(name) => fetch(&self.store, name),
            Block::File(name) => {
                let missing = || Error::NoBlocks { place: name.clone() };
                let bytes = self.store.get(name, MAX_BLOCK_BYTES)?.ok_or_else(missing)?;
                Ok(Bytes::from(bytes))
            }
        }
    }
}

/// The blocks of a place without those that others stand for, as a catalogue that is made anew would have them: of two merges of the same
/// block the one that stands for more.
fn by_headers(store: &Store) -> Result<Vec<BlockName>, Error> {
    let names: Vec<BlockName> =
        store.list("")?.iter().filter_map(|name| name.parse().ok()).collect();
    let (mut pushed, mut merged, mut live) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        if name.level == 0 {
            pushed.push(name);
        } else {
            let header = header(&fetch(store, &name)?).map_err(|error| error.of(&name))?;
            merged.push((name, header.replaces));
        }
    }
    merged.sort_by_key(|(name, replaces)| std::cmp::Reverse((name.level, replaces.len())));
    let mut replaced: HashSet<String> = HashSet::new();
    for (name, replaces) in merged {
        let is_another = replaces.iter().any(|id| replaced.contains(id));
        let is_replaced = replaced.contains(&name.id().to_string());
        if !is_another {
            replaced.extend(replaces);
        }
        if !is_another && !is_replaced {
            live.push(name);
        }
    }
    live.extend(pushed.into_iter().filter(|name| !replaced.contains(&name.id().to_string())));
    live.sort_unstable();
    Ok(live)
}
