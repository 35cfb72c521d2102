//! Who may come in, and what a connection may do before it has said anything.
//!
//! ```text
//! accept ─▶ Peers ─▶ Lobby: until the first header is there ─▶ a place among the connections ─▶ served
//!                       └─ too long, or too many: closed
//! ```
//! A connection that says nothing costs a descriptor and a small task, and no place among those that are served. When the
//! lobby is full, who has waited longest leaves: an honest peer speaks at once, so a crowd of silent ones locks nobody out.
//!
//! LTTng's data connections are silent until their first packet, which may take any time. Each control connection of a
//! host lets one such connection of the same host wait without limit and without being sent away: producers open theirs
//! after the control connection has spoken.
//!
//! The encrypted port ([`tls`]) has a lobby too; there the wait begins with the handshake, and a party is who has shown
//! the same token and certificate, wherever it comes from.

pub(crate) mod listen;
mod socket;
pub(crate) mod tls;
mod who;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use door::Role;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant as Deadline;
use wire::live::{COMMAND_HEADER_LEN, Command, CommandHeader};

use crate::error::Error;

pub(crate) use socket::{Socket, end_when_gone, end_when_mute, has_ended};
pub(crate) use who::{Identity, Who};

/// The longest header that begins a connection.
const LONGEST_HEADER: usize = 32;

/// How often a crowd is complained about.
const COMPLAIN_EVERY: Duration = Duration::from_secs(1);

/// Addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// `None`: any address.
    prefix: Option<(IpAddr, u8)>,
}

/// A text that is no network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address (10.1.2.3), a network (10.1.0.0/16, fd00::/8) or `any`")]
pub struct NotANetwork;

impl Network {
    /// Every address there is.
    pub const ANY: Self = Self { prefix: None };

    /// Whether an address is one of them. An IPv4 address within IPv6 is taken for what it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let Some((network, len)) = self.prefix else { return true };
        let (bits, own, width) = match (address.to_canonical(), network) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return false,
        };
        let differing: u128 = bits ^ own;
        differing.checked_shr(width - u32::from(len)).unwrap_or(0) == 0
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        if text == "any" {
            return Ok(Self::ANY);
        }
        let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let address: IpAddr = address.parse().map_err(|_not_an_address| NotANetwork)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let len = len.map_or(Ok(width), |len| len.parse().map_err(|_not_a_number| NotANetwork))?;
        if len > width {
            return Err(NotANetwork);
        }
        Ok(Self { prefix: Some((address, len)) })
    }
}

/// Which hosts may connect to a port, besides this one.
#[derive(Debug, Clone, Default)]
pub struct Peers(pub(crate) Vec<Network>);

impl Peers {
    /// Those of a port that listens on `address`, of [`Config::peers`].
    ///
    /// # Errors
    /// [`Error::OpenAddress`] when others reach the address and nobody said who may connect.
    ///
    /// [`Config::peers`]: crate::Config::peers
    pub fn of_port(address: SocketAddr, peers: Option<&[Network]>) -> Result<Self, Error> {
        match peers {
            Some(networks) => Ok(Self(networks.to_vec())),
            None if address.ip().to_canonical().is_loopback() => Ok(Self::default()),
            None => Err(Error::OpenAddress { address }),
        }
    }

    /// Whether a connection from one address to another of this machine may be served. From this machine itself it comes
    /// from the loopback, or from the very address it goes to.
    #[must_use]
    pub fn allow(&self, from: IpAddr, to: IpAddr) -> bool {
        let (from, to) = (from.to_canonical(), to.to_canonical());
        from.is_loopback() || from == to || self.0.iter().any(|net| net.contains(from))
    }
}

/// Whose connections belong together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Party {
    /// Those of a host.
    Host(IpAddr),
    /// Those of who has shown who it is.
    Known(Identity),
}

/// How many producers each party has, and how many silent data connections go with them.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<HashMap<Party, Host>>);

#[derive(Debug, Default)]
struct Host {
    producers: usize,
    expected: usize,
}

/// One of a party's connections, until it is dropped.
#[derive(Debug)]
pub(crate) struct Known {
    hosts: Arc<Hosts>,
    party: Party,
    is_producer: bool,
}

impl Hosts {
    fn lock(&self) -> MutexGuard<'_, HashMap<Party, Host>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A control connection that has spoken.
    fn producer(self: &Arc<Self>, party: &Party) -> Known {
        self.lock().entry(party.clone()).or_default().producers += 1;
        Known { hosts: Arc::clone(self), party: party.clone(), is_producer: true }
    }

    /// A data connection, if a producer of its party has none yet.
    fn expect(self: &Arc<Self>, party: &Party) -> Option<Known> {
        let mut hosts = self.lock();
        let known = hosts.get_mut(party).filter(|host| host.expected < host.producers)?;
        known.expected += 1;
        Some(Known { hosts: Arc::clone(self), party: party.clone(), is_producer: false })
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let mut hosts = self.hosts.lock();
        let Some(host) = hosts.get_mut(&self.party) else { return };
        let count = if self.is_producer { &mut host.producers } else { &mut host.expected };
        *count = count.saturating_sub(1);
        if host.producers == 0 && host.expected == 0 {
            hosts.remove(&self.party);
        }
    }
}

/// What a connection is expected to say first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// A request on a control connection.
    Command,
    /// A packet.
    Packet,
    /// A request of a viewer.
    Viewer,
}

impl First {
    const fn of(role: Role) -> Self {
        match role {
            Role::Control => Self::Command,
            Role::Data => Self::Packet,
            Role::Viewer => Self::Viewer,
        }
    }

    /// Length of the header in bytes.
    const fn len(self) -> usize {
        match self {
            Self::Command => COMMAND_HEADER_LEN,
            Self::Packet => wire::live::DATA_HEADER_LEN,
            Self::Viewer => wire::live::viewer::Header::LEN,
        }
    }
}

/// Connections of one port that have not spoken yet.
#[derive(Debug)]
pub(crate) struct Lobby {
    /// `None`: each connection says itself what it is for.
    first: Option<First>,
    hosts: Arc<Hosts>,
    /// The most that wait without being expected.
    most: usize,
    patience: Duration,
    waiting: Mutex<Waiting>,
    left: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Those that can be sent away, by arrival.
    guests: BTreeMap<u64, Arc<Notify>>,
    /// Those, and who was sent away and has not left yet. Not who is expected: of them there are as many as producers at
    /// most, which the connections' limit bounds.
    present: usize,
}

/// Why a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Gone {
    #[error("it said nothing for too long")]
    Silent,
    #[error("too many connections that say nothing")]
    Crowded,
    #[error("it ended without a word")]
    Ended,
}

impl Lobby {
    pub(crate) fn new(
        first: Option<First>,
        hosts: Arc<Hosts>,
        most: usize,
        patience: Duration,
    ) -> Self {
        let (waiting, left) = (Mutex::default(), Notify::new());
        Self { first, hosts, most: most.max(1), patience, waiting, left }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until those that were sent away have left: each still has its descriptor.
    pub(crate) async fn has_room(&self) {
        loop {
            let left = self.left.notified();
            if self.lock().present < self.most * 2 {
                return;
            }
            left.await;
        }
    }

    /// A place for a connection that was just accepted; who has waited longest may have to go for it. To be called in the
    /// order in which they were accepted: a host's expected connection is the first after its producer.
    pub(crate) fn enter(self: &Arc<Self>, host: IpAddr) -> Place {
        let party = Party::Host(host);
        let known = self.expect(self.first, &party);
        let mut waiting = self.lock();
        let (number, sent_away) = (waiting.next, Arc::new(Notify::new()));
        waiting.next += 1;
        let is_guest = known.is_none();
        if is_guest {
            waiting.present += 1;
            waiting.guests.insert(number, Arc::clone(&sent_away));
        }
        if waiting.guests.len() > self.most
            && let Some((_, oldest)) = waiting.guests.pop_first()
        {
            oldest.notify_one();
        }
        drop(waiting);
        let deadline = Deadline::now() + self.patience;
        Place {
            lobby: Arc::clone(self),
            number,
            first: self.first,
            party,
            known,
            is_guest,
            sent_away,
            deadline,
        }
    }

    fn expect(&self, first: Option<First>, party: &Party) -> Option<Known> {
        (first == Some(First::Packet)).then(|| self.hosts.expect(party)).flatten()
    }
}

/// A connection's place in the lobby.
#[derive(Debug)]
pub(crate) struct Place {
    lobby: Arc<Lobby>,
    number: u64,
    first: Option<First>,
    party: Party,
    /// Of an expected connection.
    known: Option<Known>,
    /// It counts among those who are not expected.
    is_guest: bool,
    sent_away: Arc<Notify>,
    /// Until when a guest may stay.
    deadline: Deadline,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.is_no_guest();
    }
}

impl Place {
    /// Waits until the first header of a plain connection is there, which is left unread. What comes back is to be kept
    /// while the connection is served.
    pub(crate) async fn wait(mut self, stream: &TcpStream) -> Result<Option<Known>, Gone> {
        let needed = self.first.map_or(0, First::len);
        let head = self.stay(first_header(stream, needed)).await?;
        let head = head.map_err(|_ended| Gone::Ended)?;
        Ok(self.spoke(&head))
    }

    /// The connection has shown who it is and what it is for.
    fn turned_out(&mut self, first: First, identity: Identity) {
        (self.first, self.party) = (Some(first), Party::Known(identity));
        self.be_expected();
    }

    /// Does something that may take as long as the connection may stay.
    async fn stay<T>(&mut self, doing: impl Future<Output = T>) -> Result<T, Gone> {
        let sent_away = Arc::clone(&self.sent_away);
        let mut doing = std::pin::pin!(doing);
        loop {
            tokio::select! {
                biased;
                done = &mut doing => return Ok(done),
                () = sent_away.notified() => return Err(Gone::Crowded),
                () = tokio::time::sleep_until(self.deadline), if self.known.is_none() => {
                    // Its producer may have come after it.
                    self.be_expected();
                    if self.known.is_none() {
                        return Err(Gone::Silent);
                    }
                }
            }
        }
    }

    /// Has the connection stay as long as it likes, if a producer waits for it.
    fn be_expected(&mut self) {
        self.known = self.lobby.expect(self.first, &self.party);
        if self.known.is_some() {
            self.is_no_guest();
        }
    }

    /// It makes room for others who are not expected.
    fn is_no_guest(&mut self) {
        if !std::mem::take(&mut self.is_guest) {
            return;
        }
        let mut waiting = self.lobby.lock();
        waiting.present = waiting.present.saturating_sub(1);
        waiting.guests.remove(&self.number);
        drop(waiting);
        self.lobby.left.notify_one();
    }

    /// What is to be kept while a connection is served that began with `head`.
    fn spoke(&mut self, head: &[u8; LONGEST_HEADER]) -> Option<Known> {
        match self.first {
            Some(First::Command) => greets(head).then(|| self.lobby.hosts.producer(&self.party)),
            _ => self.known.take(),
        }
    }
}

/// Whether a control connection begins as one does.
fn greets(head: &[u8; LONGEST_HEADER]) -> bool {
    let header = head.first_chunk::<COMMAND_HEADER_LEN>().map(CommandHeader::decode);
    matches!(header, Some(Ok(CommandHeader { command: Command::Version, .. })))
}

/// The first bytes of a connection, once `needed` of them are there or no more will come.
async fn first_header(stream: &TcpStream, needed: usize) -> io::Result<[u8; LONGEST_HEADER]> {
    let mut head = [0; LONGEST_HEADER];
    loop {
        let is_over = stream.ready(Interest::READABLE).await?.is_read_closed();
        let looked = stream.try_io(Interest::READABLE, || {
            let room = head.get_mut(..needed).unwrap_or_default();
            let (_, seen) = rustix::net::recv(stream, room, RecvFlags::PEEK)?;
            match seen {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                // More will make the socket readable again.
                seen if seen < needed && !is_over => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            }
        });
        match looked {
            Ok(()) => return Ok(head),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Says things that may happen thousands of times a second once a second.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<(Option<Instant>, u64)>);

impl Complaints {
    /// How many there were since the last time that it was said, this one included; `None`: not now.
    pub(crate) fn due(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, held) = &mut *state;
        *held += 1;
        if last.is_some_and(|last| now.saturating_duration_since(last) < COMPLAIN_EVERY) {
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_the_addresses_that_begin_like_them() {
        let check = |network: &str, inside: &[&str], outside: &[&str]| {
            let network: Network = network.parse().unwrap();
            let contains = |text: &&str| network.contains(text.parse().unwrap());
            assert!(inside.iter().all(contains), "{network:?}");
            assert!(!outside.iter().any(contains), "{network:?}");
        };
        check(
            "10.1.0.0/16",
            &["10.1.0.1", "10.1.255.255", "::ffff:10.1.2.3"],
            &["10.2.0.1", "::1"],
        );
        check("10.1.2.3", &["10.1.2.3"], &["10.1.2.4", "10.1.2.2"]);
        check("10.1.2.3/9", &["10.127.0.0"], &["10.128.0.0", "11.1.2.3"]);
        check("0.0.0.0/0", &["1.2.3.4", "255.255.255.255"], &["fd00::1"]);
        check("fd00::/8", &["fd12::1", "fdff::"], &["fe80::1", "10.0.0.1"]);
        check("::/0", &["::1", "fd00::1"], &["10.0.0.1"]);
        check("any", &["10.1.2.3", "fd00::1"], &[]);
        for text in ["", "10.1", "10.1.0.0/33", "fd00::/129", "10.0.0.0/", "10.0.0.0/-1", "all"] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }

    #[test]
    fn this_machine_may_always_connect_whatever_its_address() {
        let peers = |networks: &[&str]| {
            Peers(networks.iter().map(|network| network.parse().unwrap()).collect())
        };
        let check = |peers: &Peers, from: &str, to: &str, expected: bool| {
            let allowed = peers.allow(from.parse().unwrap(), to.parse().unwrap());
            assert_eq!(allowed, expected, "{from} to {to}");
        };
        for networks in [&[][..], &["10.99.0.0/16"]] {
            let peers = peers(networks);
            check(&peers, "127.0.0.1", "127.0.0.1", true);
            check(&peers, "192.0.2.2", "192.0.2.2", true);
            check(&peers, "::ffff:192.0.2.2", "192.0.2.2", true);
            check(&peers, "192.0.2.3", "192.0.2.2", false);
            check(&peers, "10.99.1.1", "192.0.2.2", !networks.is_empty());
        }
        let open = "0.0.0.0:1".parse().unwrap();
        assert!(matches!(Peers::of_port(open, None), Err(Error::OpenAddress { .. })));
        assert!(Peers::of_port(open, Some(&[])).is_ok());
        assert!(Peers::of_port("[::1]:1".parse().unwrap(), None).is_ok());
    }

    #[test]
    fn only_one_silent_data_connection_goes_with_each_producer() {
        let hosts = Arc::<Hosts>::default();
        let host = |text: &str| Party::Host(text.parse().unwrap());
        let (near, far) = (&host("10.0.0.1"), &host("10.0.0.2"));
        assert!(hosts.expect(near).is_none());
        let producers = [hosts.producer(near), hosts.producer(near)];
        let first = hosts.expect(near);
        assert!(first.is_some() && hosts.expect(far).is_none());
        let second = hosts.expect(near);
        assert!(second.is_some() && hosts.expect(near).is_none());
        drop(first);
        let third = hosts.expect(near);
        assert!(third.is_some());
        drop((producers, second, third));
        assert!(hosts.lock().is_empty(), "nothing is kept of hosts that are gone");
    }

    #[test]
    fn complaints_are_counted_and_said_once_a_second() {
        let complaints = Complaints::default();
        let begin = Instant::now();
        let at = |ms| complaints.due(begin + Duration::from_millis(ms));
        assert_eq!(
            [at(0), at(1), at(999), at(1000), at(3000)],
            [Some(1), None, None, Some(3), Some(1)]
        );
    }
}
