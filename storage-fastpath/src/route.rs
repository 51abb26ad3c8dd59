//! Along which servers a write goes that they pass on (docs/storage-protocol.md section 11).

use crate::wire::WireError;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use towpath_base::crc::crc32c;
use towpath_cap::layout_digest;

/// The most servers of a ring or tree: copies beyond these protect from nothing that seven do not.
pub const ROUTE_MAX: usize = 7;

/// The most servers of a stripe: as many parts as a code may have.
pub const STRIPE_MAX: usize = 32;

const HEAD_BYTES: usize = 12;
pub(crate) const NODE_BYTES: usize = 24;
const CRC_AT: usize = HEAD_BYTES - 4;

/// How a write goes from server to server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RouteKind {
    /// Each passes it on to the next one: every server sends and receives each byte once at most.
    Ring = 1,
    /// Each passes it on to two: fewer hops, and twice the bytes to send for those that do.
    Tree = 2,
    /// Those that have data parts of a stripe pass theirs on to all that have parity parts, and
    /// these add up what their part is made of.
    Stripe = 3,
}

/// The servers of a write, in the order of their ranks, and the rank of the one that gets it.
///
/// The server of rank 0 gets it from the client, and of a stripe each that has a data part. Each
/// server gets the whole write before it makes it, and makes it when all that it has passed it on
/// to have made it: so a server has made no write that those behind it have not. Where fewer
/// copies than there are servers are enough ([`acked`](Self::acked)), it waits for none whose rank
/// is not below that number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    kind: RouteKind,
    rank: u8,
    /// Of a stripe how many have data parts; else 0.
    data: u8,
    /// Of a stripe that a parity part is made of: the rank of the data; else 0.
    from: u8,
    /// How many servers have made it when it is answered; 0: all of them.
    acked: u8,
    servers: Vec<SocketAddr>,
}

/// Why servers are no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// None, or too many.
    #[error("a write goes along 1 to {ROUTE_MAX} servers, a stripe to {STRIPE_MAX}, not {0}")]
    Servers(usize),
    /// One is named twice.
    #[error("{0} is named twice: each copy is on a server of its own")]
    Twice(SocketAddr),
    /// An address that nobody can connect to.
    #[error("{0} is no address to connect to")]
    Address(SocketAddr),
    /// A rank that no server has.
    #[error("there is no server of rank {0}")]
    Rank(u8),
    /// Answered by more servers than there are, or by some of those of a stripe.
    #[error("{0} copies cannot be enough: 1 to as many as a ring or tree has can")]
    Acked(u8),
}

impl Route {
    /// Along these servers, the first of which gets the write from the client.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn new(kind: RouteKind, servers: &[SocketAddr]) -> Result<Self, RouteError> {
        Self::at((kind, 0, 0, 0), 0, servers.iter().copied())
    }

    /// Of the data part of that rank of a stripe: `data` servers with data parts, then those with
    /// parity parts.
    ///
    /// # Errors
    /// [`RouteError`].
    pub fn stripe(rank: u8, data: u8, servers: &[SocketAddr]) -> Result<Self, RouteError> {
        Self::at((RouteKind::Stripe, rank, data, 0), 0, servers.iter().copied())
    }

    /// The same, answered when the servers of the ranks below `copies` have made it; those behind
    /// make it afterwards, or not.
    ///
    /// # Errors
    /// [`RouteError::Acked`].
    pub fn acked_by(mut self, copies: u8) -> Result<Self, RouteError> {
        if self.kind == RouteKind::Stripe || copies == 0 || copies > self.count() {
            return Err(RouteError::Acked(copies));
        }
        // All of them have one form.
        self.acked = if copies == self.count() { 0 } else { copies };
        Ok(self)
    }

    fn at(
        (kind, rank, data, from): (RouteKind, u8, u8, u8),
        acked: u8,
        servers: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<Self, RouteError> {
        let most = if kind == RouteKind::Stripe { STRIPE_MAX } else { ROUTE_MAX };
        let servers = plain_servers(servers, most)?;
        let is_stripe = kind == RouteKind::Stripe;
        let fits = match (is_stripe, rank >= data) {
            (false, _) => data == 0 && from == 0,
            (true, false) => from == 0,
            (true, true) => from < data,
        };
        if usize::from(rank) >= servers.len() || usize::from(data) > servers.len() || !fits {
            return Err(RouteError::Rank(rank));
        }
        if acked > 0 && (is_stripe || usize::from(acked) >= servers.len()) {
            return Err(RouteError::Acked(acked));
        }
        Ok(Self { kind, rank, data, from, acked, servers })
    }

    fn count(&self) -> u8 {
        self.servers.len() as u8
    }

    /// How many servers have made it when it is answered: those of the ranks below.
    #[must_use]
    pub fn acked(&self) -> u8 {
        if self.acked == 0 { self.count() } else { self.acked }
    }

    /// Whether the server of this rank makes it after it is answered, or not at all.
    #[must_use]
    pub fn is_trailing(&self) -> bool {
        self.rank >= self.acked()
    }

    /// How it goes.
    #[must_use]
    pub fn kind(&self) -> RouteKind {
        self.kind
    }

    /// The rank of the server that gets it, from 0.
    #[must_use]
    pub fn rank(&self) -> u8 {
        self.rank
    }

    /// Of a stripe how many servers have data parts; else 0.
    #[must_use]
    pub fn data(&self) -> u8 {
        self.data
    }

    /// Where the server adds the write up to a parity part: the rank of the data that it gets.
    #[must_use]
    pub fn adds(&self) -> Option<u8> {
        (self.kind == RouteKind::Stripe && self.rank >= self.data).then_some(self.from)
    }

    /// Whether a client asks the server of this rank, and not another server.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rank == 0 || self.kind == RouteKind::Stripe && self.rank < self.data
    }

    /// The servers, by rank.
    #[must_use]
    pub fn servers(&self) -> &[SocketAddr] {
        &self.servers
    }

    /// What the server of this rank passes the write on to: the route as each of them gets it, and
    /// who that is.
    pub fn onward(&self) -> impl Iterator<Item = (Self, SocketAddr)> {
        let rank = usize::from(self.rank);
        let next = match self.kind {
            RouteKind::Ring => rank + 1..rank + 2,
            RouteKind::Tree => 2 * rank + 1..2 * rank + 3,
            RouteKind::Stripe if self.rank < self.data => self.data.into()..self.servers.len(),
            RouteKind::Stripe => 0..0,
        };
        let from = if self.kind == RouteKind::Stripe { self.rank } else { 0 };
        next.filter_map(move |next| {
            let server = *self.servers.get(next)?;
            Some((Self { rank: next as u8, from, ..self.clone() }, server))
        })
    }

    /// The digest of the layout that it is of, at a chain version: the same for every rank.
    #[must_use]
    pub fn digest(&self, chain: u64) -> u128 {
        let mut bytes = Vec::with_capacity(16 + NODE_BYTES * ROUTE_MAX);
        bytes.extend_from_slice(&chain.to_le_bytes());
        bytes.extend_from_slice(&[self.kind as u8, self.data]);
        // One byte more or less before the servers: nothing else has the same bytes.
        bytes.extend((self.acked > 0).then_some(self.acked));
        self.servers.iter().for_each(|server| bytes.extend_from_slice(&node(*server)));
        layout_digest(&bytes)
    }

    /// Bytes of it.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        HEAD_BYTES + NODE_BYTES * self.servers.len()
    }

    /// It as bytes.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        self.servers.iter().for_each(|server| bytes.extend_from_slice(&node(*server)));
        bytes[0] = self.kind as u8;
        bytes[1] = self.rank;
        bytes[2] = self.servers.len() as u8;
        bytes[3] = self.data;
        bytes[4] = self.from;
        bytes[5] = self.acked;
        let crc = sum(&bytes);
        bytes[CRC_AT..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The route that `body` begins with, and the rest.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let short = |needed| WireError::Short { found: body.len(), needed };
        let head = body.first_chunk::<HEAD_BYTES>().ok_or(short(HEAD_BYTES))?;
        let [kind, rank, count, data, from, zeros @ ..] = *head;
        let [acked, zero_0, zero_1, crc @ ..] = zeros;
        let byte_len = HEAD_BYTES + NODE_BYTES * usize::from(count);
        let (route, rest) = body.split_at_checked(byte_len).ok_or(short(byte_len))?;
        if u32::from_le_bytes(crc) != sum(route) {
            return Err(WireError::HeaderCrc);
        }
        if [zero_0, zero_1] != [0; 2] {
            return Err(WireError::Reserved("a byte of the route"));
        }
        let kind = match kind {
            1 => RouteKind::Ring,
            2 => RouteKind::Tree,
            3 => RouteKind::Stripe,
            _ => return Err(WireError::Route),
        };
        let servers = route[HEAD_BYTES..].chunks_exact(NODE_BYTES).map(server);
        let servers: Option<Vec<SocketAddr>> = servers.collect();
        let servers = servers.ok_or(WireError::Reserved("a byte of an address"))?;
        let route = Self::at((kind, rank, data, from), acked, servers);
        Ok((route.map_err(|_| WireError::Route)?, rest))
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            RouteKind::Ring => "ring",
            RouteKind::Tree => "tree",
            RouteKind::Stripe => "stripe",
        };
        write!(f, "{kind}:{}", self.servers.len())?;
        if self.acked > 0 {
            write!(f, ",ack:{}", self.acked)?;
        }
        write!(f, " at rank {}", self.rank)
    }
}

/// Addresses in one form, if they are those of as many servers, at most `most`.
pub(crate) fn plain_servers(
    servers: impl IntoIterator<Item = SocketAddr>,
    most: usize,
) -> Result<Vec<SocketAddr>, RouteError> {
    // An IPv4 address has one form.
    let plain = |server: SocketAddr| SocketAddr::new(server.ip().to_canonical(), server.port());
    let servers: Vec<SocketAddr> = servers.into_iter().map(plain).collect();
    if servers.is_empty() || servers.len() > most {
        return Err(RouteError::Servers(servers.len()));
    }
    for (index, server) in servers.iter().enumerate() {
        let ip = server.ip();
        if server.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
            return Err(RouteError::Address(*server));
        }
        if servers[..index].contains(server) {
            return Err(RouteError::Twice(*server));
        }
    }
    Ok(servers)
}

/// The checksum of a route, whose own place counts as zeros.
fn sum(route: &[u8]) -> u32 {
    let (head, rest) = route.split_at(CRC_AT);
    crc32c(&[head, &[0; 4], &rest[4..]].concat())
}

/// A server as bytes: its address as IPv6, its port, and zeros.
pub(crate) fn node(server: SocketAddr) -> [u8; NODE_BYTES] {
    let ip = match server.ip() {
        std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        std::net::IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; NODE_BYTES];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..18].copy_from_slice(&server.port().to_le_bytes());
    bytes
}

/// A server from bytes.
pub(crate) fn server(bytes: &[u8]) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(*bytes.first_chunk::<16>()?);
    let (port, zeros) = bytes.get(16..)?.split_at_checked(2)?;
    let port = u16::from_le_bytes([port[0], port[1]]);
    let is_plain = zeros.iter().all(|byte| *byte == 0);
    is_plain.then(|| SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_base::Prng;

    fn servers(count: usize) -> Vec<SocketAddr> {
        (0..count).map(|n| SocketAddr::from(([10, 0, 0, n as u8 + 1], 7400))).collect()
    }

    /// The ranks that get a write, each from one other.
    fn reached(route: &Route, into: &mut Vec<u8>) {
        into.push(route.rank());
        route.onward().for_each(|(next, server)| {
            assert_eq!(route.servers()[usize::from(next.rank())], server);
            reached(&next, into);
        });
    }

    #[test]
    fn every_server_gets_a_write_once_whatever_the_route() {
        for kind in [RouteKind::Ring, RouteKind::Tree] {
            for count in 1..=ROUTE_MAX {
                let route = Route::new(kind, &servers(count)).expect("a route");
                let mut ranks = Vec::new();
                reached(&route, &mut ranks);
                ranks.sort_unstable();
                assert_eq!(ranks, (0..count as u8).collect::<Vec<_>>(), "{route}");
                let widest = if kind == RouteKind::Ring { 1 } else { 2 };
                assert!(route.onward().count() <= widest);
            }
        }
    }

    #[test]
    fn each_data_part_of_a_stripe_goes_to_every_parity_part() {
        for (data, parity) in [(1, 1), (3, 2), (6, 3), (28, 4), (4, 0)] {
            let all = servers(data + parity);
            for rank in 0..data as u8 {
                let route = Route::stripe(rank, data as u8, &all).expect("a route");
                assert!(route.is_first() && route.adds().is_none());
                let next: Vec<_> = route.onward().collect();
                assert_eq!(next.len(), parity);
                for ((next, server), at) in next.iter().zip(data..) {
                    assert_eq!((usize::from(next.rank()), *server), (at, all[at]));
                    assert_eq!((next.adds(), next.is_first()), (Some(rank), false));
                    assert_eq!(next.onward().count(), 0);
                    assert_eq!(Route::parse(&next.emit()), Ok((next.clone(), &[][..])));
                    assert_eq!(next.digest(1), route.digest(1));
                }
            }
        }
        assert!(Route::stripe(0, 3, &servers(2)).is_err());
        assert!(Route::stripe(0, 30, &servers(33)).is_err());
    }

    #[test]
    fn a_route_is_read_as_it_was_written_and_its_digest_has_no_rank() {
        for kind in [RouteKind::Ring, RouteKind::Tree] {
            let mut all = servers(4);
            all.push("[2001:db8::1]:7400".parse().expect("an address"));
            let route = Route::new(kind, &all).expect("a route");
            let (next, _) = route.onward().next().expect("more than one server");
            for route in [&route, &next] {
                let bytes = route.emit();
                assert_eq!(bytes.len(), route.byte_len());
                let body = [&bytes[..], b"rest"].concat();
                assert_eq!(Route::parse(&body), Ok((route.clone(), &b"rest"[..])));
            }
            assert_eq!(route.digest(3), next.digest(3));
            assert_ne!(route.digest(3), route.digest(4));
            let other = Route::new(kind, &all[1..]).expect("a route");
            assert_ne!(route.digest(3), other.digest(3));
        }
        let ring = Route::new(RouteKind::Ring, &servers(3)).expect("a route");
        let tree = Route::new(RouteKind::Tree, &servers(3)).expect("a route");
        assert_ne!(ring.digest(0), tree.digest(0));
    }

    #[test]
    fn how_many_copies_are_enough_survives_the_bytes_and_is_in_the_digest() {
        for kind in [RouteKind::Ring, RouteKind::Tree] {
            let all = Route::new(kind, &servers(3)).expect("a route");
            assert_eq!(all.clone().acked_by(3), Ok(all.clone()));
            let two = all.clone().acked_by(2).expect("of three");
            assert_eq!((all.acked(), two.acked()), (3, 2));
            assert_eq!(Route::parse(&two.emit()), Ok((two.clone(), &[][..])));
            assert_ne!(two.digest(1), all.digest(1));
            assert_ne!(two.digest(1), all.clone().acked_by(1).expect("of three").digest(1));
            for (next, _) in two.onward() {
                assert_eq!((next.acked(), next.is_trailing()), (2, next.rank() >= 2), "{next}");
                assert_eq!(next.digest(1), two.digest(1));
            }
            for copies in [0, 4] {
                assert_eq!(all.clone().acked_by(copies), Err(RouteError::Acked(copies)));
            }
        }
        let stripe = Route::stripe(0, 2, &servers(3)).expect("a route");
        assert_eq!(stripe.acked_by(2), Err(RouteError::Acked(2)));
    }

    #[test]
    fn servers_that_are_no_route_are_refused() {
        let new = |servers: &[SocketAddr]| Route::new(RouteKind::Ring, servers).err();
        assert_eq!(new(&[]), Some(RouteError::Servers(0)));
        assert_eq!(new(&servers(8)), Some(RouteError::Servers(8)));
        let one = servers(1)[0];
        let mapped = "[::ffff:10.0.0.1]:7400".parse().expect("an address");
        assert_eq!(new(&[one, mapped]), Some(RouteError::Twice(one)), "two forms of one address");
        let nobody = "0.0.0.0:7400".parse().expect("an address");
        assert_eq!(new(&[nobody]), Some(RouteError::Address(nobody)));
        let no_port = "10.0.0.1:0".parse().expect("an address");
        assert_eq!(new(&[no_port]), Some(RouteError::Address(no_port)));
    }

    #[test]
    fn no_byte_of_a_route_can_be_changed() {
        let seed = 50;
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let bytes = Route::new(RouteKind::Tree, &servers(5)).expect("a route").emit();
        for _ in 0..2000 {
            let mut other = bytes.clone();
            let at = prng.below(other.len() as u64) as usize;
            other[at] ^= 1 << prng.below(8);
            assert!(Route::parse(&other).is_err());
            let cut = prng.below(bytes.len() as u64) as usize;
            assert!(Route::parse(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn what_has_a_right_checksum_and_is_no_route_is_refused() {
        let good = Route::new(RouteKind::Ring, &servers(2)).expect("a route").emit();
        let with = |change: fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            let crc = sum(&bytes);
            bytes[CRC_AT..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
            Route::parse(&bytes).map(drop)
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert_eq!(with(|bytes| bytes[0] = 4), Err(WireError::Route));
        assert_eq!(with(|bytes| bytes[3] = 1), Err(WireError::Route), "data of a ring");
        assert_eq!(with(|bytes| bytes[1] = 2), Err(WireError::Route));
        assert_eq!(with(|bytes| bytes[5] = 1), Ok(()));
        assert_eq!(with(|bytes| bytes[5] = 2), Err(WireError::Route), "all have one form");
        assert_eq!(with(|bytes| bytes[5] = 3), Err(WireError::Route));
        assert_eq!(with(|bytes| bytes[6] = 1), Err(WireError::Reserved("a byte of the route")));
        assert_eq!(with(|bytes| bytes[35] = 1), Err(WireError::Reserved("a byte of an address")));
        let twice = |bytes: &mut Vec<u8>| bytes.copy_within(12..36, 36);
        assert_eq!(with(twice), Err(WireError::Route));
        let none = |bytes: &mut Vec<u8>| {
            bytes.truncate(HEAD_BYTES);
            bytes[2] = 0;
        };
        assert_eq!(with(none), Err(WireError::Route));
    }
}
