//! In place of a bucket where the client of object stores was left out: there is none.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::store::Found;

/// Nothing: files need no threads of their own.
#[derive(Debug, Clone)]
pub struct Io;

impl Io {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system has no thread.
    pub const fn start() -> Result<Self, Error> {
        Ok(Self)
    }
}

/// None.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bucket {}

impl Bucket {
    pub(crate) fn open(url: &str, _bucket: &str, _prefix: &str, _io: &Io) -> Result<Self, Error> {
        Err(Error::LeftOut { url: url.to_owned() })
    }

    pub(crate) const fn get(&self, _name: &str, _most: u64) -> Result<Option<Found>, Error> {
        match *self {}
    }

    pub(crate) const fn get_all(
        &self,
        _names: &[String],
        _most: u64,
        _at_once: usize,
    ) -> Result<Vec<Option<Found>>, Error> {
        match *self {}
    }

    pub(crate) fn stream<E: From<Error>>(
        &self,
        _name: &str,
        _take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match *self {}
    }

    pub(crate) fn create(&self, _name: &str, _bytes: Vec<u8>) -> Result<bool, Error> {
        match *self {}
    }

    pub(crate) const fn remove(&self, _name: &str) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) const fn list(&self, _below: &str) -> Result<BTreeSet<String>, Error> {
        match *self {}
    }
}
