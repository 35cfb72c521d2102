//! The grammar of TSDL, first half: statements and attribute blocks. Field classes are in `fields`.

use std::collections::{HashMap, HashSet};

use super::fields::Body;
use super::lexer::{Lexer, Problem, Token, unescape};
use super::types::{NameSpace, Names, Path, Type, TypeId, Types};
use super::warning::{Found, WarningKind};
use crate::class::{ByteOrder, EnvValue};
use crate::clock::{ClockClass, ClockOrigin, Uuid};
use crate::error::TextProblem;

type Result<T> = std::result::Result<T, Problem>;

/// What the text says, in its own order, with names not yet resolved to places.
#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) types: Types,
    pub(crate) trace: Option<TraceBlock>,
    pub(crate) environment: Vec<(String, EnvValue)>,
    pub(crate) clocks: Vec<ClockClass>,
    pub(crate) streams: Vec<StreamBlock>,
    pub(crate) events: Vec<EventBlock>,
    pub(crate) warnings: Found,
    pub(crate) text_bytes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct TraceBlock {
    pub(crate) uuid: Option<Uuid>,
    pub(crate) byte_order: Option<ByteOrder>,
    pub(crate) packet_header: Option<Root>,
}

#[derive(Debug, Default)]
pub(crate) struct StreamBlock {
    pub(crate) at: usize,
    pub(crate) id: Option<u64>,
    pub(crate) packet_context: Option<Root>,
    pub(crate) event_header: Option<Root>,
    pub(crate) event_context: Option<Root>,
}

#[derive(Debug, Default)]
pub(crate) struct EventBlock {
    pub(crate) at: usize,
    pub(crate) id: Option<u64>,
    pub(crate) name: String,
    pub(crate) stream_id: Option<u64>,
    pub(crate) log_level: Option<i64>,
    pub(crate) emf_uri: Option<String>,
    pub(crate) context: Option<Root>,
    pub(crate) payload: Option<Root>,
}

/// The structure of a scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Root {
    pub(crate) at: usize,
    pub(crate) ty: TypeId,
}

/// The right side of an attribute.
#[derive(Debug, Clone)]
pub(crate) enum Attribute {
    Number(i128),
    Text(String),
    Words(Path),
}

impl Attribute {
    pub(crate) fn shown(&self) -> String {
        let text = match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::Words(path) => path.names.join("."),
        };
        shorten(&text)
    }

    pub(crate) fn wrong(&self, at: usize, attribute: &'static str) -> Problem {
        (at, TextProblem::Value { attribute, found: self.shown() })
    }

    pub(crate) fn unsigned(&self, at: usize, attribute: &'static str) -> Result<u64> {
        match self {
            Self::Number(number) => u64::try_from(*number).ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong(at, attribute))
    }

    fn signed(&self, at: usize, attribute: &'static str) -> Result<i64> {
        match self {
            Self::Number(number) => i64::try_from(*number).ok(),
            _ => None,
        }
        .ok_or_else(|| self.wrong(at, attribute))
    }

    fn text(self, at: usize, attribute: &'static str) -> Result<String> {
        match self {
            Self::Text(text) => Ok(text),
            other => Err(other.wrong(at, attribute)),
        }
    }

    /// A text, or words with dots between.
    fn words(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Words(path) => Some(path.names.join(".")),
            Self::Number(_) => None,
        }
    }

    /// A text or a single word.
    pub(crate) fn word(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Words(path) => match &*path.names {
                [word] => Some(word),
                _ => None,
            },
            Self::Number(_) => None,
        }
    }

    fn uuid(&self, at: usize) -> Result<Uuid> {
        let uuid = if let Self::Text(text) = self { Uuid::parse(text) } else { None };
        uuid.ok_or_else(|| self.wrong(at, "uuid"))
    }

    pub(crate) fn boolean(&self, at: usize, attribute: &'static str) -> Result<bool> {
        match (self, self.word()) {
            (Self::Number(0), _) | (Self::Words(_), Some("false" | "FALSE")) => Ok(false),
            (Self::Number(1), _) | (Self::Words(_), Some("true" | "TRUE")) => Ok(true),
            _ => Err(self.wrong(at, attribute)),
        }
    }
}

/// One statement of a block: `name = value;` or `name := type;`. Declarations of types are taken in silently.
pub(crate) enum Statement {
    Value { at: usize, name: String, value: Attribute },
    Root { at: usize, name: String, ty: TypeId },
}

/// What has become of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Taken,
    /// Nothing knows its name, which is worth a warning: it may be misspelt.
    Unknown,
}

/// Where statements stand. A scalar's attributes hold no field classes, which bounds the depth of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    Block,
    /// Its names are free, and the last one of equal ones holds.
    Environment,
    Scalar,
}

pub(crate) struct Parser<'a> {
    lexer: Lexer<'a>,
    pub(crate) token: Token<'a>,
    /// Where `token` begins.
    pub(crate) at: usize,
    pub(crate) document: Document,
    /// Declared type names.
    pub(crate) names: Names,
    /// Structures and variants whose closing brace has not come.
    pub(crate) open: Vec<Body<'a>>,
    /// How many bodies were opened so far, which numbers them.
    pub(crate) bodies: u32,
    clock_names: HashSet<String>,
    /// Positions in the document's environment.
    environment_names: HashMap<String, usize>,
}

/// At most 64 characters of a text, for messages.
pub(crate) fn shorten(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Words that cannot be names.
pub(crate) const KEYWORDS: [&str; 28] = [
    "align",
    "callsite",
    "char",
    "clock",
    "const",
    "double",
    "enum",
    "env",
    "event",
    "float",
    "floating_point",
    "int",
    "integer",
    "long",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "unsigned",
    "variant",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Result<Self> {
        let mut lexer = Lexer::new(text);
        let (at, token) = lexer.token()?;
        let document = Document { text_bytes: text.len(), ..Document::default() };
        let names = Names::default();
        Ok(Self {
            lexer,
            token,
            at,
            document,
            names,
            open: Vec::new(),
            bodies: 0,
            clock_names: HashSet::new(),
            environment_names: HashMap::new(),
        })
    }

    /// Reads the whole text.
    pub(crate) fn document(mut self) -> Result<Document> {
        while self.token != Token::End {
            self.top_level()?;
        }
        Ok(self.document)
    }

    fn top_level(&mut self) -> Result<()> {
        let begin = self.at;
        match self.token {
            Token::Sign(";") => self.bump(),
            Token::Word("trace") => self.trace(begin),
            Token::Word("stream") => self.stream(begin),
            Token::Word("event") => self.event(begin),
            Token::Word("clock") => self.clock(begin),
            Token::Word("env") => self.environment(),
            Token::Word("callsite") => {
                self.bump()?;
                // Says where in a program event records come from, which no reader of them needs.
                self.block("a callsite block", Inside::Block, &mut |_, _| Ok(Use::Taken))
            }
            _ => {
                if self.declaration()? {
                    Ok(())
                } else {
                    Err(self.unexpected("a statement"))
                }
            }
        }
    }

    // Tokens.

    pub(crate) fn bump(&mut self) -> Result<()> {
        (self.at, self.token) = self.lexer.token()?;
        Ok(())
    }

    pub(crate) fn is(&self, sign: &str) -> bool {
        matches!(self.token, Token::Sign(found) if found == sign)
    }

    pub(crate) fn take(&mut self, sign: &str) -> Result<bool> {
        let found = self.is(sign);
        if found {
            self.bump()?;
        }
        Ok(found)
    }

    pub(crate) fn expect(&mut self, sign: &'static str) -> Result<()> {
        if self.take(sign)? { Ok(()) } else { Err(self.unexpected(sign)) }
    }

    pub(crate) fn unexpected(&self, expected: &'static str) -> Problem {
        let found = match self.token {
            Token::Word(word) => word.to_owned(),
            Token::Number(number) => number.to_string(),
            Token::Text(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            Token::Sign(sign) => sign.to_owned(),
            Token::End => return (self.at, TextProblem::Unfinished(expected_place(expected))),
        };
        (self.at, TextProblem::Unexpected { expected, found: shorten(&found) })
    }

    /// A name that is no keyword.
    pub(crate) fn identifier(&mut self, expected: &'static str) -> Result<&'a str> {
        match self.token {
            Token::Word(word) if !KEYWORDS.contains(&word) => {
                self.bump()?;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Words with dots between; keywords may be among them.
    pub(crate) fn path(&mut self) -> Result<Path> {
        let at = self.at;
        let mut names = Vec::new();
        loop {
            let Token::Word(word) = self.token else { return Err(self.unexpected("a name")) };
            names.push(Box::from(word));
            self.bump()?;
            if !self.take(".")? && !self.take("->")? {
                return Ok(Path { at, names, body: None });
            }
        }
    }

    pub(crate) fn attribute(&mut self) -> Result<Attribute> {
        let negative = self.is("-");
        if self.is("-") || self.is("+") {
            self.bump()?;
        }
        let signed = negative;
        match self.token {
            Token::Number(number) => {
                let number = if signed { -i128::from(number) } else { i128::from(number) };
                if number < i128::from(i64::MIN) {
                    return Err((self.at, TextProblem::Literal("integer")));
                }
                self.bump()?;
                Ok(Attribute::Number(number))
            }
            Token::Text(raw) if !signed => {
                let text = unescape(raw).ok_or((self.at, TextProblem::Literal("text")))?;
                self.bump()?;
                Ok(Attribute::Text(text))
            }
            Token::Word(_) if !signed => self.path().map(Attribute::Words),
            _ => Err(self.unexpected("a value")),
        }
    }

    // Blocks.

    /// `{ statement… } ;`
    fn block(
        &mut self,
        what: &'static str,
        inside: Inside,
        each: &mut dyn FnMut(&mut Self, Statement) -> Result<Use>,
    ) -> Result<()> {
        self.names.open();
        self.statements(what, inside, each)?;
        self.names.close();
        self.expect(";")
    }

    /// `{ statement… }`; the same attribute twice is an error.
    pub(crate) fn statements(
        &mut self,
        what: &'static str,
        inside: Inside,
        each: &mut dyn FnMut(&mut Self, Statement) -> Result<Use>,
    ) -> Result<()> {
        self.expect("{")?;
        let may_declare = inside != Inside::Scalar;
        let mut seen = HashSet::new();
        while !self.take("}")? {
            if self.token == Token::End {
                return Err((self.at, TextProblem::Unfinished(what)));
            }
            if self.take(";")? || (may_declare && self.declaration()?) {
                continue;
            }
            let name_at = self.at;
            let name = self.path()?.names.join(".");
            let label = shorten(&name);
            if !seen.insert(name.clone()) {
                if inside != Inside::Environment {
                    let problem = TextProblem::Duplicate { what: "attribute", name: label };
                    return Err((name_at, problem));
                }
                self.warn(
                    name_at,
                    WarningKind::Replaced { what: "environment entry", name: label.clone() },
                );
            }
            let statement = if self.take("=")? {
                Statement::Value { at: self.at, name, value: self.attribute()? }
            } else if may_declare && self.take(":=")? {
                Statement::Root { at: self.at, name, ty: self.field_class()? }
            } else {
                return Err(self.unexpected("= or :="));
            };
            self.expect(";")?;
            if each(self, statement)? == Use::Unknown {
                self.warn(name_at, WarningKind::UnknownAttribute { block: what, name: label });
            }
        }
        Ok(())
    }

    pub(crate) fn warn(&mut self, at: usize, kind: WarningKind) {
        self.document.warnings.add(at, kind);
    }

    fn root(&self, at: usize, ty: TypeId) -> Result<Option<Root>> {
        match self.document.types.get(ty) {
            Some(Type::Structure { .. }) => Ok(Some(Root { at, ty })),
            _ => Err((
                at,
                TextProblem::Class { what: "the field class of a scope", expected: "a structure" },
            )),
        }
    }

    fn trace(&mut self, begin: usize) -> Result<()> {
        self.bump()?;
        if self.document.trace.is_some() {
            return Err((
                begin,
                TextProblem::Duplicate { what: "block", name: "trace".to_owned() },
            ));
        }
        let mut block = TraceBlock::default();
        let (mut major, mut minor) = (None, None);
        self.block("the trace block", Inside::Block, &mut |parser, statement| {
            match statement {
                Statement::Value { at, name, value } => match &*name {
                    "major" => major = Some((at, value.unsigned(at, "major")?)),
                    "minor" => minor = Some((at, value.unsigned(at, "minor")?)),
                    "uuid" => block.uuid = Some(value.uuid(at)?),
                    "byte_order" => {
                        block.byte_order = match value.word() {
                            Some("le") => Some(ByteOrder::Little),
                            Some("be" | "network") => Some(ByteOrder::Big),
                            _ => return Err(value.wrong(at, "byte_order")),
                        }
                    }
                    _ => return Ok(Use::Unknown),
                },
                Statement::Root { at, name, ty } if name == "packet.header" => {
                    block.packet_header = parser.root(at, ty)?;
                }
                Statement::Root { .. } => return Ok(Use::Unknown),
            }
            Ok(Use::Taken)
        })?;
        for (given, wanted, attribute) in [(major, 1, "major"), (minor, 8, "minor")] {
            let (at, found) = given.ok_or((begin, TextProblem::Missing(attribute)))?;
            if found != wanted {
                return Err((at, TextProblem::Value { attribute, found: found.to_string() }));
            }
        }
        self.document.trace = Some(block);
        Ok(())
    }

    fn stream(&mut self, begin: usize) -> Result<()> {
        self.bump()?;
        let mut block = StreamBlock { at: begin, ..StreamBlock::default() };
        self.block("a stream block", Inside::Block, &mut |parser, statement| {
            match statement {
                Statement::Value { at, name, value } if name == "id" => {
                    block.id = Some(value.unsigned(at, "id")?)
                }
                Statement::Root { at, name, ty } => match &*name {
                    "packet.context" => block.packet_context = parser.root(at, ty)?,
                    "event.header" => block.event_header = parser.root(at, ty)?,
                    "event.context" => block.event_context = parser.root(at, ty)?,
                    _ => return Ok(Use::Unknown),
                },
                Statement::Value { .. } => return Ok(Use::Unknown),
            }
            Ok(Use::Taken)
        })?;
        self.document.streams.push(block);
        Ok(())
    }

    fn event(&mut self, begin: usize) -> Result<()> {
        self.bump()?;
        let mut block = EventBlock { at: begin, ..EventBlock::default() };
        let mut event_name = None;
        self.block("an event block", Inside::Block, &mut |parser, statement| {
            match statement {
                Statement::Value { at, name, value } => match &*name {
                    "id" => block.id = Some(value.unsigned(at, "id")?),
                    "stream_id" => block.stream_id = Some(value.unsigned(at, "stream_id")?),
                    "loglevel" => {
                        let level = i64::try_from(value.unsigned(at, "loglevel")?);
                        block.log_level = Some(level.map_err(|_wide| value.wrong(at, "loglevel"))?);
                    }
                    "name" => {
                        let wrong = value.wrong(at, "name");
                        event_name = Some(value.words().ok_or(wrong)?);
                    }
                    "model.emf.uri" => block.emf_uri = Some(value.text(at, "model.emf.uri")?),
                    _ => return Ok(Use::Unknown),
                },
                Statement::Root { at, name, ty } => match &*name {
                    "fields" => block.payload = parser.root(at, ty)?,
                    "context" => block.context = parser.root(at, ty)?,
                    _ => return Ok(Use::Unknown),
                },
            }
            Ok(Use::Taken)
        })?;
        block.name = event_name.ok_or((begin, TextProblem::Missing("the name of an event")))?;
        self.document.events.push(block);
        Ok(())
    }

    fn clock(&mut self, begin: usize) -> Result<()> {
        self.bump()?;
        let mut clock = ClockClass::new("");
        self.block("a clock block", Inside::Block, &mut |_, statement| {
            let Statement::Value { at, name, value } = statement else { return Ok(Use::Unknown) };
            match &*name {
                "name" => {
                    value.word().ok_or_else(|| value.wrong(at, "name"))?.clone_into(&mut clock.name)
                }
                "uuid" => clock.uuid = Some(value.uuid(at)?),
                "description" => {
                    let wrong = value.wrong(at, "description");
                    clock.description = Some(value.words().ok_or(wrong)?);
                }
                "freq" => {
                    clock.frequency = value.unsigned(at, "freq")?;
                    if clock.frequency == 0 {
                        return Err(value.wrong(at, "freq"));
                    }
                }
                "precision" => clock.precision = value.unsigned(at, "precision")?,
                "offset_s" => clock.offset_s = value.signed(at, "offset_s")?,
                "offset" => clock.offset = value.unsigned(at, "offset")?,
                "absolute" => {
                    let absolute = value.boolean(at, "absolute")?;
                    clock.origin =
                        if absolute { ClockOrigin::UnixEpoch } else { ClockOrigin::Unknown };
                }
                _ => return Ok(Use::Unknown),
            }
            Ok(Use::Taken)
        })?;
        if clock.name.is_empty() {
            return Err((begin, TextProblem::Missing("the clock's name")));
        }
        if !self.clock_names.insert(clock.name.clone()) {
            return Err((
                begin,
                TextProblem::Duplicate { what: "clock", name: shorten(&clock.name) },
            ));
        }
        self.document.clocks.push(clock);
        Ok(())
    }

    fn environment(&mut self) -> Result<()> {
        self.bump()?;
        self.block("the env block", Inside::Environment, &mut |parser, statement| {
            let Statement::Value { at, name, value } = statement else { return Ok(Use::Unknown) };
            let value = match value {
                Attribute::Number(number) => EnvValue::Integer(number),
                Attribute::Text(text) => EnvValue::Text(text),
                Attribute::Words(path) => {
                    let name = shorten(&name);
                    parser.warn(at, WarningKind::Unquoted { what: "environment entry", name });
                    EnvValue::Text(path.names.join("."))
                }
            };
            let environment = &mut parser.document.environment;
            let next = environment.len();
            let index = *parser.environment_names.entry(name.clone()).or_insert(next);
            match environment.get_mut(index) {
                Some((_, old)) => *old = value,
                None => environment.push((name, value)),
            }
            Ok(Use::Taken)
        })
    }

    // Declarations of types.

    /// `typedef`, `typealias`, or a structure, variant or enumeration with a name; `false` when there is none here.
    fn declaration(&mut self) -> Result<bool> {
        match self.token {
            Token::Word("typedef") => {
                self.bump()?;
                let ty = self.field_class()?;
                self.typedef(ty)?;
            }
            Token::Word("typealias") => {
                self.bump()?;
                let ty = self.field_class()?;
                self.typealias(ty)?;
            }
            Token::Word("struct" | "variant" | "enum") => {
                self.field_class()?;
                // The closing brace is end enough; some metadata leaves the semicolon out.
                self.take(";")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn declare(
        &mut self,
        at: usize,
        space: NameSpace,
        name: &str,
        ty: TypeId,
    ) -> Result<()> {
        if self.names.declare(space, name, ty) {
            return Ok(());
        }
        Err((at, TextProblem::Duplicate { what: space.what(), name: shorten(name) }))
    }

    pub(crate) fn look_up(&self, at: usize, space: NameSpace, name: &str) -> Result<TypeId> {
        let found = self.names.get(space, name);
        found.ok_or_else(|| (at, TextProblem::Unknown { what: space.what(), name: shorten(name) }))
    }

    pub(crate) fn add(&mut self, at: usize, ty: Type) -> Result<TypeId> {
        let limit = super::types::MAX_DEPTH.into();
        self.document
            .types
            .add(ty)
            .ok_or((at, TextProblem::TooMany { what: "levels of nesting", limit }))
    }
}

/// What is unfinished when the text ends where this is expected.
const fn expected_place(expected: &'static str) -> &'static str {
    match expected.as_bytes() {
        b";" => "a statement",
        b"}" | b"{" => "a block",
        _ => "a declaration",
    }
}
