//! Interrupts, disks, network and memory: what the kernel says is in the trace, and nothing of what was not asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use capture::kernel::{Config, Group, Output};

use crate::support::{
    AMPLE, Capture, Waiting, can_trace, number, process, read, read_streams, text,
};

/// Everything but system calls, while `work` runs.
fn captured(folder: &Path, groups: &[Group], work: impl FnOnce()) {
    let capture = Capture::start(Config {
        groups: groups.iter().copied().collect(),
        ring_bytes: AMPLE,
        ..Config::new(Output::Folder(folder.to_owned()))
    });
    work();
    let report = capture.finish().unwrap();
    assert_eq!(report.discarded_total(), 0);
}

/// Major and minor number of a block device as a kernel's `dev_t`.
fn device(text: &str) -> i64 {
    let (major, minor) = text.trim().split_once(':').unwrap();
    major.parse::<i64>().unwrap() << 20 | minor.parse::<i64>().unwrap()
}

#[test]
fn requests_to_a_disk_are_of_the_thread_that_asked_and_disks_have_their_names() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "exec dd if=/dev/zero of=file bs=4096 count=50 oflag=direct 2>/dev/null";
    let child = Waiting::start(folder.path(), "", script);
    let pid = i64::from(child.pid());
    let trace = folder.path().join("trace");
    let mut written = false;
    captured(&trace, &[Group::Disks], || written = child.go().success());
    let on_disk =
        Path::new("/sys/class/block").read_dir().is_ok_and(|mut all| all.next().is_some());
    if !written || !on_disk {
        testkit::skip("the temporary folder is on no disk that takes direct writes");
        return;
    }
    let (mut sectors, mut issued, mut done) = (0, BTreeSet::new(), BTreeSet::new());
    let (mut names, mut other) = (BTreeMap::new(), Vec::new());
    read(&trace, |event| match event.name() {
        "block_rq_issue" if number(event, "tid") == pid && number(event, "rwbs") & 1 == 1 => {
            sectors += number(event, "nr_sector");
            issued.insert((number(event, "dev"), number(event, "sector")));
        }
        "block_rq_complete" if number(event, "error") == 0 => {
            done.insert((number(event, "dev"), number(event, "sector")));
        }
        "lttng_statedump_block_device" => {
            names.insert(text(event, "diskname"), number(event, "dev"));
        }
        name if name.starts_with("block_") => {}
        name => other.push(name.to_owned()),
    });
    if issued.is_empty() {
        testkit::skip("the temporary folder's file system writes to no disk of this machine");
        return;
    }
    // While the disk is busy a worker of the kernel may issue a request for the thread.
    assert!((40 * 8..=50 * 8).contains(&sectors), "{sectors}");
    assert!(issued.is_subset(&done), "{issued:?} {done:?}");
    assert_eq!(other, [""; 0]);
    for (name, found) in &names {
        let told = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
        assert_eq!(device(&told), *found, "{name}");
    }
    let known: BTreeSet<i64> = names.values().copied().collect();
    assert!(issued.iter().all(|(dev, _)| known.contains(dev)), "{issued:?} {names:?}");
}

#[test]
fn packets_have_their_interface_and_length() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (from, to) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let trace = folder.path().join("trace");
    captured(&trace, &[Group::Network], || {
        for _ in 0..20 {
            from.send_to(&[7; 1003], to.local_addr().unwrap()).unwrap();
            to.recv(&mut [0; 2000]).unwrap();
        }
    });
    const DATAGRAM: i64 = 1003 + 8 + 20;
    const FRAME: i64 = DATAGRAM + 14;
    let (mut sent, mut received) = (0, 0);
    read(&trace, |event| match (event.name(), text(event, "name").as_str()) {
        ("net_dev_xmit", "lo") if number(event, "len") == FRAME => {
            assert_eq!(number(event, "rc"), 0);
            sent += 1;
        }
        ("net_if_receive_skb", "lo") if number(event, "len") == DATAGRAM => received += 1,
        _ => {}
    });
    assert_eq!((sent, received), (20, 20));
}

#[test]
fn handlers_end_and_have_the_names_of_proc_interrupts() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    // Timers and expedited grace periods raise soft interrupts on a machine without devices too.
    let child =
        Waiting::start(folder.path(), "", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01; done");
    captured(&trace, &[Group::Interrupts], || assert!(child.go().success()));
    let lines = fs::read_to_string("/proc/interrupts").unwrap();
    let mut foreign = Vec::new();
    // The programs are attached one after the other: from the first end on, begins and ends take turns, but for those that a
    // program missed because it was interrupted by itself.
    let (mut ended, mut open) = (BTreeSet::new(), BTreeSet::new());
    let (mut softirqs, mut handlers, mut unmatched) = (0, 0, 0);
    read_streams(&trace, |cpu, event| {
        let line = |field| (cpu, event.name().contains("soft"), number(event, field));
        match event.name() {
            "irq_handler_entry" => {
                let (irq, name) = (number(event, "irq").to_string(), text(event, "name"));
                let is_of_irq =
                    |line: &&str| line.split(':').next().is_some_and(|told| told.trim() == irq);
                let mut of_irq = lines.lines().filter(is_of_irq);
                if name.is_empty() || !of_irq.any(|line| line.contains(&name)) {
                    foreign.push((irq, name));
                }
                handlers += 1;
                unmatched += u32::from(!open.insert(line("irq")) && ended.contains(&line("irq")));
            }
            "irq_softirq_entry" => {
                softirqs += 1;
                unmatched += u32::from(!open.insert(line("vec")) && ended.contains(&line("vec")));
            }
            "irq_handler_exit" => {
                unmatched += u32::from(!open.remove(&line("irq")) && ended.contains(&line("irq")));
                ended.insert(line("irq"));
            }
            "irq_softirq_exit" => {
                unmatched += u32::from(!open.remove(&line("vec")) && ended.contains(&line("vec")));
                ended.insert(line("vec"));
            }
            name => assert_eq!(name, "irq_softirq_raise"),
        }
    });
    assert_eq!(foreign, []);
    assert!(softirqs > 0 && !ended.is_empty());
    assert!(
        unmatched <= 2 + (softirqs + handlers) / 50,
        "{unmatched} of {softirqs} and {handlers}"
    );
}

#[test]
fn pages_belong_to_who_takes_them_and_come_only_when_asked_for() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "exec dd if=/dev/zero of=/dev/null bs=16M count=1 2>/dev/null";
    let child = Waiting::start(folder.path(), "", script);
    let pid = i64::from(child.pid());
    let trace = folder.path().join("trace");
    captured(&trace, &[Group::Memory], || assert!(child.go().success()));
    let (mut taken, mut given) = (0_u64, 0_u64);
    read(&trace, |event| {
        if process(event) == pid {
            match event.name() {
                "kmem_mm_page_alloc" => taken += 1 << number(event, "order"),
                "kmem_mm_page_free" => given += 1 << number(event, "order"),
                name => panic!("{name} was not asked for"),
            }
        }
    });
    assert!(taken >= (16 << 20) / 4096, "a buffer of 16 MiB takes its pages: {taken}");
    assert!(given > 0);
    assert!(!Group::USUAL.contains(&Group::Memory));
}
