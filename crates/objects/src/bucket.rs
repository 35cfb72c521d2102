//! A bucket of an object store that speaks S3, for programs that do not wait for several things at once.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::runtime::Runtime;

use crate::error::Error;
use crate::store::Found;

/// The threads on which requests to buckets are made; one set for all buckets of a process.
#[derive(Clone)]
pub struct Io(Arc<Threads>);

struct Threads(Option<Runtime>);

impl Io {
    /// Starts them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when the system has no thread.
    pub fn start() -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("store")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { path: PathBuf::from("a thread"), source })?;
        Ok(Self(Arc::new(Threads(Some(runtime)))))
    }

    fn wait<F: Future>(&self, future: F) -> F::Output {
        match &self.0.0 {
            Some(runtime) => runtime.block_on(future),
            None => unreachable!("it is taken when the last of us goes"),
        }
    }
}

impl Drop for Threads {
    /// Without waiting: whoever drops the last bucket may itself be on a thread that must not wait.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Io {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Io")
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    url: String,
    store: Arc<AmazonS3>,
    prefix: Key,
    io: Io,
}

impl Bucket {
    /// Settings and credentials come from the environment, by AWS's names.
    pub(crate) fn open(url: &str, bucket: &str, prefix: &str, io: &Io) -> Result<Self, Error> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
        if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            // Whoever names such an endpoint means it.
            builder = builder.with_allow_http(true);
        }
        let store = Arc::new(builder.build().map_err(failed(url, ""))?);
        Ok(Self { url: url.to_owned(), store, prefix: Key::from(prefix), io: io.clone() })
    }

    fn key(&self, name: &str) -> Key {
        let names = name.split('/').filter(|name| !name.is_empty());
        names.fold(self.prefix.clone(), |key, name| key.join(name))
    }

    pub(crate) fn get(&self, name: &str, most: u64) -> Result<Option<Found>, Error> {
        self.io.wait(self.fetch(name, most))
    }

    pub(crate) fn get_all(
        &self,
        names: &[String],
        most: u64,
        at_once: usize,
    ) -> Result<Vec<Option<Found>>, Error> {
        let asked = stream::iter(names).map(|name| self.fetch(name, most));
        self.io.wait(asked.buffered(at_once).try_collect())
    }

    async fn fetch(&self, name: &str, most: u64) -> Result<Option<Found>, Error> {
        let found = match self.store.get(&self.key(name)).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(&self.url, name)(error)),
        };
        if found.meta.size > most {
            return Ok(Some(Found::TooLong(found.meta.size)));
        }
        let bytes = found.bytes().await.map_err(failed(&self.url, name))?;
        Ok(Some(Found::Bytes(bytes.into())))
    }

    pub(crate) fn stream<E: From<Error>>(
        &self,
        name: &str,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = failed(&self.url, name);
        let failed = |error| E::from(failed(error));
        self.io.wait(async {
            let found = self.store.get(&self.key(name)).await.map_err(failed)?;
            let mut pieces = found.into_stream();
            while let Some(piece) = pieces.next().await {
                take(&piece.map_err(failed)?)?;
            }
            Ok(())
        })
    }

    pub(crate) fn create(&self, name: &str, bytes: Vec<u8>) -> Result<bool, Error> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let key = self.key(name);
        let put = self.store.put_opts(&key, PutPayload::from(bytes), options);
        match self.io.wait(put) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(failed(&self.url, name)(error)),
        }
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), Error> {
        match self.io.wait(self.store.delete(&self.key(name))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(&self.url, name)(error)),
        }
    }

    pub(crate) fn list(&self, below: &str) -> Result<BTreeSet<String>, Error> {
        let prefix = self.key(below);
        let names = self.io.wait(async {
            let all = self.store.list(Some(&prefix));
            all.map_ok(|found| found.location).try_collect::<Vec<_>>().await
        });
        let names = names.map_err(failed(&self.url, below))?;
        let inner = |key: &Key| {
            let parts: Vec<_> = key.prefix_match(&prefix)?.collect();
            let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            Some(parts.join("/"))
        };
        Ok(names.iter().filter_map(inner).collect())
    }
}

fn failed(url: &str, key: &str) -> impl Fn(object_store::Error) -> Error {
    let (url, key) = (url.to_owned(), key.to_owned());
    move |source| Error::Store { url: url.clone(), key: key.clone(), source: Box::new(source) }
}
