//! Handshakes of hosts with certificates of an authority.

mod common;

use common::{host, key, line, peers, run, run_at, wall};
use std::sync::Arc;
use towpath_secure::{
    Authority, AuthorityError, CertificateError, HandshakeError, Host, HostKey, PeerRefused, Role,
    Sealing, Trust, WallTime, system_random,
};

/// A key and its certificate.
type Files = (&'static [u8], &'static [u8]);

macro_rules! files {
    ($name:literal) => {
        (
            include_bytes!(concat!("authority/", $name, ".key")).as_slice(),
            include_bytes!(concat!("authority/", $name, ".pem")).as_slice(),
        )
    };
}

const A: Files = files!("a");
const B: Files = files!("b");
const CLIENT: Files = files!("client");
const NAMELESS: Files = files!("nameless");
const STRANGER: Files = files!("stranger");
const CA: &[u8] = include_bytes!("authority/ca.pem");
const OTHER_CA: &[u8] = include_bytes!("authority/other-ca.pem");

fn authority((key, chain): Files, roots: &[u8]) -> Result<(HostKey, Authority), AuthorityError> {
    let key = HostKey::from_pem(key).expect("a key");
    let authority = Authority::from_pem(roots, chain, &key)?;
    Ok((key, authority))
}

fn host_of(files: Files, roots: &[u8]) -> Host {
    let (key, authority) = authority(files, roots).expect("files");
    let trust = Trust::Authority(Arc::new(authority));
    Host::new(&key, trust, Sealing::Encrypt, system_random()).expect("a host")
}

#[test]
fn hosts_of_one_authority_know_each_other_by_name_and_expiry() {
    let (a, b) = (host_of(A, CA), host_of(B, CA));
    let (client, server) = run(&a, &b);
    let (client, server) = (client.expect("through"), server.expect("through"));
    assert_eq!(client.peer.name.as_str(), "b.rack4");
    assert_eq!((server.peer.name.as_str(), server.peer.key), ("a.rack4", a.public()));
    assert_eq!(server.peer.expires, WallTime::parse("2027-01-31"));
    assert!(server.peer.roles.contains(Role::Client) && !server.peer.roles.contains(Role::Server));
    assert_eq!(client.secret.id(), server.secret.id());
    for name in ["b.rack4", "alias-b.rack4"] {
        let (client, _) = run_at(&a, &b, Some(name), (wall(), wall()));
        assert_eq!(client.expect("through").peer.name.as_str(), name);
    }
    let (client, _) = run_at(&a, &b, Some("c.rack4"), (wall(), wall()));
    assert!(matches!(client, Err(HandshakeError::Peer(PeerRefused::Name { .. }))), "{client:?}");
}

fn is_refused<T>(end: &Result<T, HandshakeError>) -> bool {
    matches!(end, Err(HandshakeError::Certificate(CertificateError::Refused(_))))
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (a, stranger) = (host_of(A, CA), host_of(STRANGER, CA));
    let (client, server) = run(&a, &stranger);
    assert!(is_refused(&client), "{client:?}");
    assert!(matches!(server, Err(HandshakeError::RefusedByPeer { .. })), "{server:?}");
    let (_, server) = run(&stranger, &a);
    assert!(is_refused(&server), "{server:?}");
    // Who trusts the other authority refuses us.
    let (client, _) = run(&host_of(STRANGER, OTHER_CA), &a);
    assert!(is_refused(&client), "{client:?}");
}

#[test]
fn a_certificate_for_clients_is_no_server() {
    let (a, client_only) = (host_of(A, CA), host_of(CLIENT, CA));
    let (client, server) = run(&client_only, &a);
    assert!(client.is_ok() && server.is_ok());
    let (client, _) = run(&a, &client_only);
    assert!(is_refused(&client), "{client:?}");
}

#[test]
fn a_certificate_is_good_in_its_time_alone() {
    let (a, b) = (host_of(A, CA), host_of(B, CA));
    for (day, is_good) in [
        ("2016-11-29", false),
        ("2026-05-31", false),
        ("2026-06-01", true),
        ("2027-01-30", true),
        ("2027-01-31", false),
        ("2036-11-29", false),
    ] {
        let day = WallTime::parse(day).expect("a day");
        let (client, server) = run_at(&a, &b, None, (wall(), day));
        assert_eq!(server.is_ok(), is_good, "{day}: {server:?}");
        assert!(is_good || is_refused(&server), "{day}: {server:?}");
        let text = client.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(is_good || text.contains("expiry"), "{text}");
    }
}

#[test]
fn files_that_do_not_belong_together_are_refused_at_start() {
    let mixed = authority((A.0, B.1), CA);
    assert_eq!(mixed.err(), Some(AuthorityError::OtherKey));
    let nameless = authority(NAMELESS, CA).err();
    assert_eq!(nameless, Some(AuthorityError::Own(CertificateError::NoName)));
    assert_eq!(authority((A.0, b"no pem"), CA).err(), Some(AuthorityError::Pem));
    assert_eq!(authority(A, A.0).err(), Some(AuthorityError::Pem));
    let many = CA.repeat(17);
    assert_eq!(authority(A, &many).err(), Some(AuthorityError::Pem));
    assert!(authority(A, &CA.repeat(16)).is_ok());
}

/// A flight of more than 4 KiB in one record, which TLS takes in several reads.
#[test]
fn the_longest_chain_gets_through() {
    let a = host_of(A, CA);
    let chain = [B.1, &OTHER_CA.repeat(15)].concat();
    let key = HostKey::from_pem(B.0).expect("a key");
    let authority = Authority::from_pem(CA, &chain, &key).expect("16 certificates");
    let trust = Trust::Authority(Arc::new(authority));
    let b = Host::new(&key, trust, Sealing::Encrypt, system_random()).expect("a host");
    for (client, server) in [(&a, &b), (&b, &a)] {
        let (one, other) = run(client, server);
        assert!(one.is_ok() && other.is_ok(), "{one:?} {other:?}");
    }
}

/// One end has certificates and the other raw keys: neither gets through.
#[test]
fn certificates_and_raw_keys_do_not_mix() {
    let own = key();
    let a_key = HostKey::from_pem(A.0).expect("a key");
    let raw = host(&own, &peers(&[line(&a_key, "a", "")]));
    let certified = host_of(A, CA);
    for (client, server) in [(&raw, &certified), (&certified, &raw)] {
        let (one, other) = run(client, server);
        assert!(one.is_err() && other.is_err(), "{one:?} {other:?}");
    }
}
