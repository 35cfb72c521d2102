//! TLS between a relay and those who come to it.
//!
//! In go files (certificates, keys, tokens), out come what a TLS library is to be set up with, who has which token, and
//! on the client's side a [`Stream`] that was let in. What is said through it is the caller's business; so is, on the
//! relay's side, all that waits.
//!
//! Vocabulary:
//! - **role**: what a connection is for, see [`Role`];
//! - **token**: a secret that says who comes; **grant**: what its owner may do;
//! - **private file**: one that others than its owner and its group cannot read, and only its owner can change.
//!
//! The other side is always checked: a client by the relay's name and a root it trusts, a relay by a certificate of the
//! client, a token, or both. Secrets come from files or the environment and are shown nowhere.
//!
//! ```no_run
//! use std::net::TcpStream;
//! use door::{Client, Role, Settings, TokenSource};
//!
//! let settings = Settings {
//!     ca: Some("ca.pem".into()),
//!     token: Some(TokenSource::File("token".into())),
//!     ..Settings::default()
//! };
//! let socket = TcpStream::connect("relay-1:5346")?;
//! let stream = Client::new(&settings)?.enter(socket, "relay-1", Role::Viewer)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod error;
mod files;
mod server;
mod stream;
mod tokens;

pub use client::{Client, Settings, TokenSource, client_config};
pub use error::{Error, Result};
pub use files::secret;
pub use server::{Certified, certified, server_config};
pub use stream::Stream;
pub use tokens::{BadTokens, Grant, TokenProblem, Tokens};
pub use wire::door::{Answer, BadToken, DEFAULT_PORT, Preamble, Refusal, Role, Token};
