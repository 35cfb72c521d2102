//! Who a process is: what its packet says of it beside its program.

use std::fs;
use std::sync::Arc;

use profile::keys;

use super::Sample;
use super::cgroup::{Cgroups, most_telling};
use super::cgroup_path::Belonging;
use super::context::Contexts;
use super::lives::Lives;
use super::scan;
use crate::kernel::clock;

/// What is known of the machine's processes.
#[derive(Debug)]
pub(super) struct Resources {
    cgroups: Cgroups,
    contexts: Contexts,
    /// The group that a process was last seen in: what is left when it is gone.
    last: Lives<Arc<str>>,
}

impl Resources {
    pub(super) fn new() -> Self {
        Self { cgroups: Cgroups::new(), contexts: Contexts::default(), last: Lives::default() }
    }

    /// The attributes of a sample's process; of two with one key the last counts: what the kernel says, and not the process. Reads files
    /// of the process.
    pub(super) fn attributes(&mut self, sample: &Sample) -> Vec<(String, String)> {
        let mut attributes = self.of_context(sample);
        if let Some(line) = self.cgroup(sample) {
            of_cgroup(&line, &mut attributes);
        }
        attributes
    }

    fn of_context(&mut self, sample: &Sample) -> Vec<(String, String)> {
        let (pid, start_ns) = (sample.pid, sample.process_start_ns);
        let has_memory = sample.executable.is_some();
        let context = has_memory
            .then(|| self.contexts.of(pid, start_ns, clock::monotonic_ns(), sample.time_ns));
        context.flatten().map(|context| context.attributes.clone()).unwrap_or_default()
    }

    fn cgroup(&mut self, sample: &Sample) -> Option<Arc<str>> {
        let of_number = self.cgroups.of(sample.cgroup);
        // A thread of the kernel is in no container.
        let is_enough = sample.executable.is_none() || self.cgroups.is_all(sample.cgroup);
        if of_number.is_some() && is_enough {
            return of_number;
        }
        let (pid, start_ns) = (sample.pid, sample.process_start_ns);
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.get())).ok();
        // Looked at after the groups were read: they are of nobody else then.
        let groups = groups.filter(|_| scan::is_still(pid, start_ns));
        let Some(groups) = groups else {
            return self.last.get(pid, start_ns).map(Arc::clone).or(of_number);
        };
        let line: Arc<str> = most_telling(&groups)?.into();
        self.last.insert(pid, start_ns, Arc::clone(&line), sample.time_ns);
        Some(line)
    }
}

/// Of a line of `/proc/PID/cgroup`.
fn of_cgroup(line: &str, attributes: &mut Vec<(String, String)>) {
    let path = line.splitn(3, ':').nth(2).unwrap_or_default();
    let belonging = Belonging::of(path);
    attributes.push((keys::CGROUP.to_owned(), line.to_owned()));
    let container = belonging.container.map(str::to_owned);
    let unit = belonging.unit.map(str::to_owned);
    let told = [
        (keys::CONTAINER_ID, container),
        (keys::POD_UID, belonging.pod_uid),
        (keys::SYSTEMD_UNIT, unit),
    ];
    attributes.extend(told.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
}
