//! Two endpoints in virtual time over a wire that loses, repeats, reorders, delays and corrupts.

mod lab;

use lab::{Device, Lab};
use towpath_base::{Nanos, Prng};
use towpath_proto::{ChannelId, Outcome};
use towpath_sim::FaultPlan;
use towpath_transport::{Endpoint, EndpointConfig, Event, SendOptions};

impl Lab {
    fn open(&mut self, ordered: bool) -> ChannelId {
        let wanted = self.near.open_channel(self.near_link, ordered).expect("room");
        let mut ends = 0;
        self.run(|_, _, event| {
            ends += u32::from(matches!(event, Event::ChannelOpened { .. }));
            ends == 2
        });
        wanted
    }
}

fn small() -> EndpointConfig {
    EndpointConfig::new()
        .quota_chunks(32)
        .credit_total(64)
        .progress_budget(64)
        .links_max(1)
        .send_pools(&[(64 << 10, 40)])
}

fn all_faults() -> FaultPlan {
    FaultPlan::none()
        .drop(0.02)
        .duplicate(0.02, Nanos::from_micros(100))
        .corrupt(0.01)
        .reorder(0.02, 8, Nanos::from_micros(50))
        .late(0.005, Nanos::from_millis(1), Nanos::from_millis(20))
}

/// Sends messages of mixed sizes under all faults; returns the hash of everything on the wire.
fn exchange(seed: u64, config: &EndpointConfig, messages: u64) -> u64 {
    let mut lab = Lab::new(seed, &all_faults(), config);
    let channel = lab.open(false);
    let link = lab.near_link;
    let bytes_of = |token: u64| {
        let mut prng = Prng::new(seed ^ token);
        let mut bytes = vec![0; prng.between(8, 40_000) as usize];
        prng.fill(&mut bytes);
        bytes[..8].copy_from_slice(&token.to_le_bytes());
        bytes
    };
    let send = |at: &mut Endpoint<Device>, token| {
        let buf = at.copy(&bytes_of(token)).expect("a free buffer");
        at.send(link, channel, buf, SendOptions::new().token(token)).expect("an open channel");
    };
    let mut next = messages.min(20);
    (0..next).for_each(|token| send(&mut lab.near, token));
    let mut seen = vec![0u32; messages as usize];
    let (mut delivered, mut received) = (0, 0);
    let mut kept = Vec::new();
    lab.run(|near, at, event| {
        match event {
            Event::Sent { token, outcome, .. } if near => {
                assert_eq!(outcome, Outcome::Delivered, "seed {seed} message {token}");
                delivered += 1;
                if next < messages {
                    send(at, next);
                    next += 1;
                }
            }
            Event::Message(message) if !near => {
                let bytes = message.to_vec();
                let token = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                assert!(bytes == bytes_of(token), "seed {seed} message {token} changed");
                seen[token as usize] += 1;
                received += 1;
                // A reader that lags behind: some messages are kept for a while.
                kept.push(message);
                if kept.len() == 2 {
                    kept.drain(..).for_each(|message| at.release(message));
                }
            }
            Event::LinkDown { reason, .. } => panic!("seed {seed}: {reason:?}"),
            _ => {}
        }
        delivered == messages && received == messages
    });
    assert!(seen.iter().all(|&times| times == 1), "seed {seed}: exactly once");
    kept.drain(..).for_each(|message| lab.far.release(message));
    lab.far.turn(|_, _| {});
    let census = lab.far.buffers();
    assert_eq!(census.recv_posted + census.recv_free, census.recv_all, "seed {seed}");
    for end in [&lab.near, &lab.far] {
        let counters = end.device().counters();
        assert_eq!(counters.no_recv_wqe, 0, "seed {seed}: no chunk lacked a receive buffer");
        assert_eq!(end.buffers().send_free, end.buffers().send_all, "seed {seed}");
        assert_eq!(end.endpoint_stats(), Default::default(), "seed {seed}");
    }
    let stats = lab.near.stats(link).expect("it is up");
    assert!(stats.chunks_retransmitted > 0, "seed {seed}: the faults were felt");
    assert!(lab.far.stats(lab.far_link).is_some());
    lab.world.trace_hash()
}

#[test]
fn every_message_arrives_exactly_once_under_all_faults() {
    for seed in 1..=20 {
        exchange(seed, &small(), 100);
    }
}

#[test]
fn a_receive_queue_per_queue_pair_never_lacks_a_buffer_either() {
    for seed in 1..=10 {
        exchange(seed, &small().shared_receiving(false), 100);
    }
}

#[test]
fn the_same_seed_gives_the_same_packets_and_another_seed_others() {
    let hash = |seed| exchange(seed, &small(), 50);
    assert_eq!(hash(5), hash(5));
    assert_ne!(hash(5), hash(6));
}

#[test]
fn what_is_released_between_two_turns_goes_home_at_once() {
    let mut lab = Lab::new(7, &FaultPlan::none(), &small());
    let channel = lab.open(false);
    let buf = lab.near.copy(b"some").expect("a buffer");
    lab.near.send(lab.near_link, channel, buf, SendOptions::new()).expect("room");
    let mut held = None;
    lab.run(|_, _, event| {
        if let Event::Message(message) = event {
            held = Some(message);
        }
        held.is_some()
    });
    while lab.far.turn(|_, _| {}) {}
    let Lab { world, far, .. } = &mut lab;
    assert!(far.next_timeout() > world.now(), "nothing is due while it is held");
    far.release(held.take().expect("it came"));
    assert_eq!(far.next_timeout(), world.now(), "a turn, so that its sender has the credit back");
    let held = |far: &Endpoint<Device>| {
        let census = far.buffers();
        census.recv_all - census.recv_posted - census.recv_free
    };
    assert_eq!(held(far), 1);
    far.poll();
    assert_eq!(held(far), 0);
}
