//! What an application in C records by tracepoints, as chunks of the Common Trace Format that analyses open, alone and beside the kernel's trace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::process::{Running, THROUGHLINE};
use crate::read::{read, stderr, stdout};

const REQUESTS: u64 = 5;

/// So many requests of two phases, one of which waits; the others' bounds are right beside theirs.
const APP: &str = r#"
#define TRACEPOINT_IMPLEMENTATION
#include <throughline/tracepoint.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **arguments)
{
	const struct timespec pause = {0, 5000000};
	for (uint64_t number = 1; count > 1 && number <= strtoul(arguments[1], NULL, 10); number++) {
		TP_SPAN(request, "request", tp_u64("request_id", number), tp_str("http.method", "GET"));
		const tp_context before = tp_enter(request.context);
		{
			TP_SPAN(decode, "decode");
			nanosleep(&pause, NULL);
			tp_span_end(&decode);
		}
		{
			TP_SPAN(send, "send", tp_i64("bytes", -1));
			tp_span_set_status(&send, TP_STATUS_OK);
			tp_span_end(&send);
		}
		tp_enter(before);
		tp_span_end(&request);
	}
	return 0;
}
"#;

fn build(folder: &Path) -> PathBuf {
    fs::write(folder.join("app.c"), APP).unwrap();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder).args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-I"]);
    compiler.arg(crates.join("tracepoint/include"));
    let output = compiler.args(["app.c", "-pthread", "-o", "shop"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    folder.join("shop")
}

/// The kernel's trace, where this may be recorded.
fn start_capture(folder: &Path) -> Option<Running> {
    if let Err(reason) = capture::kernel::preflight() {
        testkit::skip(&reason.to_string());
        return None;
    }
    let mut command = Command::new(THROUGHLINE);
    command.current_dir(folder).args(["capture", "kernel", "--output", "kernel"]);
    command.args(["--buffer", "64MiB"]);
    let mut capture = Running::start(&mut command, "capture", &folder.join("capture.log"));
    capture.wait_until_said("capturing the kernel");
    Some(capture)
}

fn phases(folders: &[PathBuf]) -> Value {
    let mut analyze = Command::new(THROUGHLINE);
    let output = analyze.args(["analyze", "phases", "--format", "json"]).args(folders).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

/// Requests and phases are those of the application.
fn are_those_of_the_application(answer: &Value) {
    assert_eq!(answer["requests"]["complete"], REQUESTS, "{answer}");
    assert_eq!(answer["loss"]["events_discarded"], 0, "{answer}");
    let requests = answer["request_list"].as_array().unwrap();
    assert_eq!(requests.len() as u64, REQUESTS);
    for request in requests {
        let phases = request["phases"].as_array().unwrap();
        let wall_ns = |name: &str| {
            let phase = phases.iter().find(|phase| phase["name"] == name);
            phase.unwrap_or_else(|| panic!("no {name}: {request}"))["wall_ns"].as_u64().unwrap()
        };
        let (decode, send) = (wall_ns("decode"), wall_ns("send"));
        assert!(decode >= 5_000_000 && send < request["wall_ns"].as_u64().unwrap(), "{request}");
    }
}

#[test]
fn chunks_of_an_agent_are_opened_by_analyses() {
    if !testkit::is_installed("cc") {
        return testkit::skip("there is no compiler of C");
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let app = build(folder.path());
    let mut capture = start_capture(folder.path());
    let mut agent = Command::new(THROUGHLINE);
    agent.current_dir(folder.path()).stdout(Stdio::null());
    agent.args([
        "agent",
        "--record",
        "ctf:chunks",
        "--rings",
        "rings.sock",
        "--journal",
        "journal",
    ]);
    let mut agent = Running::start(&mut agent, "agent", &at("agent.log"));
    agent.wait_until_said("agent: recording");
    let mut app = Command::new(app);
    app.arg(REQUESTS.to_string()).env("TRACEPOINTS_SOCKET", at("rings.sock"));
    assert!(app.env("OTEL_SERVICE_NAME", "shop").status().unwrap().success());
    assert!(agent.end("TERM").success(), "{}", agent.said());
    are_those_of_the_application(&phases(&[at("chunks")]));

    let text = read(&["--grep", "request_begin"], &[&at("chunks")]);
    let text = stdout(&text);
    assert_eq!(text.lines().count() as u64, REQUESTS);
    assert!(text.contains("procname = \"shop\""), "{text}");
    assert!(text.contains("{ request_id = 1, http__2emethod = \"GET\" }"), "{text}");
    let check = Command::new(THROUGHLINE).args(["ctf", "check"]).arg(at("chunks")).output();
    assert_eq!(check.as_ref().unwrap().status.code(), Some(0), "{}", stdout(&check.unwrap()));

    let Some(capture) = &mut capture else { return };
    assert!(capture.end("TERM").success(), "{}", capture.said());
    let answer = phases(&[at("chunks"), at("kernel")]);
    are_those_of_the_application(&answer);
    for request in answer["request_list"].as_array().unwrap() {
        // One clock, one host, one thread: the kernel says that it slept. From an event of an application that does not say its CPU to the next of the
        // kernel it is not known that it runs, so that some time stays unknown.
        let slept_ns = request["blocked_ns"]["timer"].as_u64().unwrap();
        assert!(slept_ns >= 4_000_000, "{request}");
    }
}
