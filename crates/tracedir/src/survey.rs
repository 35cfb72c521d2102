//! What a recording holds, told by its metadata, its indexes and its packet headers.
//!
//! Time and memory follow the number of packets, not their contents: no event record is decoded.

use std::path::PathBuf;

use ctf::StreamClass;
use ctf::index::IndexVersion;
use model::Timestamp;

use crate::finding::{Cause, Finding, Findings};
use crate::heads::{Head, HeadReader};
use crate::index::{Index, IndexProblem};
use crate::lane::{Before, Lost};
use crate::merge::LossKind;
use crate::recording::Recording;
use crate::stream::{PacketFile, Stream, StreamKey};

/// What one stream holds.
#[derive(Debug)]
pub struct StreamSurvey {
    /// The stream.
    pub key: StreamKey,
    /// Position of its trace in [`Recording::traces`].
    pub trace_index: Option<usize>,
    /// How many files hold it.
    pub files: u64,
    /// Bytes in these files.
    pub bytes: u64,
    /// How many packets could be told apart.
    pub packets: u64,
    /// Bits of packet content, headers and contexts included.
    pub content_bits: u64,
    /// Begin of the first packet; `None` without a clock.
    pub begin: Option<Timestamp>,
    /// End of the last packet, its begin when it was never closed; `None` without a clock.
    pub end: Option<Timestamp>,
    /// Event records that the tracer had no room for, between the first packet and the last.
    pub lost_event_records: u64,
    /// Packets that are absent between the first and the last, by their sequence numbers.
    pub lost_packets: u64,
    /// The tracer's count of discarded event records at the first packet's end: what precedes it is not known here.
    pub discarded_at_first: Option<u64>,
    /// The tracer's count of discarded event records at the last packet's end; where that one stepped back while packets
    /// went on, the one before.
    pub discarded_at_last: Option<u64>,
    /// Sequence number of the first packet.
    pub first_sequence: Option<u64>,
    /// Sequence number of the last packet.
    pub last_sequence: Option<u64>,
    /// Sequence numbers that are absent, the first [`Self::GAPS`] runs: the first of each and its last.
    pub gaps: Vec<(u64, u64)>,
    /// Files with an index that is used.
    pub indexes_trusted: u64,
    /// Files without an index.
    pub indexes_absent: u64,
    /// Files whose index is of no use: the index file, and why.
    pub indexes_refused: Vec<(PathBuf, IndexProblem)>,
}

impl StreamSurvey {
    /// How many gaps are listed.
    pub const GAPS: usize = 1000;
}

/// What packets are told by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// By the indexes, where they can be trusted; by their headers elsewhere.
    ByIndexes,
    /// By their headers.
    ByHeaders,
}

impl Recording {
    /// Looks at all packet headers or indexes; streams are in the order of [`Recording::streams`]. What cannot be read
    /// on the way is added to `findings`.
    #[must_use]
    pub fn survey(&self, findings: &mut Findings) -> Vec<StreamSurvey> {
        self.survey_by(Told::ByIndexes, findings)
    }

    pub(crate) fn survey_by(&self, told: Told, findings: &mut Findings) -> Vec<StreamSurvey> {
        let streams = self.streams().iter().enumerate();
        let of = |(at, stream)| of_stream(stream, self.trace_index(at), told, findings);
        streams.map(of).collect()
    }
}

fn of_stream(
    stream: &Stream,
    trace_index: Option<usize>,
    told: Told,
    findings: &mut Findings,
) -> StreamSurvey {
    let mut survey = StreamSurvey {
        key: stream.key().clone(),
        trace_index,
        files: 0,
        bytes: 0,
        packets: 0,
        content_bits: 0,
        begin: None,
        end: None,
        lost_event_records: 0,
        lost_packets: 0,
        discarded_at_first: None,
        discarded_at_last: None,
        first_sequence: None,
        last_sequence: None,
        gaps: Vec::new(),
        indexes_trusted: 0,
        indexes_absent: 0,
        indexes_refused: Vec::new(),
    };
    let mut before = None;
    for file in &stream.files {
        add_file(&mut survey, file, told, &mut before, findings);
    }
    survey
}

fn add_file(
    survey: &mut StreamSurvey,
    file: &PacketFile,
    told: Told,
    before: &mut Option<Before>,
    findings: &mut Findings,
) {
    survey.files += 1;
    survey.bytes += file.file.len;
    let mut each = |survey: &mut StreamSurvey, head: Head| add_packet(survey, file, head, before);
    let index = if told == Told::ByIndexes { index(file) } else { Ok(None) };
    match index {
        // Entries of version 1.0 do not tell of lost packets.
        Ok(Some(index)) if index.version() == IndexVersion::V1_1 => {
            survey.indexes_trusted += 1;
            let own = index.heads().skip_while(|head| head.offset < file.start);
            return own.for_each(|head| each(survey, head));
        }
        Ok(Some(_)) => survey.indexes_trusted += 1,
        Ok(None) => survey.indexes_absent += 1,
        Err(problem) => {
            let path = file.file.index_path().unwrap_or_default();
            survey.indexes_refused.push((path, problem));
        }
    }
    if let Err((offset_bytes, cause)) = for_each_header(file, |head| each(survey, head)) {
        let lost_bytes = file.file.len.saturating_sub(offset_bytes);
        let path = file.file.path.clone();
        findings.push(Finding::Rest { path, offset_bytes, lost_bytes, cause });
    }
}

/// The index beside a file, when the file's first packet and its last say what it says of them.
fn index(file: &PacketFile) -> Result<Option<Index>, IndexProblem> {
    let Some(index) = file.index()? else { return Ok(None) };
    let Some((first, last)) = index.ends() else { return Ok(Some(index)) };
    let mut headers = HeadReader::open(file)?;
    for entry in [first, last] {
        let told = headers.at(entry.offset_bytes);
        if told.is_ok_and(|told| !told.is_consistent_with(&Head::indexed(&entry))) {
            return Err(IndexProblem::OtherPacket { offset_bytes: entry.offset_bytes });
        }
    }
    Ok(Some(index))
}

/// Calls `each` for the packets of a file in order, up to the first whose header cannot be read: its place and fault.
fn for_each_header(file: &PacketFile, mut each: impl FnMut(Head)) -> Result<(), (u64, Cause)> {
    let mut headers = HeadReader::open(file).map_err(|error| (0, Cause::Io(error)))?;
    let mut next = Some(file.start).filter(|start| *start < file.file.len);
    while let Some(offset) = next {
        let head = headers.at(offset).map_err(|cause| (offset, cause))?;
        next = file.after(&head);
        each(head);
    }
    Ok(())
}

fn add_packet(
    survey: &mut StreamSurvey,
    file: &PacketFile,
    head: Head,
    before: &mut Option<Before>,
) {
    let begin = file.time(head.begin);
    let end = file.time(head.end.filter(|end| *end != 0)).or(begin);
    let bits = file.stream_class().and_then(StreamClass::discarded_counter_bits);
    if survey.packets == 0 {
        (survey.begin, survey.discarded_at_first) = (begin, head.discarded);
        survey.first_sequence = head.sequence;
    }
    survey.last_sequence = head.sequence;
    let sequences = before.and_then(|before| before.sequence).zip(head.sequence);
    if let Some((before, now)) = sequences
        && now.saturating_sub(before) > 1
        && survey.gaps.len() < StreamSurvey::GAPS
    {
        survey.gaps.push((before + 1, now - 1));
    }
    survey.packets += 1;
    survey.content_bits += head.content_bits.unwrap_or(0);
    survey.end = survey.end.max(end);
    let (now, lost) = Before::step(*before, head, bits, begin, end);
    survey.discarded_at_last = now.discarded;
    for Lost { kind, count, .. } in lost.into_iter().flatten() {
        match kind {
            LossKind::EventRecords => survey.lost_event_records += count,
            LossKind::Packets => survey.lost_packets += count,
        }
    }
    *before = Some(now);
}
