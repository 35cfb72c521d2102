//! Rules in the page of the store, in a real browser.

use axum::http::Version;
use prost::Message as _;
use serde_json::{Value, json};
use testkit::browser::{Browser, Page};

use super::rules::{RULES, ask};
use super::store::{NOW, PUSH, Store, TYPE, pprof, push};

struct Reader {
    browser: Browser,
    page: Page,
}

impl Reader {
    fn eval(&mut self, script: &str) -> Value {
        self.browser.eval(&self.page, script)
    }

    fn wait(&mut self, script: &str) -> Value {
        self.browser.wait(&self.page, script)
    }

    /// Gives a control a value, as a reader would.
    fn choose(&mut self, id: &str, value: &str) {
        let value = json!(value);
        self.eval(&format!(
            "{{ const it = document.getElementById('{id}'); it.value = {value}; it.dispatchEvent(new Event('change', {{ bubbles: true }})); }}"
        ));
    }

    /// Waits for a preview of so many series.
    fn wait_for_series(&mut self, count: u64) {
        let count = format!("document.getElementById('rule-series')?.dataset.value === '{count}'");
        self.wait(&count);
    }
}

#[test]
fn a_rule_is_made_of_a_function_previewed_changed_and_deleted() {
    let store = Store::start_for_tenants();
    let fields = [("content-type", "application/proto"), ("x-scope-orgid", "acme")];
    for (service, functions) in
        [("shop", &[("work", 30), ("wait", 7)][..]), ("cart", &[("work", 5)])]
    {
        let body = push(service, &pprof(functions)).encode_to_vec();
        assert_eq!(store.post(Version::HTTP_11, PUSH, &fields, body).status, 200);
    }
    let listed = || ask(&store, "acme", &format!("{RULES}/ListRecordingRules"), &json!({})).1;
    let now = NOW.nanos() / 1_000_000;
    let Some(mut browser) = Browser::start(1300, 900) else { return };
    let page = browser.open(&format!(
        "http://{}/?tenant=acme&service=shop&from={}&until={}",
        store.address,
        now - 3_600_000,
        now + 60_000
    ));
    let mut reader = Reader { browser, page };

    reader.wait("!document.getElementById('rules').hidden && document.querySelector('[data-function=work] .make:not([hidden])') !== null");
    reader.eval("document.querySelector('[data-function=work] .make').click()");
    reader.wait_for_series(1);
    let preview = reader.eval("document.querySelector('#rule-preview li').textContent");
    assert!(preview.as_str().unwrap().contains("function=\"work\""), "{preview}");
    assert_eq!(reader.eval("document.querySelector('#rule-preview li').dataset.sum"), "30");
    reader.choose("rule-test", "prefix");
    reader.choose("rule-text", "w");
    reader.wait_for_series(2);
    // What the store refuses it says, and it cannot be kept.
    reader.choose("rule-metric", "1");
    reader.wait("document.querySelector('#rule-preview .errors')?.textContent.includes('profiles_recorded_')");
    assert_eq!(reader.eval("document.getElementById('rule-keep').disabled"), true);
    reader.choose("rule-metric", "profiles_recorded_shop");
    reader.wait_for_series(2);
    reader.eval("document.getElementById('rule-keep').click()");
    reader.wait(
        "document.querySelector('[data-rule]') !== null && !document.getElementById('rule').open",
    );
    let rules = listed();
    let rule = &rules["rules"][0];
    assert_eq!(rule["metricName"], "profiles_recorded_shop");
    assert_eq!(rule["throughline"], json!({ "prefix": "w" }));
    assert_eq!(rule["groupBy"], json!(["service_name"]));
    assert_eq!(
        rule["matchers"],
        json!([format!("{{__profile_type__=\"{TYPE}\"}}"), "{service_name=\"shop\"}"])
    );

    // Changed: all labels, of itself only.
    reader.eval("[...document.querySelectorAll('[data-rule] button')].find((it) => it.textContent === 'change').click()");
    reader.wait_for_series(2);
    assert_eq!(reader.eval("document.getElementById('rule-text').value"), "w");
    reader.choose("rule-labels", "*");
    reader.choose("rule-value", "self");
    reader.wait_for_series(2);
    reader.eval("document.getElementById('rule-keep').click()");
    reader.wait("document.querySelector('[data-rule]')?.textContent.includes('self') ?? false");
    let rules = listed();
    assert_eq!(rules["rules"].as_array().unwrap().len(), 1);
    let extension = json!({ "allLabels": true, "prefix": "w", "isSelf": true });
    assert_eq!(rules["rules"][0]["throughline"], extension);

    // Deleted, when it is said twice.
    let delete = "[...document.querySelectorAll('[data-rule] button')].find((it) => it.textContent.includes('delete')).click()";
    reader.eval(delete);
    assert_eq!(listed()["rules"].as_array().unwrap().len(), 1);
    reader.eval(delete);
    reader.wait("document.querySelector('[data-rule]') === null");
    assert!(listed()["rules"].as_array().is_none_or(Vec::is_empty));
}
