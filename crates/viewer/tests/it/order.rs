//! What is told when.

use std::time::Duration;

use model::Timestamp;
use viewer::{Memory, Options, Seek};

use crate::relay::{Next, Script, packets, view, view_every};

const SECOND: u64 = 1_000_000_000;

fn packet(cpu: u32, times: &[u64]) -> Next {
    Next::Packet(packets(cpu, &[(times, 0)]).remove(0))
}

#[test]
fn streams_are_merged_in_order_of_time_and_the_end_is_seen() {
    let a = vec![packet(0, &[1, 5]), Next::Inactive(20), packet(0, &[21])];
    let b = vec![packet(1, &[2]), packet(1, &[3, 30])];
    let told = view(Script::new(vec![(10, a), (11, b)], &[]), Options::default(), 1000);
    assert!(told.error.is_none(), "{told:?}");
    assert_eq!(told.events, [(1, 0), (2, 1), (3, 1), (5, 0), (21, 0), (30, 1)]);
    assert_eq!((told.late, told.findings, told.streams), (0, 0, 2));
}

#[test]
fn event_records_of_one_time_come_in_the_order_of_their_streams_whichever_is_listed_first() {
    let streams = || (vec![packet(7, &[5, 6])], vec![packet(2, &[5, 6])]);
    let (seventh, second) = streams();
    let told = view(Script::new(vec![(1, seventh), (2, second)], &[]), Options::default(), 1000);
    assert_eq!(told.events, [(5, 1), (5, 0), (6, 1), (6, 0)]);
}

#[test]
fn nothing_is_told_past_a_stream_that_may_tell_of_the_time_before() {
    let a = vec![packet(0, &[1, 5, 9]), Next::Inactive(100)];
    let b = vec![packet(1, &[2]), Next::Inactive(5), Next::NotYet(50), packet(1, &[7])];
    let waiting = view(Script::new(vec![(1, a), (2, b)], &[]), Options::default(), 20);
    assert_eq!(waiting.events, [(1, 0), (2, 1), (5, 0)]);
}

#[test]
fn a_silent_stream_holds_the_others_up_for_the_grace_and_is_told_late() {
    let a = || vec![packet(0, &[1, 9]), Next::NotYet(9_000)];
    let b = || vec![Next::NotYet(3_000), packet(1, &[4])];
    // The default of a session with a short live timer is 2 s.
    let script = || Script::new(vec![(1, a()), (2, b())], &[]);
    assert_eq!(view(script(), Options::default(), 1_999).events, []);
    let told = view(script(), Options::default(), 2_500);
    assert_eq!((told.events, told.late), (vec![(1, 0), (9, 0)], 0));
    let told = view(script(), Options::default(), 5_000);
    assert_eq!((told.events, told.late), (vec![(1, 0), (9, 0), (4, 1)], 1));
}

#[test]
fn time_in_which_nobody_asks_is_no_silence() {
    let a = vec![packet(0, &[1, 9])];
    let b = vec![packet(1, &[2]), Next::NotYet(1), packet(1, &[4])];
    let script = Script::new(vec![(1, a), (2, b)], &[]);
    let told = view_every(Duration::from_millis(2_500), script, Options::default(), 10);
    assert_eq!((told.events, told.late), (vec![(1, 0), (2, 1), (4, 1), (9, 0)], 0));
}

#[test]
fn without_live_timer_a_stream_is_waited_for_longer_than_a_relay_holds_its_packets_back() {
    let a = vec![packet(0, &[1, 9])];
    let b = vec![Next::NotYet(3_000), packet(1, &[4])];
    let script = Script::new(vec![(1, a), (2, b)], &[]).untimed();
    let told = view(script, Options::default(), 5_000);
    assert_eq!((told.events, told.late), (vec![(1, 0), (4, 1), (9, 0)], 0));
}

#[test]
fn streams_that_appear_are_read_from_their_beginning() {
    let mut first = packets(0, &[(&[10], 0), (&[40], 0)]);
    let last = Next::Packet(first.pop().unwrap());
    let a = vec![Next::WithNewStreams(first.pop().unwrap()), last];
    let b = vec![packet(1, &[20, 30])];
    let told = view(Script::new(vec![(1, a), (2, b)], &[2]), Options::default(), 1000);
    assert_eq!(told.events, [(10, 0), (20, 1), (30, 1), (40, 0)]);
    assert_eq!((told.late, told.streams), (0, 2));
}

#[test]
fn losses_between_packets_are_told() {
    let mut sealed = packets(0, &[(&[1], 0), (&[2], 3), (&[3], 3), (&[4], 3)]);
    sealed.remove(2);
    let a = sealed.into_iter().map(Next::Packet).collect();
    let told = view(Script::new(vec![(1, a)], &[]), Options::default(), 1000);
    assert_eq!(told.events, [(1, 0), (2, 0), (4, 0)]);
    assert_eq!(told.lost, [3, 1], "event records, then a packet");
}

#[test]
fn what_is_before_the_begin_is_left_out() {
    let at = |seconds: u64| seconds * SECOND;
    let a = packets(0, &[(&[at(1), at(2)], 0), (&[at(3), at(5)], 0), (&[at(6)], 0)]);
    let script = Script::new(vec![(1, a.into_iter().map(Next::Packet).collect())], &[]);
    let begin = Timestamp::from_nanos(4_000_000_000);
    let options = Options { seek: Seek::Beginning, begin, ..Options::default() };
    let told = view(script, options, 1000);
    assert_eq!(told.events, [(5_000_000_000, 0), (6_000_000_000, 0)]);
}

#[test]
fn a_relay_is_asked_to_begin_where_what_is_wanted_begins() {
    let at = |begin: u64, seek| {
        let script = Script::new(vec![(1, vec![packet(0, &[begin])])], &[]);
        let seeks = std::rc::Rc::clone(&script.seeks);
        let begin = Timestamp::from_nanos(i64::try_from(begin).unwrap());
        let told = view(script, Options { seek, begin, ..Options::default() }, 100);
        assert_eq!((told.events.len(), told.findings), (1, 0), "{told:?}");
        seeks.take()
    };
    // Ten seconds earlier, for clocks that were set.
    assert_eq!(at(90 * SECOND, Seek::Beginning), [Seek::Last, Seek::Since(80 * SECOND)]);
    assert_eq!(at(9 * SECOND, Seek::Beginning), [Seek::Last, Seek::Beginning]);
    assert_eq!(at(90 * SECOND, Seek::Last), [Seek::Last]);
}

#[test]
fn packets_share_a_bound_of_memory_and_one_that_finds_none_is_said() {
    let memory = |packets: u64| {
        let len = packets_len();
        Options { memory: Memory::new(packets * len + len / 2), ..Options::default() }
    };
    let streams = |ends: bool| {
        let held = packet(0, &[5, SECOND]);
        let other = packet(1, &[2, 9]);
        let more = if ends { vec![] } else { vec![Next::NotYet(u32::MAX)] };
        let a = std::iter::once(held).chain(more).collect();
        Script::new(vec![(10, a), (11, vec![other])], &[])
    };
    let told = view(streams(true), memory(2), 20_000);
    assert_eq!((told.events.len(), told.findings, told.short), (4, 0, 0), "{told:?}");
    // The first is given when the other has been silent for two seconds, and what it took with it.
    let told = view(streams(true), memory(1), 20_000);
    assert_eq!((told.events.len(), told.findings, told.short), (4, 0, 1), "{told:?}");
    assert_eq!(told.late, 2, "{told:?}");
    let told = view(streams(true), memory(0), 20_000);
    assert_eq!((told.events.len(), told.findings, told.short), (0, 2, 0), "{told:?}");
}

/// How long the content of a packet with two events is.
fn packets_len() -> u64 {
    let packet = packets(0, &[(&[1, 2], 0)]).remove(0);
    packet.index_entry(0).content_length_bits.div_ceil(8)
}

#[test]
fn a_session_may_have_any_number_of_streams_in_its_life() {
    const STREAMS: u64 = 5_000;
    let numbers: Vec<u64> = (1_000..=1_000 + STREAMS).collect();
    let ended = numbers[..numbers.len() - 1].iter().map(|number| (*number, Vec::new()));
    let last = (numbers[numbers.len() - 1], vec![packet(0, &[7])]);
    // New ones are told of in lists of a hundred; each stream ends as soon as it is asked for a packet.
    let script = Script::new(ended.chain([last]).collect(), &numbers).told_of_new(100);
    let told = view(script, Options::default(), 20_000);
    assert!(told.error.is_none(), "{told:?}");
    assert_eq!((told.streams, told.findings), (5_001, 0));
    let [(7, index)] = told.events[..] else { panic!("{told:?}") };
    assert!(index < 1_300, "its place was that of another: {index}");
}
