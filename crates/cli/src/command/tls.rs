//! Options of the relay's TLS port, on both of its sides.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context;
use door::{Settings, Token, TokenSource};
use relay::{Relay, Tls};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::outcome::complain;

/// The relay's side.
#[derive(clap::Args)]
pub(crate) struct PortArgs {
    /// Address of a port with TLS for `throughline capture` and `throughline live`, such as 0.0.0.0:5346; who comes there
    /// shows a certificate, a token, or both. See docs/relay.md
    #[arg(long = "tls", value_name = "ADDR")]
    address: Option<SocketAddr>,
    /// The relay's certificate, with those that lead to its CA
    #[arg(long = "tls-cert", value_name = "PEM")]
    certificate: Option<PathBuf>,
    /// The certificate's key; a file that others cannot read
    #[arg(long = "tls-key", value_name = "PEM")]
    key: Option<PathBuf>,
    /// Only those who show a certificate of this CA are let in at the TLS port
    #[arg(long = "tls-client-ca", value_name = "PEM")]
    client_ca: Option<PathBuf>,
    /// Only those who show a token of this file are let in at the TLS port; a line is NAME ROLES TOKEN [HOST,...] with the
    /// roles producer, viewer or producer,viewer; a file that others cannot read
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
}

impl PortArgs {
    /// As the relay takes it.
    pub(crate) fn port(&self) -> anyhow::Result<Option<Tls>> {
        let Self { address, certificate, key, client_ca, tokens } = self;
        let Some(address) = *address else {
            let given = [
                (certificate, "--tls-cert"),
                (key, "--tls-key"),
                (client_ca, "--tls-client-ca"),
                (tokens, "--tokens"),
            ];
            return match given.iter().find(|(value, _)| value.is_some()) {
                Some((_, option)) => {
                    anyhow::bail!("{option} needs the TLS port's address: --tls ADDR")
                }
                None => Ok(None),
            };
        };
        Ok(Some(Tls {
            address,
            certificate: certificate.clone().context("--tls needs --tls-cert PEM")?,
            key: key.clone().context("--tls needs --tls-key PEM")?,
            client_ca: client_ca.clone(),
            tokens: tokens.clone(),
        }))
    }

    /// SIGHUP, when there are files to be read again; else it ends the process as it always does.
    pub(crate) fn hangup(&self) -> anyhow::Result<Hangup> {
        let listen = || signal(SignalKind::hangup()).context("cannot listen for signals");
        Ok(Hangup(self.address.map(|_| listen()).transpose()?))
    }
}

/// Being told to read the files of the TLS port again.
pub(crate) struct Hangup(Option<Signal>);

impl Hangup {
    /// Waits for the next time; for ever when there is nothing to be read.
    pub(crate) async fn asked(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => std::future::pending().await,
        }
    }
}

/// Has the relay read the files of its TLS port again, and says what came of it.
pub(crate) fn reload(relay: &Relay) {
    match relay.reload() {
        Ok(()) => complain("relay: certificates and tokens were read again"),
        Err(error) => complain(&format!(
            "relay: certificates and tokens stay as they were: {:#}",
            anyhow::Error::from(error)
        )),
    }
}

/// Environment variable with a token.
const TOKEN: &str = "THROUGHLINE_TOKEN";

/// The side of those who come: what is shown to a relay.
#[derive(clap::Args)]
pub(crate) struct ShownArgs {
    /// CA that the relay's certificate must come from at a tls:// address, in place of those of the system
    #[arg(long = "tls-ca", value_name = "PEM")]
    ca: Option<PathBuf>,
    /// Certificate to show at a tls:// address, with those that lead to its CA
    #[arg(long = "tls-cert", value_name = "PEM", requires = "key")]
    certificate: Option<PathBuf>,
    /// The certificate's key; a file that others cannot read
    #[arg(long = "tls-key", value_name = "PEM", requires = "certificate")]
    key: Option<PathBuf>,
    /// File with the token to show at a tls:// address, which others cannot read; without it the environment variable
    /// THROUGHLINE_TOKEN, if it is set
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ShownArgs {
    /// As the relay is met; `is_tls` says whether the address is one of TLS.
    pub(crate) fn settings(&self, is_tls: bool) -> anyhow::Result<Settings> {
        let Self { ca, certificate, key, token_file } = self;
        if !is_tls {
            let given =
                [(ca, "--tls-ca"), (certificate, "--tls-cert"), (token_file, "--token-file")];
            return match given.iter().find(|(value, _)| value.is_some()) {
                Some((_, option)) => {
                    anyhow::bail!("{option} is for addresses with TLS: tls://HOST[:PORT]")
                }
                None => Ok(Settings::default()),
            };
        }
        let token = match token_file {
            Some(path) => Some(TokenSource::File(path.clone())),
            None => token_of_environment()?.map(TokenSource::Given),
        };
        Ok(Settings { ca: ca.clone(), certificate: certificate.clone().zip(key.clone()), token })
    }
}

fn token_of_environment() -> anyhow::Result<Option<Token>> {
    let Some(text) = std::env::var_os(TOKEN).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    // What is no text is no token either.
    let token = Token::new(text.to_str().unwrap_or("\0")).context(TOKEN)?;
    Ok(Some(token))
}
