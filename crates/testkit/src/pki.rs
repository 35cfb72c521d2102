//! Certificates for tests, and files that only their owner reads.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// A CA of its own, with its files in a folder.
#[derive(Debug)]
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
    pem: PathBuf,
}

/// The PEM files of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, which only its owner can read.
    pub key: PathBuf,
}

impl Authority {
    /// A new one; `NAME.pem` is its certificate.
    ///
    /// # Errors
    /// The file cannot be written, or the name is none for a certificate.
    pub fn new(folder: &Path, name: &str) -> io::Result<Self> {
        let mut params = params(name, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(io::Error::other)?;
        let pem = folder.join(format!("{name}.pem"));
        fs::write(&pem, issuer.pem())?;
        Ok(Self { issuer, folder: folder.to_owned(), pem })
    }

    /// Its certificate.
    #[must_use]
    pub fn pem(&self) -> &Path {
        &self.pem
    }

    /// Issues a certificate for hosts to `name`, in `NAME.pem` and `NAME.key`.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn issue(&self, name: &str, hosts: &[&str]) -> io::Result<Issued> {
        self.sign(name, params(name, hosts)?)
    }

    /// As [`Self::issue`], one that has expired.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn issue_expired(&self, name: &str, hosts: &[&str]) -> io::Result<Issued> {
        let mut params = params(name, hosts)?;
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(name, params)
    }

    fn sign(&self, name: &str, params: CertificateParams) -> io::Result<Issued> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let signed = params.signed_by(&key, &self.issuer).map_err(io::Error::other)?;
        let file = |kind| self.folder.join(format!("{name}.{kind}"));
        let issued = Issued { certificate: file("pem"), key: file("key") };
        fs::write(&issued.certificate, signed.pem())?;
        write_private(&issued.key, &key.serialize_pem())?;
        Ok(issued)
    }
}

/// Writes a file that only its owner can read.
///
/// # Errors
/// It cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}

fn params(name: &str, hosts: &[&str]) -> io::Result<CertificateParams> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).map_err(io::Error::other)?;
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}
