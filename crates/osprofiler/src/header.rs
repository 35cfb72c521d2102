//! The headers by which a request asks to be traced.
//!
//! ```text
//! X-Trace-Info: base64 (URL-safe, padded) of {"base_id": UUID, "parent_id": UUID}
//! X-Trace-HMAC: HMAC-SHA1 of that base64 text, in hexadecimal digits
//! ```
//! Source: `osprofiler/web.py` and `osprofiler/_utils.py` of OSProfiler 4.4.0. As there, a request with any other field is not traced.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;
use subtle::ConstantTimeEq;

use crate::json::{self, Json};
use crate::notification::uuid;

/// Bytes of a header.
const MAX_HEADER_LEN: usize = 4096;

/// Why a request is not to be traced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A header that is too long to be looked at.
    #[error("a header of {len} bytes; {limit} are taken")]
    TooLong {
        /// Its length.
        len: usize,
        /// As many bytes are taken.
        limit: usize,
    },
    /// No key gives that HMAC.
    #[error("it is signed by none of the keys")]
    NotSigned,
    /// What was signed is no base64.
    #[error("what is signed is no base64")]
    NotBase64,
    /// What was signed is no text.
    #[error("what is signed is no text")]
    NotText,
    /// What was signed is no JSON.
    #[error(transparent)]
    Json(#[from] json::Error),
    /// What was signed is no object.
    #[error("what is signed is no object")]
    NotObject,
    /// A field that there may not be.
    #[error("there is a field {name:?}")]
    Unexpected {
        /// Its name.
        name: String,
    },
    /// A field that must be a UUID.
    #[error("field {name} is no UUID")]
    NoUuid {
        /// Its name.
        name: &'static str,
    },
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceInfo {
    /// The trace.
    pub base_id: u128,
    /// The point from which it was sent; `base_id` when it does not say so.
    pub parent_id: u128,
    /// Which of the keys has signed it, from 0 on.
    pub key: usize,
}

/// The keys of a service; they are shown nowhere.
#[derive(Clone)]
pub struct Keys(Vec<String>);

impl Keys {
    /// Of the value of `hmac_keys`: keys between commas, without spaces around them.
    #[must_use]
    pub fn parse(list: &str) -> Self {
        let keys = list.split(',').map(str::trim).filter(|key| !key.is_empty());
        Self(keys.map(str::to_owned).collect())
    }

    /// Checks the values of `X-Trace-Info` and `X-Trace-HMAC`. The time it takes does not tell how much of an HMAC is right.
    ///
    /// # Errors
    /// Why the request is not to be traced. It is answered nevertheless.
    pub fn check(&self, info: &str, hmac: &str) -> Result<TraceInfo, Error> {
        let (len, limit) = (info.len().max(hmac.len()), MAX_HEADER_LEN);
        if len > limit {
            return Err(Error::TooLong { len, limit });
        }
        let is_signed = |key: &String| is_signed(info, hmac.trim(), key);
        let key = self.0.iter().position(is_signed).ok_or(Error::NotSigned)?;
        let bytes = URL_SAFE.decode(info).ok().ok_or(Error::NotBase64)?;
        let text = str::from_utf8(&bytes).ok().ok_or(Error::NotText)?;
        fields(Json::parse(text)?, key)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

fn is_signed(info: &str, hmac: &str, key: &str) -> bool {
    let Ok(mut signer) = Hmac::<Sha1>::new_from_slice(key.as_bytes()) else { return false };
    signer.update(info.as_bytes());
    let digest = signer.finalize().into_bytes();
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.as_bytes().ct_eq(hmac.as_bytes()).into()
}

fn fields(object: Json<'_>, key: usize) -> Result<TraceInfo, Error> {
    if !object.is_object() {
        return Err(Error::NotObject);
    }
    // The receiver puts the key into the object itself, so that one which was sent is no other field.
    let known = ["base_id", "parent_id", "hmac_key"];
    if let Some((name, _)) = object.fields().find(|(name, _)| !known.contains(&&**name)) {
        return Err(Error::Unexpected { name: name.into_owned() });
    }
    let id = |name| match object.get(name) {
        Some(value) => value.text().and_then(|text| uuid(&text)).ok_or(Error::NoUuid { name }),
        None => Err(Error::NoUuid { name }),
    };
    let base_id = id("base_id")?;
    let parent = object.get("parent_id").filter(|parent| parent.is_truthy());
    let parent_id = parent.map_or(Ok(base_id), |_| id("parent_id"))?;
    Ok(TraceInfo { base_id, parent_id, key })
}
