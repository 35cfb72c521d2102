//! A batch of a ring's words: `docs/formats/journal.md`.

use rings::{Cursor, Item, Items, SiteInfo, describe};
use serde::{Deserialize, Serialize};
use tracepoint::layout::{DROP_PLACES, Shape};

use crate::error::Error;
use crate::times::Times;

/// The longest name of a service, in bytes.
const MAX_SERVICE: usize = tracepoint::layout::SERVICE_LEN;

/// Positions of a ring's life stay below: at a gigabyte a second that is more than a century.
const MAX_POSITION: u64 = 1 << 62;

/// A process that records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// Tells its memory file from all others of this boot: inode and time of making by `CLOCK_MONOTONIC`.
    pub file: (u64, u64),
    /// Its number where the agent is; 0 when it cannot be seen from there.
    pub pid: u32,
    /// Its number as it sees it.
    pub own_pid: u32,
    /// What it calls itself.
    pub service: String,
}

/// A ring of a process: a thread's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RingId {
    /// The number of its place.
    pub place: u32,
    /// Which of the rings that the place has had.
    pub generation: u32,
    /// Its thread, as the process sees it.
    pub tid: u32,
    /// What its thread was called.
    pub thread: String,
}

/// Words of a ring that follow each other, with all that is needed to read them.
#[derive(Debug)]
pub struct RingBatch {
    /// Whose.
    pub process: Process,
    /// Of which thread.
    pub ring: RingId,
    /// What their times mean.
    pub times: Times,
    /// Where they begin.
    pub begin: Cursor,
    /// Where they end.
    pub end: Cursor,
    /// Records of the ring that are missing, of all its life, by [`DropReason`](tracepoint::DropReason).
    pub dropped: [u64; DROP_PLACES],
    /// The same of the process: those that came to no ring.
    pub dropped_of_process: [u64; DROP_PLACES],
    /// Records of a flight recorder that gave way right before the first of these.
    pub overwritten: u64,
    shape: Shape,
    sites: Vec<Option<SiteInfo>>,
    words: Vec<u64>,
}

/// As it is written, with borrowed bytes.
#[derive(Serialize, Deserialize)]
struct Form<'a> {
    process: Process,
    ring: RingId,
    times: Times,
    /// Positions and numbers.
    begin: (u64, u64),
    end: (u64, u64),
    dropped: [u64; DROP_PLACES],
    dropped_of_process: [u64; DROP_PLACES],
    overwritten: u64,
    ring_len: u64,
    #[serde(borrow)]
    sites: Vec<&'a [u8]>,
    words: &'a [u8],
}

impl RingBatch {
    /// Of what was read; `dropped` is what is missing of the ring and of its process. Of call sites only those are kept that its records are of.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub fn new(
        process: Process,
        ring: RingId,
        times: Times,
        read: &rings::Batch<'_>,
        shape: Shape,
        dropped: [[u64; DROP_PLACES]; 2],
    ) -> Result<Self, Error> {
        let [of_ring, of_process] = dropped;
        let mut batch = Self {
            process,
            ring,
            times,
            begin: read.cursor(),
            end: read.cursor(),
            dropped: of_ring,
            dropped_of_process: of_process,
            overwritten: read.overwritten,
            shape,
            sites: Vec::new(),
            words: read.words().to_vec(),
        };
        let mut is_used = vec![false; read.sites().len()];
        let mut items = read.items();
        let mut first = None;
        while let Some(item) = items
            .next_item()
            .map_err(|what| Error::Records { position: items.cursor().position, what })?
        {
            if let Item::Record(record) = &item {
                first.get_or_insert(record.number);
                if let Some(used) = is_used.get_mut(usize::from(record.site.number)) {
                    *used = true;
                }
            } else if first.is_none() {
                first = Some(items.cursor().number.saturating_sub(1));
            }
        }
        batch.end = items.cursor();
        // What was not certain is known by now.
        let number = first.unwrap_or(batch.begin.number);
        batch.begin = Cursor { number, is_certain: true, ..batch.begin };
        let sites = read.sites().iter().zip(is_used);
        batch.sites = sites.map(|(site, is_used)| site.clone().filter(|_| is_used)).collect();
        Ok(batch)
    }

    /// Its records and losses, in order.
    #[must_use]
    pub fn items(&self) -> Items<'_> {
        Items::new(&self.words, &self.sites, &self.shape, self.begin)
    }

    /// How many records it has; notes of losses are none.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub fn records(&self) -> Result<u32, Error> {
        let mut records = 0;
        self.each(|item| records += u32::from(matches!(item, Item::Record(_))))?;
        Ok(records)
    }

    /// The call sites of its records.
    pub fn sites(&self) -> impl Iterator<Item = &SiteInfo> {
        self.sites.iter().flatten()
    }

    /// Whether any of its records is of a call site of this name and module.
    #[must_use]
    pub fn has_site(&self, (name, target): (&str, &str)) -> bool {
        self.sites.iter().flatten().any(|site| site.name == name && site.target == target)
    }

    /// Goes through its items.
    ///
    /// # Errors
    /// [`Error::Records`].
    pub fn each<'a>(&'a self, mut visit: impl FnMut(&Item<'a>)) -> Result<(), Error> {
        let mut items = self.items();
        loop {
            match items.next_item() {
                Ok(Some(item)) => visit(&item),
                Ok(None) => return Ok(()),
                Err(what) => {
                    return Err(Error::Records { position: items.cursor().position, what });
                }
            }
        }
    }

    /// As bytes.
    ///
    /// # Errors
    /// [`Error::Form`]; there is no batch of which that is known.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let words: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let form = Form {
            process: self.process.clone(),
            ring: self.ring.clone(),
            times: self.times,
            begin: (self.begin.position, self.begin.number),
            end: (self.end.position, self.end.number),
            dropped: self.dropped,
            dropped_of_process: self.dropped_of_process,
            overwritten: self.overwritten,
            ring_len: self.shape.ring_len,
            sites: self.sites.iter().flatten().map(|site| site.description.as_slice()).collect(),
            words: &words,
        };
        Ok(postcard::to_allocvec(&form)?)
    }

    /// Of the bytes of one. Its records are checked when they are gone through.
    ///
    /// # Errors
    /// Any but [`Error::Records`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let form: Form<'_> = postcard::from_bytes(bytes)?;
        let shape = Shape { rings: 1, ring_len: form.ring_len, sites_len: 4096 };
        if !shape.is_valid() {
            return Err(Error::Value { field: "ring length", value: form.ring_len });
        }
        if form.words.len() as u64 > form.ring_len || !form.words.len().is_multiple_of(8) {
            let value = form.words.len() as u64;
            return Err(Error::Value { field: "length of words", value });
        }
        if form.process.service.len() > 4 * MAX_SERVICE {
            let value = form.process.service.len() as u64;
            return Err(Error::Value { field: "length of service", value });
        }
        let numbers = [form.begin.0, form.begin.1, form.end.0, form.end.1];
        if let Some(value) = numbers.into_iter().find(|number| *number > MAX_POSITION) {
            return Err(Error::Value { field: "position", value });
        }
        let mut sites: Vec<Option<SiteInfo>> = Vec::new();
        for (number, description) in form.sites.iter().enumerate() {
            let described = describe(description).filter(|(_, len)| *len == description.len());
            let (site, _) = described.ok_or(Error::Description { number })?;
            let at = usize::from(site.number);
            if sites.len() <= at {
                // Below `MAX_SITES`.
                sites.resize(at + 1, None);
            }
            if let Some(place) = sites.get_mut(at) {
                *place = Some(site);
            }
        }
        let (words, _) = form.words.as_chunks::<8>();
        let cursor = |(position, number)| Cursor { position, number, is_certain: true };
        Ok(Self {
            process: form.process,
            ring: form.ring,
            times: form.times,
            begin: cursor(form.begin),
            end: cursor(form.end),
            dropped: form.dropped,
            dropped_of_process: form.dropped_of_process,
            overwritten: form.overwritten,
            shape,
            sites,
            words: words.iter().map(|word| u64::from_le_bytes(*word)).collect(),
        })
    }
}

impl Process {
    /// As bytes.
    ///
    /// # Errors
    /// [`Error::Form`]; there is no process of which that is known.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        Ok(postcard::to_allocvec(self)?)
    }

    /// Of the bytes of one.
    ///
    /// # Errors
    /// [`Error::Form`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Ok(postcard::from_bytes(bytes)?)
    }
}
