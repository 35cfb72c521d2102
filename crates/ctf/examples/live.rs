//! Decodes one stream while it arrives in pieces: `cargo run --example live -- METADATA < STREAM`.
//!
//! "Not enough yet" is an ordinary answer: the decoder of files is that of a growing stream.

use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::{env, fs};

use ctf::packet::{EventReader, Outcome, decode_packet_header};
use ctf::{DecodeError, EventRecord, TraceClass};

fn main() -> Result<(), Box<dyn Error>> {
    let metadata = env::args_os().nth(1).ok_or("usage: live METADATA < STREAM")?;
    let mut live = Live::new(TraceClass::parse(&fs::read(metadata)?)?);
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut piece = [0; 4096];
    loop {
        let length = input.read(&mut piece)?;
        let Some(piece) = piece.get(..length).filter(|piece| !piece.is_empty()) else { break };
        let mut lines = Vec::new();
        live.feed(piece, |event| {
            lines.push(format!("{} {}\n", event.timestamp_ns().unwrap_or(0), event.name()));
        })?;
        output.write_all(lines.concat().as_bytes())?;
    }
    if live.waiting() > 0 {
        return Err(format!("{} bytes of an unfinished packet", live.waiting()).into());
    }
    Ok(())
}

/// Takes the bytes of a stream as they come. Holds one packet at the most.
pub(crate) struct Live {
    trace: Arc<TraceClass>,
    bytes: Vec<u8>,
}

impl Live {
    pub(crate) fn new(trace: TraceClass) -> Self {
        Self { trace: Arc::new(trace), bytes: Vec::new() }
    }

    /// How many bytes wait for the rest of their packet.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// Adds a piece and shows the event records of all packets that are complete with it.
    pub(crate) fn feed(
        &mut self,
        piece: &[u8],
        mut show: impl FnMut(&EventRecord<'_>),
    ) -> Result<(), DecodeError> {
        self.bytes.extend_from_slice(piece);
        while !self.bytes.is_empty() {
            let info = match decode_packet_header(&self.trace, &self.bytes)? {
                Outcome::Ready(info) => info,
                Outcome::NeedMore { .. } => break,
            };
            // Without a length, the packet is all that will ever come.
            let Some(length) = info.total_bytes().and_then(|bytes| usize::try_from(bytes).ok())
            else {
                break;
            };
            if self.bytes.len() < length {
                break;
            }
            let rest = self.bytes.split_off(length);
            let packet = std::mem::replace(&mut self.bytes, rest);
            if let Outcome::Ready(mut events) = EventReader::open(Arc::clone(&self.trace), packet)?
            {
                while let Some(event) = events.next_event()? {
                    show(&event);
                }
            }
        }
        Ok(())
    }
}
