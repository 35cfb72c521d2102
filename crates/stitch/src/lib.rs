//! Chunk-wise trace analysis: where did the time of requests go?
//!
//! In go facts about one host, cut in time anywhere; out come answers as plain data. Each stretch of time is summarised by
//! itself, summaries of neighbours merge, and the answer of all is the same, byte for byte, for every cut and every
//! grouping. Nothing here reads a file, a clock or a trace format: who calls brings the facts and keeps the bytes.
//!
//! ```text
//! facts ──▶ Window ─▶ Summary ─┐
//! facts ──▶ Window ─▶ Summary ─┼─ merge ─▶ Summary ─ phases / syscalls / tables ─▶ answer
//! missing ───── gap ─▶ Summary ─┘
//! ```
//!
//! Vocabulary:
//! - **fact**: an event in the few words the analysis understands ([`fact`]);
//! - **window**: a stretch of time whose facts are summarised together;
//! - **boundary**: the begin of a window; what lies to its left is unknown until the merge and stands as a *term*;
//! - **head**: what waits for the left neighbour; **tail**: what is offered to the right one;
//! - **request**: the outermost span of a thread; **phase**: a span inside it.

mod call;
mod cpu;
mod descriptors;
mod error;
mod file;
mod finish;
mod fold;
mod gone;
mod ident;
mod keyed;
mod lives;
mod name;
mod numbers;
mod operation;
#[cfg(feature = "law")]
mod part;
mod path;
mod range;
mod rare;
mod requests;
mod select;
mod sharing;
mod spent;
mod stack;
mod summary;
mod taint;
mod thread;
mod who;
mod window;

pub mod answer;
pub mod fact;
pub mod periods;
pub mod spans;
pub mod table;

pub use error::{Assumption, Error};
pub use file::columns::ColumnError;
pub use finish::{
    Question, Subject, Tables, loss, phases, request_path, syscalls, tables, thread_path,
    threads_named,
};
pub use ident::Kind;
pub use lives::MAX_LIVES;
#[cfg(feature = "law")]
pub use part::Part;
pub use path::{Asked, MAX_HOPS, MAX_PATHS};
pub use range::Log;
pub use requests::MAX_LISTED_REQUESTS;
pub use select::{Between, Logged, Selection};
pub use summary::{Cover, Summary};
pub use who::{Identities, LOOK_AHEAD, LookAhead};
pub use window::Window;
