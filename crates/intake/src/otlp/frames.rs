//! Stacks of a request's dictionary as stacks of the batch, each made once.

use model::samples::{Frame, FrameId, StackId, TextId};
use profile::keys;
use profile::request::{Dictionary, Line, Location};

use crate::Request;
use crate::draft::Draft;
use crate::error::Error;

/// Of all stacks that were met.
pub(super) struct Stacks<'a> {
    dictionary: &'a Dictionary<'a>,
    stacks: Vec<Option<StackId>>,
    /// Frames of a location, as a range of `frames`.
    locations: Vec<Option<(u32, u32)>>,
    frames: Vec<FrameId>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(dictionary: &'a Dictionary<'a>) -> Self {
        Self {
            dictionary,
            stacks: vec![None; dictionary.stacks.len()],
            locations: vec![None; dictionary.locations.len()],
            frames: Vec::new(),
        }
    }

    /// The stack of a number of the dictionary, whose 0 is empty.
    pub(super) fn stack(
        &mut self,
        sample: usize,
        number: u32,
        request: &mut Request<'_>,
        draft: &mut Draft,
    ) -> Result<StackId, Error> {
        if number == 0 {
            return Ok(StackId::default());
        }
        if let Some(Some(known)) = self.stacks.get(number as usize) {
            return Ok(*known);
        }
        let dictionary = self.dictionary;
        let Some(locations) = dictionary.stacks.get(number as usize) else {
            return Err(dangling("sample", sample as u64, "stack", number));
        };
        let most = request.limits.otlp_stack_frames;
        let mut stack = Vec::new();
        // From the root, so that what is beyond the limit is not looked at; one more shows that there is more.
        for &location in locations.iter().rev().filter(|location| **location != 0) {
            if stack.len() > most {
                break;
            }
            let (begin, end) = self.location(number, location, request, draft)?;
            let own = self.frames.get(begin as usize..end as usize).unwrap_or_default();
            stack.extend(own.iter().rev().take(most + 1 - stack.len()));
        }
        stack.reverse();
        let stack = draft.stack(request, &stack, most)?;
        if let Some(place) = self.stacks.get_mut(number as usize) {
            *place = Some(stack);
        }
        Ok(stack)
    }

    fn location(
        &mut self,
        stack: u32,
        number: u32,
        request: &mut Request<'_>,
        draft: &mut Draft,
    ) -> Result<(u32, u32), Error> {
        if let Some(Some(known)) = self.locations.get(number as usize) {
            return Ok(*known);
        }
        let Some(location) = self.dictionary.locations.get(number as usize) else {
            return Err(dangling("stack", stack.into(), "location", number));
        };
        let begin = model::intern::number(self.frames.len());
        self.add_frames(number, location, request, draft)?;
        let range = (begin, model::intern::number(self.frames.len()));
        if let Some(place) = self.locations.get_mut(number as usize) {
            *place = Some(range);
        }
        Ok(range)
    }

    fn add_frames(
        &mut self,
        number: u32,
        location: &Location,
        request: &mut Request<'_>,
        draft: &mut Draft,
    ) -> Result<(), Error> {
        let d = self.dictionary;
        let most = request.limits.symbol_bytes;
        let batch = &mut request.taken.batch;
        let mut text = |text: &str| draft.text(batch, text, most);
        let attribute = |key| d.find_text(&location.attributes, key).unwrap_or_default();
        let (path, build_id) = match location.mapping {
            0 => (attribute(keys::MAPPED_PATH), ""),
            mapping => {
                let found = d.mappings.get(mapping as usize);
                let found =
                    found.ok_or_else(|| dangling("location", number.into(), "mapping", mapping))?;
                let ids = [keys::BUILD_ID_GNU, keys::BUILD_ID_GO, keys::BUILD_ID_HTLHASH];
                let id = ids.iter().find_map(|key| d.find_text(&found.attributes, key));
                (string(d, "mapping", mapping, found.path)?, id.unwrap_or_default())
            }
        };
        let frame = Frame {
            kind: text(attribute(keys::FRAME_TYPE)),
            mapping: text(path),
            build_id: text(build_id),
            address: location.address,
            ..Frame::default()
        };
        let mut found = Vec::with_capacity(location.lines.len().max(1));
        for (at, line) in (1..).zip(&location.lines) {
            let named = named(d, number, line, &mut text)?;
            let is_inlined = at < location.lines.len();
            found.push(Frame {
                is_inlined,
                kind: frame.kind,
                mapping: frame.mapping,
                build_id: frame.build_id,
                address: frame.address,
                ..named
            });
        }
        if found.is_empty() {
            found.push(frame);
        }
        let batch = &mut request.taken.batch;
        self.frames.extend(found.into_iter().map(|frame| batch.frame(frame)));
        Ok(())
    }
}

/// Function, file and lines of a frame.
fn named(
    d: &Dictionary<'_>,
    location: u32,
    line: &Line,
    text: &mut impl FnMut(&str) -> TextId,
) -> Result<Frame, Error> {
    let number = line.function;
    if number == 0 {
        return Ok(Frame::default());
    }
    let function = d.functions.get(number as usize);
    let function =
        function.ok_or_else(|| dangling("location", location.into(), "function", number))?;
    let system_name = string(d, "function", number, function.system_name)?;
    let name = match string(d, "function", number, function.name)? {
        "" => system_name,
        name => name,
    };
    Ok(Frame {
        function: text(name),
        system_name: if system_name == name { TextId::default() } else { text(system_name) },
        file: text(string(d, "function", number, function.file)?),
        line: u32::try_from(line.line).unwrap_or_default(),
        start_line: u32::try_from(function.start_line).unwrap_or_default(),
        ..Frame::default()
    })
}

/// A string that something refers to.
pub(super) fn string<'a>(
    d: &Dictionary<'a>,
    from: &'static str,
    id: u32,
    string: u32,
) -> Result<&'a str, Error> {
    let found = d.strings.get(string as usize).copied();
    found.ok_or_else(|| dangling(from, id.into(), "string", string))
}

pub(super) fn dangling(from: &'static str, id: u64, to: &'static str, target: u32) -> Error {
    Error::Dangling { from, id, to, target: target.into() }
}
