//! What `deploy/grafana` asks of the store and of Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::store::{Store, now_ms};

const CPU: &str = "process_cpu:cpu:nanoseconds:cpu:nanoseconds";
/// What stands in for what a reader of a dashboard chooses.
const CHOSEN: [(&str, &str); 6] = [
    ("job", ".*"),
    ("service", "shop"),
    ("function", ".*"),
    ("window", "59"),
    ("top", "20"),
    ("type", CPU),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/grafana")
}

fn dashboards() -> Vec<Value> {
    let files = fs::read_dir(folder().join("dashboards")).unwrap();
    let files = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    let dashboards: Vec<Value> = files.map(|file| serde_json::from_slice(&file).unwrap()).collect();
    assert!(!dashboards.is_empty());
    dashboards
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().unwrap()
}

fn targets(dashboards: &[Value]) -> impl Iterator<Item = &Value> {
    let panels = dashboards.iter().flat_map(panels);
    panels.flat_map(|panel| panel["targets"].as_array().unwrap())
}

/// An expression or a selector as Grafana sends it.
fn chosen(text: &Value) -> String {
    let mut text = text.as_str().unwrap().to_owned();
    for (name, value) in CHOSEN {
        text = text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value);
    }
    assert!(!text.contains('$'), "{text}");
    text
}

/// The type of each provisioned data source by its uid.
fn sources() -> BTreeMap<String, String> {
    let file = folder().join("provisioning/datasources/throughline.yaml");
    let file = fs::read_to_string(file).unwrap();
    let values = |key: &str| -> Vec<String> {
        let values = file.lines().filter_map(|line| line.strip_prefix(&format!("    {key}: ")));
        values.map(str::to_owned).collect()
    };
    let (uids, kinds) = (values("uid"), values("type"));
    assert_eq!((uids.len(), kinds.len()), (2, 2));
    uids.into_iter().zip(kinds).collect()
}

#[test]
fn dashboards_ask_the_sources_that_are_provisioned() {
    let sources = sources();
    let dashboards = dashboards();
    let mut uids = BTreeSet::new();
    for dashboard in &dashboards {
        assert!(uids.insert(dashboard["uid"].as_str().unwrap()), "{} twice", dashboard["uid"]);
        let ids: BTreeSet<u64> =
            panels(dashboard).iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels(dashboard).len(), "ids of panels");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        let queried = variables.iter().filter(|variable| variable["type"] == "query");
        for asker in
            panels(dashboard).iter().chain(queried).chain(targets(std::slice::from_ref(dashboard)))
        {
            let source = &asker["datasource"];
            let known = sources.get(source["uid"].as_str().unwrap());
            assert_eq!(known.map(String::as_str), source["type"].as_str(), "{asker}");
        }
        for name in variables.iter().map(|variable| variable["name"].as_str().unwrap()) {
            assert!(CHOSEN.iter().any(|(known, _)| *known == name), "{name}");
        }
    }
}

#[test]
fn the_store_answers_what_dashboards_ask_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(&folder.path().join("profiles"), &[]);
    assert_eq!(store.push("shop", &[], "main;serve;decode 30\nmain;serve 12\n").0, 200);
    let dashboards = dashboards();
    let (mut graphs, mut series) = (0, 0);
    for target in targets(&dashboards).filter(|target| target["profileTypeId"].is_string()) {
        let mut asked = json!({
            "profileTypeID": chosen(&target["profileTypeId"]),
            "labelSelector": chosen(&target["labelSelector"]),
            "start": now_ms() - 600_000, "end": now_ms() + 60_000,
        });
        if target["queryType"] == "profile" {
            let answer = store.ask("SelectMergeStacktraces", &asked);
            assert_eq!(answer["flamegraph"]["total"], "420000000");
            graphs += 1;
        } else {
            asked["step"] = json!(15);
            asked["groupBy"] = target["groupBy"].clone();
            let answer = store.ask("SelectSeries", &asked);
            assert_eq!(answer["series"].as_array().unwrap().len(), 1);
            series += 1;
        }
    }
    assert_eq!((graphs, series), (1, 2));
}

#[test]
fn prometheus_computes_what_dashboards_ask_of_it() {
    if !testkit::is_installed("promtool") {
        testkit::skip("promtool is not installed");
        return;
    }
    // Cells of 15 s for a day and an hour: half a processor in all, a fifth of it in `decode`; nothing of `serve` a day ago.
    let total = format!("pyroscope_exported_metrics_{}", CPU.replace(':', "_"));
    let function = format!("pyroscope_exported_metrics_functions_{}", CPU.replace(':', "_"));
    let labels = |function: &str| format!(r#"{{function="{function}",service_name="shop"}}"#);
    let series = [
        (format!(r#"{total}{{service_name="shop",pod="a"}}"#), "4500000000x6000"),
        (format!(r#"{total}{{service_name="shop",pod="b"}}"#), "3000000000x6000"),
        (format!("{function}{}", labels("decode")), "1500000000x6000"),
        (format!("{function}{}", labels("serve")), "_x5700 3000000000x300"),
    ];
    let store = [
        ("store_blocks{level=\"0\"}", "3x6000"),
        ("store_blocks{level=\"1\"}", "2x6000"),
        ("store_damaged_blocks", "1x6000"),
        ("store_block_bytes{level=\"0\"}", "4096x6000"),
        ("export_lag_seconds{tenant=\"t\",receiver=\"r\"}", "35x6000"),
        ("export_waiting_samples{tenant=\"t\",receiver=\"r\"}", "9x6000"),
        ("export_parked_series{tenant=\"t\",receiver=\"r\"}", "0x6000"),
        ("export_failing{tenant=\"t\",receiver=\"r\"}", "1x6000"),
        ("export_sent_samples_total{tenant=\"t\",receiver=\"r\"}", "0+30x6000"),
        ("export_lost_samples_total{tenant=\"t\",receiver=\"r\",reason=\"old\"}", "0+3x6000"),
    ];
    let store = store.map(|(series, values)| (format!("throughline_{series}"), values));
    let series: Vec<Value> = series
        .into_iter()
        .chain(store)
        .map(|(series, values)| json!({ "series": series, "values": values }))
        .collect();
    let by = |figures: &[(&str, f64)]| -> Vec<Value> {
        figures
            .iter()
            .map(|(name, value)| json!({ "labels": labels(name), "value": value }))
            .collect()
    };
    let one = |labels: &str, value: f64| vec![json!({ "labels": labels, "value": value })];
    let of_receiver = |value: f64| one(r#"{receiver="r",tenant="t"}"#, value);
    let expected = |title: &str, legend: &str| match title {
        "CPU by service" => vec![json!({ "labels": r#"{service_name="shop"}"#, "value": 0.5 })],
        "CPU by function" => by(&[("serve", 0.2), ("decode", 0.1)]),
        "Share of the service's CPU" => by(&[("decode", 0.2), ("serve", 0.4)]),
        "What grew against the day before" => by(&[("serve", 0.2), ("decode", 0.0)]),
        "Lag of receivers" => of_receiver(35.0),
        "Samples sent" => of_receiver(2.0),
        "Samples waiting" => of_receiver(9.0),
        "Samples lost" => one(r#"{reason="old",receiver="r",tenant="t"}"#, 60.0),
        "Receivers that take nothing, series that they refused" if legend.ends_with("fails") => {
            of_receiver(1.0)
        }
        "Receivers that take nothing, series that they refused" => of_receiver(0.0),
        "Blocks" if legend == "damaged" => one("{}", 1.0),
        "Blocks" => vec![
            json!({ "labels": r#"{level="0"}"#, "value": 3 }),
            json!({ "labels": r#"{level="1"}"#, "value": 2 }),
        ],
        "Bytes of blocks" => one(r#"{level="0"}"#, 4_096.0),
        other => panic!("what does {other} give?"),
    };
    let dashboards = dashboards();
    let askers = dashboards
        .iter()
        .flat_map(panels)
        .filter(|panel| panel["datasource"]["type"] == "prometheus");
    let mut tests: Vec<Value> = Vec::new();
    for panel in askers {
        for target in panel["targets"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            let samples = expected(title, target["legendFormat"].as_str().unwrap());
            let expr = chosen(&target["expr"]);
            tests.push(json!({ "expr": expr, "eval_time": "25h", "exp_samples": samples }));
        }
    }
    assert_eq!(tests.len(), 13);
    // JSON is YAML.
    let file = json!({
        "evaluation_interval": "15s",
        "tests": [{ "interval": "15s", "input_series": series, "promql_expr_test": tests }],
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.yaml");
    fs::write(&path, file.to_string()).unwrap();
    let done = Command::new("promtool").args(["test", "rules"]).arg(&path).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
}
