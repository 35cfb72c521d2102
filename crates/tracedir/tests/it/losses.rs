//! What tracers counted and did not record, with its range.

use model::TimeRange;

use crate::made::{Packet, Trace, open, packet, range, read};

/// Losses of a stream whose packets have these times, counters of discarded event records and sequence numbers.
fn losses(discarded_bits: u32, packets: &[(&[u64], u64, u64)]) -> Vec<(bool, u64, i64, i64)> {
    let trace = Trace { discarded_bits, ..Trace::default() };
    let folder = tempfile::tempdir().unwrap();
    let packets: Vec<Packet> = packets
        .iter()
        .map(|(times, discarded, sequence)| Packet {
            discarded: *discarded,
            ..packet(*sequence, times)
        })
        .collect();
    trace.write(folder.path(), "ch", &packets);
    read(&open(folder.path()), TimeRange::ALL).losses
}

const EVENTS: bool = false;
const PACKETS: bool = true;

#[test]
fn what_was_lost_before_the_first_packet_is_not_told_as_a_loss_of_the_stream() {
    let found = losses(64, &[(&[10, 20], 5, 3), (&[30, 40], 5, 4)]);
    assert_eq!(found, []);
}

#[test]
fn a_counter_that_wraps_counts_on_at_its_own_width() {
    for (bits, before) in [(32, u64::from(u32::MAX) - 1), (64, u64::MAX - 1), (16, 0xFFFE)] {
        let found = losses(bits, &[(&[10, 20], before, 0), (&[30, 40], 3, 1)]);
        assert_eq!(found, [(EVENTS, 5, 20, 40)], "{bits} bits");
    }
}

#[test]
fn a_counter_that_goes_back_counts_nothing_and_goes_on_from_there() {
    let found = losses(64, &[(&[10, 20], 9, 7), (&[30, 40], 5, 3), (&[50, 60], 6, 4)]);
    assert_eq!(found, [(EVENTS, 1, 40, 60)]);
}

#[test]
fn gaps_of_sequence_numbers_are_lost_packets_up_to_the_next_ones_begin() {
    let found = losses(64, &[(&[10, 20], 0, 2), (&[30, 40], 0, 6), (&[50, 55], 1, 9)]);
    assert_eq!(found, [(PACKETS, 3, 20, 30), (EVENTS, 1, 40, 55), (PACKETS, 2, 40, 50)]);
}

#[test]
fn a_loss_belongs_to_the_range_that_holds_its_begin() {
    let trace = Trace::default();
    let folder = tempfile::tempdir().unwrap();
    let packets = [(0, 0), (100, 2), (200, 5)].map(|(begin, discarded)| Packet {
        discarded,
        ..packet(begin / 100, &[begin, begin + 50])
    });
    trace.write(folder.path(), "ch", &packets);
    let recording = open(folder.path());
    let found = |begin, end| read(&recording, range(begin, end)).losses;
    assert_eq!(found(0, 51), [(EVENTS, 2, 50, 150)]);
    assert_eq!(found(51, 150), []);
    assert_eq!(found(51, 1_000), [(EVENTS, 3, 150, 250)]);
}
