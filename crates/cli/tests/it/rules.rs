//! What `throughline rules` makes of a store's profiles.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use testkit::prometheus::Prometheus;
use testkit::wait_for;

use crate::process::THROUGHLINE;
use crate::read::{stderr, stdout};
use crate::store::{Store, asked, now_ms};

const TYPE: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
const METRIC: &str = "pyroscope_exported_metrics_process_cpu_cpu_nanoseconds_cpu_nanoseconds";
const SELF: &str =
    "pyroscope_exported_metrics_functions_self_process_cpu_cpu_nanoseconds_cpu_nanoseconds";

fn backfill(data: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(THROUGHLINE);
    command.args(["rules", "backfill", "--data"]).arg(data).args(arguments);
    command.output().unwrap()
}

/// Pushes folded stacks of 100 Hz that were sampled so long ago.
fn push(store: &Store, name: &str, seconds_ago: u128, stacks: &str) {
    let at = (now_ms() - seconds_ago * 1_000).to_string();
    let path = format!("/ingest?name={name}&from={at}&until={at}");
    assert_eq!(store.post(&path, &[], stacks.as_bytes()).0, 200);
}

/// A single value of Prometheus.
fn value(prometheus: &Prometheus, query: &str) -> Option<i64> {
    let at_s = i64::try_from(now_ms() / 1_000).unwrap() + 60;
    let found = prometheus.query(query, at_s);
    assert!(found.len() <= 1, "{query}: {found:?}");
    let text = found.first()?["value"][1].as_str()?.to_owned();
    Some(text.parse().unwrap_or_else(|error| panic!("{query}: {text}: {error}")))
}

/// What the store's own querier says: of each function what it did itself.
fn stored(store: &Store, service: &str) -> Vec<(String, i64)> {
    let graph = &store.ask("SelectMergeStacktraces", &asked(service))["flamegraph"];
    let mut found: Vec<(String, i64)> = Vec::new();
    for level in graph["levels"].as_array().unwrap() {
        let numbers: Vec<i64> = level["values"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().map_or_else(|| it.as_i64().unwrap(), |it| it.parse().unwrap()))
            .collect();
        for node in numbers.chunks(4) {
            let name = graph["names"][usize::try_from(node[3]).unwrap()].as_str().unwrap();
            if node[2] > 0 {
                match found.iter_mut().find(|(known, _)| known == name) {
                    Some((_, own)) => *own += node[2],
                    None => found.push((name.to_owned(), node[2])),
                }
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_backfilled_is_in_a_real_prometheus_what_the_store_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (data, rules) = (folder.path().join("profiles"), folder.path().join("rules.toml"));
    let store = Store::start(&data, &["--cell", "1s"]);
    for round in 0..20 {
        let ago = 60 + round * 160;
        push(
            &store,
            "shop.cpu%7Bpod%3Da%7D",
            ago,
            &format!("main;serve;decode {}\nmain;serve 12\n", 30 + round),
        );
        push(&store, "shop.cpu%7Bpod%3Db%22%5C%7D", ago, "main 3\n");
        push(&store, "till.cpu", ago, "main;idle 5\n");
    }
    let text = format!(
        "[[rule]]\nprofile_type = \"{TYPE}\"\ngroup_by = [\"service_name\", \"pod\"]\n\
         [[rule]]\nprofile_type = \"{TYPE}\"\ngroup_by = [\"service_name\"]\nvalue = \"self\"\nfunctions = {{ regex = \".+\" }}\n"
    );
    fs::write(&rules, text).unwrap();
    let out = folder.path().join("out.om");
    let to = ((now_ms() + 1_000) / 1_000).to_string();
    let arguments = ["--rule", rules.to_str().unwrap(), "--to", &to, "-o", out.to_str().unwrap()];
    // Beside the store, which merges what came meanwhile.
    let ran = backfill(&data, &[&arguments[..], &["--cell", "1s"]].concat());
    assert_eq!((ran.status.code(), stderr(&ran)), (Some(0), ""));
    assert!(stdout(&ran).starts_with("7 series and their counters, "), "{}", stdout(&ran));
    let text = fs::read_to_string(&out).unwrap();
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "nothing is left beside it");

    let Some(prometheus) = Prometheus::start_with(&out) else { return };
    for service in ["shop", "till"] {
        let total = store.total(service);
        for (name, function) in
            [(METRIC, "sum_over_time"), (&format!("{METRIC}_total"), "last_over_time")]
        {
            let query = format!("sum({function}({name}{{service_name=\"{service}\"}}[5h]))");
            assert_eq!(value(&prometheus, &query), Some(total), "{query}");
        }
        let own = stored(&store, service);
        assert_eq!(own.iter().map(|(_, own)| own).sum::<i64>(), total);
        for (function, own) in own {
            let of = format!("service_name=\"{service}\",function=\"{function}\"");
            let query = format!("sum_over_time({SELF}{{{of}}}[5h])");
            assert_eq!(value(&prometheus, &query), Some(own), "{query}");
        }
    }
    let count = |query: &str| value(&prometheus, query);
    assert_eq!(count(&format!("count(last_over_time({SELF}[5h]))")), Some(4));
    assert_eq!(
        count(&format!("sum(sum_over_time({METRIC}{{pod=\"b\\\"\\\\\"}}[5h]))")),
        Some(20 * 30_000_000)
    );
}

#[test]
fn a_rule_that_is_made_afterwards_is_backfilled_up_to_its_first_cell_and_goes_on_there() {
    let Some(live) = Prometheus::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let url = live.write_url();
    let store = Store::start(&data, &["--cell", "1s", "--remote-write", &url]);
    push(&store, "shop.cpu", 600, "main;serve 10\n");
    push(&store, "shop.cpu", 300, "main;serve 20\n");
    let rule = json!({
        "metricName": "profiles_recorded_serving",
        "matchers": [format!("{{service_name=\"shop\", __profile_type__=\"{TYPE}\"}}")],
        "groupBy": ["service_name"],
    });
    let path = "/settings.v1.RecordingRulesService/UpsertRecordingRule";
    let field = ["Content-Type: application/json"];
    let (status, said) = store.post(path, &field, rule.to_string().as_bytes());
    assert_eq!(status, 200, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    let id = said["rule"]["id"].as_str().unwrap();
    // The next cell has begun: what comes from here on is the store's, also what was taken before.
    let made_ms = now_ms();
    wait_for("the rule's first cell", || (now_ms() > made_ms + 1_500).then_some(()));
    push(&store, "shop.cpu", 450, "main;serve 400\n");
    let query = "sum(sum_over_time(profiles_recorded_serving[1h]))";
    let counted = wait_for("the metric", || value(&live, query));
    assert_eq!(counted, 4_000_000_000);

    let out = folder.path().join("out.om");
    let arguments = ["--cell", "1s", "--rule", id, "-o", out.to_str().unwrap()];
    let ran = backfill(&data, &arguments);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert!(stdout(&ran).starts_with("1 series and their counters, "), "{}", stdout(&ran));
    let late = backfill(&data, &[&arguments[..], &["--to", "2100-01-01T00:00:00Z"]].concat());
    assert_eq!(
        (late.status.code(), stderr(&late).lines().count()),
        (Some(2), 1),
        "{}",
        stderr(&late)
    );
    assert!(stderr(&late).contains("the store itself counts by rule"), "{}", stderr(&late));
    let none = backfill(
        &data,
        &[&arguments[..], &["--from", "2020-01-01T00:00:00Z", "--to", "2020-01-02T00:00:00Z"]]
            .concat(),
    );
    assert_eq!(
        (none.status.code(), stderr(&none)),
        (Some(1), "no profiles of these rules and times\n")
    );
    assert_eq!(fs::read_to_string(&out).unwrap(), "# EOF\n");
    let again = backfill(&data, &arguments);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let Some(old) = Prometheus::start_with(&out) else { return };
    assert_eq!(value(&old, query), Some(300_000_000));
    let series = |prometheus: &Prometheus| {
        let at_s = i64::try_from(now_ms() / 1_000).unwrap() + 5;
        let found = prometheus.query("last_over_time(profiles_recorded_serving_total[1h])", at_s);
        found.into_iter().map(|mut one| one["metric"].take()).collect::<Vec<_>>()
    };
    assert_eq!(series(&old), series(&live));
}

#[test]
fn what_cannot_be_backfilled_says_why_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("profiles");
    let store = Store::start(&data, &[]);
    push(&store, "shop.cpu", 60, "main 1\n");
    drop(store);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let rule = format!("[[tenant.shop.rule]]\nprofile_type = \"{TYPE}\"\n");
    fs::write(path("rules.toml"), rule).unwrap();
    fs::write(path("wrong.toml"), "[[rule]]\nprofile_type = \"cpu\"\n").unwrap();
    let (out, rules, wrong) = (path("out.om"), path("rules.toml"), path("wrong.toml"));
    let to = ["--to", "2100-01-01T00:00:00Z"];
    let case = |rule: &str, more: &[&str], said: &str| {
        let ran = backfill(&data, &[&["--rule", rule, "-o", &out][..], more].concat());
        let words = stderr(&ran);
        assert_eq!((ran.status.code(), words.lines().count()), (Some(2), 1), "{words}");
        assert!(words.contains(said), "{said}: {words}");
    };
    case("checkout", &to, "nor a rule that tenant anonymous has there: checkout");
    case(&rules, &to, "no rule of tenant anonymous");
    case(&wrong, &to, "wrong.toml: line 1: rule 1: ");
    case(&path("none.toml"), &to, "none.toml");
    case(&rules, &["--tenant", "a/b"], "--tenant: \"a/b\" names no tenant");
    case(&rules, &["--tenant", "shop"], "--to is missing");
    case(&rules, &["--tenant", "shop", "--to", "soon"], "--to: \"soon\": not nanoseconds");
    case(&rules, &["--tenant", "shop", "--to", "16:44"], "--to: \"16:44\": of which day?");
    case(
        &rules,
        &["--tenant", "shop", "--to", "2026-01-01T00:00:00Z", "--from", "2026-01-01T00:00:00Z"],
        "--from: no cell",
    );
    case(&rules, &["--tenant", "shop", "--cell", "1ms"], "--cell: from 1s to 1h");
    case(&rules, &["--tenant", "shop", "--limits", &path("no-limits")], "no-limits");
    let nowhere = ["--tenant", "shop", "--to", "2100-01-01T00:00:00Z"];
    let ran =
        backfill(Path::new("/nowhere"), &[&["--rule", &rules, "-o", &out][..], &nowhere].concat());
    assert!(ran.status.code() == Some(2) && stderr(&ran).contains("/nowhere"), "{}", stderr(&ran));
    assert!(!Path::new(&out).exists());
}
