//! Many connections of one service in one row.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Two connections that have an end in common are one row: a server's clients, or the connections to one server.
const MANY: usize = 2;

/// The two ends of a connection, from a name such as `tcp:127.0.0.1:80->127.0.0.1:4000`.
struct Connection<'a> {
    protocol: &'a str,
    local: &'a str,
    peer: &'a str,
}

impl<'a> Connection<'a> {
    fn of(name: &'a str) -> Option<Self> {
        let (local, peer) = name.split_once("->")?;
        let (protocol, local) = local.split_once(':')?;
        let is_end = |end: &str| end.parse::<SocketAddr>().is_ok();
        let is_connection = !protocol.contains('/') && is_end(local) && is_end(peer);
        is_connection.then_some(Self { protocol, local, peer })
    }
}

/// Puts connections that have an end in common under one name; the end that more of them share is kept.
pub(super) fn by_end<F: Default>(
    files: BTreeMap<Arc<str>, F>,
    add: impl Fn(&mut F, F),
) -> BTreeMap<Arc<str>, F> {
    let (mut locals, mut peers) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
    for Connection { protocol, local, peer } in files.keys().filter_map(|name| Connection::of(name))
    {
        *locals.entry((protocol, local)).or_default() += 1;
        *peers.entry((protocol, peer)).or_default() += 1;
    }
    if locals.values().chain(peers.values()).all(|count| *count < MANY) {
        return files;
    }
    let name = |Connection { protocol, local, peer }: Connection<'_>| {
        let clients = locals.get(&(protocol, local)).copied().unwrap_or(0);
        let ports = peers.get(&(protocol, peer)).copied().unwrap_or(0);
        let name: Option<Arc<str>> = match clients.max(ports) {
            0..MANY => None,
            _ if clients >= ports => Some(format!("{protocol}:{local}->({clients} peers)").into()),
            _ => Some(format!("{protocol}:({ports} ports)->{peer}").into()),
        };
        name
    };
    let names: Vec<Option<Arc<str>>> =
        files.keys().map(|file| Connection::of(file).and_then(name)).collect();
    let mut grouped = BTreeMap::new();
    for ((file, figures), name) in files.into_iter().zip(names) {
        add(grouped.entry(name.unwrap_or(file)).or_default(), figures);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<(String, u32)> {
        let files = names.iter().map(|name| (Arc::from(*name), 1)).collect();
        let grouped = by_end(files, |sum: &mut u32, more| *sum += more);
        grouped.into_iter().map(|(name, count)| (name.to_string(), count)).collect()
    }

    #[test]
    fn clients_of_a_server_are_one_row_and_so_are_connections_to_one() {
        let found = rows(&[
            "tcp:10.0.0.1:80->10.0.0.7:4000",
            "tcp:10.0.0.1:80->10.0.0.8:4000",
            "tcp:10.0.0.1:80->10.0.0.8:4001",
            "tcp:[::1]:50001->[::1]:5432",
            "tcp:[::1]:50002->[::1]:5432",
            "tcp:10.0.0.1:50003->10.0.0.9:9092",
        ]);
        let expected = [
            ("tcp:(2 ports)->[::1]:5432", 2),
            ("tcp:10.0.0.1:50003->10.0.0.9:9092", 1),
            ("tcp:10.0.0.1:80->(3 peers)", 3),
        ];
        assert_eq!(found, expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn what_only_looks_like_a_connection_stays_by_itself() {
        let names = ["/srv/tcp:10.0.0.1:80->10.0.0.7:1", "/srv/tcp:10.0.0.1:80->10.0.0.7:2"];
        assert_eq!(rows(&names), names.map(|name| (name.to_owned(), 1)));
        let names = ["tcp:here->there", "tcp:here->anywhere"];
        assert_eq!(rows(&names).len(), 2);
    }
}
