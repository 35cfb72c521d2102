//! `throughline ctf compress PATH…` and `decompress PATH…`: chunks take less room and are read as before.

use std::path::PathBuf;

use anyhow::Context;
use tracedir::Repacked;
use tracedir::manifest::{self, Manifest};
use tracedir::seekable::Level;

use crate::outcome::{Outcome, complain};

const EXAMPLES: &str = "\
Examples:
  throughline ctf compress session/archives           all sealed chunks in it
  throughline ctf compress --method zstd:9 chunk/     smaller, and slower to write
  throughline ctf compress --without-manifest trace/  recorded by another relay, and complete

Data streams become .zst files where they lie, in frames that can be read one by one (zstd seekable format); metadata and
indexes stay. Every command of throughline reads both alike, babeltrace2 reads them only decompressed. A stream is removed when its
compressed form is on the disk, was read back and is the same. Ended at any moment, the chunk can be read and
the command can be given again. See docs/formats/chunk.md.";

#[derive(clap::Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct Compress {
    #[command(flatten)]
    what: What,
    /// How: zstd, or zstd:LEVEL from 1 (fast) to 19 (small)
    #[arg(long, value_name = "METHOD", default_value = "zstd")]
    method: Level,
}

#[derive(clap::Args)]
pub(super) struct Decompress {
    #[command(flatten)]
    what: What,
}

#[derive(clap::Args)]
struct What {
    /// Folders with sealed chunks in or below them
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Also traces of which no manifest says that they are complete; nobody may be writing to them
    #[arg(long)]
    without_manifest: bool,
}

pub(super) fn compress(args: &Compress) -> anyhow::Result<Outcome> {
    let go_on = &|| true;
    let chunk = |folder: &PathBuf| Ok(tracedir::compress_chunk(folder, args.method, go_on)?);
    let mut done = each_chunk(&args.what, chunk).context("cannot compress")?;
    if args.what.without_manifest {
        let loose = tracedir::compress_loose(&args.what.paths, args.method, go_on);
        done = done.and(loose.context("cannot compress")?);
    }
    say("compressed", done, done.content_bytes, done.compressed_bytes);
    Ok(Outcome::Done)
}

pub(super) fn decompress(args: &Decompress) -> anyhow::Result<Outcome> {
    let go_on = &|| true;
    let chunk = |folder: &PathBuf| Ok(tracedir::decompress_chunk(folder, go_on)?);
    let mut done = each_chunk(&args.what, chunk).context("cannot decompress")?;
    if args.what.without_manifest {
        let loose = tracedir::decompress_loose(&args.what.paths, go_on);
        done = done.and(loose.context("cannot decompress")?);
    }
    say("decompressed", done, done.compressed_bytes, done.content_bytes);
    Ok(Outcome::Done)
}

fn each_chunk(
    what: &What,
    work: impl Fn(&PathBuf) -> anyhow::Result<Repacked>,
) -> anyhow::Result<Repacked> {
    let mut done = Repacked::default();
    let chunks = manifest::find(&what.paths);
    if chunks.is_empty() && !what.without_manifest {
        anyhow::bail!(
            "no sealed chunk there: traces without manifest are taken with --without-manifest"
        );
    }
    // Files of that name that are somebody else's are passed over.
    let is_ours = |folder: &&PathBuf| !matches!(Manifest::read(folder), Ok(None));
    for folder in chunks.iter().filter(is_ours) {
        done = done.and(work(folder)?);
    }
    Ok(done)
}

fn say(what: &str, done: Repacked, from: u64, to: u64) {
    let left =
        if done.left == 0 { String::new() } else { format!(", {} left as they are", done.left) };
    complain(&format!("{what}: {} files, {from} to {to} bytes{left}", done.files));
}
