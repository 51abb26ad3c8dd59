//! Hosts, and bytes that go between two ends of a handshake.
#![allow(dead_code)]

use std::sync::Arc;
use towpath_base::Time;
use towpath_secure::{
    Handshake, HandshakeError, Host, HostKey, Outcome, Peer, PeerName, Peers, Sealing, Trust,
    WallTime, system_random,
};

pub(crate) const NOW: Time = Time(1_000);

pub(crate) fn wall() -> WallTime {
    WallTime::parse("2026-11-29").expect("a day")
}

pub(crate) fn key() -> HostKey {
    HostKey::generate(system_random()).expect("a key")
}

/// A line of `authorized_peers`.
pub(crate) fn line(key: &HostKey, name: &str, options: &str) -> String {
    format!("{} {name} {options}\n", key.public())
}

pub(crate) fn peers(lines: &[String]) -> Arc<Peers> {
    Arc::new(Peers::parse(&lines.concat()).expect("lines").with_evidence(wall()))
}

pub(crate) fn host_of(key: &HostKey, peers: &Arc<Peers>, sealing: Sealing) -> Host {
    Host::new(key, Trust::Keys(peers.clone()), sealing, system_random()).expect("a host")
}

pub(crate) fn host(key: &HostKey, peers: &Arc<Peers>) -> Host {
    host_of(key, peers, Sealing::Encrypt)
}

/// Two hosts that trust each other: `a` and `b`.
pub(crate) fn friends() -> (Host, Host) {
    let (a, b) = (key(), key());
    let a_trusts = peers(&[line(&b, "b", "")]);
    let b_trusts = peers(&[line(&a, "a", "")]);
    (host(&a, &a_trusts), host(&b, &b_trusts))
}

/// One end, and how it ended.
pub(crate) struct End {
    pub(crate) handshake: Option<Handshake>,
    pub(crate) failed: Option<HandshakeError>,
    pub(crate) unread: Vec<u8>,
}

impl End {
    pub(crate) fn new(begun: Result<Handshake, HandshakeError>) -> Self {
        match begun {
            Ok(handshake) => Self { handshake: Some(handshake), failed: None, unread: vec![] },
            Err(error) => Self { handshake: None, failed: Some(error), unread: vec![] },
        }
    }

    pub(crate) fn transmit(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(handshake) = &mut self.handshake {
            handshake.transmit(&mut bytes);
        }
        bytes
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let Some(handshake) = self.handshake.as_mut().filter(|_| self.failed.is_none()) else {
            return;
        };
        match handshake.receive(NOW, bytes) {
            Ok(taken) => self.unread.extend_from_slice(&bytes[taken..]),
            Err(error) => self.failed = Some(error),
        }
    }

    pub(crate) fn finish(self) -> Result<Outcome, HandshakeError> {
        match (self.failed, self.handshake) {
            (Some(error), _) => Err(error),
            (None, Some(handshake)) => handshake.finish(),
            (None, None) => Err(HandshakeError::Closed),
        }
    }
}

/// Moves bytes in pieces of `piece` until both ends are silent.
pub(crate) fn pump(client: &mut End, server: &mut End, piece: usize) {
    loop {
        let (there, back) = (client.transmit(), server.transmit());
        if there.is_empty() && back.is_empty() {
            return;
        }
        there.chunks(piece).for_each(|bytes| server.receive(bytes));
        back.chunks(piece).for_each(|bytes| client.receive(bytes));
    }
}

pub(crate) fn run_at(
    client: &Host,
    server: &Host,
    wanted: Option<&str>,
    (client_wall, server_wall): (WallTime, WallTime),
) -> (Result<Outcome, HandshakeError>, Result<Outcome, HandshakeError>) {
    let wanted = wanted.map(|name| PeerName::parse(name).expect("a name"));
    let mut one = End::new(Handshake::client(client, wanted.as_ref(), client_wall, NOW));
    let mut other = End::new(Handshake::server(server, server_wall, NOW));
    pump(&mut one, &mut other, usize::MAX);
    (one.finish(), other.finish())
}

pub(crate) fn run(
    client: &Host,
    server: &Host,
) -> (Result<Outcome, HandshakeError>, Result<Outcome, HandshakeError>) {
    run_at(client, server, None, (wall(), wall()))
}

pub(crate) fn peer(key: &HostKey, name: &str) -> Peer {
    Peer::new(key.public(), PeerName::parse(name).expect("a name"))
}
