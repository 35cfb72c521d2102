//! What is asked with an address alone, and what a question would cost.

use axum::body::Bytes;
use axum::http::{Request, Version};
use http_body_util::Full;
use intake::Limits;
use prost::Message;
use serde_json::{Value, json};

use super::store::{NOW, PUSH, Store, TYPE, pprof, push};

fn get(store: &Store, path: &str) -> (u16, Value) {
    let request = Request::get(path).header("host", store.address.to_string());
    let reply = store.send(request.body(Full::<Bytes>::default()).unwrap());
    (reply.status.as_u16(), serde_json::from_slice(&reply.body).unwrap_or(Value::Null))
}

/// A store with 30 ns of `work` in one service and 12 ns of `rest` in another.
fn two_services() -> Store {
    let store = Store::start(Limits::default());
    for (service, function, value) in [("shop", "work", 30), ("other", "rest", 12)] {
        let body = push(service, &pprof(&[(function, value)])).encode_to_vec();
        let fields = [("content-type", "application/proto")];
        assert_eq!(store.post(Version::HTTP_11, PUSH, &fields, body).status, 200);
    }
    store
}

#[test]
fn a_flame_graph_is_rendered_with_its_time_line() {
    let store = two_services();
    let now_s = NOW.nanos() / 1_000_000_000;
    let (from, until) = (now_s - 60, now_s + 60);
    let time = format!("from={from}&until={until}000");
    let path = format!("/pyroscope/render?query={TYPE}%7B%7D&{time}&groupBy=service_name");
    let (status, answer) = get(&store, &path);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["flamebearer"]["names"], json!(["total", "main", "rest", "work"]));
    assert_eq!(answer["flamebearer"]["numTicks"], 42);
    assert_eq!(answer["metadata"]["units"], "samples");
    let sum = |line: &Value| {
        let values = line["samples"].as_array().unwrap().iter();
        (line["startTime"].clone(), values.map(|value| value.as_i64().unwrap()).sum::<i64>())
    };
    assert_eq!(sum(&answer["timeline"]), (json!(from), 42));
    assert_eq!(sum(&answer["groups"]["shop"]), (json!(from), 30));
    assert_eq!(sum(&answer["groups"]["other"]), (json!(from), 12));
    // Times that are not said are the last hour.
    let path = format!("/pyroscope/render?query={TYPE}%7Bservice_name%3D%22shop%22%7D&max-nodes=2");
    let (_, answer) = get(&store, &path);
    assert_eq!(answer["flamebearer"]["numTicks"], 30, "{answer}");

    let sides = ["shop", "other"].map(|name| format!("{TYPE}%7Bservice_name%3D%22{name}%22%7D"));
    let [left, right] = &sides;
    let path = format!("/pyroscope/render-diff?leftQuery={left}&rightQuery={right}");
    let (status, answer) = get(&store, &path);
    assert_eq!(status, 200, "{answer}");
    let ticks = [&answer["leftTicks"], &answer["rightTicks"], &answer["flamebearer"]["numTicks"]];
    assert_eq!(ticks, [&json!(30), &json!(12), &json!(42)]);
    assert_eq!(answer["metadata"]["format"], "double");
    for (path, words) in [
        ("/pyroscope/render".to_owned(), "missing field `query`"),
        (format!("/pyroscope/render?query={TYPE}&from=never"), "\"never\" is no time"),
        (format!("/pyroscope/render?query={TYPE}&from=now"), "there is no time"),
        (format!("/pyroscope/render-diff?leftQuery={TYPE}&rightQuery=a:b:c:d:e"), "compared"),
    ] {
        let (status, answer) = get(&store, &path);
        assert_eq!(status, 400, "{path}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(words), "{path}: {answer}");
    }
}

#[test]
fn a_question_is_weighed_by_the_blocks_of_its_time() {
    let store = two_services();
    let analyze = |start: i64, end: i64, query: &str| {
        let body = json!({ "start": start, "end": end, "query": query }).to_string();
        let path = "/querier.v1.QuerierService/AnalyzeQuery";
        let fields = [("content-type", "application/json")];
        let reply = store.post(Version::HTTP_11, path, &fields, body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        serde_json::from_slice::<Value>(&reply.body).unwrap()
    };
    let now = NOW.nanos() / 1_000_000;
    let all = analyze(now - 1_000, now + 1_000, "{}");
    let scope = &all["queryScopes"][0];
    assert_eq!(scope["componentType"], "Short term storage");
    assert_eq!((&scope["blockCount"], &scope["seriesCount"]), (&json!("2"), &json!("2")));
    let impact = &all["queryImpact"];
    assert_eq!(impact["totalQueriedSeries"], "2");
    assert_eq!(impact["totalBytesInTimeRange"], scope["profileBytes"]);
    for query in ["{service_name=\"shop\"}", &format!("{TYPE}{{service_name=\"shop\"}}")] {
        let one = analyze(now - 1_000, now + 1_000, query);
        assert_eq!(one["queryImpact"]["totalQueriedSeries"], "1", "{query}");
        assert_eq!(one["queryImpact"]["totalBytesInTimeRange"], impact["totalBytesInTimeRange"]);
    }
    assert_eq!(analyze(now - 9_000, now - 8_000, "{}")["queryImpact"], json!({}));
}
