//! A notification's JSON as OSProfiler writes it, and other bytes.

use osprofiler::{Error, JsonError, JsonWrong, MAX_NOTIFICATION_LEN, Notification, Point};

pub(crate) const START: &str = r#"{"name": "wsgi-start", "base_id": "bdb9c1f0-0000-4000-8000-0123456789ab", "trace_id": "00000000-1111-4000-9000-000000000001", "parent_id": "bdb9c1f0-0000-4000-8000-0123456789ab", "timestamp": "2026-01-02T03:04:05.678901", "info": {"request": {"path": "/\u00e4", "query": "", "method": "GET", "scheme": "http"}, "host": "node-1"}, "project": "nova", "service": null}"#;

/// The notification with other fields.
pub(crate) fn with(changes: &[(&str, &str)]) -> String {
    let change = |text: String, (from, to): &(&str, &str)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    };
    changes.iter().fold(START.to_owned(), change)
}

fn parse(changes: &[(&str, &str)]) -> Result<Notification, Error> {
    Notification::parse(with(changes).as_bytes())
}

#[test]
fn all_fields_are_read_and_the_bytes_are_kept() {
    let read = parse(&[]).unwrap();
    assert_eq!(read.base_id, 0xbdb9_c1f0_0000_4000_8000_0123_4567_89ab);
    assert_eq!(read.trace_id, 0x1111_4000_9000_0000_0000_0001);
    assert_eq!((read.name.as_str(), read.point), ("wsgi", Point::Start));
    assert_eq!(read.timestamp_ns, 1_767_323_045_678_901_000);
    let texts = [&read.project, &read.service, &read.host].map(Option::as_deref);
    assert_eq!(texts, [Some("nova"), None, Some("node-1")]);
    assert_eq!(read.raw(), START);
    assert_eq!(read.info().get("host").unwrap().as_str(), "\"node-1\"");
    assert_eq!((read.span_id(), read.parent_span_id()), (0x9000_0000_0000_0001, None));
    let child = parse(&[("\"parent_id\": \"bdb9c1f0", "\"parent_id\": \"adb9c1f0")]).unwrap();
    assert_eq!(child.parent_span_id(), Some(0x8000_0123_4567_89ab));
}

#[test]
fn only_the_suffix_is_cut_from_a_name() {
    for (name, cut, point) in [
        ("driver-start", "driver", Point::Start),
        ("list_servers-stop", "list_servers", Point::Stop),
        ("a-start-stop", "a-start", Point::Stop),
        ("start", "start", Point::Other),
        ("nonstop", "nonstop", Point::Other),
        ("-start", "", Point::Start),
        ("", "", Point::Other),
    ] {
        let read = parse(&[("wsgi-start", name)]).unwrap();
        assert_eq!((read.name.as_str(), read.point), (cut, point), "{name}");
    }
}

#[test]
fn times_are_utc_of_the_gregorian_calendar() {
    let time =
        |text: &str| parse(&[("2026-01-02T03:04:05.678901", text)]).map(|it| it.timestamp_ns);
    for (text, ns) in [
        ("1970-01-01T00:00:00.000000", 0),
        ("1970-01-01T00:00:00.5", 500_000_000),
        ("2000-02-29T23:59:59.999999", 951_868_799_999_999_000),
        ("2100-03-01T00:00:00.000001", 4_107_542_400_000_001_000),
        ("2024-12-31T12:00:00.123456", 1_735_646_400_123_456_000),
    ] {
        assert_eq!(time(text), Ok(ns), "{text}");
    }
    for text in [
        "",
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05.678901",
        "2026-01-02T03:04:05.",
        "2026-01-02T03:04:05.6789012345",
        "2026-01-02T03:04:05.678901Z",
        "2026-13-02T03:04:05.0",
        "2026-00-02T03:04:05.0",
        "2026-02-29T03:04:05.0",
        "2100-02-29T03:04:05.0",
        "2026-01-02T24:04:05.0",
        "2026-01-02T03:04:60.0",
        "1969-12-31T23:59:59.0",
        "9999-12-31T23:59:59.0",
        "2026-01-02T+3:04:05.0",
        "ä026-01-02T03:04:0.0",
    ] {
        let error = time(text).unwrap_err();
        assert!(matches!(error, Error::Field { field: "timestamp", .. }), "{text}: {error}");
    }
}

#[test]
fn ids_are_uuids() {
    let id =
        |text: &str| parse(&[("00000000-1111-4000-9000-000000000001", text)]).map(|it| it.trace_id);
    assert_eq!(id("0000000011114000A00000000000000F"), Ok(0x1111_4000_A000_0000_0000_000F));
    for text in [
        "",
        "00000000-1111-4000-9000-00000000000",
        "00000000-1111-4000-9000-00000000000g",
        "00000000_1111_4000_9000_000000000001",
        "-0000000-1111-4000-9000-000000000001",
        "00000000-1111-4000-9000--00000000001",
        "+0000000111140009000000000000001",
        "00000000-1111-4000-0000-000000000000",
        "ä0000000-1111-4000-9000-00000000001",
    ] {
        let error = id(text).unwrap_err();
        assert!(matches!(error, Error::Field { field: "trace_id", .. }), "{text}: {error}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    let said = |changes: &[(&str, &str)]| parse(changes).unwrap_err().to_string();
    assert_eq!(said(&[("\"base_id\"", "\"base\"")]), "there is no field base_id");
    assert_eq!(said(&[("\"info\"", "\"inf\"")]), "there is no field info");
    assert_eq!(said(&[("\"nova\"", "7")]), "field project: 7 is not a text");
    assert_eq!(said(&[("\"node-1\"", "[]")]), "field info.host: [] is not a text");
    assert_eq!(said(&[("\"wsgi-start\"", "null")]), "field name: null is not a text");
    assert_eq!(
        said(&[("{\"request\"", "[{\"request\""), ("\"node-1\"}", "\"node-1\"}]")])
            .split(':')
            .next(),
        Some("field info")
    );
    assert_eq!(Notification::parse(b"[]"), Err(Error::Missing { field: "info" }));
    assert_eq!(Notification::parse(b"{\"a\xff\"}"), Err(Error::NotText { offset: 3 }));
    let wrong = JsonWrong::End;
    assert_eq!(Notification::parse(b"{"), Err(JsonError { offset: 1, wrong }.into()));
}

#[test]
fn size_has_a_bound() {
    let padded = |len: usize| format!("{START}{}", " ".repeat(len - START.len()));
    let limit = MAX_NOTIFICATION_LEN;
    assert!(Notification::parse(padded(limit).as_bytes()).is_ok());
    let error = Error::TooLong { len: limit + 1, limit };
    assert_eq!(Notification::parse(padded(limit + 1).as_bytes()), Err(error));
}

#[test]
fn mutations_and_cut_ones_never_panic() {
    let mut random = fastrand::Rng::with_seed(9);
    for len in 0..START.len() {
        assert!(Notification::parse(&START.as_bytes()[..len]).is_err());
    }
    let mut taken = 0;
    for _ in 0..50_000 {
        let mut bytes = START.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            bytes[at] = if random.bool() {
                random.u8(..)
            } else {
                *random.choice(START.as_bytes()).unwrap()
            };
        }
        if let Ok(read) = Notification::parse(&bytes) {
            assert_eq!(read.raw().as_bytes(), bytes);
            assert!(read.info().is_object());
            taken += 1;
        }
    }
    assert!(taken > 1000, "{taken}");
}
