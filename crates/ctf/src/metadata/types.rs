//! Field classes as the text declares them, before their names are resolved to places.
//!
//! They live in one table and refer to each other by position, so that an alias used many times costs one entry and
//! neither reading nor dropping deeply nested ones needs call depth.

use std::collections::HashMap;
use std::sync::Arc;

use crate::class::{Base, ByteOrder};
use crate::value::Mappings;

/// Deeper field classes are refused.
pub(crate) const MAX_DEPTH: u32 = 4096;

/// Position in [`Types`].
pub(crate) type TypeId = u32;

/// A dotted reference and where it stands in the text.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) at: usize,
    pub(crate) names: Vec<Box<str>>,
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
    Structure { members: Arc<[Member]>, align: u64 },
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

/// The names of one block. Structures, variants and enumerations have name spaces of their own.
#[derive(Debug, Default)]
pub(crate) struct Names {
    all: HashMap<(NameSpace, Box<str>), TypeId>,
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
    /// Declares a name; `false` when this block has it already.
    pub(crate) fn declare(&mut self, space: NameSpace, name: &str, id: TypeId) -> bool {
        self.all.insert((space, name.into()), id).is_none()
    }

    pub(crate) fn get(&self, space: NameSpace, name: &str) -> Option<TypeId> {
        self.all.get(&(space, Box::from(name))).copied()
    }
}
