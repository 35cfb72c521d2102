//! How a process's rings are, and who reads them.

use std::path::PathBuf;

use crate::Sampling;
use crate::kept::Kept;
use crate::layout::{MAX_RINGS, Mode, RING_HEADER_LEN, RING_LEN, SERVICE_LEN, SITES_LEN, Shape};

/// Where the agent of this machine listens unless it is said otherwise.
pub const DEFAULT_SOCKET: &str = "/run/throughline/rings.sock";

/// Set to `0` or `off`: no ring is ever made.
pub const VARIABLE_ON: &str = "TRACEPOINTS";
/// [`Options::socket`].
pub const VARIABLE_SOCKET: &str = "TRACEPOINTS_SOCKET";
/// [`Options::ring_len`], in bytes.
pub const VARIABLE_RING_LEN: &str = "TRACEPOINTS_RING_BYTES";
/// [`Options::rings`].
pub const VARIABLE_RINGS: &str = "TRACEPOINTS_RINGS";
/// [`Options::mode`]: `drop` or `overwrite`.
pub const VARIABLE_MODE: &str = "TRACEPOINTS_MODE";
/// [`Options::service`]; else OpenTelemetry's `OTEL_SERVICE_NAME`, else the program's name.
pub const VARIABLE_SERVICE: &str = "TRACEPOINTS_SERVICE";

/// [`Sampling::ratio`]; else as OpenTelemetry's `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` say.
pub const VARIABLE_SAMPLE: &str = "TRACEPOINTS_SAMPLE";
/// [`Sampling::per_second`].
pub const VARIABLE_SAMPLE_PER_SECOND: &str = "TRACEPOINTS_SAMPLE_PER_SECOND";

/// How a process's rings are. Lengths are rounded to what is possible: rings up to a power of two.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether there are any.
    pub is_on: bool,
    /// Where the agent listens.
    pub socket: PathBuf,
    /// Bytes of records for each thread: 256 KiB, some 8,000 records of two integers.
    pub ring_len: u64,
    /// Bytes of descriptions of call sites for each thread: 32 KiB, some 300 sites.
    pub sites_len: u64,
    /// Threads that write at a time: 256. Memory is taken as it is written to.
    pub rings: u32,
    /// What happens when a ring is full.
    pub mode: Mode,
    /// What the process calls itself, at most [`SERVICE_LEN`] bytes.
    pub service: String,
    /// Which traces that begin in the process are written.
    pub sampling: Sampling,
}

impl Default for Options {
    /// As the environment says.
    fn default() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let number = |name: &str| text(name).and_then(|value| value.parse::<u64>().ok());
        let is_off = text(VARIABLE_ON).is_some_and(|value| matches!(&*value, "0" | "off"));
        let program = || {
            let path = std::env::current_exe().ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        };
        let real = |name: &str| text(name).and_then(|value| value.parse::<f64>().ok());
        let of_opentelemetry =
            || match text("OTEL_TRACES_SAMPLER")?.trim_start_matches("parentbased_") {
                "always_off" => Some(0.0),
                "traceidratio" => real("OTEL_TRACES_SAMPLER_ARG"),
                _ => None,
            };
        let sampling = Sampling {
            ratio: real(VARIABLE_SAMPLE).or_else(of_opentelemetry).unwrap_or(1.0),
            per_second: real(VARIABLE_SAMPLE_PER_SECOND),
        };
        let service = text(VARIABLE_SERVICE).or_else(|| text("OTEL_SERVICE_NAME")).or_else(program);
        Self {
            is_on: !is_off,
            socket: text(VARIABLE_SOCKET).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from),
            ring_len: number(VARIABLE_RING_LEN).unwrap_or(256 << 10),
            sites_len: 32 << 10,
            rings: number(VARIABLE_RINGS).and_then(|rings| rings.try_into().ok()).unwrap_or(256),
            mode: match text(VARIABLE_MODE).as_deref() {
                Some("overwrite") => Mode::Overwrite,
                _ => Mode::Drop,
            },
            service: service.unwrap_or_default(),
            sampling,
        }
    }
}

/// What was asked for before the first record.
static ASKED: Kept<Options> = Kept::none();

pub(crate) fn ask(options: Options) {
    ASKED.hold().set(options);
}

/// Waits for nobody: while somebody asks, what the environment says holds.
pub(crate) fn get() -> Options {
    ASKED.try_hold().and_then(|asked| asked.get().cloned()).unwrap_or_default()
}

/// Who was asking is not in the child. What was asked is whole.
pub(crate) fn in_child() {
    ASKED.take_back();
}

impl Options {
    /// The nearest sizes that are possible.
    pub(crate) fn shape(&self) -> Shape {
        let ring_len = self.ring_len.clamp(*RING_LEN.start(), *RING_LEN.end());
        let sites_len = self.sites_len.clamp(*SITES_LEN.start(), *SITES_LEN.end());
        Shape {
            rings: self.rings.clamp(1, MAX_RINGS),
            ring_len: ring_len.next_power_of_two(),
            sites_len: sites_len.next_multiple_of(RING_HEADER_LEN),
        }
    }
}

const _: () = assert!(SERVICE_LEN >= 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_lengths_become_a_shape_that_readers_take() {
        for len in [0, 1, 4097, 300_000, u64::MAX] {
            let rings = u32::try_from(len).unwrap_or(u32::MAX);
            let options = Options { ring_len: len, sites_len: len, rings, ..Options::default() };
            assert!(options.shape().is_valid(), "{:?}", options.shape());
        }
    }
}
