//! Writing event records, class by class.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

use ctf::format::Output;
use ctf::format::json::JsonWriter;
use ctf::{EventRecord, Scope, TraceClass};
use datafusion::arrow::array::{ArrayRef, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions,
    compute_leaves,
};
use datafusion::parquet::basic::{Compression, Encoding, ZstdLevel};
use datafusion::parquet::file::metadata::KeyValue;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::file::writer::SerializedFileWriter;
use model::TimeRange;
use tracedir::{ClassCache, Item, ReadOptions, Recording};

use super::pages::Spill;
use super::registry::{self, Class, Registry};
use super::slots::packed;
use crate::build::{Getters, Origin, Rows};
use crate::columns;
use crate::error::Error;
use crate::source::Lost;

/// The most rows of a row group.
const GROUP_ROWS: u64 = 1 << 20;
/// How many rows are turned into arrays at once.
const BATCH_ROWS: usize = 8_192;

/// What was exported.
#[derive(Debug)]
pub struct Exported {
    /// Event records.
    pub rows: u64,
    /// Classes that have any.
    pub classes: usize,
    /// What was lost when it was recorded.
    pub lost: Lost,
    /// What could not be read, a line each; the rest was.
    pub findings: Vec<String>,
    /// How many findings there are beyond those.
    pub more_findings: u64,
}

/// Writes all event records of the recordings at or below `paths` to `target` as Parquet. Pages that wait for their row group
/// are kept in `pages`, an empty file that may be removed already.
///
/// # Errors
/// As [`Recording::open_as`]; [`Error::Parquet`], [`Error::Arrow`] when the rows cannot be written.
pub fn export_events<P: AsRef<Path>>(
    paths: &[P],
    options: &ReadOptions,
    target: File,
    pages: File,
) -> Result<Exported, Error> {
    let recording = Recording::open_as(paths, options, &mut ClassCache::default())?;
    let mut export = Export::new(&recording, target, pages)?;
    let mut lost = Lost::default();
    let mut merged = recording.merged(TimeRange::ALL);
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => export.take(event.stream_index, &event.record)?,
            Item::Loss(loss) => lost.add(&loss),
        }
    }
    let (opened, read) = (recording.findings(), merged.findings());
    let findings = opened.kept().iter().chain(read.kept()).map(ToString::to_string).collect();
    let (rows, classes) = export.finish(lost)?;
    Ok(Exported { rows, classes, lost, findings, more_findings: opened.more() + read.more() })
}

struct Export<'r> {
    recording: &'r Recording,
    schema: SchemaRef,
    file: SerializedFileWriter<BufWriter<File>>,
    groups: ArrowRowGroupWriterFactory,
    /// Bound: classes that the traces declare.
    classes: Vec<OfClass>,
    /// By name, their positions.
    names: BTreeMap<String, usize>,
    /// By stream and class of a trace: the position of its name's, and where its fields lie. Bound: the same for each stream.
    known: HashMap<(usize, usize, u64), (usize, Getters)>,
}

/// The rows of one class.
struct OfClass {
    class: Class,
    rows: Rows,
    /// Payloads that columns do not tell.
    payloads: Option<StringViewBuilder>,
    shown: (JsonWriter, Output),
    /// The row group that is being written, by column.
    open: Vec<ArrowColumnWriter>,
    open_rows: u64,
    /// Those that are complete; their pages lie in the file of pages.
    done: Vec<Vec<ArrowColumnChunk>>,
}

impl<'r> Export<'r> {
    fn new(recording: &'r Recording, target: File, pages: File) -> Result<Self, Error> {
        let schema = registry::schema();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
            .set_column_dictionary_enabled("ts".into(), false)
            .set_column_encoding("ts".into(), Encoding::DELTA_BINARY_PACKED)
            .set_statistics_enabled(EnabledStatistics::Page)
            .build();
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_page_store_factory(Arc::new(Spill::new(pages)));
        let target = BufWriter::new(target);
        let writer = ArrowWriter::try_new_with_options(target, Arc::clone(&schema), options)?;
        let (file, groups) = writer.into_serialized_writer()?;
        let (classes, names, known) = (Vec::new(), BTreeMap::new(), HashMap::new());
        Ok(Self { recording, schema, file, groups, classes, names, known })
    }

    fn take(&mut self, stream: usize, record: &EventRecord<'_>) -> Result<(), Error> {
        let trace = record.trace_class();
        let address = std::ptr::from_ref::<TraceClass>(trace).addr();
        let key = (stream, address, u64::from(record.class().index()));
        let (position, getters) = match self.known.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let name = record.class().name();
                let position = *self.names.entry(name.to_owned()).or_insert_with(|| {
                    self.classes.push(OfClass::new(self.recording, name));
                    self.classes.len() - 1
                });
                let Some(of_class) = self.classes.get_mut(position) else { return Ok(()) };
                let origin = Origin::new(trace, stream);
                free.insert((position, of_class.rows.getters(trace, record.class(), &origin)))
            }
        };
        let Some(of_class) = self.classes.get_mut(*position) else { return Ok(()) };
        of_class.take(record, getters);
        if of_class.rows.len() >= BATCH_ROWS {
            of_class.flush(&self.schema, &self.groups)?;
        }
        Ok(())
    }

    /// How many rows of how many classes there are.
    fn finish(mut self, lost: Lost) -> Result<(u64, usize), Error> {
        let mut rows = 0;
        let mut classes = Vec::new();
        let mut all = std::mem::take(&mut self.classes);
        all.sort_by(|one, other| one.class.name.cmp(&other.class.name));
        for mut of_class in all {
            of_class.flush(&self.schema, &self.groups)?;
            of_class.end_group()?;
            for group in of_class.done {
                let mut writer = self.file.next_row_group()?;
                for column in group {
                    column.append_to_row_group(&mut writer)?;
                }
                writer.close()?;
            }
            rows += of_class.class.rows;
            classes.push(of_class.class);
        }
        let count = classes.len();
        let registry = Registry {
            format: registry::FORMAT.to_owned(),
            lost_event_records: lost.event_records,
            lost_packets: lost.packets,
            classes,
        };
        let text = serde_json::to_string(&registry).map_err(|error| Error::Io(error.into()))?;
        self.file.append_key_value_metadata(KeyValue::new(registry::KEY.to_owned(), text));
        let file = self.file.into_inner()?.into_inner().map_err(|error| error.into_error())?;
        // It appears under its name only when it is on the disk.
        file.sync_all()?;
        Ok((rows, count))
    }
}

impl OfClass {
    fn new(recording: &Recording, name: &str) -> Self {
        let columns = columns::of_class(recording, name).unwrap_or_default();
        let class = Class::new(recording, name, &columns);
        let payloads = class.payload.is_none().then(crate::build::texts);
        Self {
            rows: Rows::new(columns::schema(&columns), &columns),
            payloads,
            shown: (JsonWriter::new(), Output::new()),
            class,
            open: Vec::new(),
            open_rows: 0,
            done: Vec::new(),
        }
    }

    fn take(&mut self, record: &EventRecord<'_>, getters: &Getters) {
        self.rows.push(record, getters);
        if let Some(payloads) = &mut self.payloads {
            let (json, out) = &mut self.shown;
            out.clear();
            json.write_scope(record, Scope::Payload, out);
            payloads.append_value(String::from_utf8_lossy(out.as_bytes()));
        }
    }

    /// Encodes the rows since the last time.
    fn flush(
        &mut self,
        schema: &SchemaRef,
        groups: &ArrowRowGroupWriterFactory,
    ) -> Result<(), Error> {
        let rows = self.rows.take_batch()?;
        let count = rows.num_rows();
        if count == 0 {
            return Ok(());
        }
        if self.open.is_empty() {
            self.open = groups.create_column_writers(0)?;
        }
        let name = std::iter::repeat_n(Some(self.class.name.as_str()), count);
        let name: ArrayRef = Arc::new(name.collect::<StringViewArray>());
        let payloads = self.payloads.as_mut();
        let payloads = payloads.map(|payloads| Arc::new(payloads.finish()) as ArrayRef);
        let slots = packed(schema, &self.class.columns, name, &rows, payloads.as_ref())?;
        let mut writers = self.open.iter_mut();
        for (field, slot) in schema.fields().iter().zip(&slots) {
            for leaf in compute_leaves(field, slot)? {
                if let Some(writer) = writers.next() {
                    writer.write(&leaf)?;
                }
            }
        }
        self.class.rows += count as u64;
        self.open_rows += count as u64;
        if self.open_rows >= GROUP_ROWS {
            self.end_group()?;
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<(), Error> {
        if self.open_rows > 0 {
            self.open_rows = 0;
            let columns = std::mem::take(&mut self.open).into_iter();
            self.done.push(columns.map(ArrowColumnWriter::close).collect::<Result<_, _>>()?);
        }
        Ok(())
    }
}
