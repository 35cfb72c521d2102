//! In place of a bucket where the client of object stores was left out: there is none.

use super::{Item, Put, PutError, StoreError};

/// None.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bucket {}

impl Bucket {
    pub(super) const fn open(_bucket: &str, _prefix: &str) -> Result<Self, StoreError> {
        Err(StoreError::LeftOut)
    }

    #[expect(clippy::unused_async, reason = "as the bucket that there is")]
    pub(super) async fn is_there(&self, _name: &str, _bytes: &[u8]) -> Result<bool, PutError> {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "as the bucket that there is")]
    pub(super) async fn put(&self, _item: Item) -> Result<Put, PutError> {
        match *self {}
    }
}
