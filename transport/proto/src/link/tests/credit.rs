//! Credit is never believed beyond what the peer granted, however late what tells of it comes.

use super::hostile::{alone, give, header};
use super::paths::{EACH, send};
use super::wire::{Frame, Wire};
use super::*;
use crate::event::Verdict;
use crate::limits::{ACK_BYTES_MAX, CREDIT_OUTSTANDING_MAX};
use crate::wire::{Ack, ChunkFlags, ChunkHeader, Kind};

/// What the sender believes to be granted, and what the receiver has granted.
fn grants(wire: &mut Wire, channel: ChannelId, sender: usize) -> (u64, u64) {
    let granted = wire.ends[sender].link.channel(channel.0).unwrap().tx.granted();
    let true_grant = wire.ends[1 - sender].link.channel(channel.0).unwrap().rx.granted();
    (granted, true_grant)
}

/// As if `chunks` more had gone from the first end to the second, and had been given back.
fn skip(wire: &mut Wire, channel: ChannelId, chunks: u64) {
    wire.ends[0].link.channel_mut(channel.0).unwrap().tx.skip(chunks);
    wire.ends[1].link.channel_mut(channel.0).unwrap().rx.skip(chunks);
}

#[test]
fn credit_that_comes_seconds_late_grants_nothing_that_was_not_granted() {
    let mut late_frames = 0;
    for seed in 0..300 {
        println!("seed {seed}");
        // A message makes a chunk.
        let tune = |config: LinkConfig| config.spreading(EACH).seed(seed).chunk_bytes_max(104);
        let mut wire = Wire::with_paths(seed, Faults::default(), 2, tune);
        let channel = wire.open_channel(0, false);
        let mut prng = Prng::new(seed);
        for end in &mut wire.ends {
            for token in 0..prng.between(1, 60) {
                end.send(channel, token, vec![1; 100], Time::NEVER);
            }
        }
        // One path to the first end stalls. All else comes in time, and what is missing again.
        let mut late = Vec::new();
        for _ in 0..prng.between(1, 4) {
            wire.turn(1);
            let flight = core::mem::take(&mut wire.flight);
            for (at, (to, frame)) in flight {
                match frame {
                    Frame::Chunk { path: PathId(1), .. } if to == 0 => late.push(frame),
                    frame => _ = wire.flight.insert(at, (to, frame)),
                }
            }
            wire.run_for(Nanos::from_micros(10));
        }
        wire.holes[0] = 1 << 1;
        wire.run_until(Wire::settled);
        // A reader that takes its time: not all that was used is granted again.
        wire.ends[1].hoards = true;
        send(&mut wire, channel, 100..100 + prng.below(60), 100);
        wire.run_until(Wire::settled);
        // Up to some seconds of a million chunks each; half of the times about as many as make
        // the 16 bits of a header look like a little more than what is granted.
        let near = (prng.between(1, 40) << 16) - prng.below(60);
        let chunks = if prng.chance(0.5) { near } else { prng.below(4 << 20) };
        skip(&mut wire, channel, chunks);
        late_frames += late.len();
        for frame in late {
            wire.deliver(0, frame);
            let (granted, true_grant) = grants(&mut wire, channel, 0);
            assert!(granted <= true_grant, "seed {seed}: {granted} of {true_grant}");
        }
        wire.holes[0] = 0;
        wire.ends[1].hoards = false;
        let hoarded = wire.ends[1].hoarded;
        wire.ends[1].link.release(channel, hoarded);
        send(&mut wire, channel, 1_000..1_200, 100);
        wire.run_until(Wire::settled);
        let stats = [0, 1].map(|at| wire.ends[at].link.stats().violations);
        assert_eq!(stats, [0, 0], "seed {seed}: nobody broke a rule");
        wire.check_clean();
    }
    assert!(late_frames > 1_000, "{late_frames}");
}

#[test]
fn a_peer_grants_its_quota_beyond_what_was_used_and_not_a_chunk_more() {
    let quota = 8;
    let open = || {
        let mut link = alone();
        let _ = give(&mut link, &header(Kind::Open, 0, 0), &[]);
        let open = ChunkHeader { channel: 1, credit: quota, ..header(Kind::Open, 1, 1) };
        let _ = give(&mut link, &open, &[]);
        while link.poll_transmit(Time::ZERO).is_some() {}
        link
    };
    // All but one chunk of what was granted is used.
    let begin = || {
        let mut link = open();
        let tx = &mut link.channel_mut(1).unwrap().tx;
        tx.skip(100);
        tx.use_credit();
        link
    };
    let granted = |link: &Link| link.channel(1).unwrap().tx.granted();
    let (before, limit) = (100 + u64::from(quota), 101 + u64::from(quota));
    assert_eq!(granted(&begin()), before);
    for beyond in [0, 1, 2, 1_000, u64::from(CREDIT_OUTSTANDING_MAX) - 1] {
        let believed = if beyond == 0 { limit } else { before };
        // In an ack, where more can only be a lie.
        let mut link = begin();
        let ack = Ack {
            path: 0,
            generation: link.peer.control_generations.0,
            acked_generation: link.paths[0].generation_out,
            ack_number: 1,
            largest: 0,
            base: 0,
            receive_time: 0,
            hold: 0,
            window_kib: 1 << 10,
            disordered: 0,
        };
        let mut out = [0; ACK_BYTES_MAX];
        let len = ack.emit(&mut out, |_| 0, [(1, (limit + beyond) as u32)].into_iter());
        link.handle_ack(Time::ZERO, &out[..len], Time::ZERO);
        assert_eq!(granted(&link), believed, "{beyond} beyond, in an ack");
        assert_eq!(link.stats().violations, u64::from(beyond > 0), "{beyond} beyond, in an ack");
        // In a header, where it may be an old truth.
        let mut link = begin();
        let data = ChunkHeader {
            flags: ChunkFlags::default().with(ChunkFlags::CREDIT, true),
            channel: 1,
            credit: (limit + beyond) as u16,
            message_len: 4,
            length: 4,
            offset: 0,
            ..header(Kind::Data, 2, 0)
        };
        assert_eq!(give(&mut link, &data, b"some"), Verdict::Kept(1));
        assert_eq!(granted(&link), believed, "{beyond} beyond, in a header");
        let stats = link.stats();
        assert_eq!((stats.violations, stats.acks_bad), (0, u64::from(beyond > 0)), "{beyond}");
    }
}
