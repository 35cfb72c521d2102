//! What lines of text show: babeltrace2's options by babeltrace2's names.

use std::env;
use std::io::{self, IsTerminal};

use clap::ValueEnum;
use ctf::format::text::{
    Color, HeaderFields, Names, TextOptions, TextWriter, TimeStyle, ZoneOffset,
};
use jiff::tz::TimeZone;

#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Text")]
pub(crate) struct StyleArgs {
    #[command(flatten)]
    times: TimeArgs,
    /// Take and show times of day in UTC instead of the local zone
    #[arg(long)]
    clock_gmt: bool,
    /// Leave out the time since the line before
    #[arg(long)]
    no_delta: bool,
    /// Which names to show, as a list: payload (arg, args), context (ctx), header, scope, all, none, default
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_name)]
    names: Vec<Names>,
    /// What to show before an event record's name, as a list: trace, trace:hostname, trace:domain, trace:procname,
    /// trace:vpid, loglevel, emf, callsite, all, none, default
    #[arg(long, value_name = "FIELDS", value_delimiter = ',', value_parser = parse_field)]
    fields: Vec<HeaderFields>,
    /// When to use colours
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ColorArg::Auto)]
    color: ColorArg,
}

/// How times are shown; whichever says most wins, as in babeltrace2.
#[derive(Clone, clap::Args)]
struct TimeArgs {
    /// Show times as cycles of the stream's clock
    #[arg(long)]
    clock_cycles: bool,
    /// Show the date before the time of day
    #[arg(long)]
    clock_date: bool,
    /// Show times as seconds since the epoch
    #[arg(long)]
    clock_seconds: bool,
}

impl TimeArgs {
    const fn style(&self) -> TimeStyle {
        match (self.clock_cycles, self.clock_seconds, self.clock_date) {
            (true, _, _) => TimeStyle::Cycles,
            (_, true, _) => TimeStyle::Seconds,
            (_, _, true) => TimeStyle::DateAndTime,
            _ => TimeStyle::TimeOfDay,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ColorArg {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Also in files and pipes
    Always,
    /// Not at all
    Never,
}

impl StyleArgs {
    /// The writer of lines; `to_file`: they do not go to standard output.
    pub(crate) fn writer(&self, to_file: bool) -> TextWriter {
        let options = TextOptions {
            time: self.times.style(),
            delta: !self.no_delta,
            names: joined(&self.names).unwrap_or_default(),
            header: joined(&self.fields).unwrap_or_default(),
            color: self.color(to_file),
            ..TextOptions::default()
        };
        TextWriter::new(options, self.zone_offset())
    }

    /// The zone of times of day.
    pub(crate) fn zone(&self) -> TimeZone {
        if self.clock_gmt { TimeZone::UTC } else { TimeZone::system() }
    }

    fn zone_offset(&self) -> ZoneOffset {
        let zone = self.zone();
        Box::new(move |second| {
            // Times outside of the calendar's range are shown as in UTC.
            jiff::Timestamp::from_second(second).map_or(0, |at| zone.to_offset(at).seconds())
        })
    }

    /// What babeltrace2 leaves its terminal with.
    pub(crate) fn epilogue(&self, to_file: bool) -> &'static str {
        if to_file || self.color(to_file) == Color::Never { "" } else { "\x1b[0m" }
    }

    fn color(&self, to_file: bool) -> Color {
        let wanted = match self.color {
            ColorArg::Always => true,
            ColorArg::Never => false,
            ColorArg::Auto => {
                let refused = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
                let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
                let terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
                terminal && !dumb && !to_file && !refused("NO_COLOR")
            }
        };
        if wanted { Color::Bold } else { Color::Never }
    }
}

fn joined<T: Copy + std::ops::BitOr<Output = T>>(sets: &[T]) -> Option<T> {
    sets.iter().copied().reduce(|all, set| all | set)
}

fn parse_name(text: &str) -> Result<Names, NotAChoice> {
    Ok(match text {
        "payload" | "arg" | "args" => Names::PAYLOAD,
        "context" | "ctx" => Names::CONTEXT,
        "header" => Names::HEADER,
        "scope" => Names::SCOPE,
        "all" => Names::ALL,
        "none" => Names::NONE,
        "default" => Names::default(),
        _ => return Err(NotAChoice("payload, context, header, scope, all, none, default")),
    })
}

fn parse_field(text: &str) -> Result<HeaderFields, NotAChoice> {
    Ok(match text {
        "trace" => HeaderFields::TRACE,
        "trace:hostname" => HeaderFields::HOSTNAME,
        "trace:domain" => HeaderFields::DOMAIN,
        "trace:procname" => HeaderFields::PROCNAME,
        "trace:vpid" => HeaderFields::VPID,
        "loglevel" => HeaderFields::LOG_LEVEL,
        "emf" => HeaderFields::EMF,
        // Taken, and never shown, by babeltrace2 as well: nothing in CTF carries it with an event record.
        "callsite" | "none" => HeaderFields::NONE,
        "all" => HeaderFields::ALL,
        "default" => HeaderFields::default(),
        _ => {
            return Err(NotAChoice(
                "trace, trace:hostname, trace:domain, trace:procname, trace:vpid, loglevel, emf, callsite, all, none, \
                 default",
            ));
        }
    })
}

/// A word that is none of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not one of {0}")]
pub(crate) struct NotAChoice(&'static str);
