//! Bytes of blocks by column.

use std::collections::BTreeMap;

use bytes::Bytes;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// What columns of blocks take, compressed.
#[derive(Debug, Clone, Default)]
pub(super) struct Columns {
    pub(super) blocks: u64,
    pub(super) samples: u64,
    pub(super) rows: u64,
    pub(super) groups: u64,
    /// Of whole files.
    pub(super) bytes: u64,
    /// By path: a column, or a field of its lists.
    by_path: BTreeMap<String, u64>,
}

impl Columns {
    pub(super) fn of(block: &Bytes) -> anyhow::Result<Self> {
        let reader = SerializedFileReader::new(block.clone())?;
        let metadata = reader.metadata();
        let mut own = Self {
            blocks: 1,
            samples: store::block::header(block)?.samples,
            rows: u64::try_from(metadata.file_metadata().num_rows())?,
            groups: metadata.num_row_groups() as u64,
            bytes: block.len() as u64,
            by_path: BTreeMap::new(),
        };
        let mut data = 0;
        for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
            let path = column
                .column_path()
                .parts()
                .iter()
                .filter(|part| !["list", "element", "key_value"].contains(&part.as_str()));
            let path = path.map(String::as_str).collect::<Vec<_>>().join(".");
            let bytes = u64::try_from(column.compressed_size())?;
            *own.by_path.entry(path).or_default() += bytes;
            data += bytes;
        }
        own.by_path.insert("(footer)".to_owned(), own.bytes.saturating_sub(data));
        Ok(own)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.samples += other.samples;
        self.rows += other.rows;
        self.groups += other.groups;
        self.bytes += other.bytes;
        for (path, bytes) in &other.by_path {
            *self.by_path.entry(path.clone()).or_default() += bytes;
        }
    }
}

#[expect(clippy::print_stdout, reason = "the table is the result of the command")]
pub(super) fn print(fresh: &Columns, merged: &Columns) {
    println!(
        "\n| {:<28} | {:>9} | {:>9} |\n|---|---|---|",
        "bytes of a sample by column", "level 0", "merged"
    );
    for path in
        fresh.by_path.keys().chain(merged.by_path.keys()).collect::<std::collections::BTreeSet<_>>()
    {
        let of = |columns: &Columns| {
            columns.by_path.get(path).copied().unwrap_or(0) as f64 / columns.samples.max(1) as f64
        };
        println!("| {path:<28} | {:>9.3} | {:>9.3} |", of(fresh), of(merged));
    }
    for (name, of) in [
        ("samples of a row", (|it| it.rows) as fn(&Columns) -> u64),
        ("samples of a row group", |it| it.groups),
    ] {
        let ratio = |columns: &Columns| columns.samples as f64 / of(columns).max(1) as f64;
        println!("| {name:<28} | {:>9.1} | {:>9.1} |", ratio(fresh), ratio(merged));
    }
}
