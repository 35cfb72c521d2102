//! Reading exported files: which row groups a question needs, and what of them.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, StringViewArray,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{SchemaRef, TimestampNanosecondType};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::file::statistics::Statistics;

use super::json;
use super::registry::{self, Class, PAYLOAD, REST, Registry};
use super::slots::{restored, texts_of};
use crate::columns::Kind;
use crate::error::Error;
use crate::filter::Times;
use crate::source::Lost;
use crate::stream::{Find, Sink};

/// An exported file.
#[derive(Debug)]
pub(crate) struct Exported {
    path: PathBuf,
    metadata: ArrowReaderMetadata,
    pub(super) registry: Registry,
    /// Of each row group its class, by position in the registry.
    groups: Vec<usize>,
}

/// Exported files that are asked together.
#[derive(Debug)]
pub(crate) struct Files(pub(super) Vec<Exported>);

impl Files {
    /// # Errors
    /// [`Error::NotExported`] with the path of the first that this crate did not write.
    pub(crate) fn open<P: AsRef<Path>>(paths: &[P]) -> Result<Self, Error> {
        paths.iter().map(|path| Exported::open(path.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// What was lost when these were recorded.
    pub(crate) fn lost(&self) -> Lost {
        self.0.iter().fold(Lost::default(), |sum, file| Lost {
            event_records: sum.event_records.saturating_add(file.registry.lost_event_records),
            packets: sum.packets.saturating_add(file.registry.lost_packets),
        })
    }

    /// Bytes of all row groups.
    pub(crate) fn bytes(&self) -> u64 {
        let groups = self.0.iter().flat_map(|file| file.metadata.metadata().row_groups());
        groups.map(|group| u64::try_from(group.compressed_size()).unwrap_or(0)).sum()
    }
}

impl Exported {
    fn open(path: &Path) -> Result<Self, Error> {
        let refused = |why: &str| Error::NotExported { path: path.to_owned(), why: why.to_owned() };
        let file = File::open(path)?;
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
            .map_err(|error| refused(&error.to_string()))?;
        let pairs = metadata.metadata().file_metadata().key_value_metadata();
        let text = pairs.into_iter().flatten().find(|pair| pair.key == registry::KEY);
        let text = text.and_then(|pair| pair.value.as_deref());
        let text = text.ok_or_else(|| refused("it has no registry of classes"))?;
        let registry: Registry = serde_json::from_str(text)
            .map_err(|error| refused(&format!("its registry of classes: {error}")))?;
        if registry.format != registry::FORMAT {
            return Err(refused(&format!("its format is {:?}", registry.format)));
        }
        if !registry::has_columns(metadata.schema()) {
            return Err(refused("its columns are others"));
        }
        let groups = groups(&metadata, &registry)
            .ok_or_else(|| refused("its row groups are not those of its registry"))?;
        Ok(Self { path: path.to_owned(), metadata, registry, groups })
    }

    /// The least and the greatest time of a row group, where it says so.
    fn times(&self, group: usize) -> Option<(i64, i64)> {
        match self.metadata.metadata().row_groups().get(group)?.columns().first()?.statistics()? {
            Statistics::Int64(times) => Some((*times.min_opt()?, *times.max_opt()?)),
            _ => None,
        }
    }
}

/// The class of each row group: they follow each other by classes, each with all of its class's rows.
fn groups(metadata: &ArrowReaderMetadata, registry: &Registry) -> Option<Vec<usize>> {
    let mut classes = registry.classes.iter().enumerate();
    let (mut at, mut left) = (0, 0);
    let mut groups = Vec::new();
    for group in metadata.metadata().row_groups() {
        while left == 0 {
            let (next, class) = classes.next()?;
            (at, left) = (next, class.rows);
        }
        left = left.checked_sub(u64::try_from(group.num_rows()).ok()?)?;
        groups.push(at);
    }
    (left == 0 && classes.all(|(_, class)| class.rows == 0)).then_some(groups)
}

/// A column that is asked for.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// One of a class's table, by name.
    Column(String, Kind),
    /// One that all classes have, by its name in the file.
    Common(&'static str),
    /// The payload as JSON.
    Payload,
}

/// What is asked of exported files.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) files: Arc<Files>,
    pub(super) asked: Vec<Asked>,
    pub(super) schema: SchemaRef,
    /// Names of classes; all without.
    pub(super) classes: Option<Vec<String>>,
    pub(super) times: Times,
    pub(super) partitions: usize,
}

impl Question {
    /// The row groups that can have rows: positions of files and row groups.
    fn groups(&self) -> Vec<(usize, usize)> {
        let wants =
            |class: &Class| self.classes.as_ref().is_none_or(|wanted| wanted.contains(&class.name));
        let may_have = |file: &Exported, group| {
            let Some((least, greatest)) = file.times(group).filter(|_| self.times.is_asked())
            else {
                return !self.times.is_empty();
            };
            self.times.overlaps(least, greatest)
        };
        let mut found = Vec::new();
        for (at, file) in self.files.0.iter().enumerate() {
            for (group, class) in file.groups.iter().enumerate() {
                let class = file.registry.classes.get(*class);
                if class.is_some_and(wants) && may_have(file, group) {
                    found.push((at, group));
                }
            }
        }
        found
    }

    fn group(&self, file: &Exported, group: usize, sink: &mut Sink) -> Result<(), Error> {
        let class = file.groups.get(group).and_then(|class| file.registry.classes.get(*class));
        let Some(class) = class else { return Ok(()) };
        let mut needed: Vec<&str> =
            self.asked.iter().flat_map(|asked| slots(asked, class)).collect();
        if self.times.is_asked() {
            needed.push("ts");
        }
        let parquet = file.metadata.parquet_schema();
        let roots = file.metadata.schema().fields().iter().enumerate();
        let roots = roots.filter(|(_, field)| needed.contains(&field.name().as_str()));
        let mask = ProjectionMask::roots(parquet, roots.map(|(at, _)| at));
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(
            File::open(&file.path)?,
            file.metadata.clone(),
        );
        let reader = reader
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(sink.batch_rows())
            .build()?;
        for batch in reader {
            let batch = batch?;
            let columns = self.asked.iter().zip(self.schema.fields()).map(|(asked, field)| {
                let found = answer(asked, class, &batch);
                found.unwrap_or_else(|| {
                    datafusion::arrow::array::new_null_array(field.data_type(), batch.num_rows())
                })
            });
            let columns: Vec<ArrayRef> = columns.collect();
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let mut rows =
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
            if self.times.is_asked() {
                rows = filter_record_batch(&rows, &self.in_time(&batch))?;
            }
            if sink.batch(&rows).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn in_time(&self, batch: &RecordBatch) -> BooleanArray {
        let times = batch.column_by_name("ts");
        let times = times.and_then(|ts| ts.as_primitive_opt::<TimestampNanosecondType>());
        match times {
            Some(times) => times.iter().map(|at| Some(self.times.take(at))).collect(),
            None => vec![false; batch.num_rows()].into(),
        }
    }
}

impl Find for Question {
    fn find(&self, partition: usize, sink: &mut Sink) -> Result<(), Error> {
        let groups = self.groups();
        for (at, group) in groups.into_iter().skip(partition).step_by(self.partitions) {
            if sink.wants_more().is_break() {
                break;
            }
            if let Some(file) = self.files.0.get(at) {
                self.group(file, group, sink)?;
            }
        }
        Ok(())
    }

    fn partitions(&self) -> usize {
        self.partitions
    }

    fn explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ", row_groups={}", self.groups().len())?;
        if self.times.is_asked() {
            let range = self.times.range();
            write!(f, ", ts=[{}, {})", range.begin.nanos(), range.end.nanos())?;
        }
        Ok(())
    }
}

/// The file's columns that are needed for what is asked of a class.
fn slots<'a>(asked: &'a Asked, class: &'a Class) -> Vec<&'a str> {
    match asked {
        Asked::Common("class") => Vec::new(),
        Asked::Common(name) => vec![name],
        Asked::Column(name, _) => class
            .columns
            .iter()
            .filter(|known| known.name == *name)
            .map(|known| known.slot.as_str())
            .collect(),
        Asked::Payload => match &class.payload {
            None => vec![REST],
            Some(node) => {
                let mut columns = Vec::new();
                json::columns_of(node, &mut columns);
                let columns = columns.into_iter().filter_map(|at| class.columns.get(at));
                columns.map(|column| column.slot.as_str()).collect()
            }
        },
    }
}

/// A column that is asked for, of rows of a class; `None` where the class has none.
fn answer(asked: &Asked, class: &Class, rows: &RecordBatch) -> Option<ArrayRef> {
    let column = |at: usize| {
        let column = class.columns.get(at)?;
        let slot = rows.column_by_name(&column.slot)?;
        let name = Some(column.name.as_str()).filter(|_| column.slot == REST);
        Some(restored(column.kind, slot, name))
    };
    match asked {
        Asked::Common("class") => {
            let name = std::iter::repeat_n(Some(class.name.as_str()), rows.num_rows());
            Some(Arc::new(name.collect::<StringViewArray>()))
        }
        Asked::Common(name) => rows.column_by_name(name).map(Arc::clone),
        Asked::Column(name, kind) => {
            let at = class.columns.iter().position(|known| known.name == *name)?;
            column(at).filter(|found| *found.data_type() == kind.data_type())
        }
        Asked::Payload => Some(match &class.payload {
            Some(node) => {
                let mut needed = Vec::new();
                json::columns_of(node, &mut needed);
                let found: Vec<(usize, ArrayRef)> =
                    needed.into_iter().filter_map(|at| Some((at, column(at)?))).collect();
                let of = |at: usize| found.iter().find(|(known, _)| *known == at).map(|(_, c)| c);
                json::payloads(node, rows.num_rows(), &of)
            }
            None => {
                let map = rows.column_by_name(REST)?.as_map_opt()?;
                Arc::new(texts_of(map, PAYLOAD).collect::<StringViewArray>())
            }
        }),
    }
}
