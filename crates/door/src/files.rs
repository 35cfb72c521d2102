//! Files: certificates, keys, secrets.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::{Error, Result};

/// The longest file that is read, in bytes.
const MAX_LEN: u64 = 4 << 20;

/// Permissions that a file with a secret may not give: reading or more to everybody, writing to the group.
const TOO_OPEN: u32 = 0o027;

/// A file of bounded length.
fn read(path: &Path, is_private: bool) -> Result<Vec<u8>> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    if is_private {
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
        if mode & TOO_OPEN != 0 {
            return Err(Error::Open { path: path.to_owned(), mode });
        }
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(Error::TooLong { path: path.to_owned(), limit: MAX_LEN });
    }
    Ok(bytes)
}

/// The text of a private file.
///
/// # Errors
/// [`Error::File`], [`Error::Open`] when others could read it, [`Error::TooLong`].
pub fn secret(path: &Path) -> Result<String> {
    let bytes = read(path, true)?;
    String::from_utf8(bytes).map_err(|_not_text| Error::File {
        path: path.to_owned(),
        source: std::io::ErrorKind::InvalidData.into(),
    })
}

/// The certificates of a PEM file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(path, false)?;
    let none = || Error::Pem { path: path.to_owned(), what: "certificate" };
    let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    // What the PEM reader says may hold a piece of the file.
    let found = found.map_err(|_not_pem| none())?;
    if found.is_empty() { Err(none()) } else { Ok(found) }
}

/// The private key of a private PEM file.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let bytes = read(path, true)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|_not_pem| Error::Pem { path: path.to_owned(), what: "private key" })
}

/// The CA certificates of a PEM file, or those of the system.
pub(crate) fn roots(path: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match path {
        Some(path) => {
            for certificate in certificates(path)? {
                let unusable = |source| Error::Unusable { path: path.to_owned(), source };
                roots.add(certificate).map_err(unusable)?;
            }
        }
        None => {
            // Some of a system's certificates may be of a kind that is not known; one is enough to begin.
            let found = rustls_native_certs::load_native_certs().certs;
            if roots.add_parsable_certificates(found).0 == 0 {
                return Err(Error::NoRoots);
            }
        }
    }
    Ok(roots)
}
