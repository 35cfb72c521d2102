//! What a stream's packets, one after the other, say was lost between them.

use ctf::packet::PacketInfo;
use ctf::{ClockClass, StreamClass};
use model::Timestamp;

use crate::heads::Head;
use crate::lane::{Before, Lost};
use crate::merge::{Loss, LossKind};
use crate::stream::Stream;

/// Compares each packet of a stream with the one before it.
#[derive(Debug, Default)]
pub struct Gaps {
    before: Option<Before>,
}

/// A loss without its stream.
#[derive(Debug, Clone, Copy)]
pub struct Gap(Lost);

impl Gap {
    /// From the end of the last packet before: its place in the order of time.
    #[must_use]
    pub const fn begin(&self) -> Timestamp {
        self.0.begin
    }

    /// What was lost.
    #[must_use]
    pub const fn kind(&self) -> LossKind {
        self.0.kind
    }

    /// The loss of this stream, which is the `stream_index`th.
    #[must_use]
    pub const fn of<'a>(&self, stream: &'a Stream, stream_index: usize) -> Loss<'a> {
        let Lost { kind, count, begin, end } = self.0;
        Loss { stream, stream_index, kind, count, begin, end }
    }
}

impl Gaps {
    /// Takes the next packet; gives what was lost before it, in order. Nothing before the first one.
    pub fn enter(
        &mut self,
        packet: &PacketInfo,
        class: Option<&StreamClass>,
        clock: Option<&ClockClass>,
    ) -> impl Iterator<Item = Gap> + use<> {
        let time = |cycles: Option<u64>| {
            let nanos = clock?.to_ns(cycles?).ok()?;
            Some(Timestamp::from_nanos(nanos))
        };
        let head = Head::of(packet, 0);
        let begin = time(head.begin);
        let end = time(head.end.filter(|end| *end != 0)).or(begin);
        let bits = class.and_then(StreamClass::discarded_counter_bits);
        let (now, lost) = Before::step(self.before, head, bits, begin, end);
        self.before = Some(now);
        lost.into_iter().flatten().map(Gap)
    }
}
