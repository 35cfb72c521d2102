//! What is kept in memory, and what goes first.

use std::sync::Arc;

use osprofiler::{Limits, Losses, MemoryTraces, StoreError, TextKey, Traces};

const TINY: Limits = Limits { bytes: 2000, keys: 3, trace_notifications: 4, trace_bytes: 1500 };

fn range(traces: &MemoryTraces, base_id: &str) -> Vec<String> {
    let found = traces.range(base_id, 0..usize::MAX).unwrap();
    found.iter().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()).collect()
}

#[test]
fn the_newest_notification_is_the_first() {
    let mut traces = MemoryTraces::new(Limits::default());
    for (len, text) in ["one", "two", "three"].iter().enumerate() {
        assert_eq!(traces.push("a", text.as_bytes()).unwrap(), len + 1);
    }
    assert_eq!(range(&traces, "a"), ["three", "two", "one"]);
    let middle: Vec<Arc<[u8]>> = traces.range("a", 1..2).unwrap();
    assert_eq!(*middle[0], *b"two");
    assert!(traces.range("a", 3..9).unwrap().is_empty());
    assert_eq!(traces.len("b").unwrap(), 0);
}

#[test]
fn the_oldest_trace_goes_first_and_is_counted() {
    let mut traces = MemoryTraces::new(TINY);
    for base_id in ["a", "b", "a", "c", "d"] {
        traces.push(base_id, b"x").unwrap();
    }
    assert!(range(&traces, "a").is_empty());
    assert_eq!(traces.keys("", 0, 9).unwrap().keys.len(), 3);
    let expected = Losses { evicted_traces: 1, evicted_notifications: 2, ..Losses::default() };
    assert_eq!(traces.losses(), expected);
    // So it is with bytes.
    traces.push("d", &[b'x'; 1100]).unwrap();
    assert_eq!(traces.push("c", &[b'x'; 300]).unwrap(), 2);
    assert_eq!((range(&traces, "b").len(), range(&traces, "d").len()), (0, 2));
    assert!(traces.bytes() <= TINY.bytes);
    assert_eq!(traces.losses().by_reason()[0], ("evicted_traces", 2));
}

#[test]
fn a_trace_takes_only_so_many_and_the_service_is_not_told() {
    let mut traces = MemoryTraces::new(TINY);
    for _ in 0..6 {
        traces.push("a", b"x").unwrap();
    }
    assert_eq!(traces.push("a", b"x").unwrap(), 4);
    assert_eq!(traces.push("b", &[b'x'; 1600]).unwrap(), 0);
    assert_eq!(traces.losses(), Losses { long_traces: 4, ..Losses::default() });
    assert_eq!(traces.keys("", 0, 9).unwrap().keys, ["osprofiler_opt:a"]);
}

#[test]
fn what_has_no_room_alone_is_refused() {
    let mut traces = MemoryTraces::new(TINY);
    traces.push("a", b"x").unwrap();
    let error = traces.set(TextKey::Error("a"), &[b'x'; 3000]).unwrap_err();
    assert!(matches!(error, StoreError::Full));
    assert_eq!((traces.losses().full, range(&traces, "a").len()), (1, 1));
}

#[test]
fn a_text_takes_the_place_of_the_one_before() {
    let mut traces = MemoryTraces::new(TINY);
    for text in ["one", "two"] {
        traces.set(TextKey::Error("a"), text.as_bytes()).unwrap();
    }
    assert_eq!(traces.get(TextKey::Error("a")).unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(traces.get(TextKey::Notification("a")).unwrap(), None);
    traces.push("a", b"x").unwrap();
    traces.set(TextKey::Error("a"), b"three").unwrap();
    let page = traces.keys("", 0, 9).unwrap();
    assert_eq!(
        (page.keys.join(" ").as_str(), page.cursor),
        ("osprofiler_error:a osprofiler_opt:a", 0)
    );
    for number in 0..2 {
        traces.push(&number.to_string(), b"x").unwrap();
    }
    assert_eq!(traces.losses(), Losses { evicted_texts: 1, ..Losses::default() });
}

#[test]
fn bounds_hold_whatever_comes() {
    let mut traces = MemoryTraces::new(TINY);
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..20_000 {
        let (base_id, value) = (random.u8(..12).to_string(), vec![b'x'; random.usize(..900)]);
        if random.u8(..4) == 0 {
            traces.set(TextKey::Error(&base_id), &value).unwrap();
        } else {
            traces.push(&base_id, &value).unwrap();
        }
        let keys = traces.keys("", 0, 99).unwrap().keys;
        assert!(traces.bytes() <= TINY.bytes && keys.len() <= TINY.keys);
    }
    // What is counted as kept is what is there.
    let kept: usize = traces
        .keys("osprofiler_opt:", 0, 99)
        .unwrap()
        .keys
        .iter()
        .map(|key| {
            let stored = traces.range(key.strip_prefix("osprofiler_opt:").unwrap(), 0..9).unwrap();
            stored.iter().map(|bytes| bytes.len()).sum::<usize>()
        })
        .sum();
    assert!(kept <= traces.bytes());
}
