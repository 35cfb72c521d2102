//! `throughline read PATH…`: the event records of any recording, merged in time.

mod when;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use ctf::format::json::JsonWriter;
use ctf::format::text::{HeaderFields, Names, TextOptions, TextWriter, TimeStyle, ZoneOffset};
use ctf::format::{Output, StreamText};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::tz::TimeZone;
use model::{TimeRange, Timestamp};
use tracedir::{Event, Findings, Item, Loss, LossKind, Merged, PacketEnds, Recording};

use crate::outcome::{Outcome, complain};

const EXAMPLES: &str = "\
Examples:
  throughline read session/                       all event records below a folder, as text
  throughline read --count archives/*             how many there are
  throughline read --format json --name 'sched_*' kernel/
  throughline read --begin 2026-11-20T16:44:07 --end 1795193048.5 session/

Exit code 1: some of the data cannot be read; the rest was.";

/// Output is written in pieces of about this many bytes.
const PIECE: usize = 64 << 10;

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folders with traces in or below them: sessions, chunks, single traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How event records are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print only how many event records there are
    #[arg(long)]
    count: bool,
    /// Leave out what is earlier: nanoseconds or seconds since the epoch, or a date and time
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    begin: Option<Timestamp>,
    /// Leave out what is at this time or later
    #[arg(long, value_name = "TIME", value_parser = when::parse)]
    end: Option<Timestamp>,
    /// Only event records of this name; `*` stands for any characters, and the option may be repeated
    #[arg(long = "name", value_name = "PATTERN")]
    names: Vec<String>,
    #[command(flatten)]
    text: TextArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines as babeltrace2 prints them
    Text,
    /// One JSON object a line
    Json,
    /// Nothing: reads and checks everything
    None,
}

#[derive(clap::Args)]
#[command(next_help_heading = "Text")]
struct TextArgs {
    /// Show times as seconds since the epoch
    #[arg(long)]
    clock_seconds: bool,
    /// Show times of day in UTC instead of the local zone
    #[arg(long)]
    clock_gmt: bool,
    /// Leave out the time since the line before
    #[arg(long)]
    no_delta: bool,
    /// Which names to show
    #[arg(long = "names", value_enum, default_value_t = NamesArg::Default, value_name = "WHICH")]
    shown_names: NamesArg,
    /// What to show before an event record's name
    #[arg(long, value_enum, default_value_t = FieldsArg::Default, value_name = "WHICH")]
    fields: FieldsArg,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NamesArg {
    /// Those of fields
    Default,
    /// Also those of scopes and of what precedes them
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FieldsArg {
    /// Host, process name and process id
    Default,
    /// Also domain, log level and EMF URI
    All,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let range = TimeRange {
        begin: args.begin.unwrap_or(Timestamp::MIN),
        end: args.end.unwrap_or(Timestamp::MAX),
    };
    let recording = Recording::open(&args.paths).context("cannot read")?;
    // Text is the reference's, also where its order is its own.
    let packet_ends = match args.format {
        Format::Text => PacketEnds::Awaited,
        Format::Json | Format::None => PacketEnds::Passed,
    };
    let mut merged = recording.merged_with(range, packet_ends);
    let mut printer = Printer::new(args, recording.streams().len());
    let summary = read(&mut merged, &args.names, &mut printer)?;
    printer.finish()?;
    if args.count {
        writeln!(io::stdout().lock(), "{}", summary.events)?;
    }
    summary.complain(merged.backward());
    let unreadable = tell(recording.findings()) | tell(merged.findings());
    Ok(if unreadable { Outcome::No } else { Outcome::Done })
}

fn read(
    merged: &mut Merged<'_>,
    names: &[String],
    printer: &mut Printer,
) -> anyhow::Result<Summary> {
    let mut summary = Summary::default();
    let mut progress = Progress::new();
    while let Some(item) = merged.next_item() {
        match item {
            Item::Event(event) => {
                if !names.is_empty() && !names.iter().any(|p| matches(p, event.record.name())) {
                    continue;
                }
                summary.events += 1;
                printer.event(&event)?;
                progress.at(summary.events);
            }
            Item::Loss(loss) => {
                printer.flush()?;
                summary.add(&loss);
            }
        }
    }
    progress.finish();
    Ok(summary)
}

/// What a reading came to.
#[derive(Default)]
struct Summary {
    events: u64,
    lost_events: u64,
    lost_packets: u64,
    losses: u64,
}

impl Summary {
    /// The most losses that are named one by one.
    const NAMED: u64 = 20;

    fn add(&mut self, loss: &Loss<'_>) {
        let what = match loss.kind {
            LossKind::EventRecords => {
                self.lost_events += loss.count;
                "event records"
            }
            LossKind::Packets => {
                self.lost_packets += loss.count;
                "packets"
            }
        };
        self.losses += 1;
        if self.losses <= Self::NAMED {
            let key = loss.stream.key();
            let instance = key.instance_id.map_or_else(|| "-".to_owned(), |id| id.to_string());
            complain(&format!(
                "lost: {} {what} between {} and {} ns, stream class {}, stream {instance}",
                loss.count,
                loss.begin.nanos(),
                loss.end.nanos(),
                key.class_id,
            ));
        }
    }

    fn complain(&self, backward: u64) {
        if self.losses > Self::NAMED {
            complain(&format!(
                "lost: {} event records and {} packets at {} places in all",
                self.lost_events, self.lost_packets, self.losses
            ));
        }
        if backward > 0 {
            complain(&format!(
                "time went backwards: {backward} event records are earlier than what precedes them in their stream"
            ));
        }
    }
}

/// Says what could not be read, if anything.
fn tell(findings: &Findings) -> bool {
    findings.kept().iter().for_each(|finding| complain(&format!("unreadable: {finding}")));
    if findings.more() > 0 {
        complain(&format!("unreadable: {} more", findings.more()));
    }
    !findings.is_empty()
}

/// Whether `name` fits a pattern in which `*` stands for any characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    true
}

/// Prints event records through one buffer.
struct Printer {
    writer: Writer,
    out: Output,
    /// Of each stream: which packet it is in, and what its lines have in common.
    streams: Vec<(u64, StreamText)>,
}

enum Writer {
    Text(Box<TextWriter>),
    Json(JsonWriter),
    Nothing,
}

impl Printer {
    fn new(args: &Args, streams: usize) -> Self {
        let writer = match args.format {
            _ if args.count => Writer::Nothing,
            Format::None => Writer::Nothing,
            Format::Json => Writer::Json(JsonWriter::new()),
            Format::Text => Writer::Text(Box::new(text_writer(&args.text))),
        };
        let streams = vec![(u64::MAX, StreamText::default()); streams];
        Self { writer, out: Output::with_capacity(2 * PIECE), streams }
    }

    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        if matches!(self.writer, Writer::Nothing) {
            return Ok(());
        }
        let Some((packet, stream)) = self.streams.get_mut(event.stream_index) else {
            return Ok(());
        };
        let entered = std::mem::replace(packet, event.packet_index) != event.packet_index;
        match &mut self.writer {
            Writer::Text(writer) => {
                if entered {
                    writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
                }
                writer.write(&event.record, stream, &mut self.out);
            }
            Writer::Json(writer) => {
                if entered {
                    writer.enter_packet(stream, |fields| event.visit_packet_context(fields));
                }
                writer.write(&event.record, stream, &mut self.out);
            }
            Writer::Nothing => {}
        }
        if self.out.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush_to(&mut io::stdout().lock())
    }

    fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        io::stdout().lock().flush()
    }
}

fn text_writer(args: &TextArgs) -> TextWriter {
    let options = TextOptions {
        time: if args.clock_seconds { TimeStyle::Seconds } else { TimeStyle::TimeOfDay },
        delta: !args.no_delta,
        names: match args.shown_names {
            NamesArg::Default => Names::default(),
            NamesArg::All => Names::ALL,
        },
        header: match args.fields {
            FieldsArg::Default => HeaderFields::default(),
            FieldsArg::All => {
                HeaderFields::default()
                    | HeaderFields::DOMAIN
                    | HeaderFields::LOG_LEVEL
                    | HeaderFields::EMF
            }
        },
        ..TextOptions::default()
    };
    TextWriter::new(options, if args.clock_gmt { Box::new(|_| 0) } else { local_zone() })
}

fn local_zone() -> ZoneOffset {
    let zone = TimeZone::system();
    Box::new(move |second| {
        // Times outside of the calendar's range are shown as in UTC.
        jiff::Timestamp::from_second(second).map_or(0, |at| zone.to_offset(at).seconds())
    })
}

/// How far the reading is, on a terminal whose output goes elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    const EVERY: u64 = 1 << 16;

    fn new() -> Self {
        let shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
        Self(shown.then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {human_pos} event records, {per_sec}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    fn at(&self, events: u64) {
        if let Some(bar) = self.0.as_ref().filter(|_| events.is_multiple_of(Self::EVERY)) {
            bar.set_position(events);
        }
    }

    fn finish(&mut self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("sched_switch", "sched_switch", true),
            ("sched_switch", "sched_switches", false),
            ("sched_*", "sched_switch", true),
            ("sched_*", "my_sched_switch", false),
            ("*switch", "sched_switch", true),
            ("*_*", "sched_switch", true),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("ab*ba", "aba", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} against {name}");
        }
    }
}
