//! Byte orders that change inside a byte, which no reader could make sense of.
//!
//! A field fills a byte from one side, by its byte order (CTF 1.8.3, section 4.1.5), so fields of different order
//! cannot share a byte. Hardly any trace could ever have this: whether one can is found out once from its classes, and
//! only then are event records looked through for it.

use crate::class::{ByteOrder, EventRecordClass, StreamClass};
use crate::layout::{Kind, Layout, Node};
use crate::value::{Context, Scope};
use crate::walk::Fault;
use crate::work;

/// Where a reader can be: at a bit of a byte, after a number of one order or before any.
const STATES: usize = 24;

/// The states of bit 0 of a byte.
const AT_BYTE: u32 = 0x01_01_01;

/// What reading something does to the state.
#[derive(Debug, Clone, Copy)]
struct Effect {
    /// From each state, the set of those that can follow.
    to: [u32; STATES],
    /// The states in which reading it can change the order inside a byte.
    clash: u32,
}

const fn row(order: Option<ByteOrder>) -> usize {
    match order {
        None => 0,
        Some(ByteOrder::Little) => 8,
        Some(ByteOrder::Big) => 16,
    }
}

impl Effect {
    /// Nothing is read.
    fn nothing() -> Self {
        Self { to: std::array::from_fn(|state| 1 << state), clash: 0 }
    }

    /// Nothing can be read: neutral for [`Self::or`].
    const fn never() -> Self {
        Self { to: [0; STATES], clash: 0 }
    }

    fn align(align: u64) -> Self {
        let align = usize::try_from(align.clamp(1, 8)).unwrap_or(8);
        let to = std::array::from_fn(|state| {
            let (row, bit) = (state & !7, state & 7);
            1 << (row | (bit.next_multiple_of(align) & 7))
        });
        Self { to, clash: 0 }
    }

    fn number(bits: u8, order: ByteOrder) -> Self {
        let row = row(Some(order));
        let to = std::array::from_fn(|state| 1 << (row | ((state + usize::from(bits)) & 7)));
        let same = 0xFF << row | 0xFF;
        Self { to, clash: !same & !AT_BYTE & ((1 << STATES) - 1) }
    }

    fn follow(&self, states: u32) -> u32 {
        let each = self.to.iter().enumerate();
        each.filter(|(state, _)| states >> state & 1 == 1).fold(0, |all, (_, to)| all | to)
    }

    fn then(&self, next: &Self) -> Self {
        let to = self.to.map(|states| next.follow(states));
        let later = self.to.iter().enumerate();
        let clash = later
            .filter(|(_, states)| *states & next.clash != 0)
            .fold(self.clash, |clash, (state, _)| clash | 1 << state);
        Self { to, clash }
    }

    fn or(&self, other: &Self) -> Self {
        let to = std::array::from_fn(|state| {
            self.to.get(state).unwrap_or(&0) | other.to.get(state).unwrap_or(&0)
        });
        Self { to, clash: self.clash | other.clash }
    }

    /// Any number of times.
    fn repeated(&self) -> Self {
        let mut all = Self::nothing().or(self);
        // Each round doubles how often it can have happened; more often than there are states brings nothing new.
        for _ in 0..5 {
            all = all.then(&all);
        }
        all
    }
}

/// A compound whose end has not been reached.
struct Frame<'n> {
    node: &'n Node,
    effect: Effect,
}

/// What reading a whole scope does.
fn effect_of(layout: Option<&Layout>) -> Effect {
    let mut whole = Effect::nothing();
    let Some(layout) = layout else { return whole };
    let mut open: Vec<Frame<'_>> = Vec::new();
    for (index, node) in (0_u32..).zip(&layout.nodes) {
        work::step();
        while open.last().is_some_and(|frame| frame.node.next <= index) {
            close(&mut open, &mut whole);
        }
        let align = Effect::align(node.align);
        let effect = match &node.kind {
            Kind::Structure | Kind::Array(_) | Kind::Optional(_) => {
                open.push(Frame { node, effect: Effect::nothing() });
                continue;
            }
            Kind::Variant(_) => {
                open.push(Frame { node, effect: Effect::never() });
                continue;
            }
            Kind::Integer(int) => align.then(&Effect::number(int.bits, int.order)),
            Kind::Float { bits, order, .. } => align.then(&Effect::number(*bits, *order)),
            Kind::VarInteger(_) | Kind::Text(_) | Kind::TextArray(..) | Kind::Blob(..) => align,
        };
        add(&mut open, &mut whole, &effect);
    }
    while !open.is_empty() {
        close(&mut open, &mut whole);
    }
    whole
}

fn add(open: &mut [Frame<'_>], whole: &mut Effect, effect: &Effect) {
    let Some(frame) = open.last_mut() else {
        *whole = whole.then(effect);
        return;
    };
    frame.effect = match &frame.node.kind {
        Kind::Variant(_) => frame.effect.or(effect),
        _ => frame.effect.then(effect),
    };
}

fn close(open: &mut Vec<Frame<'_>>, whole: &mut Effect) {
    let Some(Frame { node, effect }) = open.pop() else { return };
    let inside = match &node.kind {
        Kind::Array(_) => effect.repeated(),
        Kind::Optional(_) => effect.or(&Effect::nothing()),
        _ => effect,
    };
    let effect = Effect::align(node.align).then(&inside);
    add(open, whole, &effect);
}

/// Whether the byte order may change inside a byte among the event records of a stream class.
pub(crate) fn may_change_inside_a_byte<'a>(
    packet: [Option<&'a Layout>; 2],
    stream: [Option<&'a Layout>; 2],
    classes: impl Iterator<Item = [Option<&'a Layout>; 2]> + Clone,
) -> bool {
    let layouts = || packet.into_iter().chain(stream).chain(classes.clone().flatten()).flatten();
    let has = |wanted| {
        layouts().flat_map(|layout| &layout.nodes).any(|node| match &node.kind {
            Kind::Integer(int) => int.order == wanted,
            Kind::Float { order, .. } => *order == wanted,
            _ => false,
        })
    };
    if !has(ByteOrder::Little) || !has(ByteOrder::Big) {
        return false;
    }
    let both = |[first, second]: [Option<&Layout>; 2]| effect_of(first).then(&effect_of(second));
    let own = classes.map(both).fold(Effect::never(), |all, class| all.or(&class));
    let record = both(stream).then(&own);
    let before = record.repeated().follow(both(packet).follow(1));
    before & record.clash != 0
}

/// Looks through the event record that begins at `pos`; gives the byte order of its last number.
///
/// # Errors
/// Where the byte order changes inside a byte, with the scope.
pub(crate) fn check<'a>(
    context: &Context<'a>,
    stream: &'a StreamClass,
    class: Option<&'a EventRecordClass>,
    mut pos: u64,
    mut order: Option<ByteOrder>,
) -> Result<Option<ByteOrder>, (Scope, &'a Layout, Fault)> {
    let scopes = [
        (Scope::EventHeader, stream.event_header.as_ref()),
        (Scope::EventCommonContext, stream.event_context.as_ref()),
        (Scope::EventSpecificContext, class.and_then(|class| class.context.as_ref())),
        (Scope::Payload, class.and_then(|class| class.payload.as_ref())),
    ];
    for (scope, layout) in scopes {
        let Some(layout) = layout else { continue };
        let mut walk = context.walk(layout, pos).after(order);
        order = walk.run(0, true, &mut ()).map_err(|fault| (scope, layout, fault))?;
        pos = walk.pos;
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_order_share_bytes_and_of_two_do_not() {
        let three = |order| Effect::number(3, order);
        let clash = |effect: Effect| effect.clash & 1 != 0;
        assert!(!clash(three(ByteOrder::Little).then(&three(ByteOrder::Little))));
        assert!(clash(three(ByteOrder::Little).then(&three(ByteOrder::Big))));
        let aligned = Effect::align(8).then(&three(ByteOrder::Big));
        assert!(!clash(three(ByteOrder::Little).then(&aligned)));
        let half = Effect::align(4).then(&three(ByteOrder::Big));
        assert!(clash(three(ByteOrder::Little).then(&half)));
    }

    #[test]
    fn repetition_finds_what_only_a_later_round_does() {
        // Three bits of little order at a time end inside of a byte unless eight times three were read.
        let little = Effect::number(3, ByteOrder::Little);
        assert_eq!(little.repeated().follow(1), 0xFF00 | 1);
        // Two bytes and then three bits, both orders: clashes from the second round on.
        let round = Effect::number(16, ByteOrder::Big).then(&Effect::number(3, ByteOrder::Little));
        assert_eq!(round.clash & 1, 0);
        assert_eq!(round.repeated().clash & 1, 1);
    }
}
