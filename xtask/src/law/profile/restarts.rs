//! S4: an agent that is started again and again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::executables::{self, Executables, Kind};
use testkit::{Running, agent};

use super::packets::{each_packet, file, function};
use super::{Progress, Tried};

/// How long each agent samples.
const LIFE: Duration = Duration::from_secs(2);

pub(super) fn try_it(
    binary: &Path,
    length: Duration,
    progress: &Progress,
) -> anyhow::Result<Tried> {
    let folder = tempfile::tempdir()?;
    let busy = Executables::compile(folder.path(), Kind::Program)?.write(folder.path(), 1)?;
    let mut command = Command::new(&busy);
    command.arg("1000000000");
    let _busy = Running::start(&mut command, "busy", &folder.path().join("busy.log"));
    let options = ["--send", "file:kept", "--frequency", "199", "--window", "500ms"];
    let (begin, mut agents, mut undelivered) = (Instant::now(), 0, Vec::new());
    while begin.elapsed() < length {
        let mut agent = agent::start(binary, folder.path(), "agent", &options);
        std::thread::park_timeout(LIFE);
        let status = agent.end("TERM");
        agents += 1;
        progress.tell(format!("{agents} agents, {} s", begin.elapsed().as_secs()));
        let said = agent.said();
        if !status.success() || said.contains("wait") || said.contains("dropped") {
            undelivered.push(said);
        }
    }
    // What each place of each file is called, over all packets.
    let mut names: BTreeMap<(String, u64), Option<String>> = BTreeMap::new();
    let (mut frames, mut differ, mut unnamed) = (0_u64, Vec::new(), 0_u64);
    let packets = each_packet(&folder.path().join("kept"), |request| {
        for frame in request.dictionary.locations.iter().skip(1) {
            let (path, _) = file(request, frame);
            let name = function(request, frame).map(str::to_owned);
            frames += 1;
            unnamed += u64::from(Path::new(path) == busy && name.is_none());
            // Of what has no file the address means another thing each time.
            if path.is_empty() || path.starts_with('[') {
                continue;
            }
            let place = (path.to_owned(), frame.address);
            let known = names.entry(place).or_insert_with(|| name.clone());
            if *known != name {
                differ.push(format!("{path} {:#x}: {known:?} and {name:?}", frame.address));
            }
        }
    })?;
    let mut tried =
        Tried::new(format!("{agents} agents, {packets} packets, {frames} frames of them"));
    let own = executables::function(1);
    let is_seen = names.values().flatten().any(|name| *name == own);
    tried.expect(is_seen && packets >= agents, || "too little was sampled".to_owned());
    tried.expect(unnamed == 0, || format!("{unnamed} frames of the program have no name"));
    tried.expect(undelivered.is_empty(), || format!("agents said {undelivered:#?}"));
    tried.expect(differ.is_empty(), || {
        format!("{} places have two names, such as {:?}", differ.len(), differ.first())
    });
    Ok(tried)
}
