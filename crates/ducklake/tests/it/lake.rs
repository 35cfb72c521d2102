//! A lake of small files in a folder, with its catalogue, and what readers should find in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeBinaryArray, Int32Array, Int64Array, ListArray, MapArray, RecordBatch,
    StringArray, StructArray, TimestampNanosecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use ducklake::{Change, DataFile, Layout, Numbers, Result, SnapshotId, Table};
use model::Timestamp;
use parquet::arrow::ArrowWriter;
use serde_json::{Value, json};
use sqlx::AnyConnection;
use tempfile::TempDir;
use testkit::postgres::Postgres;

use testkit::duckdb::DuckDb;

/// 2024-01-02 03:04:05 UTC.
pub(crate) const BEGIN: i64 = 1_704_164_645_000_000_000;

/// A row of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) at: i64,
    pub(crate) host: String,
    pub(crate) value: Option<i64>,
    /// A list of structures of two numbers: a time and a value.
    pub(crate) samples: Vec<(i64, i64)>,
}

impl Row {
    pub(crate) fn new(number: i64) -> Self {
        let at = BEGIN + number * 1_000_000_007;
        let samples = (0..number % 4).map(|sample| (at + sample, number * 10 + sample));
        Self {
            at,
            host: format!("host-{}", number % 3),
            value: (number % 5 != 0).then_some(number - 20),
            samples: samples.collect(),
        }
    }
}

fn field(name: &str, kind: DataType, id: u32) -> Field {
    let id = HashMap::from([("PARQUET:field_id".to_owned(), id.to_string())]);
    Field::new(name, kind, false).with_metadata(id)
}

const TIME: DataType = DataType::Timestamp(TimeUnit::Nanosecond, None);

/// How files are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    First,
    /// With a column and a part of one more, both nullable: `core`, always 7, and `samples[].span`, the sample's value.
    Second,
}

fn sample_fields(version: Version) -> Fields {
    let first = [field("at", TIME, 7), field("value", DataType::Int64, 8)];
    let span = field("span", DataType::Int64, 13).with_nullable(true);
    let second = (version == Version::Second).then_some(span);
    first.into_iter().chain(second).collect()
}

fn label_fields() -> Fields {
    vec![field("key", DataType::Utf8, 10), field("value", DataType::Utf8, 11)].into()
}

fn samples_field(version: Version) -> Arc<Field> {
    Arc::new(field("element", DataType::Struct(sample_fields(version)), 6))
}

fn labels_field() -> Arc<Field> {
    Arc::new(Field::new("key_value", DataType::Struct(label_fields()), false))
}

/// Columns of the files.
pub(crate) fn schema(version: Version) -> SchemaRef {
    let first = [
        field("begin", TIME, 1),
        field("host", DataType::Utf8, 2),
        field("value", DataType::Int64, 3).with_nullable(true),
        field("id", DataType::FixedSizeBinary(16), 4),
        field("samples", DataType::List(samples_field(version)), 5),
        field("labels", DataType::Map(labels_field(), true), 9),
    ];
    let core = field("core", DataType::Int32, 12).with_nullable(true);
    let second = (version == Version::Second).then_some(core);
    Arc::new(Schema::new(first.into_iter().chain(second).collect::<Vec<_>>()))
}

fn batch(rows: &[Row], version: Version) -> RecordBatch {
    let at = TimestampNanosecondArray::from_iter_values(rows.iter().map(|row| row.at));
    let host = StringArray::from_iter_values(rows.iter().map(|row| &row.host));
    let value: Int64Array = rows.iter().map(|row| row.value).collect();
    let ids = rows.iter().map(|row| u128::from(row.at.cast_unsigned()).to_be_bytes());
    let ids = FixedSizeBinaryArray::try_from_iter(ids).unwrap();
    let flat = rows.iter().flat_map(|row| row.samples.iter().copied());
    let (times, values): (Vec<i64>, Vec<i64>) = flat.unzip();
    let spans: ArrayRef = Arc::new(Int64Array::from(values.clone()));
    let parts: [ArrayRef; 2] =
        [Arc::new(TimestampNanosecondArray::from(times)), Arc::new(Int64Array::from(values))];
    let spans = (version == Version::Second).then_some(spans);
    let parts = parts.into_iter().chain(spans).collect();
    let samples = ListArray::new(
        samples_field(version),
        OffsetBuffer::from_lengths(rows.iter().map(|row| row.samples.len())),
        Arc::new(StructArray::new(sample_fields(version), parts, None)),
        None,
    );
    let keys = StringArray::from_iter_values(rows.iter().map(|_| "host"));
    let parts: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(host.clone())];
    let labels = MapArray::new(
        labels_field(),
        OffsetBuffer::from_lengths(rows.iter().map(|_| 1)),
        StructArray::new(label_fields(), parts, None),
        None,
        true,
    );
    let core: ArrayRef = Arc::new(Int32Array::from_iter_values(rows.iter().map(|_| 7)));
    let columns: [ArrayRef; 6] = [
        Arc::new(at),
        Arc::new(host),
        Arc::new(value),
        Arc::new(ids),
        Arc::new(samples),
        Arc::new(labels),
    ];
    let core = (version == Version::Second).then_some(core);
    let columns = columns.into_iter().chain(core).collect();
    RecordBatch::try_new(schema(version), columns).unwrap()
}

/// A lake in a folder.
pub(crate) struct Lake {
    pub(crate) folder: TempDir,
    pub(crate) connection: AnyConnection,
    pub(crate) table: Table,
    /// Its catalogue, as it is connected to here.
    pub(crate) url: String,
    /// As DuckDB attaches it.
    pub(crate) address: String,
    /// What is live.
    pub(crate) live: BTreeMap<String, Vec<Row>>,
    pub(crate) version: Version,
    clock: i64,
}

impl Lake {
    /// With its catalogue in SQLite.
    pub(crate) async fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("catalogue.sqlite").display());
        Self::at(folder, url.clone(), url).await
    }

    /// With its catalogue in PostgreSQL.
    pub(crate) async fn postgres(server: &Postgres) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = server.database("lake");
        let host = server.host().display();
        let address = format!("postgres:host={host} user=throughline dbname=lake");
        Self::at(folder, url, address).await
    }

    async fn at(folder: TempDir, url: String, address: String) -> Self {
        fs::create_dir_all(folder.path().join("blocks")).unwrap();
        let mut connection = ducklake::connect(&url).await.unwrap();
        let data = format!("{}/", folder.path().display());
        let at = Timestamp::from_nanos(BEGIN);
        let table = prepare(&mut connection, &data, &schema(Version::First), at).await.unwrap();
        let live = BTreeMap::new();
        let version = Version::First;
        Self { folder, connection, table, url, address, live, version, clock: BEGIN }
    }

    /// Prepares the catalogue again for a layout.
    pub(crate) async fn prepare(&mut self, version: Version) -> Result<()> {
        let at = self.now();
        let data = format!("{}/", self.folder.path().display());
        let table = prepare(&mut self.connection, &data, &schema(version), at).await?;
        assert_eq!(table, self.table);
        self.version = version;
        Ok(())
    }

    /// A second later than ever before.
    pub(crate) fn now(&mut self) -> Timestamp {
        self.clock += 1_000_000_000;
        Timestamp::from_nanos(self.clock)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, rows: &[Row]) -> DataFile {
        let path = self.folder.path().join("blocks").join(name);
        let schema = schema(self.version);
        let mut writer = ArrowWriter::try_new(File::create(&path).unwrap(), schema, None).unwrap();
        writer.write(&batch(rows, self.version)).unwrap();
        writer.close().unwrap();
        let bytes = fs::read(&path).unwrap();
        let numbers = Numbers::read(&bytes).unwrap();
        DataFile { path: name.to_owned(), bytes: bytes.len() as u64, numbers }
    }

    /// Writes files, commits them in place of others, and remembers what is live.
    pub(crate) async fn commit(
        &mut self,
        add: &[(&str, Vec<Row>)],
        end: &[&str],
    ) -> Result<SnapshotId> {
        let files: Vec<_> = add.iter().map(|(name, rows)| self.write(name, rows)).collect();
        let end: Vec<String> = end.iter().map(|path| (*path).to_owned()).collect();
        let change = Change { add: &files, end: &end, message: Some("a test") };
        let at = self.now();
        let mut transaction = ducklake::begin(&mut self.connection).await?;
        let snapshot = ducklake::commit(&mut transaction, &self.table, &change, at).await?;
        transaction.commit().await.unwrap();
        self.live.retain(|path, _| !end.contains(path));
        self.live.extend(add.iter().map(|(name, rows)| ((*name).to_owned(), rows.clone())));
        Ok(snapshot)
    }

    /// DuckDB finds what is live, by all kinds of columns, and nothing else by a filter on the time.
    pub(crate) fn check(&self, duckdb: &mut DuckDb) {
        let live: Vec<_> = self.live.values().flatten().cloned().collect();
        check(duckdb, "samples", &live);
    }

    /// A session in which the catalogue is attached.
    pub(crate) fn duckdb(&self) -> DuckDb {
        DuckDb::attach(&self.address)
    }
}

async fn prepare(
    connection: &mut AnyConnection,
    data: &str,
    schema: &Schema,
    at: Timestamp,
) -> Result<Table> {
    let mut transaction = ducklake::begin(connection).await?;
    let layout = Layout { data, table: "samples", folder: "blocks/", schema };
    let table = ducklake::prepare(&mut transaction, &layout, at).await?;
    transaction.commit().await.unwrap();
    Ok(table)
}

/// DuckDB finds these rows in a table, `AT` a snapshot perhaps.
pub(crate) fn check(duckdb: &mut DuckDb, table: &str, rows: &[Row]) {
    let sum = |rows: &[Row]| -> Option<i64> {
        let values: Vec<i64> = rows.iter().filter_map(|row| row.value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    };
    let times = || rows.iter().map(|row| row.at);
    let values = || rows.iter().filter_map(|row| row.value);
    let hosts = || rows.iter().map(|row| row.host.as_str());
    let found = duckdb.rows(&format!(
        "SELECT count(*), count(value), sum(value)::BIGINT, min(value), max(value), epoch_ns(min(begin)), epoch_ns(max(begin)), \
         min(host), max(host), sum(len(samples))::BIGINT FROM {table}"
    ));
    let lengths: usize = rows.iter().map(|row| row.samples.len()).sum();
    let expected = json!([[
        rows.len(),
        values().count(),
        sum(rows),
        values().min(),
        values().max(),
        times().min(),
        times().max(),
        hosts().min(),
        hosts().max(),
        (!rows.is_empty()).then_some(lengths),
    ]]);
    assert_eq!(found, expected, "{table}");

    let middle = times().min().unwrap_or(BEGIN) / 2 + times().max().unwrap_or(BEGIN) / 2;
    for (operator, keeps) in [("<", i64::lt as fn(&i64, &i64) -> bool), (">=", i64::ge)] {
        let kept: Vec<_> = rows.iter().filter(|row| keeps(&row.at, &middle)).cloned().collect();
        let found = duckdb.rows(&format!(
            "SELECT count(*), sum(value)::BIGINT FROM {table} WHERE begin {operator} make_timestamp_ns({middle})"
        ));
        assert_eq!(found, json!([[kept.len(), sum(&kept)]]), "{table} {operator} {middle}");
    }
    let nulls = duckdb.value(&format!("SELECT count(*) FROM {table} WHERE value IS NULL"));
    assert_eq!(nulls, json!(rows.len() - values().count()));
    let labels = duckdb.value(&format!("SELECT count(*) FROM {table} WHERE labels['host'] = host"));
    assert_eq!(labels, json!(rows.len()));
    let ids = duckdb.value(&format!("SELECT count(DISTINCT id) FROM {table}"));
    assert_eq!(ids, json!(rows.iter().map(|row| row.at).collect::<BTreeSet<_>>().len()));
    if let Some(row) = rows.first() {
        let id = format!("{:032x}", row.at);
        let found = duckdb.value(&format!("SELECT count(*) FROM {table} WHERE id = unhex('{id}')"));
        assert_eq!(found, json!(1));
        let found =
            duckdb.value(&format!("SELECT count(*) FROM {table} WHERE host = '{}'", row.host));
        assert_eq!(found, json!(hosts().filter(|host| *host == row.host).count()));
    }
    let samples = duckdb.value(&format!(
        "SELECT sum(sample.value)::BIGINT FROM (SELECT unnest(samples) AS sample FROM {table}) WHERE sample.value > 5"
    ));
    let large: Vec<i64> = rows
        .iter()
        .flat_map(|row| &row.samples)
        .map(|(_, value)| *value)
        .filter(|it| *it > 5)
        .collect();
    let expected = if large.is_empty() { Value::Null } else { json!(large.iter().sum::<i64>()) };
    assert_eq!(samples, expected);
}

/// Rows by their numbers.
pub(crate) fn rows(numbers: std::ops::Range<i64>) -> Vec<Row> {
    numbers.map(Row::new).collect()
}
