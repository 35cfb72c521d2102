//! Who a sampled process is, by the control group that it was in when the sample was taken.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::profile::{Limits, Request};
use capture::profile::Packer;

use crate::profile::{DEEP, Running, Sampling, compiled, config};
use crate::support::{are_installed, can_sample};

/// Groups that are removed with the test, the innermost first.
struct Groups(Vec<PathBuf>);

impl Groups {
    /// Makes one below the root of the hierarchy of version 2, with those that it is in. `None` where that may not be.
    fn make(&mut self, path: &str) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let mut at = PathBuf::from(mount.split(' ').nth(4).unwrap());
        for name in path.split('/') {
            at.push(name);
            if !at.exists() {
                fs::create_dir(&at).ok()?;
                self.0.insert(0, at.clone());
            }
        }
        Some(at)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in &self.0 {
            drop(fs::remove_dir(path));
        }
    }
}

fn join(group: &Path, process: &Running) {
    fs::write(group.join("cgroup.procs"), process.pid().get().to_string()).unwrap();
}

/// Also of a process that is gone when its packet is made, and of one that was moved.
#[test]
fn a_packet_tells_the_container_pod_and_unit_of_each_process() {
    const ID: &str = "4f3c8f5a0d9be7d2a1c6e8b35f7094d1c2e3a4b5968778695a4b3c2d1e0f9a8b";
    if !can_sample() || !are_installed(&["cc"]) {
        return;
    }
    let mut groups = Groups(Vec::new());
    let root = format!("throughline-test-{}", std::process::id());
    let pod = "kubepods-burstable-pod8c64bb0e_5d1b_4cdf_9b6a_1f3a2c7d9e01.slice";
    let in_pod = format!("{root}/{pod}/cri-containerd-{ID}.scope");
    let of_unit = format!("{root}/system.slice/web.service");
    let (Some(first), Some(second)) = (groups.make(&in_pod), groups.make(&of_unit)) else {
        testkit::skip("control groups of version 2 cannot be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(&compiled(folder.path(), "deep", DEEP), &["5"]);
    join(&first, &running);
    let sampling = Sampling::start(config(Some(vec![running.pid()])));
    sampling.wait(50);
    join(&second, &running);
    sampling.wait(100);
    let (_, samples) = sampling.finish();
    drop(running);

    let mut packer = Packer::new(Duration::from_secs(60), 397);
    let packets: Vec<_> = samples.iter().filter_map(|sample| packer.add(sample)).collect();
    assert_eq!(packets, []);
    let packets = packer.finish();
    let [packet] = packets.as_slice() else { panic!("{} packets", packets.len()) };
    let request = Request::decode(&packet.bytes, Limits::default()).unwrap();
    assert_eq!(request.check(), []);
    let mut told: Vec<[Option<&str>; 4]> = request
        .resources
        .iter()
        .map(|it| {
            let keys =
                ["process.linux.cgroup", "container.id", "k8s.pod.uid", "throughline.systemd.unit"];
            keys.map(|key| it.find_text(&request.dictionary, key))
        })
        .collect();
    told.sort_unstable();
    let (in_pod, of_unit) = (format!("0::/{in_pod}"), format!("0::/{of_unit}"));
    let pod = "8c64bb0e-5d1b-4cdf-9b6a-1f3a2c7d9e01";
    let expected = [
        [Some(in_pod.as_str()), Some(ID), Some(pod), None],
        [Some(of_unit.as_str()), None, None, Some("web.service")],
    ];
    assert_eq!(told, expected);
}
