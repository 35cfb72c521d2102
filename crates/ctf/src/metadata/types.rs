//! Field classes as the text declares them, before their names are resolved to places.
//!
//! They live in one table and refer to each other by position, so that an alias used many times costs one entry and
//! neither reading nor dropping deeply nested ones needs call depth.

use std::collections::HashMap;
use std::sync::Arc;

use crate::class::{Base, ByteOrder};
use crate::value::Mappings;
use crate::work;

/// Deeper field classes are refused.
pub(crate) const MAX_DEPTH: u32 = 4096;

/// Position in [`Types`].
pub(crate) type TypeId = u32;

/// Tells one structure or variant of the text from another.
pub(crate) type BodyId = u32;

/// A dotted reference and where it stands in the text.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) at: usize,
    pub(crate) names: Vec<Box<str>>,
    /// The structure around the reference that holds the first name, when there is one where the reference stands:
    /// it then holds wherever the type is used (CTF 1.8.3, section 7.3.2).
    pub(crate) body: Option<BodyId>,
}

#[derive(Debug, Clone)]
pub(crate) struct IntegerType {
    pub(crate) bits: u8,
    pub(crate) align: u64,
    pub(crate) signed: bool,
    /// `None`: the trace's.
    pub(crate) order: Option<ByteOrder>,
    pub(crate) base: Base,
    pub(crate) is_text: bool,
    /// The clock that the value is of.
    pub(crate) clock: Option<Path>,
}

#[derive(Debug, Clone)]
pub(crate) enum LengthType {
    Fixed(u64),
    Reference(Path),
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) ty: TypeId,
}

#[derive(Debug, Clone)]
pub(crate) enum Type {
    Integer(IntegerType),
    Enumeration { container: IntegerType, mappings: Arc<Mappings> },
    Float { bits: u8, order: Option<ByteOrder>, align: u64 },
    Text,
    Structure { members: Arc<[Member]>, align: u64, body: BodyId },
    Variant { selector: Option<Path>, options: Arc<[Member]> },
    Array { length: LengthType, element: TypeId },
}

#[derive(Debug, Default)]
pub(crate) struct Types {
    all: Vec<(Type, u32)>,
}

impl Types {
    /// Adds a field class; `None` when it is nested too deep.
    pub(crate) fn add(&mut self, ty: Type) -> Option<TypeId> {
        let depth_of = |id: &TypeId| {
            usize::try_from(*id).ok().and_then(|i| self.all.get(i)).map_or(0, |(_, d)| *d)
        };
        let inner = match &ty {
            Type::Structure { members, .. } => {
                members.iter().map(|m| depth_of(&m.ty)).max().unwrap_or(0)
            }
            Type::Variant { options, .. } => {
                options.iter().map(|m| depth_of(&m.ty)).max().unwrap_or(0)
            }
            Type::Array { element, .. } => depth_of(element),
            _ => 0,
        };
        let id = u32::try_from(self.all.len()).ok()?;
        self.all.push((ty, inner + 1));
        (inner < MAX_DEPTH).then_some(id)
    }

    pub(crate) fn get(&self, id: TypeId) -> Option<&Type> {
        self.all.get(usize::try_from(id).ok()?).map(|(ty, _)| ty)
    }
}

/// The names of types. Blocks and bodies nest; inner names hide outer ones. Structures, variants and enumerations
/// have name spaces of their own.
///
/// One table for all levels, so that finding a name costs the same at any depth.
#[derive(Debug, Default)]
pub(crate) struct Names {
    spaces: [HashMap<Box<str>, Vec<Declared>>; 4],
    /// What was declared, in order: forgotten when its level closes.
    declared: Vec<(NameSpace, Box<str>)>,
    /// How much was declared when each open level began.
    levels: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Declared {
    level: usize,
    id: TypeId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum NameSpace {
    Alias,
    Structure,
    Variant,
    Enumeration,
}

impl NameSpace {
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Alias => "type alias",
            Self::Structure => "structure",
            Self::Variant => "variant",
            Self::Enumeration => "enumeration",
        }
    }
}

impl Names {
    fn space(&self, space: NameSpace) -> &HashMap<Box<str>, Vec<Declared>> {
        let [alias, structure, variant, enumeration] = &self.spaces;
        match space {
            NameSpace::Alias => alias,
            NameSpace::Structure => structure,
            NameSpace::Variant => variant,
            NameSpace::Enumeration => enumeration,
        }
    }

    fn space_mut(&mut self, space: NameSpace) -> &mut HashMap<Box<str>, Vec<Declared>> {
        let [alias, structure, variant, enumeration] = &mut self.spaces;
        match space {
            NameSpace::Alias => alias,
            NameSpace::Structure => structure,
            NameSpace::Variant => variant,
            NameSpace::Enumeration => enumeration,
        }
    }

    /// Begins a level.
    pub(crate) fn open(&mut self) {
        self.levels.push(self.declared.len());
    }

    /// Ends the innermost level and forgets its names.
    pub(crate) fn close(&mut self) {
        let begin = self.levels.pop().unwrap_or(0);
        for (space, name) in self.declared.split_off(begin) {
            work::step();
            if let Some(all) = self.space_mut(space).get_mut(&name) {
                all.pop();
            }
        }
    }

    /// Declares a name; `false` when this level has it already.
    pub(crate) fn declare(&mut self, space: NameSpace, name: &str, id: TypeId) -> bool {
        let level = self.levels.len();
        let name = Box::from(name);
        let all = self.space_mut(space).entry(Box::clone(&name)).or_default();
        if all.last().is_some_and(|last| last.level == level) {
            return false;
        }
        all.push(Declared { level, id });
        self.declared.push((space, name));
        true
    }

    pub(crate) fn get(&self, space: NameSpace, name: &str) -> Option<TypeId> {
        self.space(space).get(name)?.last().map(|last| last.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_names_hide_outer_ones_until_their_level_ends() {
        let mut names = Names::default();
        assert!(names.declare(NameSpace::Alias, "a", 0));
        assert!(!names.declare(NameSpace::Alias, "a", 1));
        assert!(names.declare(NameSpace::Structure, "a", 2));
        names.open();
        assert!(names.declare(NameSpace::Alias, "a", 3));
        assert!(!names.declare(NameSpace::Alias, "a", 4));
        assert_eq!(names.get(NameSpace::Alias, "a"), Some(3));
        names.open();
        assert_eq!(names.get(NameSpace::Alias, "a"), Some(3));
        names.close();
        names.close();
        assert_eq!(names.get(NameSpace::Alias, "a"), Some(0));
        assert_eq!(names.get(NameSpace::Structure, "a"), Some(2));
        assert_eq!(names.get(NameSpace::Variant, "a"), None);
    }
}
