//! The field classes of one scope as a list, checked, with references resolved.

use std::collections::{HashMap, HashSet};

use super::class::{Field, FieldClass, IntClass, Key, Length, Mapping, Structure, VariantClass};
use super::error::{ClassError, ClassProblem};
use crate::class::CtfVersion;
use crate::metadata::KEYWORDS;
use crate::value::{Encoding, Scope};

/// The most fields inside of each other that a writer takes.
pub const MAX_DEPTH: usize = 256;

/// Where a field is: its scope and its position in that scope's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) scope: Scope,
    pub(super) node: usize,
}

/// Which fields of a compound have names: in CTF 2 options of variants need none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Each,
    Some,
}

/// A field class with its place among the others.
#[derive(Debug)]
pub(super) struct Node<'c> {
    pub(super) name: &'c str,
    pub(super) kind: Kind<'c>,
    /// What contains it; the root contains itself.
    pub(super) parent: usize,
    /// After all it contains.
    pub(super) end: usize,
    /// In bits, a power of two.
    pub(super) align: u64,
    /// Where its value is kept for those that refer to it.
    pub(super) register: Option<usize>,
    /// What its length or selector refers to.
    pub(super) target: Option<Target>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'c> {
    /// The scope itself, or a structure in it.
    Structure(&'c Structure),
    /// Anything else.
    Other(&'c FieldClass),
}

/// One scope: its root structure is the first node, and what a node contains follows it.
#[derive(Debug)]
pub(super) struct Tree<'c> {
    pub(super) scope: Scope,
    pub(super) nodes: Vec<Node<'c>>,
    keys: HashMap<Key, usize>,
    /// The class that the scope belongs to, for errors.
    owner: String,
    version: CtfVersion,
}

impl<'c> Tree<'c> {
    /// Checks all classes of a scope but their references.
    pub(super) fn new(
        version: CtfVersion,
        owner: &str,
        scope: Scope,
        root: &'c Structure,
    ) -> Result<Self, ClassError> {
        let (nodes, keys, owner) = (Vec::new(), HashMap::new(), owner.to_owned());
        let mut tree = Self { scope, nodes, keys, owner, version };
        tree.add("", Kind::Structure(root), 0, None, 0)?;
        Ok(tree)
    }

    fn add(
        &mut self,
        name: &'c str,
        kind: Kind<'c>,
        parent: usize,
        key: Option<Key>,
        depth: usize,
    ) -> Result<u64, ClassError> {
        let index = self.nodes.len();
        let target = None;
        self.nodes.push(Node { name, kind, parent, end: index, align: 1, register: None, target });
        if depth > MAX_DEPTH {
            return Err(self.error(index, ClassProblem::Depth { limit: MAX_DEPTH }));
        }
        if let Some(key) = key
            && self.keys.insert(key, index).is_some()
        {
            let value = key.0.to_string();
            return Err(self.error(index, ClassProblem::Duplicate { what: "the key", value }));
        }
        let own_align = self.check(kind).map_err(|problem| self.error(index, problem))?;
        let inner_align = self.add_children(index, kind, depth)?;
        let end = self.nodes.len();
        let align = match kind {
            Kind::Other(FieldClass::Variant(_) | FieldClass::Optional(_)) => 1,
            _ => own_align.max(inner_align),
        };
        if let Some(node) = self.nodes.get_mut(index) {
            (node.end, node.align) = (end, align);
        }
        Ok(align)
    }

    /// The greatest alignment of what a field contains.
    fn add_children(
        &mut self,
        index: usize,
        kind: Kind<'c>,
        depth: usize,
    ) -> Result<u64, ClassError> {
        let inner = |class: &'c FieldClass| match class {
            FieldClass::Structure(structure) => Kind::Structure(structure),
            other => Kind::Other(other),
        };
        let mut align = 1;
        match kind {
            Kind::Structure(structure) => {
                self.check_names(index, structure.members.iter(), Named::Each)?;
                for Field { name, class, key } in &structure.members {
                    align = self.add(name, inner(class), index, *key, depth + 1)?.max(align);
                }
            }
            Kind::Other(FieldClass::Array(array)) => {
                align = self.add("", inner(&array.element), index, None, depth + 1)?;
            }
            Kind::Other(FieldClass::Optional(optional)) => {
                self.add("", inner(&optional.class), index, None, depth + 1)?;
            }
            Kind::Other(FieldClass::Variant(variant)) => {
                let options = variant.options.iter().map(|(option, _)| option);
                self.check_names(index, options, Named::Some)?;
                for (Field { name, class, key }, _) in &variant.options {
                    self.add(name, inner(class), index, *key, depth + 1)?;
                }
            }
            Kind::Other(_) => {}
        }
        Ok(align)
    }

    fn check_names(
        &self,
        index: usize,
        fields: impl Iterator<Item = &'c Field>,
        named: Named,
    ) -> Result<(), ClassError> {
        let mut seen = HashSet::new();
        for Field { name, .. } in fields {
            // Options are spelled as the labels that choose them.
            let can_be_spelled = match (self.version, named) {
                (CtfVersion::V1_8, Named::Each) => is_tsdl_member(name),
                (CtfVersion::V1_8, Named::Some) => is_word(name),
                (CtfVersion::V2, _) => true,
            };
            let problem = if !can_be_spelled {
                ClassProblem::Name { name: name.clone() }
            } else if named == Named::Some && name.is_empty() {
                continue;
            } else if !seen.insert(name) {
                ClassProblem::Duplicate { what: "the name", value: name.clone() }
            } else {
                continue;
            };
            return Err(self.error(index, problem));
        }
        Ok(())
    }

    /// Refuses members of the scope itself that have one of these names.
    pub(super) fn refuse_names(&self, names: &[&str]) -> Result<(), ClassError> {
        let of_root = |(index, node): &(usize, &Node<'_>)| *index > 0 && node.parent == 0;
        let mut members = self.nodes.iter().enumerate().filter(of_root);
        match members.find(|(_, node)| names.contains(&node.name)) {
            None => Ok(()),
            Some((index, node)) => {
                let value = node.name.to_owned();
                Err(self.error(index, ClassProblem::Duplicate { what: "the name", value }))
            }
        }
    }

    /// Checks a field without what it contains; gives its own alignment.
    fn check(&self, kind: Kind<'c>) -> Result<u64, ClassProblem> {
        let class = match kind {
            Kind::Structure(structure) => return power_of_two(structure.align),
            Kind::Other(class) => class,
        };
        let only_2 = |what| match self.version {
            CtfVersion::V1_8 => Err(ClassProblem::NotInVersion { version: CtfVersion::V1_8, what }),
            CtfVersion::V2 => Ok(()),
        };
        let text = |encoding: &Encoding| match encoding {
            Encoding::Utf8 => Ok(8),
            _ => only_2("text in UTF-16 or UTF-32").map(|()| 8),
        };
        match class {
            FieldClass::Int(int) => self.check_int(int),
            FieldClass::Enum(int, mappings) => {
                if self.version == CtfVersion::V1_8 && mappings.is_empty() {
                    return Err(ClassProblem::Ranges("an enumeration without names"));
                }
                check_mappings(mappings)?;
                let align = self.check_int(int)?;
                let (least, most) = bounds(int);
                let is_beyond = |mapping: &Mapping| mapping.first < least || mapping.last > most;
                if self.version == CtfVersion::V1_8 && mappings.iter().any(is_beyond) {
                    return Err(ClassProblem::Ranges("a name of values that do not fit"));
                }
                Ok(align)
            }
            FieldClass::VarInt(_, mappings) => {
                only_2("integers of variable length")?;
                check_mappings(mappings).map(|()| 8)
            }
            FieldClass::Bool(int) => only_2("truth values").and_then(|()| self.check_int(int)),
            FieldClass::Bits(int, flags) => {
                only_2("bit maps")?;
                check_mappings(flags)?;
                self.check_int(int)
            }
            FieldClass::Float(float) => {
                if !matches!(float.bits, 32 | 64) {
                    return Err(ClassProblem::Width { bits: float.bits });
                }
                self.check_reversed(float.reversed)?;
                power_of_two(float.align)
            }
            FieldClass::String(encoding) | FieldClass::Text(_, encoding) => text(encoding),
            FieldClass::Blob(..) => only_2("BLOBs").map(|()| 8),
            FieldClass::Structure(structure) => power_of_two(structure.align),
            FieldClass::Array(array) => {
                if array.align > 1 {
                    only_2("alignment of arrays")?;
                }
                power_of_two(array.align)
            }
            FieldClass::Variant(variant) => check_options(variant, self.version).map(|()| 1),
            FieldClass::Optional(_) => only_2("optional fields").map(|()| 1),
        }
    }

    fn check_int(&self, int: &IntClass) -> Result<u64, ClassProblem> {
        if !(1..=64).contains(&int.bits) {
            return Err(ClassProblem::Width { bits: int.bits });
        }
        self.check_reversed(int.reversed)?;
        power_of_two(int.align)
    }

    fn check_reversed(&self, reversed: bool) -> Result<(), ClassProblem> {
        let (version, what) = (self.version, "bit order apart from byte order");
        if reversed && version == CtfVersion::V1_8 {
            return Err(ClassProblem::NotInVersion { version, what });
        }
        Ok(())
    }

    fn error(&self, node: usize, problem: ClassProblem) -> ClassError {
        ClassError { place: format!("{}: {}", self.owner, shortened(&self.path(node))), problem }
    }

    /// The scope and the names from its root to a field, with dots between.
    pub(super) fn path(&self, node: usize) -> String {
        let mut names = Vec::new();
        let mut at = node;
        while let Some(field) = self.nodes.get(at).filter(|_| at != 0) {
            names.push(if field.name.is_empty() { "[]" } else { field.name });
            at = field.parent;
        }
        names.push(self.scope.name());
        names.reverse();
        names.join(".")
    }

    /// The containers of a field, innermost first, without the root.
    pub(super) fn containers(&self, node: usize) -> impl Iterator<Item = usize> {
        let parent = |node: usize| {
            let parent = self.nodes.get(node)?.parent;
            (parent != 0 || node != 0).then_some(parent)
        };
        std::iter::successors(parent(node), move |at| parent(*at)).filter(|at| *at != 0)
    }

    /// The key a field refers to, if it refers to one.
    fn reference(&self, node: usize) -> Option<Key> {
        let Kind::Other(class) = self.nodes.get(node)?.kind else { return None };
        let of = |length: &Length| match length {
            Length::Of(key) => Some(*key),
            Length::Fixed(_) => None,
        };
        match class {
            FieldClass::Text(length, _) | FieldClass::Blob(length, _) => of(length),
            FieldClass::Array(array) => of(&array.length),
            FieldClass::Variant(variant) => Some(variant.selector),
            FieldClass::Optional(optional) => Some(optional.selector),
            _ => None,
        }
    }

    /// Whether a field that is in `self` may refer to `to` in the same tree.
    fn can_reach(&self, from: usize, to: usize) -> Result<(), &'static str> {
        if to >= from {
            return Err("comes later");
        }
        let around: HashSet<usize> = self.containers(from).collect();
        let is_apart = |at: usize| {
            let kind = self.nodes.get(at).map(|node| node.kind);
            !around.contains(&at) && !matches!(kind, Some(Kind::Structure(_)))
        };
        if self.containers(to).any(is_apart) {
            return Err("lies inside of an array, a variant or an optional field");
        }
        // Two options of one variant are never both there.
        let branch = |node: usize, variant: usize| {
            std::iter::once(node)
                .chain(self.containers(node))
                .find(|at| self.nodes.get(*at).is_some_and(|node| node.parent == variant))
        };
        let variants = around.iter().filter(|at| {
            let kind = self.nodes.get(**at).map(|node| node.kind);
            matches!(kind, Some(Kind::Other(FieldClass::Variant(_))))
        });
        for variant in variants {
            let within = self.containers(to).any(|at| at == *variant);
            if within && branch(from, *variant) != branch(to, *variant) {
                return Err("lies in another option");
            }
        }
        Ok(())
    }

    fn check_target(&self, from: usize, target: &Node<'c>) -> Result<(), ClassProblem> {
        let refused = |why| Err(ClassProblem::Reference { why });
        let kind = match target.kind {
            Kind::Other(class) => class,
            Kind::Structure(_) => return refused("is a structure"),
        };
        let (signed, mappings) = match kind {
            FieldClass::Int(int) => (int.signed, None),
            FieldClass::Enum(int, mappings) => (int.signed, Some(mappings)),
            FieldClass::VarInt(int, mappings) => (int.signed, Some(mappings)),
            FieldClass::Bool(_) => return self.check_bool_target(from),
            _ => return refused("is no integer"),
        };
        match self.nodes.get(from).map(|node| node.kind) {
            Some(Kind::Other(FieldClass::Variant(variant))) => match (self.version, mappings) {
                (CtfVersion::V1_8, Some(mappings)) => labels_choose(variant, mappings),
                (CtfVersion::V1_8, None) => refused("is no enumeration"),
                (CtfVersion::V2, _) => Ok(()),
            },
            Some(Kind::Other(FieldClass::Optional(optional))) if optional.ranges.is_empty() => {
                refused("is no truth value, and no values are given")
            }
            Some(Kind::Other(FieldClass::Optional(_))) => Ok(()),
            _ if signed => refused("is signed"),
            _ => Ok(()),
        }
    }

    fn check_bool_target(&self, from: usize) -> Result<(), ClassProblem> {
        match self.nodes.get(from).map(|node| node.kind) {
            Some(Kind::Other(FieldClass::Optional(optional))) if optional.ranges.is_empty() => {
                Ok(())
            }
            _ => Err(ClassProblem::Reference { why: "is a truth value" }),
        }
    }
}

/// Resolves the references of a scope to fields in it or in the scopes `before` it. Fields that are referred to get a
/// register.
pub(super) fn resolve<'c>(
    tree: &mut Tree<'c>,
    before: &mut [&mut Tree<'c>],
    next_register: &mut usize,
) -> Result<(), ClassError> {
    for from in 0..tree.nodes.len() {
        let Some(key) = tree.reference(from) else { continue };
        let found = match tree.keys.get(&key) {
            Some(&to) => resolve_inside(tree, from, to, next_register),
            None => resolve_before(tree, before, from, key, next_register),
        };
        let target = found.map_err(|problem| tree.error(from, problem))?;
        if let Some(node) = tree.nodes.get_mut(from) {
            node.target = Some(target);
        }
    }
    Ok(())
}

fn resolve_inside(
    tree: &mut Tree<'_>,
    from: usize,
    to: usize,
    next_register: &mut usize,
) -> Result<Target, ClassProblem> {
    tree.can_reach(from, to).map_err(|why| ClassProblem::Reference { why })?;
    if let Some(node) = tree.nodes.get(to) {
        tree.check_target(from, node)?;
    }
    if let Some(node) = tree.nodes.get_mut(to) {
        take_register(node, next_register);
    }
    Ok(Target { scope: tree.scope, node: to })
}

fn resolve_before<'c>(
    tree: &Tree<'c>,
    before: &mut [&mut Tree<'c>],
    from: usize,
    key: Key,
    next_register: &mut usize,
) -> Result<Target, ClassProblem> {
    let refused = |why| Err(ClassProblem::Reference { why });
    for earlier in before.iter_mut().rev() {
        let Some(&to) = earlier.keys.get(&key) else { continue };
        let is_compound = |at: usize| {
            !matches!(earlier.nodes.get(at).map(|node| node.kind), Some(Kind::Structure(_)))
        };
        if earlier.containers(to).any(is_compound) {
            return refused("lies inside of an array, a variant or an optional field");
        }
        let scope = earlier.scope;
        let Some(node) = earlier.nodes.get_mut(to) else { continue };
        tree.check_target(from, node)?;
        take_register(node, next_register);
        return Ok(Target { scope, node: to });
    }
    refused("does not exist")
}

fn take_register(node: &mut Node<'_>, next: &mut usize) {
    if node.register.is_none() {
        node.register = Some(*next);
        *next += 1;
    }
}

/// A path of many names, for messages: its beginning.
fn shortened(path: &str) -> String {
    const KEPT: usize = 256;
    match path.char_indices().nth(KEPT) {
        Some((end, _)) => format!("{}…", path.get(..end).unwrap_or(path)),
        None => path.to_owned(),
    }
}

/// Whether TSDL can spell a name behind the underscore that members have in front.
#[must_use]
pub fn is_tsdl_member(name: &str) -> bool {
    !name.is_empty() && is_tsdl_name(&format!("_{name}"))
}

fn is_word(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn power_of_two(align: u64) -> Result<u64, ClassProblem> {
    if align.is_power_of_two() { Ok(align) } else { Err(ClassProblem::Align { align }) }
}

/// The least and the greatest value of a valid integer class.
fn bounds(int: &IntClass) -> (i128, i128) {
    let values = 1_i128 << int.bits.min(64);
    if int.signed { (-values / 2, values / 2 - 1) } else { (0, values - 1) }
}

fn check_mappings(mappings: &[Mapping]) -> Result<(), ClassProblem> {
    let is_upside_down = |mapping: &Mapping| mapping.first > mapping.last;
    if mappings.iter().any(is_upside_down) {
        return Err(ClassProblem::Ranges("a range ends before it begins"));
    }
    Ok(())
}

fn check_options(variant: &VariantClass, version: CtfVersion) -> Result<(), ClassProblem> {
    let mut all: Vec<(i128, i128)> =
        variant.options.iter().flat_map(|(_, ranges)| ranges.iter().copied()).collect();
    all.sort_unstable();
    if variant.options.is_empty() {
        return Err(ClassProblem::Ranges("a variant without options"));
    }
    if version == CtfVersion::V2 && variant.options.iter().any(|(_, ranges)| ranges.is_empty()) {
        return Err(ClassProblem::Ranges("an option that no value chooses"));
    }
    if all.iter().any(|(first, last)| first > last) {
        return Err(ClassProblem::Ranges("a range ends before it begins"));
    }
    if all.windows(2).any(|pair| matches!(pair, [(_, last), (first, _)] if first <= last)) {
        return Err(ClassProblem::Ranges("a value chooses two options"));
    }
    Ok(())
}

/// Labels match names with and without the underscore in front.
pub(super) fn is_label_of(label: &str, name: &str) -> bool {
    label == name || label.strip_prefix('_') == Some(name)
}

/// Whether TSDL can spell a name as it is, without an underscore in front: letters, digits and underscores that begin
/// with no digit and are no keyword.
#[must_use]
pub fn is_tsdl_name(name: &str) -> bool {
    let begins_with_digit = name.starts_with(|first: char| first.is_ascii_digit());
    let is_keyword = KEYWORDS.contains(&name) || name == "volatile";
    is_word(name) && !begins_with_digit && !is_keyword
}

/// In CTF 1.8 the names that the enumeration gives to values choose the options: these must be the declared ranges.
fn labels_choose(variant: &VariantClass, mappings: &[Mapping]) -> Result<(), ClassProblem> {
    for (option, ranges) in &variant.options {
        let mut named: Vec<(i128, i128)> = mappings
            .iter()
            .filter(|mapping| is_label_of(&mapping.label, &option.name))
            .map(|mapping| (mapping.first, mapping.last))
            .collect();
        let mut ranges = ranges.clone();
        named.sort_unstable();
        ranges.sort_unstable();
        let mut labels = mappings.iter().map(|mapping| mapping.label.as_str());
        let label = labels.find(|label| is_label_of(label, &option.name)).unwrap_or_default();
        if !is_tsdl_name(label) {
            return Err(ClassProblem::Name { name: label.to_owned() });
        }
        if named != ranges {
            return Err(ClassProblem::Ranges(
                "an option is chosen by other values than its name stands for",
            ));
        }
    }
    Ok(())
}
