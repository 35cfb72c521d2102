//! A range of time on the command line.

use anyhow::Context;
use jiff::tz::TimeZone;
use model::{TimeRange, Timestamp};

use super::when::{self, When};

/// From when to when.
#[derive(clap::Args)]
pub(crate) struct RangeArgs {
    /// Leave out what is earlier: 16:44:07.5 on the recording's first day, 2026-11-20T16:44:07Z, or seconds or
    /// nanoseconds since the epoch
    #[arg(long, value_name = "TIME", value_parser = when::parse, allow_hyphen_values = true)]
    begin: Option<When>,
    /// Leave out what is later
    #[arg(long, value_name = "TIME", value_parser = when::parse, allow_hyphen_values = true)]
    end: Option<When>,
    /// The same as --begin and --end
    #[arg(
        long,
        value_name = "BEGIN,END",
        value_parser = when::parse_range,
        allow_hyphen_values = true,
        conflicts_with_all = ["begin", "end"]
    )]
    timerange: Option<(When, When)>,
}

impl RangeArgs {
    /// From the first point in time to the last, both included, in `zone`; `first` gives the recording's first one.
    pub(crate) fn range(
        &self,
        zone: &TimeZone,
        first: impl Fn() -> Option<Timestamp>,
    ) -> anyhow::Result<TimeRange> {
        let (begin, end) =
            self.timerange.map_or((self.begin, self.end), |(begin, end)| (Some(begin), Some(end)));
        let resolve = |when: Option<When>, name: &str| {
            let resolved = when.map(|when| when.resolve(zone, &first)).transpose();
            resolved.with_context(|| format!("{name} is no point in time"))
        };
        let begin = resolve(begin, "the begin")?.unwrap_or(Timestamp::MIN);
        let end = resolve(end, "the end")?;
        if let Some(end) = end.filter(|end| *end < begin) {
            anyhow::bail!(
                "the range of time begins at {} ns, after its end at {} ns",
                begin.nanos(),
                end.nanos()
            );
        }
        let after = |end: Timestamp| Timestamp::from_nanos(end.nanos().saturating_add(1));
        Ok(TimeRange { begin, end: end.map_or(Timestamp::MAX, after) })
    }
}
