//! What values of a recording are made of: its metadata event, a tree of elements with attributes.
//!
//! ```text
//! metadata  long start, long duration, long id, int count, so many texts, the root element
//! element   int name, int count, so many (int key, int value), int count, so many elements; names, keys, values: numbers of texts
//! root/metadata/class  id, name, superType    class/field  name, class, constantPool, dimension
//! ```

use std::borrow::Cow;

use hashbrown::HashMap;
use wire::proto::{DecodeError, Wrong};

use super::cursor::{Cursor, Text};
use crate::error::Error;
use crate::limits::Allowance;

/// Elements that stand in each other; a recording's are five.
/// Texts of a chunk's metadata: those of a JDK have some thousands.
const MAX_TEXTS: usize = 1 << 16;

const MAX_DEPTH: usize = 16;

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Byte,
    Short,
    Int,
    Long,
    Float,
    Double,
    Text,
    /// Its fields, one behind the other.
    Fields,
}

#[derive(Debug)]
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The id of its class.
    pub(super) class: i64,
    /// Whether its value is the number of a constant.
    pub(super) is_constant: bool,
    pub(super) is_array: bool,
}

/// All classes, by their ids.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    pub(super) classes: HashMap<i64, Class>,
}

/// Names of classes and fields that are looked at; all others are "", so that a name takes no memory however often it stands there.
const KNOWN: [&str; 41] = [
    "allocationSize",
    "boolean",
    "byte",
    "char",
    "contextId",
    "double",
    "duration",
    "float",
    "frames",
    "int",
    "java.lang.Class",
    "java.lang.String",
    "jdk.ActiveSetting",
    "jdk.ExecutionSample",
    "jdk.JavaMonitorEnter",
    "jdk.ObjectAllocationInNewTLAB",
    "jdk.ObjectAllocationOutsideTLAB",
    "jdk.ObjectAllocationSample",
    "jdk.ThreadPark",
    "jdk.types.Method",
    "jdk.types.StackTrace",
    "jdk.types.Symbol",
    "jdk.types.ThreadState",
    "lineNumber",
    "long",
    "method",
    "name",
    "profiler.LiveObject",
    "profiler.Malloc",
    "profiler.WallClockSample",
    "samples",
    "short",
    "size",
    "spanId",
    "spanName",
    "stackTrace",
    "state",
    "tlabSize",
    "type",
    "value",
    "weight",
];

/// Reads an element and what is in it.
struct Elements<'t> {
    texts: &'t [Cow<'t, str>],
    classes: HashMap<i64, Class>,
}

impl Metadata {
    /// Of what stands behind size and type of the event.
    pub(super) fn decode(mut cursor: Cursor<'_>) -> Result<Self, DecodeError> {
        for _ in 0..3 {
            cursor.long()?;
        }
        let mut texts = Vec::new();
        for _ in 0..cursor.count()? {
            let begin = cursor.reader;
            if texts.len() >= MAX_TEXTS {
                return Err(begin.wrong(Wrong::Type { expected: "one of 65,536 texts at most" }));
            }
            match cursor.text()? {
                Text::Here(text) => texts.push(text),
                Text::Constant(_) => {
                    return Err(begin.wrong(Wrong::Type { expected: "a text of its own" }));
                }
            }
        }
        let texts = texts.as_slice();
        let mut elements = Elements { texts, classes: HashMap::new() };
        elements.read(&mut cursor, MAX_DEPTH, None)?;
        Ok(Self { classes: elements.classes })
    }

    /// Passes over a value.
    pub(super) fn skip(
        &self,
        cursor: &mut Cursor<'_>,
        class: i64,
        steps: &mut Allowance,
    ) -> Result<(), Error> {
        self.skip_value(cursor, class, steps, MAX_DEPTH)
    }

    fn skip_value(
        &self,
        cursor: &mut Cursor<'_>,
        class: i64,
        steps: &mut Allowance,
        depth: usize,
    ) -> Result<(), Error> {
        steps.take(1)?;
        let known = self.class(class)?;
        match known.kind {
            Kind::Byte => drop(cursor.byte()?),
            Kind::Short => drop(cursor.short()?),
            Kind::Int => drop(cursor.int()?),
            Kind::Long => drop(cursor.long()?),
            Kind::Float => drop(cursor.fixed::<4>()?),
            Kind::Double => drop(cursor.fixed::<8>()?),
            Kind::Text => cursor.skip_text()?,
            Kind::Fields => {
                let Some(depth) = depth.checked_sub(1) else {
                    return Err(Error::TooMany { what: "values in each other", limit: MAX_DEPTH });
                };
                for field in &known.fields {
                    self.skip_field_at(cursor, field, steps, depth)?;
                }
            }
        }
        Ok(())
    }

    /// Passes over the value of a field, or its values.
    pub(super) fn skip_field(
        &self,
        cursor: &mut Cursor<'_>,
        field: &Field,
        steps: &mut Allowance,
    ) -> Result<(), Error> {
        self.skip_field_at(cursor, field, steps, MAX_DEPTH)
    }

    fn skip_field_at(
        &self,
        cursor: &mut Cursor<'_>,
        field: &Field,
        steps: &mut Allowance,
        depth: usize,
    ) -> Result<(), Error> {
        let count = if field.is_array { cursor.count()? } else { 1 };
        for _ in 0..count {
            if field.is_constant {
                cursor.long()?;
            } else {
                self.skip_value(cursor, field.class, steps, depth)?;
            }
        }
        Ok(())
    }

    pub(super) fn class(&self, id: i64) -> Result<&Class, Error> {
        self.classes.get(&id).ok_or(Error::NoClass { id })
    }
}

impl<'t> Elements<'t> {
    fn text(&self, cursor: &mut Cursor<'_>) -> Result<&'t str, DecodeError> {
        let begin = cursor.reader;
        let at = usize::try_from(cursor.int()?).ok();
        let text = at.and_then(|at| self.texts.get(at));
        let text =
            text.ok_or_else(|| begin.wrong(Wrong::Type { expected: "the number of a text" }));
        text.map(|text| &**text)
    }

    fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        depth: usize,
        class: Option<i64>,
    ) -> Result<(), DecodeError> {
        let limit = MAX_DEPTH;
        let too_deep =
            || cursor.reader.wrong(Wrong::TooMany { what: "elements in each other", limit });
        let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
        let element = self.text(cursor)?;
        let (mut name, mut id, mut type_id, mut is_constant, mut is_array) =
            ("", None, None, false, false);
        for _ in 0..cursor.count()? {
            let key = self.text(cursor)?;
            let value = self.text(cursor)?;
            match key {
                "name" => name = known(value),
                "id" => id = number(value),
                "class" => type_id = number(value),
                "constantPool" => is_constant = value == "true",
                "dimension" => is_array = value != "0",
                _ => {}
            }
        }
        let mut inner = None;
        match (element, id, class, type_id) {
            ("class", Some(id), _, _) => {
                let kind = kind(name);
                self.classes.insert(id, Class { name, kind, fields: Vec::new() });
                inner = Some(id);
            }
            ("field", _, Some(class), Some(type_id)) => {
                if let Some(class) = self.classes.get_mut(&class) {
                    class.fields.push(Field { name, class: type_id, is_constant, is_array });
                }
            }
            _ => {}
        }
        for _ in 0..cursor.count()? {
            self.read(cursor, depth, inner)?;
        }
        Ok(())
    }
}

/// Texts of other lengths are not looked at.
fn known(text: &str) -> &'static str {
    KNOWN.into_iter().find(|known| *known == text).unwrap_or_default()
}

/// An id, which has 20 characters at most.
fn number(text: &str) -> Option<i64> {
    if text.len() <= 20 { text.parse().ok() } else { None }
}

fn kind(name: &str) -> Kind {
    match name {
        "byte" | "boolean" => Kind::Byte,
        "short" | "char" => Kind::Short,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "java.lang.String" => Kind::Text,
        _ => Kind::Fields,
    }
}
