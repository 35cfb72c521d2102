//! S11: more executables than the kernel's program has tables for, one after the other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use ::profile::Request;
use ::profile::request::{Location, ResourceProfiles};
use anyhow::ensure;
use testkit::agent;
use testkit::executables::{self, Executables, Kind, build_id};

use super::packets::{each_packet, file, function, program};
use super::{Progress, Tried, mib};
use crate::memory::{private_bytes, private_map_bytes};

/// CPU time of each: some four samples.
const LIFE_MS: &str = "8";
const FREQUENCY: &str = "499";
/// The first of them run again when all have run: what was known of them is to be known again.
const AGAIN: u32 = 500;
/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn try_it(
    binary: &Path,
    count: u32,
    memory_bytes: u64,
    progress: &Progress,
) -> anyhow::Result<Tried> {
    let folder = tempfile::tempdir()?;
    let files = folder.path().join("executables");
    fs::create_dir(&files)?;
    let executables = Executables::compile(folder.path(), Kind::Program)?;
    let paths: Vec<PathBuf> = (0..count)
        .map(|number| executables.write(&files, number))
        .collect::<std::io::Result<_>>()?;
    let options = ["--send", "file:kept", "--frequency", FREQUENCY, "--window", "5s"];
    let mut agent = agent::start(binary, folder.path(), "agent", &options);
    let pid = agent.child.id();
    let again = paths.iter().take(AGAIN as usize);
    let turns: Vec<&PathBuf> = paths.iter().chain(again).collect();
    let (mut first_bytes, mut peak_bytes, mut rows_bytes) = (None, 0, 0);
    run_all(&turns, |ran| {
        let rows = private_map_bytes(pid)?;
        let bytes = private_bytes(pid)?.saturating_sub(rows);
        progress.tell(format!("{ran} of {} programs, {:.1} MiB", turns.len(), mib(bytes)));
        first_bytes.get_or_insert(bytes);
        (peak_bytes, rows_bytes) = (peak_bytes.max(bytes), rows_bytes.max(rows));
        Ok(())
    })?;
    let status = agent.end("TERM");
    let mut found = Found { folder: &files, seen: BTreeSet::new(), frames: 0, wrong: Vec::new() };
    let packets = each_packet(&folder.path().join("kept"), |request| found.packet(request))?;
    let Found { seen, frames, wrong, .. } = found;
    let mut tried = Tried::new(format!(
        "{count} executables, {} of them sampled, {frames} frames in {packets} packets; private memory at most {:.1} MiB, at first {:.1}, and {:.1} of unwind rows",
        seen.len(),
        mib(peak_bytes),
        mib(first_bytes.unwrap_or(0)),
        mib(rows_bytes)
    ));
    tried.expect(status.success(), || format!("the agent ended with {status}: {}", agent.said()));
    tried.expect(wrong.is_empty(), || {
        let first: Vec<&str> = wrong.iter().take(5).map(String::as_str).collect();
        format!("{} frames are not told as they should be, such as {first:#?}", wrong.len())
    });
    // Some share a clock's tick with the one before.
    tried.expect(seen.len() * 100 >= count as usize * 95, || "too few were sampled".to_owned());
    tried.expect(peak_bytes <= memory_bytes, || {
        format!("more than {:.0} MiB of private memory besides unwind rows", mib(memory_bytes))
    });
    Ok(tried)
}

/// Runs programs, as many at once as there are CPUs, and calls `look` twice a second with how many were begun.
fn run_all(
    programs: &[&PathBuf],
    mut look: impl FnMut(u32) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicU32::new(0);
    let failed = Mutex::new(None);
    let work = || {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let mut command = Command::new(program);
            let status = command.arg(LIFE_MS).stdin(Stdio::null()).status();
            if !status.as_ref().is_ok_and(|status| status.success()) {
                let mut failed = failed.lock().unwrap_or_else(|it| it.into_inner());
                *failed = Some(format!("{}: {status:?}", program.display()));
                next.store(u32::MAX / 2, Ordering::Relaxed);
            }
        }
    };
    let jobs = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    thread::scope(|scope| -> anyhow::Result<()> {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            look(next.load(Ordering::Relaxed))?;
            thread::park_timeout(LOOK);
        }
        Ok(())
    })?;
    let failed = failed.into_inner().unwrap_or_else(|it| it.into_inner());
    ensure!(failed.is_none(), "{}", failed.unwrap_or_default());
    Ok(())
}

/// What packets tell of the executables.
struct Found<'a> {
    folder: &'a Path,
    seen: BTreeSet<u32>,
    frames: u64,
    wrong: Vec<String>,
}

impl Found<'_> {
    fn packet(&mut self, request: &Request<'_>) {
        for resource in &request.resources {
            let path = Path::new(program(request, resource));
            let name = path.strip_prefix(self.folder).ok().and_then(Path::to_str);
            let number = name.and_then(|name| name.strip_prefix('x')?.parse().ok());
            if let Some(number) = number {
                self.process(request, resource, number);
            }
        }
    }

    fn process(&mut self, request: &Request<'_>, resource: &ResourceProfiles<'_>, number: u32) {
        let own = executables::function(number);
        let is_own = |frame: &&Location| Path::new(file(request, frame).0).starts_with(self.folder);
        for sample in resource.profiles.iter().flat_map(|profile| &profile.samples) {
            for frame in request.dictionary.stack(sample.stack).filter(is_own) {
                self.frames += 1;
                self.seen.insert(number);
                let (path, id) = file(request, frame);
                let name = function(request, frame);
                let is_name = |name: &str| {
                    name == own || ["begin", "_start", "cpu_ns", "ask"].contains(&name)
                };
                let is_right = name.is_some_and(is_name) && id == Some(build_id(number).as_str());
                if !is_right {
                    self.wrong.push(format!("x{number:05}: {path} {id:?} {name:?}"));
                }
            }
        }
    }
}
