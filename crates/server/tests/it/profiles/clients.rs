//! Clients of other people: each runs a function that is busy for some seconds, which is found by its name then.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use axum::http::Version;
use intake::Limits;

use super::store::{Store, gzip};

/// Programs stop by themselves much earlier.
const WATCHDOG_S: &str = "120";

const PYTHON: &str = r#"
import sys, time, pyroscope
pyroscope.configure(application_name="clients.python", server_address=sys.argv[1], sample_rate=100, tags={"region": "north"})
def python_is_busy(end):
    n = 0
    while time.monotonic() < end:
        for i in range(1000):
            n = n * 31 + i & 0xffff
python_is_busy(time.monotonic() + 3)
pyroscope.shutdown()
"#;

const NODE: &str = r#"
const Pyroscope = require('@pyroscope/nodejs');
Pyroscope.init({ serverAddress: process.argv[1], appName: 'clients.node', tags: { region: 'north' }, wall: { collectCpuTime: true } });
Pyroscope.start();
function nodeIsBusy(end) {
  let n = 0;
  while (Date.now() < end) for (let i = 0; i < 1000; i++) n = (n * 31 + i) & 0xffff;
  return n;
}
let rounds = 0;
const timer = setInterval(() => {
  nodeIsBusy(Date.now() + 100);
  if (++rounds == 30) {
    clearInterval(timer);
    Pyroscope.stop();
  }
}, 1);
"#;

const JAVA: &str = r#"
public class Busy {
    static long javaIsBusy(long end) {
        long n = 0;
        while (System.nanoTime() < end) for (int i = 0; i < 1000; i++) n = (n * 31 + i) & 0xffff;
        return n;
    }
    public static void main(String[] args) {
        System.out.println(javaIsBusy(System.nanoTime() + 3_000_000_000L));
    }
}
"#;

/// OpenTelemetry's messages over grpcio, as the collector's exporter sends them.
const GRPC: &str = r#"
import sys, time, grpc
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2 as service
from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2_grpc as stubs
texts = ["", "cpu", "nanoseconds", "samples", "count", "grpc_is_busy"]
request = service.ExportProfilesServiceRequest()
d = request.dictionary
d.string_table.extend(texts)
for table in (d.mapping_table, d.location_table, d.function_table, d.link_table, d.stack_table, d.attribute_table):
    table.add()
d.function_table.add(name_strindex=5)
d.location_table.add().lines.add(function_index=1)
d.stack_table.add(location_indices=[1])
resource = request.resource_profiles.add()
attribute = resource.resource.attributes.add(key="service.name")
attribute.value.string_value = "clients.grpc"
profile = resource.scope_profiles.add().profiles.add(time_unix_nano=time.time_ns(), duration_nano=10**9, period=10**7)
profile.sample_type.type_strindex, profile.sample_type.unit_strindex = 3, 4
profile.period_type.type_strindex, profile.period_type.unit_strindex = 1, 2
profile.samples.add(stack_index=1, values=[300])
target = sys.argv[1].removeprefix("http://")
for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
    with grpc.insecure_channel(target) as channel:
        export = stubs.ProfilesServiceStub(channel).Export
        print(export(request, compression=compression, timeout=30).partial_success.rejected_profiles)
        # What a profile without its tables is told.
        bad = service.ExportProfilesServiceRequest(resource_profiles=request.resource_profiles)
        try:
            export(bad, compression=compression, timeout=30)
        except grpc.RpcError as error:
            print(error.code().name, error.details())
"#;

/// Runs a program, which is given the store's address, and says what it printed.
fn run(command: &mut Command, store: &Store) -> String {
    let ran = command.arg(format!("http://{}", store.address)).stderr(Stdio::piped()).output();
    let ran = ran.unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

fn program(path: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", WATCHDOG_S, path]);
    command
}

/// A Python that has a module, as `./test` installs it.
fn python(variable: &str, module: &str) -> Option<Command> {
    let path = std::env::var(variable).unwrap_or_else(|_unset| "python3".to_owned());
    let mut asks = Command::new(&path);
    let asks = asks.args(["-c", &format!("import {module}")]).stderr(Stdio::null()).status();
    if !asks.is_ok_and(|status| status.success()) {
        testkit::skip(&format!("no Python has {module}"));
        return None;
    }
    Some(program(&path))
}

/// The time of a service of a type, in which this function is.
fn check(store: &Store, service: &str, profile_type: &str, function: &str) {
    let (total, names) = store.graph_of(service, profile_type);
    let found = names.iter().any(|name| name.contains(function));
    assert!(found && total >= 500_000_000, "{service}: {total} ns, {names:?}");
}

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const WALL: &str = "wall:wall:nanoseconds:wall:nanoseconds";

#[test]
fn what_python_does_is_shown() {
    let Some(mut python) = python("THROUGHLINE_PYROSCOPE_PYTHON", "pyroscope") else { return };
    let store = Store::start_now(Limits::default());
    run(python.args(["-c", PYTHON]), &store);
    check(&store, "clients.python", CPU, "python_is_busy");
}

#[test]
fn what_node_does_is_shown() {
    let modules = std::env::var_os("THROUGHLINE_PYROSCOPE_NODE").map(PathBuf::from);
    let Some(modules) = modules.filter(|path| path.join("@pyroscope/nodejs").exists()) else {
        testkit::skip("Pyroscope's package for Node is not installed");
        return;
    };
    let store = Store::start_now(Limits::default());
    run(program("node").env("NODE_PATH", modules).args(["-e", NODE]), &store);
    check(&store, "clients.node", WALL, "nodeIsBusy");
    check(&store, "clients.node", "wall:cpu:nanoseconds:wall:nanoseconds", "nodeIsBusy");
}

#[test]
fn what_rust_does_is_shown() {
    let Some(client) = std::env::var_os("THROUGHLINE_PYROSCOPE_RUST") else {
        testkit::skip("Pyroscope's client for Rust was not built");
        return;
    };
    let store = Store::start_now(Limits::default());
    run(&mut program(client.to_str().unwrap()), &store);
    check(&store, "clients.rust", CPU, "pyroscope_client::rust_is_busy");
}

/// A recording of the JDK in a form, as Pyroscope's agent for Java sends those of async-profiler: the agent is in no registry of packages.
#[test]
fn what_java_records_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("Busy.java");
    std::fs::write(&source, JAVA).unwrap();
    let file = folder.path().join("busy.jfr");
    let option = format!("-XX:StartFlightRecording=settings=profile,filename={}", file.display());
    let ran = program("java").arg(option).arg(&source).output().unwrap();
    if !ran.status.success() {
        return testkit::skip("no JDK of 11 or later is installed");
    }
    let recording = gzip(&std::fs::read(&file).unwrap());
    let part = b"--xx\r\nContent-Disposition: form-data; name=\"jfr\"; filename=\"jfr\"\r\n\r\n";
    let form = [part.as_slice(), &recording, b"\r\n--xx--\r\n"].concat();
    let store = Store::start_now(Limits::default());
    let path = "/ingest?name=clients.java%7B%7D&spyName=javaspy&sampleRate=100&format=jfr";
    let fields = [("content-type", "multipart/form-data; boundary=xx")];
    let reply = store.post(Version::HTTP_11, path, &fields, form);
    assert_eq!(reply.status, 200, "{}", reply.text());
    check(&store, "clients.java", CPU, "Busy.javaIsBusy");
}

#[test]
fn what_opentelemetry_sends_by_grpc_is_shown() {
    let module = "grpc, opentelemetry.proto.collector.profiles.v1development";
    let Some(mut python) = python("THROUGHLINE_OTLP_PYTHON", module) else { return };
    let store = Store::start_now(Limits::default());
    let said = run(python.args(["-c", GRPC]), &store);
    let refused = "INVALID_ARGUMENT the request has profiles and no dictionary";
    assert_eq!(said.lines().collect::<Vec<_>>(), ["0", refused, "0", refused]);
    // It came twice, and is the same.
    let (total, _) = store.graph_of("clients.grpc", CPU);
    assert_eq!(total, 3_000_000_000);
    check(&store, "clients.grpc", CPU, "grpc_is_busy");
}
