//! The spans that threads say they are in: OpenTelemetry's thread context.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ::profile::{Limits, Link, Request};
use capture::profile::{Packer, Sample};

use crate::profile::{Running, Sampling, config};
use crate::support::{are_installed, can_sample, wait_for};

/// The variable, and who sets it.
const VARIABLE: &str = r"
__thread void *otel_thread_ctx_v1;
void attach(void *context) { otel_thread_ctx_v1 = context; }
";

/// Two threads go from span to span, and write when. A span's ids are made of thread and number; every fourth time there is none.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
struct context { uint64_t trace_id[2], span_id; uint8_t valid, flags; uint16_t bytes; };
#ifdef OPENED
static void (*attach)(void *);
#else
void attach(void *);
#endif
static FILE *written;
static volatile unsigned sink;
static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void *run(void *unused)
{
	static __thread struct context contexts[2];
	uint64_t tid = syscall(SYS_gettid);
	for (uint64_t n = 1;; n++) {
		struct context *c = &contexts[n % 2];
		uint64_t begin = now(), end;
		attach(0);
		c->trace_id[0] = tid; c->trace_id[1] = n; c->span_id = n << 32 | tid; c->valid = 1;
		if (n % 4) attach(c);
		end = now();
		fprintf(written, "%lu %lu %lu %lu\n", tid, begin, end, n % 4 ? n : 0);
		fflush(written);
		while (now() - end < 15000000) for (int i = 0; i < 1000; i++) sink += i;
	}
}
int main(int c, char **v)
{
	pthread_t other;
	written = fopen(v[1], "w");
#ifdef OPENED
	void *library = dlopen(v[2], RTLD_NOW);
	if (!library) return 1;
	attach = dlsym(library, "attach");
#endif
	pthread_create(&other, 0, run, 0);
	run(0);
}
"#;

/// When a thread was in which span: from the second time on for sure, from the first one on maybe; 0 is none.
type Spans = BTreeMap<(u64, u64), (u64, u64)>;

fn written(path: &Path) -> Spans {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let line = |line: &str| {
        let numbers: Vec<u64> = line.split(' ').map(|it| it.parse().unwrap()).collect();
        let [tid, begin, end, span] = numbers[..] else { panic!("{line}") };
        ((tid, begin), (end, span))
    };
    whole.lines().map(line).collect()
}

/// The span that a sample must have; `None` when the thread was about to change it.
fn expected(spans: &Spans, sample: &Sample) -> Option<Option<Link>> {
    let tid = u64::from(sample.tid.get().cast_unsigned());
    let (_, (end, number)) = spans.range((tid, 0)..=(tid, sample.time_ns)).next_back()?;
    if sample.time_ns <= *end {
        return None;
    }
    let mut trace_id = [0; 16];
    let (first, second) = trace_id.split_at_mut(8);
    first.copy_from_slice(&tid.to_ne_bytes());
    second.copy_from_slice(&number.to_ne_bytes());
    let link = Link { trace_id, span_id: (number << 32 | tid).to_ne_bytes() };
    Some((*number > 0).then_some(link))
}

fn cc(folder: &Path, arguments: &[&str]) {
    compile("cc", folder, arguments);
}

fn compile(compiler: &str, folder: &Path, arguments: &[&str]) {
    let status =
        Command::new(compiler).current_dir(folder).args(["-O2", "-w"]).args(arguments).status();
    assert!(status.unwrap().success(), "{arguments:?}");
}

#[test]
fn samples_are_linked_to_the_span_that_their_thread_is_in() {
    if !can_sample() || !are_installed(&["cc"]) || cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("variable.c"), VARIABLE).unwrap();
    fs::write(at.join("program.c"), PROGRAM).unwrap();
    cc(at, &["program.c", "variable.c", "-rdynamic", "-pthread", "-o", "of_program"]);
    cc(at, &["-shared", "-fPIC", "-mtls-dialect=gnu2", "variable.c", "-o", "libdescribed.so"]);
    cc(at, &["-shared", "-fPIC", "-ftls-model=initial-exec", "variable.c", "-o", "libinitial.so"]);
    cc(at, &["-shared", "-fPIC", "variable.c", "-o", "libvariable.so"]);
    cc(at, &["-shared", "-fPIC", "-Wl,-Bsymbolic", "variable.c", "-o", "libsymbolic.so"]);
    let origin = "-Wl,-rpath,$ORIGIN";
    for library in ["variable", "symbolic", "described", "initial"] {
        let (link, output) = (format!("-l{library}"), format!("with_{library}"));
        cc(at, &["program.c", "-pthread", "-L.", &link, origin, "-o", &output]);
    }
    cc(at, &["-DOPENED", "program.c", "-pthread", "-ldl", "-o", "opens"]);
    let mut programs = vec![
        "of_program",
        "with_variable",
        "with_symbolic",
        "with_described",
        "with_initial",
        "opens",
    ];
    if are_installed(&["musl-gcc"]) {
        let musl = |arguments: &[&str]| compile("musl-gcc", at, arguments);
        musl(&["-shared", "-fPIC", "variable.c", "-o", "libmusl.so"]);
        musl(&["program.c", "variable.c", "-rdynamic", "-pthread", "-o", "musl_of_program"]);
        musl(&["program.c", "-pthread", "-L.", "-lmusl", origin, "-o", "musl_with_library"]);
        musl(&["-DOPENED", "program.c", "-pthread", "-o", "musl_opens"]);
        programs.extend(["musl_of_program", "musl_with_library", "musl_opens"]);
    }
    for program in programs {
        let (log, library) = (
            at.join(format!("{program}.log")),
            at.join(if program.starts_with("musl") { "libmusl.so" } else { "libvariable.so" }),
        );
        let arguments = [log.to_str().unwrap(), library.to_str().unwrap()];
        let running = Running::start(&at.join(program), &arguments);
        wait_for("spans", || written(&log).len() > 4);
        let sampling = Sampling::start(config(Some(vec![running.pid()])));
        sampling.wait(120);
        let (report, samples) = sampling.finish();
        drop(running);
        let spans = written(&log);
        let known: Vec<_> =
            samples.iter().filter_map(|it| Some((it, expected(&spans, it)?))).collect();
        for (sample, expected) in &known {
            assert_eq!(sample.span, *expected, "{program}: {} {report:?}", sample.time_ns);
        }
        let in_span = known.iter().filter(|(_, expected)| expected.is_some()).count();
        assert!(
            in_span > 50 && known.len() > in_span + 10,
            "{program}: {in_span} of {}",
            known.len()
        );

        let mut packer = Packer::new(Duration::from_secs(60), 397);
        assert!(samples.iter().all(|sample| packer.add(sample).is_none()));
        let packets = packer.finish();
        let request = Request::decode(&packets[0].bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        let profiles = request.resources.iter().flat_map(|it| &it.profiles);
        let of_span: usize = profiles
            .flat_map(|it| &it.samples)
            .filter(|it| it.link != 0)
            .map(|it| it.times_unix_ns.len())
            .sum();
        assert_eq!(of_span, samples.iter().filter(|it| it.span.is_some()).count());
    }
}
