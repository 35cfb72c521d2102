//! From the bytes of a block to a batch.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use model::Timestamp;
use model::samples::{Batch, ProfileType, Series, SeriesId};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;

use super::group::{Group, Run, Wanted};
use super::schema::{self, schema};
use super::{FORMAT, HEADER_KEY, Header};
use crate::content::Digest;
use crate::error::Error;

/// What of a block is asked for.
#[derive(Clone, Copy)]
pub struct Selection<'s> {
    /// Only what counts this; all types when absent.
    pub profile_type: Option<&'s ProfileType>,
    /// Only series that this says yes to.
    pub series: &'s dyn Fn(&Series) -> bool,
    /// Only what was sampled from the first to the last of these, both of them included.
    pub times: (Timestamp, Timestamp),
    /// What has to be known of samples.
    pub detail: Detail,
}

impl std::fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selection")
            .field("profile_type", &self.profile_type)
            .field("times", &self.times)
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}

impl Selection<'_> {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self {
            profile_type: None,
            series: &|_| true,
            times: (Timestamp::MIN, Timestamp::MAX),
            detail: Detail::Samples,
        }
    }

    pub(super) fn times(&self) -> RangeInclusive<i64> {
        self.times.0.nanos()..=self.times.1.nanos()
    }
}

/// What has to be known of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Each of them.
    Samples,
    /// The sum of those of a row: it stands as one sample of no profile and no span, at the first selected time of the row's series
    /// in its row group. What is asked for costs less then.
    Totals,
}

/// What a block says of itself.
///
/// # Errors
///
/// [`Error::Parquet`], [`Error::NoBlock`], [`Error::Header`], [`Error::Format`].
pub fn header(bytes: &Bytes) -> Result<Header, Error> {
    guarded(|| {
        header_of(ArrowReaderMetadata::load(bytes, ArrowReaderOptions::default())?.metadata())
    })
}

/// The decoder of Parquet ends by a panic on some bytes that nobody wrote as a block. What was read until then is whole rows' parts, as
/// after any error.
fn guarded<T>(read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let panicked = |_| Err(Error::NoBlock { what: "the decoder of Parquet cannot read it" });
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(panicked)
}

fn header_of(metadata: &ParquetMetaData) -> Result<Header, Error> {
    let pairs = metadata.file_metadata().key_value_metadata();
    let pair = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == HEADER_KEY));
    let text = pair.and_then(|pair| pair.value.as_deref());
    let text = text.ok_or(Error::NoBlock { what: "it has no header" })?;
    let header: Header = serde_json::from_str(text)?;
    match header.format {
        FORMAT => Ok(header),
        format => Err(Error::Format { format }),
    }
}

/// Adds what is selected of a block to a batch.
///
/// # Errors
///
/// Those of [`header`]; [`Error::NoBlock`] for other columns than a block's; [`Error::Damaged`]. The batch has what was read until then.
pub fn read_into(bytes: &Bytes, selection: &Selection<'_>, batch: &mut Batch) -> Result<(), Error> {
    guarded(|| read_groups(bytes, None, selection, batch, &mut |_batch| false))
}

/// The same, where `take` is shown the batch after each row group, and says whether it took what is in it, so that no more of a block than that has
/// to be in memory.
///
/// # Errors
///
/// As [`read_into`].
pub fn read_parts_into(
    bytes: &Bytes,
    selection: &Selection<'_>,
    batch: &mut Batch,
    mut take: impl FnMut(&mut Batch) -> bool,
) -> Result<(), Error> {
    guarded(|| read_groups(bytes, None, selection, batch, &mut take))
}

/// The numbers of the row groups of a block that may have something of what is selected and of a service, as far as their statistics say.
///
/// # Errors
///
/// As [`header`].
pub fn groups(
    bytes: &Bytes,
    selection: &Selection<'_>,
    service: Option<&str>,
) -> Result<Vec<usize>, Error> {
    guarded(|| {
        let metadata = ArrowReaderMetadata::load(bytes, ArrowReaderOptions::default())?;
        header_of(metadata.metadata())?;
        let wants = |group: &RowGroupMetaData| {
            let may_have_service =
                service.is_none_or(|service| may_have_text(group, schema::SERVICE, service));
            may_have_service && may_have(group, selection)
        };
        let groups = metadata.metadata().row_groups().iter().enumerate();
        Ok(groups.filter(|(_, group)| wants(group)).map(|(number, _)| number).collect())
    })
}

/// Adds what is selected of one row group to a batch, so that a block of any length is read with the memory of a row group.
///
/// # Errors
///
/// As [`read_into`].
pub fn read_group_into(
    bytes: &Bytes,
    number: usize,
    selection: &Selection<'_>,
    batch: &mut Batch,
) -> Result<(), Error> {
    guarded(|| read_groups(bytes, Some(number), selection, batch, &mut |_batch| false))
}

fn read_groups(
    bytes: &Bytes,
    only: Option<usize>,
    selection: &Selection<'_>,
    batch: &mut Batch,
    take: &mut dyn FnMut(&mut Batch) -> bool,
) -> Result<(), Error> {
    // What is not selected is known as that.
    let mut known: HashMap<Digest, Option<SeriesId>> = HashMap::new();
    for_each_group(bytes, only, selection, |group| {
        let mut runs = group.runs(selection)?;
        let new: Vec<Run> =
            runs.iter().filter(|run| !known.contains_key(&run.series)).cloned().collect();
        for (run, series) in new.iter().zip(group.series(&new)?) {
            let is_type = selection.profile_type.is_none_or(|it| *it == series.profile_type);
            let id = (is_type && (selection.series)(&series)).then(|| batch.series(series));
            known.insert(run.series, id);
        }
        let id = |run: &Run| known.get(&run.series).copied().flatten();
        runs.retain(|run| id(run).is_some());
        let wanted: Vec<Wanted> =
            runs.into_iter().filter_map(|run| Some(Wanted { series: id(&run)?, run })).collect();
        group.give(&wanted, selection, batch)?;
        if take(batch) {
            known.clear();
        }
        Ok(())
    })
}

/// Adds the series of a block that were sampled from the first to the last of these times, both of them included; their stacks and
/// samples are not read.
///
/// # Errors
///
/// As [`read_into`].
pub fn series_into(
    bytes: &Bytes,
    times: (Timestamp, Timestamp),
    found: &mut BTreeSet<Series>,
) -> Result<(), Error> {
    guarded(|| read_series(bytes, times, found))
}

fn read_series(
    bytes: &Bytes,
    times: (Timestamp, Timestamp),
    found: &mut BTreeSet<Series>,
) -> Result<(), Error> {
    let selection = Selection { times, ..Selection::all() };
    let mut known = HashSet::new();
    for_each_group(bytes, None, &selection, |group| {
        let mut runs = group.runs(&selection)?;
        runs.retain(|run| known.insert(run.series));
        found.extend(group.series(&runs)?);
        Ok(())
    })
}

/// Visits the row groups, or the only one, that have something of what is selected.
fn for_each_group(
    bytes: &Bytes,
    only: Option<usize>,
    selection: &Selection<'_>,
    mut visit: impl FnMut(&Group<'_>) -> Result<(), Error>,
) -> Result<(), Error> {
    let metadata = ArrowReaderMetadata::load(bytes, ArrowReaderOptions::default())?;
    header_of(metadata.metadata())?;
    if metadata.schema().fields() != schema().fields() {
        return Err(Error::NoBlock { what: "its columns are others" });
    }
    let mut first = 0;
    for (number, group) in metadata.metadata().row_groups().iter().enumerate() {
        let rows = usize::try_from(group.num_rows()).unwrap_or(usize::MAX);
        if only.is_none_or(|only| only == number) && may_have(group, selection) {
            visit(&Group { bytes, metadata: &metadata, number, first, rows })?;
        }
        first = first.saturating_add(rows);
    }
    Ok(())
}

/// Whether a row group may have something of what is selected, as far as its statistics say.
fn may_have(group: &RowGroupMetaData, selection: &Selection<'_>) -> bool {
    if let Some(wanted) = selection.profile_type
        && !may_have_text(group, schema::TYPE, &wanted.to_string())
    {
        return false;
    }
    let times = selection.times();
    let number =
        |name: &str,
         bound: fn(&parquet::file::statistics::ValueStatistics<i64>) -> Option<&i64>| {
            match statistics(group, name) {
                Some(Statistics::Int64(statistics)) => bound(statistics).copied(),
                _ => None,
            }
        };
    let begin = number(schema::BEGIN, |it| it.min_opt());
    let end = number(schema::END, |it| it.max_opt());
    begin.is_none_or(|begin| begin <= *times.end()) && end.is_none_or(|end| end >= *times.start())
}

/// Whether a column of a row group may have a text.
fn may_have_text(group: &RowGroupMetaData, name: &str, wanted: &str) -> bool {
    match statistics(group, name) {
        // A bound that is cut short is no bound any more.
        Some(Statistics::ByteArray(texts)) if texts.min_is_exact() && texts.max_is_exact() => {
            let wanted = wanted.as_bytes();
            texts.min_bytes_opt().is_none_or(|least| least <= wanted)
                && texts.max_bytes_opt().is_none_or(|most| wanted <= most)
        }
        _ => true,
    }
}

fn statistics<'g>(group: &'g RowGroupMetaData, name: &str) -> Option<&'g Statistics> {
    group.columns().iter().find(|it| it.column_path().string() == name)?.statistics()
}
