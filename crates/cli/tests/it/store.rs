//! A store of profiles, as its clients see it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::path::Path;
use std::process::{Command, Stdio};

use model::Timestamp;
use serde_json::{Value, json};
use store::catalogue::Catalogue;
use store::lake::name::Tenant;
use testkit::exporting::{self, Trial};
use testkit::prometheus::Prometheus;
use testkit::wait_for;

use crate::process::{Running, THROUGHLINE};
use crate::profile::can_sample;
use crate::read::{stderr, stdout};

pub(crate) struct Store {
    running: Running,
    door: Door,
}

/// Where a store listens.
pub(crate) struct Door {
    pub(crate) url: String,
}

impl Deref for Store {
    type Target = Door;

    fn deref(&self) -> &Door {
        &self.door
    }
}

impl Store {
    pub(crate) fn start(data: &Path, arguments: &[&str]) -> Self {
        let place = data.to_str().unwrap();
        Self::start_at(place, &data.with_extension("log"), arguments, &[])
    }

    fn start_at(place: &str, log: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(THROUGHLINE);
        command.args(["store", "--listen", "127.0.0.1:0", "--data", place]).args(arguments);
        command.envs(environment.iter().copied());
        let mut running = Running::start(command.stdout(Stdio::piped()), "store", log);
        let url = running.line_after("listening at ");
        Self { running, door: Door { url } }
    }
}

impl Door {
    /// The body of a page.
    pub(crate) fn get(&self, path: &str) -> String {
        let host = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The status and the body of an answer to what is posted.
    pub(crate) fn post(&self, path: &str, fields: &[&str], body: &[u8]) -> (u16, String) {
        let host = self.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let mut head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
        fields.iter().for_each(|field| head += &format!("{field}\r\n"));
        head += &format!("Content-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    pub(crate) fn ask(&self, method: &str, question: &Value) -> Value {
        let path = format!("/querier.v1.QuerierService/{method}");
        let field = "Content-Type: application/json";
        let (status, body) = self.post(&path, &[field], question.to_string().as_bytes());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Folded stacks of a service.
    pub(crate) fn push(&self, service: &str, fields: &[&str], stacks: &str) -> (u16, String) {
        let path = format!("/ingest?name={service}.cpu%7Bpod%3Da%7D&from={}&until=now", now_ms());
        self.post(&path, fields, stacks.as_bytes())
    }

    /// All of a service's time on CPUs.
    pub(crate) fn total(&self, service: &str) -> i64 {
        let graph = self.ask("SelectMergeStacktraces", &asked(service));
        graph["flamegraph"]["total"].as_str().unwrap_or("0").parse().unwrap()
    }
}

#[expect(clippy::disallowed_methods, reason = "what is pushed is from now")]
pub(crate) fn now_ms() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis()
}

pub(crate) fn asked(service: &str) -> Value {
    json!({
        "profileTypeID": "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "labelSelector": format!("{{service_name=\"{service}\"}}"),
        "start": now_ms() - 3_600_000,
        "end": now_ms() + 60_000,
    })
}

#[test]
fn what_is_pushed_and_acknowledged_is_shown_also_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let mut store = Store::start(&data, &[]);
    // Samples of 100 Hz.
    let (status, body) = store.push("shop", &[], "main;serve;decode 30\nmain;serve 12\n");
    assert_eq!((status, body.as_str()), (200, ""));
    assert_eq!(store.push("other", &[], "main 1\n").0, 200);
    store.running.end("KILL");
    let mut store = Store::start(&data, &[]);
    assert_eq!(store.push("shop", &[], "main;serve 100\n").0, 200);
    let status = store.running.end("TERM");
    assert_eq!(status.code(), Some(0), "{}", store.running.said());

    let store = Store::start(&data, &[]);
    assert_eq!(store.total("shop"), 1_420_000_000);
    let graph = &store.ask("SelectMergeStacktraces", &asked("shop"))["flamegraph"];
    assert_eq!(graph["names"], json!(["total", "main", "serve", "decode"]));
    let types = store.ask("ProfileTypes", &json!({}));
    assert_eq!(types["profileTypes"][0]["ID"], "process_cpu:cpu:nanoseconds:cpu:nanoseconds");
    let services = store.ask("LabelValues", &json!({ "name": "service_name" }));
    assert_eq!(services["names"], json!(["other", "shop"]));
    let mut question = asked("shop");
    question["step"] = json!(3_600);
    question["groupBy"] = json!(["pod"]);
    let series = store.ask("SelectSeries", &question);
    assert_eq!(series["series"][0]["labels"], json!([{ "name": "pod", "value": "a" }]));
    // Files of blocks that were merged stay for a while, for others who read them.
    let names = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name());
    let endings = names.filter(|name| name.to_string_lossy().ends_with(".parquet")).count();
    assert!((1..=6).contains(&endings), "{endings}");
}

#[cfg(feature = "object-store")]
#[test]
fn a_store_in_a_bucket_has_what_it_acknowledged_after_a_kill() {
    let Some(server) = testkit::s3::Server::start("127.0.0.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let catalogue = format!("sqlite:{}", folder.path().join("catalogue.sqlite").display());
    let log = folder.path().join("store.log");
    let start = || {
        let arguments = ["--catalogue", &catalogue];
        Store::start_at("s3://copies/profiles", &log, &arguments, &server.environment())
    };
    let mut store = start();
    for round in 0..3 {
        assert_eq!(store.push("shop", &[], &format!("main;serve {}\n", 10 + round)).0, 200);
        store.running.end("KILL");
        store = start();
    }
    assert_eq!(store.total("shop"), 330_000_000);
    drop(store);
    // A catalogue that is lost is made anew of what is in the bucket.
    fs::remove_file(folder.path().join("catalogue.sqlite")).unwrap();
    for ending in ["-wal", "-shm"] {
        drop(fs::remove_file(folder.path().join(format!("catalogue.sqlite{ending}"))));
    }
    assert_eq!(start().total("shop"), 330_000_000);
    let mut command = Command::new(THROUGHLINE);
    command.args(["store", "--data", "s3://copies/profiles"]).envs(server.environment());
    let refused = command.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("where its catalogue is"), "{}", stderr(&refused));
}

#[test]
fn a_push_that_comes_again_counts_once_and_tenants_see_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(&folder.path().join("profiles"), &["--tenants", "--rate", "1KiB"]);
    let path = format!("/ingest?name=shop.cpu&from={}&until=now", now_ms());
    let one = ["X-Scope-OrgID: one"];
    for _ in 0..3 {
        assert_eq!(store.post(&path, &one, b"main;work 10\n").0, 200);
    }
    let of = |tenant: &str| {
        let fields = ["Content-Type: application/json", tenant];
        let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
        let (status, body) = store.post(path, &fields, asked("shop").to_string().as_bytes());
        let body: Value = serde_json::from_str(&body).unwrap();
        (status, body)
    };
    assert_eq!(of("X-Scope-OrgID: one").1["flamegraph"]["total"], "100000000");
    assert_eq!(of("X-Scope-OrgID: two").1["flamegraph"]["total"], Value::Null);
    let (status, refused) = of("X-Other: 1");
    assert_eq!((status, &refused["code"]), (401, &json!("unauthenticated")));
    assert_eq!(of("X-Scope-OrgID: ../one").0, 400);
    // Who sends too much waits, and nobody else does.
    let much = "main;work 1\n".repeat(1 << 18);
    let (two, three) = (["X-Scope-OrgID: two"], ["X-Scope-OrgID: three"]);
    assert_eq!(store.post(&path, &two, much.as_bytes()).0, 200);
    let (status, said) = store.post(&path, &two, b"main;work 7\n");
    assert_eq!(status, 429, "{said}");
    assert_eq!(store.post(&path, &three, b"main;work 7\n").0, 200);
}

/// Two tenants of one store, of which a file gives one less than the other.
#[test]
fn tenants_have_limits_and_keep_what_their_own_say() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits.toml");
    let text = "[default]\nlabels = 6\nstack_depth = 3\n\
                [tenant.small]\nbody = \"4kB\"\nrate = \"1B\"\nburst = \"8kB\"\nstack_depth = 2\ntake_for = \"1m\"\nkeep_for = \"1s\"\n";
    fs::write(&limits, text).unwrap();
    let limits = limits.to_str().unwrap();
    let arguments = ["--tenants", "--limits", limits, "--rate", "64MiB", "--cell", "1s"];
    let store = Store::start(&folder.path().join("profiles"), &arguments);
    let (small, large) = (["X-Scope-OrgID: small"], ["X-Scope-OrgID: large"]);
    let ago = |seconds: u128| (now_ms() - seconds * 1_000).to_string();
    let push = |name: &str, tenant: &[&str], from: &str, body: &str| {
        let path = format!("/ingest?name={name}&from={from}&until={from}");
        store.post(&path, tenant, body.as_bytes())
    };
    for tenant in [&small, &large] {
        assert_eq!(push("shop.cpu", tenant, &ago(5), "main;serve;decode;read 10\n").0, 200);
        let many: String = (0..7).map(|n| format!("%2Cl{n}%3D1")).collect();
        let (status, said) =
            push(&format!("shop.cpu%7Ba%3D1{many}%7D"), tenant, &ago(5), "main 1\n");
        assert!(status == 422 && said.contains("6 are taken"), "{status} {said}");
    }
    // Each of both by its own bounds, first the time and then the length.
    let (status, said) = push("shop.cpu", &small, &ago(120), "main 1\n");
    assert!(status == 422 && said.contains("60.0 s are taken"), "{status} {said}");
    assert_eq!(push("shop.cpu", &large, &ago(120), "main 1\n").0, 200);
    let long = format!("main;{} 1\n", "x".repeat(5_000));
    let (status, said) = push("shop.cpu", &small, &ago(5), &long);
    assert!(status == 413 && said.contains("bytes"), "{status} {said}");
    assert_eq!(push("shop.cpu", &large, &ago(5), &long).0, 200);
    // What is left of the burst, and one second's byte.
    let fits = format!("main;{} 1\n", "x".repeat(3_900));
    let statuses: Vec<u16> =
        (0..4).map(|n| push(&format!("s{n}.cpu"), &small, &ago(5), &fits).0).collect();
    assert_eq!((statuses[0], statuses[3]), (200, 429), "{statuses:?}");
    assert_eq!(push("shop.cpu", &large, &ago(4), &fits).0, 200);

    let of = |tenant: &str| -> Value {
        let fields = ["Content-Type: application/json", tenant];
        let path = "/querier.v1.QuerierService/SelectMergeStacktraces";
        let (status, body) = store.post(path, &fields, asked("shop").to_string().as_bytes());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    // What the smaller one pushed is deleted as soon as it is merged; the other's stays, with stacks of its depth.
    let is_gone = || of(small[0])["flamegraph"]["total"].is_null().then_some(());
    wait_for("the smaller one's blocks to be deleted", is_gone);
    let graph = of(large[0])["flamegraph"].clone();
    assert_eq!(graph["total"], "130000000", "{graph}");
    let names = graph["names"].as_array().unwrap();
    assert!(names.contains(&json!("decode")) && !names.contains(&json!("read")), "{names:?}");
    let metric = |line: &str| wait_for(line, || store.get("/metrics").contains(line).then_some(()));
    metric("throughline_store_left_out_total{tenant=\"small\",reason=\"deep_stack\"} 1\n");
    metric("throughline_store_left_out_total{tenant=\"large\",reason=\"deep_stack\"} 1\n");
    metric("throughline_store_refused_total{tenant=\"large\",reason=\"invalid\"} 1\n");
    metric("throughline_store_refused_total{tenant=\"small\",reason=\"too_old\"} 1\n");
    metric("throughline_store_refused_total{tenant=\"small\",reason=\"too_large\"} 1\n");
    metric("throughline_store_refused_total{tenant=\"small\",reason=\"rate\"} 1\n");
}

#[test]
fn a_file_of_limits_that_is_wrong_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    for (text, said) in [
        ("[tenant.shop]\nrate = \"1Mb\"\n", "limits.toml: tenant.shop.rate: unknown unit \"Mb\""),
        ("[tenant.\"a/b\"]\n", "limits.toml: tenant.a/b: "),
        ("[default]\nspeed = 1\n", "limits.toml: default.speed: unknown key; one of rate, "),
    ] {
        fs::write(&path, text).unwrap();
        let mut command = Command::new(THROUGHLINE);
        command.args(["store", "--listen", "127.0.0.1:0", "--tenants", "--data"]);
        command.arg(folder.path().join("profiles")).arg("--limits").arg(&path);
        let ran = command.output().unwrap();
        let words = stderr(&ran);
        assert_eq!((ran.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(words.contains(said), "{words}");
    }
}

#[test]
fn what_cannot_be_taken_says_why_and_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let store = Store::start(&data, &[]);
    let name = "/ingest?name=shop.cpu&format=pprof";
    let cases: [(&str, &[u8], u16); 5] = [
        ("/ingest?name=", b"main 1\n", 400),
        (name, b"\x1f\x8b\x08 this is no gzip", 422),
        (name, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 422),
        ("/ingest?name=shop.cpu&from=now-2h&until=now-2h", b"main 1\n", 422),
        ("/querier.v1.QuerierService/Nothing", b"{}", 501),
    ];
    for (path, body, expected) in cases {
        let (status, said) = store.post(path, &["Content-Type: application/json"], body);
        assert_eq!(status, expected, "{path}: {said}");
        let said: Value = serde_json::from_str(&said).unwrap();
        assert!(!said["message"].as_str().unwrap().is_empty(), "{path}: {said}");
    }
    assert_eq!(store.ask("LabelValues", &json!({ "name": "service_name" })), json!({}));
    // Another process does not write into the same folder.
    let mut second = Command::new(THROUGHLINE);
    let second = second.args(["store", "--listen", "127.0.0.1:0", "--data"]).arg(&data).output();
    let second = second.unwrap();
    assert_eq!((second.status.code(), stdout(&second)), (Some(2), ""));
    assert!(stderr(&second).contains("is used by another process"), "{}", stderr(&second));
}

/// What was sampled here is shown by function.
#[test]
fn profiles_of_the_agent_are_pushed_and_shown() {
    if !can_sample() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(&folder.path().join("profiles"), &[]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(THROUGHLINE);
        command.current_dir(folder.path()).arg("profile").args(arguments);
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{}", stderr(&ran));
    };
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    run(&["--output", "busy.otlp.gz", "--", "sh", "-c", busy]);
    let other = Store::start(&folder.path().join("other"), &[]);
    let total = |store: &Store| {
        let services = store.ask("LabelValues", &json!({ "name": "service_name" }));
        let services = services["names"].as_array().unwrap().clone();
        let of_service = |name: &Value| store.total(name.as_str().unwrap());
        services.iter().map(of_service).sum::<i64>()
    };
    // A packet says who it is by either protocol, and so counts once however often it comes.
    let to_pyroscope = format!("pyroscope+{}", store.url);
    let by_grpc = store.url.replace("http://", "grpc://");
    let mut totals = Vec::new();
    for to in [&to_pyroscope, &to_pyroscope, &store.url, &by_grpc] {
        run(&["send", "busy.otlp.gz", "--to", to]);
        totals.push(total(&store));
    }
    for to in [other.url.replace("http://", "grpc://"), other.url.clone()] {
        run(&["send", "busy.otlp.gz", "--to", &to]);
        totals.push(total(&other));
    }
    assert!(totals[0] > 50_000_000, "{totals:?}");
    assert_eq!(totals, [totals[0]; 6]);
    let services = store.ask("LabelValues", &json!({ "name": "service_name" }));
    let service = services["names"][0].as_str().unwrap();
    let graph = &store.ask("SelectMergeStacktraces", &asked(service))["flamegraph"];
    let names = graph["names"].as_array().unwrap();
    assert!(names.len() > 5, "{names:?}");
}

#[test]
fn what_is_exported_reaches_a_real_prometheus_once_whoever_is_killed() {
    export_is_exact(false);
}

#[test]
fn what_is_exported_by_remote_write_2_reaches_a_prometheus_that_takes_it_once() {
    export_is_exact(true);
}

fn export_is_exact(is_newest: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = THROUGHLINE.into();
    let trial =
        Trial { program, catalogue: None, rules, workers: 2, is_newest, kills: 12, seed: 7 };
    let Some(outcome) = exporting::run(&trial, folder.path(), |_| {}) else { return };
    assert!(outcome.holds(), "{outcome:#?}");
    let [all, _, newer] = outcome.requests;
    // The other one is tried with it after each start of the store.
    assert!(newer > 0 && (newer * 2 > all) == is_newest, "{outcome:?}");
    assert!(outcome.pushes[0] > 10 && outcome.requests[1] > 0, "{outcome:?}");
    assert!(outcome.kills[2] > 0 && outcome.by_workers > 0, "{outcome:?}");
    assert!(outcome.exported.len() > 10, "{outcome:?}");
    let [made, changed, cells] = outcome.rules;
    assert!(made > 0 && changed > 0 && cells > 0, "{outcome:?}");
}

/// What a catalogue has as rules.
fn rules(url: &str, data: &Path) -> Value {
    // The time is that of tables, which are there.
    let since = Timestamp::from_nanos(0);
    let catalogue = Catalogue::open(url, data.to_str().unwrap(), since).unwrap();
    let book = catalogue.rules(&Tenant::new("anonymous").unwrap()).unwrap();
    serde_json::to_value(book).unwrap()
}

#[test]
fn a_rule_that_is_made_by_pyroscopes_service_is_a_metric_soon_after() {
    let Some(prometheus) = Prometheus::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = prometheus.write_url();
    let store =
        Store::start(&folder.path().join("profiles"), &["--cell", "1s", "--remote-write", &url]);
    let rule = json!({
        "metricName": "profiles_recorded_serving",
        "matchers": ["{service_name=\"shop\", __profile_type__=\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"}"],
        "groupBy": ["pod"],
        "stacktraceFilter": { "functionName": { "functionName": "serve" } },
    });
    let path = "/settings.v1.RecordingRulesService/UpsertRecordingRule";
    let json_field = ["Content-Type: application/json"];
    let (status, said) = store.post(path, &json_field, rule.to_string().as_bytes());
    assert_eq!(status, 200, "{said}");
    // It holds from the next cell on: what is pushed in this one is not counted.
    let found = wait_for("the metric", || {
        assert_eq!(store.push("shop", &[], "main;serve;decode 30\nmain;serve 12\nmain 5\n").0, 200);
        let at_s = i64::try_from(now_ms() / 1_000).unwrap();
        let series = prometheus.query("profiles_recorded_serving", at_s);
        series.first().cloned()
    });
    assert_eq!(found["metric"]["pod"], "a");
    let value: u64 = found["value"][1].as_str().unwrap().parse().unwrap();
    assert!(value > 0 && value.is_multiple_of(420_000_000), "{value}");
    let field = |told: &str, name: &str| {
        let line = told.lines().find(|line| line.starts_with(name))?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    // They are told every second.
    let told = wait_for("metrics", || {
        let told = store.get("/metrics");
        field(&told, "throughline_export_sent_samples_total{").filter(|sent| *sent > 0.0)?;
        Some(told)
    });
    let lag_s = field(&told, "throughline_export_lag_seconds{").unwrap();
    assert!(lag_s < 60.0, "{told}");
}

/// Clients made as many rules as a tenant may have before the configuration had one: theirs stay, and all else goes on.
#[test]
fn rules_of_a_configuration_that_do_not_fit_keep_nothing_from_being_merged() {
    let folder = tempfile::tempdir().unwrap();
    let (data, rules) = (folder.path().join("profiles"), folder.path().join("rules"));
    let store = Store::start(&data, &["--cell", "1s"]);
    let path = "/settings.v1.RecordingRulesService/UpsertRecordingRule";
    for number in 0..25 {
        let rule = json!({
            "metricName": format!("profiles_recorded_n{number}"),
            "matchers": ["{__profile_type__=\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"}"],
            "groupBy": [],
        });
        let field = ["Content-Type: application/json"];
        let (status, said) = store.post(path, &field, rule.to_string().as_bytes());
        assert_eq!(status, 200, "{said}");
    }
    drop(store);
    let rule = "[[rule]]\nprofile_type = \"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"\n";
    fs::write(&rules, rule).unwrap();
    let arguments = ["--cell", "1s", "--rules", rules.to_str().unwrap()];
    let mut store = Store::start(&data, &arguments);
    assert_eq!(store.push("shop", &[], "main;serve 10\n").0, 200);
    let done = "throughline_compaction_done_jobs_total{by=\"store\"} 1\n";
    wait_for("a merge", || store.get("/metrics").contains(done).then_some(()));
    assert_eq!(store.total("shop"), 100_000_000);
    store.running.end("TERM");
    let said = store.running.said();
    let refused = "rules of the configuration are not given to tenant anonymous: ";
    assert_eq!(said.matches(refused).count(), 1, "{said}");
}

/// What is more than a tenant may have is in the overflow, and is told with the reason.
#[test]
fn tenants_have_as_many_series_as_their_own_limits_say() {
    let Some(prometheus) = Prometheus::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("limits"), "[default]\nseries = 3\n[tenant.small]\nseries_of_metric = 1\n")
        .unwrap();
    let rule = "[[rule]]\nprofile_type = \"process_cpu:cpu:nanoseconds:cpu:nanoseconds\"\n\
                group_by = []\nvalue = \"self\"\nfunctions = { regex = \"[fg].\" }\n";
    fs::write(path("rules"), rule).unwrap();
    let (limits, rules) = (path("limits"), path("rules"));
    let url = prometheus.write_url();
    let arguments = [
        "--tenants",
        "--cell",
        "1s",
        "--limits",
        limits.to_str().unwrap(),
        "--rules",
        rules.to_str().unwrap(),
        "--remote-write",
        &url,
    ];
    let store = Store::start(&path("profiles"), &arguments);
    for (tenant, letter) in [("large", "f"), ("small", "g")] {
        let stacks: String = (0..5).map(|n| format!("main;{letter}{n} 1\n")).collect();
        let field = format!("X-Scope-OrgID: {tenant}");
        assert_eq!(store.push("shop", &[&field], &stacks).0, 200);
    }
    let metric = |tenant: &str, reason: &str, samples: u64| {
        let line = format!(
            "throughline_export_elsewhere_samples_total{{tenant=\"{tenant}\",reason=\"{reason}\"}} {samples}\n"
        );
        wait_for(&line, || store.get("/metrics").contains(&line).then_some(()));
    };
    metric("large", "too_many_series", 2);
    metric("small", "too_many_series", 4);
    metric("small", "label_clash", 0);
    let name =
        "pyroscope_exported_metrics_functions_self_process_cpu_cpu_nanoseconds_cpu_nanoseconds";
    for (letter, series) in [("f", "3"), ("g", "1")] {
        let query = format!("count(sum_over_time({name}{{function=~\"{letter}.\"}}[1h]))");
        wait_for(&query, || {
            let at_s = i64::try_from(now_ms() / 1_000).unwrap() + 60;
            let found = prometheus.query(&query, at_s);
            (found.first()?["value"][1] == series).then_some(())
        });
    }
}

#[cfg(feature = "sql")]
#[test]
fn samples_in_sql_are_what_the_querier_answers() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let place = data.to_str().unwrap();
    let store = Store::start(&data, &["--cell", "1s"]);
    for round in 0..3 {
        assert_eq!(store.push("shop", &[], &format!("main;serve {}\n", 10 + round)).0, 200);
        assert_eq!(store.push("till", &[], "main;idle 5\nmain;serve 7\n").0, 200);
    }
    let ask = |place: &str, question: &str| {
        let mut command = Command::new(THROUGHLINE);
        let output = command.args(["sql", "--format", "csv", "--profiles", place, question]);
        let output = output.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output).trim_end().to_owned()
    };
    let sums = "select service, sum(value) from samples group by 1 order by 1";
    let expected = |answer: &str| {
        let [shop, till] = ["shop", "till"].map(|service| store.total(service));
        assert_eq!((shop, till), (330_000_000, 360_000_000));
        let rows: Vec<&str> = answer.lines().skip(1).collect();
        assert_eq!(rows, [format!("shop,{shop}"), format!("till,{till}")]);
    };
    // Beside the store, and after it has merged what came.
    expected(&ask(place, sums));
    let is_merged = |name: &str| {
        name.ends_with(".parquet") && name.rsplit('-').nth(2).is_some_and(|level| level != "0")
    };
    wait_for("a merge", || {
        let files = fs::read_dir(&data).unwrap();
        let mut names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.any(|name| is_merged(&name)).then_some(())
    });
    expected(&ask(place, sums));
    let functions = "select f.function, sum(s.value) from samples s join stacks f on f.stack = s.stack \
                     where s.service = 'till' and s.time > '2020-01-01' group by 1 order by 1";
    let rows = ask(place, functions);
    let rows: Vec<&str> = rows.lines().skip(1).collect();
    assert_eq!(rows, ["idle,150000000", "main,360000000", "serve,210000000"]);
    let pods =
        "select labels['pod'] as pod, count(*) from samples where service = 'shop' group by 1";
    assert_eq!(ask(place, pods).lines().nth(1), Some("a,3"));
    assert_eq!(
        ask(place, "select count(*) from samples where time < '2020-01-01'").lines().nth(1),
        Some("0")
    );
    // Without a catalogue, what blocks say of each other counts: sources of merges are still in the folder.
    let copy = folder.path().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(&data).unwrap() {
        let file = file.unwrap();
        if file.file_name().to_str().unwrap().ends_with(".parquet") {
            fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    expected(&ask(copy.to_str().unwrap(), sums));
    // One block alone, under a name that says nothing: no tenant.
    let mut blocks = fs::read_dir(&copy).unwrap().map(|file| file.unwrap().path());
    let alone = folder.path().join("alone.parquet");
    fs::copy(blocks.next().unwrap(), &alone).unwrap();
    let rows = ask(alone.to_str().unwrap(), "select count(*) > 0, count(tenant) from samples");
    assert_eq!(rows.lines().nth(1), Some("true,0"));
    fs::write(&alone, "no block").unwrap();
    let mut command = Command::new(THROUGHLINE);
    let refused = command.args(["sql", "--profiles", alone.to_str().unwrap(), sums]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("alone.parquet"), "{}", stderr(&refused));
    let refused = Command::new(THROUGHLINE).args(["sql", "--profiles", "/nowhere", sums]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("/nowhere"), "{}", stderr(&refused));
}
