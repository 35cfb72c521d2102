//! `throughline ctf check PATH…`: everything that is wrong with traces, and where.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use tracedir::{Checked, Detail, Remark};

use crate::outcome::{Outcome, complain, plain};

const EXAMPLES: &str = "\
Examples:
  throughline ctf check session/                      one line for each thing that is wrong
  throughline ctf check --format json session/ | jq -r .code | sort | uniq -c

Reads everything and changes nothing; goes on after damage. A sealed chunk is compared with its manifest.json:
checksums of all files, counts and bounds of all streams.
Exit code 0: nothing is wrong. 1: something is. 2: could not look.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Folders with traces in or below them: sessions, chunks, single traces
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// How findings are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let mut out = io::stdout().lock();
    let mut failed = None;
    let mut tell = |remark: Remark| {
        let line = match args.format {
            Format::Text => plain(&remark.to_string()).into_owned(),
            Format::Json => document(&remark),
        };
        if failed.is_none() {
            failed = writeln!(out, "{line}").err();
        }
    };
    let checked = tracedir::check(&args.paths, &mut tell).context("cannot check")?;
    if let Some(error) = failed {
        return Err(error).context("cannot write to standard output");
    }
    summarise(&checked);
    Ok(if checked.remarks == 0 { Outcome::Done } else { Outcome::No })
}

fn summarise(checked: &Checked) {
    let Checked { traces, files, packets, event_records, manifests, remarks } = checked;
    let manifests =
        if *manifests == 0 { String::new() } else { format!(", {manifests} manifests") };
    complain(&format!(
        "checked: {traces} traces, {files} files, {packets} packets, {event_records} event records{manifests}; {remarks} findings"
    ));
}

fn document(remark: &Remark) -> String {
    let value = |detail| match detail {
        Detail::Word(word) => json!(word),
        // All of them are of 64 bits, of either sign.
        Detail::Number(number) => {
            u64::try_from(number).map_or_else(|_| json!(i64::try_from(number).ok()), |n| json!(n))
        }
    };
    let values = remark.problem.values().into_iter();
    let values: Map<String, Value> =
        values.map(|(name, detail)| (name.to_owned(), value(detail))).collect();
    json!({
        "path": remark.path.display().to_string(),
        "packet_offset_bytes": remark.packet_offset_bytes,
        "offset_bits": remark.offset_bits,
        "event_index": remark.event_index,
        "field": remark.field,
        "code": remark.problem.code(),
        "values": values,
        "problem": remark.problem.to_string(),
    })
    .to_string()
}
