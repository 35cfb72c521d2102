//! Packets as a sampler makes them.

use profile::{
    Builder, Frame, FrameKind, Line, Names, Packet, Process, Sample, SampleKind, Status, Window,
};

/// A packet of the window with this number: one sample of each of these processes.
pub(crate) fn packet(number: u64, processes: &[&str]) -> Packet {
    let begin_unix_ns = 1_000_000_000_000_000_000 + number * 5_000_000_000;
    let window = Window { begin_unix_ns, duration_ns: 5_000_000_000 };
    let mut builder = Builder::new(window, SampleKind::OnCpu { period_ns: 10_000_000 });
    for (pid, name) in (1..).zip(processes) {
        let path = format!("/usr/bin/{name}");
        let process = builder.process(&Process {
            pid,
            start_boot_ns: 1,
            executable_name: name,
            executable_path: &path,
            attributes: &[("host.name", "h1"), ("env", "test")],
        });
        let function = format!("work_of_{name}");
        let line = Line { function: &function, ..Line::default() };
        let frame = builder.frame(&Frame {
            kind: FrameKind::Native,
            mapping: None,
            address: 0x1000,
            names: Names::Known(&[line]),
        });
        let sample = Sample {
            process: process.unwrap(),
            tid: pid,
            thread_name: name,
            cpu: 0,
            at_unix_ns: begin_unix_ns + u64::from(pid),
            value: 1,
            link: None,
            frames: &[frame.unwrap()],
            status: Status::Root,
        };
        builder.add(&sample).unwrap();
    }
    builder.finish()
}
