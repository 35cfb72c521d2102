//! Going through the event records of a packet, some ahead of the one that is being looked at.
//!
//! Where one event record begins is known only when the one before it has been gone over, so a loop over many of them
//! that does nothing else keeps all it needs in the processor's registers, and does not wait for what is done with each.
//! What it finds out is kept as **marks**: where the event record begins and ends, its class, its time, and its anchors.
//!
//! ```text
//!            given      current    ahead                 not gone over
//! packet   │ ▪▪▪▪▪▪▪▪ │ ▪▪▪▪▪▪▪▪ │ ▪▪▪▪▪▪▪▪ ▪▪▪▪▪▪▪▪ ▪▪ │ ▪▪▪▪▪▪▪▪ ▪▪▪▪▪
//! marks      0          1          2        3        4   ▲ position, clock
//! ```
//!
//! Registers keep the values of the event record that was gone over last. Where reading a field needs them (a variant's
//! selector), its event record is the only one of its batch, so that it is the last and the current one.

use std::cell::Cell;
use std::sync::Arc;

use crate::class::{ByteOrder, StreamClass, TraceClass};
use crate::clock::{self, ClockClass};
use crate::error::{DecodeError, DecodeErrorKind};
use crate::general;
use crate::header::QuickHeader;
use crate::order;
use crate::packet::PacketInfo;
use crate::program::{Program, Programs};
use crate::ticks::Ticks;
use crate::value::{Context, Scope};
use crate::walk::Stack;

/// Event records that are gone over at once: enough that starting the loop costs little, few enough that what it finds
/// out stays in the nearest cache.
const AHEAD: usize = 16;

/// Anchors of these: what they need most often. A class that has more gets its event records in smaller batches.
const ANCHORS: usize = 4 * AHEAD;

/// What is known of an event record that was gone over.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    /// Where it begins, before alignment, and where it ends, in bits.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The clock behind its header, if it is known; before it is looked at, the header's time and the bits that has.
    clock: u64,
    time_mask: u64,
    /// Its time, if it has one.
    timestamp: i64,
    /// Index of its class.
    pub(crate) class: u32,
    /// Number of its first anchor.
    anchors: usize,
    is_clocked: bool,
    is_timed: bool,
}

impl Mark {
    #[inline]
    pub(crate) fn clock(&self) -> Option<u64> {
        self.is_clocked.then_some(self.clock)
    }

    /// In nanoseconds.
    #[inline]
    pub(crate) fn timestamp(&self) -> Option<i64> {
        self.is_timed.then_some(self.timestamp)
    }
}

/// Where a reader is in a packet.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    pub(crate) registers: Vec<Cell<u64>>,
    pub(crate) stack: Stack,
    pub(crate) programs: Arc<Programs>,
    marks: Vec<Mark>,
    /// Which of them is the current event record's.
    current: usize,
    /// Where the segments of these event records begin: see [`Programs`].
    anchors: Box<[u64]>,
    /// How many event records come before the one of the first mark.
    pub(crate) index: u64,
    /// Where the next event record to go over begins.
    pub(crate) pos: u64,
    /// Where the readable content ends, in bits.
    pub(crate) limit: u64,
    /// Where the packet says that its content ends, in bits.
    announced: u64,
    /// The clock at `pos`.
    pub(crate) clock: Option<u64>,
    /// `None` without a clock.
    pub(crate) ticks: Option<Ticks>,
    /// Byte order of the number before the next event record, where that is looked at.
    order: Option<ByteOrder>,
}

impl Decoder {
    pub(crate) fn new(programs: &Arc<Programs>, registers: Vec<Cell<u64>>) -> Self {
        Self {
            registers,
            marks: Vec::with_capacity(AHEAD),
            anchors: vec![0; programs.anchors.max(ANCHORS)].into(),
            programs: Arc::clone(programs),
            ..Self::default()
        }
    }

    /// Stands before the first event record of a packet.
    pub(crate) fn start(
        &mut self,
        info: &PacketInfo,
        clock: Option<&ClockClass>,
        len_bytes: usize,
        order: Option<ByteOrder>,
    ) {
        let available = u64::try_from(len_bytes).unwrap_or(u64::MAX).saturating_mul(8);
        self.announced = info.content_bits.unwrap_or(available);
        self.limit = self.announced.min(available);
        self.pos = info.header_end_bits;
        self.clock = info.begin;
        self.ticks = clock.map(Ticks::new);
        self.marks.clear();
        (self.current, self.index) = (0, 0);
        self.order = order;
        self.stack.start_packet();
    }

    /// Stands behind the last event record.
    pub(crate) fn end(&mut self) {
        self.marks.clear();
        self.pos = self.limit;
        self.announced = self.limit;
    }

    /// The current event record; `None` before the first one and behind the last.
    #[inline]
    pub(crate) fn mark(&self) -> Option<&Mark> {
        self.marks.get(self.current)
    }

    /// The anchors of an event record from one on, and those behind them.
    #[inline(always)]
    pub(crate) fn anchors(&self, mark: &Mark, first: usize) -> Option<&[u64]> {
        self.anchors.get(mark.anchors.checked_add(first)?..)
    }

    /// One of them.
    #[inline]
    pub(crate) fn anchor(&self, mark: &Mark, number: usize) -> Option<u64> {
        self.anchors.get(mark.anchors.checked_add(number)?).copied()
    }

    /// How many event records come before the current one.
    pub(crate) fn index(&self) -> u64 {
        self.index + self.current as u64
    }

    /// What reading fields of the current event record needs.
    #[inline]
    pub(crate) const fn context<'a>(&'a self, data: &'a [u8]) -> Context<'a> {
        let Self { registers, stack, limit, .. } = self;
        Context { data, limit: *limit, registers: registers.as_slice(), stack }
    }

    /// The program of an event record class.
    #[inline]
    pub(crate) fn program(&self, class: u32) -> Option<&Program> {
        self.programs.get(class)
    }

    /// Moves to the next event record; `false` when there is none.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Result<bool, DecodeError> {
        let next = self.current + 1;
        if next < self.marks.len() {
            self.current = next;
            return Ok(true);
        }
        self.fetch(trace, stream, bytes, AHEAD)
    }

    /// [`Self::advance`] to an event record that was gone over and has a time, which it gives; else nothing happens.
    #[inline(always)]
    pub(crate) fn step_on(&mut self) -> Option<i64> {
        let next = self.current + 1;
        let mark = self.marks.get(next)?;
        let at = mark.timestamp()?;
        self.current = next;
        Some(at)
    }

    /// [`Self::advance`] behind the last mark; goes over up to `most` event records.
    #[inline(never)]
    pub(crate) fn fetch(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
        most: usize,
    ) -> Result<bool, DecodeError> {
        self.index += self.marks.len() as u64;
        self.marks.clear();
        self.current = 0;
        if self.pos >= self.limit {
            return if self.limit < self.announced { Err(self.truncated()) } else { Ok(false) };
        }
        self.go_ahead(trace, stream, bytes, most);
        if !self.marks.is_empty() { Ok(true) } else { self.advance_slowly(trace, stream, bytes) }
    }

    /// Goes over up to `most` event records, as far as they fit the quick way.
    fn go_ahead(&mut self, trace: &TraceClass, stream: &StreamClass, bytes: &[u8], most: usize) {
        if stream.orders_may_clash {
            // This is not the way to see whether byte orders change inside a byte.
            return;
        }
        match &stream.header_plan.quick {
            Some(quick) => self.go_ahead_by(trace, stream, bytes, most, |context, pos| {
                quick.read(context.data, pos, context.limit)
            }),
            None => self.go_ahead_by(trace, stream, bytes, most, |context, pos| {
                Some(general::read_header(context, stream, pos, 0).ok()?.into())
            }),
        }
        self.find_times(trace.clock_of(stream));
        if let Some(last) = self.marks.last() {
            (self.pos, self.clock) = (last.end, last.clock());
        }
    }

    #[inline(never)]
    fn go_ahead_by(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
        most: usize,
        header: impl Fn(&Context<'_>, u64) -> Option<QuickHeader>,
    ) {
        let Self { registers, stack, programs, anchors, marks, limit, .. } = self;
        let context = Context { data: bytes, limit: *limit, registers, stack };
        let mut course = Course::new((trace, stream), programs, true, self.pos, None);
        let (mut free, mut used) = (&mut **anchors, 0);
        while marks.len() < most {
            let begin = course.pos;
            if begin >= *limit {
                break;
            }
            let Some(header) = header(&context, begin) else { break };
            let Some(program) = course.program(header) else { break };
            let count = program.anchors();
            if count > free.len() || program.needs_registers && !marks.is_empty() {
                break;
            }
            let (own, rest) = std::mem::take(&mut free).split_at_mut(count);
            let classes = (trace, stream, course.class);
            let Some(end) = program.run(&context, classes, header.end, own) else { break };
            if end == begin {
                break;
            }
            course.pos = end;
            free = rest;
            marks.push(Mark {
                begin,
                end,
                clock: header.time,
                time_mask: header.time_mask,
                timestamp: 0,
                class: course.class,
                anchors: used,
                is_clocked: false,
                is_timed: false,
            });
            used += count;
            if program.needs_registers {
                break;
            }
        }
    }

    /// Clock and times of the event records that were gone over; forgets those from one on whose time is out of range.
    fn find_times(&mut self, clock_class: Option<&ClockClass>) {
        let Self { marks, ticks, .. } = self;
        let mut clock = self.clock.unwrap_or(0);
        let mut is_clocked = self.clock.is_some();
        let Some((ticks, clock_class)) = ticks.as_mut().zip(clock_class) else {
            for mark in marks {
                (mark.clock, mark.is_clocked, mark.is_timed) = (clock, is_clocked, false);
            }
            return;
        };
        for (index, mark) in marks.iter_mut().enumerate() {
            clock = clock::continued(clock, mark.clock, mark.time_mask);
            is_clocked |= mark.time_mask != 0;
            (mark.clock, mark.is_clocked, mark.is_timed) = (clock, is_clocked, is_clocked);
            if let Some(nanos) = ticks.plain(clock) {
                mark.timestamp = nanos;
            } else if is_clocked {
                let Ok(nanos) = ticks.nanos(clock_class, clock) else {
                    marks.truncate(index);
                    break;
                };
                mark.timestamp = nanos;
            }
        }
    }

    /// Forgets the event records ahead of the current one, so as to go over them in another way.
    pub(crate) fn turn_back(&mut self) {
        if let Some(mark) = self.mark().copied() {
            (self.pos, self.clock) = (mark.end, mark.clock());
            self.index += self.current as u64 + 1;
        }
        self.marks.clear();
        self.current = 0;
    }

    #[cold]
    fn advance_slowly(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Result<bool, DecodeError> {
        match self.decode(trace, stream, bytes) {
            Ok(mark) => {
                (self.pos, self.clock) = (mark.end, mark.clock());
                self.marks.push(mark);
                Ok(true)
            }
            Err(error) => {
                self.pos = self.limit;
                Err(self.explain(error))
            }
        }
    }

    /// Says that the data end early, once.
    #[cold]
    fn truncated(&mut self) -> DecodeError {
        let kind = DecodeErrorKind::Truncated {
            announced_bits: self.announced,
            available_bits: self.limit,
        };
        self.announced = self.limit;
        DecodeError {
            offset_bits: self.limit,
            event_index: Some(self.index),
            field: String::new(),
            kind,
        }
    }

    /// A field that does not fit in what is there, of a packet that is not all there, is no fault of the field.
    #[cold]
    fn explain(&mut self, mut error: DecodeError) -> DecodeError {
        let short = matches!(
            error.kind,
            DecodeErrorKind::BeyondContent { .. }
                | DecodeErrorKind::UnterminatedString
                | DecodeErrorKind::Length { .. }
        );
        if short && self.limit < self.announced {
            error.kind = DecodeErrorKind::Truncated {
                announced_bits: self.announced,
                available_bits: self.limit,
            };
        }
        self.announced = self.limit;
        error
    }

    /// Goes over the next event record in the general way.
    fn decode(
        &mut self,
        trace: &TraceClass,
        stream: &StreamClass,
        bytes: &[u8],
    ) -> Result<Mark, DecodeError> {
        let (begin, index) = (self.pos, self.index);
        let Self { registers, stack, programs, anchors, limit, .. } = self;
        let context = Context { data: bytes, limit: *limit, registers, stack };

        let (header, after_header) = general::read_header(&context, stream, begin, index)?;
        let in_header = |kind| DecodeError {
            offset_bits: begin,
            event_index: Some(index),
            field: Scope::EventHeader.name().to_owned(),
            kind,
        };
        let class_index = general::class_of(stream, header.id).map_err(in_header)?;
        let class = usize::try_from(class_index).ok().and_then(|i| trace.events.get(i));
        let program = programs.get(class_index);
        let mut pos = after_header;
        for (scope, layout) in [
            (Scope::EventCommonContext, stream.event_context.as_ref()),
            (Scope::EventSpecificContext, class.and_then(|class| class.context.as_ref())),
            (Scope::Payload, class.and_then(|class| class.payload.as_ref())),
        ] {
            let Some(layout) = layout else { continue };
            let base = program.and_then(|program| program.base(scope)).unwrap_or(0);
            let anchors = anchors.get_mut(base..).unwrap_or_default();
            let begin = pos;
            pos = general::run_segments(&context, layout, begin, anchors).map_err(|fault| {
                // A segment has many fields: walking finds the one that is at fault, and where it is.
                let walked = context.walk(layout, begin).run(0, true, &mut ());
                walked.err().unwrap_or(fault).into_error(scope, layout, Some(index))
            })?;
        }

        let clock_class = trace.clock_of(stream);
        let clock = match header.time {
            Some((value, bits)) if clock_class.is_some() => {
                Some(clock::update(self.clock.unwrap_or(0), value, bits))
            }
            _ => self.clock,
        };
        let timestamp = clock.zip(clock_class).map(|(cycles, class)| class.to_ns(cycles));
        let timestamp = timestamp.transpose().map_err(in_header)?;
        if pos == begin {
            let kind = DecodeErrorKind::EmptyEvent;
            return Err(DecodeError {
                offset_bits: begin,
                event_index: Some(index),
                field: String::new(),
                kind,
            });
        }
        if stream.orders_may_clash {
            self.order = order::check(&context, stream, class, begin, self.order)
                .map_err(|(scope, layout, fault)| fault.into_error(scope, layout, Some(index)))?;
        }
        Ok(Mark {
            begin,
            end: pos,
            clock: clock.unwrap_or(0),
            time_mask: 0,
            timestamp: timestamp.unwrap_or(0),
            class: class_index,
            anchors: 0,
            is_clocked: clock.is_some(),
            is_timed: timestamp.is_some(),
        })
    }
}

/// From one event record to the next.
///
/// The class is guessed to be that of the event record before: most often it is, and so the processor goes on before it
/// has seen the id.
pub(crate) struct Course<'a> {
    trace: &'a TraceClass,
    stream: &'a StreamClass,
    programs: &'a Programs,
    id: u64,
    pub(crate) class: u32,
    program: Option<&'a Program>,
    /// All ones if the stream has a clock class.
    ticking: u64,
    pub(crate) pos: u64,
    pub(crate) clock: u64,
    pub(crate) is_clocked: bool,
}

impl<'a> Course<'a> {
    pub(crate) fn new(
        (trace, stream): (&'a TraceClass, &'a StreamClass),
        programs: &'a Programs,
        ticking: bool,
        pos: u64,
        clock: Option<u64>,
    ) -> Self {
        Self {
            trace,
            stream,
            programs,
            // If there is an id like this, the general way finds its class.
            id: u64::MAX,
            class: u32::MAX,
            program: None,
            ticking: if ticking { u64::MAX } else { 0 },
            pos,
            clock: clock.unwrap_or(0),
            is_clocked: clock.is_some(),
        }
    }

    pub(crate) fn clock(&self) -> Option<u64> {
        self.is_clocked.then_some(self.clock)
    }

    /// The program behind a header.
    #[inline(always)]
    pub(crate) fn program(&mut self, header: QuickHeader) -> Option<&'a Program> {
        let id = header.id.unwrap_or_else(|| self.stream.only_event_id.unwrap_or(0));
        if id != self.id {
            self.turn_to(header.id, id)?;
        }
        self.program
    }

    #[inline(never)]
    fn turn_to(&mut self, found: Option<u64>, id: u64) -> Option<()> {
        self.class = general::class_of(self.stream, found).ok()?;
        self.program = self.programs.get(self.class);
        self.id = id;
        Some(())
    }

    /// Moves the position and the clock behind the event record; `None` when it does not fit.
    #[inline(always)]
    pub(crate) fn go_over(
        &mut self,
        context: &Context<'_>,
        header: QuickHeader,
        program: &Program,
        anchors: &mut [u64],
    ) -> Option<()> {
        let classes = (self.trace, self.stream, self.class);
        let end = program.run(context, classes, header.end, anchors)?;
        if end == self.pos {
            return None;
        }
        self.pos = end;
        let mask = header.time_mask & self.ticking;
        self.clock = clock::continued(self.clock, header.time & mask, mask);
        self.is_clocked |= mask != 0;
        Some(())
    }
}
