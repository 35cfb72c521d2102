//! What goes into a packet, as its caller says it: borrowed, and resolved already.

use std::fmt;

/// The stretch of time that a packet covers. Samples lie in `begin_unix_ns .. begin_unix_ns + duration_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Begin, in nanoseconds since the epoch.
    pub begin_unix_ns: u64,
    /// Length in nanoseconds.
    pub duration_ns: u64,
}

impl Window {
    /// Whether a sample of this time belongs here.
    #[must_use]
    pub fn holds(&self, at_unix_ns: u64) -> bool {
        at_unix_ns.checked_sub(self.begin_unix_ns).is_some_and(|after| after < self.duration_ns)
    }
}

/// What one sample stands for. A packet holds one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// The stack was found on a CPU by a timer with this period. Samples are written as their times, each counting 1.
    OnCpu {
        /// Nanoseconds of CPU time between two samples.
        period_ns: u64,
    },
    /// The thread was off its CPU for [`Sample::value`] nanoseconds.
    OffCpu,
}

/// A process: what its Resource says. Two processes are the same if everything here is the same.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    /// The process number.
    pub pid: u32,
    /// When it began, in nanoseconds after boot: with `pid` its identity, because process numbers are used again.
    pub start_boot_ns: u64,
    /// Name of the executable, as the kernel keeps it.
    pub executable_name: &'a str,
    /// Path of the executable in the process's own file system; empty for threads of the kernel.
    pub executable_path: &'a str,
    /// Host, container, control group, unit, pod and configured labels, under the names of [`crate::keys`] or others. Order
    /// does not matter; of two with one key the last stays.
    pub attributes: &'a [(&'a str, &'a str)],
}

/// A mapped file, or the kernel.
///
/// Addresses count as [`Frame::address`] does: by the file's own addresses, not by those of a process. So one library is one mapping
/// for all processes that use it, wherever each has it.
#[derive(Debug, Clone, Copy)]
pub struct Mapping<'a> {
    /// First address.
    pub memory_start: u64,
    /// First address behind it; a range that is empty is left out.
    pub memory_limit: u64,
    /// Where in the file `memory_start` is, in bytes.
    pub file_offset: u64,
    /// Path in the process's own file system, or a name in brackets.
    pub path: &'a str,
    /// All identities of the file that are known. Without one the file has no identity that others could look it up
    /// by: the frame then says its path and has no mapping, as OTLP asks.
    pub build_ids: &'a [BuildId<'a>],
}

/// What identifies a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildId<'a> {
    /// GNU build ID, in hexadecimal digits.
    Gnu(&'a str),
    /// Go's build ID, as text.
    Go(&'a str),
    /// First 16 bytes, in hexadecimal digits, of SHA-256 over the file's first and last 4,096 bytes and its length.
    HtlHash(&'a str),
}

/// What ran in a frame: `profile.frame.type` of OpenTelemetry's semantic conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// Compiled code.
    Native,
    /// The kernel, its modules and eBPF programs.
    Kernel,
    /// CPython.
    CPython,
    /// V8: Node.js, Chromium.
    V8Js,
    /// A Java virtual machine.
    Jvm,
    /// Go.
    Go,
    /// Rust, where that is known.
    Rust,
    /// LuaJIT.
    LuaJit,
    /// .NET.
    DotNet,
    /// Ruby.
    Ruby,
    /// PHP.
    Php,
    /// Perl.
    Perl,
    /// Erlang and Elixir.
    Beam,
}

impl FrameKind {
    /// The word of the semantic conventions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Kernel => "kernel",
            Self::CPython => "cpython",
            Self::V8Js => "v8js",
            Self::Jvm => "jvm",
            Self::Go => "go",
            Self::Rust => "rust",
            Self::LuaJit => "luajit",
            Self::DotNet => "dotnet",
            Self::Ruby => "ruby",
            Self::Php => "php",
            Self::Perl => "perl",
            Self::Beam => "beam",
        }
    }
}

/// Why a frame has no name. What it was is then told by build ID and address, where there is a file at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unnamed {
    /// The file has no symbol for the address.
    NoSymbol,
    /// The file could not be read: gone, or no right to.
    NoFile,
    /// The address lies in memory without a file, and nothing names code there.
    Anonymous,
    /// The address lies in no mapping of the process that is known.
    NoMapping,
    /// The kernel does not tell its symbols.
    Hidden,
    /// The budget for looking up names was used up.
    Budget,
    /// The names given were all empty.
    Empty,
}

impl Unnamed {
    /// The word that a packet says.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSymbol => "no_symbol",
            Self::NoFile => "no_file",
            Self::Anonymous => "anonymous",
            Self::NoMapping => "no_mapping",
            Self::Hidden => "hidden",
            Self::Budget => "budget",
            Self::Empty => "empty",
        }
    }
}

/// One function at one place.
#[derive(Debug, Clone, Copy, Default)]
pub struct Line<'a> {
    /// The name for people.
    pub function: &'a str,
    /// The name as the file has it (mangled); empty when it is the same.
    pub system_name: &'a str,
    /// The source file; empty when not known.
    pub file: &'a str,
    /// Line in the file, from 1; 0 when not known.
    pub line: u32,
    /// Line at which the function begins; 0 when not known.
    pub start_line: u32,
}

/// What is known of the functions at an address.
#[derive(Debug, Clone, Copy)]
pub enum Names<'a> {
    /// The function that owns the code comes last; those inlined into it stand before, innermost first.
    Known(&'a [Line<'a>]),
    /// No name, because.
    Unnamed(Unnamed),
}

/// One frame of a stack.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// What ran in it.
    pub kind: FrameKind,
    /// Where the code came from, if from a file.
    pub mapping: Option<&'a Mapping<'a>>,
    /// Address in the file (as its symbols count) or, without a mapping, in the process. An interpreter's place in
    /// its own code.
    pub address: u64,
    /// Names, or why there are none.
    pub names: Names<'a>,
}

/// How the unwinding of a sample ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// At the root: the stack is whole.
    Root,
    /// At the most frames that are taken.
    Truncated,
    /// At code without a row to unwind by.
    NoRow,
    /// At memory that could not be read.
    Fault,
    /// At an address outside all mappings.
    NoMapping,
    /// In an interpreter whose own frames could not be followed.
    Interpreter,
    /// Before its first frame: a thread that had waited went on before it was looked at.
    Late,
}

impl Status {
    /// The word that a packet says.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Truncated => "truncated",
            Self::NoRow => "no_row",
            Self::Fault => "fault",
            Self::NoMapping => "no_mapping",
            Self::Interpreter => "interpreter",
            Self::Late => "late",
        }
    }
}

/// The span that a thread was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link {
    /// W3C trace id.
    pub trace_id: [u8; 16],
    /// W3C span id.
    pub span_id: [u8; 8],
}

/// One sample. Ids are those of the builder that it is added to.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// From [`crate::Builder::process`].
    pub process: ProcessId,
    /// The thread's number.
    pub tid: u32,
    /// The thread's name.
    pub thread_name: &'a str,
    /// The CPU it was on.
    pub cpu: u32,
    /// When, in nanoseconds since the epoch; written in steps of [`crate::TIME_STEP_NS`].
    pub at_unix_ns: u64,
    /// Nanoseconds off the CPU; 1 for [`SampleKind::OnCpu`].
    pub value: u64,
    /// The span it was in, if that is known.
    pub link: Option<Link>,
    /// From [`crate::Builder::frame`], leaf first.
    pub frames: &'a [FrameId],
    /// How the unwinding ended.
    pub status: Status,
}

/// What the control loop had decided for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control<'a> {
    /// Samples per second and CPU.
    pub frequency_hz: u32,
    /// Length that windows are meant to have.
    pub window_ns: u64,
    /// Most frames of a stack.
    pub max_frames: u32,
    /// What made it decide so; empty when nothing had to be lowered.
    pub reason: &'a str,
}

/// A process in the builder that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessId(pub(crate) u32);

/// A frame in the builder that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameId(pub(crate) u32);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
