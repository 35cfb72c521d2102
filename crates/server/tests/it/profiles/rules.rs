//! Rules for metrics and settings over HTTP.

use std::thread;

use axum::http::Version;
use prost::Message;
use rules::{Book, BookLimits, Config};
use serde_json::{Value, json};
use store::lake::name::Tenant;
use wire::pyroscope::{ListRecordingRulesResponse, UpsertRecordingRuleRequest};

use super::store::{NOW, PUSH, Store, TYPE, pprof, push};

pub(super) const RULES: &str = "/settings.v1.RecordingRulesService";
const SETTINGS: &str = "/settings.v1.SettingsService";

/// What is answered to JSON of a tenant.
pub(super) fn ask(store: &Store, tenant: &str, path: &str, body: &Value) -> (u16, Value) {
    let fields = [("content-type", "application/json"), ("x-scope-orgid", tenant)];
    let reply = store.post(Version::HTTP_11, path, &fields, body.to_string());
    (reply.status.as_u16(), serde_json::from_slice(&reply.body).unwrap_or(Value::Null))
}

/// Fails unless it is answered; gives the answer.
fn good(store: &Store, path: &str, body: &Value) -> Value {
    let (status, answer) = ask(store, "acme", path, body);
    assert_eq!(status, 200, "{path} {answer}");
    answer
}

/// Fails unless it is refused so.
fn check(store: &Store, path: &str, body: &Value, (status, code, words): (u16, &str, &str)) {
    let (found, answer) = ask(store, "acme", path, body);
    assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{path} {answer}");
    let said = answer["message"].as_str().unwrap_or_default();
    assert!(said.contains(words), "{said}");
}

fn method(name: &str) -> String {
    format!("{RULES}/{name}RecordingRule")
}

/// As Grafana's application makes one.
fn rule() -> Value {
    json!({
        "metricName": "profiles_recorded_shop_cpu",
        "matchers": [format!("{{__profile_type__=\"{TYPE}\", service_name=\"shop\"}}")],
        "groupBy": ["service_name"],
        "externalLabels": [{"name": "team", "value": "x"}],
        "stacktraceFilter": {"functionName": {"functionName": "work"}},
    })
}

fn with(mut value: Value, changes: &[(&str, Value)]) -> Value {
    for (name, change) in changes {
        value[*name] = change.clone();
    }
    value
}

#[test]
fn rules_are_made_listed_changed_and_deleted() {
    let store = Store::start_for_tenants();
    let made = good(&store, &method("Upsert"), &rule())["rule"].clone();
    let id = made["id"].as_str().unwrap();
    assert!(id.len() == 10 && id.bytes().all(|letter| letter.is_ascii_alphabetic()), "{id}");
    let changes = [("id", json!(id)), ("generation", json!("1")), ("profileType", json!(TYPE))];
    assert_eq!(made, with(rule(), &changes));
    assert_eq!(good(&store, &method("Get"), &json!({"id": id})), json!({"rule": made}));

    let change = [("id", json!(id)), ("generation", json!("1")), ("groupBy", json!([]))];
    let changed = good(&store, &method("Upsert"), &with(rule(), &change));
    assert_eq!(
        (&changed["rule"]["generation"], &changed["rule"]["groupBy"]),
        (&json!("2"), &Value::Null)
    );
    let conflict = (409, "already_exists", "generation 2");
    check(&store, &method("Upsert"), &with(rule(), &change), conflict);
    // As protobuf, too.
    let fields = [("content-type", "application/proto"), ("x-scope-orgid", "acme")];
    let list = format!("{RULES}/ListRecordingRules");
    let reply = store.post(Version::HTTP_11, &list, &fields, "");
    let listed = ListRecordingRulesResponse::decode(reply.body).unwrap();
    assert_eq!(serde_json::to_value(&listed.rules).unwrap(), json!([changed["rule"]]));
    assert_eq!(ask(&store, "other", &list, &json!({})), (200, json!({})));
    // From the next cell on.
    let book = store.lake.catalogue().rules(&Tenant::new("acme").unwrap()).unwrap();
    let next_ms = store.lake.next_cell_ms(NOW);
    assert_eq!((book.at(next_ms - 1).len(), book.at(next_ms).len()), (0, 1));

    assert_eq!(good(&store, &method("Delete"), &json!({"id": id})), json!({}));
    let missing = (404, "not_found", "there is no rule");
    check(&store, &method("Get"), &json!({"id": id}), missing);
    check(&store, &method("Delete"), &json!({"id": id}), missing);
    assert_eq!(good(&store, &list, &json!({})), json!({}));
    check(&store, &format!("{RULES}/Nothing"), &json!({}), (501, "unimplemented", "Nothing"));
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let store = Store::start_for_tenants();
    let upsert = method("Upsert");
    let of_type = format!("{{__profile_type__=\"{TYPE}\"}}");
    for (change, words) in [
        (("metricName", json!("cpu")), "metric: \"cpu\" is no name"),
        (("metricName", json!("")), "metric: \"\" is no name"),
        (
            ("matchers", json!(["{service_name=\"shop\"}"])),
            "exactly one matcher says __profile_type__",
        ),
        (("matchers", json!([of_type, of_type])), "exactly one matcher"),
        (("matchers", json!(["{a="])), "matchers: a text in quotes is missing"),
        (("groupBy", json!(["a.b"])), "group_by: \"a.b\" is no label name"),
        (("id", json!("a-b")), "id: \"a-b\" is not of the letters"),
        (("generation", json!(-1)), "generation must be 0 or more"),
        (("stacktraceFilter", json!({"functionName": {}})), "functions: it is missing"),
        (("throughline", json!({"prefix": "x"})), "functions are said in two ways"),
    ] {
        check(&store, &upsert, &with(rule(), &[change]), (400, "invalid_argument", words));
    }
    for _ in 0..BookLimits::default().rules {
        good(&store, &upsert, &rule());
    }
    check(&store, &upsert, &rule(), (429, "resource_exhausted", "there are 25 rules"));
}

#[test]
fn rules_say_more_than_pyroscopes_can() {
    let store = Store::start_for_tenants();
    let acme = Tenant::new("acme").unwrap();
    let config = format!("[[rule]]\nid = \"fixed\"\nprofile_type = \"{TYPE}\"\n");
    let config: Config = config.parse().unwrap();
    let mut book = Book::default();
    book.provision(config.of("acme"), 0, &BookLimits::default()).unwrap();
    store.lake.catalogue().put_rules(&acme, &book, 0).unwrap();
    let upsert = method("Upsert");

    let fixed = good(&store, &method("Get"), &json!({"id": "fixed"}))["rule"].clone();
    assert_eq!((&fixed["provisioned"], &fixed["profileType"]), (&json!(true), &json!(TYPE)));
    assert_eq!(fixed["matchers"], json!([format!("{{__profile_type__=\"{TYPE}\"}}")]));
    assert_eq!(fixed["throughline"], json!({"allLabels": true}));
    let own = (403, "permission_denied", "comes from the configuration");
    check(&store, &upsert, &with(rule(), &[("id", json!("fixed"))]), own);
    check(&store, &method("Delete"), &json!({"id": "fixed"}), own);

    let matchers = json!([format!("{{__profile_type__=\"{TYPE}\"}}")]);
    let more = json!({"regex": "main.*", "isSelf": true, "allLabels": true});
    let asked = json!({"matchers": matchers, "throughline": more});
    let made = good(&store, &upsert, &asked)["rule"].clone();
    assert_eq!((&made["throughline"], &made["metricName"]), (&more, &Value::Null));
    // Somebody who does not know what it says would make another rule of it.
    let change = [("id", made["id"].clone()), ("generation", json!("1"))];
    let refused = (400, "failed_precondition", "the field throughline");
    check(&store, &upsert, &with(rule(), &change), refused);
    let known = [("throughline", json!({})), ("stacktraceFilter", json!({}))];
    let changed = good(&store, &upsert, &with(with(rule(), &change), &known));
    assert_eq!(changed["rule"]["generation"], "2");
}

#[test]
fn rules_that_come_at_once_are_all_there() {
    let store = Store::start_for_tenants();
    let body = serde_json::from_value::<UpsertRecordingRuleRequest>(rule()).unwrap();
    let body = body.encode_to_vec();
    let fields = [("content-type", "application/proto"), ("x-scope-orgid", "acme")];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let reply = store.post(Version::HTTP_11, &method("Upsert"), &fields, body.clone());
                assert_eq!(reply.status, 200, "{}", reply.text());
            });
        }
    });
    let listed = good(&store, &format!("{RULES}/ListRecordingRules"), &json!({}));
    assert_eq!(listed["rules"].as_array().unwrap().len(), 4);
}

#[test]
fn settings_are_kept_by_tenant_and_newer_ones_stay() {
    let store = Store::start_for_tenants();
    let path = |name: &str| format!("{SETTINGS}/{name}");
    let set = |value: &str, at: i64| json!({"setting": {"name": "theme", "value": value, "modifiedAt": at.to_string()}});
    assert_eq!(good(&store, &path("Set"), &set("dark", 5)), set("dark", 5));
    check(&store, &path("Set"), &set("light", 4), (409, "already_exists", "newer"));
    let mut now = set("light", 0);
    now["setting"].as_object_mut().unwrap().remove("modifiedAt");
    let now_ms = NOW.nanos() / 1_000_000;
    assert_eq!(good(&store, &path("Set"), &now), set("light", now_ms));
    let all = json!({"settings": [set("light", now_ms)["setting"]]});
    assert_eq!(good(&store, &path("Get"), &json!({})), all);
    assert_eq!(ask(&store, "other", &path("Get"), &json!({})), (200, json!({})));
    assert_eq!(good(&store, &path("Delete"), &json!({"name": "theme"})), json!({}));
    assert_eq!(good(&store, &path("Get"), &json!({})), json!({}));
    check(&store, &path("Set"), &json!({}), (400, "invalid_argument", "no setting"));
}

#[test]
fn a_preview_says_which_series_a_rule_would_make() {
    let store = Store::start_for_tenants();
    let fields = [("content-type", "application/proto"), ("x-scope-orgid", "acme")];
    for (service, functions) in
        [("shop", &[("work", 30), ("wait", 7)][..]), ("cart", &[("work", 5)])]
    {
        let body = push(service, &pprof(functions)).encode_to_vec();
        assert_eq!(store.post(Version::HTTP_11, PUSH, &fields, body).status, 200);
    }
    let path = "/api/rules/preview";
    let preview = |rule: Value| good(&store, path, &json!({"rule": rule}));
    let found = preview(rule());
    let series = &found["examples"][0]["series"];
    assert_eq!(
        (&found["series"], &found["examples"][0]["sum"]),
        (&json!(1), &json!("30")),
        "{found}"
    );
    let series = series.as_str().unwrap();
    let start = r#"profiles_recorded_shop_cpu{function="work",profiles_rule_id=""#;
    assert!(series.starts_with(start), "{series}");
    assert!(series.ends_with(r#"",service_name="shop",team="x"}"#), "{series}");

    let matchers = json!([format!("{{__profile_type__=\"{TYPE}\"}}")]);
    let more = json!({"prefix": "w", "allLabels": true});
    let found = preview(json!({"matchers": matchers, "throughline": more}));
    let examples = found["examples"].as_array().unwrap();
    let sums: Vec<&str> = examples.iter().filter_map(|it| it["sum"].as_str()).collect();
    assert_eq!((&found["series"], sums), (&json!(3), vec!["30", "7", "5"]));
    // Of a time without samples, and of another tenant.
    let end = NOW.nanos() / 1_000_000 - 7_200_000;
    let found = good(&store, path, &json!({"rule": rule(), "end": end}));
    assert_eq!(found["series"], 0);
    assert_eq!(ask(&store, "other", path, &json!({"rule": rule()})).1["series"], 0);
    check(&store, path, &json!({"rule": {}}), (400, "invalid_argument", "exactly one matcher"));
    check(&store, path, &json!({}), (400, "invalid_argument", "rule"));
}
