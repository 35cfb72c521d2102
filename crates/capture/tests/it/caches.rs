//! What is kept to save work changes no byte of a packet.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ::profile::{Limits, Packet, Request};
use capture::profile::{Config, Packer, Sample};

use crate::profile::{DEEP, Running, Sampling, compiled, config};
use crate::support::{are_installed, can_sample, wait_for};

/// When the samples were taken, the same for all who pack them.
const EPOCH_NS: u64 = 1_795_000_000_000_000_000;

/// Numbers without a pattern, always the same: those of an xorshift.
struct Random(u64);

impl Random {
    fn is_one_of(&mut self, many: u64) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.is_multiple_of(many)
    }
}

fn packets(samples: &[Sample], mut packer: Packer, mut flush: impl FnMut() -> bool) -> Vec<Packet> {
    let mut packets = Vec::new();
    for sample in samples {
        packets.extend(packer.add(sample));
        if flush() {
            packer.forget();
        }
    }
    packets.extend(packer.finish());
    packets
}

fn packer() -> Packer {
    Packer::new(Duration::from_millis(500), 397).with_epoch(EPOCH_NS)
}

/// Samples of many short lives, of one file under two names, of waits and of the kernel are put into packets again and again.
#[test]
fn s3_packets_are_the_same_whatever_caches_hold_and_forget() {
    if !can_sample() || !are_installed(&["cc", "sh", "timeout", "dd"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "deep", DEEP);
    let other_name = folder.path().join("other_name");
    fs::hard_link(&program, &other_name).unwrap();
    let (program, other_name) = (program.display(), other_name.display());
    let script = format!(
        "while :; do timeout 0.05 {program} 30 & timeout 0.05 {other_name} 30; \
         dd if=/dev/zero of=/dev/null bs=1k count=9999 2>&- ; wait; done"
    );
    let shell = Running::start(Path::new("sh"), &["-c", &script]);
    let sampling = Sampling::start(Config { off_cpu: true, ..config(Some(vec![shell.pid()])) });
    sampling.wait(600);
    let (_, samples) = sampling.finish();
    drop(shell);
    // Of one that is still there the kernel says more than of one that is gone.
    let is_there = |it: &Sample| Path::new("/proc").join(it.pid.get().to_string()).exists();
    wait_for("the programs to end", || !samples.iter().any(is_there));

    let expected = packets(&samples, packer(), || false);
    assert!(expected.len() > 2, "{} packets", expected.len());
    let mut most = 0;
    let mut names = String::new();
    for packet in &expected {
        let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
        assert_eq!(request.check(), []);
        most = most.max(request.dictionary.locations.len());
        let mappings = request.dictionary.mappings.iter();
        names.extend(mappings.map(|mapping| request.dictionary.string(mapping.path)));
    }
    // Else a cache of 16 would hold all.
    assert!(most > 64, "{most} places in code");
    assert!(names.contains("/deep") && names.contains("/other_name"), "{names}");

    for entries in [1, 16, 4_096, usize::MAX] {
        for seed in 1..=3 {
            let mut random = Random(seed);
            let packer = packer().with_cache_entries(entries);
            // Debug information is found again each time, which takes longer than all else.
            let found = packets(&samples, packer, || random.is_one_of(16 * seed));
            assert!(found == expected, "{entries} entries, seed {seed}");
        }
    }
}
