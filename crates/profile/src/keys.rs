//! Names of attributes: OpenTelemetry's semantic conventions where they have one, `throughline.` where they have none.

/// Resource: process number.
pub const PID: &str = "process.pid";
/// Resource: name of the executable.
pub const EXECUTABLE_NAME: &str = "process.executable.name";
/// Resource: path of the executable.
pub const EXECUTABLE_PATH: &str = "process.executable.path";
/// Resource: begin of the process in nanoseconds after boot.
pub const START_BOOT_NS: &str = "throughline.process.start_boot_ns";
/// Resource: control group.
pub const CGROUP: &str = "process.linux.cgroup";
/// Resource: container.
pub const CONTAINER_ID: &str = "container.id";
/// Resource: unit of systemd.
pub const SYSTEMD_UNIT: &str = "throughline.systemd.unit";
/// Resource: Kubernetes pod.
pub const POD_NAME: &str = "k8s.pod.name";
/// Resource: Kubernetes pod.
pub const POD_UID: &str = "k8s.pod.uid";
/// Resource: Kubernetes namespace.
pub const NAMESPACE: &str = "k8s.namespace.name";
/// Resource: service.
pub const SERVICE_NAME: &str = "service.name";
/// Resource: machine.
pub const HOST_NAME: &str = "host.name";

/// Sample: thread number.
pub const THREAD_ID: &str = "thread.id";
/// Sample: thread name.
pub const THREAD_NAME: &str = "thread.name";
/// Sample: CPU.
pub const CPU: &str = "cpu.logical_number";
/// Sample: how unwinding ended, a word of [`crate::Status`].
pub const STATUS: &str = "throughline.stack.status";

/// Location: what ran, a word of [`crate::FrameKind`].
pub const FRAME_TYPE: &str = "profile.frame.type";
/// Location: why it has no name, a word of [`crate::Unnamed`].
pub const UNNAMED: &str = "throughline.frame.unnamed";
/// Location: path of a mapped file of which no build ID is known.
pub const MAPPED_PATH: &str = "throughline.frame.mapped_path";

/// Mapping: GNU build ID.
pub const BUILD_ID_GNU: &str = "process.executable.build_id.gnu";
/// Mapping: Go build ID.
pub const BUILD_ID_GO: &str = "process.executable.build_id.go";
/// Mapping: hash of head, tail and length.
pub const BUILD_ID_HTLHASH: &str = "process.executable.build_id.htlhash";

/// Profile: begin of the names of losses of the whole packet by class; the value counts samples.
pub const LOST: &str = "throughline.packet.lost.";
/// Profile: the control loop's frequency.
pub const FREQUENCY_HZ: &str = "throughline.control.frequency_hz";
/// Profile: the control loop's window.
pub const WINDOW_NS: &str = "throughline.control.window_ns";
/// Profile: the control loop's depth.
pub const MAX_FRAMES: &str = "throughline.control.max_frames";
/// Profile: the control loop's reason.
pub const CONTROL_REASON: &str = "throughline.control.reason";

pub(crate) const SAMPLES: &str = "samples";
pub(crate) const COUNT: &str = "count";
pub(crate) const CPU_TIME: &str = "cpu";
/// Sample type: time off the CPU.
pub const OFF_CPU: &str = "off_cpu";
pub(crate) const NANOSECONDS: &str = "nanoseconds";
