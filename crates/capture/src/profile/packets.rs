//! Packets of samples that can be read alone: each has the names of all its frames.

use std::collections::BTreeMap;
use std::time::Duration;

use profile::{AddError, Control, Packet, SampleKind};

use super::control::{Reason, Settings};
use super::epoch::Epoch;
use super::lines::{LinesLeftOut, SourceLines};
use super::memory::give_back;
use super::open_packet::{MonotonicWindow, Namers, OpenPacket};
use super::{Lost, Moment, Sample};
use crate::kernel::clock;

/// Frames of one packet whose names are kept for its next samples, unless it is said otherwise: seven times as many as five seconds
/// of a busy machine with two CPUs had, in 3 MB.
const CACHE_ENTRIES: usize = 1 << 14;

/// Puts samples into packets: for each window of time one of those on a CPU, and one of those off it.
#[derive(Debug)]
pub struct Packer {
    on_cpu: Half,
    off_cpu: Half,
    common: Common,
}

/// What all packets have alike.
#[derive(Debug)]
struct Common {
    window_ns: u64,
    /// As they were told last.
    settings: Option<Settings>,
    /// The last moment that was told: `CLOCK_MONOTONIC`.
    until_ns: Option<u64>,
    epoch: Epoch,
    namers: Namers,
    /// Of each cache.
    cache_entries: usize,
}

/// The packets of one kind of sample.
#[derive(Debug)]
struct Half {
    kind: SampleKind,
    open: Option<OpenPacket>,
    /// What was lost since the last packet, by class.
    lost: BTreeMap<String, u64>,
    /// No earlier than this was any of it lost: `CLOCK_MONOTONIC`.
    lost_since_ns: u64,
}

impl Packer {
    /// For samples that stand for a period of a clock.
    #[must_use]
    pub fn new(window: Duration, frequency_hz: u64) -> Self {
        Self {
            on_cpu: Half::new(SampleKind::OnCpu { period_ns: 1_000_000_000 / frequency_hz.max(1) }),
            off_cpu: Half::new(SampleKind::OffCpu),
            common: Common {
                window_ns: u64::try_from(window.as_nanos()).unwrap_or(u64::MAX).max(1),
                settings: None,
                until_ns: None,
                epoch: Epoch::new(clock::monotonic_to_unix_ns),
                namers: Namers::default(),
                cache_entries: CACHE_ENTRIES,
            },
        }
    }

    /// With so many bytes of memory for what was read of files' debug information, in place of 24 MiB. No byte of a packet depends on it.
    #[must_use]
    pub fn with_room_for_lines(mut self, bytes: usize) -> Self {
        self.common.namers.lines = SourceLines::with_room(bytes);
        self
    }

    /// How often debug information was left out.
    #[must_use]
    pub const fn lines_left_out(&self) -> LinesLeftOut {
        self.common.namers.lines.left_out()
    }

    /// Has all processes carry these attributes, key and value, under the names of [`profile::keys`] or others.
    #[must_use]
    pub fn with_attributes(mut self, attributes: Vec<(String, String)>) -> Self {
        self.common.namers.attributes = attributes;
        self
    }

    /// Has each cache hold so many values at most. No byte of a packet depends on it.
    #[must_use]
    pub const fn with_cache_entries(mut self, entries: usize) -> Self {
        self.common.cache_entries = entries;
        self
    }

    /// For samples that were taken when the clock of samples was so many nanoseconds behind the epoch, and are not put into packets
    /// at once.
    #[must_use]
    pub fn with_epoch(mut self, offset_ns: u64) -> Self {
        self.common.epoch = Epoch::fixed(offset_ns);
        self
    }

    /// Empties all caches of frames and of debug information. No byte of a packet depends on it.
    pub fn forget(&mut self) {
        let halves = [&mut self.on_cpu, &mut self.off_cpu];
        halves.into_iter().filter_map(|it| it.open.as_mut()).for_each(OpenPacket::forget);
        self.common.namers.lines.forget();
    }

    /// Gives the packets that are over because no sample before this moment comes any more. What was lost is told in the
    /// packets that are open, or come next; when none comes for a window's time, in one without samples. Empties all caches where there
    /// is too much memory.
    pub fn until(&mut self, moment: &Moment) -> Vec<Packet> {
        let before_ns = self.common.until_ns.replace(moment.time_ns).unwrap_or(moment.time_ns);
        for half in [&mut self.on_cpu, &mut self.off_cpu] {
            if half.lost.is_empty() {
                half.lost_since_ns = before_ns;
            }
        }
        let Lost { ring_full, queue_full, malformed, .. } = moment.lost;
        self.lost("ring_full", ring_full);
        self.lost("queue_full", queue_full);
        self.lost("malformed", malformed);
        self.off_cpu.lost("ring_full", moment.lost.off_cpu_ring_full);
        self.off_cpu.lost("kept_back", moment.lost.off_cpu_kept_back);
        self.off_cpu.lost("missed", moment.lost.off_cpu_missed);
        self.common.settings = Some(moment.settings);
        if moment.forget {
            self.forget();
            give_back();
        }
        let common = &mut self.common;
        let halves = [&mut self.on_cpu, &mut self.off_cpu];
        let over = |half: &mut Half| {
            half.take_over(moment.time_ns).or_else(|| half.take_losses(moment.time_ns, common))
        };
        halves.into_iter().filter_map(over).collect()
    }

    /// Has the packet of samples on a CPU that is open, or comes next, tell of samples that were lost, by a class such as `ring_full`.
    pub fn lost(&mut self, class: &str, samples: u64) {
        self.on_cpu.lost(class, samples);
    }

    /// As [`lost`](Self::lost), of samples of who waits.
    pub fn lost_off_cpu(&mut self, class: &str, samples: u64) {
        self.off_cpu.lost(class, samples);
    }

    /// The packets of the last window, which ends here.
    #[must_use]
    pub fn finish(mut self) -> Vec<Packet> {
        let common = &mut self.common;
        let halves = [&mut self.on_cpu, &mut self.off_cpu];
        let last = |half: &mut Half| half.take().or_else(|| half.take_losses(u64::MAX, common));
        halves.into_iter().filter_map(last).collect()
    }

    /// Takes in a sample. Gives the packet before it when that is over.
    pub fn add(&mut self, sample: &Sample) -> Option<Packet> {
        let half = if sample.off_cpu { &mut self.off_cpu } else { &mut self.on_cpu };
        let common = &mut self.common;
        let mut done = half.take_over(sample.time_ns).or_else(|| half.take_of_other_kind(sample));
        match half.put(sample, common) {
            Ok(()) => {}
            Err(AddError::Full) => {
                done = done.or_else(|| half.take());
                if half.put(sample, common).is_err() {
                    half.lost("no_place_in_packet", 1);
                }
            }
            Err(_no_place) => half.lost("no_place_in_packet", 1),
        }
        done
    }
}

impl Half {
    const fn new(kind: SampleKind) -> Self {
        Self { kind, open: None, lost: BTreeMap::new(), lost_since_ns: 0 }
    }

    fn lost(&mut self, class: &str, samples: u64) {
        if samples > 0 {
            *self.lost.entry(class.to_owned()).or_default() += samples;
        }
    }

    /// The packet whose window is over at a moment.
    fn take_over(&mut self, time_ns: u64) -> Option<Packet> {
        let is_over = self.open.as_ref().is_some_and(|open| open.is_over(time_ns));
        if is_over { self.take() } else { None }
    }

    /// The packet of samples that stand for another time than this one of the clock.
    fn take_of_other_kind(&mut self, sample: &Sample) -> Option<Packet> {
        let kind = SampleKind::OnCpu { period_ns: sample.weight_ns };
        if sample.off_cpu || kind == self.kind {
            return None;
        }
        self.kind = kind;
        self.take()
    }

    fn take(&mut self) -> Option<Packet> {
        let open = self.open.take()?;
        Some(open.finish(std::mem::take(&mut self.lost)))
    }

    /// A packet of losses alone, when there are some and no packet was open for a window's time until a moment.
    fn take_losses(&mut self, time_ns: u64, common: &mut Common) -> Option<Packet> {
        let is_over = time_ns.saturating_sub(self.lost_since_ns) >= common.length_ns();
        if self.open.is_some() || self.lost.is_empty() || !is_over {
            return None;
        }
        let end_ns = common.until_ns.unwrap_or(self.lost_since_ns);
        let length_ns = end_ns.saturating_sub(self.lost_since_ns).max(1);
        let open = common.open(self.kind, self.lost_since_ns, length_ns);
        Some(open.finish_without_samples(std::mem::take(&mut self.lost), &common.namers))
    }

    fn put(&mut self, sample: &Sample, common: &mut Common) -> Result<(), AddError> {
        let kind = self.kind;
        let open =
            self.open.get_or_insert_with(|| common.open(kind, sample.time_ns, common.length_ns()));
        open.add(sample, &mut common.namers)
    }
}

impl Common {
    /// How long a packet's window is.
    fn length_ns(&self) -> u64 {
        let windows = self.settings.map_or(1, |settings| settings.windows);
        self.window_ns.saturating_mul(windows.into())
    }

    fn open(&mut self, kind: SampleKind, begin_ns: u64, length_ns: u64) -> OpenPacket {
        let control = self.settings.map(|settings| Control {
            frequency_hz: u32::try_from(settings.frequency_hz).unwrap_or(u32::MAX),
            window_ns: self.length_ns(),
            max_frames: settings.max_frames,
            reason: settings.reason.map_or("", Reason::as_str),
        });
        let window = MonotonicWindow { begin_ns, length_ns, epoch_ns: self.epoch.of_window() };
        OpenPacket::new(window, kind, control.as_ref(), self.cache_entries)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use model::{CpuId, Pid, Tid};
    use profile::{Limits, Request, Unnamed};

    use super::super::jit::JitMaker;
    use super::super::{KernelFrame, PythonEnd, StackEnd};
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const HOUR_NS: u64 = 3_600 * SECOND_NS;

    fn sample(time_ns: u64) -> Sample {
        Sample {
            time_ns,
            weight_ns: SECOND_NS / 99,
            off_cpu: false,
            pid: Pid::new(7),
            process_start_ns: 1,
            tid: Tid::new(7),
            name: b"app".to_vec(),
            executable: None,
            jit: JitMaker::default(),
            cpu: CpuId::new(0),
            cgroup: 0,
            span: None,
            kernel: vec![KernelFrame {
                address: 0xffff_ffff_8100_0000,
                function: Err(Unnamed::NoSymbol),
            }],
            user: Vec::new(),
            end: StackEnd::Root,
            python: PythonEnd::None,
        }
    }

    fn times(packet: &Packet) -> (u64, u64, Vec<u64>) {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        let profile = &request.resources[0].profiles[0];
        let times = profile.samples.iter().flat_map(|sample| sample.times_unix_ns.clone());
        (profile.time_unix_ns, profile.time_unix_ns + profile.duration_ns, times.collect())
    }

    #[test]
    fn s13_packets_never_begin_before_an_earlier_one_when_the_clock_is_set() {
        static OFFSET: AtomicU64 = AtomicU64::new(500 * HOUR_NS);
        let mut packer = Packer::new(Duration::from_secs(5), 99);
        packer.common.epoch = Epoch::new(|| OFFSET.load(Ordering::Relaxed));
        let mut packets = Vec::new();
        for second in 0..60 {
            match second {
                20 => OFFSET.fetch_sub(HOUR_NS, Ordering::Relaxed),
                40 => OFFSET.fetch_add(2 * HOUR_NS, Ordering::Relaxed),
                _ => 0,
            };
            packets.extend(packer.add(&sample(second * SECOND_NS)));
        }
        packets.extend(packer.finish());
        assert_eq!(packets.len(), 12);
        let mut before = 0;
        for packet in &packets {
            let (begin, end, times) = times(packet);
            assert_eq!(packet.begin_unix_ns, begin);
            assert!(begin > before, "{begin} {before}");
            assert!(times.len() == 5 && times.iter().all(|at| (begin..end).contains(at)));
            before = begin;
        }
        // Set forward is followed.
        assert!(before > 501 * HOUR_NS, "{before}");
    }

    fn moment(time_ns: u64, ring_full: u64) -> Moment {
        let settings = Settings { frequency_hz: 99, windows: 1, max_frames: 1024, reason: None };
        let lost = Lost { ring_full, ..Lost::default() };
        Moment { time_ns, lost, settings, forget: false }
    }

    #[test]
    fn what_was_lost_is_told_also_when_no_sample_comes() {
        let mut packer = Packer::new(Duration::from_secs(5), 99)
            .with_epoch(100)
            .with_attributes(vec![("host.name".to_owned(), "h1".to_owned())]);
        let lossy = |packets: &[Packet], begin_ns, count| {
            let [packet] = packets else { panic!("{packets:?}") };
            let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
            assert!(request.check().is_empty(), "{:?}", request.check());
            assert_eq!(request.losses(), [("ring_full".to_owned(), count)]);
            assert_eq!((packet.samples, packet.begin_unix_ns), (0, 100 + begin_ns));
            let host = request.resources[0].find_text(&request.dictionary, "host.name");
            assert_eq!(host, Some("h1"));
            packet.id
        };
        assert_eq!(packer.add(&sample(10)), None);
        let over = packer.until(&moment(6 * SECOND_NS, 0));
        assert_eq!(over.iter().map(|packet| packet.samples).sum::<usize>(), 1);
        // Lost somewhen between this moment and the next.
        assert_eq!(packer.until(&moment(8 * SECOND_NS, 2)), []);
        assert_eq!(packer.until(&moment(9 * SECOND_NS, 3)), []);
        let first = lossy(&packer.until(&moment(11 * SECOND_NS, 0)), 6 * SECOND_NS, 5);
        assert_eq!(packer.until(&moment(20 * SECOND_NS, 0)), []);
        // And at the end of a run.
        assert_eq!(packer.until(&moment(21 * SECOND_NS, 7)), []);
        let last = lossy(&packer.finish(), 20 * SECOND_NS, 7);
        assert_ne!(first, last);
    }

    #[test]
    fn a_window_is_over_by_time_and_tells_what_was_lost_meanwhile() {
        let mut packer = Packer::new(Duration::from_secs(5), 99)
            .with_attributes(vec![("host.name".to_owned(), "h1".to_owned())]);
        packer.lost("undelivered.age", 3);
        assert_eq!(packer.add(&sample(10)), None);
        packer.lost("undelivered.age", 4);
        assert_eq!(packer.until(&moment(10 + 5 * SECOND_NS - 1, 2)), []);
        let packets = packer.until(&moment(10 + 5 * SECOND_NS, 0));
        let [packet] = packets.as_slice() else { panic!("{packets:?}") };
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        let lost = [("ring_full".to_owned(), 2), ("undelivered.age".to_owned(), 7)];
        assert_eq!(request.losses(), lost);
        let host = request.resources[0].find_text(&request.dictionary, "host.name");
        assert_eq!(host, Some("h1"));
        assert_eq!(packer.until(&moment(u64::MAX, 0)), []);
    }
}
