//! From the declared structure of one scope to nodes: aliases are written out, references become registers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lexer::Problem;
use super::parser::{Root, shorten};
use super::reference::{self, Place, Wanted};
use super::types::{BodyId, IntegerType, LengthType, Member, Path, Type, TypeId, Types};
use super::warning::Found;
use crate::class::{ByteOrder, EnvValue};
use crate::error::TextProblem;
use crate::layout::{Integer, Kind, Length, Node, Register, Selector};
use crate::value::{Encoding, Mappings, Scope};
use crate::work;

type Result<T> = std::result::Result<T, Problem>;

/// The most fields of a trace with all aliases written out, by the size of its text: short text cannot take much memory.
pub(crate) fn max_nodes(text_bytes: usize) -> usize {
    text_bytes.saturating_mul(8).saturating_add(1 << 14).min(1 << 21)
}

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
    /// Registers of references that may lead to any of several nodes.
    shared_registers: HashMap<Box<[u32]>, Register>,
    /// Members of long structures by name.
    pub(crate) members: reference::Members,
}

/// What all scopes of a trace share while they are written out.
#[derive(Debug)]
pub(crate) struct Shared<'t> {
    pub(crate) types: &'t Types,
    pub(crate) native: ByteOrder,
    pub(crate) environment: HashMap<&'t str, &'t EnvValue>,
    pub(crate) warnings: Found,
    pub(crate) max_nodes: usize,
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
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) node: u32,
    /// For structures, which one of the text.
    body: Option<BodyId>,
    /// Named children so far.
    children: Vec<u32>,
    /// For arrays and variants, what to finish on closing.
    pending: Pending,
}

#[derive(Debug)]
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
    /// Members of the open structures by name, each with the position of its structure in `opened`, outermost first.
    visible: HashMap<Box<str>, Vec<(usize, u32)>>,
    /// Positions in `opened` of the structures of the text.
    bodies: HashMap<BodyId, Vec<usize>>,
    steps: Vec<Step>,
}

/// A resolved reference.
struct Resolved {
    register: Register,
    signed: bool,
    /// One of the nodes it leads to.
    node: u32,
    /// Where that is, among the earlier scopes; `None` in the scope itself.
    earlier: Option<usize>,
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
        let mut writer = Writer {
            shared,
            scope,
            earlier,
            at: root.at,
            draft,
            opened: Vec::new(),
            visible: HashMap::new(),
            bodies: HashMap::new(),
            steps,
        };
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
        let limit = u64::try_from(self.shared.max_nodes).unwrap_or(u64::MAX);
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
            Type::Structure { members, align, body } => {
                let pending = Pending::Structure { align: *align };
                self.bodies.entry(*body).or_default().push(self.opened.len());
                self.compound(
                    name,
                    Kind::Structure,
                    Some(*body),
                    pending,
                    members.iter().map(|m| (m.name.clone(), m.ty)),
                );
            }
            Type::Array { length, element } => self.array(name, length, *element)?,
            Type::Variant { selector, options } => {
                self.variant(name, selector.as_ref(), options)?
            }
        }
        self.make_visible(index);
        Ok(())
    }

    /// Adds a node to the children of the compound that it is in.
    fn make_visible(&mut self, index: u32) {
        let is_open = self.opened.last().is_some_and(|last| last.node == index);
        let Some(depth) = self.opened.len().checked_sub(if is_open { 2 } else { 1 }) else {
            return;
        };
        let Some(parent) = self.opened.get_mut(depth) else { return };
        parent.children.push(index);
        let node = usize::try_from(index).ok().and_then(|index| self.draft.nodes.get(index));
        let Some(node) = node.filter(|_| parent.body.is_some()) else { return };
        match self.visible.get_mut(&node.name) {
            Some(all) => all.push((depth, index)),
            None => {
                self.visible.insert(node.name.clone(), vec![(depth, index)]);
            }
        }
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
        body: Option<BodyId>,
        pending: Pending,
        children: impl DoubleEndedIterator<Item = (Box<str>, TypeId)>,
    ) {
        let node = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        self.push(name, kind, 1);
        self.opened.push(Opened { node, body, children: Vec::new(), pending });
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
            LengthType::Reference(path) => {
                Length::Register(self.resolve(path, Wanted::Length)?.register)
            }
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
                None,
                Pending::Array,
                [(Box::from(""), element)].into_iter(),
            );
        }
        Ok(())
    }

    fn environment_length(&self, path: &Path) -> Result<u64> {
        let name = path.names.iter().skip(1).map(|name| &**name).collect::<Vec<_>>().join(".");
        let entry = self.shared.environment.get(&*name);
        let length = entry.and_then(|value| u64::try_from(value.as_integer()?).ok());
        length.ok_or_else(|| refuse(path, "is no environment entry with a length"))
    }

    fn variant(
        &mut self,
        name: Box<str>,
        selector: Option<&Path>,
        options: &Arc<[Member]>,
    ) -> Result<()> {
        let path = selector.ok_or((self.at, TextProblem::Missing("the selector of a variant")))?;
        let Resolved { register, signed, node, earlier } = self.resolve(path, Wanted::Selector)?;
        let selector = Selector {
            register,
            signed,
            ranges: Vec::new(),
            options: Vec::new(),
            clears: Vec::new(),
        };
        let options = Arc::clone(options);
        let children = options.iter().map(|option| (option.name.clone(), option.ty));
        let kind = Kind::Variant(Box::new(selector));
        let children: Vec<_> = children.collect();
        let pending = Pending::Variant { selector: node, scope: earlier, at: path.at, options };
        self.compound(name, kind, None, pending, children.into_iter());
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(opened) = self.opened.pop() else { return Ok(()) };
        let next = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        let child_align = |child: &u32| self.node(*child).map_or(1, |node| node.align);
        let widest = opened.children.iter().map(child_align).max().unwrap_or(1);
        if let Some(body) = opened.body {
            self.hide(body, &opened.children);
        }
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

    /// A structure is over: its members can only be reached through it.
    fn hide(&mut self, body: BodyId, children: &[u32]) {
        if let Some(positions) = self.bodies.get_mut(&body) {
            positions.pop();
        }
        for child in children {
            work::step();
            let node = usize::try_from(*child).ok().and_then(|index| self.draft.nodes.get(index));
            if let Some(all) = node.and_then(|node| self.visible.get_mut(&node.name)) {
                all.pop();
            }
        }
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
        let limit = u64::try_from(self.shared.max_nodes).unwrap_or(u64::MAX);
        let left = self.shared.nodes_left.checked_sub(mappings.entries.len());
        let too_many = (at, TextProblem::TooMany { what: "fields and labels of selectors", limit });
        self.shared.nodes_left = left.ok_or(too_many)?;
        let (mut spelled, mut shown) = (HashMap::new(), HashMap::new());
        for (index, option) in (0_u32..).zip(options) {
            work::step();
            let name = &*option.name;
            spelled.insert(name, index);
            shown.entry(name.strip_prefix('_').unwrap_or(name)).or_insert(index);
        }
        let mut ranges = Ranges::default();
        for mapping in &mappings.entries {
            work::step();
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

    /// Finds what a reference leads to and gives it a register.
    fn resolve(&mut self, path: &Path, wanted: Wanted) -> Result<Resolved> {
        let (scope, names) = absolute(path);
        let (place, earlier) = match scope {
            Some(scope) if scope != self.scope => {
                let earlier = self.earlier.iter().position(|(known, _)| *known == scope);
                let earlier = earlier
                    .ok_or_else(|| refuse(path, "leads to a scope that is not there before"))?;
                (self.find_in(Some(earlier), 0, names, wanted), Some(earlier))
            }
            Some(_) => (self.find_in(None, 0, names, wanted), None),
            None => (self.find_around(path, names, wanted), None),
        };
        let place = place.map_err(|problem| refuse(path, problem))?;
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
        let mut new_register = || self.shared.new_register(is_local);
        let register = draft.register(&place, &mut new_register);
        let node = place.targets.first().copied().unwrap_or(0);
        let signed =
            matches!(draft.node(node), Some(Node { kind: Kind::Integer(int), .. }) if int.signed);
        Ok(Resolved { register, signed, node, earlier })
    }

    /// A field by names, the first of them a member so far of a structure around the reference: of the one that the
    /// text says, else of the innermost one that has such a field.
    fn find_around(
        &mut self,
        path: &Path,
        names: &[Box<str>],
        wanted: Wanted,
    ) -> std::result::Result<Place, &'static str> {
        let Some((first, rest)) = names.split_first() else { return Err(reference::NO_FIELD) };
        let visible = self.visible.get(first).map_or(&[] as &[(usize, u32)], |all| all);
        let declared = path.body.and_then(|body| self.bodies.get(&body)?.last());
        let declared = declared
            .and_then(|depth| visible.binary_search_by_key(depth, |(depth, _)| *depth).ok())
            .and_then(|at| visible.get(at));
        let mut problem = None;
        let candidates: Vec<u32> =
            declared.into_iter().chain(visible.iter().rev()).map(|(_, node)| *node).collect();
        for candidate in candidates {
            work::step();
            match self.find_in(None, candidate, rest, wanted) {
                Ok(place) => return Ok(place),
                Err(found) => problem = problem.or(Some(found)),
            }
        }
        Err(problem.unwrap_or(reference::NO_FIELD))
    }

    fn find_in(
        &mut self,
        earlier: Option<usize>,
        from: u32,
        names: &[Box<str>],
        wanted: Wanted,
    ) -> std::result::Result<Place, &'static str> {
        let (draft, opened) = match earlier.and_then(|i| self.earlier.get_mut(i)) {
            Some((_, draft)) => (&mut **draft, &[] as &[Opened]),
            None => (&mut self.draft, &*self.opened),
        };
        let Draft { nodes, members, .. } = draft;
        reference::find(nodes, members, opened, from, names, wanted, &mut self.shared.nodes_left)
    }
}

impl Draft {
    fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(index).ok()?)
    }

    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.nodes.get_mut(usize::try_from(index).ok()?)
    }

    /// The register of a place, which is a new one for a place that nothing referred to yet.
    fn register(&mut self, place: &Place, new_register: &mut dyn FnMut() -> Register) -> Register {
        let register = match &*place.targets {
            [only] => match self.node_mut(*only).map(|node| &mut node.kind) {
                Some(Kind::Integer(int)) => *int.save.get_or_insert_with(new_register),
                _ => 0,
            },
            several => match self.shared_registers.get(several) {
                Some(register) => *register,
                None => self.share(several, new_register()),
            },
        };
        for variant in &place.chosen {
            if let Some(Node { kind: Kind::Variant(selector), .. }) = self.node_mut(*variant)
                && !selector.clears.contains(&register)
            {
                selector.clears.push(register);
            }
        }
        register
    }

    fn share(&mut self, targets: &[u32], register: Register) -> Register {
        for target in targets {
            work::step();
            if let Some(Node { kind: Kind::Integer(int), .. }) = self.node_mut(*target) {
                let saves = int.shared_saves.iter().copied().chain([register]);
                int.shared_saves = saves.collect();
            }
        }
        self.shared_registers.insert(targets.into(), register);
        register
    }
}

fn refuse(path: &Path, problem: &'static str) -> Problem {
    (path.at, TextProblem::Reference { path: shorten(&path.names.join(".")), problem })
}

/// The scope that a reference begins with, and the names in it.
pub(crate) fn absolute(path: &Path) -> (Option<Scope>, &[Box<str>]) {
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
            work::step();
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
