//! A million packets of an attacker: all counted by kind, none opened, no memory kept.

use towpath_base::{Prng, Time};
use towpath_secure::{PairSecret, Refusal, Role, RollOver, SealedLink, Sealing, Stream};

const NOW: Time = Time(0);
const PACKETS: u64 = 1_000_000;
const BODY: usize = 64;

struct Packet {
    header: [u8; 64],
    body: [u8; BODY + 16],
}

/// A link's two ends.
fn ends(hello: &[u8], rule: RollOver) -> (SealedLink, SealedLink) {
    let secret = PairSecret::new([7; 32]).link(hello, b"server");
    let end = |side| SealedLink::new(&secret, side, Sealing::Encrypt, 16, rule, NOW);
    (end(Role::Client), end(Role::Server))
}

fn seal(link: &mut SealedLink, path: u8, number: u64) -> Packet {
    let mut packet = Packet { header: [0; 64], body: [3; BODY + 16] };
    packet.header[8..16].copy_from_slice(&number.to_le_bytes());
    let (body, tag) = packet.body.split_at_mut(BODY);
    let stream = Stream::Chunks(path);
    tag.copy_from_slice(&link.seal(NOW, stream, &mut packet.header, body).expect("sealed"));
    packet
}

/// Resident memory in pages, from the system.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("statm");
    text.split(' ').nth(1).expect("resident").parse().expect("a number")
}

#[test]
fn a_million_forged_packets_are_counted_by_kind_and_move_nothing() {
    let seed = 1;
    let mut prng = Prng::new(seed);
    let (mut client, mut server) = ends(b"client", RollOver::default());
    let (mut other, _) = ends(b"another client", RollOver::default());
    // An earlier key of this very link: its peer rolled over at once.
    let quick = RollOver { seals: 1, ..RollOver::default() };
    let (mut ahead, mut echo) = ends(b"client", quick);
    let mut number = 1 << 40;
    let stale = loop {
        number += 1;
        let mut packet = seal(&mut ahead, 1, number);
        if ahead.state(NOW).epoch == 2 {
            break packet;
        }
        echo.open(NOW, &packet.header, &mut packet.body).expect("opened");
        let mut back = seal(&mut echo, 1, number);
        ahead.open(NOW, &back.header, &mut back.body).expect("opened");
    };
    let replayed: Vec<Packet> = (0..64).map(|number| seal(&mut client, 0, number)).collect();
    for packet in &replayed {
        server.open(NOW, &packet.header, &mut packet.body.clone()).expect("opened");
    }
    let reflected = seal(&mut server, 0, 1);
    let (good, elsewhere) = (seal(&mut client, 2, 1), seal(&mut other, 2, 1));

    let mut counts = [0_u64; 7];
    let before = resident();
    let mut opened = 0;
    for at in 0..PACKETS {
        let kind = Refusal::ALL[prng.below(7) as usize];
        let source = match kind {
            Refusal::Replay => &replayed[at as usize % replayed.len()],
            Refusal::Reflected => &reflected,
            Refusal::WrongLink => &elsewhere,
            Refusal::StaleKey => &stale,
            _ => &good,
        };
        let Packet { mut header, mut body } = *source;
        let mut len = body.len();
        match kind {
            Refusal::Truncated => len = prng.below(16) as usize,
            Refusal::WrongMode => header[57] &= !3,
            Refusal::BadTag => body[prng.below(len as u64) as usize] ^= 1 << prng.below(8),
            _ => {}
        }
        counts[kind as usize] += 1;
        match server.open(NOW, &header, &mut body[..len]) {
            Ok(_) => opened += 1,
            Err(refusal) => assert_eq!(refusal, kind, "seed {seed}, packet {at}"),
        }
    }
    let grown = resident().saturating_sub(before);
    assert_eq!(opened, 0);
    for (refusal, count) in server.refusals().iter().take(7) {
        assert_eq!(count, counts[refusal as usize], "{refusal:?}");
        assert!(count > PACKETS / 8, "{refusal:?}: {count}");
    }
    assert_eq!(server.refusals().sum(), PACKETS);
    // 256 KiB: other threads of the test program allocate, packets do not.
    assert!(grown < 64, "{grown} pages more");
    // The honest link goes on as if nothing had been.
    let mut body = good.body;
    assert!(server.open(NOW, &good.header, &mut body).is_ok());
    let mut next = seal(&mut client, 0, 64);
    assert!(server.open(NOW, &next.header, &mut next.body).is_ok());
    let (mut client, mut server) = (client, server);
    let mut back = seal(&mut server, 0, 2);
    assert!(client.open(NOW, &back.header, &mut back.body).is_ok());
}

/// Random bytes, and packets changed at random places: an opener answers each with a refusal.
#[test]
fn no_input_opens_or_panics() {
    for seed in 0..4 {
        let mut prng = Prng::new(seed);
        let (mut client, mut server) = ends(b"client", RollOver::default());
        for number in 0..50_000 {
            let mut packet = seal(&mut client, prng.below(16) as u8, number);
            for _ in 0..=prng.below(3) {
                let at = prng.below(64 + 80) as usize;
                let byte = match at.checked_sub(64) {
                    None => &mut packet.header[at],
                    Some(at) => &mut packet.body[at],
                };
                *byte ^= 1 + prng.below(255) as u8;
            }
            if prng.chance(0.2) {
                prng.fill(&mut packet.header);
            }
            // Two changes of one byte may undo each other, so an unchanged packet may open.
            let header_len = if prng.chance(0.1) { prng.below(64) as usize } else { 64 };
            let body_len = prng.below(81) as usize;
            let body = &mut packet.body[..body_len];
            let opened = server.open(NOW, &packet.header[..header_len], body);
            assert!(opened.is_err() || (header_len, body_len) == (64, 80), "seed {seed}");
        }
        assert!(server.refusals().sum() > 49_900);
    }
}
