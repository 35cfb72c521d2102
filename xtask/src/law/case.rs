//! One case: facts, where they are cut, what is missing, and in which order the pieces come.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{CpuId, Fd, Pid, Tid, Timestamp};
use stitch::fact::{Fact, FactKind, TableKey};
use stitch::{
    Cover, Error, Identities, Kind, LookAhead, MAX_LIVES, Part, Question, Subject, Summary, Window,
};

use super::dice::Dice;
use super::kernel_like::{Step, facts};

type Facts = Vec<Fact<&'static str>>;

/// Streams of the small kernel: one for each CPU.
const STREAMS: usize = 3;

#[derive(Debug, Clone)]
pub(super) struct Case {
    seed: u64,
    pub(super) steps: Vec<Step>,
    shape: Shape,
}

/// What kind of case it is.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is thrown by itself")]
struct Shape {
    cuts: Cuts,
    /// Records do not say which thread and process they belong to.
    is_anonymous: bool,
    /// Returns do not say from which call.
    is_nameless: bool,
    /// Each CPU's stream is cut at a time of its own.
    is_ragged: bool,
    /// Chunks begin with state dumps.
    has_dumps: bool,
    /// Phases are nested deeper than a stack keeps.
    is_deep: bool,
    /// Chunks are missing.
    has_gaps: bool,
    /// Summaries are written and read back.
    goes_through_files: bool,
    /// Windows know which threads may be inside a span when they begin.
    knows_spans: bool,
    /// So many lives that ended are kept one by one.
    lives: usize,
    /// After each fact and each merge, files that are gone are added up, as else where there are many.
    adds_up: bool,
}

#[derive(Debug, Clone, Copy)]
enum Cuts {
    /// So many, anywhere.
    Some(usize),
    /// At every time at which something happens.
    Every,
}

/// A stretch of time and what it holds; nothing when it is missing.
struct Piece {
    begin: Timestamp,
    end: Timestamp,
    facts: Option<Facts>,
}

impl Case {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let length = dice.pick([40, 120, 400]);
        let cuts = match dice.below(8) {
            0 => Cuts::Every,
            1..=3 => Cuts::Some(1 + dice.below(2)),
            _ => Cuts::Some(dice.below(20)),
        };
        let length = if matches!(cuts, Cuts::Every) { length / 2 } else { length };
        let mut shape = Shape {
            cuts,
            is_anonymous: dice.once_in(3),
            is_nameless: dice.once_in(6),
            is_ragged: dice.once_in(2),
            has_dumps: dice.once_in(2),
            is_deep: dice.once_in(5),
            has_gaps: dice.once_in(4),
            goes_through_files: dice.once_in(4),
            knows_spans: dice.once_in(2),
            lives: dice.pick([0, 1, 3, MAX_LIVES]),
            adds_up: false,
        };
        let steps = (0..dice.below(length)).map(|_| (dice.byte(), dice.byte(), dice.byte()));
        let steps = steps.collect();
        shape.adds_up = dice.once_in(2);
        Self { seed, steps, shape }
    }

    pub(super) fn facts(&self) -> u64 {
        facts(&self.steps).0.len() as u64
    }

    /// The case for who looks for what is wrong with it.
    pub(super) fn show(&self) -> String {
        let mut text = format!("{:?}\n", self.shape);
        for piece in self.pieces(&mut self.dice()) {
            text += &format!("[{}, {})\n", piece.begin.nanos(), piece.end.nanos());
            match piece.facts {
                Some(facts) => text.extend(facts.iter().map(|fact| format!("  {fact:?}\n"))),
                None => text += "  missing\n",
            }
        }
        text
    }

    /// The dice after the shape was thrown: the same for fewer steps.
    fn dice(&self) -> Dice {
        Dice::new(!self.seed)
    }

    /// Compares the pieces, merged in a random order, with the whole.
    pub(super) fn check(&self, without: Option<Part>) -> Result<(), String> {
        let mut dice = self.dice();
        let pieces = self.pieces(&mut dice);
        let whole = answers(&self.whole(&pieces)?)?;
        let entries: Vec<_> =
            pieces.iter().map(|piece| entry(&pieces, piece.begin, self.nobody())).collect();
        let mut parts = Vec::new();
        for (piece, entry) in pieces.iter().zip(entries) {
            parts.push(self.part(piece, entry, without)?);
        }
        let arrived = arrive(parts, &mut dice, &|left, right| self.merge(left, right))?;
        same("in any order", &whole, &answers(&arrived)?)?;
        let mut chain = Summary::identity();
        for piece in &pieces {
            let first = chain.cover().is_none();
            let mut entry = if first { self.nobody() } else { chain.identities() };
            if first || chain.ends_in_gap() {
                ahead(&pieces, piece.begin).complete(&mut entry);
            }
            let part = self.part(piece, entry, without)?;
            chain = self.merge(chain, part).map_err(|error| format!("in a row: {error}"))?;
        }
        same("in a row", &whole, &answers(&chain)?)
    }

    /// Who is who before the first piece.
    fn nobody(&self) -> Identities {
        match self.shape.knows_spans {
            true => Identities::default().outside_spans(),
            false => Identities::default(),
        }
    }

    /// The summary of a piece.
    fn part(
        &self,
        piece: &Piece,
        entry: Identities,
        without: Option<Part>,
    ) -> Result<Summary, String> {
        let mut summary = self.map(piece, entry, self.shape.adds_up);
        if let Some(part) = without {
            summary = summary.without(part);
        }
        if self.shape.goes_through_files {
            let bytes = summary.to_bytes().map_err(|error| error.to_string())?;
            summary = Summary::from_bytes(&bytes).map_err(|error| error.to_string())?;
        }
        Ok(summary)
    }

    fn map(&self, piece: &Piece, entry: Identities, adds_up: bool) -> Summary {
        let cover = Cover { host: "host".into(), begin: piece.begin, end: piece.end };
        let Some(facts) = &piece.facts else { return Summary::gap(cover) };
        let mut window = Window::after(cover, Arc::new(entry)).keeping_lives(self.shape.lives);
        for fact in facts {
            window.add(fact);
            if adds_up {
                window.add_up_gone();
            }
        }
        window.finish()
    }

    fn merge(&self, left: Summary, right: Summary) -> Result<Summary, Error> {
        let mut merged = left.merge(right)?;
        if self.shape.adds_up {
            merged.add_up_gone();
        }
        Ok(merged)
    }

    /// The interpreter over everything: each run without a gap in one piece.
    fn whole(&self, pieces: &[Piece]) -> Result<Summary, String> {
        let mut whole = Summary::identity();
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let is_gap = first.facts.is_none();
            let more = rest.iter().position(|piece| piece.facts.is_none()).unwrap_or(rest.len());
            let (run, after) = rest.split_at(if is_gap { 1 } else { more });
            let end = run.last().map_or(first.end, |piece| piece.end);
            let facts = run.iter().flat_map(|piece| piece.facts.iter().flatten()).copied();
            let facts = (!is_gap).then(|| facts.collect());
            let run = Piece { begin: first.begin, end, facts };
            let nobody = Identities::default();
            let summary = self.map(&run, entry(pieces, first.begin, nobody), false);
            whole = whole.merge(summary).map_err(|error| format!("the whole: {error}"))?;
            rest = after;
        }
        Ok(whole)
    }

    /// The facts, cut.
    fn pieces(&self, dice: &mut Dice) -> Vec<Piece> {
        let (mut all, end) = facts(&self.steps);
        let begin = Timestamp::from_nanos(0);
        let mut cuts = self.cuts(&all, end, dice);
        if self.shape.has_dumps {
            add_dumps(&mut all, &cuts, dice);
        }
        if self.shape.is_deep {
            deepen(&mut all, dice);
        }
        if self.shape.is_anonymous {
            all.iter_mut().for_each(hide);
        }
        if self.shape.is_nameless {
            all.iter_mut().for_each(leave_out_name);
        }
        // The order that streams give: by time, then by stream.
        all.sort_by_key(|fact| (fact.at, fact.cpu));
        let chunks = if self.shape.is_ragged && matches!(self.shape.cuts, Cuts::Some(_)) {
            let (chunks, clean) = ragged(&all, &cuts, end, dice);
            cuts = clean;
            chunks
        } else {
            vec![all]
        };
        cuts.insert(0, begin);
        cuts.push(end);
        cuts.dedup();
        let bounds = cuts.iter().zip(cuts.iter().skip(1));
        let pieces = bounds.enumerate().map(|(n, (begin, end))| Piece {
            begin: *begin,
            end: *end,
            facts: Some(window(&chunks, n, *begin, *end)),
        });
        let mut pieces: Vec<Piece> = pieces.collect();
        if self.shape.has_gaps && pieces.len() > 1 {
            for piece in &mut pieces {
                if dice.once_in(4) {
                    piece.facts = None;
                }
            }
        }
        pieces
    }

    fn cuts(&self, all: &Facts, end: Timestamp, dice: &mut Dice) -> Vec<Timestamp> {
        let length = usize::try_from(end.nanos()).unwrap_or(0);
        let mut at = |_| Timestamp::from_nanos(dice.below(length) as i64);
        let mut cuts: Vec<Timestamp> = match self.shape.cuts {
            Cuts::Every => all.iter().map(|fact| fact.at).collect(),
            Cuts::Some(count) => (0..count).map(&mut at).collect(),
        };
        cuts.retain(|cut| *cut > Timestamp::from_nanos(0) && *cut < end);
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }
}

/// What a tracer without contexts writes: whoever has the CPU caused it.
fn hide(fact: &mut Fact<&'static str>) {
    fact.pid = None;
    let is_span = matches!(fact.kind, FactKind::SpanBegin(_) | FactKind::SpanEnd(_));
    let tells_thread = matches!(fact.kind, FactKind::Exec { old: Some(_), .. });
    if !is_span && !tells_thread && fact.tid.is_some_and(|tid| tid != Tid::IDLE) {
        fact.tid = None;
    }
}

/// What a tracer writes that has one event for all returns.
fn leave_out_name(fact: &mut Fact<&'static str>) {
    if let FactKind::CallExit { name, opened, address, pair, .. } = &mut fact.kind {
        (*name, *opened, *address, *pair) = ("", None, None, None);
    }
}

/// Some phases begin many times in a row, and end as often.
fn deepen(all: &mut Facts, dice: &mut Dice) {
    let mut more: BTreeMap<(Option<Tid>, &str), usize> = BTreeMap::new();
    let mut deep = Vec::with_capacity(all.len());
    for fact in all.drain(..) {
        let times = match fact.kind {
            FactKind::SpanBegin(span) if !span.is_request => {
                let times = if dice.once_in(2) { 8 + dice.below(8) } else { 0 };
                *more.entry((fact.tid, span.name)).or_default() += times;
                times
            }
            FactKind::SpanEnd(span) => more.remove(&(fact.tid, span.name)).unwrap_or(0),
            _ => 0,
        };
        deep.extend(std::iter::repeat_n(fact, times + 1));
    }
    *all = deep;
}

/// State dumps right after cuts: some threads with their process, some descriptors, by process or by table.
fn add_dumps(all: &mut Facts, cuts: &[Timestamp], dice: &mut Dice) {
    let mut processes: BTreeMap<Tid, Pid> = BTreeMap::new();
    let mut dumps = Vec::new();
    let mut facts = all.iter().peekable();
    for cut in cuts {
        while let Some(fact) = facts.next_if(|fact| fact.at < *cut) {
            processes.extend(fact.tid.zip(fact.pid));
            if let FactKind::Fork { child, child_pid, .. } = fact.kind {
                processes.insert(child, child_pid);
            }
        }
        if dice.once_in(2) {
            continue;
        }
        let dump = |kind| Fact { at: *cut, cpu: None, tid: None, pid: None, kind };
        let address = |pid: Pid| TableKey::new(0xffff_0000 + u64::from(pid.get().unsigned_abs()));
        for (tid, pid) in processes.iter().filter(|(tid, _)| **tid != Tid::IDLE) {
            if dice.once_in(3) {
                continue;
            }
            let table = dice.once_in(2).then(|| address(*pid));
            let comm = dice.pick(["dumped", "again"]);
            dumps.push(dump(FactKind::DumpThread { tid: *tid, pid: Some(*pid), table, comm }));
            let named = dice.once_in(2);
            dumps.push(dump(FactKind::DumpFd {
                pid: named.then_some(*pid),
                table: Some(address(*pid)),
                fd: Fd::new(i32::try_from(dice.below(4)).unwrap_or(0)),
                name: dice.pick(["/data/dumped", "/data/other"]),
                kind: Kind::Regular,
            }));
        }
    }
    all.extend(dumps);
}

/// Chunks whose streams end at times of their own, as a rotation leaves them, and the clean cuts between them: where the
/// last stream of each chunk ended. Chunk `n + 1` begins on every stream before chunk `n + 2` does on any.
fn ragged(
    all: &Facts,
    cuts: &[Timestamp],
    end: Timestamp,
    dice: &mut Dice,
) -> (Vec<Facts>, Vec<Timestamp>) {
    let mut ends: Vec<[Timestamp; STREAMS]> = Vec::new();
    let mut clean = Vec::new();
    for (n, cut) in cuts.iter().enumerate() {
        let latest = cuts.get(n + 1).copied().unwrap_or(end).nanos();
        let room = usize::try_from(latest - cut.nanos()).unwrap_or(0);
        let own = [(); STREAMS]
            .map(|()| Timestamp::from_nanos(cut.nanos() + dice.below(room.min(200)) as i64));
        clean.extend(own.iter().max());
        ends.push(own);
    }
    let mut chunks: Vec<Facts> = vec![Vec::new(); cuts.len() + 1];
    for fact in all {
        let stream = fact.cpu.map_or(0, |cpu: CpuId| cpu.get() as usize % STREAMS);
        let at = ends.partition_point(|own| own.get(stream).is_some_and(|end| *end <= fact.at));
        if let Some(chunk) = chunks.get_mut(at) {
            chunk.push(*fact);
        }
    }
    (chunks, clean)
}

/// What a window holds: from its own chunk and the head of the next, in order. All chunks are one where they are not ragged.
fn window(chunks: &[Facts], n: usize, begin: Timestamp, end: Timestamp) -> Facts {
    let from = if chunks.len() == 1 { 0 } else { n };
    let read = chunks.iter().skip(from).take(2).flatten();
    let mut facts: Facts = read.filter(|fact| begin <= fact.at && fact.at < end).copied().collect();
    facts.sort_by_key(|fact| (fact.at, fact.cpu));
    facts
}

/// The pieces of the run without a gap that `at` lies in.
fn run_of(pieces: &[Piece], at: Timestamp) -> &[Piece] {
    let split = pieces.partition_point(|piece| piece.begin <= at);
    let (before, after) = pieces.split_at(split);
    let begin = before.iter().rposition(|piece| piece.facts.is_none()).map_or(0, |gap| gap + 1);
    let more = after.iter().position(|piece| piece.facts.is_none()).unwrap_or(after.len());
    pieces.get(begin..split + more).unwrap_or_default()
}

/// Who had each CPU before its first switch, in the run that `at` lies in.
fn ahead(pieces: &[Piece], at: Timestamp) -> LookAhead {
    let run = run_of(pieces, at);
    let mut ahead = LookAhead::new(run.first().map_or(at, |piece| piece.begin));
    run.iter().flat_map(|piece| piece.facts.iter().flatten()).for_each(|fact| ahead.take(fact));
    ahead
}

/// Who is who at a time, from all facts.
fn entry(pieces: &[Piece], at: Timestamp, before: Identities) -> Identities {
    let mut known = before;
    for piece in pieces.iter().take_while(|piece| piece.begin < at) {
        match &piece.facts {
            Some(facts) => facts.iter().for_each(|fact| known.learn(fact)),
            None => known.forget_cpus(),
        }
    }
    ahead(pieces, at).complete(&mut known);
    known
}

/// Takes parts in in a random order; neighbours merge sooner or later. A part that comes twice must be refused.
fn arrive(
    mut parts: Vec<Summary>,
    dice: &mut Dice,
    merge: &impl Fn(Summary, Summary) -> Result<Summary, Error>,
) -> Result<Summary, String> {
    let mut forest: BTreeMap<Timestamp, Summary> = BTreeMap::new();
    let failed = |error: Error| format!("in any order: {error}");
    let again = parts.get(dice.below(parts.len())).cloned();
    while !parts.is_empty() {
        let part = parts.swap_remove(dice.below(parts.len()));
        let Some(cover) = part.cover().cloned() else { continue };
        let mut merged = part;
        if dice.once_in(2) {
            let left = forest.range(..cover.begin).next_back();
            let touches = |left: &Summary| left.cover().is_some_and(|c| c.end == cover.begin);
            let left = left.filter(|(_, left)| touches(left)).map(|(begin, _)| *begin);
            if let Some(left) = left.and_then(|begin| forest.remove(&begin)) {
                merged = merge(left, merged).map_err(failed)?;
            }
        }
        if dice.once_in(2)
            && let Some(right) = forest.remove(&cover.end)
        {
            merged = merge(merged, right).map_err(failed)?;
        }
        let begin = merged.cover().map_or(cover.begin, |cover| cover.begin);
        forest.insert(begin, merged);
    }
    let mut rest: Vec<Summary> = forest.into_values().collect();
    while rest.len() > 1 {
        let at = dice.below(rest.len() - 1);
        let right = rest.remove(at + 1);
        let Some(left) = rest.get_mut(at) else { break };
        *left = merge(std::mem::take(left), right).map_err(failed)?;
    }
    let all = rest.pop().unwrap_or_default();
    match again.map(|again| all.clone().merge(again)) {
        None | Some(Err(Error::CoveredTwice { .. })) => Ok(all),
        Some(other) => Err(format!("the same part twice: {:?}", other.map(|_| ()))),
    }
}

fn answers(summary: &Summary) -> Result<String, String> {
    let phases = serde_json::to_string_pretty(&stitch::phases(summary));
    let syscalls = serde_json::to_string_pretty(&stitch::syscalls(summary));
    let text = |text: serde_json::Result<String>| text.map_err(|error| error.to_string());
    Ok(text(phases)? + "\n" + &text(syscalls)? + "\n" + &tables(summary))
}

/// Every table, a line for each row.
fn tables(summary: &Summary) -> String {
    let question = Question::default();
    let tables = Subject::ALL.iter().flat_map(|of| stitch::tables(summary, *of, &question));
    let rows = tables.flat_map(|table| {
        let name = table.class.name;
        table.rows.into_iter().map(move |row| format!("{name} {row:?}\n"))
    });
    rows.collect()
}

/// The first line that differs, if one does.
fn same(order: &str, whole: &str, stitched: &str) -> Result<(), String> {
    if whole == stitched {
        return Ok(());
    }
    let mut lines = whole.lines().zip(stitched.lines()).enumerate();
    let (at, (one, other)) = lines.find(|(_, (a, b))| a != b).unwrap_or_default();
    let (one, other) = (one.trim(), other.trim());
    Err(format!("{order}: line {at} of the answer is `{other}`, of the whole `{one}`"))
}
