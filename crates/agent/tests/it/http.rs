//! OTLP over HTTP.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, Bounds, Reason, Sending, Settings};
use profile::{Limits, PacketId, Request, ungzip};
use testkit::wait_for;

use crate::collector::{Collector, Seen, answer};
use crate::packets::packet;

pub(crate) fn settings(spool: &Path, urls: &[String]) -> Settings {
    let target = |url: &String| (url.parse().unwrap(), Sending::default());
    Settings {
        spool: spool.to_owned(),
        bounds: Bounds::default(),
        targets: urls.iter().map(target).collect(),
        sealed: Arc::default(),
    }
}

fn ids(requests: &[Seen]) -> Vec<PacketId> {
    let id = |seen: &Seen| {
        let bytes = ungzip(&seen.body, Limits::default()).unwrap();
        Request::decode(&bytes, Limits::default()).unwrap().packet_id().unwrap()
    };
    requests.iter().map(id).collect()
}

#[test]
fn packets_arrive_once_each_though_the_collector_was_away() {
    let folder = tempfile::tempdir().unwrap();
    // A port that nobody listens at.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let agent = Agent::start(settings(folder.path(), &[format!("http://{address}")])).unwrap();
    let packets: Vec<_> = (0..20).map(|number| packet(number, &["app"])).collect();
    for packet in packets.iter().take(10) {
        agent.offer(packet.clone());
    }
    wait_for("a failed attempt", || {
        (agent.status().targets[0].1.failed_attempts > 0).then_some(())
    });
    // It ends with them in the spool, and another begins there.
    let status = agent.stop(Duration::ZERO);
    let (_, counts) = &status.targets[0];
    assert_eq!((counts.sealed, counts.waiting, counts.delivered), (10, 10, 0));
    let agent = Agent::start(settings(folder.path(), &[format!("http://{address}")])).unwrap();
    for packet in packets.iter().skip(10) {
        agent.offer(packet.clone());
    }
    let collector = Collector::start(&address.to_string(), Vec::new());
    wait_for("all packets", || (collector.requests().len() >= 20).then_some(()));
    let status = agent.stop(Duration::from_secs(30));
    let (_, counts) = &status.targets[0];
    assert_eq!((counts.sealed, counts.found, counts.delivered, counts.waiting), (10, 10, 20, 0));
    let mut found = ids(&collector.requests());
    let mut sent: Vec<_> = packets.iter().map(|packet| packet.id).collect();
    found.sort_unstable();
    sent.sort_unstable();
    assert_eq!(found, sent);
}

#[test]
fn what_is_refused_is_dropped_and_what_is_not_is_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let script = vec![
        answer(400, &[], b"no"),
        answer(503, &[("retry-after", "1")], b""),
        answer(200, &[], b"\x0a\x05\x08\x03\x12\x01x"),
    ];
    let collector = Collector::start("127.0.0.1:0", script);
    let agent = Agent::start(settings(folder.path(), &[collector.url()])).unwrap();
    let (first, second) = (packet(1, &["a", "b"]), packet(2, &["a"]));
    agent.offer(first.clone());
    wait_for("a refusal", || (!agent.status().targets[0].1.dropped.is_empty()).then_some(()));
    agent.offer(second.clone());
    wait_for("a delivery", || (agent.status().targets[0].1.delivered == 1).then_some(()));
    let mut told = BTreeMap::new();
    agent.tell(|loss, samples| *told.entry(loss.class.clone()).or_default() += samples);
    assert_eq!(told, BTreeMap::from([("undelivered.refused".to_owned(), 2)]));
    let status = agent.stop(Duration::from_secs(30));
    let (_, counts) = &status.targets[0];
    assert_eq!(counts.dropped, BTreeMap::from([(Reason::Refused, 1)]));
    assert_eq!((counts.rejected_profiles, counts.failed_attempts), (3, 1));
    assert!(counts.adds_up());
    let requests = collector.requests();
    assert_eq!(ids(&requests), [first.id, second.id, second.id]);
    let seen = &requests[0];
    assert_eq!(seen.path, "/v1development/profiles");
    let header = |name: &str| seen.headers[name].to_str().unwrap();
    assert_eq!(header("content-type"), "application/x-protobuf");
    assert_eq!(header("content-encoding"), "gzip");
    assert!(header("user-agent").starts_with("throughline/"));
}

#[test]
fn each_target_gets_each_packet_whatever_the_others_do() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let refuses = Collector::start("127.0.0.1:0", (0..9).map(|_| answer(401, &[], b"")).collect());
    let urls = [refuses.url(), format!("file:{}", kept.display())];
    let agent = Agent::start(settings(&folder.path().join("spool"), &urls)).unwrap();
    let packets: Vec<_> = (0..9).map(|number| packet(number, &["app"])).collect();
    packets.iter().for_each(|packet| agent.offer(packet.clone()));
    wait_for("nine refusals", || (agent.status().targets[0].1.all_dropped() == 9).then_some(()));
    let mut told = BTreeMap::new();
    agent.tell(|loss, samples| *told.entry(loss.class.clone()).or_default() += samples);
    let class = format!("undelivered.refused.{}", refuses.address);
    assert_eq!(told, BTreeMap::from([(class, 9)]));
    let status = agent.stop(Duration::from_secs(30));
    assert_eq!(status.targets[1].1.delivered, 9);
    assert_eq!((status.waiting, status.bytes), (0, 0));
    let mut files: Vec<_> = kept.read_dir().unwrap().map(|it| it.unwrap().path()).collect();
    files.sort_unstable();
    let bytes: Vec<_> = files.iter().map(|path| std::fs::read(path).unwrap()).collect();
    assert_eq!(bytes, packets.iter().map(profile::Packet::gzip).collect::<Vec<_>>());
}
