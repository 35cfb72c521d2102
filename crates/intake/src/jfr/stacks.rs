//! Stacks of a chunk, by name.

use std::borrow::Cow;

use hashbrown::HashMap;
use model::samples::{Frame, FrameId, StackId, TextId};

use super::chunk::Chunk;
use super::cursor::{Cursor, Text};
use super::metadata::{Field, Kind};
use crate::Request;
use crate::draft::Draft;
use crate::error::Error;
use crate::limits::Allowance;

/// What stands for a name that the recording does not have.
const UNKNOWN: &str = "[unknown]";

/// A constant: its class and its number.
pub(super) type Constant = (i64, i64);

/// Reads what events refer to, each once.
pub(super) struct Stacks<'c, 'a> {
    pub(super) chunk: &'c Chunk<'a>,
    pub(super) steps: &'c mut Allowance,
    /// The class of texts.
    texts: Option<i64>,
    stacks: HashMap<Constant, StackId>,
    methods: HashMap<Constant, TextId>,
    /// Constants that are referred to and not there.
    pub(super) missing: u64,
}

impl<'c, 'a> Stacks<'c, 'a> {
    pub(super) fn new(chunk: &'c Chunk<'a>, steps: &'c mut Allowance) -> Self {
        let mut classes = chunk.metadata.classes.iter();
        let texts = classes.find(|(_, class)| class.kind == Kind::Text).map(|(id, _)| *id);
        Self { chunk, steps, texts, stacks: HashMap::new(), methods: HashMap::new(), missing: 0 }
    }

    /// Reads the fields of a value; those that `read` does not take are passed over.
    pub(super) fn fields(
        &mut self,
        class: i64,
        cursor: &mut Cursor<'a>,
        mut read: impl FnMut(&mut Self, &Field, &mut Cursor<'a>) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let chunk = self.chunk;
        for field in &chunk.metadata.class(class)?.fields {
            self.steps.take(1)?;
            if !read(self, field, cursor)? {
                chunk.metadata.skip_field(cursor, field, self.steps)?;
            }
        }
        Ok(())
    }

    /// A whole number, where the field has one.
    pub(super) fn number(
        &self,
        field: &Field,
        cursor: &mut Cursor<'a>,
    ) -> Result<Option<i64>, Error> {
        if field.is_array {
            return Ok(None);
        }
        if field.is_constant {
            return Ok(Some(cursor.long()?));
        }
        Ok(match self.chunk.metadata.class(field.class)?.kind {
            Kind::Byte => Some(cursor.byte()?.into()),
            Kind::Short => Some(cursor.short()?),
            Kind::Int => Some(cursor.int()?),
            Kind::Long => Some(cursor.long()?),
            Kind::Float | Kind::Double | Kind::Text | Kind::Fields => None,
        })
    }

    /// The text of a field, or of the constant that it refers to; none where it has none.
    pub(super) fn text(
        &mut self,
        field: &Field,
        cursor: &mut Cursor<'a>,
    ) -> Result<Option<Cow<'a, str>>, Error> {
        if field.is_array {
            return Ok(None);
        }
        if field.is_constant {
            let number = cursor.long()?;
            return self.name((field.class, number)).map(Some);
        }
        if !self.chunk.is_text(field.class) {
            return Ok(None);
        }
        match cursor.text()? {
            Text::Here(text) => Ok(Some(text)),
            Text::Constant(number) => {
                let class = self.texts.unwrap_or_default();
                self.constant_text(class, number).map(Some)
            }
        }
    }

    /// The text of a constant that is one; a constant that refers to another is none.
    fn constant_text(&mut self, class: i64, number: i64) -> Result<Cow<'a, str>, Error> {
        let text =
            self.chunk.constant(class, number).map(|mut cursor| cursor.text()).transpose()?;
        match text {
            Some(Text::Here(text)) => {
                // Many constants may refer to one that is long.
                self.steps.take(text.len())?;
                Ok(text)
            }
            Some(Text::Constant(_)) | None => Ok(self.unknown(number)),
        }
    }

    /// Nothing for the number 0, which is what fields have that say nothing.
    fn unknown(&mut self, number: i64) -> Cow<'a, str> {
        if number == 0 {
            return Cow::Borrowed("");
        }
        self.missing += 1;
        Cow::Borrowed(UNKNOWN)
    }

    /// What a constant is called: a text, or the first of its texts.
    pub(super) fn name(&mut self, (class, number): Constant) -> Result<Cow<'a, str>, Error> {
        if self.chunk.is_text(class) {
            return self.constant_text(class, number);
        }
        let Some(mut cursor) = self.chunk.constant(class, number) else {
            return Ok(self.unknown(number));
        };
        let mut name = None;
        self.fields(class, &mut cursor, |this, field, cursor| {
            let is_name = name.is_none() && !field.is_constant && this.chunk.is_text(field.class);
            if is_name {
                name = this.text(field, cursor)?;
            }
            Ok(name.is_some() && is_name)
        })?;
        Ok(name.unwrap_or_default())
    }

    /// The name of what a constant's field `name` says.
    fn named(&mut self, (class, number): Constant) -> Result<Cow<'a, str>, Error> {
        let Some(mut cursor) = self.chunk.constant(class, number) else {
            return Ok(self.unknown(number));
        };
        let mut name = None;
        self.fields(class, &mut cursor, |this, field, cursor| {
            if field.name == "name" && name.is_none() {
                name = this.text(field, cursor)?;
                return Ok(name.is_some());
            }
            Ok(false)
        })?;
        Ok(name.unwrap_or_default())
    }

    /// A method as `package/Class.method`.
    fn method(
        &mut self,
        request: &mut Request<'_>,
        draft: &mut Draft,
        method: Constant,
    ) -> Result<TextId, Error> {
        if let Some(known) = self.methods.get(&method) {
            return Ok(*known);
        }
        let mut class_name = Cow::Borrowed("");
        let name = match self.chunk.constant(method.0, method.1) {
            None => self.unknown(method.1),
            Some(mut cursor) => {
                let mut name = Cow::Borrowed("");
                self.fields(method.0, &mut cursor, |this, field, cursor| match field.name {
                    "type" if field.is_constant && !field.is_array => {
                        let number = cursor.long()?;
                        class_name = this.named((field.class, number))?;
                        Ok(true)
                    }
                    "name" => {
                        let text = this.text(field, cursor)?;
                        let is_read = text.is_some();
                        name = text.unwrap_or_default();
                        Ok(is_read)
                    }
                    _ => Ok(false),
                })?;
                name
            }
        };
        let whole = match &*class_name {
            "" => name.into_owned(),
            class => format!("{}.{name}", of_generated(class)),
        };
        request.budget.text.take(whole.len())?;
        let most = request.limits.symbol_bytes;
        let text = draft.text(&mut request.taken.batch, &whole, most);
        self.methods.insert(method, text);
        Ok(text)
    }

    /// A stack; one without frames where the recording does not have it.
    pub(super) fn stack(
        &mut self,
        request: &mut Request<'_>,
        draft: &mut Draft,
        stack: Constant,
    ) -> Result<StackId, Error> {
        if let Some(known) = self.stacks.get(&stack) {
            return Ok(*known);
        }
        let mut frames = Vec::new();
        match self.chunk.constant(stack.0, stack.1) {
            None => drop(self.unknown(stack.1)),
            Some(mut cursor) => {
                self.fields(stack.0, &mut cursor, |this, field, cursor| {
                    if field.name != "frames" || !field.is_array || field.is_constant {
                        return Ok(false);
                    }
                    for _ in 0..cursor.count()? {
                        frames.push(this.frame(request, draft, field.class, cursor)?);
                    }
                    Ok(true)
                })?;
            }
        }
        let most = request.limits.stack_frames;
        let id = draft.stack(request, &frames, most)?;
        self.stacks.insert(stack, id);
        Ok(id)
    }

    fn frame(
        &mut self,
        request: &mut Request<'_>,
        draft: &mut Draft,
        class: i64,
        cursor: &mut Cursor<'a>,
    ) -> Result<FrameId, Error> {
        // A frame may have no field, and so no bytes.
        self.steps.take(1)?;
        let mut frame = Frame::default();
        self.fields(class, cursor, |this, field, cursor| match field.name {
            "method" if field.is_constant && !field.is_array => {
                let number = cursor.long()?;
                frame.function = this.method(request, draft, (field.class, number))?;
                Ok(true)
            }
            "lineNumber" => {
                let line = this.number(field, cursor)?;
                frame.line = line.and_then(|line| u32::try_from(line).ok()).unwrap_or_default();
                Ok(line.is_some())
            }
            _ => Ok(false),
        })?;
        Ok(request.taken.batch.frame(frame))
    }
}

/// Classes that are made while a program runs are numbered, by each run otherwise: `A$$Lambda$8/0x0000000800c01448` and
/// `A$$Lambda$8+0x00007f1a301a8208/1704491411` are `A$$Lambda$_`.
fn of_generated(class: &str) -> Cow<'_, str> {
    let hidden = class.find("/0x").or_else(|| class.find("+0x"));
    let named = class.get(..hidden.unwrap_or(class.len())).unwrap_or(class);
    let base = named.trim_end_matches(|c: char| c.is_ascii_digit());
    let marks =
        ["$$Lambda$", "$$Lambda", "GeneratedMethodAccessor", "GeneratedConstructorAccessor"];
    let is_numbered = base.len() < named.len();
    if is_numbered && marks.iter().any(|mark| base.ends_with(mark)) {
        return Cow::Owned(format!("{base}_"));
    }
    Cow::Borrowed(named)
}
