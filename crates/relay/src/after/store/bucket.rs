//! A bucket of an object store that speaks S3.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, MultipartUpload, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, RetryConfig,
};
use sha2::{Digest, Sha256};
use tracedir::manifest::hex;

use super::{Item, Put, PutError, StoreError};

/// Longer files are sent in parts of this size, or larger where there would be too many.
const PART: u64 = 8 << 20;
/// Most parts of one object: S3's own limit is 10,000.
const MAX_PARTS: u64 = 9_000;
/// The name under which an object's checksum is kept beside it.
const CHECKSUM: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("sha256"));

#[derive(Debug, Clone)]
pub(super) struct Bucket {
    store: Arc<AmazonS3>,
    prefix: Key,
}

impl Bucket {
    pub(super) fn open(bucket: &str, prefix: &str) -> Result<Self, StoreError> {
        Ok(Self { store: Arc::new(client(bucket)?), prefix: Key::from(prefix) })
    }

    /// Removes what is there under a name, if something else than these bytes is; says whether these are there.
    pub(super) async fn is_there(&self, name: &str, bytes: &[u8]) -> Result<bool, PutError> {
        let key = self.key(name);
        let failed = |source| PutError::Store { key: key.to_string(), source };
        match self.store.get(&key).await {
            Ok(found) if found.meta.size == bytes.len() as u64 => {
                if found.bytes().await.map_err(failed)? == bytes {
                    return Ok(true);
                }
                self.store.delete(&key).await.map(|()| false).map_err(failed)
            }
            Ok(_) => self.store.delete(&key).await.map(|()| false).map_err(failed),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Copies an item, unless it is there already. At most two parts are in memory.
    pub(super) async fn put(&self, item: Item) -> Result<Put, PutError> {
        let Item { name, file, len, sha256 } = item;
        let (store, key) = (&self.store, self.key(&name));
        let failed = |source| PutError::Store { key: key.to_string(), source };
        let head = GetOptions { head: true, ..GetOptions::default() };
        match store.get_opts(&key, head).await {
            Ok(found)
                if found.meta.size == len
                    && found.attributes.get(&CHECKSUM).is_some_and(|it| **it == *sha256) =>
            {
                return Ok(Put::Was);
            }
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(failed(error)),
        }
        let attributes = Attributes::from_iter([(CHECKSUM, AttributeValue::from(sha256.clone()))]);
        let file = Arc::new(file);
        let mut digest = Sha256::new();
        if len <= PART {
            let bytes = read(&file, len).await?;
            digest.update(&bytes);
            let options = PutOptions { attributes, ..PutOptions::default() };
            store.put_opts(&key, PutPayload::from(bytes), options).await.map_err(failed)?;
        } else {
            let options = PutMultipartOptions { attributes, ..PutMultipartOptions::default() };
            let mut upload = store.put_multipart_opts(&key, options).await.map_err(failed)?;
            let sent = send_parts(&mut *upload, &file, len, &mut digest, failed).await;
            if let Err(error) = sent {
                // What a kill leaves of an upload is the bucket's own to clean up.
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%key, %error, "an upload that failed cannot be taken back");
                }
                return Err(error);
            }
        }
        Ok(Put::Copied { as_expected: hex(&digest.finalize()) == sha256 })
    }

    fn key(&self, name: &str) -> Key {
        name.split('/').fold(self.prefix.clone(), |key, part| key.join(part))
    }
}

/// Settings and credentials come from the environment, by AWS's names.
fn client(bucket: &str) -> Result<AmazonS3, StoreError> {
    // The outbox tries again; a request itself should not for long.
    let retry = RetryConfig {
        max_retries: 2,
        retry_timeout: Duration::from_secs(20),
        ..RetryConfig::default()
    };
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        // Whoever names such an endpoint means it.
        builder = builder.with_allow_http(true);
    }
    builder.build().map_err(StoreError::Settings)
}

/// Reads the next `len` bytes; fewer at the file's end.
async fn read(file: &Arc<File>, len: u64) -> Result<Vec<u8>, PutError> {
    let file = Arc::clone(file);
    let read = tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        file.as_ref().take(len).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    read.await.map_err(io::Error::other).flatten().map_err(PutError::Read)
}

async fn send_parts(
    upload: &mut dyn MultipartUpload,
    file: &Arc<File>,
    len: u64,
    digest: &mut Sha256,
    failed: impl Fn(object_store::Error) -> PutError,
) -> Result<(), PutError> {
    let part = PART.max(len.div_ceil(MAX_PARTS));
    let mut left = len;
    let mut bytes = read(file, part.min(left)).await?;
    while !bytes.is_empty() {
        digest.update(&bytes);
        left = left.saturating_sub(bytes.len() as u64);
        // The next part is read while this one is sent.
        let sending = upload.put_part(PutPayload::from(bytes));
        let (sent, next) = tokio::join!(sending, read(file, part.min(left)));
        sent.map_err(&failed)?;
        bytes = next?;
    }
    upload.complete().await.map(drop).map_err(failed)
}
