//! Nonces over whole histories, and when keys roll over.

use super::*;
use crate::limits::PATHS_MAX;
use crate::schedule::PairSecret;
use std::collections::HashSet;
use towpath_base::Prng;
use zeroize::Zeroizing;

fn link_of(seed: u64, life: u64) -> LinkSecret {
    let mut secret = [0; 32];
    Prng::new(seed).fill(&mut secret);
    PairSecret::new(Zeroizing::new(secret)).link(&life.to_le_bytes(), b"server")
}

fn header_of(stream: Stream, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0x5a; HEADER_BYTES];
    header[8..16].copy_from_slice(&number.to_le_bytes());
    header[16..24].copy_from_slice(&number.to_le_bytes());
    assert_eq!(stream.number(&header), number);
    header
}

/// Key and nonce of every seal of all links, as the cipher sees them.
#[derive(Default)]
struct Seen(HashSet<([u8; 16], [u8; 12])>);

/// One sealer, driven by what its link does. Numbers of a path go on whatever happens to its queue
/// pair, port or carrier, as `docs/protocol.md` sections 2 and 10 say.
struct History {
    sealer: Sealer,
    next: [u64; 2 * PATHS_MAX],
    now: Time,
}

impl History {
    fn new(link: &LinkSecret, side: Role, rule: RollOver) -> Self {
        let sealer = Sealer::new(link, side, Sealing::Authenticate, rule, Time(0));
        Self { sealer, next: [0; 2 * PATHS_MAX], now: Time(0) }
    }

    /// Sends what was cut now, at first or again: the next number of the path.
    fn send(&mut self, stream: Stream, prng: &mut Prng, seen: &mut Seen) {
        let next = &mut self.next[stream.index()];
        // A number that was given to a chunk which was then not sent is never sealed.
        *next += prng.below(2) * prng.below(3);
        let number = *next;
        *next += 1;
        // The same claim on a copy of the state that `seal` claims: what the cipher gets.
        let before = self.sealer.numbers.clone_for_test().claim(stream, number).expect("fresh");
        let mut header = header_of(stream, number);
        let sealed = self.sealer.seal(self.now, stream, 0, &mut header, &mut [1, 2, 3]);
        assert!(sealed.is_ok(), "{sealed:?}");
        let iv = self.sealer.secret.iv();
        let nonce = core::array::from_fn(|at| before.bytes()[at] ^ iv[at]);
        assert!(seen.0.insert((*self.sealer.secret.key(), nonce)), "{stream:?} {number} twice");
    }

    /// Seals bytes anew under a number that was used: refused, and the header stays as it was.
    fn reuse(&mut self, stream: Stream, prng: &mut Prng) {
        let next = self.next[stream.index()];
        if next == 0 {
            return;
        }
        let number = prng.below(next);
        let mut header = header_of(stream, number);
        let refused = self.sealer.seal(self.now, stream, 0, &mut header, &mut [9]);
        assert_eq!(refused, Err(SealError::NumberUsed { stream, number }));
        assert_eq!(header, header_of(stream, number));
    }
}

/// Resends and chunks that are cut anew take the next number of some path; a reroute takes another
/// port, a carrier change other paths, a renewed queue pair another generation; keys roll over by
/// count and by age; a life begins with another link.
#[test]
fn no_key_sees_a_nonce_twice_over_any_history() {
    for seed in 0..30 {
        let mut prng = Prng::new(seed);
        let mut seen = Seen::default();
        let rule = RollOver { seals: 1 + prng.below(60), age: Nanos(500), ..RollOver::default() };
        let mut sealed = 0;
        for life in 0..4 {
            let link = link_of(seed, life);
            let mut ends = [Role::Client, Role::Server].map(|side| History::new(&link, side, rule));
            let mut carrier = 0;
            for _ in 0..1_000 {
                let end = &mut ends[prng.below(2) as usize];
                let path = carrier + prng.below(8) as u8;
                let stream =
                    if prng.chance(0.3) { Stream::Acks(path) } else { Stream::Chunks(path) };
                match prng.below(10) {
                    0 => carrier = [0, 8, 16, 24][prng.below(4) as usize],
                    1 => end.now = Time(end.now.0 + prng.below(400)),
                    2 => end.sealer.on_echo(end.sealer.epoch() as u8 & Mark::ECHO_BITS),
                    3 => end.reuse(stream, &mut prng),
                    _ => {
                        end.send(stream, &mut prng, &mut seen);
                        sealed += 1;
                    }
                }
            }
        }
        assert_eq!(seen.0.len(), sealed, "seed {seed}");
    }
}

fn sealer(rule: RollOver) -> (Sealer, u64) {
    let link = link_of(1, 1);
    (Sealer::new(&link, Role::Client, Sealing::Encrypt, rule, Time(0)), 0)
}

fn seal(of: &mut (Sealer, u64), now: u64) -> Result<u64, SealError> {
    let (sealer, number) = of;
    let stream = Stream::Chunks(0);
    let mut header = header_of(stream, *number);
    *number += 1;
    sealer.seal(Time(now), stream, 0, &mut header, &mut []).map(|_| sealer.epoch())
}

#[test]
fn a_key_rolls_over_by_count_once_the_peer_has_it() {
    let rule = RollOver { seals: 3, seals_max: 5, ..RollOver::default() };
    let mut of = sealer(rule);
    let epochs: Vec<_> = (0..3).map(|_| seal(&mut of, 0)).collect();
    assert_eq!(epochs, [Ok(0); 3]);
    // The peer has not shown that it has the second key: the second key goes on until its end.
    let epochs: Vec<_> = (0..6).map(|_| seal(&mut of, 0)).collect();
    assert_eq!(epochs[..5], [Ok(1); 5]);
    assert_eq!(epochs[5], Err(SealError::Exhausted));
    of.0.on_echo(0);
    assert_eq!(seal(&mut of, 0), Err(SealError::Exhausted), "an echo of an old epoch");
    of.0.on_echo(1);
    assert_eq!(seal(&mut of, 0), Ok(2));
}

#[test]
fn a_key_rolls_over_by_age_when_it_was_used() {
    let mut of = sealer(RollOver { age: Nanos(100), ..RollOver::default() });
    assert_eq!(seal(&mut of, 1_000), Ok(0), "a key that sealed nothing need not go");
    assert_eq!(seal(&mut of, 1_001), Ok(1));
    of.0.on_echo(1);
    assert_eq!(seal(&mut of, 1_100), Ok(1));
    assert_eq!(seal(&mut of, 1_101), Ok(2));
}

#[test]
fn no_rule_lets_a_key_seal_more_than_the_hard_limit() {
    let rule = RollOver { seals: u64::MAX, seals_max: u64::MAX, ..RollOver::default() };
    assert_eq!(sealer(rule).0.rule.seals_max, SEALS_HARD);
}
