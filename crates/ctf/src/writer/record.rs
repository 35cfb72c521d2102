//! Takes values in the order of the fields and checks each against its class.

use super::bits::Bits;
use super::error::WriteError;
use super::program::{Choice, Count, Program, Scalar, ScalarKind, Step};
use crate::bits::reverse;
use crate::value::Encoding;
use crate::walk::MAX_EMPTY_ELEMENTS;

/// What is inside of a compound whose end has not been reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    begin: usize,
    end: usize,
    after: usize,
    /// How often the steps come once more.
    remaining: u64,
    /// Where the element began.
    pos: u64,
}

/// Memory that records use one after the other.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) stack: Vec<Frame>,
    /// Values that later fields refer to.
    pub(super) registers: Vec<u64>,
}

/// Takes the values of one event record (or of a packet's context), in the order of its fields.
///
/// Only scalars are given. Structures need no word; how many elements an array has, which option of a variant comes
/// and whether an optional field is there follow from the fields they refer to, whose values were given before.
#[derive(Debug)]
pub struct Record<'a> {
    program: &'a Program,
    /// Scopes that follow.
    rest: &'a [&'a Program],
    at: usize,
    scratch: &'a mut Scratch,
    bits: &'a mut Bits,
    empty_elements: u64,
}

impl<'a> Record<'a> {
    pub(super) fn new(
        scopes: &'a [&'a Program],
        scratch: &'a mut Scratch,
        bits: &'a mut Bits,
    ) -> Option<Self> {
        let (program, rest) = scopes.split_first()?;
        scratch.stack.clear();
        Some(Self { program, rest, at: 0, scratch, bits, empty_elements: 0 })
    }

    /// The value of an unsigned integer, enumeration, bit array or bit map.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none, [`WriteError::Range`] when it is too narrow.
    #[inline]
    pub fn unsigned(&mut self, value: u64) -> Result<(), WriteError> {
        const GIVEN: &str = "an unsigned integer";
        let scalar = self.next(GIVEN)?;
        match scalar.kind {
            ScalarKind::Int { bits, signed: false, .. } => {
                if value >> (bits - 1) >> 1 != 0 {
                    return Err(self.range(value.into()));
                }
                self.put_int(scalar, value)
            }
            ScalarKind::VarInt { signed: false } => self.put_var_int(scalar, value, false),
            _ => Err(self.kind(GIVEN)),
        }
    }

    /// The value of a signed integer or enumeration.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none, [`WriteError::Range`] when it is too narrow.
    #[inline]
    pub fn signed(&mut self, value: i64) -> Result<(), WriteError> {
        const GIVEN: &str = "a signed integer";
        let scalar = self.next(GIVEN)?;
        match scalar.kind {
            ScalarKind::Int { bits, signed: true, .. } => {
                let unused = 64 - u32::from(bits);
                if value << unused >> unused != value {
                    return Err(self.range(value.into()));
                }
                self.put_int(scalar, value.cast_unsigned())
            }
            ScalarKind::VarInt { signed: true } => {
                self.put_var_int(scalar, value.cast_unsigned(), true)
            }
            _ => Err(self.kind(GIVEN)),
        }
    }

    /// A truth value.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none.
    pub fn boolean(&mut self, value: bool) -> Result<(), WriteError> {
        const GIVEN: &str = "a truth value";
        let scalar = self.next(GIVEN)?;
        let ScalarKind::Bool { bits, order } = scalar.kind else { return Err(self.kind(GIVEN)) };
        let put = self.bits.put(value.into(), bits, order);
        put.map_err(|_change| WriteError::ByteOrder { field: self.path() })?;
        self.keep(scalar, value.into());
        Ok(())
    }

    /// A floating point number; one of 32 bits takes the nearest it can hold.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none.
    pub fn float(&mut self, value: f64) -> Result<(), WriteError> {
        const GIVEN: &str = "a floating point number";
        let scalar = self.next(GIVEN)?;
        let ScalarKind::Float { bits, order, reversed } = scalar.kind else {
            return Err(self.kind(GIVEN));
        };
        #[expect(clippy::cast_possible_truncation, reason = "the nearest number is what is wanted")]
        let raw = if bits == 32 { u64::from((value as f32).to_bits()) } else { value.to_bits() };
        let raw = if reversed { reverse(raw, bits) } else { raw };
        let put = self.bits.put(raw, bits, order);
        put.map_err(|_change| WriteError::ByteOrder { field: self.path() })?;
        self.at += 1;
        Ok(())
    }

    /// A text in the encoding of its class; it ends before the first NUL code unit. A text of fixed length is cut, or
    /// filled with NULs.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is no text, [`WriteError::Length`] when it is longer than the field
    /// that counts its bytes says.
    pub fn string(&mut self, value: &[u8]) -> Result<(), WriteError> {
        const GIVEN: &str = "a text";
        let scalar = self.next(GIVEN)?;
        let (count, encoding) = match scalar.kind {
            ScalarKind::String(encoding) => (None, encoding),
            ScalarKind::Text(count, encoding) => (Some(count), encoding),
            _ => return Err(self.kind(GIVEN)),
        };
        let text = encoding.before_nul(value).unwrap_or(value);
        match count {
            None => self.terminated(text, encoding),
            Some(count) => self.filled(text, count)?,
        }
        self.at += 1;
        Ok(())
    }

    fn terminated(&mut self, text: &[u8], encoding: Encoding) {
        let unit = usize::try_from(encoding.unit_bytes()).unwrap_or(1);
        let whole = text.len() - text.len() % unit;
        self.bits.bytes(text.get(..whole).unwrap_or(text));
        self.bits.skip(encoding.unit_bytes() * 8);
    }

    fn filled(&mut self, text: &[u8], count: Count) -> Result<(), WriteError> {
        let given = u64::try_from(text.len()).unwrap_or(u64::MAX);
        let expected = self.count(count);
        if given > expected && matches!(count, Count::Register(_)) {
            return Err(WriteError::Length { field: self.path(), expected, given });
        }
        let kept = given.min(expected);
        self.bits.bytes(text.get(..usize::try_from(kept).unwrap_or(text.len())).unwrap_or(text));
        self.bits.skip((expected - kept).saturating_mul(8));
        Ok(())
    }

    /// The bytes of a BLOB, or all elements of an array of byte-aligned unsigned integers of 8 bits.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is neither, [`WriteError::Length`] when it has another length.
    pub fn bytes(&mut self, value: &[u8]) -> Result<(), WriteError> {
        const GIVEN: &str = "bytes";
        let given = u64::try_from(value.len()).unwrap_or(u64::MAX);
        let step = self.settle_for(Stop::Bytes, given)?;
        let step = step.ok_or(WriteError::Surplus { given: GIVEN })?;
        let (count, after) = match *step {
            Step::Repeat { count, end, .. } => (count, end),
            Step::Scalar(Scalar { kind: ScalarKind::Blob(count), .. }) => {
                self.bits.align(8);
                (count, self.at + 1)
            }
            _ => return Err(self.kind(GIVEN)),
        };
        let expected = self.count(count);
        if given != expected {
            return Err(WriteError::Length { field: self.path(), expected, given });
        }
        self.bits.bytes(value);
        self.at = after;
        Ok(())
    }

    /// All elements of an array of integers; signed ones as two's complement of 64 bits.
    ///
    /// # Errors
    /// [`WriteError::Kind`] when the next field is none, [`WriteError::Length`] when it has another length,
    /// [`WriteError::Range`] when an element does not fit.
    pub fn elements(&mut self, values: &[u64]) -> Result<(), WriteError> {
        const GIVEN: &str = "elements";
        let given = u64::try_from(values.len()).unwrap_or(u64::MAX);
        let step = self.settle_for(Stop::Integers, given)?;
        let step = step.ok_or(WriteError::Surplus { given: GIVEN })?;
        let Step::Repeat { count, .. } = *step else { return Err(self.kind(GIVEN)) };
        let signed = match self.program.steps.get(self.at + 1) {
            Some(Step::Scalar(Scalar { kind: ScalarKind::Int { signed, .. }, .. })) => *signed,
            _ => return Err(self.kind(GIVEN)),
        };
        let expected = self.count(count);
        if given != expected {
            return Err(WriteError::Length { field: self.path(), expected, given });
        }
        for value in values {
            if signed { self.signed(value.cast_signed())? } else { self.unsigned(*value)? }
        }
        // An array without elements is passed here, so that the next one is not taken for it.
        if values.is_empty() {
            self.repeat(count)?;
        }
        Ok(())
    }

    /// The number of elements, and then all of them: for the two members of [`super::Field::counted`].
    ///
    /// # Errors
    /// As [`Self::unsigned`] and [`Self::elements`].
    pub fn counted(&mut self, values: &[u64]) -> Result<(), WriteError> {
        self.unsigned(u64::try_from(values.len()).unwrap_or(u64::MAX))?;
        self.elements(values)
    }

    /// The next field that takes a value, aligned.
    #[inline]
    fn next(&mut self, given: &'static str) -> Result<Scalar, WriteError> {
        // Most fields follow each other without anything in between.
        let step = match self.program.steps.get(self.at) {
            Some(step @ Step::Scalar(_)) if self.scratch.stack.is_empty() => Some(step),
            _ => self.settle(Stop::Scalar)?,
        };
        match step {
            Some(Step::Scalar(scalar)) => {
                self.bits.align(scalar.align);
                Ok(*scalar)
            }
            _ => Err(WriteError::Surplus { given }),
        }
    }

    /// As [`Self::settle`] for so many bytes or elements. Arrays without elements on the way are passed when there are
    /// some: who gives elements one by one has nothing to give for those.
    fn settle_for(&mut self, stop: Stop, given: u64) -> Result<Option<&'a Step>, WriteError> {
        loop {
            let step = self.settle(stop)?;
            match step {
                Some(Step::Repeat { count, .. }) if given > 0 && self.count(*count) == 0 => {
                    self.repeat(*count)?;
                }
                step => return Ok(step),
            }
        }
    }

    /// Goes on to the next step that takes a value; `None` after the last one.
    fn settle(&mut self, stop: Stop) -> Result<Option<&'a Step>, WriteError> {
        loop {
            if let Some(frame) = self.scratch.stack.last_mut().filter(|frame| frame.end == self.at)
            {
                if frame.remaining == 0 {
                    self.at = frame.after;
                    self.scratch.stack.pop();
                    continue;
                }
                frame.remaining -= 1;
                self.at = frame.begin;
                let began = std::mem::replace(&mut frame.pos, self.bits.pos());
                self.count_empty(began)?;
                continue;
            }
            let program = self.program;
            match program.steps.get(self.at) {
                None => match self.rest.split_first() {
                    Some((next, rest)) => (self.program, self.rest, self.at) = (next, rest, 0),
                    None => return Ok(None),
                },
                Some(Step::Align(align)) => {
                    self.bits.align(*align);
                    self.at += 1;
                }
                Some(step @ Step::Scalar(_)) => return Ok(Some(step)),
                Some(step @ Step::Repeat { count, end, is_bytes }) => {
                    let is_wanted = match stop {
                        Stop::Scalar => false,
                        Stop::Bytes => *is_bytes,
                        // One step is an integer alone, not the first member of a structure.
                        Stop::Integers => *end == self.at + 2,
                    };
                    if is_wanted {
                        return Ok(Some(step));
                    }
                    self.repeat(*count)?;
                }
                Some(Step::Choose(choice)) => self.choose(choice)?,
            }
        }
    }

    /// Elements of no size take no room in the packet, so nothing else bounds them.
    fn count_empty(&mut self, began: u64) -> Result<(), WriteError> {
        if self.bits.pos() == began {
            self.empty_elements += 1;
            if self.empty_elements > MAX_EMPTY_ELEMENTS {
                let limit = MAX_EMPTY_ELEMENTS;
                return Err(WriteError::EmptyElements { field: self.path(), limit });
            }
        }
        Ok(())
    }

    fn repeat(&mut self, count: Count) -> Result<(), WriteError> {
        let count = self.count(count);
        let Some(Step::Repeat { end, .. }) = self.program.steps.get(self.at) else { return Ok(()) };
        match count.checked_sub(1) {
            None => self.at = *end,
            Some(remaining) => {
                let (begin, pos) = (self.at + 1, self.bits.pos());
                self.scratch.stack.push(Frame { begin, end: *end, after: *end, remaining, pos });
                self.at = begin;
            }
        }
        Ok(())
    }

    fn choose(&mut self, choice: &Choice) -> Result<(), WriteError> {
        let raw = self.scratch.registers.get(choice.register).copied().unwrap_or(0);
        match choice.choose(raw) {
            Ok((begin, end)) => {
                let pos = self.bits.pos();
                self.scratch.stack.push(Frame {
                    begin,
                    end,
                    after: choice.after,
                    remaining: 0,
                    pos,
                });
                self.at = begin;
                Ok(())
            }
            Err(_) if choice.may_be_absent => {
                self.at = choice.after;
                Ok(())
            }
            Err(selector) => Err(WriteError::NoOption { field: self.path(), selector }),
        }
    }

    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Fixed(count) => count,
            Count::Register(register) => self.scratch.registers.get(register).copied().unwrap_or(0),
        }
    }

    #[inline]
    fn put_int(&mut self, scalar: Scalar, value: u64) -> Result<(), WriteError> {
        let ScalarKind::Int { bits, order, reversed, .. } = scalar.kind else { return Ok(()) };
        let low = if bits < 64 { value & ((1 << bits) - 1) } else { value };
        let raw = if reversed { reverse(low, bits) } else { low };
        let put = self.bits.put(raw, bits, order);
        put.map_err(|_change| WriteError::ByteOrder { field: self.path() })?;
        self.keep(scalar, value);
        Ok(())
    }

    fn put_var_int(&mut self, scalar: Scalar, value: u64, signed: bool) -> Result<(), WriteError> {
        let (bytes, len) = leb128(value, signed);
        self.bits.bytes(bytes.get(..len).unwrap_or(&bytes));
        self.keep(scalar, value);
        Ok(())
    }

    /// Notes the value for later fields, and passes the field.
    #[inline]
    fn keep(&mut self, scalar: Scalar, value: u64) {
        if let Some(slot) =
            scalar.register.and_then(|register| self.scratch.registers.get_mut(register))
        {
            *slot = value;
        }
        self.at += 1;
    }

    /// Checks that no field is left.
    pub(super) fn finish(mut self) -> Result<(), WriteError> {
        match self.settle(Stop::Scalar)? {
            None => Ok(()),
            Some(_) => Err(WriteError::Missing { field: self.path() }),
        }
    }

    fn path(&self) -> String {
        self.program.path(self.at)
    }

    #[cold]
    fn kind(&self, given: &'static str) -> WriteError {
        WriteError::Kind { field: self.path(), given }
    }

    #[cold]
    fn range(&self, value: i128) -> WriteError {
        WriteError::Range { field: self.path(), value }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Scalar,
    /// Or before an array of bytes.
    Bytes,
    /// Or before an array whose elements are scalars.
    Integers,
}

/// A number in LEB128, and its length: signed ones are sign-extended.
fn leb128(value: u64, signed: bool) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    let mut left = if signed { i128::from(value.cast_signed()) } else { i128::from(value) };
    for (index, byte) in bytes.iter_mut().enumerate() {
        let low = u8::try_from(left & 0x7F).unwrap_or(0);
        left >>= 7;
        let sign_is_said = !signed || (low & 0x40 != 0) == (left < 0);
        if (left == 0 || left == -1) && sign_is_said && (signed || left == 0) {
            *byte = low;
            return (bytes, index + 1);
        }
        *byte = low | 0x80;
    }
    (bytes, 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_length_integers_take_the_fewest_bytes() {
        let check = |value: i128, signed, expected: &[u8]| {
            let raw = if signed {
                i64::try_from(value).unwrap().cast_unsigned()
            } else {
                u64::try_from(value).unwrap()
            };
            let (bytes, len) = leb128(raw, signed);
            assert_eq!(&bytes[..len], expected, "{value}");
        };
        check(0, false, &[0]);
        check(127, false, &[0x7F]);
        check(128, false, &[0x80, 1]);
        check(624_485, false, &[0xE5, 0x8E, 0x26]);
        check(i128::from(u64::MAX), false, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        check(0, true, &[0]);
        check(-1, true, &[0x7F]);
        check(63, true, &[63]);
        check(64, true, &[0xC0, 0]);
        check(-64, true, &[0x40]);
        check(-65, true, &[0xBF, 0x7F]);
        check(-123_456, true, &[0xC0, 0xBB, 0x78]);
        check(i128::from(i64::MIN), true, &[128, 128, 128, 128, 128, 128, 128, 128, 128, 0x7F]);
    }
}
