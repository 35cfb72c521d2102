//! Sending packets to one target.

mod folder;
mod grpc;
mod http;
mod push;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use webclient::{Backoff, Client, Headers, Version};

use self::folder::Folder;
use self::grpc::OtlpGrpc;
use self::http::OtlpHttp;
use self::push::Pyroscope;
use crate::error::Result;
use crate::name::PacketName;
use crate::target::{Kind, Target};

pub use self::folder::Keep;

/// What came of sending a packet once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// The target has it.
    Delivered {
        /// Profiles that it says it did not take.
        rejected_profiles: u64,
    },
    /// The target will never take it.
    Refused {
        /// What it says.
        why: String,
    },
    /// It may take it another time.
    Again {
        /// Not before this time is over, if the target says so.
        after: Option<Duration>,
        /// What is wrong.
        why: String,
    },
}

/// How packets are sent.
#[derive(Debug, Clone)]
pub struct Sending {
    /// What goes with every request.
    pub headers: Headers,
    /// CA certificates that an encrypted target's must come from; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// What stays in a folder.
    pub keep: Keep,
}

impl Default for Sending {
    fn default() -> Self {
        Self {
            headers: Headers::default(),
            ca: None,
            certificate: None,
            timeout: Duration::from_secs(10),
            keep: Keep::default(),
        }
    }
}

/// Sends packets to one target. Keeps its connection between them.
#[derive(Debug)]
pub struct Sender {
    driver: Driver,
    timeout: Duration,
}

#[derive(Debug)]
enum Driver {
    OtlpHttp(Box<OtlpHttp>),
    OtlpGrpc(Box<OtlpGrpc>),
    Pyroscope(Box<Pyroscope>),
    Folder(Folder),
}

impl Sender {
    /// For a target. Nothing is connected before the first packet.
    ///
    /// # Errors
    /// [`Error::Door`](crate::Error::Door) when certificates cannot be used.
    pub fn new(target: &Target, sending: &Sending) -> Result<Self> {
        let client = |version| client(target.is_encrypted(), version, sending);
        let headers = sending.headers.clone();
        let driver = match &target.kind {
            Kind::OtlpHttp(uri) => {
                let driver = OtlpHttp::new(client(Version::Http1)?, uri.clone(), headers);
                Driver::OtlpHttp(Box::new(driver))
            }
            Kind::OtlpGrpc(uri) => {
                let driver = OtlpGrpc::new(client(Version::Http2)?, uri.clone(), headers);
                Driver::OtlpGrpc(Box::new(driver))
            }
            Kind::Pyroscope(uri) => {
                let driver = Pyroscope::new(client(Version::Http1)?, uri.clone(), headers);
                Driver::Pyroscope(Box::new(driver))
            }
            Kind::Folder(path) => Driver::Folder(Folder::new(path, sending.keep)),
        };
        Ok(Self { driver, timeout: sending.timeout })
    }

    /// Sends a packet once; `packet` is its request in gzip. Needs a runtime with time and I/O.
    pub async fn send(&self, name: &PacketName, packet: Bytes) -> Attempt {
        let sending = async {
            match &self.driver {
                Driver::OtlpHttp(driver) => driver.send(packet).await,
                Driver::OtlpGrpc(driver) => driver.send(packet).await,
                Driver::Pyroscope(driver) => driver.send(packet).await,
                Driver::Folder(driver) => driver.send(*name, packet).await,
            }
        };
        let late = |_elapsed| Attempt::Again {
            after: None,
            why: format!("no answer within {:?}", self.timeout),
        };
        tokio::time::timeout(self.timeout, sending).await.unwrap_or_else(late)
    }

    /// Sends a packet until the target says yes or no, with waits between, for about this long.
    pub async fn send_patiently(
        &self,
        name: &PacketName,
        packet: Bytes,
        patience: Duration,
    ) -> Attempt {
        let begin = Instant::now();
        let mut backoff = Backoff::default();
        loop {
            let attempt = self.send(name, packet.clone()).await;
            let Attempt::Again { after, .. } = &attempt else { return attempt };
            let wait = backoff.after_failure(*after, fastrand::f64());
            if begin.elapsed() + wait > patience {
                return attempt;
            }
            tokio::time::sleep(wait).await;
        }
    }
}

fn client(is_encrypted: bool, version: Version, sending: &Sending) -> Result<Client> {
    let certificate = sending.certificate.as_ref().map(|(it, key)| (it.as_path(), key.as_path()));
    Ok(webclient::new(is_encrypted, version, sending.ca.as_deref(), certificate)?)
}
