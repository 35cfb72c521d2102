//! Event record headers: the id and the time, by a short cut for the shapes that tracers write.

use crate::bits;
use crate::class::ByteOrder;
use crate::layout::{Integer, Kind, Layout, Role};
use crate::value::Context;
use crate::walk::{Fault, advanced, aligned};

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
pub(crate) enum HeaderPlan {
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

/// What an event record header says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Header {
    pub(crate) id: Option<u64>,
    /// The time field's value and width.
    pub(crate) time: Option<(u64, u8)>,
}

impl HeaderPlan {
    /// `None` and layouts that must be walked have no short cut.
    pub(crate) fn new(layout: Option<&Layout>) -> Self {
        let Some(layout) = layout.filter(|layout| !layout.is_walked()) else { return Self::Walk };
        if let Some(run) = Run::of(layout, 0) {
            return Self::Flat(Box::new(FlatPlan(run)));
        }
        SelectedPlan::of(layout).map_or(Self::Walk, |plan| Self::Selected(Box::new(plan)))
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
            && int.role != Some(Role::ClockTimestamp);
        if !usable {
            return None;
        }
        let mut options = Vec::with_capacity(variant.ranges.len());
        for (begin, end, option) in &variant.ranges {
            let node = *variant.options.get(usize::try_from(*option).ok()?)?;
            let range = (u64::try_from(*begin).ok()?, u64::try_from(*end).ok()?);
            options.push((range.0, range.1, Run::of(layout, node)?));
        }
        Some(Self {
            align: root.align,
            selector: Slot { offset: 0, bits: int.bits, order: int.order },
            selector_is_id: int.role == Some(Role::EventClassId),
            options,
        })
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
        let chosen = self.options.iter().find(|(first, last, _)| (*first..=*last).contains(&value));
        let Some((_, _, run)) = chosen else { return Ok(None) };
        let mut header = Header { id: self.selector_is_id.then_some(value), time: None };
        let end = run.read(context, after, &mut header)?;
        Ok(Some((header, end)))
    }
}
