//! Packets: filled record by record, sealed once.

use super::{Field, FieldClass, IntClass, StreamClass, UuidBytes, Width, WriteError};

/// Bytes of the packet header and context; an empty packet is just these.
pub const PACKET_HEADER_BYTES: usize = 84;

const MAGIC: u32 = 0xC1FC_1FC1;

/// Where a packet belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamId {
    /// The trace.
    pub trace: UuidBytes,
    /// The stream within its class.
    pub instance: u64,
    /// The CPU whose events it holds.
    pub cpu: u32,
}

/// Whether a record is in the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Appended {
    /// It is.
    Yes,
    /// The packet has no room for it and is unchanged: seal it and append to the next one.
    Full,
}

/// A finished packet and what an index says about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPacket {
    /// The packet; content and total length are the same.
    pub bytes: Vec<u8>,
    /// The stream's instance id.
    pub instance: u64,
    /// First time it covers, in clock cycles.
    pub begin: u64,
    /// Last time it covers, in clock cycles.
    pub end: u64,
    /// Content length in bits.
    pub content_bits: u64,
    /// Its number in the stream, from 0.
    pub sequence_number: u64,
    /// Event records discarded in the stream up to here.
    pub discarded: u64,
    /// Event records in it.
    pub records: u64,
}

/// Fills the packets of one stream, one after the other.
///
/// Invariant: the times of the records of a stream, and its packets' bounds, never decrease.
#[derive(Debug)]
pub struct PacketBuilder<'a> {
    class: &'a StreamClass,
    id: StreamId,
    max_bytes: usize,
    bytes: Vec<u8>,
    begin: u64,
    last: u64,
    records: u64,
    sequence_number: u64,
}

impl<'a> PacketBuilder<'a> {
    /// A stream whose first packet begins at `begin`; no packet is larger than `max_bytes`.
    #[must_use]
    pub fn new(class: &'a StreamClass, id: StreamId, max_bytes: usize, begin: u64) -> Self {
        Self {
            class,
            id,
            max_bytes,
            bytes: vec![0; PACKET_HEADER_BYTES],
            begin,
            last: begin,
            records: 0,
            sequence_number: 0,
        }
    }

    /// Appends a record of class `event`. `write` gives the values of the stream's event context and then of the
    /// payload, in the order of their declaration.
    ///
    /// # Errors
    /// [`WriteError`] when the values do not match the class or the time goes backwards; the packet is unchanged then.
    pub fn append(
        &mut self,
        event: u16,
        time: u64,
        write: impl FnOnce(&mut Record<'_>) -> Result<(), WriteError>,
    ) -> Result<Appended, WriteError> {
        if time < self.last {
            return Err(WriteError::Backwards { time, last: self.last });
        }
        let class = self.class.events.get(usize::from(event)).ok_or(WriteError::NoClass(event))?;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&event.to_le_bytes());
        self.bytes.extend_from_slice(&time.to_le_bytes());
        let mut record = Record {
            event,
            context: &self.class.context,
            payload: &class.fields,
            next: 0,
            bytes: &mut self.bytes,
        };
        let written = write(&mut record).and_then(|()| record.finish());
        let end = self.bytes.len();
        if written.is_err() || end > self.max_bytes {
            self.bytes.truncate(start);
        }
        written?;
        if end <= self.max_bytes {
            self.last = time;
            self.records += 1;
            Ok(Appended::Yes)
        } else if start == PACKET_HEADER_BYTES {
            Err(WriteError::TooLarge { bytes: end - start, max_bytes: self.max_bytes })
        } else {
            Ok(Appended::Full)
        }
    }

    /// Finishes the packet, which covers time up to `end` (never less than its last record's), with the stream's
    /// count of discarded records. The next packet begins where this one ends.
    #[must_use]
    pub fn seal(&mut self, end: u64, discarded: u64) -> SealedPacket {
        let end = end.max(self.last);
        let next = Vec::with_capacity(self.bytes.capacity());
        let mut bytes = std::mem::replace(&mut self.bytes, next);
        self.bytes.resize(PACKET_HEADER_BYTES, 0);
        let content_bits = bytes.len() as u64 * 8;
        if let Some(header) = bytes.first_chunk_mut::<PACKET_HEADER_BYTES>() {
            *header = self.header(end, content_bits, discarded);
        }
        let sealed = SealedPacket {
            bytes,
            instance: self.id.instance,
            begin: self.begin,
            end,
            content_bits,
            sequence_number: self.sequence_number,
            discarded,
            records: self.records,
        };
        self.begin = end;
        self.last = end;
        self.records = 0;
        self.sequence_number += 1;
        sealed
    }

    /// The number the next sealed packet gets.
    #[must_use]
    pub fn sequence_number(&self) -> u64 {
        self.sequence_number
    }

    /// Event records in the packet that is being filled.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// When the packet that is being filled begins.
    #[must_use]
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// The time of the last record, or the begin of the packet; no record may be earlier.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last
    }

    fn header(&self, end: u64, content_bits: u64, discarded: u64) -> [u8; PACKET_HEADER_BYTES] {
        let mut header = Vec::with_capacity(PACKET_HEADER_BYTES);
        header.extend_from_slice(&MAGIC.to_le_bytes());
        header.extend_from_slice(&self.id.trace);
        header.extend_from_slice(&0_u32.to_le_bytes());
        let words =
            [self.id.instance, self.begin, end, content_bits, content_bits, self.sequence_number];
        for word in words {
            header.extend_from_slice(&word.to_le_bytes());
        }
        header.extend_from_slice(&discarded.to_le_bytes());
        header.extend_from_slice(&self.id.cpu.to_le_bytes());
        let mut fixed = [0; PACKET_HEADER_BYTES];
        for (to, from) in fixed.iter_mut().zip(header) {
            *to = from;
        }
        fixed
    }
}

/// Takes the values of one event record, in the order of its fields.
#[derive(Debug)]
pub struct Record<'a> {
    event: u16,
    context: &'a [Field],
    payload: &'a [Field],
    next: usize,
    bytes: &'a mut Vec<u8>,
}

impl<'a> Record<'a> {
    /// The value of an unsigned integer or enumeration.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none, [`WriteError::Range`] when it is too narrow.
    pub fn unsigned(&mut self, value: u64) -> Result<(), WriteError> {
        match self.take("an unsigned integer")? {
            FieldClass::Int(int) | FieldClass::Enum(int, _) if !int.signed => {
                self.put_unsigned(int.width, value)
            }
            _ => Err(self.kind("an unsigned integer")),
        }
    }

    /// The value of a signed integer or enumeration.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none, [`WriteError::Range`] when it is too narrow.
    pub fn signed(&mut self, value: i64) -> Result<(), WriteError> {
        match self.take("a signed integer")? {
            FieldClass::Int(int) | FieldClass::Enum(int, _) if int.signed => {
                self.put_signed(int.width, value)
            }
            _ => Err(self.kind("a signed integer")),
        }
    }

    /// A string; it ends before the first NUL.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is no string.
    pub fn string(&mut self, value: &[u8]) -> Result<(), WriteError> {
        let FieldClass::String = self.take("a string")? else {
            return Err(self.kind("a string"));
        };
        let text = value.split(|byte| *byte == 0).next().unwrap_or_default();
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        Ok(())
    }

    /// A text of fixed length: cut, or filled with NULs.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is no such text.
    pub fn text(&mut self, value: &[u8]) -> Result<(), WriteError> {
        let &FieldClass::Text(len) = self.take("a text")? else {
            return Err(self.kind("a text"));
        };
        let end = self.bytes.len() + len as usize;
        self.bytes.extend(value.iter().take(len as usize));
        self.bytes.resize(end, 0);
        Ok(())
    }

    /// The elements of an array or a sequence; signed ones as two's complement of 64 bits.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is neither; [`WriteError::Range`] when an element does not fit, an
    /// array is given another number of elements, or a sequence more than 2^32 − 1.
    pub fn elements(&mut self, values: &[u64]) -> Result<(), WriteError> {
        let int: IntClass = match *self.take("elements")? {
            FieldClass::Array(int, len) if len as usize == values.len() => int,
            FieldClass::Array(..) => return Err(self.range()),
            FieldClass::Sequence(int) => {
                self.put_unsigned(Width::W32, values.len() as u64)?;
                int
            }
            _ => return Err(self.kind("elements")),
        };
        for value in values {
            if int.signed {
                self.put_signed(int.width, value.cast_signed())?;
            } else {
                self.put_unsigned(int.width, *value)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, given: &'static str) -> Result<&'a FieldClass, WriteError> {
        let index = self.next;
        self.next += 1;
        let field = match index.checked_sub(self.context.len()) {
            None => self.context.get(index),
            Some(index) => self.payload.get(index),
        };
        field.map(|field| &field.class).ok_or(WriteError::Kind { event: self.event, index, given })
    }

    fn put_unsigned(&mut self, width: Width, value: u64) -> Result<(), WriteError> {
        let unused_bits = 64 - width.bits();
        if value << unused_bits >> unused_bits != value {
            return Err(self.range());
        }
        self.put_low(width, value);
        Ok(())
    }

    fn put_signed(&mut self, width: Width, value: i64) -> Result<(), WriteError> {
        let unused_bits = 64 - width.bits();
        if value << unused_bits >> unused_bits != value {
            return Err(self.range());
        }
        self.put_low(width, value.cast_unsigned());
        Ok(())
    }

    fn put_low(&mut self, width: Width, value: u64) {
        let bytes = value.to_le_bytes();
        let used = width.bits() as usize / 8;
        self.bytes.extend_from_slice(bytes.get(..used).unwrap_or(&bytes));
    }

    fn finish(&self) -> Result<(), WriteError> {
        if self.next == self.context.len() + self.payload.len() {
            Ok(())
        } else {
            Err(WriteError::Missing { event: self.event, index: self.next })
        }
    }

    fn kind(&self, given: &'static str) -> WriteError {
        WriteError::Kind { event: self.event, index: self.next.saturating_sub(1), given }
    }

    fn range(&self) -> WriteError {
        WriteError::Range { event: self.event, index: self.next.saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventClass;
    use super::*;

    fn class() -> StreamClass {
        StreamClass {
            context: vec![Field::new("tid", FieldClass::Int(IntClass::I32))],
            events: vec![
                EventClass::new("name", vec![Field::new("name", FieldClass::String)]),
                EventClass::new(
                    "mixed",
                    vec![
                        Field::new("comm", FieldClass::Text(4)),
                        Field::new("pair", FieldClass::Array(IntClass::I32, 2)),
                        Field::new("more", FieldClass::Sequence(IntClass::U8)),
                    ],
                ),
            ],
        }
    }

    const ID: StreamId = StreamId { trace: [9; 16], instance: 3, cpu: 3 };

    #[test]
    fn the_bytes_of_a_record_are_as_documented() {
        let class = class();
        let mut packet = PacketBuilder::new(&class, ID, 4096, 1000);
        let appended = packet.append(1, 1001, |record| {
            record.signed(-2)?;
            record.text(b"sh")?;
            record.elements(&[5, u64::MAX])?;
            record.elements(&[10, 20, 30])
        });
        assert_eq!(appended, Ok(Appended::Yes));
        let sealed = packet.seal(1010, 7);
        let record = &sealed.bytes[PACKET_HEADER_BYTES..];
        assert_eq!(record[..10], [1, 0, 0xE9, 3, 0, 0, 0, 0, 0, 0]);
        assert_eq!(record[10..18], [0xFE, 0xFF, 0xFF, 0xFF, b's', b'h', 0, 0]);
        assert_eq!(record[18..26], [5, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF]);
        assert_eq!(record[26..], [3, 0, 0, 0, 10, 20, 30]);
        assert_eq!(sealed.bytes[..4], MAGIC.to_le_bytes());
        assert_eq!(sealed.bytes[24], 3);
        assert_eq!(sealed.bytes[72], 7);
        assert_eq!((sealed.begin, sealed.end, sealed.records), (1000, 1010, 1));
    }

    #[test]
    fn a_record_that_does_not_fit_leaves_the_packet_as_it_was() {
        let class = class();
        let mut packet = PacketBuilder::new(&class, ID, PACKET_HEADER_BYTES + 40, 0);
        let mut append = |text: &'static str| {
            packet.append(0, 1, |record| {
                record.signed(1)?;
                record.string(text.as_bytes())
            })
        };
        assert_eq!(append("1234567"), Ok(Appended::Yes));
        assert_eq!(append("1234567"), Ok(Appended::Full));
        assert_eq!(append("12"), Ok(Appended::Yes));
        let sealed = packet.seal(2, 0);
        assert_eq!(sealed.records, 2);
        assert_eq!(sealed.bytes.len(), PACKET_HEADER_BYTES + 22 + 17);
        let result = packet.append(0, 3, |record| {
            record.signed(1)?;
            record.string(&[b'x'; 64])
        });
        assert_eq!(result, Err(WriteError::TooLarge { bytes: 79, max_bytes: 124 }));
    }

    #[test]
    fn values_that_do_not_match_the_class_are_refused_and_leave_no_trace() {
        let class = class();
        let mut packet = PacketBuilder::new(&class, ID, 4096, 10);
        let kind = packet.append(0, 10, |record| record.string(b"x"));
        assert_eq!(kind, Err(WriteError::Kind { event: 0, index: 0, given: "a string" }));
        let missing = packet.append(0, 10, |record| record.signed(1));
        assert_eq!(missing, Err(WriteError::Missing { event: 0, index: 1 }));
        let range = packet.append(0, 10, |record| record.signed(i64::from(i32::MAX) + 1));
        assert_eq!(range, Err(WriteError::Range { event: 0, index: 0 }));
        assert_eq!(packet.append(9, 10, |_| Ok(())), Err(WriteError::NoClass(9)));
        let back = packet.append(0, 9, |_| Ok(()));
        assert_eq!(back, Err(WriteError::Backwards { time: 9, last: 10 }));
        assert_eq!(packet.seal(10, 0).bytes.len(), PACKET_HEADER_BYTES);
    }

    #[test]
    fn packets_of_a_stream_are_numbered_and_touch() {
        let class = class();
        let mut packet = PacketBuilder::new(&class, ID, 4096, 5);
        let first = packet.seal(8, 0);
        let second = packet.seal(6, 2);
        assert_eq!((first.begin, first.end, first.sequence_number), (5, 8, 0));
        assert_eq!((second.begin, second.end, second.sequence_number), (8, 8, 1));
    }
}
