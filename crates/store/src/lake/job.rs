//! One merge, for whoever reaches the objects: blocks in, one block out, and what it has by rules.
//!
//! A job says all that doing it needs, so it can be done in any process. It is a function of its blocks, and of the debug information by
//! which frames are named: two with the same that do the same job put the same bytes under the same name. Only the owner of the
//! catalogue makes its result take the place of the blocks.

use std::time::Duration;
use std::{fmt, marker};

use bytes::Bytes;
use ducklake::Numbers;
use export::Prefix;
use model::Timestamp;
use model::samples::Batch;
use objects::{Store, Sync};
use rules::{Bounds, Rule, SeriesLimits, Sums};
use serde::{Deserialize, Serialize};
use wire::remote_write::Labels;

use super::MAX_BLOCK_BYTES;
use super::name::{BlockName, Tenant};
use crate::block::{self, Header, Selection, read_into};
use crate::content::Digest;
use crate::error::Error;

/// Metrics wait for merges of level 1: no longer than this for names.
const FRESH_PATIENCE: Duration = Duration::from_secs(2);
/// Nobody waits for others.
const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks that become one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// How often the samples of the result were merged.
    pub level: u8,
    /// The blocks, all of one tenant, one at least.
    pub sources: Vec<BlockName>,
    /// What is counted of them, if anything is.
    pub counting: Option<Counting>,
}

/// By what samples are counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counting {
    /// Rules of the cell in which the samples came.
    pub rules: Vec<Rule>,
    /// What metrics' names begin with.
    prefix: String,
    /// Series that a tenant may have, and one metric of one rule.
    most: (usize, usize),
    /// The series that there are.
    known: Vec<Labels>,
}

/// Names frames that came without, as it can.
pub trait Symbolize: Send + marker::Sync + fmt::Debug {
    /// Has frames with functions stand for those without. What is not known within `patience` stays as it is.
    fn symbolize(&self, samples: &mut Batch, patience: Duration);
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The block.
    pub block: BlockName,
    /// What is counted.
    pub sums: Option<Sums>,
}

impl Counting {
    pub(super) fn new(
        rules: Vec<Rule>,
        prefix: &Prefix,
        limits: SeriesLimits,
        known: impl IntoIterator<Item = Labels>,
    ) -> Self {
        Self {
            rules,
            prefix: prefix.as_str().to_owned(),
            most: (limits.all, limits.of_metric),
            known: known.into_iter().collect(),
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        let (all, of_metric) = self.most;
        Bounds::new(SeriesLimits { all, of_metric }, self.known.iter().cloned())
    }

    fn sums(&self, samples: &Batch) -> Result<Sums, Error> {
        let prefix: Prefix =
            self.prefix.parse().map_err(|_error| Error::Job { what: "the prefix of metrics" })?;
        Ok(rules::sums(&self.rules, &prefix, samples, &self.bounds()))
    }
}

impl Job {
    /// Whose blocks they are.
    ///
    /// # Errors
    ///
    /// [`Error::Job`] when there are none, or of several.
    pub fn tenant(&self) -> Result<&Tenant, Error> {
        let [first, others @ ..] = self.sources.as_slice() else {
            return Err(Error::Job { what: "blocks: there is none" });
        };
        match others.iter().all(|other| other.tenant == first.tenant) {
            true => Ok(&first.tenant),
            false => Err(Error::Job { what: "blocks: they are of several tenants" }),
        }
    }

    /// When the result came: when the last of its blocks did.
    pub(super) fn came(&self) -> Timestamp {
        let came = self.sources.iter().map(|source| source.came);
        came.max().unwrap_or(Timestamp::from_nanos(0))
    }

    /// Does it: the block is there when this is done. `may_put` is told its name just before, and says whether the job was not
    /// lost meanwhile; [`None`] if it was. Frames are named before anything is counted.
    ///
    /// # Errors
    ///
    /// What reading and writing blocks meets first; one whose [`Error::is_damage`] names the block.
    pub fn run(
        &self,
        store: &Store,
        symbols: Option<&dyn Symbolize>,
        may_put: impl FnOnce(&BlockName) -> bool,
    ) -> Result<Option<Done>, Error> {
        let tenant = self.tenant()?;
        let mut all = Batch::new();
        for source in &self.sources {
            let bytes = fetch(store, source)?;
            read_into(&bytes, &Selection::all(), &mut all).map_err(|error| error.of(source))?;
        }
        let patience = if self.level <= 1 { FRESH_PATIENCE } else { PATIENCE };
        symbols.into_iter().for_each(|symbols| symbols.symbolize(&mut all, patience));
        let replaces: Vec<Digest> = self.sources.iter().map(BlockName::id).collect();
        let Some((header, bytes)) = block::encode_as(&all, &replaces)? else {
            return Err(Error::Job { what: "blocks: they have no samples" });
        };
        let sums = self.counting.as_ref().map(|counting| counting.sums(&all)).transpose()?;
        drop(all);
        let block = name(tenant, self.level, self.came(), &header, &bytes);
        if !may_put(&block) {
            return Ok(None);
        }
        store.create(&block.to_string(), bytes, Sync::AtOnce)?;
        Ok(Some(Done { block, sums }))
    }

    /// What the footer of the result says, if it is one of these blocks and is there whole.
    pub(super) fn check(&self, store: &Store, done: &Done) -> Result<Numbers, Error> {
        let block = &done.block;
        let is_of_job = block.tenant == *self.tenant()?
            && block.level == self.level
            && block.came == self.came()
            && done.sums.is_some() == self.counting.is_some();
        if !is_of_job {
            return Err(Error::Result { name: Box::new(block.clone()), what: "of another job" });
        }
        let bytes = fetch(store, block)?;
        let header = block::header(&bytes).map_err(|error| error.of(block))?;
        let replaces = self.sources.iter().map(|source| source.id().to_string());
        let begin = self.sources.iter().map(|source| source.begin).min();
        let end = self.sources.iter().map(|source| source.end).max();
        let is_whole = header.replaces.iter().cloned().eq(replaces)
            && (Some(block.begin), Some(block.end)) == (begin, end)
            && (header.begin_unix_ns, header.end_unix_ns)
                == (block.begin.nanos(), block.end.nanos());
        if !is_whole {
            return Err(Error::Result { name: Box::new(block.clone()), what: "of other blocks" });
        }
        Ok(Numbers::read(&bytes).map_err(crate::catalogue::Error::from)?)
    }
}

/// The name of a block's bytes.
pub(super) fn name(
    tenant: &Tenant,
    level: u8,
    came: Timestamp,
    header: &Header,
    bytes: &[u8],
) -> BlockName {
    BlockName {
        tenant: tenant.clone(),
        begin: Timestamp::from_nanos(header.begin_unix_ns),
        end: Timestamp::from_nanos(header.end_unix_ns),
        came,
        level,
        bytes: bytes.len() as u64,
        digest: Digest::of(bytes),
    }
}

/// The bytes of a block, which are what its name says.
pub(super) fn fetch(store: &Store, name: &BlockName) -> Result<Bytes, Error> {
    let found = store.get(&name.to_string(), MAX_BLOCK_BYTES)?;
    let bytes = found.ok_or_else(|| Error::Gone { name: Box::new(name.clone()) })?;
    if bytes.len() as u64 != name.bytes || Digest::of(&bytes) != name.digest {
        return Err(Error::Changed { name: Box::new(name.clone()) });
    }
    Ok(Bytes::from(bytes))
}
