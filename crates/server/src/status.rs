//! What the recording has received so far and what is missing, as `/api/v1/status` tells it.

use serde::Serialize;

/// The state of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Whether more may come; the page then keeps asking.
    pub recording: bool,
    /// Where tracers send to, as `lttng create --set-url` takes it; `None` when nothing listens.
    pub relay_url: Option<String>,
    /// The port of the store of profiles on the same host; `None` when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles_port: Option<u16>,
    /// One entry per recording session, in the order of their arrival. The relay bounds their number.
    pub sessions: Vec<SessionStatus>,
    /// Windows of trace time that are part of the answer.
    pub windows_mapped: u64,
    /// Chunks whose events are not in the answer. The caller bounds their number.
    pub missing: Vec<MissingChunk>,
    /// Whether the kernel is traced too.
    pub kernel: KernelHalf,
}

/// One recording session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SessionStatus {
    /// Its name.
    pub name: String,
    /// The host which records it.
    pub host: String,
    /// Whether its tracer is connected.
    pub open: bool,
    /// Chunks received whole.
    pub chunks_sealed: u64,
}

/// A chunk that the answer had to do without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingChunk {
    /// The session and chunk as the data folder names them.
    pub name: String,
    /// One line for a reader, such as "interrupted: the relay ended before the rotation did".
    pub reason: String,
}

/// The kernel's half of the trace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KernelHalf {
    /// Nobody has tried yet.
    #[default]
    NotStarted,
    /// Events arrive.
    Recording,
    /// It is not traced: threads' states are unknown and there are no system calls.
    Missing {
        /// One line for a reader, such as "needs root".
        reason: String,
    },
}

impl Status {
    /// The JSON document of `/api/v1/status`.
    #[must_use]
    pub fn to_json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            format: &'static str,
            chunks_sealed: u64,
            #[serde(flatten)]
            status: &'a Status,
        }
        let chunks_sealed = self
            .sessions
            .iter()
            .fold(0_u64, |sum, session| sum.saturating_add(session.chunks_sealed));
        let document = Document { format: "throughline-status/1", chunks_sealed, status: self };
        #[expect(
            clippy::expect_used,
            reason = "strings, integers and lists always have a JSON form"
        )]
        serde_json::to_string(&document).expect("a status has a JSON form")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_what_is_missing_and_why() {
        let status = Status {
            recording: true,
            relay_url: Some("net://127.0.0.1:5342:5343".to_owned()),
            profiles_port: Some(4040),
            sessions: vec![
                SessionStatus {
                    name: "app".to_owned(),
                    host: "vm".to_owned(),
                    open: true,
                    chunks_sealed: 3,
                },
                SessionStatus {
                    name: "old".to_owned(),
                    host: "vm".to_owned(),
                    open: false,
                    chunks_sealed: 4,
                },
            ],
            windows_mapped: 6,
            missing: vec![MissingChunk {
                name: "old/4".to_owned(),
                reason: "interrupted".to_owned(),
            }],
            kernel: KernelHalf::Missing { reason: "needs root".to_owned() },
        };
        let json: serde_json::Value = serde_json::from_str(&status.to_json()).expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({
                "format": "throughline-status/1",
                "recording": true,
                "relay_url": "net://127.0.0.1:5342:5343",
                "profiles_port": 4040,
                "chunks_sealed": 7,
                "windows_mapped": 6,
                "sessions": [
                    {"name": "app", "host": "vm", "open": true, "chunks_sealed": 3},
                    {"name": "old", "host": "vm", "open": false, "chunks_sealed": 4},
                ],
                "missing": [{"name": "old/4", "reason": "interrupted"}],
                "kernel": {"state": "missing", "reason": "needs root"},
            })
        );
    }
}
