//! Finding the end of an event record: the segments of its scopes, one after the other, as one flat program.
//!
//! ```text
//!           common context          specific context      payload
//! steps     | seg 0 | seg 1 | end   | (none declared)     | seg 0 | seg 1 … |
//! anchors   0       1       2                             3       4         last: the event record's end
//! bases     0                       3                     3
//! ```
//!
//! A program is an optimist: it gives no reason when an event record does not fit. The layouts themselves are then gone
//! through once more, in the general way, which says what is wrong.

use std::sync::Arc;

use crate::class::{StreamClass, TraceClass};
use crate::layout::{Layout, Save, Segment, Then};
use crate::load::{Load, find_nul};
use crate::value::{Context, Scope};
use crate::walk;

/// The scopes that programs go over, in order.
const SCOPES: [Scope; 3] = [Scope::EventCommonContext, Scope::EventSpecificContext, Scope::Payload];

/// The programs of a trace class's event record classes, by their index.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    programs: Vec<Program>,
    /// The most anchors that one of them writes.
    pub(crate) anchors: usize,
}

/// How to get over an event record of one class, behind its header.
#[derive(Debug)]
pub(crate) struct Program {
    steps: Box<[Step]>,
    /// Of each scope of [`SCOPES`], the anchor of its first segment.
    bases: [usize; 3],
    /// Whether some field of the event record can only be read while the registers hold its values.
    pub(crate) needs_registers: bool,
}

#[derive(Debug)]
struct Step {
    bits: u64,
    saves: Box<[QuickSave]>,
    then: Onward,
}

#[derive(Debug)]
struct QuickSave {
    /// Distances count from the segment's beginning; without one, the save is read in the general way.
    load: Option<Load>,
    save: Save,
}

/// As [`Then`], over the borders of scopes.
#[derive(Debug, Clone, Copy)]
enum Onward {
    /// Nothing, where there are no saves.
    Next,
    /// A text, where there are no saves.
    Text,
    /// The same with saves.
    Saved,
    SavedText,
    Align {
        mask: u64,
    },
    Repeat {
        register: u32,
        stride: u64,
    },
    Walk {
        scope: u8,
        node: u32,
    },
}

impl Programs {
    pub(crate) fn new(trace: &TraceClass) -> Arc<Self> {
        let mut all = Self::default();
        for class in &trace.events {
            let stream = trace.stream_class(class.stream_class_id);
            let (end_align, common) = stream.map_or((1, None), |stream| {
                (stream.header_plan.end_align(), stream.event_context.as_ref())
            });
            let scopes = [common, class.context.as_ref(), class.payload.as_ref()];
            let program = Program::new(end_align, scopes);
            all.anchors = all.anchors.max(program.anchors());
            all.programs.push(program);
        }
        Arc::new(all)
    }

    #[inline]
    pub(crate) fn get(&self, class: u32) -> Option<&Program> {
        self.programs.get(usize::try_from(class).ok()?)
    }
}

impl Program {
    /// `known`: a power of two that divides the position where the first scope begins, before its alignment.
    fn new(mut known: u64, scopes: [Option<&Layout>; 3]) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        let mut bases = [0; 3];
        for ((scope, layout), base) in (0..).zip(scopes).zip(&mut bases) {
            if let Some(layout) = layout.filter(|layout| layout.align > known) {
                steps.push(Step {
                    bits: 0,
                    saves: Box::default(),
                    then: Onward::Align { mask: layout.align - 1 },
                });
            }
            *base = steps.len();
            let Some(layout) = layout else { continue };
            steps.extend(layout.segments.iter().map(|segment| Step {
                bits: segment.bits,
                saves: segment.saves.iter().map(QuickSave::new).collect(),
                then: Onward::new(scope, segment),
            }));
            known = layout.end_align;
        }
        // An end of no size has nothing to do but to be anchored, which the program's end is anyway.
        let is_idle = |step: &Step| {
            step.bits == 0 && step.saves.is_empty() && matches!(step.then, Onward::Next)
        };
        let last = steps.len().saturating_sub(1);
        if steps.last().is_some_and(is_idle) && bases.iter().all(|base| *base <= last) {
            steps.pop();
        }
        let needs_registers = scopes.into_iter().flatten().any(Layout::needs_registers);
        Self { steps: steps.into(), bases, needs_registers }
    }

    /// How many anchors it writes.
    #[inline(always)]
    pub(crate) fn anchors(&self) -> usize {
        self.steps.len() + 1
    }

    /// The number of a scope's first anchor; `None` of other scopes than event records' contexts and payloads.
    #[inline]
    pub(crate) fn base(&self, scope: Scope) -> Option<usize> {
        let [common, specific, payload] = self.bases;
        match scope {
            Scope::EventCommonContext => Some(common),
            Scope::EventSpecificContext => Some(specific),
            Scope::Payload => Some(payload),
            _ => None,
        }
    }

    /// Goes from the end of an event header to the end of the event record and notes where each segment begins, unless
    /// `anchors` has no room. `None`: something does not fit.
    #[inline(always)]
    pub(crate) fn run(
        &self,
        context: &Context<'_>,
        classes: (&TraceClass, &StreamClass, u32),
        mut pos: u64,
        anchors: &mut [u64],
    ) -> Option<u64> {
        let mut anchors = anchors.iter_mut();
        let mut note = |pos: u64| {
            if let Some(anchor) = anchors.next() {
                *anchor = pos;
            }
        };
        for step in &self.steps {
            note(pos);
            let end = pos.checked_add(step.bits).filter(|end| *end <= context.limit)?;
            // Few enough cases here for the processor's registers to be enough; calling for the others costs little
            // beside what they do.
            pos = match step.then {
                Onward::Next => end,
                Onward::Text => {
                    let text = walk::content(context, end)?;
                    let bytes = u64::try_from(find_nul(text)?).ok()?;
                    end + (bytes + 1) * 8
                }
                _ => onward(context, classes, step, (pos, end))?,
            };
        }
        note(pos);
        Some(pos)
    }
}

/// What follows a step's constant part, from `begin` to `end`.
#[inline(never)]
fn onward(
    context: &Context<'_>,
    classes: (&TraceClass, &StreamClass, u32),
    step: &Step,
    (begin, end): (u64, u64),
) -> Option<u64> {
    if !step.saves.is_empty() {
        save(context, &step.saves, begin)?;
    }
    match step.then {
        Onward::Next | Onward::Saved => Some(end),
        Onward::Align { mask } => {
            let aligned = end.checked_add(mask)? & !mask;
            Some(aligned).filter(|aligned| *aligned <= context.limit)
        }
        Onward::Text | Onward::SavedText => {
            let text = walk::content(context, end)?;
            let bytes = u64::try_from(find_nul(text)?).ok()?;
            Some(end + (bytes + 1) * 8)
        }
        Onward::Repeat { register, stride } => {
            let length = walk::register(context.registers, register)?;
            let bits = length.checked_mul(stride)?;
            end.checked_add(bits).filter(|end| *end <= context.limit)
        }
        Onward::Walk { scope, node } => walk_over(context, classes, scope, node, end),
    }
}

fn save(context: &Context<'_>, saves: &[QuickSave], pos: u64) -> Option<()> {
    let bytes = context.data.get(usize::try_from(pos / 8).ok()?..)?;
    for QuickSave { load, save } in saves {
        let quick =
            load.as_ref().filter(|_| pos.is_multiple_of(8)).and_then(|load| load.read(bytes));
        let value = match quick {
            Some(raw) => raw,
            None => save.read(context.data, pos)?,
        };
        context.registers.get(usize::try_from(save.register).ok()?)?.set(value);
    }
    Some(())
}

fn walk_over(
    context: &Context<'_>,
    (trace, stream, class): (&TraceClass, &StreamClass, u32),
    scope: u8,
    node: u32,
    pos: u64,
) -> Option<u64> {
    let class = trace.events.get(usize::try_from(class).ok()?)?;
    let layout = match SCOPES.get(usize::from(scope))? {
        Scope::EventCommonContext => stream.event_context.as_ref(),
        Scope::EventSpecificContext => class.context.as_ref(),
        _ => class.payload.as_ref(),
    };
    let mut walk = context.walk(layout?, pos).first();
    walk.run(node, true, &mut ()).ok()?;
    Some(walk.pos)
}

impl QuickSave {
    fn new(save: &Save) -> Self {
        let load = Load::new(save.offset, save.bits, save.order)
            .filter(|_| !save.signed && !save.reversed);
        Self { load, save: *save }
    }
}

impl Onward {
    fn new(scope: u8, segment: &Segment) -> Self {
        let is_plain = segment.saves.is_empty();
        match segment.then {
            Then::End if is_plain => Self::Next,
            Then::End => Self::Saved,
            Then::Text(_) if is_plain => Self::Text,
            Then::Text(_) => Self::SavedText,
            Then::Align(align) => Self::Align { mask: align.saturating_sub(1) },
            Then::Repeat { register, stride, .. } => Self::Repeat { register, stride },
            Then::Walk(node) => Self::Walk { scope, node },
        }
    }
}
