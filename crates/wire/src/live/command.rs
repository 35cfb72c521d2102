//! Command numbers of the control connection.

use std::fmt;

use super::error::{Error, Result};

/// An enumeration of commands; `at` is where the number stands in the header, in bytes.
macro_rules! commands {
    (
        $(#[$type_doc:meta])* at $offset:literal;
        $($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal;)*
    ) => {
        $(#[$type_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Command {
            $($(#[$doc])* $variant = $number,)*
        }

        impl Command {
            /// Every command, by number.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Finds a command by its number.
            ///
            /// # Errors
            /// [`Error::UnknownCommand`]; the reference relay answers return code 11 and closes.
            pub const fn from_number(number: u32) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$variant),)*
                    _ => Err(Error::UnknownCommand { number, offset: $offset }),
                }
            }

            /// The name the protocol's authors use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

pub(super) use commands;

commands! {
    /// A command of the control connection.
    at 16;
    /// A stream begins.
    AddStream = 1, "ADD_STREAM";
    /// A relay session begins.
    CreateSession = 2, "CREATE_SESSION";
    /// Versions are exchanged; comes first.
    Version = 5, "VERSION";
    /// Metadata bytes; the only command without a reply.
    SendMetadata = 6, "SEND_METADATA";
    /// A stream ends.
    CloseStream = 7, "CLOSE_STREAM";
    /// Whether a stream's data is all on disk.
    DataPending = 8, "DATA_PENDING";
    /// Whether a metadata stream has taken everything sent so far.
    QuiescentControl = 9, "QUIESCENT_CONTROL";
    /// Begins a round of questions about pending data.
    BeginDataPending = 10, "BEGIN_DATA_PENDING";
    /// Ends that round: whether any stream was left out and is incomplete.
    EndDataPending = 11, "END_DATA_PENDING";
    /// The index entry of one packet, or a beacon.
    SendIndex = 13, "SEND_INDEX";
    /// Streams added so far may be shown to viewers.
    StreamsSent = 16, "STREAMS_SENT";
    /// A metadata stream begins again from nothing.
    ResetMetadata = 17, "RESET_METADATA";
    /// Streams move to the next trace chunk at given packets.
    RotateStreams = 18, "ROTATE_STREAMS";
    /// A trace chunk begins.
    CreateTraceChunk = 19, "CREATE_TRACE_CHUNK";
    /// A trace chunk ends.
    CloseTraceChunk = 20, "CLOSE_TRACE_CHUNK";
    /// Whether a trace chunk is still being worked on.
    TraceChunkExists = 21, "TRACE_CHUNK_EXISTS";
    /// What the relay permits.
    GetConfiguration = 22, "GET_CONFIGURATION";
    /// What the relay has of each stream of a session that came back; Throughline's own.
    StreamPositions = 1001, "STREAM_POSITIONS";
}

impl Command {
    /// The largest payload accepted, in bytes. Metadata comes in pieces of the size of the metadata
    /// channel's sub-buffers or of one whole document; the others are lists of at most
    /// [`super::MAX_ROTATED_STREAMS`] streams.
    #[must_use]
    pub const fn max_payload_len(self) -> u64 {
        match self {
            Self::SendMetadata => super::MAX_PAYLOAD_LEN,
            _ => 1 << 20,
        }
    }

    /// Whether the relay answers it.
    #[must_use]
    pub const fn has_reply(self) -> bool {
        !matches!(self, Self::SendMetadata)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
