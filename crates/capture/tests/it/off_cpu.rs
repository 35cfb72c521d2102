//! Samples of real programs that wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::profile::view::{Weights, folded};
use ::profile::{Limits, Request, SampleKind};
use capture::profile::{self, Config, Packer, Report, Sample, Seen, StackEnd};

use crate::profile::{Running, Sampling, compiled, config, is_conserved};
use crate::support::{are_installed, can_sample};

/// Waits in one place nine times as long as in another, below calls that nothing else makes.
const WAITS: &str = r#"
#include <time.h>
#include <stdlib.h>
static long unit;
__attribute__((noinline)) static void wait_for(long ns) { struct timespec t = { ns / 1000000000, ns % 1000000000 }; nanosleep(&t, 0); __asm__ volatile(""); }
__attribute__((noinline)) void briefly(void) { volatile char pad[72]; pad[1] = 1; wait_for(unit); __asm__ volatile("" :: "r"(pad[1])); }
__attribute__((noinline)) void for_long(void) { volatile char pad[200]; pad[1] = 1; wait_for(9 * unit); __asm__ volatile("" :: "r"(pad[1])); }
int main(int c, char **v) { unit = atol(v[1]); for (;;) { briefly(); for_long(); } }
"#;

fn waiting(processes: Option<Vec<model::Pid>>) -> Config {
    Config { off_cpu: true, ..config(processes) }
}

/// Nanoseconds below `briefly`, below `for_long`, and of all.
fn shares(samples: &[Sample]) -> (u64, u64, u64) {
    let mut packer = Packer::new(Duration::from_secs(3600), 397);
    let mut packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    packets.extend(packer.finish());
    let mut weights = Weights::new();
    for packet in packets.iter().filter(|packet| packet.kind == SampleKind::OffCpu) {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        weights.add(&request);
    }
    assert_eq!(weights.kind().1, "nanoseconds");
    let folded = folded(&weights);
    let below = |name: &str| {
        let lines = folded.lines().filter(|line| line.contains(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    (below(";main;briefly;"), below(";main;for_long;"), below(""))
}

fn of_waits(report: &Report, samples: &[Sample], pid: model::Pid) -> Vec<Sample> {
    is_conserved(report, samples);
    let of_program = |it: &&Sample| it.off_cpu && it.pid == pid;
    samples.iter().filter(of_program).cloned().collect()
}

/// How long a process with one thread has been on a CPU, or has been ready and waited for one (`/proc/PID/schedstat`).
fn on_cpu_or_ready_ns(pid: model::Pid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", pid.get())).unwrap();
    text.split_whitespace().take(2).map(|ns| ns.parse::<u64>().unwrap()).sum()
}

/// Times longer than the period of the clock are samples each, and weigh what they are.
#[test]
fn who_waits_is_sampled_with_its_stack_for_as_long_as_it_waits() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "waits", WAITS);
    let running = Running::start(&program, &["5000000"]);
    let before = on_cpu_or_ready_ns(running.pid());
    let sampling = Sampling::start(waiting(Some(vec![running.pid()])));
    sampling.wait(100);
    let (report, samples) = sampling.finish();
    let ready_ns = on_cpu_or_ready_ns(running.pid()) - before;
    let waits = of_waits(&report, &samples, running.pid());
    let whole = waits.iter().filter(|it| it.end == StackEnd::Root).count();
    assert!(whole * 100 >= waits.len() * 98, "{whole} of {}: {report:?}", waits.len());
    let sum: u64 = waits.iter().map(|it| it.weight_ns).sum();
    assert!(sum <= report.counts.waits_ns, "{sum} {report:?}");
    let times = waits.iter().map(|it| it.time_ns);
    let length = times.clone().max().unwrap() - times.min().unwrap();
    // It does nothing else, but for waiting for a CPU where others want one, too.
    assert!((sum + ready_ns) * 100 >= length * 95, "{sum}, {ready_ns} of {length}: {report:?}");
    let (briefly, for_long, all) = shares(&waits);
    assert!((briefly + for_long) * 100 >= all * 97, "{briefly} + {for_long} of {all}");
    // A machine that is busy wakes late, from both alike: 40 ms are between them.
    let apart_ns = for_long.saturating_sub(briefly) / (waits.len() as u64 / 2);
    assert!((30_000_000..=50_000_000).contains(&apart_ns), "{briefly} {for_long} {}", waits.len());
    assert!(waits.iter().all(|it| !it.kernel.is_empty()));
}

/// Of many short times few have samples, which stand for all of them.
#[test]
fn samples_of_short_waits_stand_for_those_that_have_none() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "waits", WAITS);
    // With the time that it takes to wake up, some 0.1 and 0.5 ms.
    let running = Running::start(&program, &["50000"]);
    let sampling = Sampling::start(waiting(Some(vec![running.pid()])));
    sampling.wait(500);
    let (report, samples) = sampling.finish();
    let waits = of_waits(&report, &samples, running.pid());
    assert!(report.counts.waits_passed > waits.len() as u64, "{report:?}");
    let sum = waits.iter().map(|it| it.weight_ns).sum::<u64>() as f64;
    let sum = sum + report.counts.waits_unsampled_ns as f64;
    // Six times the standard deviation of a count of so many.
    let near = 6.0 / (waits.len() as f64).sqrt();
    let ratio = sum / report.counts.waits_ns as f64;
    assert!((ratio - 1.0).abs() < near, "{ratio}, {near}: {report:?}");
}

/// Samples and losses of all packets are what the program counted, of either kind.
#[test]
fn s14_packets_tell_all_that_the_kernel_counted() {
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "waits", WAITS);
    let running: Vec<Running> = (0..4).map(|_| Running::start(&program, &["50"])).collect();
    let pids = running.iter().map(Running::pid).collect();
    let (stop, mut packer) = (AtomicBool::new(false), Packer::new(Duration::from_millis(200), 397));
    let mut packets = Vec::new();
    let report = profile::sample(
        &waiting(Some(pids)),
        &stop,
        |_| {},
        |seen| match seen {
            Seen::Sample(sample) => packets.extend(packer.add(&sample)),
            Seen::Until(moment) => {
                packets.extend(packer.until(&moment));
                stop.fetch_or(packets.len() >= 10, Ordering::Relaxed);
            }
        },
    );
    let Report { counts, .. } = report.unwrap();
    packets.extend(packer.finish());
    let told = |is_of_kind: fn(SampleKind) -> bool| {
        let of_kind = packets.iter().filter(|packet| is_of_kind(packet.kind));
        of_kind.fold(0, |sum, packet| {
            let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
            let lost: u64 = request.losses().iter().map(|(_, count)| count).sum();
            sum + packet.samples as u64 + lost
        })
    };
    let off_cpu = told(|kind| kind == SampleKind::OffCpu);
    let counted = counts.waits_sent + counts.waits_no_room + counts.waits_kept_back;
    assert_eq!(off_cpu, counted + counts.waits_missed, "{counts:?}");
    assert_eq!(told(|kind| kind != SampleKind::OffCpu), counts.sent + counts.no_room, "{counts:?}");
}
