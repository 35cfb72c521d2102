//! Blocks of profile samples that can be read alone and merge.
//!
//! In go batches of samples ([`model::samples::Batch`]), as clients sent them; out come blocks: immutable files in which series, stacks and
//! frames are what they say, and not how anyone numbered them. Merging is decoding any number of blocks into one batch and encoding that:
//! equal samples in any grouping and order become equal bytes. What HTTP says stays the caller's, and so do clocks.
//!
//! - **block**: a file of samples of one tenant, with all that they refer to; its layout is drawn in [`mod@block`].
//! - **row**: the samples of one stack of one series in a block.
//! - **digest**: the first 16 bytes of SHA-256 over content, by which series and files are known.
//! - **lake**: the blocks of all tenants in one place ([`mod@lake`]).
//! - **backfill**: sums of cells that are long over, made of the samples that blocks have of them ([`mod@backfill`]).
//! - **selection**: which series and times are asked for, and whether sums of rows are enough.

pub mod backfill;
pub mod block;
pub mod catalogue;
pub mod cells;
pub mod content;
mod error;
pub mod lake;

pub use error::Error;

use model::samples::Series;

/// The label that says which service a series is of.
pub const SERVICE_NAME: &str = "service_name";

/// The service that a series is of.
#[must_use]
pub fn service(series: &Series) -> Option<&str> {
    series.labels.get(SERVICE_NAME)
}
