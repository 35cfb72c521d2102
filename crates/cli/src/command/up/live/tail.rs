//! One page that follows one session.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ctf::Scope;
use ctf::filter::Filter;
use ctf::format::text::{HeaderFields, TextOptions, TextWriter, TimeStyle};
use ctf::format::{Output, StreamText};
use model::{Timestamp, with_causes};
use relay::NetworkLosses;
use server::live::{
    Begin, Lost, MAX_STREAMS_TOLD, StreamState, TailEvent, TailRequest, TailSender, TailState,
};
use tracedir::{Event, Item, LossKind};
use viewer::{Address, Error, Memory, Options, Progress, Relay, Seek, SessionEntry, Viewing};

use crate::command::live::pause;
use crate::command::read::select::Selection;
use crate::command::read::today;

/// How often a page is told how the tail stands.
const STATE_EVERY: Duration = Duration::from_millis(500);

/// How long nothing is asked after nothing came: a page draws ten times a second.
const PAUSE: Duration = Duration::from_millis(50);

/// Follows until the session ends or the page leaves.
pub(super) fn run(
    relay: &Address,
    memory: Memory,
    losses: &NetworkLosses,
    request: &TailRequest,
    filter: Option<Filter>,
    page: TailSender,
) {
    let page = Arc::new(page);
    let network = Network::new(|| losses.of(&request.host, &request.session), request.begin);
    let options = Options { memory, ..options(request.begin) };
    let why = match follow(relay, request, options, filter, network, &page) {
        Ok(why) => why.to_owned(),
        Err(error) => with_causes(&error),
    };
    page.end(&why);
}

/// Gives why there is no more.
fn follow(
    relay: &Address,
    request: &TailRequest,
    options: Options,
    filter: Option<Filter>,
    network: Network<impl Fn() -> Losses>,
    page: &Arc<TailSender>,
) -> Result<&'static str, Error> {
    let watch = Arc::clone(page);
    let mut relay = Relay::connect(relay, Box::new(move || watch.is_left()))?;
    let is_it = |session: &SessionEntry| {
        (&session.hostname, &session.name) == (&request.host, &request.session)
    };
    let sessions: Vec<SessionEntry> = relay.sessions()?.into_iter().filter(is_it).collect();
    if sessions.is_empty() {
        return Ok("there is no such session, or not any more");
    }
    let limit = options.memory.limit_bytes();
    let mut viewing = relay.view(&sessions, options)?;
    let mut tail = Tail::new(Selection::new(&request.names, filter, 0), network, limit, page);
    let begin = Instant::now();
    loop {
        let polled = Instant::now();
        let progress = viewing.poll(begin.elapsed());
        let took = polled.elapsed();
        if !matches!(progress, Ok(Progress::Moved | Progress::Nothing)) {
            viewing.finish();
        }
        tail.drain(&mut viewing, begin);
        match progress {
            Err(Error::Stopped) => return Ok("the page does not read"),
            Err(error) => {
                tail.tell(&viewing, begin);
                return Err(error);
            }
            Ok(Progress::Ended) => {
                tail.tell(&viewing, begin);
                return Ok("the session has ended");
            }
            Ok(_) if page.is_left() => return Ok("the page does not read"),
            Ok(Progress::Nothing) => {
                tail.tell_at_times(&viewing, begin);
                thread::park_timeout(pause(took).max(PAUSE));
            }
            Ok(Progress::Moved) => tail.tell_at_times(&viewing, begin),
        }
    }
}

fn options(begin: Begin) -> Options {
    let begin = match begin {
        Begin::Now => return Options::default(),
        Begin::Beginning => Timestamp::MIN,
        Begin::Ago(ago) => {
            let ago = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
            // Without a clock, everything that is kept.
            today().map_or(Timestamp::MIN, |now| {
                Timestamp::from_nanos(now.nanos().saturating_sub(ago))
            })
        }
    };
    Options { seek: Seek::Beginning, begin, ..Options::default() }
}

/// What a page was told.
struct Tail<'p, L> {
    page: &'p TailSender,
    selection: Selection,
    network: Network<L>,
    lines: Lines,
    state: TailState,
    /// What was lost of streams that ended and whose places others have.
    ended: Lost,
    limit_bytes: u64,
    /// The files of streams, by stream.
    files: Vec<String>,
    told: Option<Instant>,
}

impl<'p, L: Fn() -> Losses> Tail<'p, L> {
    fn new(
        selection: Selection,
        network: Network<L>,
        limit_bytes: u64,
        page: &'p TailSender,
    ) -> Self {
        let (state, ended) = (TailState::default(), Lost::default());
        let (files, lines, told) = (Vec::new(), Lines::new(), None);
        Self { page, selection, network, lines, state, ended, limit_bytes, files, told }
    }

    /// Takes everything that can be given. What there is to give is bounded by the packets that were fetched; a page that
    /// leaves meanwhile, or waits for its counts, is not kept waiting for all of it.
    fn drain(&mut self, viewing: &mut Viewing<TcpStream>, begin: Instant) {
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        self.meet(viewing);
        // By time and not by events: a condition may take long over each.
        let mut looked = Instant::now();
        while let Some(item) = viewing.next_item() {
            self.take(&item);
            if looked.elapsed() >= LOOK_EVERY {
                looked = Instant::now();
                if self.page.is_left() {
                    return;
                }
                self.tell_at_times(viewing, begin);
            }
        }
        if let Some(doubt) = self.selection.doubt() {
            self.page.note(&format!("{doubt}, so far"));
        }
    }

    /// Takes note of streams that have appeared.
    fn meet(&mut self, viewing: &mut Viewing<TcpStream>) {
        let new = viewing.take_new_streams();
        if !new.is_empty() {
            // Before any of them takes the place of one that ended.
            self.network.look(&mut self.state.streams);
        }
        for index in new {
            let path = viewing.path_of(index).unwrap_or(Path::new(""));
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let path = path.to_string_lossy().into_owned();
            let stream = StreamState { path, ..StreamState::default() };
            if self.files.len() <= index {
                self.files.resize(index + 1, String::new());
                self.state.streams.resize(index + 1, StreamState::default());
            }
            let places = self.files.get_mut(index).zip(self.state.streams.get_mut(index));
            if let Some((known_file, known)) = places {
                *known_file = file;
                self.ended.add(&std::mem::replace(known, stream));
            }
            self.lines.forget(index);
        }
    }

    fn take(&mut self, item: &Item<'_>) {
        match item {
            Item::Event(event) => {
                self.state.events += 1;
                if let Some(stream) = self.state.streams.get_mut(event.stream_index) {
                    stream.events += 1;
                }
                if self.selection.takes(event) {
                    self.state.matched += 1;
                    let file = self.files.get(event.stream_index).map_or("", String::as_str);
                    let name = event.record.name();
                    let fields = self.lines.fields(event);
                    let (context, payload) = match event.record.has(Scope::Payload) {
                        true => split(&fields),
                        false => (fields.as_str(), ""),
                    };
                    self.page.event(&TailEvent {
                        at_ns: event.timestamp.nanos(),
                        stream: file,
                        name,
                        payload: bare(payload),
                        context,
                    });
                }
            }
            Item::Loss(loss) => {
                let Some(stream) = self.state.streams.get_mut(loss.stream_index) else { return };
                match loss.kind {
                    LossKind::EventRecords => stream.lost_events += loss.count,
                    LossKind::Packets => stream.lost_packets += loss.count,
                }
            }
        }
    }

    fn tell_at_times(&mut self, viewing: &Viewing<TcpStream>, begin: Instant) {
        if self.told.is_none_or(|told| told.elapsed() >= STATE_EVERY) {
            self.tell(viewing, begin);
        }
    }

    /// Tells how it stands; of many streams, only the busiest one by one.
    fn tell(&mut self, viewing: &Viewing<TcpStream>, begin: Instant) {
        self.told = Some(Instant::now());
        self.state.at_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.state.late = viewing.late();
        let findings = viewing.findings();
        self.state.unreadable = findings.kept().len() as u64 + findings.more();
        self.network.look(&mut self.state.streams);
        self.state.lost = self.ended;
        self.state.streams.iter().for_each(|stream| self.state.lost.add(stream));
        if viewing.short_of_memory() > 0 {
            let limit = self.limit_bytes >> 20;
            self.page.note(&format!("packets waited: all live views together take {limit} MiB"));
        }
        if self.state.streams.len() <= MAX_STREAMS_TOLD {
            return self.page.state(&self.state);
        }
        let mut state = self.state.clone();
        state.streams.sort_by_key(|stream| std::cmp::Reverse(stream.events));
        state.more_streams = (state.streams.len() - MAX_STREAMS_TOLD) as u64;
        state.streams.truncate(MAX_STREAMS_TOLD);
        self.page.state(&state);
    }
}

/// Packets lost by the path of their stream.
type Losses = BTreeMap<PathBuf, u64>;

/// Which of the packets that are absent the network lost, as the relay knows it.
struct Network<L> {
    losses: L,
    /// What was lost before the tail began.
    before: Losses,
}

impl<L: Fn() -> Losses> Network<L> {
    fn new(losses: L, begin: Begin) -> Self {
        let before = if begin == Begin::Beginning { Losses::new() } else { losses() };
        Self { losses, before }
    }

    /// The relay forgets a session that is over: what was known of it stays.
    fn look(&self, streams: &mut [StreamState]) {
        let losses = (self.losses)();
        if losses.is_empty() {
            return;
        }
        for stream in streams {
            let path = Path::new(&stream.path);
            let of = |losses: &Losses| losses.get(path).copied().unwrap_or(0);
            let lost = of(&losses).saturating_sub(of(&self.before));
            stream.lost_packets_network = stream.lost_packets_network.max(lost);
        }
    }
}

/// The fields of event records as `throughline read` prints them.
struct Lines {
    writer: TextWriter,
    out: Output,
    /// Of each stream: which packet it is in, and what its lines have in common.
    streams: Vec<Option<(u64, StreamText)>>,
}

impl Lines {
    fn new() -> Self {
        let options = TextOptions {
            time: TimeStyle::Cycles,
            delta: false,
            header: HeaderFields::NONE,
            ..TextOptions::default()
        };
        let writer = TextWriter::new(options, Box::new(|_| 0));
        Self { writer, out: Output::new(), streams: Vec::new() }
    }

    /// A stream begins that may have the index of one that ended.
    fn forget(&mut self, index: usize) {
        if let Some(stream) = self.streams.get_mut(index) {
            *stream = None;
        }
    }

    fn fields(&mut self, event: &Event<'_>) -> String {
        let index = event.stream_index;
        if self.streams.len() <= index {
            self.streams.resize(index + 1, None);
        }
        let Some(slot) = self.streams.get_mut(index) else { return String::new() };
        let (packet, stream) = slot.get_or_insert_with(|| (u64::MAX, StreamText::new("")));
        if std::mem::replace(packet, event.packet_index) != event.packet_index {
            self.writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
        }
        self.out.clear();
        self.writer.write(&event.record, stream, &mut self.out);
        let line = String::from_utf8_lossy(self.out.as_bytes());
        without_head(&line, event.record.name()).to_owned()
    }
}

/// A line `[CYCLES] NAME: FIELDS` from its fields on.
fn without_head<'l>(line: &'l str, name: &str) -> &'l str {
    let is_stamp = |text: &str| text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    let line = line.trim_end_matches('\n');
    let rest = match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
        Some((cycles, rest)) if is_stamp(cycles) => rest,
        _ => line,
    };
    let name = if name.is_empty() { "<unknown>" } else { name };
    let rest = rest.strip_prefix(name).unwrap_or(rest);
    rest.strip_prefix(':').unwrap_or(rest).trim_start_matches(' ')
}

/// `{ CONTEXT }, …, { PAYLOAD }` as contexts and payload: in front of and behind the last comma between them.
fn split(fields: &str) -> (&str, &str) {
    let (mut depth, mut is_text, mut is_escaped, mut last) = (0_u32, false, false, None);
    for (at, byte) in fields.bytes().enumerate() {
        match byte {
            _ if std::mem::take(&mut is_escaped) => {}
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            _ if is_text => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => last = Some(at),
            _ => {}
        }
    }
    last.and_then(|at| Some((fields.get(..at)?, fields.get(at..)?.trim_start_matches([',', ' ']))))
        .unwrap_or(("", fields))
}

/// Fields without the braces around all of them.
fn bare(fields: &str) -> &str {
    let inner = fields.strip_prefix("{ ").and_then(|fields| fields.strip_suffix(" }"));
    inner.unwrap_or(fields)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_network_lost_what_the_relay_says_since_the_tail_began() {
        let known = RefCell::new(Losses::from([("a".into(), 2)]));
        let losses = || known.borrow().clone();
        let (whole, late) =
            (Network::new(losses, Begin::Beginning), Network::new(losses, Begin::Now));
        let stream = |path: &str| StreamState { path: path.to_owned(), ..StreamState::default() };
        let lost = |network: &Network<_>, streams: &mut [StreamState]| -> Vec<u64> {
            network.look(streams);
            streams.iter().map(|stream| stream.lost_packets_network).collect()
        };
        let (mut of_whole, mut of_late) = (["a", "b"].map(stream), ["a", "b"].map(stream));
        assert_eq!(lost(&whole, &mut of_whole), [2, 0]);
        assert_eq!(lost(&late, &mut of_late), [0, 0]);
        known.replace(Losses::from([("a".into(), 5), ("b".into(), 1), ("c".into(), 9)]));
        assert_eq!(lost(&whole, &mut of_whole), [5, 1]);
        assert_eq!(lost(&late, &mut of_late), [3, 1]);
        known.replace(Losses::new());
        assert_eq!(lost(&late, &mut of_late), [3, 1]);
    }

    #[test]
    fn the_payload_is_what_stands_behind_the_last_comma_between_structures() {
        for (fields, context, payload) in [
            ("{ a = 1, b = 2 }", "", "{ a = 1, b = 2 }"),
            ("{ c = 0 }, { a = 1, b = 2 }", "{ c = 0 }", "{ a = 1, b = 2 }"),
            (
                r#"{ c = 0 }, { v = "}, {" }, { a = "\\\", }, {" }"#,
                r#"{ c = 0 }, { v = "}, {" }"#,
                r#"{ a = "\\\", }, {" }"#,
            ),
            ("{ c = 0 }, { }", "{ c = 0 }", "{ }"),
            (
                "{ c = [ [0] = 1, [1] = 2 ] }, { a = { b = 1 } }",
                "{ c = [ [0] = 1, [1] = 2 ] }",
                "{ a = { b = 1 } }",
            ),
            ("", "", ""),
        ] {
            assert_eq!(split(fields), (context, payload), "{fields}");
        }
        assert_eq!((bare("{ a = 1 }"), bare("{ }"), bare("")), ("a = 1", "{ }", ""));
    }

    #[test]
    fn a_line_without_its_head_is_its_fields() {
        for (line, name, fields) in [
            (
                "[00000000000000000012] a:b: { x = 1 }, { s = \"] a:b: \" }\n",
                "a:b",
                "{ x = 1 }, { s = \"] a:b: \" }",
            ),
            ("[00000000000000000012] a: \n", "a", ""),
            ("a: { x = 1 }\n", "a", "{ x = 1 }"),
            ("[1] odd: { x = [ [0] = 1 ] }\n", "[1] odd", "{ x = [ [0] = 1 ] }"),
            ("[00000000000000000012] <unknown>: { x = 1 }\n", "", "{ x = 1 }"),
        ] {
            assert_eq!(without_head(line, name), fields, "{line}");
        }
    }
}
