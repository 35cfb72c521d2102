//! What profiling costs stays in its budget.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::profile::request::AttributeValue;
use ::profile::{Limits, Request, keys};
use capture::profile::{self, Budget, Config, Packer, Reason, Seen, Settings};

use crate::profile::{DEEP, Running, compiled, config};
use crate::support::{are_installed, can_sample};

/// With next to no budget all that can be lowered is, and each packet says how its samples were taken.
#[test]
fn what_costs_too_much_is_taken_more_seldom_and_less_deep() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    let running = Running::start(&program, &["300"]);
    let budget = Budget {
        cpu_ns: NonZeroU64::new(1),
        interval: Duration::from_millis(1),
        ..Budget::default()
    };
    let config = Config { budget, ..config(Some(vec![running.pid()])) };
    let (stop, mut packer) = (AtomicBool::new(false), Packer::new(Duration::from_secs(5), 397));
    let (mut packets, mut periods, mut depths) = (Vec::new(), Vec::new(), Vec::new());
    let mut last = None;
    let report = profile::sample(
        &config,
        &stop,
        |_| {},
        |seen| match seen {
            Seen::Sample(sample) => {
                periods.push(sample.weight_ns);
                depths.push(sample.user.len());
                // Taken when nothing more could be lowered.
                let is_lowest = last.is_some_and(|it: Settings| it.max_frames == 64);
                stop.fetch_or(is_lowest && sample.user.len() == 64, Ordering::Relaxed);
                packets.extend(packer.add(&sample));
            }
            Seen::Until(moment) => {
                last = Some(moment.settings);
                packets.extend(packer.until(&moment));
            }
        },
    );
    report.unwrap();
    packets.extend(packer.finish());
    let lowest =
        Settings { frequency_hz: 1, windows: 8, max_frames: 64, reason: Some(Reason::Cpu) };
    assert_eq!(last, Some(lowest));
    periods.dedup();
    assert!(periods.is_sorted() && periods.len() > 3, "{periods:?}");
    assert_eq!(periods.last(), Some(&1_000_000_000));
    assert!(depths.first() > Some(&300) && depths.last() == Some(&64), "{depths:?}");
    // A packet has samples of one frequency.
    let of_packets: Vec<_> = packets
        .iter()
        .map(|packet| {
            let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
            assert_eq!(request.check(), []);
            let profile = &request.resources[0].profiles[0];
            let frames = request.dictionary.find(&profile.attributes, keys::MAX_FRAMES);
            let is_told = matches!(frames, Some(AttributeValue::Int(64..=1024)));
            assert!(is_told || packet.id == packets[0].id, "{frames:?}");
            u64::try_from(profile.period).unwrap()
        })
        .collect();
    assert_eq!(of_packets, periods);
}
