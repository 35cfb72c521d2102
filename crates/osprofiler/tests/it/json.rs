//! What is JSON for Python, and what it says.

use osprofiler::{Json, JsonError, JsonWrong, MAX_DEPTH};
use proptest::prelude::{ProptestConfig, any, proptest};
use serde_json::Value;

#[test]
fn what_python_writes_is_read() {
    for (text, is_truthy) in [
        ("null", false),
        (" true\n", true),
        ("false", false),
        ("0", false),
        ("-0.0e5", false),
        ("1e999", true),
        ("123456789012345678901234567890", true),
        ("NaN", true),
        ("-Infinity", true),
        ("\"\"", false),
        ("\"\\ud800\"", true),
        ("[ ]", false),
        ("[1, [2]]", true),
        ("{\t}", false),
        ("{\"a\" : {} , \"b\":[]}", true),
    ] {
        let json = Json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(json.as_str(), text.trim());
        assert_eq!(json.is_truthy(), is_truthy, "{text}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let check = |text: &str, offset: usize, said: &str| {
        let error = Json::parse(text).unwrap_err();
        assert_eq!((error.offset, error.wrong.to_string().as_str()), (offset, said), "{text}");
    };
    let end = "the text ends within a value";
    check("", 0, end);
    check("{\"a\": [1, 2", 11, end);
    check("\"abc", 4, end);
    check("[1,]", 3, "']' where a value should be");
    check("[1 2]", 3, "'2' where ',' or ']' should be");
    check("{\"a\":1,}", 7, "'}' where a text should be");
    check("{a:1}", 1, "'a' where a text should be");
    check("{\"a\" 1}", 5, "'1' where ':' should be");
    check("1 ä", 2, "'ä' where the end should be");
    check("01", 1, "'1' where the end should be");
    check("1.", 2, end);
    check("-a", 1, "'a' where a digit should be");
    check("tru", 3, end);
    check("trux", 3, "'x' where a value should be");
    check("\"\\x\"", 2, "'x' where an escape should be");
    check("\"\\u12g4\"", 5, "'g' where a hexadecimal digit should be");
    check("\"a\nb\"", 2, "'\\n' where a character should be");
}

#[test]
fn depth_has_a_bound() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Json::parse(&nested(MAX_DEPTH)).is_ok());
    let wrong = JsonWrong::TooDeep { limit: MAX_DEPTH };
    let error = JsonError { offset: MAX_DEPTH, wrong };
    assert_eq!(Json::parse(&nested(MAX_DEPTH + 1)), Err(error));
    assert_eq!(Json::parse(&"{\"a\":".repeat(100_000)).unwrap_err().wrong, wrong);
}

#[test]
fn texts_and_fields_are_those_that_were_written() {
    let text = |json: &str| Json::parse(json).unwrap().text().map(|text| text.into_owned());
    assert_eq!(
        text(r#""a\"\\\/\b\f\n\r\tä\u00e4\ud83d\ude00""#).unwrap(),
        "a\"\\/\u{8}\u{c}\n\r\tää😀"
    );
    assert_eq!(
        text(r#""\ud800a\ude00\ud800\ud800""#).unwrap(),
        "\u{fffd}a\u{fffd}\u{fffd}\u{fffd}"
    );
    assert_eq!(text("7"), None);
    let json = Json::parse(r#"{"a":1,"\u0062":{"a":2},"a":[3]}"#).unwrap();
    assert_eq!(json.get("a").unwrap().as_str(), "[3]");
    assert_eq!(json.get("b").unwrap().get("a").unwrap().as_str(), "2");
    assert_eq!(json.get("c"), None);
    assert_eq!(Json::parse("[1]").unwrap().fields().count(), 0);
}

/// Whether two readers agree; one of them has bounds for numbers and takes no half of a pair.
fn check(text: &str) {
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let json = Json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        same(json, &value);
    } else if let Ok(json) = Json::parse(text) {
        let odd = ["NaN", "Infinity", "\\ud", "\\uD", "e", "E"];
        assert!(odd.iter().any(|odd| json.as_str().contains(odd)), "{text}");
    }
}

fn same(json: Json<'_>, value: &Value) {
    match value {
        Value::String(text) => assert_eq!(json.text().as_deref(), Some(text.as_str())),
        Value::Object(fields) => {
            for (name, value) in fields {
                same(json.get(name).unwrap(), value);
            }
        }
        other => assert_eq!(json.as_str().parse::<Value>().unwrap(), *other),
    }
}

#[test]
fn mutations_are_read_as_by_another_reader() {
    const TEXT: &str =
        r#"{"a": [1, -2.5e+3, {"b": "c\n\u00e4"}], "d": {}, "e": [true, false, null], "": "\"" }"#;
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..50_000 {
        let mut bytes = TEXT.as_bytes().to_vec();
        for _ in 0..random.usize(0..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = *random.choice(TEXT.as_bytes()).unwrap(),
                1 => bytes.truncate(at + 1),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Ok(text) = String::from_utf8(bytes) {
            check(&text);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), quoted in any::<String>()) {
        check(&text);
        let written = serde_json::to_string(&quoted).unwrap();
        assert_eq!(Json::parse(&written).unwrap().text().unwrap(), quoted);
    }
}
