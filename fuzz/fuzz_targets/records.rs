//! Entries of a journal, any bytes: what is read of a batch ends, can be told as lines and as spans, and is the same when it was written again.
#![no_main]

use model::Timestamp;
use records::{
    Assembler, Limits, Process, RingBatch, decode_notified, encode_notified, logs_request,
    ring_notifications, traces_request, write_lines, write_notified_lines,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let now = Timestamp::from_nanos(1_700_000_000_000_000_000);
    let mut lines = Vec::new();
    if let Ok(notified) = decode_notified(bytes) {
        write_notified_lines(&notified, now, &mut lines);
        let again = encode_notified(&notified).unwrap();
        assert_eq!(decode_notified(&again).unwrap(), notified);
    }
    if let Ok(process) = Process::decode(bytes) {
        assert_eq!(Process::decode(&process.encode().unwrap()).unwrap(), process);
    }
    let Ok(batch) = RingBatch::decode(bytes) else { return };
    let again = batch.encode().unwrap();
    assert_eq!(RingBatch::decode(&again).unwrap().encode().unwrap(), again);
    let is_whole = write_lines(&batch, &mut lines).is_ok();
    assert_eq!(ring_notifications(&batch).is_ok(), is_whole);
    let mut assembler = Assembler::new(Limits::default());
    assert_eq!(assembler.add(&batch, now).is_ok(), is_whole);
    let saved = assembler.save().unwrap();
    assert_eq!(Assembler::restore(Limits::default(), &saved).unwrap().partial(), assembler.partial());
    assembler.end_process(&batch.process);
    let (spans, events) = assembler.take(now);
    assert_eq!(traces_request(&spans, &[]).resource_spans.is_empty(), spans.is_empty());
    assert_eq!(logs_request(&events, &[]).resource_logs.is_empty(), events.is_empty());
});
