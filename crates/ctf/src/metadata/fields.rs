//! The grammar of TSDL, second half: field classes.
//!
//! Nested structures and variants are kept on a stack of open bodies, each with what its class is for once its
//! closing brace has come, so that nesting needs no call depth.

use std::collections::HashSet;
use std::sync::Arc;

use super::lexer::{Problem, Token, unescape};
use super::parser::{Attribute, Inside, KEYWORDS, Parser, Statement, Use, shorten};
use super::scope::absolute;
use super::types::{BodyId, IntegerType, LengthType, Member, NameSpace, Path, Type, TypeId};
use crate::class::{Base, ByteOrder};
use crate::error::TextProblem;
use crate::value::{Mapping, Mappings};

type Result<T> = std::result::Result<T, Problem>;

/// What a finished field class is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The caller's.
    Whole,
    /// Members of the open body.
    Member,
    /// Names in the open body.
    Typedef,
    /// A name in the open body.
    Typealias,
}

/// A structure or variant whose closing brace has not come.
#[derive(Debug)]
pub(crate) struct Body<'a> {
    at: usize,
    id: BodyId,
    name: Option<&'a str>,
    /// For variants: their selector.
    variant: Option<Option<Path>>,
    members: Vec<Member>,
    member_names: HashSet<&'a str>,
    purpose: Purpose,
}

/// Words that make up the names of C's number types.
const TYPE_WORDS: [&str; 12] = [
    "char",
    "short",
    "int",
    "long",
    "float",
    "double",
    "signed",
    "unsigned",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

impl<'a> Parser<'a> {
    /// A whole field class.
    pub(crate) fn field_class(&mut self) -> Result<TypeId> {
        let mut finished = self.begin(Purpose::Whole)?;
        loop {
            match finished {
                Some((ty, Purpose::Whole)) => return Ok(ty),
                Some((ty, Purpose::Member)) => self.members(ty)?,
                Some((ty, Purpose::Typedef)) => self.typedef(ty)?,
                Some((ty, Purpose::Typealias)) => self.typealias(ty)?,
                None => {}
            }
            finished = self.body_item()?;
        }
    }

    /// Begins a field class; gives it unless it opened a body.
    fn begin(&mut self, purpose: Purpose) -> Result<Option<(TypeId, Purpose)>> {
        while self.token == Token::Word("const") {
            self.bump()?;
        }
        let at = self.at;
        let ty = match self.token {
            Token::Word("struct") => return self.structure(at, purpose),
            Token::Word("variant") => return self.variant(at, purpose),
            Token::Word("enum") => self.enumeration(at)?,
            Token::Word("integer") => {
                let integer = self.integer()?;
                self.add(at, Type::Integer(integer))?
            }
            Token::Word("floating_point") => {
                let float = self.float(at)?;
                self.add(at, float)?
            }
            Token::Word("string") => {
                self.string()?;
                self.add(at, Type::Text)?
            }
            _ => self.alias(at)?,
        };
        Ok(Some((ty, purpose)))
    }

    /// The next thing in the open body: a declaration, a member's class, or the closing brace.
    fn body_item(&mut self) -> Result<Option<(TypeId, Purpose)>> {
        while self.take(";")? {}
        match self.token {
            Token::Sign("}") => self.close().map(Some),
            Token::Word("typedef") => {
                self.bump()?;
                self.begin(Purpose::Typedef)
            }
            Token::Word("typealias") => {
                self.bump()?;
                self.begin(Purpose::Typealias)
            }
            Token::End => Err((self.at, TextProblem::Unfinished("a structure or variant"))),
            _ => self.begin(Purpose::Member),
        }
    }

    fn optional_name(&mut self) -> Result<Option<&'a str>> {
        if matches!(self.token, Token::Word(_)) {
            self.identifier("a name or {").map(Some)
        } else {
            Ok(None)
        }
    }

    fn open_body(
        &mut self,
        at: usize,
        name: Option<&'a str>,
        variant: Option<Option<Path>>,
        purpose: Purpose,
    ) -> Result<()> {
        self.expect("{")?;
        // One body more than the deepest class there can be is refused here, before it takes memory.
        if self.open.len() > usize::try_from(super::types::MAX_DEPTH).unwrap_or(usize::MAX) {
            let limit = super::types::MAX_DEPTH.into();
            return Err((at, TextProblem::TooMany { what: "levels of nesting", limit }));
        }
        self.names.open();
        let (members, member_names) = (Vec::new(), HashSet::new());
        let id = self.bodies;
        self.bodies = id.saturating_add(1);
        self.open.push(Body { at, id, name, variant, members, member_names, purpose });
        Ok(())
    }

    fn structure(&mut self, at: usize, purpose: Purpose) -> Result<Option<(TypeId, Purpose)>> {
        self.bump()?;
        let name_at = self.at;
        let name = self.optional_name()?;
        if self.is("{") {
            return self.open_body(at, name, None, purpose).map(|()| None);
        }
        let name = name.ok_or_else(|| self.unexpected("a name or {"))?;
        let ty = self.tagged(name_at, NameSpace::Structure, "struct", name)?;
        Ok(Some((ty, purpose)))
    }

    fn variant(&mut self, at: usize, purpose: Purpose) -> Result<Option<(TypeId, Purpose)>> {
        self.bump()?;
        let name_at = self.at;
        let name = self.optional_name()?;
        let selector = if self.take("<")? {
            let path = self.reference()?;
            self.expect(">")?;
            Some(path)
        } else {
            None
        };
        if self.is("{") {
            return self.open_body(at, name, Some(selector), purpose).map(|()| None);
        }
        let name = name.ok_or_else(|| self.unexpected("a name or {"))?;
        let named = self.tagged(name_at, NameSpace::Variant, "variant", name)?;
        let ty = match (selector, self.document.types.get(named)) {
            (Some(selector), Some(Type::Variant { options, .. })) => {
                let options = Arc::clone(options);
                self.add(at, Type::Variant { selector: Some(selector), options })?
            }
            _ => named,
        };
        Ok(Some((ty, purpose)))
    }

    /// What `struct name`, `variant name` or `enum name` stands for: the compound of that name, or an alias of several
    /// words such as `struct page *`.
    fn tagged(&mut self, at: usize, space: NameSpace, tag: &str, name: &str) -> Result<TypeId> {
        let stars = self.stars()?;
        let alias = self.names.get(NameSpace::Alias, &format!("{tag} {name}{stars}"));
        match alias {
            Some(alias) if !stars.is_empty() || self.names.get(space, name).is_none() => Ok(alias),
            _ => self.look_up(at, space, name),
        }
    }

    /// A dotted reference whose parts are no keywords, except for the prefixes of scopes.
    fn reference(&mut self) -> Result<Path> {
        let mut path = self.path()?;
        let is_scope = matches!(
            path.names.first().map(|name| &**name),
            Some("stream" | "event" | "trace" | "env")
        );
        let wrong = path.names.iter().any(|name| KEYWORDS.contains(&&**name))
            && !(is_scope && path.names.len() > 1);
        if wrong {
            return Err((
                path.at,
                TextProblem::Unexpected {
                    expected: "a field",
                    found: shorten(&path.names.join(".")),
                },
            ));
        }
        let is_relative = absolute(&path).0.is_none();
        if let Some(first) = path.names.first().filter(|_| is_relative) {
            let mut structures = self.open.iter().rev().filter(|body| body.variant.is_none());
            path.body =
                structures.find(|body| body.member_names.contains(&**first)).map(|body| body.id);
        }
        Ok(path)
    }

    /// The closing brace of the innermost body.
    fn close(&mut self) -> Result<(TypeId, Purpose)> {
        self.expect("}")?;
        self.names.close();
        let Some(body) = self.open.pop() else { return Err(self.unexpected("a declaration")) };
        let members = Arc::from(body.members);
        let (space, ty) = match body.variant {
            None => {
                let align = self.minimum_align()?;
                (NameSpace::Structure, Type::Structure { members, align, body: body.id })
            }
            Some(_) if members.is_empty() => {
                return Err((body.at, TextProblem::Missing("an option of the variant")));
            }
            Some(selector) => (NameSpace::Variant, Type::Variant { selector, options: members }),
        };
        let ty = self.add(body.at, ty)?;
        if let Some(name) = body.name {
            self.declare(body.at, space, name, ty)?;
        }
        Ok((ty, body.purpose))
    }

    fn minimum_align(&mut self) -> Result<u64> {
        if self.token != Token::Word("align") {
            return Ok(1);
        }
        self.bump()?;
        self.expect("(")?;
        let at = self.at;
        let align = alignment(at, &self.attribute()?)?;
        self.expect(")")?;
        Ok(align)
    }

    // Declarators: names, pointers and array brackets.

    /// Members of the open body, all of one class.
    fn members(&mut self, ty: TypeId) -> Result<()> {
        // A structure, variant or enumeration declared in passing has no member.
        if self.take(";")? {
            return Ok(());
        }
        loop {
            let at = self.at;
            let name = self.identifier("a field name")?;
            let ty = self.brackets(ty)?;
            let Some(body) = self.open.last_mut() else {
                return Err(self.unexpected("a declaration"));
            };
            if !body.member_names.insert(name) {
                return Err((at, TextProblem::Duplicate { what: "field", name: shorten(name) }));
            }
            body.members.push(Member { name: name.into(), ty });
            if !self.take(",")? {
                return self.expect(";");
            }
        }
    }

    pub(crate) fn typedef(&mut self, ty: TypeId) -> Result<()> {
        loop {
            let at = self.at;
            let stars = self.stars()?;
            let name = self.identifier("a type name")?;
            let ty = self.brackets(ty)?;
            self.declare(at, NameSpace::Alias, &format!("{name}{stars}"), ty)?;
            if !self.take(",")? {
                return self.expect(";");
            }
        }
    }

    pub(crate) fn typealias(&mut self, ty: TypeId) -> Result<()> {
        let ty = self.brackets(ty)?;
        self.expect(":=")?;
        let at = self.at;
        let name = self.type_name()?;
        let ty = self.brackets(ty)?;
        self.declare(at, NameSpace::Alias, &name, ty)?;
        self.expect(";")
    }

    fn stars(&mut self) -> Result<String> {
        let mut stars = String::new();
        while self.take("*")? {
            stars.push_str(" *");
            while self.token == Token::Word("const") {
                self.bump()?;
            }
        }
        Ok(stars)
    }

    /// `[n][m]…` after a name: `n` elements of `m` elements of the class.
    fn brackets(&mut self, element: TypeId) -> Result<TypeId> {
        let mut lengths = Vec::new();
        while self.is("[") {
            let at = self.at;
            self.bump()?;
            let length = match self.token {
                Token::Number(length) => {
                    self.bump()?;
                    LengthType::Fixed(length)
                }
                Token::Word(_) => LengthType::Reference(self.reference()?),
                _ => return Err(self.unexpected("a length")),
            };
            self.expect("]")?;
            lengths.push((at, length));
        }
        let nest = |element, (at, length)| self.add(at, Type::Array { length, element });
        lengths.into_iter().rev().try_fold(element, nest)
    }

    /// The words of a type's name, with one blank between and its stars behind.
    fn type_name(&mut self) -> Result<String> {
        let mut words: Vec<&str> = Vec::new();
        while let Token::Word(word) = self.token {
            let is_number_word = TYPE_WORDS.contains(&word);
            let is_tag = matches!(word, "struct" | "variant" | "enum") && words.is_empty();
            // One name, alone or after `struct`; number words only among themselves.
            let fits = match words.as_slice() {
                [] => is_tag || is_number_word || word == "const" || !KEYWORDS.contains(&word),
                ["struct" | "variant" | "enum"] => !KEYWORDS.contains(&word),
                [.., last] => word == "const" || (TYPE_WORDS.contains(last) && is_number_word),
            };
            if !fits {
                break;
            }
            if word != "const" {
                words.push(word);
            }
            self.bump()?;
        }
        if let [] | ["struct" | "variant" | "enum"] = *words {
            return Err(self.unexpected("a type name"));
        }
        let stars = self.stars()?;
        Ok(words.join(" ") + &stars)
    }

    fn alias(&mut self, at: usize) -> Result<TypeId> {
        let name = self.type_name()?;
        self.look_up(at, NameSpace::Alias, &name)
    }

    // Scalars.

    fn integer(&mut self) -> Result<IntegerType> {
        let begin = self.at;
        self.bump()?;
        let (mut bits, mut align, mut signed, mut order) = (None, None, false, None);
        let (mut base, mut is_text, mut clock) = (Base::Decimal, false, None);
        self.statements("an integer", Inside::Scalar, &mut |_, statement| {
            let Statement::Value { at, name, value } = statement else { return Ok(Use::Unknown) };
            match &*name {
                "size" => {
                    let size = value.unsigned(at, "size")?;
                    bits = Some(u8::try_from(size).ok().filter(|size| (1..=64).contains(size)));
                    if bits == Some(None) {
                        return Err(value.wrong(at, "size"));
                    }
                }
                "align" => align = Some(alignment(at, &value)?),
                "signed" => signed = value.boolean(at, "signed")?,
                "byte_order" => order = byte_order(at, &value)?,
                "base" => base = display_base(at, &value)?,
                "encoding" => is_text = encoding(at, &value)?,
                "map" => clock = Some(mapped_clock(at, value)?),
                _ => return Ok(Use::Unknown),
            }
            Ok(Use::Taken)
        })?;
        let bits = bits.flatten().ok_or((begin, TextProblem::Missing("the size of an integer")))?;
        let align = align.unwrap_or(if bits % 8 == 0 { 8 } else { 1 });
        Ok(IntegerType { bits, align, signed, order, base, is_text, clock })
    }

    fn float(&mut self, begin: usize) -> Result<Type> {
        self.bump()?;
        let (mut exponent, mut mantissa, mut order, mut align) = (None, None, None, None);
        self.statements("a floating point number", Inside::Scalar, &mut |_, statement| {
            let Statement::Value { at, name, value } = statement else { return Ok(Use::Unknown) };
            match &*name {
                "exp_dig" => exponent = Some(value.unsigned(at, "exp_dig")?),
                "mant_dig" => mantissa = Some(value.unsigned(at, "mant_dig")?),
                "byte_order" => order = byte_order(at, &value)?,
                "align" => align = Some(alignment(at, &value)?),
                _ => return Ok(Use::Unknown),
            }
            Ok(Use::Taken)
        })?;
        let bits = match (exponent, mantissa) {
            (Some(5), Some(11)) => 16,
            (Some(8), Some(24)) => 32,
            (Some(11), Some(53)) => 64,
            (None, _) => return Err((begin, TextProblem::Missing("exp_dig"))),
            (_, None) => return Err((begin, TextProblem::Missing("mant_dig"))),
            (Some(exponent), Some(mantissa)) => {
                let found = format!("{exponent} and {mantissa}");
                return Err((
                    begin,
                    TextProblem::Value { attribute: "exp_dig and mant_dig", found },
                ));
            }
        };
        Ok(Type::Float { bits, order, align: align.unwrap_or(8) })
    }

    fn string(&mut self) -> Result<()> {
        self.bump()?;
        if !self.is("{") {
            return Ok(());
        }
        self.statements("a string", Inside::Scalar, &mut |_, statement| match statement {
            Statement::Value { at, name, value } if name == "encoding" => {
                encoding(at, &value).map(|_| Use::Taken)
            }
            _ => Ok(Use::Unknown),
        })
    }

    // Enumerations.

    fn enumeration(&mut self, at: usize) -> Result<TypeId> {
        self.bump()?;
        let name_at = self.at;
        let name = self.optional_name()?;
        let container = if self.take(":")? { Some(self.container()?) } else { None };
        if !self.is("{") {
            let name = name.filter(|_| container.is_none()).ok_or_else(|| self.unexpected("{"))?;
            return self.tagged(name_at, NameSpace::Enumeration, "enum", name);
        }
        let container = match container {
            Some(container) => container,
            None => self.container_of(at, self.look_up(at, NameSpace::Alias, "int")?)?,
        };
        let mappings = Arc::new(self.mappings(&container)?);
        let ty = self.add(at, Type::Enumeration { container, mappings })?;
        if let Some(name) = name {
            self.declare(name_at, NameSpace::Enumeration, name, ty)?;
        }
        Ok(ty)
    }

    fn container(&mut self) -> Result<IntegerType> {
        let at = self.at;
        if self.token == Token::Word("integer") {
            return self.integer();
        }
        let ty = self.alias(at)?;
        self.container_of(at, ty)
    }

    fn container_of(&self, at: usize, ty: TypeId) -> Result<IntegerType> {
        match self.document.types.get(ty) {
            Some(Type::Integer(integer)) => Ok(integer.clone()),
            _ => Err((
                at,
                TextProblem::Class {
                    what: "the class under an enumeration",
                    expected: "an integer",
                },
            )),
        }
    }

    fn mappings(&mut self, container: &IntegerType) -> Result<Mappings> {
        let begin = self.at;
        self.expect("{")?;
        let mut entries = Vec::new();
        let mut implicit = 0;
        while !self.take("}")? {
            let entry = self.mapping(container, implicit)?;
            implicit = entry.last + 1;
            entries.push(entry);
            if !self.take(",")? && !self.is("}") {
                return Err(self.unexpected(", or }"));
            }
        }
        if entries.is_empty() {
            return Err((begin, TextProblem::Missing("a label of the enumeration")));
        }
        Ok(Mappings::new(entries))
    }

    fn mapping(&mut self, container: &IntegerType, implicit: i128) -> Result<Mapping> {
        let begin = self.at;
        let label = match self.token {
            // Labels may be keywords.
            Token::Word(word) => word.to_owned(),
            Token::Text(raw) => unescape(raw).ok_or((self.at, TextProblem::Literal("text")))?,
            _ => return Err(self.unexpected("a label")),
        };
        self.bump()?;
        let (mut first, mut last) = (implicit, implicit);
        if self.take("=")? {
            first = self.bound()?;
            last = if self.take("...")? { self.bound()? } else { first };
        }
        let (least, most) = range_of(container);
        if first > last || first < least || last > most {
            let found =
                if first == last { first.to_string() } else { format!("{first} ... {last}") };
            return Err((
                begin,
                TextProblem::Value { attribute: "the value of an enumeration's label", found },
            ));
        }
        Ok(Mapping { label: label.into(), first, last })
    }

    fn bound(&mut self) -> Result<i128> {
        let at = self.at;
        match self.attribute()? {
            Attribute::Number(number) => Ok(number),
            other => Err(other.wrong(at, "the value of an enumeration's label")),
        }
    }
}

/// The least and the greatest value of an integer class.
fn range_of(integer: &IntegerType) -> (i128, i128) {
    let values = 1_i128 << integer.bits;
    if integer.signed { (-values / 2, values / 2 - 1) } else { (0, values - 1) }
}

/// A power of two of bits, up to 2³².
fn alignment(at: usize, value: &Attribute) -> Result<u64> {
    let align = value.unsigned(at, "align")?;
    if align.is_power_of_two() && align <= 1 << 32 {
        Ok(align)
    } else {
        Err(value.wrong(at, "align"))
    }
}

fn byte_order(at: usize, value: &Attribute) -> Result<Option<ByteOrder>> {
    match value.word() {
        Some("native") => Ok(None),
        Some("le") => Ok(Some(ByteOrder::Little)),
        Some("be" | "network") => Ok(Some(ByteOrder::Big)),
        _ => Err(value.wrong(at, "byte_order")),
    }
}

fn display_base(at: usize, value: &Attribute) -> Result<Base> {
    match (value, value.word()) {
        (Attribute::Number(2), _) | (Attribute::Words(_), Some("binary" | "bin" | "b")) => {
            Ok(Base::Binary)
        }
        (Attribute::Number(8), _) | (Attribute::Words(_), Some("octal" | "oct" | "o")) => {
            Ok(Base::Octal)
        }
        (Attribute::Number(10), _)
        | (Attribute::Words(_), Some("decimal" | "dec" | "d" | "i" | "u")) => Ok(Base::Decimal),
        (Attribute::Number(16), _)
        | (Attribute::Words(_), Some("hexadecimal" | "hex" | "x" | "X" | "p")) => {
            Ok(Base::Hexadecimal)
        }
        _ => Err(value.wrong(at, "base")),
    }
}

/// Whether it is text.
fn encoding(at: usize, value: &Attribute) -> Result<bool> {
    match value.word() {
        Some("none") => Ok(false),
        Some("UTF8" | "utf8" | "UTF-8" | "utf-8" | "ASCII" | "ascii") => Ok(true),
        _ => Err(value.wrong(at, "encoding")),
    }
}

/// The clock's name in `clock.NAME.value`.
fn mapped_clock(at: usize, value: Attribute) -> Result<Path> {
    if let Attribute::Words(path) = &value
        && let [clock, name, property] = &*path.names
        && &**clock == "clock"
        && &**property == "value"
    {
        return Ok(Path { at: path.at, names: vec![name.clone()], body: None });
    }
    Err(value.wrong(at, "map"))
}
