//! Headers that go with every request: tokens, tenants.

use std::fmt;
use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;

/// Headers; their values are shown nowhere.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(HeaderMap);

/// Why headers cannot be used. Tells where, and never what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// The file cannot be read, or others could read it.
    #[error(transparent)]
    File(#[from] door::Error),
    /// A line that is no header.
    #[error("line {line} is not `Name: value`")]
    Line {
        /// From 1 on.
        line: usize,
    },
    /// An entry of a list that is no header.
    #[error("entry {entry} is not `name=value`")]
    Entry {
        /// From 1 on.
        entry: usize,
    },
}

/// Those that the protocol itself sets.
const RESERVED: [&str; 6] =
    ["content-type", "content-encoding", "content-length", "host", "te", "transfer-encoding"];

impl Headers {
    /// Of a private file: a line `Name: value` for each; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// [`HeadersError::File`], [`HeadersError::Line`].
    pub fn read(path: &Path) -> Result<Self, HeadersError> {
        Self::of_lines(&door::secret(path)?)
    }

    fn of_lines(text: &str) -> Result<Self, HeadersError> {
        let mut headers = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if !text.is_empty() && !text.starts_with('#') {
                let (name, value) = text.split_once(':').ok_or(HeadersError::Line { line })?;
                headers.insert(name.trim(), value.trim()).ok_or(HeadersError::Line { line })?;
            }
        }
        Ok(headers)
    }

    /// Of a list `name=value,name=value` with values in percent-encoding, as the environment variable
    /// `OTEL_EXPORTER_OTLP_HEADERS` has it (OpenTelemetry specification, "OTLP Exporter Configuration").
    ///
    /// # Errors
    /// [`HeadersError::Entry`].
    pub fn of_list(text: &str) -> Result<Self, HeadersError> {
        let mut headers = Self::default();
        for (entry, text) in (1..).zip(text.split(',')) {
            if !text.trim().is_empty() {
                let (name, value) = text.split_once('=').ok_or(HeadersError::Entry { entry })?;
                let value = percent_decode_str(value.trim()).decode_utf8();
                let value = value.map_err(|_not_text| HeadersError::Entry { entry })?;
                headers.insert(name.trim(), &value).ok_or(HeadersError::Entry { entry })?;
            }
        }
        Ok(headers)
    }

    /// These, and of `others` those with other names.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for (name, value) in &others.0 {
            self.0.entry(name).or_insert_with(|| value.clone());
        }
        self
    }

    fn insert(&mut self, name: &str, value: &str) -> Option<()> {
        let name: HeaderName = name.parse().ok()?;
        let mut value: HeaderValue = value.parse().ok()?;
        if RESERVED.contains(&name.as_str()) {
            return None;
        }
        value.set_sensitive(true);
        self.0.insert(name, value);
        Some(())
    }

    /// Puts them to others, in place of those with the same names.
    pub fn apply(&self, to: &mut HeaderMap) {
        to.extend(self.0.clone());
    }
}

/// Names only.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'a>(headers: &'a Headers, name: &str) -> &'a str {
        headers.0.get(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn a_file_has_a_header_a_line() {
        let headers = Headers::of_lines(
            "# for the collector\n\nAuthorization: Bearer a:b=\nx-Scope-OrgID:7\n",
        );
        let headers = headers.unwrap();
        assert_eq!(value(&headers, "authorization"), "Bearer a:b=");
        assert_eq!(value(&headers, "X-Scope-OrgID"), "7");
        assert!(!format!("{headers:?}").contains("Bearer"));
        for wrong in ["a: b\nno header", "a: b\nTE: x", "a: b\nä: x"] {
            let error = Headers::of_lines(wrong).unwrap_err();
            assert!(matches!(error, HeadersError::Line { line: 2 }), "{wrong}");
        }
    }

    #[test]
    fn a_list_has_values_in_percent_encoding() {
        let headers = Headers::of_list("authorization=Bearer%20a%3Db, tenant=x ,").unwrap();
        assert_eq!(value(&headers, "authorization"), "Bearer a=b");
        assert_eq!(value(&headers, "tenant"), "x");
        for wrong in ["a=b,c", "a=b,c=%ff", "a=b,c d=e", "a=b,c=%0a"] {
            let error = Headers::of_list(wrong).unwrap_err();
            assert!(matches!(error, HeadersError::Entry { entry: 2 }), "{wrong}");
        }
        let both = Headers::of_lines("tenant: y").unwrap().or(&headers);
        assert_eq!((value(&both, "tenant"), value(&both, "authorization")), ("y", "Bearer a=b"));
    }
}
