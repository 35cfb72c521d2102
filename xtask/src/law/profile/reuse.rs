//! S6: code objects of CPython whose places in memory are used again and again.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use capture::profile::{Budget, Config, Sample, Seen, StackFrame, sample};
use model::Pid;
use testkit::python::{self, CPython, Program};

use super::{Progress, Tried};

const FREQUENCY_HZ: u64 = 397;

/// Makes functions of one shape, each of which runs for some milliseconds and is gone, until a word comes; then tells when each ran.
const PROGRAM: &str = r"
import select

ready()
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
    let pythons = python::interpreters();
    if pythons.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for python in pythons {
        progress.tell(format!("CPython {}, {} s", python.version, length.as_secs()));
        found.push(one(python, length)?);
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

fn one(python: CPython, length: Duration) -> anyhow::Result<Found> {
    let CPython { version, path } = python;
    let mut program = Program::start(&path, PROGRAM)?;
    let config = Config {
        frequency_hz: FREQUENCY_HZ,
        processes: Some(vec![Pid::new(program.id().cast_signed())]),
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
        |_| started = program.tell("go"),
        |seen| {
            if let Seen::Sample(sample) = seen {
                named.extend(made(&sample).map(|number| (number, sample.time_ns)));
            }
        },
    )?;
    started?;
    program.tell("end")?;
    let number = |word: &str| word.parse::<u64>().context("a number");
    let places = program.line()?.context("it says how many")?.parse()?;
    let mut lives = BTreeMap::new();
    while let Some(line) = program.line()? {
        let words = line.split(' ').map(number).collect::<anyhow::Result<Vec<_>>>()?;
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
