//! Sealed links end to end: handshakes on real sockets, and all that goes over such links.

mod common;

use common::{Joined, Node, any_port, drive, join};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use towpath_base::Prng;
use towpath_transport::keys::{
    HandshakeError, HostKey, PeerName, PeerRefused, Peers, PeersFile, Sealing, WallTime,
    system_random,
};
use towpath_transport::{
    AcceptError, CarrierChoice, ConnectError, DownReason, EndpointConfig, Event, Fallback,
    LinkError, Outcome, Refusal, Rights, Secure, SendOptions, SharedMemory, Trusted,
};

/// A key, and the line that trusts it.
struct Identity {
    key: HostKey,
    name: &'static str,
}

impl Identity {
    fn new(name: &'static str) -> Self {
        let key = HostKey::generate(system_random()).expect("random bytes");
        Self { key, name }
    }

    fn line(&self) -> String {
        format!("{} {}", self.key.public(), self.name)
    }

    fn trusting(&self, peers: &[&Self], sealing: Sealing) -> Secure {
        let text: String = peers.iter().map(|peer| peer.line() + "\n").collect();
        let peers = Arc::new(Peers::parse(&text).expect("sound lines"));
        Secure::new(&self.key, Trusted::Peers(peers), sealing).expect("a key")
    }
}

/// The keys of two hosts that trust each other.
fn two(sealing: Sealing) -> (Secure, Secure) {
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    (a.trusting(&[&b], sealing), b.trusting(&[&a], sealing))
}

/// Sends messages of many lengths both ways, and compares what comes.
fn exchange(client: &mut Node, server: &mut Node, joined: &Joined, seed: u64) {
    let mut prng = Prng::new(seed);
    for round in 0..60u64 {
        let len = match round % 6 {
            0 => 1 + prng.below(64),
            1 => 1 + prng.below(5_000),
            2 => 4096,
            3 => 60_000 + prng.below(5_000),
            4 => 61_360,
            _ => 1 + prng.below(240_000),
        };
        let mut bytes = vec![0; len as usize];
        prng.fill(&mut bytes);
        let options = SendOptions::new().token(round);
        let payload = common::payload(&client.endpoint, &bytes);
        client.endpoint.send(joined.link, joined.channel, payload, options).expect("room");
        let message = drive(client, server, |_, server| server.take_message());
        assert_eq!(message.to_vec(), bytes, "seed {seed}, round {round}");
        let back = common::payload(&server.endpoint, &message.to_vec());
        server.endpoint.release(message);
        server.endpoint.send(joined.accepted, joined.channel, back, options).expect("room");
        let message = drive(client, server, |client, _| client.take_message());
        assert_eq!(message.to_vec(), bytes, "seed {seed}, round {round}");
        client.endpoint.release(message);
        let sent = drive(client, server, |client, _| client.take_sent(round));
        assert_eq!(sent.0, Outcome::Delivered, "seed {seed}, round {round}");
        drive(client, server, |_, server| server.take_sent(round));
    }
}

#[test]
fn two_hosts_shake_hands_and_nothing_of_their_links_is_open() {
    for sealing in [Sealing::Encrypt, Sealing::Authenticate] {
        let (near, far) = two(sealing);
        let mut client = Node::new(EndpointConfig::new().secure(near.clone()));
        let mut server = Node::new(EndpointConfig::new().secure(far.clone()));
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        let joined = join(&mut client, &mut server, addr);
        exchange(&mut client, &mut server, &joined, 1);
        let security = client.endpoint.security(joined.link).expect("it is sealed");
        assert_eq!((security.state.mode, security.peer.name.as_str()), (sealing.mode(), "b"));
        let theirs = server.endpoint.security(joined.accepted).expect("it is sealed");
        assert_eq!(theirs.peer.name.as_str(), "a");
        // A second link needs no handshake.
        let second = join(&mut client, &mut server, addr);
        exchange(&mut client, &mut server, &second, 2);
        assert_eq!((near.tally().handshakes, far.tally().handshakes), (1, 1));
        for node in [&client, &server] {
            assert_eq!(node.endpoint.refusals().sum(), 0);
        }
    }
}

#[test]
fn every_carrier_is_sealed() {
    for (carrier, fallback) in [
        (CarrierChoice::Uc, Fallback::None),
        (CarrierChoice::Rc, Fallback::None),
        (CarrierChoice::Tcp, Fallback::None),
        (CarrierChoice::Uc, Fallback::RcThenTcp),
    ] {
        let (near, far) = two(Sealing::Encrypt);
        let config = EndpointConfig::new().carrier(carrier).fallback(fallback);
        let mut client = Node::new(config.clone().secure(near));
        let mut server = Node::new(config.secure(far));
        let addr = server.endpoint.listen(any_port()).expect("a free port");
        let joined = join(&mut client, &mut server, addr);
        exchange(&mut client, &mut server, &joined, 3);
        assert!(client.endpoint.security(joined.link).is_some());
        assert_eq!(client.endpoint.refusals().sum() + server.endpoint.refusals().sum(), 0);
    }
}

/// A server with or without keys.
fn server(keys: Option<Secure>) -> (Node, std::net::SocketAddr) {
    let config = EndpointConfig::new();
    let config = match keys {
        Some(keys) => config.secure(keys),
        None => config,
    };
    let mut server = Node::new(config);
    let addr = server.endpoint.listen(any_port()).expect("a free port");
    (server, addr)
}

/// Connects in vain: what the client is told, and what the server is, if anything.
fn fail(client: &mut Node, server: &mut Node, addr: std::net::SocketAddr) -> ConnectError {
    client.endpoint.connect(addr).expect("room for a connection");
    drive(client, server, |client, _| client.take_failure())
}

fn take_refused(server: &mut Node) -> Option<AcceptError> {
    let is = |event: &Event| matches!(event, Event::AcceptFailed { .. });
    match server.events.remove(server.events.iter().position(is)?) {
        Event::AcceptFailed { error, .. } => Some(error),
        _ => None,
    }
}

#[test]
fn who_is_not_trusted_is_refused_with_the_line_to_add() {
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    // The server knows nobody.
    let (mut node, addr) = server(Some(b.trusting(&[], Sealing::Encrypt)));
    let keys = a.trusting(&[&b], Sealing::Encrypt);
    let mut client = Node::new(EndpointConfig::new().secure(keys.clone()));
    let error = fail(&mut client, &mut node, addr);
    let text = error.to_string();
    assert!(
        matches!(
            error,
            ConnectError::Handshake { error: HandshakeError::RefusedByPeer { .. }, .. }
        ),
        "{text}"
    );
    assert!(text.contains(&a.key.public().to_string()), "{text}");
    let refused = drive(&mut client, &mut node, |_, server| take_refused(server));
    let wanted = matches!(
        refused,
        AcceptError::Handshake(HandshakeError::Peer(PeerRefused::Unknown { .. }))
    );
    assert!(wanted && refused.to_string().contains(&a.key.public().to_string()), "{refused}");
    // The client does not know the server.
    let (mut node, addr) = server(Some(b.trusting(&[&a], Sealing::Encrypt)));
    let mut client = Node::new(EndpointConfig::new().secure(a.trusting(&[], Sealing::Encrypt)));
    let error = fail(&mut client, &mut node, addr);
    let is_unknown = matches!(
        error,
        ConnectError::Handshake { error: HandshakeError::Peer(PeerRefused::Unknown { .. }), .. }
    );
    assert!(is_unknown && error.to_string().contains(&b.key.public().to_string()), "{error}");
    assert_eq!(keys.tally().handshakes_failed, 1);
}

#[test]
fn open_and_sealed_ends_refuse_each_other_and_say_what_to_do() {
    let (near, far) = two(Sealing::Authenticate);
    let (mut node, addr) = server(Some(far));
    let mut open = Node::new(EndpointConfig::new());
    let error = fail(&mut open, &mut node, addr);
    let refusal = Refusal::Sealed { encrypts: false };
    assert!(matches!(error, ConnectError::Refused { refusal: told, .. } if told == refusal));
    assert!(error.to_string().contains("towpath keygen"), "{error}");
    let refused = drive(&mut open, &mut node, |_, server| take_refused(server));
    assert!(matches!(refused, AcceptError::Link(LinkError::NotSealed { .. })), "{refused}");
    let (mut node, addr) = server(None);
    let mut sealed = Node::new(EndpointConfig::new().secure(near));
    let error = fail(&mut sealed, &mut node, addr);
    let is_open = matches!(error, ConnectError::Handshake { error: HandshakeError::NotTls, .. });
    assert!(is_open && error.to_string().contains("towpath keygen"), "{error}");
}

#[test]
fn ends_of_two_modes_refuse_each_other() {
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let (mut node, addr) = server(Some(b.trusting(&[&a], Sealing::Encrypt)));
    let keys = a.trusting(&[&b], Sealing::Authenticate);
    let mut client = Node::new(EndpointConfig::new().secure(keys));
    let error = fail(&mut client, &mut node, addr);
    let differ = matches!(error, ConnectError::Handshake { error: HandshakeError::Mode(_), .. });
    assert!(differ, "{error}");
    let refused = drive(&mut client, &mut node, |_, server| take_refused(server));
    let differ = matches!(refused, AcceptError::Handshake(HandshakeError::Mode(_)));
    assert!(differ, "{refused}");
}

#[test]
fn hands_are_shaken_again_with_a_server_that_was_started_anew() {
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let keys = a.trusting(&[&b], Sealing::Encrypt);
    let mut client = Node::new(EndpointConfig::new().secure(keys.clone()));
    let (mut node, addr) = server(Some(b.trusting(&[&a], Sealing::Encrypt)));
    join(&mut client, &mut node, addr);
    drop(node);
    let config = EndpointConfig::new().secure(b.trusting(&[&a], Sealing::Encrypt));
    let mut again = Node::new(config);
    again.endpoint.listen(addr).expect("the port is free again");
    client.events.clear();
    let joined = join(&mut client, &mut again, addr);
    exchange(&mut client, &mut again, &joined, 5);
    assert_eq!(keys.tally().handshakes, 2);
    let refused = drive(&mut client, &mut again, |_, server| take_refused(server));
    assert!(matches!(refused, AcceptError::Link(LinkError::UnknownSecret)), "{refused}");
}

#[test]
fn a_peer_whose_line_is_gone_loses_its_links_and_gets_no_others() {
    let (a, b, c) = (Identity::new("a"), Identity::new("b"), Identity::new("c"));
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("authorized_peers");
    let write = |peers: &[&Identity]| {
        let text: String = peers.iter().map(|peer| peer.line() + "\n").collect();
        std::fs::write(&path, text).expect("written");
    };
    write(&[&a, &c]);
    let file = PeersFile::open(&path, WallTime::now()).expect("a sound file");
    let keys = Secure::new(&b.key, Trusted::File(file), Sealing::Encrypt).expect("a key");
    let (mut node, addr) = server(Some(keys.clone()));
    let client = |of: &Identity| {
        let keys = of.trusting(&[&b], Sealing::Encrypt);
        Node::new(EndpointConfig::new().secure(keys))
    };
    let (mut first, mut other) = (client(&a), client(&c));
    let joined = join(&mut first, &mut node, addr);
    let stays = join(&mut other, &mut node, addr);
    // A file with a mistake changes nothing.
    std::fs::write(&path, "nonsense").expect("written");
    drive(&mut other, &mut node, |_, _| keys.complaint());
    exchange(&mut first, &mut node, &joined, 6);
    write(&[&c]);
    let down = |event: &Event| match event {
        Event::LinkDown { link, reason } => Some((*link, *reason)),
        _ => None,
    };
    let ended = drive(&mut first, &mut node, |_, server| server.take(down));
    assert_eq!(ended, (joined.accepted, DownReason::Untrusted));
    drive(&mut first, &mut node, |client, _| client.take(down));
    assert_eq!((keys.tally().links_revoked, keys.complaint()), (1, None));
    // Its secret is gone as well, so it shakes hands and is not trusted.
    let error = fail(&mut first, &mut node, addr);
    let refused = matches!(
        error,
        ConnectError::Handshake { error: HandshakeError::RefusedByPeer { .. }, .. }
    );
    assert!(refused, "{error}");
    exchange(&mut other, &mut node, &stays, 7);
}

#[test]
fn half_handshakes_and_nonsense_keep_nobody_out() {
    let (near, far) = two(Sealing::Encrypt);
    let (mut node, addr) = server(Some(far.clone()));
    let mut client = Node::new(EndpointConfig::new().secure(near));
    let mut strangers = Vec::new();
    for number in 0..400u32 {
        let mut stranger = TcpStream::connect(addr).expect("it listens");
        // The front of a TLS record, more than one record holds, or a HELLO that ends early.
        let said: &[u8] = match number % 4 {
            0 => b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh",
            1 => b"\x16\x03\x01\xff\xff\x01\x00\x01\xfc\x03\x03abcdefgh",
            2 => b"GET / HTTP/1.1\r\n\r\n",
            _ => b"TOWPATH\0",
        };
        stranger.write_all(said).expect("it takes some bytes");
        strangers.push(stranger);
        client.turn();
        node.turn();
    }
    let joined = join(&mut client, &mut node, addr);
    exchange(&mut client, &mut node, &joined, 8);
    assert!(far.tally().handshakes_failed >= 100, "{:?}", far.tally());
    assert_eq!(far.tally().handshakes, 1);
}

#[test]
fn many_hosts_shake_hands_at_once() {
    const CLIENTS: usize = 60;
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let keys = b.trusting(&[&a], Sealing::Encrypt);
    let mut node = Node::new(EndpointConfig::new().links_max(CLIENTS).secure(keys.clone()));
    let addr = node.endpoint.listen(any_port()).expect("a free port");
    let config = || EndpointConfig::new().links_max(CLIENTS).paths(1).fallback(Fallback::Tcp);
    let mut client = Node::new(config().secure(a.trusting(&[&b], Sealing::Encrypt)));
    for _ in 0..CLIENTS {
        client.endpoint.connect(addr).expect("room for a connection");
    }
    let is_up = |event: &&Event| matches!(event, Event::Connected { .. });
    drive(&mut client, &mut node, |client, _| {
        (client.events.iter().filter(is_up).count() == CLIENTS).then_some(())
    });
    assert_eq!(keys.tally().handshakes as usize, CLIENTS, "all began before the first was through");
}

#[test]
fn one_sided_operations_go_by_messages() {
    let (near, far) = two(Sealing::Encrypt);
    let mut client = Node::new(EndpointConfig::new().secure(near));
    let (mut node, addr) = server(Some(far));
    let joined = join(&mut client, &mut node, addr);
    let memory = SharedMemory::new(4096).expect("memory");
    node.endpoint.grant(joined.accepted, &memory, 0..64, Rights::ALL).expect("room for a grant");
    let granted = |event: &Event| match event {
        Event::Granted { grant, .. } => Some(grant.id),
        _ => None,
    };
    let grant = drive(&mut client, &mut node, |client, _| client.take(granted));
    let place = towpath_transport::Place { link: joined.link, grant, offset: 8 };
    client.endpoint.fetch_add(place, 5, towpath_transport::OpOptions::new()).expect("granted");
    let done = |event: &Event| match event {
        Event::OpDone { outcome, word, .. } => Some((*outcome, *word)),
        _ => None,
    };
    let ended = drive(&mut client, &mut node, |client, _| client.take(done));
    assert_eq!(ended, (towpath_transport::OpOutcome::Executed, Some(0)));
    let lane = client.endpoint.lane(joined.link).expect("it has one");
    assert!(lane.is_by_messages, "{lane:?}");
}

#[test]
fn a_trusted_host_in_the_place_of_another_is_refused_where_one_is_expected() {
    let (a, b) = (Identity::new("a"), Identity::new("b"));
    let (mut node, addr) = server(Some(b.trusting(&[&a], Sealing::Encrypt)));
    let keys = a.trusting(&[&b], Sealing::Encrypt);
    let mut client = Node::new(EndpointConfig::new().secure(keys.clone()));
    join(&mut client, &mut node, addr);
    keys.expect(PeerName::parse("c").expect("a name"));
    // Its secret does not help it.
    let error = fail(&mut client, &mut node, addr);
    let refused = matches!(error, ConnectError::Handshake { error: HandshakeError::Peer(_), .. });
    assert!(refused && error.to_string().contains('c'), "{error}");
    keys.expect(PeerName::parse("b").expect("a name"));
    client.events.clear();
    join(&mut client, &mut node, addr);
}
