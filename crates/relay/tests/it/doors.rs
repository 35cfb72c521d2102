//! Who may come in: crowds that say nothing, hosts that are not named.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use relay::{Config, Error, Limits, Network, Relay};
use tokio::runtime::Runtime;
use wire::live::viewer::{Connect, Request as ViewerRequest};
use wire::live::{Version, ViewerSessionId};

use crate::client::is_closed;
use crate::disk::wait_until;
use crate::producer::{Producer, greet, session, start};

/// How many connections say nothing.
const CROWD: usize = 10_000;

/// Bytes of memory the process has resident.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// A viewer's first words, and the relay's.
fn view(relay: &Relay) -> TcpStream {
    greet_as_viewer(connect(relay.viewers_addr()))
}

fn greet_as_viewer(mut viewer: TcpStream) -> TcpStream {
    let (viewer_session, version) = (ViewerSessionId::NONE, Version::OURS);
    let connect = Connect { viewer_session, version, kind: Connect::COMMAND };
    let mut bytes = Vec::new();
    ViewerRequest::Connect(connect).encode(&mut bytes);
    viewer.write_all(&bytes).unwrap();
    viewer.read_exact(&mut [0; Connect::LEN]).unwrap();
    viewer
}

fn packet(producer: &mut Producer, relay: &Relay) {
    let before = relay.totals().packets;
    producer.chunk(0);
    let stream = producer.stream("ch_0", 0);
    producer.packet(stream, 0);
    producer.index(stream, 0);
    wait_until("a packet", || relay.totals().packets == before + 1);
}

#[test]
fn ten_thousand_connections_that_say_nothing_lock_nobody_out() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { first_message: Duration::from_secs(3600), ..Limits::default() };
    let most = limits.half_open;
    let relay = start(&runtime, root.path(), limits);
    // Its data connection is as silent as the crowd, and comes before it.
    let mut early = Producer::new(&relay, session("early"));
    let before = resident();
    let addresses = [relay.control_addr(), relay.data_addr(), relay.viewers_addr()];
    let mut crowd = Vec::new();
    for number in 0..CROWD {
        crowd.push(connect(addresses[number % 3]));
        if number % 2 == 0 {
            // Some begin and do not go on.
            crowd.last_mut().unwrap().write_all(&[0; 7]).unwrap();
        }
    }
    let dropped = (CROWD - 3 * most) as u64;
    wait_until("those who waited longest to be gone", || {
        relay.totals().half_open_dropped >= dropped
    });
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for the crowd and its own side of it");

    let mut late = session("late");
    late.identity.as_mut().unwrap().sessiond.0[0] = 8;
    let mut late = Producer::new(&relay, late);
    packet(&mut late, &relay);
    packet(&mut early, &relay);
    drop(view(&relay));
    let totals = relay.totals();
    assert_eq!((totals.connections_refused, totals.viewers_refused), (0, 0));
    drop(crowd);
    runtime.block_on(relay.shutdown());
}

#[test]
fn a_connection_that_says_nothing_is_closed_after_a_while_but_for_data_of_a_host_with_a_producer() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { first_message: Duration::from_millis(100), ..Limits::default() };
    let relay = start(&runtime, root.path(), limits);
    for address in [relay.control_addr(), relay.data_addr(), relay.viewers_addr()] {
        assert!(is_closed(&mut connect(address)), "{address}");
        let mut cut = connect(address);
        cut.write_all(&[0; 15]).unwrap();
        assert!(is_closed(&mut cut), "{address}");
    }
    assert_eq!(relay.totals().half_open_dropped, 6);
    // A producer that greets and makes no session.
    assert!(greet(&relay).is_closed());

    let mut producer = Producer::new(&relay, session("patient"));
    // Closed one after the other, as many times the patience as there are.
    for _ in 0..5 {
        assert!(is_closed(&mut connect(relay.data_addr())));
    }
    packet(&mut producer, &relay);
    runtime.block_on(relay.shutdown());
}

#[test]
fn producers_that_send_no_packet_yet_keep_nobody_out() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits { half_open: 2, ..Limits::default() });
    let producer = |number: u8| {
        let mut create = session(&format!("s{number}"));
        create.identity.as_mut().unwrap().sessiond.0[0] = number;
        Producer::new(&relay, create)
    };
    let mut idle: Vec<Producer> = (0..12).map(producer).collect();
    packet(&mut producer(12), &relay);
    packet(idle.first_mut().unwrap(), &relay);
    packet(idle.last_mut().unwrap(), &relay);
    runtime.block_on(relay.shutdown());
}

#[test]
fn an_address_that_others_reach_needs_to_be_told_who_may_connect() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let config = |peers: Option<&str>| {
        let mut config = Config::new(root.path());
        config.control = "0.0.0.0:0".parse().unwrap();
        config.data.set_port(0);
        config.viewers.set_port(0);
        config.peers = peers.map(|network| vec![network.parse().unwrap()]);
        config
    };
    runtime.block_on(async {
        let refused = Relay::start(config(None));
        assert!(matches!(refused, Err(Error::OpenAddress { address }) if address.port() == 0));
        for peers in ["any", "10.0.0.0/8"] {
            Relay::start(config(Some(peers))).unwrap().shutdown().await;
        }
    });
    assert_eq!("any".parse(), Ok(Network::ANY));
}

/// A connection to the loopback from another address.
fn connect_from(runtime: &Runtime, from: std::net::IpAddr, port: u16) -> TcpStream {
    let socket = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let address = (std::net::Ipv4Addr::LOCALHOST, port).into();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// An address of this machine that is not the loopback's, if it has one.
fn outer_address() -> Option<std::net::IpAddr> {
    // Nothing is sent: only a route is looked up, to an address that belongs to nobody.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

#[test]
fn hosts_that_are_not_named_are_turned_away() {
    let Some(outer) = outer_address() else {
        testkit::skip("this machine has the loopback interface only");
        return;
    };
    let runtime = Runtime::new().unwrap();
    for (network, is_allowed) in [("203.0.113.77", false), (outer.to_string().as_str(), true)] {
        let root = tempfile::tempdir().unwrap();
        let relay = runtime.block_on(async {
            let mut config = Config::new(root.path());
            config.control = (std::net::Ipv4Addr::UNSPECIFIED, 0).into();
            config.data = config.control;
            config.viewers = config.control;
            config.peers = Some(vec![network.parse().unwrap()]);
            Relay::start(config).unwrap()
        });
        let (control, data) = (relay.control_addr().port(), relay.data_addr().port());
        let viewers = relay.viewers_addr().port();
        if is_allowed {
            drop(greet_as_viewer(connect_from(&runtime, outer, viewers)));
        } else {
            for port in [control, data, viewers] {
                assert!(is_closed(&mut connect_from(&runtime, outer, port)));
            }
            assert_eq!(relay.totals().peers_refused, 3);
        }
        // This machine itself always may, whichever of its addresses it connects to.
        for (name, here) in [("loopback", std::net::Ipv4Addr::LOCALHOST.into()), ("outer", outer)] {
            let at = |port| (here, port).into();
            packet(&mut Producer::at(at(control), at(data), session(name)), &relay);
        }
        runtime.block_on(relay.shutdown());
    }
}

/// Whether the system asks after the peer of the relay's end of a connection: timer 2 of its line.
fn is_asked_after(client: &TcpStream) -> bool {
    let end = |address: SocketAddr| match address {
        SocketAddr::V4(v4) => {
            format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.ip().octets()), v4.port())
        }
        SocketAddr::V6(_) => panic!("{address}"),
    };
    let (theirs, ours) = (client.peer_addr().unwrap(), client.local_addr().unwrap());
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, "01", _, timer, ..] = words.as_slice() else { return false };
        let Some(("02", when)) = timer.split_once(':') else { return false };
        // Hundredths of a second.
        let is_soon = u64::from_str_radix(when, 16).unwrap() <= 3000;
        *local == end(theirs) && *remote == end(ours) && is_soon
    })
}

#[test]
fn peers_whose_machines_are_gone_are_found_out() {
    let (runtime, root) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let relay = start(&runtime, root.path(), Limits::default());
    let mut producer = Producer::new(&relay, session("s"));
    producer.chunk(0);
    let viewer = view(&relay);
    for socket in [&producer.control.socket, &producer.data, &viewer] {
        wait_until("a timer", || is_asked_after(socket));
    }
    runtime.block_on(relay.shutdown());
}
