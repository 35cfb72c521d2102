//! Tracepoints that cost an application nanoseconds: records in shared memory, which an agent stores later.
//!
//! ```text
//! tracepoint! ─▶ the thread's own ring ─▶ (shared memory) ─▶ agent ─▶ stores
//!               one store publishes a record
//! ```
//! ```
//! use tracepoint::tracepoint;
//!
//! fn look_up(key: &str) -> Option<u64> {
//!     let found = (key == "a").then_some(7);
//!     tracepoint!("cache.lookup", key: str = key, hit: bool = found.is_some());
//!     found
//! }
//! assert_eq!(look_up("a"), Some(7));
//! ```
//! What a record costs: some ten nanoseconds, nearly all of them for the time; no lock, no system call, no allocation. A thread's first
//! record takes a ring and the first of a call site describes it in that ring, so that a ring can be read alone. Memory: as much of
//! [`Options::ring_len`] as was written to, for each thread that writes.
//!
//! - A ring that is full drops, and counts ([`Mode::Drop`]), or gives up what is oldest ([`Mode::Overwrite`]).
//! - Without an agent records stay where they are. A process that is killed leaves what it published with the agent that holds its
//!   memory file.
//! - A signal handler may write records; one that comes between the parts of another is dropped and counted.
//! - A child that is forked has rings of its own.
//! - Call sites are turned on and off by the agent; one that is off costs a load and a branch.
//!
//! [`layout`] is what both sides share. Reading belongs to those who store; who wants records in the process itself needs another crate.

mod arena;
mod clock;
mod context;
mod field;
mod keeper;
mod kept;
#[cfg(feature = "tracing")]
mod layer;
pub mod layout;
mod options;
mod ring;
mod sampling;
mod site;
mod span;

pub use clock::clock_pair;
pub use context::{Context, Entered};
pub use field::{Field, Fields, Values};
pub use keeper::{MAX_MESSAGE_LEN, RULES_MESSAGE, greeting};
#[cfg(feature = "tracing")]
pub use layer::Tracepoints;
pub use layout::{DropReason, FieldType, Mode, Status};
pub use options::{
    DEFAULT_SOCKET, Options, VARIABLE_MODE, VARIABLE_ON, VARIABLE_RING_LEN, VARIABLE_RINGS,
    VARIABLE_SAMPLE, VARIABLE_SAMPLE_PER_SECOND, VARIABLE_SERVICE, VARIABLE_SOCKET,
};
pub use sampling::{Sampling, set_sampling};
pub use site::{FieldInfo, MAX_RULE_LEN, MAX_RULES, Rules, Site};
pub use span::{Span, SpanSite, write_event};

/// Makes the rings now, as is asked, so that the first record need not. Gives whether there are any: not when options or the environment say
/// so, or memory is refused. What is asked after the first record is for children that are forked.
pub fn start(options: Options) -> bool {
    options::ask(options);
    arena::get().is_some()
}

/// Writes a record of a call site, if that is on: see [`tracepoint!`].
#[inline(always)]
pub fn write(site: &'static Site, fields: &impl Fields) {
    ring::write(site, fields);
}

/// `value` as its field's type: a `String` is a `str`.
#[doc(hidden)]
#[inline(always)]
pub const fn as_field<T: Field + ?Sized>(value: &T) -> &T {
    value
}

/// Writes a record: a name, and fields with their types.
///
/// A type is one of Rust's integers up to 64 bits, `f32`, `f64`, `bool`, `str` or `[u8]`. Values are found only if the call site is on. Texts and bytes
/// are cut after [`layout::MAX_VALUE_LEN`] bytes.
///
/// ```
/// let (path, bytes) = (String::from("/a"), 512_u64);
/// tracepoint::tracepoint!("read", path: str = path, bytes: u64 = bytes);
/// ```
#[macro_export]
macro_rules! tracepoint {
    ($name:literal $(, $field:ident : $type:ty = $value:expr)* $(,)?) => {{
        static SITE: $crate::Site = $crate::Site::new(
            $crate::layout::SiteKind::Event,
            $name,
            ::core::module_path!(),
            (::core::file!(), ::core::line!()),
            &[$($crate::FieldInfo {
                name: ::core::stringify!($field),
                kind: <$type as $crate::Field>::TYPE,
            }),*],
        );
        if SITE.is_on() {
            $crate::write(&SITE, &$crate::values!($($type = $value,)*));
        }
    }};
}

/// The values of a record, one in the other.
#[doc(hidden)]
#[macro_export]
macro_rules! values {
    () => { () };
    ($type:ty = $value:expr, $($rest:tt)*) => {
        $crate::Values::new($crate::as_field::<$type>(&$value), $crate::values!($($rest)*))
    };
}
