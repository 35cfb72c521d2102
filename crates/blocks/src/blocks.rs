//! Where blocks are kept.

use std::collections::BTreeSet;

use objects::{Io, Store, Sync};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stitch::Summary;

use crate::block::{MAX_BYTES, Summarised, decode, encode};
use crate::error::{Damage, Error, Refused};
use crate::id::BlockId;

/// File name ending of blocks.
const ENDING: &str = ".block";

/// The blocks of one host, below a folder or a URL: `HOST/<name>.block`.
///
/// A block is put where nothing is, and never changed; two that make the same one at the same time make the same bytes.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    store: Store,
    host: String,
}

impl Blocks {
    pub(crate) fn open(url: &str, host: &str, io: &Io) -> Result<Self, Error> {
        let host = if host.is_empty() { "unnamed" } else { host };
        Ok(Self { store: Store::open(url, io)?, host: host.replace('/', "_") })
    }

    fn name(&self, id: &BlockId) -> String {
        format!("{}/{id}{ENDING}", self.host)
    }

    /// The names of all that are there.
    pub(crate) fn ids(&self) -> Result<BTreeSet<BlockId>, Error> {
        let names = self.store.list(&self.host)?;
        let id = |name: &String| BlockId::from_hex(name.strip_suffix(ENDING)?);
        Ok(names.iter().filter_map(id).collect())
    }

    /// What is in a block; `None` when it is not there. One that cannot be used is removed, so that it can be made again.
    pub(crate) fn get<T: DeserializeOwned>(
        &self,
        id: &BlockId,
    ) -> Result<Result<Option<T>, Refused>, Error> {
        let Some(bytes) = self.store.get(&self.name(id), MAX_BYTES)? else { return Ok(Ok(None)) };
        match decode(id, &bytes) {
            Ok(body) => Ok(Ok(Some(body))),
            Err(damage) => Ok(Err(self.refuse(*id, damage)?)),
        }
    }

    /// As [`Self::get`], with a look at the summary as well.
    pub(crate) fn summarised(
        &self,
        id: &BlockId,
    ) -> Result<Result<Option<Summarised>, Refused>, Error> {
        let found = self.get::<Summarised>(id)?;
        let summary = match &found {
            Ok(Some(body)) => Summary::from_bytes(&body.summary),
            _ => return Ok(found),
        };
        match summary {
            Ok(_) => Ok(found),
            Err(error) => Ok(Err(self.refuse(*id, Damage::Summary(error))?)),
        }
    }

    fn refuse(&self, id: BlockId, damage: Damage) -> Result<Refused, Error> {
        self.store.remove(&self.name(&id))?;
        Ok(Refused { id, damage })
    }

    /// Commits a block; says whether it was not there before.
    pub(crate) fn put(&self, id: &BlockId, body: &impl Serialize) -> Result<bool, Error> {
        let is_new = self.store.create(&self.name(id), encode(id, body)?, Sync::Later)?;
        tracing::debug!(block = %id, is_new, "made");
        Ok(is_new)
    }
}

/// A summary that was committed, where blocks are kept.
pub(crate) fn find(
    blocks: Option<&Blocks>,
    id: &BlockId,
) -> Result<Result<Option<Summarised>, Refused>, Error> {
    blocks.map_or(Ok(Ok(None)), |blocks| blocks.summarised(id))
}

/// Commits a summary where blocks are kept; says whether it was not there before.
pub(crate) fn keep(
    blocks: Option<&Blocks>,
    id: &BlockId,
    content: &Summarised,
) -> Result<bool, Error> {
    blocks.map_or(Ok(false), |blocks| blocks.put(id, content))
}
