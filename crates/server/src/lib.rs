//! HTTP endpoints and the web page.
//!
//! In: answers as JSON text (`analyze phases`, `analyze syscalls`) and the state of the recording. Out: one web page that
//! draws them, served while the recording goes on ([`serve`]), then also with the events as they come ([`live`]), or as one file that needs no server ([`page::standalone`]).
//! The listener is the caller's, and with it the choice of address: loopback unless somebody asked for more.
//!
//! Vocabulary:
//! - **answer**: the JSON document one analysis prints; this crate carries it and the page draws it;
//! - **snapshot**: an answer at one moment, with a version that changes whenever the answer does;
//! - **status**: what the recording has received and what is missing, and why;
//! - **tail**: the events of a recording session as they come, for one page ([`live`]);
//! - **served**, **standalone**: the page that fetches its answer, and the page that holds it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! # async fn example() -> Result<(), server::Error> {
//! let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
//! let answers = Arc::new(server::Published::new());
//! answers.set_phases(r#"{"format":"throughline-phases/1"}"#);
//! server::serve(listener, answers, None, |_from, _to| true, async { tokio::signal::ctrl_c().await.expect("a signal handler") }).await
//! # }
//! ```

mod connections;
mod endpoints;
mod error;
mod guard;
pub mod live;
pub mod page;
pub mod profiles;
mod source;
mod status;

pub use axum::body::Bytes;
pub use connections::serve;
pub use error::Error;
pub use live::LiveSource;
pub use source::{AnswerFolder, AnswerSource, Published, Snapshot};
pub use status::{KernelHalf, MissingChunk, SessionStatus, Status};
