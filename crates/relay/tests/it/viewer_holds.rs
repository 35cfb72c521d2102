//! What viewers have still to read is kept for them, and how long.

use std::time::Duration;

use relay::Keep;
use wire::live::CloseAction;
use wire::live::viewer::Seek;

use crate::disk::wait_until;
use crate::producer::{Producer, session};
use crate::viewer::{Setup, Viewer, live};

#[test]
fn chunks_that_a_viewer_has_still_to_read_are_kept_until_it_has() {
    let keep = Keep { age: Some(Duration::from_millis(20)), bytes: None };
    let mut setup = Setup::configured(live(), |config| config.keep = keep);
    let stream = setup.viewed();
    setup.send(0..2);
    let mut viewer = setup.attach(Seek::Beginning);
    setup.rotate(0, 2, CloseAction::MoveToArchives);
    setup.send(2..4);
    setup.rotate(1, 4, CloseAction::MoveToArchives);
    setup.send(4..5);
    assert_eq!(viewer.next_entry(stream).timestamp_begin, 0);
    // Another session's chunk is sealed later, and is not held.
    let mut other = session("other");
    other.identity.as_mut().unwrap().sessiond.0 = [9; 16];
    let mut producer = Producer::new(&setup.relay, other);
    producer.chunk(0);
    let handle = producer.stream("ch_0", 0);
    producer.packet(handle, 0);
    producer.index(handle, 0);
    producer.rotate(None, &[(handle, 1)]);
    producer.close_chunk(0, Some(CloseAction::MoveToArchives));
    wait_until("the other chunk to go", || setup.relay.totals().chunks_expired == 1);

    assert_eq!(viewer.next_entry(stream).timestamp_begin, 1);
    assert_eq!(viewer.next_entry(stream).timestamp_begin, 2);
    wait_until("the first chunk to go", || setup.relay.totals().chunks_expired == 2);
    assert_eq!(viewer.read_on(stream), [3, 4]);
    wait_until("the second chunk to go", || setup.relay.totals().chunks_expired == 3);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 0);
    setup.rotate(2, 5, CloseAction::MoveToArchives);
    setup.send(5..6);
    assert_eq!(viewer.read_on(stream), [5]);
    wait_until("all sealed chunks to go", || setup.relay.totals().chunks_expired == 4);
    assert_eq!(setup.attach(Seek::Beginning).read_on(stream), [5]);
    setup.end();
}

/// Two sealed chunks with two packets each and an open one, before a viewer that began at the first and asks for none.
fn three_chunks_before_a_silent_viewer(config: impl FnOnce(&mut relay::Config)) -> (Setup, Viewer) {
    let mut setup = Setup::configured(live(), config);
    setup.send(0..2);
    let viewer = setup.attach(Seek::Beginning);
    setup.rotate(0, 2, CloseAction::MoveToArchives);
    setup.send(2..4);
    setup.rotate(1, 4, CloseAction::MoveToArchives);
    setup.send(4..5);
    (setup, viewer)
}

#[test]
fn a_viewer_that_does_not_move_holds_chunks_for_a_while_only() {
    let (setup, mut viewer) = three_chunks_before_a_silent_viewer(|config| {
        config.keep = Keep { age: Some(Duration::from_millis(20)), bytes: None };
        config.limits.viewer_hold = Duration::from_millis(500);
    });
    wait_until("both sealed chunks to go", || setup.relay.totals().chunks_expired == 2);
    let stream = setup.viewed();
    assert_eq!(viewer.read_on(stream), [4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 4);
    setup.end();
}

#[test]
fn chunks_that_are_too_large_together_go_whoever_views_them() {
    let (setup, mut viewer) = three_chunks_before_a_silent_viewer(|config| {
        config.keep = Keep { age: None, bytes: Some(0) };
    });
    wait_until("both sealed chunks to go", || setup.relay.totals().chunks_expired == 2);
    let stream = setup.viewed();
    assert_eq!(viewer.read_on(stream), [4]);
    assert_eq!(setup.relay.totals().packets_missed_by_viewers, 4);
    setup.end();
}
