//! `throughline rules`: what rules make of profiles, without a store that runs.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::Subcommand;
use export::Prefix;
use jiff::tz::TimeZone;
use model::Timestamp;
use objects::Io;
use rules::{Book, Reason, Rule, Version};
use server::profiles::ONLY_TENANT;
use store::backfill::{Filled, MAX_SUMS, Wanted, backfill};
use store::cells::Grid;
use store::lake::Reader;
use store::lake::name::Tenant;

use super::read::when::{self, When};
use super::store::{grid, read_rules, series_limits};
use crate::outcome::{Outcome, complain};
use crate::units::{parse_duration, rfc3339};

const EXAMPLES: &str = "\
Examples:
  throughline rules backfill --rule checkout -o checkout.om
  throughline rules backfill --rule rules.toml --from 2026-11-01T00:00:00Z --to 2026-11-20T00:00:00Z -o old.om
  throughline rules backfill --data s3://profiles/blocks --catalogue postgres://db/profiles --tenant shop --rule checkout -o checkout.om
  promtool tsdb create-blocks-from openmetrics checkout.om /var/lib/prometheus/data

A store may be running. Exit code 1: there are no samples. See docs/rules.md.";

#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Write what a rule makes of the profiles that a store has, as OpenMetrics for promtool
    Backfill(BackfillArgs),
}

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
struct BackfillArgs {
    /// Where the blocks are: a folder, a bucket (s3://bucket/prefix) or one block
    #[arg(long, value_name = "PLACE", default_value = "throughline-data/profiles")]
    data: String,
    /// Where the catalogue of the blocks is (sqlite:PATH or postgres://…); a folder has it inside
    #[arg(long, value_name = "URL")]
    catalogue: Option<String>,
    /// The id of a rule that the store has, or a file of rules (TOML), all of the tenant's together
    #[arg(long, value_name = "FILE|ID")]
    rule: String,
    /// Whose profiles
    #[arg(long, value_name = "NAME", default_value = ONLY_TENANT)]
    tenant: String,
    /// Profiles that were taken from then on: 2026-11-20T16:44:00Z, or seconds since 1970; by default all
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Profiles that were taken before; by default, and at most, when the store's first cell with the rule began
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// The file, which appears when it is whole; beside it are files of the same length meanwhile
    #[arg(short, long, visible_alias = "out", value_name = "FILE")]
    output: PathBuf,
    /// A sample is of so much time: what the store has as --cell
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    cell: Duration,
    /// What metrics' names begin with: what the store has as --metric-prefix
    #[arg(long, value_name = "PREFIX", default_value = export::DEFAULT_PREFIX)]
    metric_prefix: Prefix,
    /// How many series each tenant may have: what the store has as --limits (TOML)
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.what {
        What::Backfill(args) => run_backfill(args),
    }
}

fn run_backfill(args: &BackfillArgs) -> anyhow::Result<Outcome> {
    let tenant = Tenant::new(&args.tenant).context("--tenant")?;
    let grid = grid(args.cell)?;
    let time = |text: &Option<String>, option: &'static str| {
        text.as_deref().map(time).transpose().context(option)
    };
    let (from, to) = (time(&args.from, "--from")?, time(&args.to, "--to")?);
    let limits = series_limits(args.limits.as_deref(), &tenant)?;
    let io = Io::start().context("cannot start threads")?;
    let reader = Reader::open(&args.data, args.catalogue.as_deref(), &io)?;
    let (book, known) = reader.exported(&tenant)?.unwrap_or_default();
    let rules = rules(&args.rule, &tenant, &book)?;
    let live = Live::of(&rules, &book);
    let until = live.until(&rules, to, grid)?;
    let known: BTreeSet<_> = known.into_keys().collect();
    let from = from.or_else(|| first_time(&reader, &tenant)).unwrap_or(until);
    let cells = cells(from, until, grid, args.from.is_some())?;
    live.warn(&rules, &book, cells.end);
    let wanted = Wanted {
        tenant,
        rules,
        prefix: args.metric_prefix.clone(),
        limits,
        known,
        grid,
        cells: cells.clone(),
        live_ms: live.first_ms,
        most_sums: MAX_SUMS,
    };
    let filled = Unfinished::write(&args.output, |folder, file| {
        Ok(backfill(&reader, &wanted, folder, file)?)
    })?;
    tell(&filled, &cells, &args.output)
}

/// A point in time that needs no recording to be understood.
fn time(text: &str) -> anyhow::Result<Timestamp> {
    let when = when::parse(text).with_context(|| format!("{text:?}"))?;
    ensure!(!matches!(when, When::OfDay(_)), "{text:?}: of which day?");
    when.resolve(&TimeZone::system(), || None).with_context(|| format!("{text:?}"))
}

/// The rules of a file, or the one that the catalogue has.
fn rules(said: &str, tenant: &Tenant, book: &Book) -> anyhow::Result<Vec<Rule>> {
    let path = Path::new(said);
    // An id has letters alone.
    if path.is_file() || !said.bytes().all(|letter| letter.is_ascii_alphabetic()) {
        let found: Vec<Rule> = read_rules(path)?.of(tenant.as_str()).cloned().collect();
        ensure!(!found.is_empty(), "{said}: no rule of tenant {}", tenant.as_str());
        return Ok(found);
    }
    let found = book.get(said).with_context(|| {
        let name = tenant.as_str();
        format!("--rule: neither a file, nor a rule that tenant {name} has there: {said}")
    })?;
    Ok(vec![found.rule.clone()])
}

/// Since when the store closes cells with some of the rules.
struct Live {
    first_ms: Option<i64>,
    /// A rule whose first cell is not known: earlier versions of it are forgotten.
    changed: Option<Version>,
}

impl Live {
    fn of(rules: &[Rule], book: &Book) -> Self {
        let known: Vec<&Version> =
            rules.iter().filter_map(|rule| book.earliest(rule.id())).collect();
        let changed = known.iter().find(|version| version.generation > 1);
        Self {
            first_ms: known.iter().map(|version| version.from_ms).min(),
            changed: changed.map(|version| Version::clone(version)),
        }
    }

    /// Where the backfill ends: where it was asked to, but not in a cell that the store closes.
    fn until(
        &self,
        rules: &[Rule],
        to: Option<Timestamp>,
        grid: Grid,
    ) -> anyhow::Result<Timestamp> {
        let ids: Vec<&str> = rules.iter().map(Rule::id).collect();
        let ids = ids.join(", ");
        let Some(first_ms) = self.first_ms else {
            return to.ok_or_else(|| {
                anyhow!(
                    "--to is missing: the store has no rule {ids}, whose first cell would be it"
                )
            });
        };
        if first_ms == i64::MIN {
            bail!("rule {ids} was there before the first profile: the store counts all of them");
        }
        let first = Timestamp::from_nanos(first_ms.saturating_mul(1_000_000));
        match to {
            Some(to) if grid.cell_of(to) > first_ms => bail!(
                "--to: after {}, from when on the store itself counts by rule {ids}",
                rfc3339(first)
            ),
            Some(to) => Ok(to),
            None => match &self.changed {
                Some(Version { rule, generation, .. }) => bail!(
                    "--to is missing: rule {} was changed (generation {generation}), and its first cell is not known any more; \
                     say when its first sample is",
                    rule.id()
                ),
                None => Ok(first),
            },
        }
    }

    /// Rules of the default form share series.
    fn warn(&self, rules: &[Rule], book: &Book, until_ms: i64) {
        let form = |rule: &Rule| {
            let draft = rule.draft();
            let is_default = draft.metric.is_none();
            is_default.then(|| (draft.profile_type.clone(), draft.functions.is_some(), draft.value))
        };
        for other in book.versions() {
            let is_other = rules.iter().all(|rule| rule.id() != other.rule.id());
            let shares = |rule: &Rule| form(rule).is_some_and(|own| form(&other.rule) == Some(own));
            if is_other && other.from_ms < until_ms && rules.iter().any(shares) {
                complain(&format!(
                    "rule {} writes the same metric and had cells before: a series that both have must not be backfilled",
                    other.rule.id()
                ));
            }
        }
    }
}

/// When the first profile of a tenant was taken, as far as names of blocks say.
fn first_time(reader: &Reader, tenant: &Tenant) -> Option<Timestamp> {
    let names = reader.blocks().iter().filter_map(store::lake::Block::name);
    names.filter(|name| name.tenant == *tenant).map(|name| name.begin).min()
}

/// The cells from one time to another.
fn cells(
    from: Timestamp,
    until: Timestamp,
    grid: Grid,
    is_said: bool,
) -> anyhow::Result<Range<i64>> {
    let cells = grid.cell_of(from)..grid.cell_of(until);
    if is_said && cells.is_empty() {
        let [from, until] = [from, until].map(rfc3339);
        bail!("--from: no cell begins from {from} on and ends before {until}");
    }
    Ok(cells)
}

/// A folder beside the file for what is not whole; gone with all in it when this is.
struct Unfinished(PathBuf);

impl Unfinished {
    /// Has `fill` write a file, which takes the place of `target` when it is whole; `fill` may have further files in the folder.
    fn write<T>(
        target: &Path,
        fill: impl FnOnce(&Path, &mut BufWriter<File>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let unwritten = || format!("cannot write {}", target.display());
        let mut name = target.file_name().with_context(unwritten)?.to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let folder = target.with_file_name(name);
        fs::create_dir(&folder).with_context(unwritten)?;
        let folder = Self(folder);
        let whole = folder.0.join("whole");
        let mut file = BufWriter::new(File::create_new(&whole).with_context(unwritten)?);
        let filled = fill(&folder.0, &mut file)?;
        file.flush().with_context(unwritten)?;
        file.get_ref().sync_all().with_context(unwritten)?;
        fs::rename(&whole, target).with_context(unwritten)?;
        Ok(filled)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // The failure that is under way says more than one of tidying up.
        drop(fs::remove_dir_all(&self.0));
    }
}

fn tell(filled: &Filled, cells: &Range<i64>, output: &Path) -> anyhow::Result<Outcome> {
    let Filled { blocks, live_blocks, mixed_blocks, series, samples, .. } = filled;
    let [begin, end] = [cells.start, cells.end]
        .map(|ms| rfc3339(Timestamp::from_nanos(ms.saturating_mul(1_000_000))));
    writeln!(
        io::stdout().lock(),
        "{series} series and their counters, {samples} samples from {begin} to {end}, of {blocks} blocks: {}",
        output.display()
    )?;
    if *live_blocks > 0 {
        complain(&format!(
            "{live_blocks} blocks came in cells that the store counted by the rule: left out"
        ));
    }
    if *mixed_blocks > 0 {
        complain(&format!(
            "{mixed_blocks} blocks have been merged of what came before and after the rule's first cell: \
             what was taken before and came after is there and in the store's cells, too"
        ));
    }
    for (reason, sum) in &filled.overflow {
        let why = match reason {
            Reason::TooManySeries => "there are too many series",
            Reason::TooManyLabels => "series would have too many labels",
            Reason::LabelsTooLong => "series would have labels that are too long",
            _ => "they have no series of their own",
        };
        complain(&format!("a sum of {sum} is in the overflow: {why}"));
    }
    if filled.inexact > 0 {
        complain(&format!("{} sums are above 2^53: not exact as values", filled.inexact));
    }
    if filled.left_out > 0 {
        complain(&format!("{} sums are below zero: counters leave them out", filled.left_out));
    }
    if *samples == 0 {
        complain("no profiles of these rules and times");
        return Ok(Outcome::No);
    }
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use rules::{BookLimits, Draft};

    use super::*;

    fn draft(id: &str, value: rules::Value) -> Draft {
        let profile_type = "process_cpu:cpu:nanoseconds:cpu:nanoseconds".to_owned();
        Draft { id: id.to_owned(), profile_type, value, ..Draft::default() }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_backfill_ends_where_the_store_begins() {
        let mut book = Book::default();
        let limits = BookLimits::default();
        let rule: Rule = draft("shop", rules::Value::Total).try_into().unwrap();
        let rules = [rule];
        let until = |book: &Book, to: Option<i64>| {
            let until = Live::of(&rules, book).until(&rules, to.map(at), Grid::default());
            until.map(|until| until.nanos() / 1_000_000).map_err(|error| format!("{error:#}"))
        };
        let missing = until(&book, None).unwrap_err();
        assert!(missing.contains("--to is missing: the store has no rule shop"), "{missing}");
        assert_eq!(until(&book, Some(77_000)), Ok(77_000));
        book.upsert(draft("shop", rules::Value::Total), None, 60_000, &limits).unwrap();
        assert_eq!(until(&book, None), Ok(60_000));
        assert_eq!(
            (until(&book, Some(30_000)), until(&book, Some(74_000))),
            (Ok(30_000), Ok(74_000))
        );
        let late = until(&book, Some(75_000)).unwrap_err();
        assert!(late.contains("1970-01-01T00:01:00") && late.contains("shop"), "{late}");
        // As long as its first version is known, its first cell is.
        book.upsert(draft("shop", rules::Value::Own), None, 90_000, &limits).unwrap();
        assert_eq!(until(&book, None), Ok(60_000));
        book.forget(120_000);
        let changed = until(&book, None).unwrap_err();
        assert!(changed.contains("rule shop was changed (generation 2)"), "{changed}");
        assert_eq!(until(&book, Some(60_000)), Ok(60_000));
        let mut provisioned = Book::default();
        provisioned.provision(&rules, i64::MIN, &limits).unwrap();
        let all = until(&provisioned, Some(60_000)).unwrap_err();
        assert!(all.contains("before the first profile"), "{all}");
    }

    #[test]
    fn what_is_not_whole_is_gone_when_it_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out.om");
        let failed = Unfinished::write(&target, |beside, file| -> anyhow::Result<()> {
            fs::write(beside.join("run-1"), "x")?;
            file.write_all(b"half")?;
            bail!("no more")
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        Unfinished::write(&target, |_, file| Ok(file.write_all(b"whole")?)).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
