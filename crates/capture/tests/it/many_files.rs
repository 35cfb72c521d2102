//! More files than may be open.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::profile::request::Location;
use ::profile::{Limits, Request, Unnamed, keys};
use capture::profile::{self, Packer, Sample, Seen, StackFrame};
use model::Pid;
use testkit::executables::{Executables, Kind, build_id, function};

use crate::profile::{Running, compiled, config};
use crate::support::{are_installed, can_trace};

/// Set for the process that may have few files open.
const ALONE: &str = "THROUGHLINE_TEST_FEW_FILES";
/// It may have so many open, of which three quarters are for those that are sampled.
const OPEN_FILES: u32 = 512;
const LIBRARIES: u32 = 600;

/// Spends some milliseconds in each of its libraries in turn.
const CALLS_ALL: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static long cpu_ns(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); return t.tv_sec * 1000000000L + t.tv_nsec; }
int main(int c, char **v) {
	int count = atoi(v[2]);
	void (**work)(void) = calloc(count, sizeof *work);
	for (int i = 0; i < count; i++) {
		char text[4096];
		snprintf(text, sizeof text, "%s/x%05d", v[1], i);
		void *library = dlopen(text, RTLD_NOW);
		if (library) work[i] = dlsym(library, "run");
		if (!work[i]) { fprintf(stderr, "%s\n", dlerror()); return 1; }
	}
	for (int i = 0;; i = (i + 1) % count)
		for (long end = cpu_ns() + 5000000L; cpu_ns() < end;) work[i]();
}
"#;

/// The number of the library that a path is of.
fn number(path: &str) -> Option<u32> {
    path.rsplit('/').next()?.strip_prefix('x')?.parse().ok()
}

/// The library that a sample is in.
fn library(sample: &Sample) -> Option<u32> {
    let Some(StackFrame::Native(frame)) = sample.user.first() else { return None };
    number(&frame.file.as_ref()?.path().to_string_lossy())
}

/// The library of a frame, and how it is told: the function's name, or why there is none.
fn told(request: &Request<'_>, frame: &Location) -> Option<(u32, Result<String, String>)> {
    let d = &request.dictionary;
    let mapping = d.mappings.get(frame.mapping as usize)?;
    let number = number(d.string(mapping.path))?;
    let id = d.find_text(&mapping.attributes, keys::BUILD_ID_GNU);
    assert_eq!(id, Some(build_id(number).as_str()), "{frame:?}");
    let told = match frame.lines.first() {
        Some(line) => {
            Ok(d.string(d.functions.get(line.function as usize).unwrap().name).to_owned())
        }
        None => Err(d.find_text(&frame.attributes, keys::UNNAMED).unwrap().to_owned()),
    };
    Some((number, told))
}

#[test]
fn s11_who_may_open_no_more_files_goes_on_and_names_are_right() {
    if !can_trace() || !are_installed(&["cc", "sh"]) {
        return;
    }
    if std::env::var_os(ALONE).is_none() {
        let name = "many_files::s11_who_may_open_no_more_files_goes_on_and_names_are_right";
        let script = format!("ulimit -n {OPEN_FILES} && exec \"$0\" --exact {name} --nocapture");
        let mut alone = Command::new("sh");
        alone.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(ALONE, "1");
        let output = alone.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let libraries = Executables::compile(folder.path(), Kind::Library).unwrap();
    for number in 0..LIBRARIES {
        libraries.write(folder.path(), number).unwrap();
    }
    let program = compiled(folder.path(), "calls_all", CALLS_ALL);
    let (stop, mut packer) = (AtomicBool::new(false), Packer::new(Duration::from_secs(3600), 397));
    let (mut packets, mut seen_in) = (Vec::new(), BTreeSet::new());
    let running = RefCell::new(None::<Running>);
    let own = Pid::new(std::process::id().cast_signed());
    let report = profile::sample(
        &config(Some(vec![own])),
        &stop,
        |_| {
            let arguments = [folder.path().to_str().unwrap(), &LIBRARIES.to_string()];
            running.replace(Some(Running::start(&program, &arguments)));
        },
        |seen| match seen {
            Seen::Sample(sample) => {
                seen_in.extend(library(&sample));
                stop.store(seen_in.len() >= LIBRARIES as usize - 20, Ordering::Relaxed);
                packets.extend(packer.add(&sample));
            }
            Seen::Until(moment) => {
                let has_ended = running.borrow_mut().as_mut().is_some_and(Running::has_ended);
                assert!(!has_ended, "the program ended");
                packets.extend(packer.until(&moment));
            }
        },
    );
    let report = report.unwrap();
    packets.extend(packer.finish());
    drop(running);
    let (mut named, mut unnamed) = (BTreeSet::new(), BTreeSet::new());
    for packet in &packets {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        let frames = &request.dictionary.locations;
        for (number, told) in frames.iter().filter_map(|frame| told(&request, frame)) {
            match told {
                Ok(name) => {
                    assert!(name == "run" || name == function(number), "{number}: {name}");
                    named.insert(number);
                }
                Err(why) => {
                    assert_eq!(why, Unnamed::NoFile.as_str(), "{number}");
                    unnamed.insert(number);
                }
            }
        }
    }
    let counts = (named.len(), unnamed.len());
    assert!(counts.0 > 200 && counts.1 > 100, "{counts:?} {report:?}");
    assert!(report.files.no_room >= unnamed.len() as u64, "{report:?}");
}
