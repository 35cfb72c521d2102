//! Socket addresses as system calls take them, and their names.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// A `struct sockaddr`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// None given, or not readable.
    None,
    Inet(SocketAddr),
    /// A path; an abstract name begins with NUL; empty when unnamed.
    Unix(Vec<u8>),
    /// Another family.
    Other(u16),
}

impl Address {
    /// Reads `sockaddr_in`, `sockaddr_in6` or `sockaddr_un`, of which the family is in host byte order.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let Some((family, rest)) = bytes.split_first_chunk() else { return Self::None };
        match u16::from_le_bytes(*family) {
            AF_INET => inet(rest).unwrap_or(Self::Other(AF_INET)),
            AF_INET6 => inet6(rest).unwrap_or(Self::Other(AF_INET6)),
            AF_UNIX => Self::Unix(unix_name(rest)),
            other => Self::Other(other),
        }
    }

    pub(super) fn family(&self) -> u16 {
        match self {
            Self::None => 0,
            Self::Inet(SocketAddr::V4(_)) => AF_INET,
            Self::Inet(SocketAddr::V6(_)) => AF_INET6,
            Self::Unix(_) => AF_UNIX,
            Self::Other(family) => *family,
        }
    }

    /// 0 when it has none.
    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Inet(address) => address.port(),
            _ => 0,
        }
    }

    /// The bytes of the IPv4 address, then of the IPv6 address, one of which is empty.
    pub(super) fn octets(&self) -> (Vec<u64>, Vec<u64>) {
        match self {
            Self::Inet(SocketAddr::V4(v4)) => (v4.ip().octets().map(u64::from).to_vec(), vec![]),
            Self::Inet(SocketAddr::V6(v6)) => (vec![], v6.ip().octets().map(u64::from).to_vec()),
            _ => (vec![], vec![]),
        }
    }
}

impl fmt::Display for Address {
    /// `127.0.0.1:80`, `[::1]:80`, `unix:/path`, `unix:@abstract`; nothing for no address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Inet(address) => write!(f, "{address}"),
            Self::Unix(name) => write!(f, "unix:{}", UnixName(name)),
            Self::Other(family) => write!(f, "family {family}"),
        }
    }
}

/// Abstract names with `@` for their NUL, as other tools show them.
struct UnixName<'a>(&'a [u8]);

impl fmt::Display for UnixName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_first() {
            Some((0, name)) => {
                write!(f, "@{}", String::from_utf8_lossy(name).replace('\0', "@"))
            }
            _ => f.write_str(&String::from_utf8_lossy(self.0)),
        }
    }
}

fn inet(rest: &[u8]) -> Option<Address> {
    let (port, rest) = rest.split_first_chunk()?;
    let ip = Ipv4Addr::from(*rest.first_chunk::<4>()?);
    Some(Address::Inet(SocketAddr::new(ip.into(), u16::from_be_bytes(*port))))
}

fn inet6(rest: &[u8]) -> Option<Address> {
    let (port, rest) = rest.split_first_chunk()?;
    let (_flow, rest) = rest.split_first_chunk::<4>()?;
    let ip = Ipv6Addr::from(*rest.first_chunk::<16>()?);
    Some(Address::Inet(SocketAddr::new(ip.into(), u16::from_be_bytes(*port))))
}

fn unix_name(path: &[u8]) -> Vec<u8> {
    match path.first() {
        Some(0) => path.to_vec(),
        _ => path.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
    }
}

/// The socket behind a descriptor, as the state dump finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket<'a> {
    pub(super) family: u16,
    /// `SOCK_STREAM` is 1, `SOCK_DGRAM` 2.
    pub(super) kind: u16,
    pub(super) local_port: u16,
    pub(super) peer_port: u16,
    /// The first four bytes for IPv4.
    pub(super) local: [u8; 16],
    pub(super) peer: [u8; 16],
    pub(super) unix_name: &'a [u8],
}

impl Socket<'_> {
    /// `tcp:LOCAL->PEER`, `udp:LOCAL`, `unix:NAME`; `None` when nothing tells it from other sockets.
    pub(super) fn name(&self) -> Option<String> {
        let protocol = match (self.family, self.kind) {
            (AF_INET | AF_INET6, 1) => "tcp",
            (AF_INET | AF_INET6, 2) => "udp",
            (AF_INET | AF_INET6, _) => "inet",
            (AF_UNIX, _) if !self.unix_name.is_empty() => {
                return Some(Address::Unix(self.unix_name.to_vec()).to_string());
            }
            _ => return None,
        };
        let local = SocketAddr::new(self.ip(self.local), self.local_port);
        let peer = SocketAddr::new(self.ip(self.peer), self.peer_port);
        match (self.local_port, self.peer_port) {
            (0, 0) => None,
            (_, 0) => Some(format!("{protocol}:{local}")),
            (..) => Some(format!("{protocol}:{local}->{peer}")),
        }
    }

    fn ip(&self, bytes: [u8; 16]) -> IpAddr {
        match (self.family, bytes) {
            (AF_INET, [a, b, c, d, ..]) => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(bytes).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], shown: &str, family: u16, port: u16) {
        let address = Address::parse(bytes);
        assert_eq!(
            (address.to_string().as_str(), address.family(), address.port()),
            (shown, family, port)
        );
    }

    #[test]
    fn addresses_are_read_and_named() {
        check(b"", "", 0, 0);
        check(&[2, 0, 0x14, 0xDE, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], "127.0.0.1:5342", 2, 5342);
        let v6 = [[10, 0, 0, 80].as_slice(), &[0; 4], &[0; 15], &[1], &[0; 4]].concat();
        check(&v6, "[::1]:80", 10, 80);
        check(b"\x01\0/run/x\0junk", "unix:/run/x", 1, 0);
        check(b"\x01\0\0bus", "unix:@bus", 1, 0);
        check(b"\x01\0", "unix:", 1, 0);
        check(&[16, 0, 1, 2], "family 16", 16, 0);
        check(&[2, 0, 1], "family 2", 2, 0);
    }

    #[test]
    fn sockets_are_named_by_their_ends() {
        let mut local = [0; 16];
        local[..4].copy_from_slice(&[127, 0, 0, 1]);
        let socket = Socket {
            family: 2,
            kind: 1,
            local_port: 80,
            peer_port: 4000,
            local,
            peer: local,
            unix_name: b"",
        };
        assert_eq!(socket.name().unwrap(), "tcp:127.0.0.1:80->127.0.0.1:4000");
        assert_eq!(Socket { peer_port: 0, ..socket.clone() }.name().unwrap(), "tcp:127.0.0.1:80");
        assert_eq!(Socket { peer_port: 0, local_port: 0, ..socket.clone() }.name(), None);
        let unix = Socket { family: 1, unix_name: b"\0a", ..socket };
        assert_eq!(unix.name().unwrap(), "unix:@a");
    }
}
