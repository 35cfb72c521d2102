//! A relay's side of TLS, without its sockets.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, version};
use wire::door::Role;

use crate::error::{Error, Result};
use crate::files;

/// A certificate with the chain to its CA, and its key.
pub type Certified = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Reads a certificate and its key from PEM files; that of the key is to be private.
///
/// # Errors
/// [`Error::File`], [`Error::Open`], [`Error::TooLong`], [`Error::Pem`].
pub fn certified(certificate: &Path, key: &Path) -> Result<Certified> {
    Ok((files::certificates(certificate)?, files::key(key)?))
}

/// What a relay's TLS is set up with. With a CA for clients each must have a certificate of it.
///
/// # Errors
/// As [`certified`]; [`Error::Unusable`], [`Error::Authority`].
pub fn server_config(
    certificate: &Path,
    key: &Path,
    client_ca: Option<&Path>,
) -> Result<Arc<ServerConfig>> {
    let (chain, private) = certified(certificate, key)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(Error::Settings)?;
    let builder = match client_ca {
        Some(path) => {
            let roots = Arc::new(files::roots(Some(path))?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let authority = |source| Error::Authority { path: path.to_owned(), source };
            builder.with_client_cert_verifier(verifier.map_err(authority)?)
        }
        None => builder.with_no_client_auth(),
    };
    let unusable = |source| Error::Unusable { path: certificate.to_owned(), source };
    let mut config = builder.with_single_cert(chain, private).map_err(unusable)?;
    config.alpn_protocols = Role::ALL.map(|role| role.alpn().to_vec()).into();
    // A connection that resumes an earlier one is not asked for its certificate again, however long that has expired.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
