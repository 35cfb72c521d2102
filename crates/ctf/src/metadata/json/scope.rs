//! From the field class of one scope to nodes: aliases are written out, locations become registers.
//!
//! A location can lead to several fields: through a variant to one in each option. All of them keep their values in one
//! register, so that it holds the value that was decoded last.

use std::sync::Arc;

use super::classes::{
    Class, ClassId, Classes, IntegerClass, Kind as ClassKind, LengthOf, Location, Ranges,
};
use super::reader::shorten;
use crate::error::TextProblem;
use crate::layout::{Blob, Integer, Kind, Length, Meaning, Node, Register, Role, Selector};
use crate::metadata::lexer::Problem;
use crate::metadata::scope::{LOCAL, max_nodes};
use crate::value::Scope;

type Result<T> = std::result::Result<T, Problem>;

/// The most fields that are looked at to find lengths and selectors: names in large structures and options of large
/// variants, each asked for often, would take quadratic time.
const MAX_STEPS: u64 = 1 << 26;

/// A scope whose locations are resolved.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) nodes: Vec<Node>,
    /// Whether a later scope refers to one of its fields.
    pub(super) referenced: bool,
}

/// What all scopes of a trace share while they are written out.
#[derive(Debug)]
pub(super) struct Shared {
    max_nodes: usize,
    nodes_left: usize,
    steps_left: u64,
    /// Registers of the packet's and the streams' scopes.
    pub(super) shared: Registers,
    /// Registers of the current event record class, and the most of any.
    pub(super) local: Registers,
    pub(super) most_local: Register,
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Shared {
    pub(super) fn new(text_bytes: usize) -> Self {
        Self {
            max_nodes: max_nodes(text_bytes),
            nodes_left: max_nodes(text_bytes),
            steps_left: MAX_STEPS,
            shared: Registers::default(),
            local: Registers::default(),
            most_local: 0,
        }
    }
}

impl Shared {
    fn registers(&mut self, register: Register) -> &mut Registers {
        if register & LOCAL == 0 { &mut self.shared } else { &mut self.local }
    }

    fn new_register(&mut self, is_local: bool) -> Register {
        let flag = if is_local { LOCAL } else { 0 };
        let register = self.registers(flag).add() | flag;
        self.most_local = self.most_local.max(self.local.count());
        register
    }

    /// Makes two registers of the same kind one.
    fn unite(&mut self, left: Register, right: Register) {
        self.registers(left).unite(left & !LOCAL, right & !LOCAL);
    }
}

/// Registers, some of which turned out to be the same.
#[derive(Debug, Default)]
pub(super) struct Registers {
    /// For each the one it is the same as, or itself.
    same: Vec<Register>,
}

impl Registers {
    pub(super) fn count(&self) -> Register {
        u32::try_from(self.same.len()).unwrap_or(u32::MAX)
    }

    fn add(&mut self) -> Register {
        let new = self.count();
        self.same.push(new);
        new
    }

    /// The same local register under the name that stays; shared ones as they are.
    pub(super) fn settle(&self, register: Register) -> Register {
        if register & LOCAL == 0 { register } else { self.find(register & !LOCAL) | LOCAL }
    }

    /// The number of a register when local ones are numbered from `first_local` on and `self` are the shared ones.
    pub(super) fn place(&self, register: Register, first_local: Register) -> Register {
        if register & LOCAL == 0 { self.find(register) } else { (register & !LOCAL) + first_local }
    }

    fn find(&self, register: Register) -> Register {
        let mut at = register;
        while let Some(next) = usize::try_from(at).ok().and_then(|i| self.same.get(i)) {
            if *next == at {
                break;
            }
            at = *next;
        }
        at
    }

    fn unite(&mut self, left: Register, right: Register) {
        let (left, right) = (self.shorten(left), self.shorten(right));
        self.point(left.max(right), left.min(right));
    }

    /// As [`Self::find`]; later ways to the same register are shorter.
    fn shorten(&mut self, register: Register) -> Register {
        let found = self.find(register);
        let mut at = register;
        while at != found {
            at = self.point(at, found).unwrap_or(found);
        }
        found
    }

    /// Makes a register the same as another, and gives the one it was the same as.
    fn point(&mut self, register: Register, to: Register) -> Option<Register> {
        let same = self.same.get_mut(usize::try_from(register).ok()?)?;
        Some(std::mem::replace(same, to))
    }

    pub(super) fn clear(&mut self) {
        self.same.clear();
    }
}

/// The scopes before the one being written out.
pub(super) type Earlier<'d> = Vec<(Scope, &'d mut Draft)>;

/// What roles need to be allowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    /// The stream class has a default clock class.
    pub(super) clock: bool,
    /// The preamble has a UUID.
    pub(super) uuid: bool,
}

enum Step {
    Open(Box<str>, ClassId),
    Close,
}

/// A compound that is being written out.
struct Opened<'c> {
    node: u32,
    children: Vec<u32>,
    class: &'c Class,
}

pub(super) struct Writer<'s, 'c, 'd> {
    shared: &'s mut Shared,
    classes: &'c Classes,
    scope: Scope,
    allowed: Allowed,
    earlier: Earlier<'d>,
    draft: Draft,
    opened: Vec<Opened<'c>>,
    steps: Vec<Step>,
}

impl<'s, 'c, 'd> Writer<'s, 'c, 'd> {
    /// Writes out the structure of a scope; `at` is where the scope asks for it.
    pub(super) fn draft(
        shared: &'s mut Shared,
        classes: &'c Classes,
        scope: Scope,
        root: Option<(usize, ClassId)>,
        allowed: Allowed,
        earlier: Earlier<'d>,
    ) -> Result<Option<Draft>> {
        let Some((at, root)) = root else { return Ok(None) };
        if !matches!(classes.get(root), Some(Class { kind: ClassKind::Structure(_), .. })) {
            let (what, expected) = ("the field class of a scope", "a structure");
            return Err((at, TextProblem::Class { what, expected }));
        }
        let steps = vec![Step::Open(Box::default(), root)];
        let draft = Draft::default();
        let opened = Vec::new();
        let mut writer = Self { shared, classes, scope, allowed, earlier, draft, opened, steps };
        while let Some(step) = writer.steps.pop() {
            match step {
                Step::Open(name, class) => writer.open(name, class)?,
                Step::Close => writer.close()?,
            }
        }
        Ok(Some(writer.draft))
    }

    fn open(&mut self, name: Box<str>, id: ClassId) -> Result<()> {
        let Some(class) = self.classes.get(id) else { return Ok(()) };
        let limit = u64::try_from(self.shared.max_nodes).unwrap_or(u64::MAX);
        let left = self.shared.nodes_left.checked_sub(1);
        self.shared.nodes_left =
            left.ok_or((class.at, TextProblem::TooMany { what: "fields", limit }))?;
        let kind = self.kind(&name, class)?;
        let index = self.push(name, kind, class.align);
        if let Some(parent) = self.opened.last_mut() {
            parent.children.push(index);
        }
        let inner: Vec<(Box<str>, ClassId)> = match &class.kind {
            ClassKind::Structure(members) | ClassKind::Variant { options: members, .. } => {
                members.iter().map(|member| (member.name.clone(), member.class)).collect()
            }
            ClassKind::Array { element: class, .. } | ClassKind::Optional { class, .. } => {
                vec![(Box::default(), *class)]
            }
            _ => return Ok(()),
        };
        self.opened.push(Opened { node: index, children: Vec::with_capacity(inner.len()), class });
        self.steps.push(Step::Close);
        self.steps.extend(inner.into_iter().rev().map(|(name, class)| Step::Open(name, class)));
        Ok(())
    }

    fn push(&mut self, name: Box<str>, kind: Kind, align: u64) -> u32 {
        let index = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        let next = index.saturating_add(1);
        let place = None;
        self.draft.nodes.push(Node { name, prefix: 0, kind, align, next, min_bits: 0, place });
        index
    }

    fn kind(&mut self, name: &str, class: &Class) -> Result<Kind> {
        Ok(match &class.kind {
            ClassKind::Integer(integer) => {
                let kind = self.integer(name, class.at, integer)?;
                if integer.is_variable { Kind::VarInteger(kind) } else { Kind::Integer(kind) }
            }
            ClassKind::Float { bits, order, reversed } => {
                Kind::Float { bits: *bits, order: *order, reversed: *reversed }
            }
            ClassKind::Text(encoding) => Kind::Text(*encoding),
            ClassKind::TextArray(length, encoding) => {
                Kind::TextArray(self.length(length)?, *encoding)
            }
            ClassKind::Blob { length, media_type, is_uuid } => {
                let role = is_uuid.then_some(Role::TraceUuid);
                if *is_uuid && self.scope != Scope::PacketHeader {
                    return Err(misplaced(class.at));
                }
                if *is_uuid && !self.allowed.uuid {
                    return Err((class.at, TextProblem::Missing("the uuid of the preamble")));
                }
                let blob = Blob { media_type: media_type.clone(), role };
                Kind::Blob(self.length(length)?, Box::new(blob))
            }
            ClassKind::Structure(_) => Kind::Structure,
            ClassKind::Array { length, .. } => Kind::Array(self.length(length)?),
            ClassKind::Optional { selector, ranges, .. } => {
                Kind::Optional(Box::new(self.optional(selector, ranges.as_ref())?))
            }
            ClassKind::Variant { selector, ranges, .. } => {
                Kind::Variant(Box::new(self.variant(selector, ranges)?))
            }
        })
    }

    fn integer(&self, name: &str, at: usize, class: &IntegerClass) -> Result<Integer> {
        let is_cpu = self.scope == Scope::PacketContext
            && self.opened.len() == 1
            && name == "cpu_id"
            && !class.signed
            && class.meaning == Meaning::Number;
        self.check_roles(at, class)?;
        let mut roles = class.roles.iter().copied();
        let role = roles.next().or(is_cpu.then_some(Role::CpuId));
        Ok(Integer {
            bits: class.bits,
            signed: class.signed,
            order: class.order,
            reversed: class.reversed,
            base: class.base,
            meaning: class.meaning,
            role,
            more_roles: roles.collect(),
            save: None,
            shared_saves: Box::default(),
            mappings: class.mappings.as_ref().map(Arc::clone),
        })
    }

    fn check_roles(&self, at: usize, class: &IntegerClass) -> Result<()> {
        for role in &class.roles {
            let fits = match role {
                Role::Magic | Role::StreamClassId | Role::StreamInstanceId => {
                    self.scope == Scope::PacketHeader
                }
                Role::ClockTimestamp => {
                    matches!(self.scope, Scope::PacketContext | Scope::EventHeader)
                }
                Role::EventClassId => self.scope == Scope::EventHeader,
                _ => self.scope == Scope::PacketContext,
            };
            if !fits {
                return Err(misplaced(at));
            }
            if matches!(role, Role::ClockTimestamp | Role::PacketEnd) && !self.allowed.clock {
                return Err((at, TextProblem::Missing("the default clock class of the stream")));
            }
            if *role == Role::Magic {
                let is_first = self.draft.nodes.len() == 1;
                if !is_first || class.is_variable || class.bits != 32 {
                    let what = "the packet's magic number";
                    let expected = "the first member of the packet header, 32 bits wide";
                    return Err((at, TextProblem::Class { what, expected }));
                }
            }
        }
        Ok(())
    }

    fn length(&mut self, length: &LengthOf) -> Result<Length> {
        match length {
            LengthOf::Fixed(length) => Ok(Length::Fixed(*length)),
            LengthOf::Field(location) => {
                let (register, target) = self.resolve(location)?;
                if target == Target::Unsigned {
                    Ok(Length::Register(register))
                } else {
                    Err(refuse(location, "leads to something other than an unsigned integer"))
                }
            }
        }
    }

    fn optional(&mut self, location: &Location, ranges: Option<&Ranges>) -> Result<Selector> {
        let (register, target) = self.resolve(location)?;
        let ranges: Vec<_> = match (ranges, target) {
            // A boolean chooses by its truth; ranges say nothing about it.
            (_, Target::Boolean) => vec![(1, i128::from(u64::MAX), 0)],
            (Some(ranges), _) => ranges.iter().map(|(first, last)| (*first, *last, 0)).collect(),
            (None, _) => {
                let missing = "the selector ranges of an optional field whose selector is a number";
                return Err((location.at, TextProblem::Missing(missing)));
            }
        };
        check_signs(location, target, &ranges)?;
        Ok(Selector {
            register,
            signed: target == Target::Signed,
            ranges,
            options: Vec::new(),
            clears: Vec::new(),
        })
    }

    fn variant(&mut self, location: &Location, options: &[Ranges]) -> Result<Selector> {
        let (register, target) = self.resolve(location)?;
        if target == Target::Boolean {
            return Err(refuse(location, "leads to a boolean, which cannot select an option"));
        }
        let mut ranges: Vec<_> = (0_u32..)
            .zip(options)
            .flat_map(|(option, list)| list.iter().map(move |(f, l)| (*f, *l, option)))
            .collect();
        ranges.sort_unstable();
        let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
        if let Some(((_, last, _), (first, ..))) =
            pairs.find(|((_, last, _), (first, ..))| first <= last)
        {
            let found = format!("[{first}, {last}] for two options");
            return Err((location.at, TextProblem::Value { attribute: "a range", found }));
        }
        check_signs(location, target, &ranges)?;
        Ok(Selector {
            register,
            signed: target == Target::Signed,
            ranges,
            options: Vec::new(),
            clears: Vec::new(),
        })
    }

    fn close(&mut self) -> Result<()> {
        let Some(Opened { node, children, class }) = self.opened.pop() else { return Ok(()) };
        let next = u32::try_from(self.draft.nodes.len()).unwrap_or(u32::MAX);
        let align_of = |child: &u32| find_node(&self.draft.nodes, *child).map_or(1, |n| n.align);
        let widest = match class.kind {
            ClassKind::Structure(_) | ClassKind::Array { .. } => {
                children.iter().map(align_of).max().unwrap_or(1)
            }
            _ => 1,
        };
        let node = usize::try_from(node).ok().and_then(|index| self.draft.nodes.get_mut(index));
        let Some(node) = node else { return Ok(()) };
        (node.next, node.align) = (next, class.align.max(widest));
        if let Kind::Variant(selector) | Kind::Optional(selector) = &mut node.kind {
            selector.options = children;
        }
        Ok(())
    }

    // Locations.

    /// The register that keeps what a location leads to, and what that is.
    fn resolve(&mut self, location: &Location) -> Result<(Register, Target)> {
        let earlier =
            match location.origin {
                Some(origin) if origin != self.scope => {
                    let known = self.earlier.iter().position(|(scope, _)| *scope == origin);
                    Some(known.ok_or_else(|| {
                        refuse(location, "leads to a scope that is not there before")
                    })?)
                }
                _ => None,
            };
        let (found, passed) = {
            let (nodes, opened): (&[Node], &[Opened<'c>]) =
                match earlier.and_then(|index| self.earlier.get(index)) {
                    Some((_, draft)) => (&draft.nodes, &[]),
                    None => (&self.draft.nodes, &self.opened),
                };
            let steps_left = self.shared.steps_left;
            let mut search = Search { nodes, opened, location, steps_left, optionals: Vec::new() };
            let found = search.targets();
            self.shared.steps_left = search.steps_left;
            (found?, search.optionals)
        };
        let scope = earlier
            .and_then(|index| self.earlier.get(index))
            .map_or(self.scope, |(scope, _)| *scope);
        let is_local = matches!(scope, Scope::EventSpecificContext | Scope::Payload);
        let draft = match earlier.and_then(|index| self.earlier.get_mut(index)) {
            Some((_, draft)) => {
                draft.referenced = true;
                &mut **draft
            }
            None => &mut self.draft,
        };
        let (mut register, mut target) = (None, None);
        for index in found {
            let node = usize::try_from(index).ok().and_then(|index| draft.nodes.get_mut(index));
            let Some(Node { kind: Kind::Integer(int) | Kind::VarInteger(int), .. }) = node else {
                return Err(refuse(
                    location,
                    "leads to something other than an integer or boolean",
                ));
            };
            let this = Target::of(int)
                .ok_or_else(|| refuse(location, "leads to a bit array, which has no value"))?;
            if *target.get_or_insert(this) != this {
                return Err(refuse(location, "leads to fields of different kinds"));
            }
            let before = match (register, int.save) {
                (Some(register), Some(save)) => {
                    self.shared.unite(register, save);
                    register
                }
                (Some(register), None) | (None, Some(register)) => register,
                (None, None) => self.shared.new_register(is_local),
            };
            register = Some(before);
            int.save.get_or_insert(before);
        }
        for index in passed {
            let node = usize::try_from(index).ok().and_then(|index| draft.nodes.get_mut(index));
            if let (Some(Node { kind: Kind::Optional(selector), .. }), Some(register)) =
                (node, register)
                && !selector.clears.contains(&register)
            {
                selector.clears.push(register);
            }
        }
        register.zip(target).ok_or_else(|| refuse(location, "leads to no earlier field"))
    }
}

/// What a length or selector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Boolean,
    Unsigned,
    Signed,
}

impl Target {
    const fn of(int: &Integer) -> Option<Self> {
        match (int.meaning, int.signed) {
            (Meaning::Boolean, _) => Some(Self::Boolean),
            (Meaning::Number, false) => Some(Self::Unsigned),
            (Meaning::Number, true) => Some(Self::Signed),
            (Meaning::Bits, _) => None,
        }
    }
}

/// Refuses ranges that the selector cannot have values in.
fn check_signs(location: &Location, target: Target, ranges: &[(i128, i128, u32)]) -> Result<()> {
    let (least, most) = match target {
        Target::Signed => (i128::from(i64::MIN), i128::from(i64::MAX)),
        _ => (0, i128::from(u64::MAX)),
    };
    match ranges.iter().find(|(first, last, _)| *first < least || *last > most) {
        None => Ok(()),
        Some((first, last, _)) => {
            let found = format!("[{first}, {last}] for this selector");
            Err((location.at, TextProblem::Value { attribute: "a range", found }))
        }
    }
}

/// Follows one location.
struct Search<'a, 'c> {
    nodes: &'a [Node],
    /// Compounds around the field that asks, outermost first; none when the location leads to another scope.
    opened: &'a [Opened<'c>],
    location: &'a Location,
    steps_left: u64,
    /// Optional fields that the location passes through: they may be absent.
    optionals: Vec<u32>,
}

impl<'a> Search<'a, '_> {
    /// The nodes at the location.
    fn targets(&mut self) -> Result<Vec<u32>> {
        // Structures that each part of the path so far leads to; going up takes the last away.
        let mut before: Vec<Vec<u32>> = Vec::new();
        let mut around = self.opened.iter().rev().map(|opened| opened.node);
        let mut current = match self.location.origin {
            Some(_) => {
                around.by_ref().for_each(drop);
                vec![0]
            }
            None => self.next_structure(&mut around)?,
        };
        let last = self.location.path.len().saturating_sub(1);
        for (position, name) in self.location.path.iter().enumerate() {
            current = match name {
                None => match before.pop() {
                    Some(before) => before,
                    None => self.next_structure(&mut around)?,
                },
                Some(name) => {
                    let inner = self.members(&current, name, position == last)?;
                    before.push(current);
                    inner
                }
            };
        }
        Ok(current)
    }

    fn next_structure(&self, around: &mut impl Iterator<Item = u32>) -> Result<Vec<u32>> {
        let is_structure = |node: &u32| {
            matches!(find_node(self.nodes, *node), Some(Node { kind: Kind::Structure, .. }))
        };
        let found = around.find(is_structure);
        found
            .map(|node| vec![node])
            .ok_or_else(|| refuse(self.location, "goes up further than its scope"))
    }

    /// What the members `name` of all these structures are or, with `whole` unset, the structures in them.
    fn members(&mut self, structures: &[u32], name: &str, whole: bool) -> Result<Vec<u32>> {
        let mut found = Vec::new();
        for structure in structures {
            let member = self.member(*structure, name)?;
            self.reach(member, whole, &mut found)?;
        }
        Ok(found)
    }

    fn member(&mut self, structure: u32, name: &str) -> Result<u32> {
        let children = self.open_children(structure);
        // The nearest one first: lengths are mostly right before what they are of.
        let mut closer = children.iter().flat_map(|list| list.iter().rev().copied());
        let end = self.end_of(structure);
        let mut at = structure + 1;
        loop {
            let child = if children.is_some() { closer.next() } else { (at < end).then_some(at) };
            let child = child.ok_or_else(|| refuse(self.location, "leads to no earlier field"))?;
            let Some(node) = find_node(self.nodes, child) else {
                return Err(refuse(self.location, "leads to no earlier field"));
            };
            at = node.next;
            self.step()?;
            if &*node.name == name {
                return Ok(child);
            }
        }
    }

    /// Counts one more field that is looked at.
    fn step(&mut self) -> Result<()> {
        let what = "fields to look at for lengths and selectors";
        let too_many = (self.location.at, TextProblem::TooMany { what, limit: MAX_STEPS });
        self.steps_left = self.steps_left.checked_sub(1).ok_or(too_many)?;
        Ok(())
    }

    /// The children so far of a compound around the field that asks.
    fn open_children(&self, node: u32) -> Option<&'a [u32]> {
        let position = self.opened.binary_search_by_key(&node, |opened| opened.node).ok()?;
        self.opened.get(position).map(|opened| &*opened.children)
    }

    fn end_of(&self, node: u32) -> u32 {
        find_node(self.nodes, node).map_or(0, |node| node.next)
    }

    /// Goes through variants, optional fields and the current elements of arrays.
    fn reach(&mut self, node: u32, whole: bool, found: &mut Vec<u32>) -> Result<()> {
        let mut queue = vec![node];
        while let Some(index) = queue.pop() {
            self.step()?;
            let Some(node) = find_node(self.nodes, index) else { continue };
            match (&node.kind, self.open_children(index)) {
                // Of what is around the field that asks only the part that holds it.
                (Kind::Variant(_) | Kind::Optional(_) | Kind::Array(_), Some(children)) => {
                    queue.extend(children.last());
                }
                (Kind::Variant(selector), None) => {
                    queue.extend(selector.options.iter().rev().copied());
                }
                (Kind::Optional(_), None) => {
                    self.optionals.push(index);
                    queue.push(index + 1);
                }
                (Kind::Array(_), None) => {
                    return Err(refuse(self.location, "leads into an array"));
                }
                (Kind::Structure, _) if whole => {
                    return Err(refuse(self.location, "leads to a structure"));
                }
                (Kind::Structure, _) => found.push(index),
                _ if whole => found.push(index),
                _ => return Err(refuse(self.location, "leads into a field without members")),
            }
        }
        Ok(())
    }
}

fn find_node(nodes: &[Node], index: u32) -> Option<&Node> {
    nodes.get(usize::try_from(index).ok()?)
}

fn misplaced(at: usize) -> Problem {
    let (what, expected) = ("a field class with this role", "in another scope");
    (at, TextProblem::Class { what, expected })
}

fn refuse(location: &Location, problem: &'static str) -> Problem {
    let names: Vec<_> = location.path.iter().map(|name| name.as_deref().unwrap_or("^")).collect();
    let origin = location.origin.map_or(String::new(), |scope| format!("{}: ", scope.name()));
    let path = format!("{origin}{}", shorten(&names.join(".")));
    (location.at, TextProblem::Reference { path, problem })
}
