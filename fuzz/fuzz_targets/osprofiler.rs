//! What a client of Redis sends, in pieces and at once, and a notification: any bytes are read alike or refused, and answers are whole.
#![no_main]

use osprofiler::resp::{Bounds, Decoder, Error, MAX_ARGUMENTS, MAX_BULK_LEN};
use osprofiler::{Limits, MemoryTraces, Notification, Session, Spans};

/// So much is kept that some of it must go.
const LIMITS: Limits = Limits { bytes: 4096, keys: 8, trace_notifications: 8, trace_bytes: 2048 };

fn requests<'b>(pieces: impl Iterator<Item = &'b [u8]>) -> (Vec<Vec<Vec<u8>>>, Option<Error>) {
    let (mut decoder, mut requests) = (Decoder::new(Bounds::KNOWN), Vec::new());
    for piece in pieces {
        decoder.feed(piece);
        loop {
            match decoder.request() {
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
                Ok(Some(request)) => {
                    assert!((1..=MAX_ARGUMENTS).contains(&request.len()));
                    assert!(request.iter().all(|argument| argument.len() <= MAX_BULK_LEN));
                    requests.push(request.iter().map(|argument| argument.to_vec()).collect());
                }
            }
        }
    }
    (requests, None)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(notification) = Notification::parse(bytes) {
        assert_eq!(notification.raw().as_bytes(), bytes);
        let (mut spans, mut out) = (Spans::default(), Vec::new());
        spans.add(&notification, &mut out);
        assert!(spans.len() + out.len() <= 1);
    }
    let len = bytes.first().map_or(1, |len| usize::from(*len).max(1));
    let at_once = requests(std::iter::once(bytes));
    assert_eq!(requests(bytes.chunks(len)), at_once);
    let (mut session, mut traces, mut out) =
        (Session::new(1, None), MemoryTraces::new(LIMITS), Vec::new());
    let _next = session.feed(bytes, &mut traces, &mut out);
    assert!(out.is_empty() || out.ends_with(b"\r\n"));
    assert!(traces.bytes() <= LIMITS.bytes);
});
