//! A data file's numbers, from the footer that it ends with.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::file::metadata::{
    ColumnChunkMetaData, FooterTail, ParquetMetaData, ParquetMetaDataReader,
};
use parquet::file::statistics::Statistics;
use parquet::schema::types::{ColumnDescriptor, Type};

use crate::bound::Bound;
use crate::error::{Error, Result};

/// Bytes at a Parquet file's end: the length of the footer, 4 bytes, little-endian, and `PAR1`.
const TAIL_BYTES: usize = 8;

/// What a catalogue says of a data file beside its path and length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    /// Length of the footer, without the 8 bytes behind it.
    pub footer_bytes: u64,
    /// How many rows it has.
    pub rows: u64,
    /// Its columns and parts of columns that hold values, by ids of their fields. One that is not there is not in the file.
    pub columns: Vec<ColumnStatistics>,
}

/// What is known of a column's values without reading them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnStatistics {
    /// The field's id.
    pub id: i64,
    /// Length of the values in the file.
    pub bytes: u64,
    /// How many values there are without nulls; `None` when that is not known.
    pub values: Option<u64>,
    /// How many nulls, empty lists and absent parents counted; `None` when that is not known.
    pub nulls: Option<u64>,
    /// No value is smaller; `None` when there is no value or that is not known.
    pub min: Option<Bound>,
    /// No value is larger; `None` likewise.
    pub max: Option<Bound>,
}

impl Numbers {
    /// Of a Parquet file's last bytes, or all of them: the footer has to be there as a whole. Fields without an id are left out.
    ///
    /// # Errors
    /// [`Error::NoFooter`], [`Error::Footer`].
    pub fn read(end: &[u8]) -> Result<Self> {
        let missing = || Error::NoFooter { bytes: end.len() };
        let (rest, tail) = end.split_last_chunk::<TAIL_BYTES>().ok_or_else(missing)?;
        let length = FooterTail::try_new(tail)?.metadata_length();
        let start = rest.len().checked_sub(length).ok_or_else(missing)?;
        let footer = rest.get(start..).ok_or_else(missing)?;
        let footer = ParquetMetaDataReader::decode_metadata(footer)?;
        let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
        let leaves = footer.file_metadata().schema_descr().columns().iter().enumerate();
        let columns = leaves.filter_map(|(index, leaf)| column(&footer, index, leaf)).collect();
        Ok(Self { footer_bytes: length as u64, rows, columns })
    }
}

fn column(
    footer: &ParquetMetaData,
    index: usize,
    leaf: &ColumnDescriptor,
) -> Option<ColumnStatistics> {
    let info = leaf.self_type().get_basic_info();
    let id = info.has_id().then(|| i64::from(info.id()))?;
    let start =
        ColumnStatistics { id, bytes: 0, values: Some(0), nulls: Some(0), min: None, max: None };
    let chunks = footer.row_groups().iter().filter_map(|group| group.columns().get(index));
    Some(chunks.fold(start, |all, chunk| all.and(chunk, leaf.self_type())))
}

impl ColumnStatistics {
    /// With the values of another row group.
    fn and(self, chunk: &ColumnChunkMetaData, leaf: &Type) -> Self {
        let number = |number: i64| u64::try_from(number).unwrap_or(0);
        let nulls = chunk.statistics().and_then(Statistics::null_count_opt);
        let values = nulls.map(|nulls| number(chunk.num_values()).saturating_sub(nulls));
        let [min, max] = chunk.statistics().map_or([None, None], |found| bounds(found, leaf));
        let sum = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        let is_first = self.values == Some(0);
        let folded =
            |all: Option<Bound>, it: Option<Bound>, choose: fn(Bound, Bound) -> Bound| match values
            {
                Some(0) => all,
                _ if is_first => it,
                _ => all.zip(it).map(|(one, other)| choose(one, other)),
            };
        Self {
            id: self.id,
            bytes: self.bytes.saturating_add(number(chunk.compressed_size())),
            min: folded(self.min, min, Ord::min),
            max: folded(self.max, max, Ord::max),
            nulls: sum(self.nulls, nulls),
            values: sum(self.values, values),
        }
    }
}

/// The smallest and the largest value.
fn bounds(statistics: &Statistics, leaf: &Type) -> [Option<Bound>; 2] {
    let kind = statistics.physical_type();
    // How texts were compared by early writers is not said.
    if kind == Physical::BYTE_ARRAY && statistics.is_min_max_deprecated() {
        return [None, None];
    }
    [statistics.min_bytes_opt(), statistics.max_bytes_opt()]
        .map(|value| bound(value?, kind, leaf)?.written())
}

/// A value. None where DuckDB's order or text of a type is not ours; none of bytes, which DuckDB writes in two ways; none of floating
/// numbers, as Parquet does not say whether there are others that are no numbers, which are the largest to DuckDB.
fn bound(value: &[u8], kind: Physical, leaf: &Type) -> Option<Bound> {
    let info = leaf.get_basic_info();
    let is_plain = info.converted_type() == ConvertedType::NONE;
    match (kind, info.logical_type_ref()) {
        (Physical::BOOLEAN, _) => Some(Bound::Boolean(value != [0])),
        (Physical::INT32, logical) => {
            let value = i32::from_le_bytes(value.try_into().ok()?);
            match logical {
                Some(LogicalType::Date) => Some(Bound::Date(value)),
                Some(LogicalType::Integer(kind)) if !kind.is_signed => {
                    Some(Bound::Integer(value.cast_unsigned().into()))
                }
                Some(LogicalType::Integer(_)) => Some(Bound::Integer(value.into())),
                None if is_plain => Some(Bound::Integer(value.into())),
                _ => None,
            }
        }
        (Physical::INT64, logical) => {
            let value = i64::from_le_bytes(value.try_into().ok()?);
            match logical {
                Some(LogicalType::Timestamp(kind)) => {
                    let nanos = i128::from(value) * nanos_per_tick(kind.unit);
                    Some(Bound::Time { nanos, is_utc: kind.is_adjusted_to_u_t_c })
                }
                Some(LogicalType::Integer(kind)) if !kind.is_signed => {
                    Some(Bound::Integer(value.cast_unsigned().into()))
                }
                Some(LogicalType::Integer(_)) => Some(Bound::Integer(value.into())),
                None if is_plain => Some(Bound::Integer(value.into())),
                _ => None,
            }
        }
        (Physical::BYTE_ARRAY, Some(LogicalType::String)) => {
            str::from_utf8(value).ok().map(|text| Bound::Text(text.to_owned()))
        }
        _ => None,
    }
}

fn nanos_per_tick(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::MILLIS => 1_000_000,
        TimeUnit::MICROS => 1_000,
        TimeUnit::NANOS => 1,
    }
}
