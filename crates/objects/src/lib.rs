//! Objects under names, in a folder or in a bucket of a store that speaks S3.
//!
//! An object is put where nothing is and never changed: of many who put one name at the same time one does. Whoever calls does not wait
//! for several things at once; requests to buckets are made on threads of their own ([`Io`]).
//!
//! - **store**: a folder, or a bucket from a prefix on, by URL;
//! - **name**: of an object below that, with `/` between its parts.

#[cfg(feature = "object-store")]
mod bucket;
#[cfg(not(feature = "object-store"))]
#[path = "no_bucket.rs"]
mod bucket;
mod error;
mod faults;
mod store;

pub use bucket::Io;
pub use error::Error;
#[cfg(feature = "faults")]
pub use faults::{Deed, Faults};
pub use store::{Store, Sync};
