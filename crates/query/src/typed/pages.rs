//! Finished pages of row groups that are not complete yet, in a file, so that memory does not grow with what is exported.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use datafusion::parquet::column::page_store::{
    PageKey, PageStore, PageStoreArgs, PageStoreFactory,
};
use datafusion::parquet::errors::{ParquetError, Result};

/// Where all columns keep their pages.
#[derive(Debug)]
pub(super) struct Spill(Arc<Mutex<File>>);

impl Spill {
    /// In this file, which nobody else uses.
    pub(super) fn new(file: File) -> Self {
        Self(Arc::new(Mutex::new(file)))
    }
}

impl PageStoreFactory for Spill {
    fn create(&self, _: &PageStoreArgs<'_>) -> Result<Box<dyn PageStore>> {
        Ok(Box::new(Pages { file: Arc::clone(&self.0), places: Vec::new() }))
    }
}

/// The pages of one column of a row group.
#[derive(Debug)]
struct Pages {
    file: Arc<Mutex<File>>,
    /// Offset and length of each. Bound: pages of a row group.
    places: Vec<(u64, usize)>,
}

impl PageStore for Pages {
    fn put(&mut self, value: Bytes) -> Result<PageKey> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = file.seek(SeekFrom::End(0))?;
        file.write_all(&value)?;
        self.places.push((offset, value.len()));
        Ok(PageKey::new(self.places.len() as u64 - 1))
    }

    fn take(&mut self, key: PageKey) -> Result<Bytes> {
        let place = usize::try_from(key.get()).ok().and_then(|at| self.places.get(at));
        let (offset, len) = *place
            .ok_or_else(|| ParquetError::General(format!("there is no page {}", key.get())))?;
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = vec![0; len];
        file.read_exact_at(&mut page, offset)?;
        Ok(page.into())
    }
}
