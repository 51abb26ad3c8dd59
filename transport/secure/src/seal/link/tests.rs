//! Two ends of a link: what is opened, what is refused, and golden packets.

use super::*;
use crate::schedule::PairSecret;
use crate::testing::hex;
use towpath_base::{Nanos, Prng};
use zeroize::Zeroizing;

const NOW: Time = Time(0);

fn pair_of(sealing: Sealing, rule: RollOver, paths: usize) -> (SealedLink, SealedLink) {
    let secret = PairSecret::new(Zeroizing::new([0x42; 32]));
    let link = secret.link(b"client hello", b"server hello");
    let end = |side| SealedLink::new(&link, side, sealing, paths, rule, NOW);
    (end(Role::Client), end(Role::Server))
}

fn pair(sealing: Sealing) -> (SealedLink, SealedLink) {
    pair_of(sealing, RollOver::default(), 16)
}

/// A packet as it is on the wire.
#[derive(Clone, Debug, PartialEq)]
struct Packet {
    header: [u8; HEADER_BYTES],
    body: Vec<u8>,
}

fn seal(link: &mut SealedLink, now: Time, stream: Stream, number: u64, body: &[u8]) -> Packet {
    let mut header: [u8; HEADER_BYTES] = core::array::from_fn(|at| at as u8);
    let at = if matches!(stream, Stream::Acks(_)) { 16 } else { 8 };
    header[at..at + 8].copy_from_slice(&number.to_le_bytes());
    let mut body = body.to_vec();
    let tag = link.seal(now, stream, &mut header, &mut body).expect("sealed");
    body.extend_from_slice(&tag);
    Packet { header, body }
}

fn open(link: &mut SealedLink, now: Time, packet: &Packet) -> Result<Vec<u8>, Refusal> {
    let mut body = packet.body.clone();
    link.open(now, &packet.header, &mut body).map(|opened| opened.body.to_vec())
}

#[test]
fn what_one_end_seals_the_other_opens() {
    for sealing in [Sealing::Authenticate, Sealing::Encrypt] {
        let (mut client, mut server) = pair(sealing);
        for (number, len) in (0..).zip([0, 1, 15, 16, 17, 64, 4_096, 65_536]) {
            let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
            for stream in [Stream::Chunks(0), Stream::Chunks(15), Stream::Acks(0)] {
                let packet = seal(&mut client, NOW, stream, number, &body);
                let is_readable = packet.body[..len] == body[..];
                assert!(len < 16 || is_readable == (sealing == Sealing::Authenticate));
                assert_eq!(open(&mut server, NOW, &packet), Ok(body.clone()), "{len} bytes");
            }
        }
        let packet = seal(&mut client, NOW, Stream::Chunks(3), 9, b"to the server");
        assert_eq!(open(&mut server, NOW, &packet), Ok(b"to the server".to_vec()));
        let packet = seal(&mut server, NOW, Stream::Acks(3), 9, b"to the client");
        let mut body = packet.body.clone();
        let opened = client.open(NOW, &packet.header, &mut body).expect("opened");
        assert_eq!((opened.stream, opened.number), (Stream::Acks(3), 9));
        assert_eq!(opened.body, b"to the client");
        assert_eq!(client.refusals().sum() + server.refusals().sum(), 0);
    }
}

#[test]
fn every_bit_of_a_packet_counts() {
    for sealing in [Sealing::Authenticate, Sealing::Encrypt] {
        let (mut client, mut server) = pair(sealing);
        let packet = seal(&mut client, NOW, Stream::Chunks(1), 5, b"a body of 24 bytes long.");
        for bit in 0..8 * (HEADER_BYTES + packet.body.len()) {
            let mut changed = packet.clone();
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            match byte.checked_sub(HEADER_BYTES) {
                None => changed.header[byte] ^= mask,
                Some(byte) => changed.body[byte] ^= mask,
            }
            // Bit 5 of the mark means nothing to the reader, and is signed all the same.
            assert!(open(&mut server, NOW, &changed).is_err(), "{sealing:?} bit {bit}");
        }
        assert!(
            open(&mut server, NOW, &packet).is_ok(),
            "nothing that was refused changed anything"
        );
    }
}

#[test]
fn each_kind_of_attack_has_its_counter() {
    let (mut client, mut server) = pair(Sealing::Encrypt);
    let first = seal(&mut client, NOW, Stream::Chunks(1), 0, b"body");
    assert_eq!(open(&mut client, NOW, &first), Err(Refusal::Reflected));
    assert!(open(&mut server, NOW, &first).is_ok());
    assert_eq!(open(&mut server, NOW, &first), Err(Refusal::Replay));
    let mut refuse = |change: &dyn Fn(&mut Packet), refusal| {
        let number = 1 + server.refusals().sum();
        let mut packet = seal(&mut client, NOW, Stream::Chunks(1), number, b"body");
        change(&mut packet);
        assert_eq!(open(&mut server, NOW, &packet), Err(refusal));
    };
    refuse(&|packet| packet.body.truncate(15), Refusal::Truncated);
    refuse(&|packet| packet.header[60] ^= 1, Refusal::WrongLink);
    refuse(&|packet| packet.header[56] = 16, Refusal::WrongLink);
    refuse(&|packet| packet.header[57] = Mode::Open.code(), Refusal::WrongMode);
    refuse(&|packet| packet.header[57] = Mode::Authenticate.code(), Refusal::WrongMode);
    refuse(&|packet| packet.header[58] = 2, Refusal::StaleKey);
    refuse(&|packet| packet.header[58] = 1, Refusal::BadTag);
    refuse(&|packet| packet.header[0] ^= 1, Refusal::BadTag);
    refuse(&|packet| packet.body.truncate(19), Refusal::BadTag);
    let counts: Vec<u64> = server.refusals().iter().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 2, 0, 2, 1, 1, 3, 0]);
    assert_eq!(client.refusals().of(Refusal::Reflected), 1);
    let mut short = [0; 99];
    assert_eq!(server.open(NOW, &[0; 63], &mut short), Err(Refusal::Truncated));
}

#[test]
fn packets_of_another_link_or_direction_do_not_open() {
    let (mut client, mut server) = pair(Sealing::Encrypt);
    let secret = PairSecret::new(Zeroizing::new([0x42; 32]));
    let other = secret.link(b"another hello", b"server hello");
    let rule = RollOver::default();
    let mut other = SealedLink::new(&other, Role::Client, Sealing::Encrypt, 16, rule, NOW);
    let mut packet = seal(&mut other, NOW, Stream::Chunks(1), 0, b"body");
    assert_eq!(open(&mut server, NOW, &packet), Err(Refusal::WrongLink));
    packet.header[60..].copy_from_slice(&server.tag().0);
    assert_eq!(open(&mut server, NOW, &packet), Err(Refusal::BadTag));
    // The direction turned round by hand: each has keys of its own.
    let mut packet = seal(&mut client, NOW, Stream::Chunks(1), 0, b"body");
    packet.header[56] |= 0x80;
    assert_eq!(open(&mut client, NOW, &packet), Err(Refusal::BadTag));
}

/// Each end sends and hears the other, with a tenth of the packets lost and the rest disordered
/// within the window, while keys roll over every 50 seals.
#[test]
fn keys_roll_over_under_loss_and_disorder_without_a_refusal() {
    let rule = RollOver { seals: 50, ..RollOver::default() };
    for seed in 0..20 {
        let mut prng = Prng::new(seed);
        let (mut client, mut server) = pair_of(Sealing::Encrypt, rule, 16);
        let mut numbers = [0; 16];
        let mut now = NOW;
        for _ in 0..400 {
            for side in [Role::Client, Role::Server] {
                now.0 += 1_000;
                let (from, to) = match side {
                    Role::Client => (&mut client, &mut server),
                    Role::Server => (&mut server, &mut client),
                };
                let mut batch: Vec<Packet> = (0..prng.below(9))
                    .map(|_| {
                        let path = prng.below(16);
                        numbers[path as usize] += 1;
                        seal(from, now, Stream::Chunks(path as u8), numbers[path as usize], b"x")
                    })
                    .collect();
                for at in (1..batch.len()).rev() {
                    batch.swap(at, prng.below(at as u64 + 1) as usize);
                }
                for packet in batch.iter().filter(|_| !prng.chance(0.1)) {
                    assert_eq!(open(to, now, packet), Ok(b"x".to_vec()), "seed {seed}");
                }
            }
        }
        let (one, other) = (client.state(now), server.state(now));
        assert!(one.epoch > 10 && other.epoch > 10, "seed {seed}: {one:?} {other:?}");
        assert!(one.epoch - other.peer_epoch <= 1, "seed {seed}: {one:?} {other:?}");
    }
}

#[test]
fn the_key_before_is_taken_for_a_while_and_none_before_that() {
    let rule = RollOver { seals: 1, old_key: Nanos(100), ..RollOver::default() };
    let (mut client, mut server) = pair_of(Sealing::Encrypt, rule, 16);
    let mut number = 0;
    let mut send = |client: &mut SealedLink| {
        number += 1;
        seal(client, Time(50), Stream::Chunks(0), number, b"x")
    };
    let [a, b, c] = core::array::from_fn(|_| send(&mut client));
    let is_of = |packet: &Packet| u16::from_le_bytes([packet.header[58], packet.header[59]]);
    assert_eq!([&a, &b, &c].map(is_of), [0, 1, 1], "the second key waits for an echo");
    assert!(open(&mut server, Time(60), &c).is_ok());
    assert!(open(&mut server, Time(159), &a).is_ok());
    let late = seal(&mut pair(Sealing::Encrypt).0, NOW, Stream::Chunks(0), 9, b"x");
    assert!(open(&mut server, Time(159), &late).is_ok());
    let later = seal(&mut pair(Sealing::Encrypt).0, NOW, Stream::Chunks(0), 10, b"x");
    assert_eq!(open(&mut server, Time(160), &later), Err(Refusal::StaleKey));
    assert!(open(&mut server, Time(160), &b).is_ok());
    // The echo rides on whatever the server sends, and the third key follows.
    let echo = seal(&mut server, Time(160), Stream::Acks(0), 0, b"");
    assert!(open(&mut client, Time(160), &echo).is_ok());
    let d = send(&mut client);
    assert_eq!(is_of(&d), 2);
    assert!(open(&mut server, Time(161), &d).is_ok());
    assert_eq!(server.state(Time(161)).peer_epoch, 2);
}

#[test]
fn the_sentence_of_a_link_says_what_it_is() {
    let (client, _) = pair(Sealing::Encrypt);
    let name = PeerName::parse("rack4-a").expect("a name");
    let state = client.state(Time(12 * 60 * 1_000_000_000));
    let sentence = state.sentence(Some(&name));
    assert_eq!(sentence, "encrypted, AES-128-GCM, keys of 12 minutes, peer rack4-a");
    let state = LinkState { mode: Mode::Authenticate, key_age_s: 7, ..state };
    assert_eq!(state.sentence(None), "signed but readable, AES-128-GCM, keys of 7 seconds");
    let state = LinkState { mode: Mode::Open, ..state };
    assert!(state.sentence(None).starts_with("open"), "{state:?}");
}

/// The packets of `docs/secure-links.md` section 8, which another program computed.
#[test]
fn golden_packets() {
    let golden = [
        (
            Sealing::Encrypt,
            Stream::Chunks(3),
            "03020000b371429d6e91c207e3ef01a3f03f3c431961afb8fce2ead01820ed",
        ),
        (
            Sealing::Authenticate,
            Stream::Acks(3),
            "43010000b371429d746f7770617468ada41c030c1b8c9b8165d236ccbe70b3",
        ),
    ];
    for (sealing, stream, wanted) in golden {
        let (mut client, mut server) = pair(sealing);
        let packet = seal(&mut client, NOW, stream, 7, b"towpath");
        assert_eq!(hex(&packet.header[56..]) + &hex(&packet.body), wanted, "{sealing:?}");
        assert_eq!(open(&mut server, NOW, &packet), Ok(b"towpath".to_vec()));
    }
}
