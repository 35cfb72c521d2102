//! From the declared structure of one scope to nodes: aliases are written out, references become registers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lexer::Problem;
use super::parser::{Root, shorten};
use super::types::{IntegerType, LengthType, Member, Path, Type, TypeId, Types};
use crate::class::{ByteOrder, EnvValue};
use crate::error::TextProblem;
use crate::layout::{Integer, Kind, Length, Node, Register, Selector};
use crate::value::{Encoding, Mappings, Scope};

type Result<T> = std::result::Result<T, Problem>;

/// The most fields of a trace with all aliases written out.
pub(crate) const MAX_NODES: usize = 1 << 21;

/// Registers of one event record class carry this bit until all shared ones are counted.
pub(crate) const LOCAL: Register = 1 << 31;

/// A scope whose references are resolved.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) nodes: Vec<Node>,
    /// Integers that carry a clock's value, by node.
    pub(crate) clocks: Vec<(u32, Path)>,
    /// Whether a later scope refers to one of its fields.
    pub(crate) referenced: bool,
}

/// What all scopes of a trace share while they are written out.
#[derive(Debug)]
pub(crate) struct Shared<'t> {
    pub(crate) types: &'t Types,
    pub(crate) native: ByteOrder,
    pub(crate) environment: &'t [(String, EnvValue)],
    /// Nodes that may still be made.
    pub(crate) nodes_left: usize,
    /// Registers of the packet's and the stream's scopes so far.
    pub(crate) registers: Register,
    /// Registers of the current event record class so far, and the most of any.
    pub(crate) local_registers: Register,
    pub(crate) most_local_registers: Register,
}

/// The scopes that come before the one being written out.
pub(crate) type Earlier<'d> = Vec<(Scope, &'d mut Draft)>;

impl Shared<'_> {
    fn new_register(&mut self, is_local: bool) -> Register {
        let count = if is_local { &mut self.local_registers } else { &mut self.registers };
        let register = *count;
        *count += 1;
        self.most_local_registers = self.most_local_registers.max(self.local_registers);
        if is_local { register | LOCAL } else { register }
    }
}

enum Step {
    Open(Box<str>, TypeId),
    Close,
}

/// A compound that is being written out.
struct Opened {
    node: u32,
    is_structure: bool,
    /// Named children so far.
    children: Vec<u32>,
    /// For arrays and variants, what to finish on closing.
    pending: Pending,
}

enum Pending {
    Structure { align: u64 },
    Array,
    Variant { selector: u32, scope: Option<usize>, at: usize, options: Arc<[Member]> },
}

pub(crate) struct Writer<'s, 't, 'd> {
    shared: &'s mut Shared<'t>,
    scope: Scope,
    earlier: Earlier<'d>,
    at: usize,
    draft: Draft,
    opened: Vec<Opened>,
    steps: Vec<Step>,
}

impl<'s, 't, 'd> Writer<'s, 't, 'd> {
    pub(crate) fn draft(
        shared: &'s mut Shared<'t>,
        scope: Scope,
        root: Option<Root>,
        earlier: Earlier<'d>,
    ) -> Result<Option<Draft>> {
        let Some(root) = root else { return Ok(None) };
        let steps = vec![Step::Open(Box::from(""), root.ty)];
        let draft = Draft::default();
        let mut writer =
            Writer { shared, scope, earlier, at: root.at, draft, opened: Vec::new(), steps };
        while let Some(step) = writer.steps.pop() {
            match step {
                Step::Open(name, ty) => writer.open(name, ty)?,
                Step::Close => writer.close()?,
            }
        }
        Ok(Some(writer.draft))
    }

    fn open(&mut self, name: Box<str>, ty: TypeId) -> Result<()> {
        let types = self.shared.types;
        let Some(ty) = types.get(ty) else { return Ok(()) };
        let limit = u64::try_from(MAX_NODES).unwrap_or(u64::MAX);
        let left = self.shared.nodes_left.checked_sub(1);
        self.shared.nodes_left =
            left.ok_or((self.at, TextProblem::TooMany { what: "fields", limit }))?;
        let index = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        match ty {
            Type::Integer(integer) => self.integer(name, integer, None, index),
            Type::Enumeration { container, mappings } => {
                self.integer(name, container, Some(Arc::clone(mappings)), index);
            }
            Type::Float { bits, order, align } => {
                let order = order.unwrap_or(self.shared.native);
                self.push(name, Kind::Float { bits: *bits, order, reversed: false }, *align);
            }
            Type::Text => self.push(name, Kind::Text(Encoding::Utf8), 8),
            Type::Structure { members, align } => {
                let pending = Pending::Structure { align: *align };
                self.compound(
                    name,
                    Kind::Structure,
                    pending,
                    members.iter().map(|m| (m.name.clone(), m.ty)),
                );
            }
            Type::Array { length, element } => self.array(name, length, *element)?,
            Type::Variant { selector, options } => {
                self.variant(name, selector.as_ref(), options)?
            }
        }
        if let Some(parent) = self.opened.last_mut().filter(|parent| parent.node != index) {
            parent.children.push(index);
        } else if let Some(parent) =
            self.opened.len().checked_sub(2).and_then(|i| self.opened.get_mut(i))
        {
            parent.children.push(index);
        }
        Ok(())
    }

    fn push(&mut self, name: Box<str>, kind: Kind, align: u64) {
        let next = u32::try_from(self.draft.nodes.len() + 1).unwrap_or(u32::MAX);
        let prefix = u8::from(name.starts_with('_'));
        self.draft.nodes.push(Node { name, prefix, kind, align, next, min_bits: 0, place: None });
    }

    fn integer(
        &mut self,
        name: Box<str>,
        integer: &IntegerType,
        mappings: Option<Arc<Mappings>>,
        index: u32,
    ) {
        if let Some(clock) = &integer.clock {
            self.draft.clocks.push((index, clock.clone()));
        }
        let order = integer.order.unwrap_or(self.shared.native);
        let (bits, signed, base) = (integer.bits, integer.signed, integer.base);
        let kind =
            Kind::Integer(Integer { signed, base, mappings, ..Integer::unsigned(bits, order) });
        self.push(name, kind, integer.align);
    }

    /// Writes the compound's node, and later its children and its end.
    fn compound(
        &mut self,
        name: Box<str>,
        kind: Kind,
        pending: Pending,
        children: impl DoubleEndedIterator<Item = (Box<str>, TypeId)>,
    ) {
        let node = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        let is_structure = matches!(kind, Kind::Structure);
        self.push(name, kind, 1);
        self.opened.push(Opened { node, is_structure, children: Vec::new(), pending });
        self.steps.push(Step::Close);
        self.steps.extend(children.rev().map(|(name, ty)| Step::Open(name, ty)));
    }

    fn array(&mut self, name: Box<str>, length: &LengthType, element: TypeId) -> Result<()> {
        let length = match length {
            LengthType::Fixed(length) => Length::Fixed(*length),
            LengthType::Reference(path)
                if path.names.first().is_some_and(|first| &**first == "env") =>
            {
                Length::Fixed(self.environment_length(path)?)
            }
            LengthType::Reference(path) => Length::Register(self.resolve(path, Wanted::Length)?.0),
        };
        let is_text = matches!(
            self.shared.types.get(element),
            Some(Type::Integer(IntegerType { bits: 8, align: 8, is_text: true, .. }))
        );
        if is_text {
            self.push(name, Kind::TextArray(length, Encoding::Utf8), 8);
        } else {
            self.compound(
                name,
                Kind::Array(length),
                Pending::Array,
                [(Box::from(""), element)].into_iter(),
            );
        }
        Ok(())
    }

    fn environment_length(&self, path: &Path) -> Result<u64> {
        let name = path.names.iter().skip(1).map(|name| &**name).collect::<Vec<_>>().join(".");
        let entry = self.shared.environment.iter().find(|(key, _)| *key == name);
        let length = entry.and_then(|(_, value)| u64::try_from(value.as_integer()?).ok());
        length.ok_or_else(|| refuse(path, "is no environment entry with a length"))
    }

    fn variant(
        &mut self,
        name: Box<str>,
        selector: Option<&Path>,
        options: &Arc<[Member]>,
    ) -> Result<()> {
        let path = selector.ok_or((self.at, TextProblem::Missing("the selector of a variant")))?;
        let (register, signed, node, scope) = self.resolve(path, Wanted::Selector)?;
        let selector = Selector { register, signed, ranges: Vec::new(), options: Vec::new() };
        let pending =
            Pending::Variant { selector: node, scope, at: path.at, options: Arc::clone(options) };
        let children = options.iter().map(|option| (option.name.clone(), option.ty));
        self.compound(name, Kind::Variant(Box::new(selector)), pending, children);
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(opened) = self.opened.pop() else { return Ok(()) };
        let next = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        let child_align = |child: &u32| self.node(*child).map_or(1, |node| node.align);
        let widest = opened.children.iter().map(child_align).max().unwrap_or(1);
        let (align, chosen) = match opened.pending {
            Pending::Structure { align } => (align.max(widest), None),
            Pending::Array => (widest, None),
            Pending::Variant { selector, scope, at, options } => {
                (1, Some(self.option_ranges(selector, scope, at, &options)?))
            }
        };
        let node =
            usize::try_from(opened.node).ok().and_then(|index| self.draft.nodes.get_mut(index));
        let Some(node) = node else { return Ok(()) };
        (node.next, node.align) = (next, align);
        if let (Kind::Variant(variant), Some(ranges)) = (&mut node.kind, chosen) {
            (variant.ranges, variant.options) = (ranges, opened.children);
        }
        Ok(())
    }

    fn node(&self, index: u32) -> Option<&Node> {
        self.draft.nodes.get(usize::try_from(index).ok()?)
    }

    /// Which selector values choose which option: by the selector's labels, the first label first.
    fn option_ranges(
        &mut self,
        selector: u32,
        scope: Option<usize>,
        at: usize,
        options: &[Member],
    ) -> Result<Vec<(i128, i128, u32)>> {
        let nodes = scope
            .and_then(|i| self.earlier.get(i))
            .map_or(&self.draft.nodes, |(_, draft)| &draft.nodes);
        let selector = usize::try_from(selector)
            .ok()
            .and_then(|index| nodes.get(index))
            .map(|node| &node.kind);
        let Some(Kind::Integer(Integer { mappings: Some(mappings), .. })) = selector else {
            return Ok(Vec::new());
        };
        // Each label costs as much as a field, lest a few variants over a long enumeration take unbounded time.
        let limit = u64::try_from(MAX_NODES).unwrap_or(u64::MAX);
        let left = self.shared.nodes_left.checked_sub(mappings.entries.len());
        let too_many = (at, TextProblem::TooMany { what: "fields and labels of selectors", limit });
        self.shared.nodes_left = left.ok_or(too_many)?;
        let (mut spelled, mut shown) = (HashMap::new(), HashMap::new());
        for (index, option) in (0_u32..).zip(options) {
            let name = &*option.name;
            spelled.insert(name, index);
            shown.entry(name.strip_prefix('_').unwrap_or(name)).or_insert(index);
        }
        let mut ranges = Ranges::default();
        for mapping in &mappings.entries {
            let label = &*mapping.label;
            let bare = label.strip_prefix('_').unwrap_or(label);
            let option =
                spelled.get(label).or_else(|| shown.get(label)).or_else(|| shown.get(bare));
            if let Some(option) = option {
                ranges.add(mapping.first, mapping.last, *option);
            }
        }
        if ranges.0.is_empty() {
            return Err((
                at,
                TextProblem::Class {
                    what: "a variant's selector",
                    expected: "labelled like an option",
                },
            ));
        }
        Ok(ranges.0.into_iter().map(|(first, (last, option))| (first, last, option)).collect())
    }

    // References.

    /// The register that keeps what a reference leads to, whether that is signed, and where it is.
    fn resolve(
        &mut self,
        path: &Path,
        wanted: Wanted,
    ) -> Result<(Register, bool, u32, Option<usize>)> {
        let (scope, names) = absolute(path);
        let (index, earlier) = match scope {
            Some(scope) if scope != self.scope => {
                let earlier = self.earlier.iter().position(|(known, _)| *known == scope);
                let earlier = earlier
                    .ok_or_else(|| refuse(path, "leads to a scope that is not there before"))?;
                let nodes =
                    self.earlier.get(earlier).map_or(&[] as &[Node], |(_, draft)| &draft.nodes);
                (find(nodes, 0, names, &|_| false), Some(earlier))
            }
            Some(_) => (self.find_from(self.opened.first(), names), None),
            None => (
                self.opened.iter().rev().find_map(|opened| self.find_from(Some(opened), names)),
                None,
            ),
        };
        let index = index.ok_or_else(|| refuse(path, "leads to no earlier field"))?;
        // A register of the own event record class, unless the field is the stream's.
        let target_scope =
            earlier.and_then(|i| self.earlier.get(i)).map_or(self.scope, |(scope, _)| *scope);
        let is_local = matches!(target_scope, Scope::EventSpecificContext | Scope::Payload);
        let draft = match earlier.and_then(|i| self.earlier.get_mut(i)) {
            Some((_, draft)) => {
                draft.referenced = true;
                &mut **draft
            }
            None => &mut self.draft,
        };
        let node = usize::try_from(index).ok().and_then(|index| draft.nodes.get_mut(index));
        let Some(Node { kind: Kind::Integer(int), .. }) = node else {
            return Err(refuse(path, "leads to something other than an integer"));
        };
        match wanted {
            Wanted::Length if int.signed => return Err(refuse(path, "leads to a signed integer")),
            Wanted::Selector if int.mappings.is_none() => {
                return Err(refuse(path, "leads to no enumeration"));
            }
            _ => {}
        }
        let register = *int.save.get_or_insert_with(|| self.shared.new_register(is_local));
        Ok((register, int.signed, index, earlier))
    }

    /// A field by names, the first of them among the members so far of an open structure.
    fn find_from(&self, opened: Option<&Opened>, names: &[Box<str>]) -> Option<u32> {
        let opened = opened.filter(|opened| opened.is_structure)?;
        let (first, rest) = names.split_first()?;
        let is_first = |child: &&u32| self.node(**child).is_some_and(|node| node.name == *first);
        let child = *opened.children.iter().rev().find(is_first)?;
        find(&self.draft.nodes, child, rest, &|index| {
            self.opened.iter().any(|opened| opened.node == index)
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Length,
    Selector,
}

fn refuse(path: &Path, problem: &'static str) -> Problem {
    (path.at, TextProblem::Reference { path: shorten(&path.names.join(".")), problem })
}

/// The scope that a reference begins with, and the names in it.
fn absolute(path: &Path) -> (Option<Scope>, &[Box<str>]) {
    const PREFIXES: [(&[&str], Scope); 6] = [
        (&["trace", "packet", "header"], Scope::PacketHeader),
        (&["stream", "packet", "context"], Scope::PacketContext),
        (&["stream", "event", "header"], Scope::EventHeader),
        (&["stream", "event", "context"], Scope::EventCommonContext),
        (&["event", "context"], Scope::EventSpecificContext),
        (&["event", "fields"], Scope::Payload),
    ];
    for (prefix, scope) in PREFIXES {
        if let Some((begin, rest)) = path.names.split_at_checked(prefix.len())
            && !rest.is_empty()
            && begin.iter().zip(prefix).all(|(name, part)| **name == **part)
        {
            return (Some(scope), rest);
        }
    }
    (None, &path.names)
}

/// Follows names downwards. Options of variants and elements of arrays are not entered, since they may not have been
/// decoded, unless `is_open`: then the reference stands inside them.
fn find(
    nodes: &[Node],
    from: u32,
    names: &[Box<str>],
    is_open: &dyn Fn(u32) -> bool,
) -> Option<u32> {
    let mut at = from;
    for name in names {
        let node = nodes.get(usize::try_from(at).ok()?)?;
        let may_enter = match &node.kind {
            Kind::Structure => true,
            Kind::Variant(_) => is_open(at),
            _ => false,
        };
        let end = if is_open(at) { u32::try_from(nodes.len()).ok()? } else { node.next };
        let mut child = at + 1;
        at = loop {
            let candidate =
                nodes.get(usize::try_from(child).ok()?).filter(|_| may_enter && child < end)?;
            if candidate.name == *name {
                break child;
            }
            child = candidate.next;
        };
    }
    Some(at)
}

/// Ranges without overlap, by their first value: last value and option. What is there already stays.
#[derive(Default)]
struct Ranges(BTreeMap<i128, (i128, u32)>);

impl Ranges {
    fn add(&mut self, first: i128, last: i128, option: u32) {
        let mut begin = match self.0.range(..=first).next_back() {
            Some((_, (end, _))) if *end >= first => end + 1,
            _ => first,
        };
        while begin <= last {
            let after = self.0.range(begin..=last).next().map(|(next, (end, _))| (*next, *end));
            let end = after.map_or(last, |(next, _)| next - 1);
            if begin <= end {
                self.0.insert(begin, (end, option));
            }
            begin = after.map_or(last + 1, |(_, end)| end + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_ranges_overlap_the_first_one_stays() {
        let mut ranges = Ranges::default();
        for (first, last, option) in [(5, 6, 0), (1, 9, 1), (0, 20, 2), (3, 3, 3)] {
            ranges.add(first, last, option);
        }
        let all: Vec<_> =
            ranges.0.into_iter().map(|(first, (last, option))| (first, last, option)).collect();
        assert_eq!(all, [(0, 0, 2), (1, 4, 1), (5, 6, 0), (7, 9, 1), (10, 20, 2)]);
    }
}
