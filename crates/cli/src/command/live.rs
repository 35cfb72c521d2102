//! `throughline live`: recording sessions of a relay while they are written.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;
use door::Stream;
use model::Timestamp;
use serde_json::json;
use viewer::{Address, Error, Options, Refusal, Relay, Seek, SessionEntry, TraceFormat, Viewing};

use crate::command::read::progress::Progress;
use crate::command::read::when::{self, NotATime, When};
use crate::command::read::{Format, PrintArgs, Reading, WantedArgs, summary, today};
use crate::command::tls::ShownArgs;
use crate::outcome::{Outcome, complain};
use crate::stop;
use crate::table::{Align, Table};
use crate::units::parse_duration;

/// How long nothing is asked after nothing came.
const PAUSE: Duration = Duration::from_millis(5);

/// Asking takes no more than one part in so many of the time.
const SHARE: u32 = 5;

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How often a session that is waited for is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const EXAMPLES: &str = "\
Examples:
  throughline live                                    the sessions of the relay on this machine
  throughline live relay-1/web-1/shop                 what session shop of host web-1 tells from now on, until it ends
  throughline live --since -5m relay-1/web-1/shop     what it has told for five minutes, and goes on
  throughline live --grep 'ret < 0' --json relay-1:5344/web-1/shop
  throughline live --token-file token tls://relay-1/web-1/shop

Works with the relay of throughline and with lttng-relayd. Exit code 1: there is no such session; some of the data
cannot be read, the rest was; or nothing fits --name or --grep.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The relay, by default on port 5344 (5346 with TLS), and the session to follow; without a session, those that there
    /// are are listed
    #[arg(value_name = "[tls://]HOST[:PORT][/HOSTNAME/SESSION]", default_value = "localhost")]
    address: Address,
    /// Begin with what is there since: -5m, a time as `read --begin` takes it, or `beginning`
    #[arg(long, value_name = "TIME", value_parser = parse_since, allow_hyphen_values = true)]
    since: Option<Since>,
    /// Wait until there is such a session
    #[arg(long)]
    wait: bool,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[command(flatten)]
    shown: ShownArgs,
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    printing: PrintArgs,
}

/// From when on a session is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    Beginning,
    Ago(Duration),
    At(When),
}

fn parse_since(text: &str) -> Result<Since, NotATime> {
    if text == "beginning" {
        return Ok(Since::Beginning);
    }
    let ago = text.strip_prefix('-').and_then(|text| parse_duration(text).ok());
    ago.map_or_else(|| when::parse(text).map(Since::At), |ago| Ok(Since::Ago(ago)))
}

/// SIGINT or SIGTERM: to be waited for, and a flag for those who wait for the relay.
struct Stop {
    asked: Receiver<()>,
    flag: Arc<AtomicBool>,
}

impl Args {
    fn printing(&self) -> PrintArgs {
        let mut printing = self.printing.clone();
        if self.json {
            printing.format = Format::Json;
        }
        printing
    }

    /// What it comes to when it was told to end before there was anything.
    fn nothing_found(&self) -> Outcome {
        if self.wanted.selection(0).is_all() { Outcome::Done } else { Outcome::No }
    }
}

impl Stop {
    fn listen() -> anyhow::Result<Self> {
        let flag = Arc::<AtomicBool>::default();
        Ok(Self { asked: stop::on_signal_set(Arc::clone(&flag))?, flag })
    }

    fn flag(&self) -> viewer::Stop {
        let flag = Arc::clone(&self.flag);
        Box::new(move || flag.load(Ordering::Relaxed))
    }

    /// Waits; gives whether it was asked to end.
    fn within(&self, time: Duration) -> bool {
        !matches!(self.asked.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let stop = Stop::listen()?;
    match view(args, &stop) {
        Err(error) if matches!(error.downcast_ref(), Some(Error::Stopped)) => {
            Ok(args.nothing_found())
        }
        done => done,
    }
}

fn view(args: &Args, stop: &Stop) -> anyhow::Result<Outcome> {
    let settings = args.shown.settings(args.address.is_tls)?;
    let mut relay = Relay::enter(&args.address, &settings, stop.flag())?;
    let Some((hostname, name)) = &args.address.session else {
        return list(args, &relay.sessions()?);
    };
    loop {
        let sessions = relay.sessions()?;
        let is_it =
            |session: &&SessionEntry| (&session.hostname, &session.name) == (hostname, name);
        let found: Vec<SessionEntry> = sessions.iter().filter(is_it).cloned().collect();
        if !found.is_empty() {
            return follow(args, relay, &found, stop);
        }
        if !args.wait {
            complain(&format!(
                "throughline: {}: there is no such session; {}",
                args.address,
                known(&sessions)
            ));
            return Ok(Outcome::No);
        }
        if stop.within(LOOK_EVERY) {
            return Ok(args.nothing_found());
        }
    }
}

/// Which sessions there are, for who named another one.
fn known(sessions: &[SessionEntry]) -> String {
    const NAMED: usize = 10;
    let mut names: Vec<String> = sessions.iter().map(path).collect();
    names.sort_unstable();
    names.dedup();
    match names.len() {
        0 => "the relay has none; --wait waits for it".to_owned(),
        len if len > NAMED => format!("the relay has {len} others; --wait waits for it"),
        _ => format!("there are {}; --wait waits for it", names.join(", ")),
    }
}

fn path(session: &SessionEntry) -> String {
    format!("{}/{}", session.hostname, session.name)
}

fn list(args: &Args, sessions: &[SessionEntry]) -> anyhow::Result<Outcome> {
    let mut out = String::new();
    if args.printing().format == Format::Json {
        for session in sessions {
            let line = json!({
                "hostname": session.hostname,
                "name": session.name,
                "live_timer_us": session.live_timer_us,
                "streams": session.streams,
                "viewers": session.viewers,
                "format": format_name(session.format),
            });
            out.push_str(&format!("{line}\n"));
        }
    } else if !sessions.is_empty() {
        let heading = ["session", "streams", "viewers", "live timer", "format"];
        let right = Align::Right;
        let mut table = Table::new(heading, [Align::Left, right, right, right, Align::Left]);
        for session in sessions {
            let timer = Duration::from_micros(session.live_timer_us.into());
            let timer = if timer.is_zero() { "none".to_owned() } else { format!("{timer:?}") };
            let (streams, viewers) = (session.streams.to_string(), session.viewers.to_string());
            let format = format_name(session.format).to_owned();
            table.row([path(session), streams, viewers, timer, format]);
        }
        table.render("", &mut out);
    }
    args.printing.print(&out).with_context(|| args.printing.unwritten())?;
    if sessions.is_empty() {
        complain(&format!("note: {} has no sessions to show", args.address));
    }
    Ok(Outcome::Done)
}

pub(super) const fn format_name(format: TraceFormat) -> &'static str {
    match format {
        TraceFormat::Ctf1_8 => "CTF 1.8",
        TraceFormat::Ctf2 => "CTF 2",
    }
}

fn follow(
    args: &Args,
    relay: Relay<Stream>,
    sessions: &[SessionEntry],
    stop: &Stop,
) -> anyhow::Result<Outcome> {
    let options = options(args)?;
    let begin = Instant::now();
    let printing = args.printing();
    let selection = args.wanted.selection(0);
    let mut reading = Reading::new(&printing, None, &[], selection, Progress::none())?;
    let mut viewing = relay.view(sessions, options).map_err(|error| refused(args, error))?;
    let ended = loop {
        let polled = Instant::now();
        let progress = viewing.poll(begin.elapsed());
        let took = polled.elapsed();
        if !matches!(progress, Ok(viewer::Progress::Moved | viewer::Progress::Nothing)) {
            viewing.finish();
        }
        drain(&mut viewing, &mut reading).with_context(|| printing.unwritten())?;
        if let Some(doubt) = reading.selection.doubt() {
            complain(&format!("note: --grep: {doubt}, so far"));
        }
        match progress {
            Err(Error::Stopped) | Ok(viewer::Progress::Ended) => break Ok(()),
            Err(error) => break Err(error),
            Ok(_) if reading.is_full() => break Ok(()),
            Ok(viewer::Progress::Nothing) => {
                if stop.within(pause(took)) {
                    viewing.finish();
                    drain(&mut viewing, &mut reading).with_context(|| printing.unwritten())?;
                    break Ok(());
                }
            }
            Ok(viewer::Progress::Moved) => {}
        }
    };
    let found = reading.finish(&printing).with_context(|| printing.unwritten())?;
    summary::tell_late(viewing.late());
    if viewing.short_of_memory() > 0 {
        let packets = viewing.short_of_memory();
        complain(&format!(
            "note: {packets} packets waited because others took all memory for them"
        ));
    }
    let unreadable = summary::tell(viewing.findings());
    ended.with_context(|| args.address.to_string())?;
    Ok(if unreadable || !found { Outcome::No } else { Outcome::Done })
}

/// Prints what can be given.
fn drain(viewing: &mut Viewing<Stream>, reading: &mut Reading) -> io::Result<()> {
    for index in viewing.take_new_streams() {
        let folder = viewing.folder_of(index).map(Path::to_string_lossy).unwrap_or_default();
        reading.printer.name_stream(index, &folder);
    }
    while !reading.is_full()
        && let Some(item) = viewing.next_item()
    {
        reading.take(&item)?;
    }
    reading.printer.flush()
}

/// How long nothing is asked after asking took so long and nothing came.
pub(super) fn pause(took: Duration) -> Duration {
    (took * (SHARE - 1)).clamp(PAUSE, LONGEST_PAUSE)
}

fn options(args: &Args) -> anyhow::Result<Options> {
    let now = || today().context("the clock of this machine cannot be used");
    let begin = match args.since {
        None => return Ok(Options::default()),
        Some(Since::Beginning) => Timestamp::MIN,
        Some(Since::Ago(ago)) => {
            let ago = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
            Timestamp::from_nanos(now()?.nanos().saturating_sub(ago))
        }
        Some(Since::At(when)) => {
            when.resolve(&args.printing.zone(), today).context("--since is no point in time")?
        }
    };
    Ok(Options { seek: Seek::Beginning, begin, ..Options::default() })
}

/// The error, with what to do about it.
fn refused(args: &Args, error: Error) -> anyhow::Error {
    let hint = match error {
        Error::Refused(Refusal::Taken) => "; lttng-relayd serves one viewer for each session",
        Error::Refused(Refusal::NotLive) => "; it was made without `lttng create --live`",
        _ => "",
    };
    let about = format!("{}{hint}", args.address);
    anyhow::Error::from(error).context(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_begin_is_a_length_of_time_or_a_point_in_time() {
        let ago = |text| Ok(Since::Ago(Duration::from_secs(text)));
        assert_eq!(parse_since("-5m"), ago(300));
        assert_eq!(parse_since("-90s"), ago(90));
        assert_eq!(parse_since("beginning"), Ok(Since::Beginning));
        assert_eq!(parse_since("12ns"), Ok(Since::At(When::At(Timestamp::from_nanos(12)))));
        assert_eq!(
            parse_since("-5"),
            Ok(Since::At(When::At(Timestamp::from_nanos(-5_000_000_000))))
        );
        assert_eq!(parse_since("5m"), Err(NotATime::Form));
        assert_eq!(parse_since(""), Err(NotATime::Form));
    }
}
