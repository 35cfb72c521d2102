//! Options of those who send packets of profiles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agent::{Headers, Keep, Sending, Target};
use anyhow::{Context, bail};

use crate::units::parse_duration;

/// Environment variables with headers of OTLP; the first wins (OpenTelemetry specification, "OTLP Exporter Configuration").
const OTLP_HEADERS: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];

/// How packets are sent.
#[derive(clap::Args)]
pub(crate) struct SendingArgs {
    /// A file with headers for every request, such as `Authorization: Bearer …`, one a line; others must not be able to read it. With several
    /// targets URL=FILE says whose they are; may be repeated. Targets of OTLP also have those of OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "FILE")]
    header_file: Vec<String>,
    /// CA that the certificates of encrypted targets must come from, in place of those of the system
    #[arg(long, value_name = "PEM")]
    tls_ca: Option<PathBuf>,
    /// Certificate to show to encrypted targets, with those that lead to its CA
    #[arg(long, value_name = "PEM", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key; a file that others cannot read
    #[arg(long, value_name = "PEM", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// How long a target may take to answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    send_timeout: Duration,
}

impl SendingArgs {
    /// How each target is sent to; `keep` is for folders.
    pub(crate) fn of(&self, targets: &[Target], keep: Keep) -> anyhow::Result<Vec<Sending>> {
        let with_headers = targets.iter().filter(|target| target.takes_headers()).count();
        let mut sendings = vec![self.sending(keep); targets.len()];
        for given in &self.header_file {
            let whose = targets.iter().enumerate().find_map(|(at, target)| {
                Some((at, given.strip_prefix(target.url())?.strip_prefix('=')?))
            });
            let one = || targets.iter().position(Target::takes_headers);
            let (at, path) = match whose {
                Some(whose) => whose,
                None if with_headers > 1 => {
                    bail!("--header-file {given}: with several targets it is URL=FILE")
                }
                None => {
                    (one().context("--header-file is for targets on the network")?, given.as_str())
                }
            };
            let headers =
                Headers::read(Path::new(path)).with_context(|| format!("cannot use {path}"))?;
            if let Some(sending) = sendings.get_mut(at) {
                sending.headers = headers.or(&sending.headers);
            }
        }
        let of_environment = headers_of_environment()?;
        let otlp = targets.iter().zip(&mut sendings).filter(|(target, _)| target.is_otlp());
        for (_, sending) in otlp {
            sending.headers = sending.headers.clone().or(&of_environment);
        }
        Ok(sendings)
    }

    fn sending(&self, keep: Keep) -> Sending {
        let Self { tls_ca, tls_cert, tls_key, send_timeout, .. } = self;
        Sending {
            headers: Headers::default(),
            ca: tls_ca.clone(),
            certificate: tls_cert.clone().zip(tls_key.clone()),
            timeout: *send_timeout,
            keep,
        }
    }
}

fn headers_of_environment() -> anyhow::Result<Headers> {
    let mut headers = Headers::default();
    for name in OTLP_HEADERS {
        if let Some(list) = std::env::var_os(name) {
            let list = list.to_str().with_context(|| format!("{name} is no text"))?;
            headers = headers.or(&Headers::of_list(list).context(name)?);
        }
    }
    Ok(headers)
}
