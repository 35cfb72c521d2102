//! S6: code objects of CPython whose places in memory are used again and again.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, ensure};
use capture::profile::{Budget, Config, Sample, Seen, StackFrame, sample};
use model::Pid;

use super::{Progress, Tried};

const FREQUENCY_HZ: u64 = 397;

/// Makes functions of one shape, each of which runs for some milliseconds and is gone, until a word comes; then tells when each ran.
const PROGRAM: &str = r"
import select, sys, time

def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        s = 1
        for i in range(300):
            s = s * 31 + i & 0xffff

print('ready', flush=True)
sys.stdin.readline()
lives, places, n = [], set(), 0
while not select.select([sys.stdin], [], [], 0)[0]:
    names = {'spin': spin}
    exec(f'def made_{n}():\n    spin(0.003)\n', names)
    made = names[f'made_{n}']
    places.add(id(made.__code__))
    begin = time.monotonic_ns()
    made()
    lives.append((n, begin, time.monotonic_ns()))
    del made
    names.clear()
    n += 1
print(len(places))
for life in lives:
    print(*life)
";

/// A program that is ended with this value.
struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What came of one CPython.
struct Found {
    version: String,
    lives: usize,
    places: usize,
    right: u64,
    wrong: Vec<String>,
}

/// `None` when there is no CPython.
pub(super) fn try_it(length: Duration, progress: &Progress) -> anyhow::Result<Option<Tried>> {
    let pythons = interpreters()?;
    if pythons.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for (version, python) in pythons {
        progress.tell(format!("CPython {version}, {} s", length.as_secs()));
        found.push(one(version, &python, length)?);
    }
    let figures = found.iter().map(|it| {
        format!(
            "{} {} right of {} functions in {} places",
            it.version, it.right, it.lives, it.places
        )
    });
    let mut tried = Tried::new(figures.collect::<Vec<_>>().join(", "));
    for Found { version, lives, places, right, wrong } in &found {
        tried.expect(wrong.is_empty(), || {
            format!("CPython {version}: {} wrong names, such as {:?}", wrong.len(), wrong.first())
        });
        tried.expect(places * 2 < *lives && *right > 0, || {
            format!("CPython {version}: no place was used again, or nothing was sampled")
        });
    }
    Ok(Some(tried))
}

fn one(version: String, python: &Path, length: Duration) -> anyhow::Result<Found> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("program.py");
    fs::write(&script, PROGRAM)?;
    let mut command = Command::new(python);
    let child = command.arg(&script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut python = Python(child);
    let mut said = BufReader::new(python.0.stdout.take().context("a pipe from it")?).lines();
    let mut tell = python.0.stdin.take().context("a pipe to it")?;
    ensure!(said.next().transpose()?.as_deref() == Some("ready"), "CPython {version} ended");
    let config = Config {
        frequency_hz: FREQUENCY_HZ,
        processes: Some(vec![Pid::new(python.0.id().cast_signed())]),
        duration: Some(length),
        off_cpu: false,
        budget: Budget::default(),
        copies_only: false,
    };
    let mut named = Vec::new();
    let mut started = Ok(());
    sample(
        &config,
        &AtomicBool::new(false),
        |_| started = tell.write_all(b"go\n"),
        |seen| {
            if let Seen::Sample(sample) = seen {
                named.extend(made(&sample).map(|number| (number, sample.time_ns)));
            }
        },
    )?;
    started?;
    tell.write_all(b"end\n")?;
    let number = |word: &str| word.parse::<u64>().context("a number");
    let places = said.next().context("it says how many")??.parse()?;
    let mut lives = BTreeMap::new();
    for line in said {
        let words = line?.split(' ').map(number).collect::<anyhow::Result<Vec<_>>>()?;
        if let [number, begin_ns, end_ns] = words.as_slice() {
            lives.insert(*number, *begin_ns..=*end_ns);
        }
    }
    let (mut right, mut wrong) = (0, Vec::new());
    for (number, at_ns) in named {
        if lives.get(&number).is_some_and(|life| life.contains(&at_ns)) {
            right += 1;
        } else {
            wrong.push(format!("made_{number} at {at_ns}, which ran in {:?}", lives.get(&number)));
        }
    }
    Ok(Found { version, lives: lives.len(), places, right, wrong })
}

/// The number of the function that a sample is in.
fn made(sample: &Sample) -> Option<u64> {
    sample.user.iter().find_map(|frame| match frame {
        StackFrame::Python(frame) => {
            frame.code.function.as_deref()?.strip_prefix("made_")?.parse().ok()
        }
        StackFrame::Native(_) => None,
    })
}

/// CPythons from 3.8 on, those of pyenv and that of the system, by version.
fn interpreters() -> anyhow::Result<BTreeMap<String, PathBuf>> {
    const ASK: &str = "import sys; print(sys.version_info[:2] >= (3, 8), '.'.join(map(str, sys.version_info[:3])))";
    let versions = std::env::home_dir().map(|home| home.join(".pyenv/versions"));
    let versions = versions.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    let mut pythons = vec![PathBuf::from("/usr/bin/python3")];
    for version in versions {
        pythons.push(version?.path().join("bin/python3"));
    }
    let mut found = BTreeMap::new();
    for python in pythons {
        let Ok(output) = Command::new(&python).args(["-c", ASK]).output() else { continue };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if let Some(version) = said.strip_prefix("True ") {
            found.entry(version.trim().to_owned()).or_insert(python);
        }
    }
    Ok(found)
}
