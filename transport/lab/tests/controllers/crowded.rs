//! Two hosts whose processors are others' most of the time: what a window is worth there.

use std::collections::VecDeque;

use towpath_base::{Nanos, Prng, Time};

use towpath_cc::{AckSample, AnyController, Controller, ControllerConfig, PathFacts};

const PACKET_BYTES: u64 = 4096;

/// What a packet takes the receiver's processor: 100 MB/s, as of a NIC in software.
const PACKET_WORK: Nanos = Nanos::from_micros(40);

/// One way, through the network.
const WAY: Nanos = Nanos::from_micros(50);

/// When a host is away, as spans in order.
struct Host {
    away: Vec<(Time, Time)>,
}

impl Host {
    /// Present for 4 to 16 ms and away for 10 to 40 ms in turn, until `end`.
    fn crowded(seed: u64, end: Time) -> Self {
        let (mut prng, mut away, mut at) = (Prng::new(seed), Vec::new(), Time::ZERO);
        while at < end {
            let from = at + Nanos::from_micros(prng.between(4_000, 16_000));
            at = from + Nanos::from_micros(prng.between(10_000, 40_000));
            away.push((from, at));
        }
        Self { away }
    }

    fn absence_at(&self, at: Time) -> Option<(Time, Time)> {
        let next = self.away.partition_point(|&(_, back)| back <= at);
        self.away.get(next).copied().filter(|&(from, _)| from <= at)
    }

    /// When it looks at what comes at `at`.
    fn looks_at(&self, at: Time) -> Time {
        self.absence_at(at).map_or(at, |(_, back)| back)
    }

    /// When a packet's work that begins at `at` is done.
    fn works_until(&self, at: Time) -> Time {
        let at = self.looks_at(at);
        self.looks_at(at + PACKET_WORK)
    }
}

/// A sender that always has something to send, its receiver, and what is on the way back.
struct Pair {
    sender: Host,
    receiver: Host,
    controller: AnyController,
    /// When each ack comes, and when its packet was sent.
    acks: VecDeque<(Time, Time)>,
    receiver_free_at: Time,
    in_flight_bytes: u64,
    acked_bytes: u64,
    longest_round_trip: Nanos,
}

impl Pair {
    fn new(word: &str, sender: Host, receiver: Host) -> Self {
        let config: ControllerConfig = word.parse().unwrap();
        let path = PathFacts { delay_noise: Nanos::from_micros(200), ..PathFacts::default() };
        Self {
            sender,
            receiver,
            controller: config.build(Time::ZERO, &path),
            acks: VecDeque::new(),
            receiver_free_at: Time::ZERO,
            in_flight_bytes: 0,
            acked_bytes: 0,
            longest_round_trip: Nanos::ZERO,
        }
    }

    fn send(&mut self, now: Time) {
        let window = self.controller.window_bytes();
        while self.in_flight_bytes == 0 || self.in_flight_bytes + PACKET_BYTES <= window {
            self.in_flight_bytes += PACKET_BYTES;
            let comes_at = (now + WAY).max(self.receiver_free_at);
            self.receiver_free_at = self.receiver.works_until(comes_at);
            self.acks.push_back((self.receiver_free_at + WAY, now));
        }
    }

    /// Runs until `end`. Who `tells` lets the controller know the longest absence so far.
    fn run_until(&mut self, end: Time, tells: bool) {
        let (mut now, mut longest) = (self.sender.looks_at(Time::ZERO), Nanos::ZERO);
        while now < end {
            self.send(now);
            let next = self.sender.looks_at(self.acks[0].0);
            if let Some((from, back)) = self.sender.absence_at(self.acks[0].0)
                && tells
                && back.since(from) > longest
            {
                longest = back.since(from);
                self.controller.set_away(longest);
            }
            now = next.max(now);
            while let Some((_, sent_at)) = self.acks.pop_front_if(|&mut (at, _)| at <= now) {
                self.acknowledge(now, now.since(sent_at));
            }
        }
    }

    fn acknowledge(&mut self, now: Time, rtt: Nanos) {
        self.controller.on_ack(&AckSample {
            now,
            rtt: Some(rtt),
            endpoint: Nanos::ZERO,
            acked_bytes: PACKET_BYTES,
            acked_chunks: 1,
            in_flight_bytes: self.in_flight_bytes,
            window_limited: true,
            chunk_bytes: PACKET_BYTES as u32,
        });
        self.in_flight_bytes -= PACKET_BYTES;
        self.acked_bytes += PACKET_BYTES;
        self.longest_round_trip = self.longest_round_trip.max(rtt);
    }
}

/// Bytes that get through in five seconds between crowded hosts.
fn bytes_between_crowded(word: &str, seed: u64, tells: bool) -> u64 {
    let end = Time::ZERO + Nanos::from_secs(5);
    let [sender, receiver] = [2 * seed, 2 * seed + 1].map(|seed| Host::crowded(seed, end));
    let mut pair = Pair::new(word, sender, receiver);
    pair.run_until(end, tells);
    pair.acked_bytes
}

#[test]
fn a_host_that_tells_how_long_it_is_away_gets_most_of_what_an_endless_window_gets() {
    for seed in 1..=10 {
        let most = bytes_between_crowded("fixed:64MiB", seed, false);
        let told = bytes_between_crowded("swift", seed, true);
        assert!(told * 100 >= most * 90, "seed {seed}: {told} of {most}");
    }
}

#[test]
fn a_host_that_is_never_away_keeps_its_queue_as_short_as_before() {
    let end = Time::ZERO + Nanos::from_secs(1);
    let always = || Host { away: Vec::new() };
    let mut pair = Pair::new("swift", always(), always());
    pair.run_until(end, true);
    let most = end.since(Time::ZERO).0 / PACKET_WORK.0 * PACKET_BYTES;
    assert!(pair.acked_bytes * 20 > most * 19, "{} of {most}", pair.acked_bytes);
    assert!(pair.longest_round_trip < Nanos::from_millis(6), "{}", pair.longest_round_trip);
}
