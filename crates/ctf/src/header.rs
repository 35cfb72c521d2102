//! Event record headers: the id and the time, by a short cut for the shapes that tracers write.
//!
//! ```text
//! quick   begins at a byte, every field lies within eight bytes: one load, shift and mask each
//! plan    integers at constant distances, be they preceded by one that selects among several structures of such
//! walk    anything else
//! ```

use crate::bits;
use crate::class::ByteOrder;
use crate::layout::{Integer, Kind, Layout, Role};
use crate::value::Context;
use crate::walk::{Fault, advanced, aligned};

/// The most options that are compared one by one.
const MAX_QUICK_OPTIONS: usize = 8;

/// An integer at a constant distance from its structure's beginning.
#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: u64,
    bits: u8,
    order: ByteOrder,
}

/// A structure of integers at constant distances.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    align: u64,
    bits: u64,
    id: Option<Slot>,
    time: Option<Slot>,
}

/// How to read the header of a data stream class's event records.
#[derive(Debug)]
pub(crate) struct HeaderPlan {
    pub(crate) quick: Option<Quick>,
    pub(crate) general: GeneralPlan,
}

/// How to read it wherever it lies, and to the last bit of the data.
#[derive(Debug)]
pub(crate) enum GeneralPlan {
    /// Only integers: perf, barectf.
    Flat(Box<FlatPlan>),
    /// An integer that selects one of several structures of integers: LTTng's compact and large headers.
    Selected(Box<SelectedPlan>),
    /// Anything else is walked.
    Walk,
}

#[derive(Debug)]
pub(crate) struct FlatPlan(Run);

#[derive(Debug)]
pub(crate) struct SelectedPlan {
    align: u64,
    selector: Slot,
    selector_is_id: bool,
    /// First and last selector value, and what they select.
    options: Vec<(u64, u64, Run)>,
}

/// A header that begins at a byte, every field of which lies in eight bytes and has one byte order.
#[derive(Debug)]
pub(crate) struct Quick {
    align_mask: u64,
    big: bool,
    /// Cuts out 0 where there is one option.
    selector: Cut,
    options: Vec<QuickRun>,
}

#[derive(Debug, Clone, Copy)]
struct QuickRun {
    first: u64,
    last: u64,
    id: Option<Cut>,
    /// Without one, it cuts out nothing.
    time: Cut,
    /// From the header's beginning to its end.
    bits: u64,
}

/// How to cut an unsigned integer out of the eight bytes at a constant distance from the header's beginning.
#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    byte: usize,
    shift: u8,
    mask: u64,
}

/// What the quick way gives of a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuickHeader {
    pub(crate) id: Option<u64>,
    pub(crate) time: u64,
    /// The bits that the time field has; 0 without one.
    pub(crate) time_mask: u64,
    /// Where the header ends.
    pub(crate) end: u64,
}

impl From<(Header, u64)> for QuickHeader {
    fn from((header, end): (Header, u64)) -> Self {
        let (time, bits) = header.time.unwrap_or((0, 0));
        let time_mask = if bits == 0 { 0 } else { u64::MAX >> (64 - u32::from(bits.min(64))) };
        Self { id: header.id, time, time_mask, end }
    }
}

/// What an event record header says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Header {
    pub(crate) id: Option<u64>,
    /// The time field's value and width.
    pub(crate) time: Option<(u64, u8)>,
}

impl HeaderPlan {
    /// `None` has no short cut.
    pub(crate) fn new(layout: Option<&Layout>) -> Self {
        let walk = Self { quick: None, general: GeneralPlan::Walk };
        let Some(layout) = layout else { return walk };
        if let Some(run) = Run::of(layout, 0) {
            let quick = Quick::new(run.align, None, false, &[(0, u64::MAX, run)]);
            return Self { quick, general: GeneralPlan::Flat(Box::new(FlatPlan(run))) };
        }
        let Some(plan) = SelectedPlan::of(layout) else { return walk };
        let quick = Quick::new(plan.align, Some(plan.selector), plan.selector_is_id, &plan.options);
        Self { quick, general: GeneralPlan::Selected(Box::new(plan)) }
    }

    /// A power of two that divides every position at which a header ends.
    pub(crate) fn end_align(&self) -> u64 {
        let end_of = |run: &QuickRun| bits::lowest_bit(run.bits);
        let Some(quick) = &self.quick else { return 1 };
        quick.options.iter().map(end_of).fold(quick.align_mask + 1, u64::min)
    }
}

impl Run {
    /// The run of a structure of integers that nothing refers to.
    fn of(layout: &Layout, structure: u32) -> Option<Self> {
        let root = layout.node(structure)?;
        if !matches!(root.kind, Kind::Structure) {
            return None;
        }
        let mut run = Self { align: root.align, ..Self::default() };
        for (_, node) in layout.children(structure) {
            let Kind::Integer(int) = &node.kind else { return None };
            run.bits = bits::align_up(run.bits, node.align)?;
            run.add(int)?;
        }
        Some(run)
    }

    fn add(&mut self, int: &Integer) -> Option<()> {
        let slot = Slot { offset: self.bits, bits: int.bits, order: int.order };
        if !int.more_roles.is_empty() {
            return None;
        }
        match int.role {
            Some(Role::EventClassId) => self.id = Some(slot),
            Some(Role::ClockTimestamp) if self.time.is_some() => return None,
            Some(Role::ClockTimestamp) => self.time = Some(slot),
            _ => {}
        }
        self.bits += u64::from(int.bits);
        (!int.is_saved() && !int.signed && !int.reversed).then_some(())
    }

    #[inline]
    fn read(&self, context: &Context<'_>, pos: u64, header: &mut Header) -> Result<u64, Fault> {
        let begin = aligned(context, pos, self.align, 0)?;
        let end = advanced(context, begin, self.bits, 0)?;
        let value =
            |slot: Slot| bits::read_uint(context.data, begin + slot.offset, slot.bits, slot.order);
        if let Some(slot) = self.id {
            header.id = value(slot);
        }
        if let Some(slot) = self.time {
            header.time = value(slot).map(|value| (value, slot.bits));
        }
        Ok(end)
    }
}

impl Cut {
    /// `None` when the field lies in nine bytes.
    fn new(offset_bits: u64, slot: Slot) -> Option<Self> {
        let (byte, first) = (offset_bits / 8, offset_bits % 8);
        let after = 64_u64.checked_sub(first + u64::from(slot.bits))?;
        let shift = if slot.order == ByteOrder::Little { first } else { after };
        Some(Self {
            byte: usize::try_from(byte).ok()?,
            shift: u8::try_from(shift).ok()?,
            mask: u64::MAX >> (64 - u32::from(slot.bits.clamp(1, 64))),
        })
    }

    #[inline(always)]
    fn of(self, word: u64) -> u64 {
        word >> (self.shift & 63) & self.mask
    }

    /// `bytes` begin with the header, `first` are the first eight of them.
    #[inline(always)]
    fn read(self, bytes: &[u8], first: u64, big: bool) -> Option<u64> {
        let word = if self.byte == 0 { first } else { word(bytes, self.byte, big)? };
        Some(self.of(word))
    }
}

/// Eight bytes as a number.
#[inline(always)]
fn word(bytes: &[u8], at: usize, big: bool) -> Option<u64> {
    let raw = *bytes.get(at..)?.first_chunk()?;
    Some(if big { u64::from_be_bytes(raw) } else { u64::from_le_bytes(raw) })
}

impl Quick {
    fn new(
        align: u64,
        selector: Option<Slot>,
        selector_is_id: bool,
        options: &[(u64, u64, Run)],
    ) -> Option<Self> {
        let slots = || {
            let of_runs = options.iter().flat_map(|(_, _, run)| [run.id, run.time]);
            of_runs.chain([selector]).flatten()
        };
        let order = slots().next()?.order;
        if slots().any(|slot| slot.order != order) || options.len() > MAX_QUICK_OPTIONS {
            return None;
        }
        let selector_cut = match selector {
            Some(slot) => Cut::new(0, slot)?,
            None => Cut::default(),
        };
        let mut quick = Self {
            align_mask: align.checked_sub(1)?,
            big: order == ByteOrder::Big,
            selector: selector_cut,
            options: Vec::new(),
        };
        for (first, last, run) in options.iter().copied() {
            // Where a structure of larger alignment begins depends on where the header does.
            let begin = selector.map_or(0, |slot| u64::from(slot.bits));
            let begin = bits::align_up(begin, run.align).filter(|_| run.align <= align)?;
            let cut = |slot: Option<Slot>| match slot {
                Some(slot) => Cut::new(begin + slot.offset, slot).map(Some),
                None => Some(None),
            };
            quick.options.push(QuickRun {
                first,
                last,
                id: cut(run.id)?.or(selector_is_id.then_some(selector_cut)),
                time: cut(run.time)?.unwrap_or_default(),
                bits: begin.checked_add(run.bits)?,
            });
        }
        Some(quick)
    }

    /// The header at `pos`; `None` when it does not begin at a byte, selects nothing, or is too near the end of the data,
    /// which the general way looks into.
    #[inline(always)]
    pub(crate) fn read(&self, data: &[u8], pos: u64, limit: u64) -> Option<QuickHeader> {
        let begin = pos.checked_add(self.align_mask)? & !self.align_mask;
        let bytes = data.get(usize::try_from(begin / 8).ok()?..)?;
        let first = word(bytes, 0, self.big)?;
        let selector = self.selector.of(first);
        let holds = |run: &&QuickRun| run.first <= selector && selector <= run.last;
        let run = self.options.iter().find(holds)?;
        let end = begin + run.bits;
        if !begin.is_multiple_of(8) || end > limit {
            return None;
        }
        let id = match run.id {
            Some(cut) => Some(cut.read(bytes, first, self.big)?),
            None => None,
        };
        let time = run.time.read(bytes, first, self.big)?;
        Some(QuickHeader { id, time, time_mask: run.time.mask, end })
    }
}

impl FlatPlan {
    #[inline]
    pub(crate) fn read(&self, context: &Context<'_>, pos: u64) -> Result<(Header, u64), Fault> {
        let mut header = Header::default();
        let end = self.0.read(context, pos, &mut header)?;
        Ok((header, end))
    }
}

impl SelectedPlan {
    fn of(layout: &Layout) -> Option<Self> {
        let root = layout.node(0)?;
        let mut members = layout.children(0);
        let (Some((_, first)), Some((_, second)), None) =
            (members.next(), members.next(), members.next())
        else {
            return None;
        };
        let (Kind::Integer(int), Kind::Variant(variant)) = (&first.kind, &second.kind) else {
            return None;
        };
        let usable = int.save == Some(variant.register)
            && int.shared_saves.is_empty()
            && variant.clears.is_empty()
            && !int.signed
            && !int.reversed
            && int.role != Some(Role::ClockTimestamp)
            && int.more_roles.is_empty();
        if !usable {
            return None;
        }
        let mut options = Vec::with_capacity(variant.ranges.len());
        for (begin, end, option) in &variant.ranges {
            let node = *variant.options.get(usize::try_from(*option).ok()?)?;
            let range = (u64::try_from(*begin).ok()?, u64::try_from(*end).ok()?);
            options.push((range.0, range.1, Run::of(layout, node)?));
        }
        let selector = Slot { offset: 0, bits: int.bits, order: int.order };
        let selector_is_id = int.role == Some(Role::EventClassId);
        Some(Self { align: root.align, selector, selector_is_id, options })
    }

    /// The header and its end; `None` when the selector selects nothing, which a walk then reports.
    #[inline]
    pub(crate) fn read(
        &self,
        context: &Context<'_>,
        pos: u64,
    ) -> Result<Option<(Header, u64)>, Fault> {
        let begin = aligned(context, pos, self.align, 0)?;
        let after = advanced(context, begin, u64::from(self.selector.bits), 0)?;
        let Some(value) =
            bits::read_uint(context.data, begin, self.selector.bits, self.selector.order)
        else {
            return Ok(None);
        };
        // The selector's ranges are sorted.
        let upto = self.options.partition_point(|(first, _, _)| *first <= value);
        let before = upto.checked_sub(1).and_then(|at| self.options.get(at));
        let chosen = before.filter(|(_, last, _)| value <= *last);
        let Some((_, _, run)) = chosen else { return Ok(None) };
        let mut header = Header { id: self.selector_is_id.then_some(value), time: None };
        let end = run.read(context, after, &mut header)?;
        Ok(Some((header, end)))
    }
}
