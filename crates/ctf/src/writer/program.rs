//! A scope compiled into steps: what a record needs to take values one after the other.

use super::class::{ArrayClass, FieldClass, FloatClass, IntClass, Length};
use super::tree::{Kind, Node, Tree};
use crate::class::ByteOrder;
use crate::value::{Encoding, Scope};

/// How often an array's element, or how many bytes, follow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Count {
    Fixed(u64),
    /// The value of a register.
    Register(usize),
}

/// Something that takes one value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scalar {
    pub(super) align: u64,
    pub(super) register: Option<usize>,
    pub(super) kind: ScalarKind,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ScalarKind {
    Int { bits: u8, signed: bool, order: ByteOrder, reversed: bool },
    Bool { bits: u8, order: ByteOrder },
    VarInt { signed: bool },
    Float { bits: u8, order: ByteOrder, reversed: bool },
    String(Encoding),
    Text(Count, Encoding),
    Blob(Count),
}

/// The option bodies of a variant, or the body of an optional field, and what chooses them.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) register: usize,
    pub(super) signed: bool,
    /// First and last value, and position in `bodies`; in order, without overlap.
    pub(super) ranges: Vec<(i128, i128, usize)>,
    /// First step, and the step after the last.
    pub(super) bodies: Vec<(usize, usize)>,
    /// Whether it is in order that nothing is chosen.
    pub(super) may_be_absent: bool,
    /// The step after all bodies.
    pub(super) after: usize,
}

impl Choice {
    /// The body for the raw value of the selector, or that value as a number.
    pub(super) fn choose(&self, raw: u64) -> Result<(usize, usize), i128> {
        let value = if self.signed { i128::from(raw.cast_signed()) } else { i128::from(raw) };
        let after = self.ranges.partition_point(|(first, _, _)| *first <= value);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        let body = range.filter(|(_, last, _)| value <= *last);
        body.and_then(|(_, _, body)| self.bodies.get(*body)).copied().ok_or(value)
    }
}

#[derive(Debug)]
pub(super) enum Step {
    /// Padding in front of a structure.
    Align(u64),
    Scalar(Scalar),
    /// The steps up to `end`, so often. `is_bytes`: elements are integers of 8 bits, byte-aligned.
    Repeat {
        count: Count,
        end: usize,
        is_bytes: bool,
    },
    Choose(Box<Choice>),
}

/// One scope. Without steps when it is not declared.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    /// The field of each step.
    fields: Vec<u32>,
    /// Name and container of each field.
    names: Vec<(Box<str>, u32)>,
    scope: &'static str,
}

impl Program {
    /// The names that lead to the field of a step.
    pub(super) fn path(&self, step: usize) -> String {
        let field = |index: u32| self.names.get(usize::try_from(index).ok()?);
        let mut names = Vec::new();
        let mut at = self.fields.get(step).copied().unwrap_or(0);
        while let Some((name, parent)) = field(at).filter(|_| at != 0) {
            names.push(if name.is_empty() { "[]" } else { name });
            at = *parent;
        }
        names.push(self.scope);
        names.reverse();
        names.join(".")
    }
}

/// Compiles a tree whose references are resolved. `trees`: it and the scopes before it.
pub(super) fn compile(tree: &Tree<'_>, trees: &[&Tree<'_>], order: ByteOrder) -> Program {
    let mut compiler = Compiler { tree, trees, order, program: Program::default() };
    compiler.program.scope = tree.scope.name();
    let narrow = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
    compiler.program.names =
        tree.nodes.iter().map(|node| (node.name.into(), narrow(node.parent))).collect();
    compiler.node(0);
    compiler.program
}

struct Compiler<'t, 'c> {
    tree: &'t Tree<'c>,
    trees: &'t [&'t Tree<'c>],
    order: ByteOrder,
    program: Program,
}

impl<'t, 'c> Compiler<'t, 'c> {
    fn push(&mut self, node: usize, step: Step) -> usize {
        self.program.steps.push(step);
        self.program.fields.push(u32::try_from(node).unwrap_or(u32::MAX));
        self.program.steps.len() - 1
    }

    fn here(&self) -> usize {
        self.program.steps.len()
    }

    /// Adds a field and what it contains.
    fn node(&mut self, index: usize) {
        let Some(node) = self.tree.nodes.get(index) else { return };
        match node.kind {
            Kind::Structure(_) => {
                // The packet context's own members, and so its alignment, come before.
                let is_begun = index == 0 && self.tree.scope == Scope::PacketContext;
                if node.align > 1 && !is_begun {
                    self.push(index, Step::Align(node.align));
                }
                for child in self.children(index) {
                    self.node(child);
                }
            }
            Kind::Other(FieldClass::Array(array)) => self.array(index, node, array),
            Kind::Other(FieldClass::Variant(variant)) => {
                let ranges = variant.options.iter().map(|(_, ranges)| ranges.as_slice());
                self.choice(index, node, ranges, false);
            }
            Kind::Other(FieldClass::Optional(optional)) => {
                // A truth value is kept as 0 or 1.
                let truth = [(1, 1)];
                let ranges: &[_] =
                    if optional.ranges.is_empty() { &truth } else { &optional.ranges };
                self.choice(index, node, std::iter::once(ranges), true);
            }
            Kind::Other(class) => {
                if let Some(kind) = self.scalar(node, class) {
                    let scalar = Scalar { align: node.align, register: node.register, kind };
                    self.push(index, Step::Scalar(scalar));
                }
            }
        }
    }

    fn children(&self, parent: usize) -> impl Iterator<Item = usize> + use<'t, 'c> {
        let nodes = &self.tree.nodes;
        let end = nodes.get(parent).map_or(0, |node| node.end);
        let mut at = parent + 1;
        std::iter::from_fn(move || {
            let node = nodes.get(at).filter(|_| at < end)?;
            Some(std::mem::replace(&mut at, node.end))
        })
    }

    fn array(&mut self, index: usize, node: &Node<'c>, array: &ArrayClass) {
        if node.align > 1 {
            self.push(index, Step::Align(node.align));
        }
        let is_bytes = matches!(&array.element, FieldClass::Int(int)
            if int.bits == 8 && int.align <= 8 && node.align >= 8 && !int.signed && !int.reversed);
        let count = self.count(node, array.length);
        let step = self.push(index, Step::Repeat { count, end: 0, is_bytes });
        self.node(index + 1);
        let after = self.here();
        if let Some(Step::Repeat { end, .. }) = self.program.steps.get_mut(step) {
            *end = after;
        }
    }

    fn choice<'r>(
        &mut self,
        index: usize,
        node: &Node<'c>,
        options: impl Iterator<Item = &'r [(i128, i128)]>,
        may_be_absent: bool,
    ) {
        let mut ranges: Vec<(i128, i128, usize)> = options
            .enumerate()
            .flat_map(|(body, ranges)| {
                ranges.iter().map(move |(first, last)| (*first, *last, body))
            })
            .collect();
        ranges.sort_unstable();
        let (register, signed) = self
            .target(node)
            .map_or((0, false), |target| (target.register.unwrap_or(0), is_signed(target)));
        let choice =
            Choice { register, signed, ranges, bodies: Vec::new(), may_be_absent, after: 0 };
        let step = self.push(index, Step::Choose(Box::new(choice)));
        let mut bodies = Vec::new();
        for child in self.children(index) {
            let begin = self.here();
            self.node(child);
            bodies.push((begin, self.here()));
        }
        let after = self.here();
        if let Some(Step::Choose(choice)) = self.program.steps.get_mut(step) {
            (choice.bodies, choice.after) = (bodies, after);
        }
    }

    /// The field that a length or selector refers to.
    fn target(&self, node: &Node<'c>) -> Option<&Node<'c>> {
        let target = node.target?;
        let tree = self.trees.iter().find(|tree| tree.scope == target.scope)?;
        tree.nodes.get(target.node)
    }

    fn count(&self, node: &Node<'c>, length: Length) -> Count {
        match length {
            Length::Fixed(length) => Count::Fixed(length),
            Length::Of(_) => {
                Count::Register(self.target(node).and_then(|to| to.register).unwrap_or(0))
            }
        }
    }

    fn scalar(&self, node: &Node<'c>, class: &FieldClass) -> Option<ScalarKind> {
        let order = |order: Option<ByteOrder>| order.unwrap_or(self.order);
        let int = |int: &IntClass| ScalarKind::Int {
            bits: int.bits,
            signed: int.signed,
            order: order(int.byte_order),
            reversed: int.reversed,
        };
        Some(match class {
            FieldClass::Int(class) | FieldClass::Enum(class, _) => int(class),
            FieldClass::Bits(class, _) => int(&IntClass { signed: false, ..*class }),
            FieldClass::Bool(class) => {
                ScalarKind::Bool { bits: class.bits, order: order(class.byte_order) }
            }
            FieldClass::VarInt(class, _) => ScalarKind::VarInt { signed: class.signed },
            FieldClass::Float(FloatClass { bits, byte_order, reversed, .. }) => {
                ScalarKind::Float { bits: *bits, order: order(*byte_order), reversed: *reversed }
            }
            FieldClass::String(encoding) => ScalarKind::String(*encoding),
            FieldClass::Text(length, encoding) => {
                ScalarKind::Text(self.count(node, *length), *encoding)
            }
            FieldClass::Blob(length, _) => ScalarKind::Blob(self.count(node, *length)),
            FieldClass::Structure(_)
            | FieldClass::Array(_)
            | FieldClass::Variant(_)
            | FieldClass::Optional(_) => return None,
        })
    }
}

fn is_signed(node: &Node<'_>) -> bool {
    match node.kind {
        Kind::Other(FieldClass::Int(int) | FieldClass::Enum(int, _)) => int.signed,
        Kind::Other(FieldClass::VarInt(int, _)) => int.signed,
        _ => false,
    }
}
