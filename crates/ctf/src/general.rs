//! Going over one event record in the general way, which says what is wrong with it.

use crate::class::StreamClass;
use crate::error::{DecodeError, DecodeErrorKind};
use crate::header::{GeneralPlan, Header};
use crate::layout::{Layout, Role, Then};
use crate::value::{Context, Field, Scope, Shape, Value, Visitor};
use crate::walk::{self, Fault, advanced, aligned};

impl Fault {
    /// The error with the field's name; `event_index` counts event records of the packet.
    #[cold]
    pub(crate) fn into_error(
        self,
        scope: Scope,
        layout: &Layout,
        event_index: Option<u64>,
    ) -> DecodeError {
        let path = layout.path(self.node);
        let dot = if path.is_empty() { "" } else { "." };
        let field = format!("{}{dot}{path}", scope.name());
        DecodeError { offset_bits: self.pos, event_index, field, kind: self.kind }
    }
}
#[inline]
pub(crate) fn class_of(stream: &StreamClass, id: Option<u64>) -> Result<u32, DecodeErrorKind> {
    // Without an id field there can be only one class, whose id is 0 unless the metadata says otherwise.
    let id = id.unwrap_or_else(|| stream.only_event_id.unwrap_or(0));
    stream.event_ids.get(id).ok_or(DecodeErrorKind::UnknownEventClass { id })
}

#[inline]
pub(crate) fn read_header(
    context: &Context<'_>,
    stream: &StreamClass,
    pos: u64,
    index: u64,
) -> Result<(Header, u64), DecodeError> {
    let Some(layout) = &stream.event_header else { return Ok((Header::default(), pos)) };
    let quick = match &stream.header_plan.general {
        GeneralPlan::Flat(plan) => plan.read(context, pos).map(Some),
        GeneralPlan::Selected(plan) => plan.read(context, pos),
        GeneralPlan::Walk => Ok(None),
    };
    if let Ok(Some(read)) = quick {
        return Ok(read);
    }
    // Also taken to say exactly which field of a short cut is at fault.
    let mut roles = HeaderRoles(Header::default());
    let mut walk = context.walk(layout, pos).first();
    walk.run(0, true, &mut roles)
        .map_err(|fault| fault.into_error(Scope::EventHeader, layout, Some(index)))?;
    Ok((roles.0, walk.pos))
}

struct HeaderRoles(Header);

impl<'a> Visitor<'a> for HeaderRoles {
    fn scalar(&mut self, field: Field<'a>, value: Value<'a>) {
        self.variable_length(field, value, field.bits());
    }

    fn variable_length(&mut self, field: Field<'a>, value: Value<'a>, bits: u8) {
        let Some(int) = field.integer() else { return };
        for role in int.roles() {
            match role {
                Role::EventClassId => self.0.id = value.as_u64(),
                Role::ClockTimestamp => self.0.time = value.as_u64().map(|value| (value, bits)),
                _ => {}
            }
        }
    }

    fn enter(&mut self, _: Field<'a>, _: Shape) {}
    fn leave(&mut self, _: Field<'a>, _: Shape) {}
}

/// Goes over a scope without looking at more than is needed to find its end; notes where each segment begins.
pub(crate) fn run_segments(
    context: &Context<'_>,
    layout: &Layout,
    pos: u64,
    anchors: &mut [u64],
) -> Result<u64, Fault> {
    let mut pos = aligned(context, pos, layout.align, 0)?;
    for (segment, anchor) in layout.segments.iter().zip(anchors) {
        *anchor = pos;
        let end = pos.saturating_add(segment.bits);
        if end > context.limit {
            return Err(walk::beyond(context, pos, 0, end));
        }
        for save in &segment.saves {
            let value = save.read(context.data, pos).unwrap_or(0);
            if let Some(slot) =
                usize::try_from(save.register).ok().and_then(|i| context.registers.get(i))
            {
                slot.set(value);
            }
        }
        pos = end;
        match segment.then {
            Then::End => break,
            Then::Align(align) => pos = aligned(context, pos, align, 0)?,
            Then::Text(node) => pos = walk::text(context, pos, node)?.1,
            Then::Repeat { register, stride, node } => {
                let length = walk::register(context.registers, register).unwrap_or(0);
                let remaining_bits = context.limit.saturating_sub(pos);
                let bits = length.checked_mul(stride).filter(|bits| *bits <= remaining_bits);
                let too_long =
                    Fault { pos, node, kind: DecodeErrorKind::Length { length, remaining_bits } };
                pos = advanced(context, pos, bits.ok_or(too_long)?, node)?;
            }
            Then::Walk(node) => {
                let mut walk = context.walk(layout, pos).first();
                walk.run(node, true, &mut ())?;
                pos = walk.pos;
            }
        }
    }
    Ok(pos)
}
