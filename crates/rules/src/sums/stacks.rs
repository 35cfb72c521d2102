//! Which functions of which rules a stack is in: each stack, each frame and each text is looked at once.

use hashbrown::HashMap;
use model::intern::{Lists, Texts};
use model::samples::{Batch, Frame, FrameId, StackId, TextId};

use crate::functions::{By, Matching};
use crate::rule::Rule;

/// Functions of stacks that are kept, 8 bytes each.
const MAX_KEPT: usize = 1 << 24;

const UNKNOWN: u32 = u32::MAX;

/// A function of a rule, which a stack is in: the rule's place among the rules, and the function's number.
pub(super) type Hit = (u32, u32);

/// What is known of a frame: its function's number, and the list of rules that match it.
type Known = (u32, u32);

pub(super) struct Stacks<'a> {
    batch: &'a Batch,
    /// Rules of functions, by their places.
    rules: Vec<(u32, &'a Matching, bool)>,
    names: Texts,
    matched: Lists<u32>,
    by_text: HashMap<(By, TextId), u32>,
    by_name: HashMap<TextId, u32>,
    frames: Vec<Option<Known>>,
    hits: Lists<Hit>,
    stacks: Vec<u32>,
    kept: usize,
    scratch: Vec<Hit>,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(rules: impl Iterator<Item = (u32, &'a Rule)>, batch: &'a Batch) -> Self {
        let of_functions =
            |(at, rule): (u32, &'a Rule)| Some((at, rule.matching()?, rule.is_own()));
        let rules: Vec<_> = rules.filter_map(of_functions).collect();
        let (frames, stacks) = match rules.is_empty() {
            true => (0, 0),
            false => (batch.frame_count(), batch.stack_count()),
        };
        Self {
            batch,
            rules,
            names: Texts::new(),
            matched: Lists::new(),
            by_text: HashMap::new(),
            by_name: HashMap::new(),
            frames: vec![None; frames],
            hits: Lists::new(),
            stacks: vec![UNKNOWN; stacks],
            kept: 0,
            scratch: Vec::new(),
        }
    }

    /// The list of functions that a stack is in; 0 is the empty one.
    #[inline]
    pub(super) fn list(&mut self, stack: StackId) -> u32 {
        match self.stacks.get(stack.index()) {
            Some(&UNKNOWN) => self.look(stack),
            Some(&known) => known,
            None => 0,
        }
    }

    /// A list of functions, sorted, none twice.
    pub(super) fn hits(&self, list: u32) -> &[Hit] {
        self.hits.get(list)
    }

    /// What a function is called.
    pub(super) fn name(&self, function: u32) -> &str {
        self.names.get(function)
    }

    /// Whether so much is kept that lists should be forgotten.
    pub(super) const fn is_full(&self) -> bool {
        self.kept > MAX_KEPT
    }

    /// Forgets the lists of all stacks, whose numbers mean nothing from then on.
    pub(super) fn forget(&mut self) {
        self.stacks.fill(UNKNOWN);
        self.hits = Lists::new();
        self.kept = 0;
    }

    #[cold]
    fn look(&mut self, stack: StackId) -> u32 {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let batch = self.batch;
        for (depth, frame) in batch.frames_of(stack).enumerate() {
            let (function, matched) = self.frame(frame);
            for &at in self.matched.get(matched) {
                let rule = self.rules.get(at as usize);
                if let Some(&(rule, _, is_own)) = rule
                    && (depth == 0 || !is_own)
                {
                    scratch.push((rule, function));
                }
            }
        }
        scratch.sort_unstable();
        scratch.dedup();
        let before = self.hits.len();
        let list = self.hits.intern(&scratch);
        if self.hits.len() > before {
            self.kept += scratch.len();
        }
        self.scratch = scratch;
        if let Some(known) = self.stacks.get_mut(stack.index()) {
            *known = list;
        }
        list
    }

    fn frame(&mut self, id: FrameId) -> Known {
        if let Some(Some(known)) = self.frames.get(id.index()) {
            return *known;
        }
        let frame = self.batch.frame_of(id);
        let (function, by_name) = self.named(&frame);
        let mut all: Vec<u32> = self.matched.get(by_name).to_vec();
        for (by, text) in [(By::Mapping, frame.mapping), (By::File, frame.file)] {
            let matched = self.text(by, text);
            all.extend_from_slice(self.matched.get(matched));
        }
        all.sort_unstable();
        all.dedup();
        let known = (function, self.matched.intern(&all));
        if let Some(place) = self.frames.get_mut(id.index()) {
            *place = Some(known);
        }
        known
    }

    /// The number of a frame's name, and the rules that match it by its name.
    fn named(&mut self, frame: &Frame) -> (u32, u32) {
        let batch = self.batch;
        let texts = [frame.function, frame.system_name];
        let Some(text) = texts.into_iter().find(|text| !batch.text_of(*text).is_empty()) else {
            let name = flame::frame_name(batch, frame);
            return (self.names.intern(&name), self.matching(By::Name, &name));
        };
        let function =
            *self.by_name.entry(text).or_insert_with(|| self.names.intern(batch.text_of(text)));
        (function, self.text(By::Name, text))
    }

    /// The rules that match a text of the batch.
    fn text(&mut self, by: By, text: TextId) -> u32 {
        if let Some(known) = self.by_text.get(&(by, text)) {
            return *known;
        }
        let matched = self.matching(by, self.batch.text_of(text));
        self.by_text.insert((by, text), matched);
        matched
    }

    fn matching(&mut self, by: By, text: &str) -> u32 {
        let takes =
            |(_, (_, matching, _)): &(u32, &(u32, &Matching, bool))| matching.takes(by, text);
        let matched: Vec<u32> = (0..).zip(&self.rules).filter(takes).map(|(at, _)| at).collect();
        self.matched.intern(&matched)
    }
}
