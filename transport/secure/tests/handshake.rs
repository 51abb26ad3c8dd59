//! Handshakes of hosts with raw public keys: who gets through, who does not, and why.

mod common;

use common::{End, NOW, friends, host, host_of, key, line, peer, peers, pump, run, run_at, wall};
use std::sync::Arc;
use towpath_base::Time;
use towpath_secure::limits::{HANDSHAKE_BYTES_MAX, HANDSHAKE_NS};
use towpath_secure::{
    Handshake, HandshakeError, Host, KnownSecret, Mode, PeerRefused, Peers, PeersFile, RandomError,
    Role, RollOver, Salt, SealedLink, Sealing, Secrets, SecureRandom, Stream, Trust, WallTime,
    system_random,
};

const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

#[test]
fn both_ends_learn_who_the_other_is_and_share_a_secret() {
    let (a, b) = friends();
    let (client, server) = run(&a, &b);
    let (client, server) = (client.expect("through"), server.expect("through"));
    assert_eq!((client.peer.name.as_str(), client.peer.key), ("b", b.public()));
    assert_eq!((server.peer.name.as_str(), server.peer.key), ("a", a.public()));
    assert_eq!(client.secret.id(), server.secret.id());
    let tag = client.secret.hello_tag(Role::Client, b"hello");
    assert_eq!(server.secret.check_hello(Role::Client, b"hello", &tag), Ok(()));
    let (again, _) = run(&a, &b);
    assert_ne!(again.expect("through").secret.id(), client.secret.id());
}

/// From the handshake to a packet, as an endpoint does it.
#[test]
fn a_link_of_the_secret_carries_packets() {
    let (a, b) = friends();
    let (client, server) = run(&a, &b);
    let (client, server) = (client.expect("through"), server.expect("through"));
    let mut known = Secrets::default();
    let (id, peer) = (server.secret.id(), server.peer.clone());
    let (sealing, secret) = (server.sealing, server.secret);
    known.insert(KnownSecret { secret, peer, sealing, since: NOW });

    let hello = |side: &str| {
        let salt = Salt::new(system_random()).expect("random bytes");
        [side.as_bytes(), &salt.0].concat()
    };
    let (client_hello, server_hello) = (hello("client"), hello("server"));
    let server_secret = &known.find(id, NOW).expect("known").secret;
    let end = |secret: &towpath_secure::PairSecret, side| {
        let link = secret.link(&client_hello, &server_hello);
        SealedLink::new(&link, side, Sealing::Encrypt, 4, RollOver::default(), NOW)
    };
    let mut one = end(&client.secret, Role::Client);
    let mut other = end(server_secret, Role::Server);
    let mut header = [0; 64];
    let mut body = b"hello".to_vec();
    let tag = one.seal(NOW, Stream::Chunks(0), &mut header, &mut body).expect("sealed");
    body.extend_from_slice(&tag);
    let opened = other.open(NOW, &header, &mut body).expect("opened");
    assert_eq!(opened.body, b"hello");
}

#[test]
fn bytes_may_come_in_any_pieces_and_what_follows_is_left() {
    for piece in [1, 2, 5, 7, 100] {
        let (a, b) = friends();
        let mut client = End::new(Handshake::client(&a, None, wall(), NOW));
        let mut server = End::new(Handshake::server(&b, wall(), NOW));
        while !server.handshake.as_ref().is_some_and(Handshake::is_done) {
            let there = client.transmit();
            there.chunks(piece).for_each(|bytes| server.receive(bytes));
            let back = server.transmit();
            back.chunks(piece).for_each(|bytes| client.receive(bytes));
            assert_eq!((&client.failed, &server.failed), (&None, &None));
        }
        // The server is through, and its next bytes are of another protocol.
        client.receive(b"HELLO");
        server.receive(b"HELLO");
        assert_eq!((&client.unread[..], &server.unread[..]), (&b"HELLO"[..], &b"HELLO"[..]));
        assert!(client.finish().is_ok() && server.finish().is_ok());
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_line_to_add() {
    let (a, b) = (key(), key());
    let nobody = Arc::new(Peers::default());
    let a_trusts = peers(&[line(&b, "b", "")]);
    let (client, server) = run(&host(&a, &a_trusts), &host(&b, &nobody));
    let refused = server.expect_err("refused");
    assert!(
        matches!(refused, HandshakeError::Peer(PeerRefused::Unknown { key }) if key == a.public())
    );
    let text = refused.to_string();
    assert!(text.ends_with(&format!("{} NAME", a.public())), "{text}");
    // The client learns it too, and what its owner asks the server's owner for.
    let told = client.expect_err("refused");
    assert!(matches!(told, HandshakeError::RefusedByPeer { key, .. } if key == a.public()));
    assert!(told.to_string().contains(&a.public().to_string()), "{told}");

    // And the other way round: the client does not know the server.
    let b_trusts = peers(&[line(&a, "a", "")]);
    let (client, server) = run(&host(&a, &nobody), &host(&b, &b_trusts));
    let refused = client.expect_err("refused");
    assert!(
        matches!(refused, HandshakeError::Peer(PeerRefused::Unknown { key }) if key == b.public())
    );
    assert!(matches!(server, Err(HandshakeError::RefusedByPeer { .. })), "{server:?}");
}

#[test]
fn a_peer_with_the_wrong_role_or_name_is_refused() {
    let (a, b) = (key(), key());
    let a_trusts = peers(&[line(&b, "b", "")]);
    let b_trusts = peers(&[line(&a, "a", "roles=server")]);
    let (a_host, b_host) = (host(&a, &a_trusts), host(&b, &b_trusts));
    let (_, server) = run(&a_host, &b_host);
    let refused = server.expect_err("refused");
    let role = Role::Client;
    assert!(
        matches!(refused, HandshakeError::Peer(PeerRefused::Role { role: of, .. }) if of == role)
    );
    // It may be connected to.
    let (client, server) = run(&b_host, &a_host);
    assert!(client.is_ok() && server.is_ok());

    let (a_host, b_host) = friends();
    let both = (wall(), wall());
    assert!(run_at(&a_host, &b_host, Some("b"), both).0.is_ok());
    let (client, server) = run_at(&a_host, &b_host, Some("c"), both);
    assert!(
        matches!(&client, Err(HandshakeError::Peer(PeerRefused::Name { found, wanted }))
            if found.as_str() == "b" && wanted.as_str() == "c"),
        "{client:?}"
    );
    assert!(server.is_err());
}

#[test]
fn a_clock_ten_years_off_is_named_and_holds_back_nobody_without_expiry() {
    let (a, b) = (key(), key());
    let a_trusts = peers(&[line(&b, "b", "")]);
    let b_trusts = peers(&[line(&a, "a", "expires=2027-01-31")]);
    let (a_host, b_host) = (host(&a, &a_trusts), host(&b, &b_trusts));
    let (ahead, behind) = (WallTime(wall().0 + 10 * YEAR_MS), WallTime(wall().0 - 10 * YEAR_MS));
    // The client's clock matters to nobody: the server has no expiry there.
    for client_wall in [ahead, behind] {
        let (client, server) = run_at(&a_host, &b_host, None, (client_wall, wall()));
        assert!(client.is_ok() && server.is_ok());
    }
    let (client, server) = run_at(&a_host, &b_host, None, (wall(), ahead));
    assert!(matches!(server, Err(HandshakeError::Peer(PeerRefused::Expired { .. }))));
    assert!(client.expect_err("refused").to_string().contains("expiry"));
    let (_, server) = run_at(&a_host, &b_host, None, (wall(), behind));
    let refused = server.expect_err("refused");
    assert!(matches!(refused, HandshakeError::Peer(PeerRefused::ClockBehind { .. })));
    assert!(refused.to_string().contains("set the clock"), "{refused}");
}

#[test]
fn modes_that_differ_are_refused_at_both_ends() {
    let (a, b) = (key(), key());
    let a_trusts = peers(&[line(&b, "b", "")]);
    let b_trusts = peers(&[line(&a, "a", "")]);
    let encrypts = host_of(&a, &a_trusts, Sealing::Encrypt);
    let signs = host_of(&b, &b_trusts, Sealing::Authenticate);
    let (client, server) = run(&encrypts, &signs);
    for (end, ours) in [(client, Mode::Encrypt), (server, Mode::Authenticate)] {
        let refused = end.expect_err("refused");
        assert!(matches!(&refused, HandshakeError::Mode(of) if of.ours == ours), "{refused:?}");
    }
}

/// A file that loses a line: the peer shakes hands no more, its secret goes, and its key is named
/// so that its links end.
#[test]
fn a_revoked_peer_is_out_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("authorized_peers");
    let (a, b) = (key(), key());
    PeersFile::add(&path, &peer(&a, "a")).expect("a line");
    let mut file = PeersFile::open(&path, WallTime::now()).expect("the file");
    let a_host = host(&a, &peers(&[line(&b, "b", "")]));
    let mut b_host = host(&b, file.peers());
    let (_, server) = run(&a_host, &b_host);
    let outcome = server.expect("through");
    let mut secrets = Secrets::default();
    let (id, sealing) = (outcome.secret.id(), outcome.sealing);
    let (secret, peer) = (outcome.secret, outcome.peer);
    secrets.insert(KnownSecret { secret, peer, sealing, since: NOW });

    std::fs::write(&path, "# nobody any more\n").expect("the file");
    let change = file.refresh(WallTime::now()).expect("the file").expect("a change");
    assert_eq!(change.removed, [a.public()]);
    b_host = b_host.with_peers(file.peers().clone());
    let current = file.peers().clone();
    let is_trusted = |of: &towpath_secure::PeerIdentity| {
        current.admit(&of.key, Role::Client, WallTime::now()).is_ok()
    };
    assert_eq!(secrets.retain(NOW, is_trusted), [a.public()]);
    assert!(secrets.find(id, NOW).is_err());
    let (_, server) = run(&a_host, &b_host);
    assert!(matches!(server, Err(HandshakeError::Peer(PeerRefused::Unknown { .. }))));
}

#[derive(Debug)]
struct NoRandom;

impl SecureRandom for NoRandom {
    fn fill(&self, _: &mut [u8]) -> Result<(), rustls::crypto::GetRandomFailed> {
        Err(rustls::crypto::GetRandomFailed)
    }
}

#[test]
fn without_random_bytes_there_is_a_typed_error() {
    static NONE: NoRandom = NoRandom;
    let (a, b) = (key(), key());
    let a_trusts = Trust::Keys(peers(&[line(&b, "b", "")]));
    let b_trusts = Trust::Keys(peers(&[line(&a, "a", "")]));
    let without = |key, trust| Host::new(key, trust, Sealing::Encrypt, &NONE).expect("a host");
    let client = Handshake::client(&without(&a, a_trusts.clone()), None, wall(), NOW);
    let error = client.expect_err("no random bytes");
    assert_eq!(error, HandshakeError::Random(RandomError));
    assert!(error.to_string().contains("getrandom"), "{error}");

    let a_host = Host::new(&a, a_trusts, Sealing::Encrypt, system_random()).expect("a host");
    let (_, server) = run(&a_host, &without(&b, b_trusts));
    assert_eq!(server.err(), Some(HandshakeError::Random(RandomError)));
}

#[test]
fn half_a_handshake_is_bounded_in_time_and_bytes() {
    let (_, b) = friends();
    let mut server = Handshake::server(&b, wall(), NOW).expect("begun");
    let over = Time(NOW.0 + HANDSHAKE_NS.0);
    assert_eq!(server.deadline(), over);
    assert_eq!(server.receive(Time(over.0 - 1), &[22, 3, 1]), Ok(3));
    assert_eq!(server.check_deadline(over), Err(HandshakeError::TimedOut));
    assert_eq!(server.receive(over, &[0]), Err(HandshakeError::TimedOut));
    assert_eq!(server.finish().err(), Some(HandshakeError::Closed));

    // Parts of one handshake message, record after record, that never becomes whole.
    let mut server = Handshake::server(&b, wall(), NOW).expect("begun");
    let mut record = vec![22, 3, 3, 0x10, 0];
    record.resize(5 + 4_096, 0);
    record[5..9].copy_from_slice(&[1, 0, 0xff, 0xff]);
    let mut sent = 0;
    let error = loop {
        match server.receive(NOW, &record) {
            Ok(taken) => sent += taken,
            Err(error) => break error,
        }
        record[5..9].fill(0);
    };
    let is_near = (HANDSHAKE_BYTES_MAX - record.len()..=HANDSHAKE_BYTES_MAX).contains(&sent);
    assert!(is_near, "{sent}");
    assert_eq!(error, HandshakeError::TooMuch);
}

#[test]
fn what_is_no_tls_is_named() {
    let (_, b) = friends();
    for bytes in [&b"TOWPATH\0\x06\0\x40\0"[..], b"GET / HTTP/1.1\r\n", &[22, 3, 1, 0xff, 0xff]] {
        let mut server = Handshake::server(&b, wall(), NOW).expect("begun");
        assert_eq!(server.receive(NOW, bytes), Err(HandshakeError::NotTls));
    }
    // Records of no bytes end nothing and loop nowhere.
    let mut server = Handshake::server(&b, wall(), NOW).expect("begun");
    let _ = server.receive(NOW, &[22, 3, 3, 0, 0]);
}

/// Every byte of the first flight, changed: an error or a handshake that goes on, never a panic.
#[test]
fn damaged_flights_never_get_through() {
    let (a, b) = friends();
    let mut client = Handshake::client(&a, None, wall(), NOW).expect("begun");
    let mut flight = Vec::new();
    client.transmit(&mut flight);
    for at in 0..flight.len() {
        let mut damaged = flight.clone();
        damaged[at] ^= 0x55;
        let mut server = Handshake::server(&b, wall(), NOW).expect("begun");
        let _ = server.receive(NOW, &damaged);
        assert!(!server.is_done());
    }
}

#[test]
fn a_thousand_handshakes_at_once_all_get_through() {
    const COUNT: usize = 1_000;
    let keys: Vec<_> = (0..COUNT).map(|_| key()).collect();
    let server_key = key();
    let lines: Vec<String> =
        keys.iter().enumerate().map(|(at, key)| line(key, &format!("h{at}"), "")).collect();
    let b = host(&server_key, &peers(&lines));
    let a_trusts = peers(&[line(&server_key, "b", "")]);
    let mut ends: Vec<(End, End)> = keys
        .iter()
        .map(|key| {
            let client = Handshake::client(&host(key, &a_trusts), None, wall(), NOW);
            (End::new(client), End::new(Handshake::server(&b, wall(), NOW)))
        })
        .collect();
    // Flight by flight over all of them, so that all are half through together.
    for _ in 0..4 {
        for (client, server) in &mut ends {
            let bytes = client.transmit();
            server.receive(&bytes);
        }
        for (client, server) in &mut ends {
            let bytes = server.transmit();
            client.receive(&bytes);
        }
    }
    let mut ids = std::collections::HashSet::new();
    for (at, (client, server)) in ends.into_iter().enumerate() {
        let (client, server) =
            (client.finish().expect("through"), server.finish().expect("through"));
        assert_eq!(server.peer.name.as_str(), format!("h{at}"));
        assert_eq!(client.secret.id(), server.secret.id());
        assert!(ids.insert(client.secret.id()));
    }
}

#[test]
fn an_end_that_is_cut_off_says_so() {
    let (a, b) = friends();
    let mut client = End::new(Handshake::client(&a, None, wall(), NOW));
    let mut server = End::new(Handshake::server(&b, wall(), NOW));
    let hello = client.transmit();
    server.receive(&hello);
    assert_eq!(client.finish().err(), Some(HandshakeError::Closed));
    pump(&mut End::new(Err(HandshakeError::Closed)), &mut server, 9);
    assert_eq!(server.finish().err(), Some(HandshakeError::Closed));
}
