//! Summaries kept as blocks, and jobs that go on where they were killed.
//!
//! In go places of recordings, folders or buckets; out comes one summary. On the way every window's summary, and each merge
//! of a run of neighbours, is committed as a block whose name is made of what it covers. A job that is started again finds
//! what is there and makes what is missing, and so do jobs of others on the same recordings. Who does the work is an
//! [`Engine`]: threads of this process ([`Threads`]), or other machines (crate `cluster`).
//!
//! ```text
//! places ─▶ pieces ─▶ plan ─▶ steps ─▶ Engine ─▶ segments ─▶ Fold ─▶ one summary
//!                               ▲                   │           │
//!                               └── what is there ── blocks ◀───┘
//! ```
//!
//! Vocabulary:
//! - **piece**: a rotation chunk, or a trace that was never rotated;
//! - **step**: one thing that can be done anywhere: read a window, or bring a block;
//! - **node**: a window, or a run of neighbours that has a block ([`Node`]); **segment**: its summary;
//! - **block**: a summary under a name that says what it is of ([`BlockId`]); never changed;
//! - **task**: steps that are sent to a worker, with what it has to know to do them ([`Task`]); **report**: what it says;
//! - **hands**: what does a step ([`Hands`]), with a cache for chunks from buckets.

mod analyse;
mod block;
mod blocks;
mod cache;
mod chunks;
mod error;
mod hands;
mod id;
mod task;
mod threads;
mod tree;
mod work;

pub use analyse::{Answer, Options, analyse};
pub use block::{MAX_FINDINGS, Summarised, Told};
pub use error::{BadTask, Damage, Error, Refused};
pub use hands::{CacheOptions, Folding, Hands};
pub use id::BlockId;
pub use task::{
    Kept, MAX_REPORT_BYTES, MAX_TASK_BYTES, Report, TASK_BASE_BYTES, TASK_FACTOR, TASK_VERSION,
    Task,
};
pub use threads::Threads;
pub use tree::{FAN, Node};
pub use work::{Engine, EngineError, Outcome, Piece, Place, Segment, Step, Stop, Work};
