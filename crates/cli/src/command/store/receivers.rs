//! Who gets series, by options and by a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use export::{Auth, Endpoint, Limits, Remote};
use serde::Deserialize;
use wire::remote_write::Version;

use crate::units::parse_duration;

/// A receiver, and whose series it gets.
#[derive(Debug, Clone)]
pub(super) struct Receiver {
    /// Its URL, which names it.
    pub(super) url: String,
    /// Of which tenants; `None` for all.
    tenants: Option<BTreeSet<String>>,
    pub(super) remote: Remote,
}

impl Receiver {
    /// Whether there are tenants whose series both get.
    fn shares(&self, other: &Self) -> bool {
        match (&self.tenants, &other.tenants) {
            (Some(some), Some(others)) => !some.is_disjoint(others),
            _ => true,
        }
    }

    pub(super) fn gets(&self, tenant: &str) -> bool {
        self.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant))
    }
}

/// The file of receivers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    receiver: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    tenants: Option<BTreeSet<String>>,
    org_id: Option<String>,
    version: Option<String>,
    timeout: Option<String>,
    bearer_file: Option<PathBuf>,
    user: Option<String>,
    password_file: Option<PathBuf>,
    headers_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    certificate_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    #[serde(default)]
    any_age: bool,
}

/// Those that are named by URL get all series; those of a file what it says.
pub(super) fn all(urls: &[String], file: Option<&Path>) -> anyhow::Result<Vec<Receiver>> {
    let mut all = Vec::new();
    for url in urls {
        let endpoint = url.parse().with_context(|| format!("--remote-write {url}"))?;
        all.push(Receiver { url: url.clone(), tenants: None, remote: Remote::new(endpoint) });
    }
    if let Some(path) = file {
        let read = || {
            let text = std::fs::read_to_string(path)?;
            let file: File = toml::from_str(&text)?;
            file.receiver.into_iter().map(receiver).collect::<anyhow::Result<Vec<_>>>()
        };
        all.extend(read().with_context(|| path.display().to_string())?);
    }
    for (at, receiver) in all.iter().enumerate() {
        if all.iter().take(at).any(|other| other.url == receiver.url && other.shares(receiver)) {
            bail!("{}: the same receiver twice would get a tenant's series twice", receiver.url);
        }
    }
    Ok(all)
}

fn receiver(entry: Entry) -> anyhow::Result<Receiver> {
    let Entry { url, tenants, org_id, version, timeout, .. } = entry;
    let endpoint: Endpoint = url.parse().with_context(|| url.clone())?;
    let auth = match (entry.bearer_file, entry.user, entry.password_file) {
        (None, None, None) => Auth::None,
        (Some(token), None, None) => Auth::Bearer(token),
        (None, Some(user), Some(password)) => Auth::Basic { user, password },
        _ => bail!("{url}: either bearer_file, or user and password_file"),
    };
    let version = match version.as_deref() {
        None | Some("2.0") => Version::V2,
        Some("1.0") => Version::V1,
        Some(other) => bail!("{url}: version {other:?} is neither 1.0 nor 2.0"),
    };
    let certificate = match (entry.certificate_file, entry.key_file) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => bail!("{url}: certificate_file and key_file go together"),
    };
    let mut remote = Remote::new(endpoint);
    if let Some(path) = entry.headers_file {
        let read = webclient::Headers::read(&path);
        remote.headers = read.with_context(|| path.display().to_string())?;
    }
    if let Some(text) = timeout {
        let parsed = parse_duration(&text).map_err(anyhow::Error::msg);
        remote.timeout = parsed.with_context(|| format!("{url}: timeout"))?;
    }
    remote.limits = Limits { is_backfill: entry.any_age, ..Limits::default() };
    let remote = Remote { version, tenant: org_id, auth, ca: entry.ca_file, certificate, ..remote };
    Ok(Receiver { url, tenants, remote })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str) -> anyhow::Result<Vec<Receiver>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("receivers.toml");
        std::fs::write(&path, text).unwrap();
        all(&["http://p:9090/api/v1/write".to_owned()], Some(&path))
    }

    #[test]
    fn a_file_says_who_gets_whose_series() {
        let found = of_text(
            "[[receiver]]\nurl = \"https://mimir/api/v1/push\"\ntenants = [\"a\"]\norg_id = \"b\"\nversion = \"1.0\"\ntimeout = \"5s\"\n",
        );
        let [first, second] = &found.unwrap()[..] else { panic!("two") };
        assert!(first.gets("a") && first.gets("x") && second.gets("a") && !second.gets("x"));
        assert_eq!((second.remote.version, second.remote.timeout.as_secs()), (Version::V1, 5));
        for (wrong, word) in [
            ("[[receiver]]\nurl = \"mimir\"\n", "mimir"),
            ("[[receiver]]\nurl = \"http://m\"\nuser = \"a\"\n", "password_file"),
            ("[[receiver]]\nurl = \"http://m\"\nversion = \"3\"\n", "version"),
            ("[[receiver]]\nurl = \"http://m\"\nname = \"3\"\n", "name"),
            ("[[receiver]]\nurl = \"http://p:9090/api/v1/write\"\n", "twice"),
        ] {
            let said = format!("{:#}", of_text(wrong).unwrap_err());
            assert!(said.contains(word), "{said}");
        }
    }
}
