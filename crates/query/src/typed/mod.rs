//! Event records in Apache Parquet: written class by class into columns without names of their own, read as if they were
//! the recording.
//!
//! ```text
//! ts host session domain stream cpu class tid pid comm   i0 … i11   f0 … f3   s0 … s3   rest
//!                                                         integers   floats    texts     what has no slot, by column
//! ```
//!
//! All classes share these columns, so that a file has one schema however many classes there are; a row group holds event
//! records of one class in the order of time, row groups follow each other by the names of their classes. Which slot holds
//! which column of a class is told by the registry ([`registry::Registry`]) in the file's own metadata: a file is read with
//! nothing but itself.

mod export;
mod json;
mod pages;
mod registry;
mod scan;
mod slots;
mod table;

pub use export::{Exported, export_events};
pub(crate) use scan::Files;
pub(crate) use table::Catalog;

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Whether a path is a file of Parquet, by its first bytes.
#[must_use]
pub fn is_exported(path: &Path) -> bool {
    let mut magic = [0; 4];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok();
    is_read && magic == *b"PAR1"
}
