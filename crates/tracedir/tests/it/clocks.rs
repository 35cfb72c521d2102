//! Which traces can be put in one order of time.

use model::TimeRange;
use tracedir::{ClassCache, ClockOrigin, Correlate, Error, ReadOptions, Recording};

use crate::made::{Trace, packet, read};

const PERF: &str = "tracer_name = \"perf\";";
const OTHER: &str = "tracer_name = \"other\";";

/// Two traces with an event record at 10 of the first and 20 of the second one's clock.
fn two(
    first: (&'static str, &'static str),
    second: (&'static str, &'static str),
) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, (env, clock), time) in [(1, first, 10), (2, second, 20)] {
        let clock = Some(clock).filter(|clock| !clock.is_empty());
        let trace = Trace { uuid: Some(number), env, clock, ..Trace::default() };
        trace.write(&folder.path().join(number.to_string()), "ch", &[packet(0, &[time])]);
    }
    folder
}

fn check(
    first: (&'static str, &'static str),
    second: (&'static str, &'static str),
    comparable: bool,
) {
    let folder = two(first, second);
    match Recording::open(&[folder.path()]) {
        Ok(recording) => {
            assert!(comparable, "{first:?} beside {second:?} was not refused");
            assert_eq!(recording.clock_groups().len(), 1);
            assert_eq!(recording.correlation(), Ok(()));
            assert_eq!(read(&recording, TimeRange::ALL).times.len(), 2);
        }
        Err(Error::Uncorrelated(why)) => {
            assert!(!comparable, "{first:?} beside {second:?}: {why}");
            let named = [&why.a.folder, &why.b.folder];
            assert_eq!(named, [&folder.path().join("1"), &folder.path().join("2")]);
        }
        Err(other) => panic!("{other}"),
    }
    // Each of them alone is never refused.
    for alone in ["1", "2"] {
        let recording = Recording::open(&[folder.path().join(alone)]).unwrap();
        assert_eq!(read(&recording, TimeRange::ALL).times.len(), 1);
    }
}

#[test]
fn clocks_with_a_common_origin_are_merged_and_others_refused() {
    const A: &str = "uuid = \"01010101-0101-0101-0101-010101010101\";";
    const B: &str = "uuid = \"02020202-0202-0202-0202-020202020202\";";
    let lttng = ("tracer_name = \"lttng-modules\";", "name = monotonic; offset = 5;");
    let absolute = (OTHER, "name = c; absolute = TRUE;");
    let unknown = (OTHER, "name = c;");
    let leak = |text: String| -> &'static str { text.leak() };
    let with_a = (OTHER, leak(format!("name = c; {A}")));
    let again_a = (OTHER, leak(format!("name = d; {A}")));
    let with_b = (OTHER, leak(format!("name = c; {B}")));
    check(lttng, lttng, true);
    check(lttng, absolute, true);
    check(lttng, (PERF, "name = perf_clock; offset = 7; absolute = FALSE;"), true);
    check(lttng, (PERF, "name = perf_clock; absolute = FALSE;"), false);
    check(lttng, unknown, false);
    check(unknown, unknown, false);
    check(with_a, again_a, true);
    check(with_a, with_b, false);
    check(with_a, lttng, false);
    check((OTHER, ""), (OTHER, ""), true);
    check((OTHER, ""), absolute, false);
}

#[test]
fn a_refusal_names_both_clocks_and_where_they_count_from() {
    let folder = two((OTHER, "name = c; absolute = TRUE;"), (OTHER, "name = d;"));
    let error = Recording::open(&[folder.path()]).unwrap_err().to_string();
    let at = |name: &str| folder.path().join(name).display().to_string();
    assert_eq!(
        error,
        format!(
            "times cannot be compared: clock `c` of {} counts from the Unix epoch, clock `d` of {} counts from an \
             origin of its own",
            at("1"),
            at("2")
        )
    );
}

#[test]
fn clocks_are_taken_as_they_are_or_as_absolute_when_asked_to() {
    let folder = two((OTHER, "name = c; absolute = TRUE;"), (OTHER, "name = d;"));
    let open = |correlate| {
        let options = ReadOptions { correlate, ..ReadOptions::default() };
        Recording::open_as(&[folder.path()], &options, &mut ClassCache::default()).unwrap()
    };
    let forced = open(Correlate::ForceUnixEpoch);
    assert_eq!(forced.clock_groups()[0].origins, [ClockOrigin::UnixEpoch]);
    assert_eq!(forced.correlation(), Ok(()));
    assert_eq!(read(&forced, TimeRange::ALL).times, [10, 20]);
    let unchecked = open(Correlate::Unchecked);
    let streams: Vec<_> = unchecked.clock_groups().iter().map(|group| &group.streams).collect();
    assert_eq!(streams, [&[0], &[1]]);
    assert!(unchecked.correlation().is_err());
}

#[test]
fn an_offset_moves_event_records_and_ranges() {
    let folder = two((OTHER, "name = c; absolute = TRUE;"), (OTHER, "name = d; absolute = TRUE;"));
    let options = ReadOptions { clock_offset_ns: -3_000_000_005, ..ReadOptions::default() };
    let recording =
        Recording::open_as(&[folder.path()], &options, &mut ClassCache::default()).unwrap();
    assert_eq!(read(&recording, TimeRange::ALL).times, [-2_999_999_995, -2_999_999_985]);
    let mut merged = recording.merged(TimeRange::ALL);
    while let Some(item) = merged.next_item() {
        let tracedir::Item::Event(event) = item else { panic!("nothing was lost") };
        assert_eq!(event.record.timestamp_ns(), Some(event.timestamp.nanos()));
    }
    let late = crate::made::range(-2_999_999_990, 0);
    assert_eq!(read(&recording, late).times, [-2_999_999_985]);
}
