//! Flows that share one queue, with nothing else in the world: what controllers settle at.

use std::collections::BinaryHeap;

use std::cmp::Reverse;

use towpath_base::{Nanos, Prng, Time};

use towpath_cc::limits::OFFLOADED_SEND_BYTES;
use towpath_cc::{AckSample, AnyController, Controller, ControllerConfig, Pacer, PathFacts};

/// Bytes of a packet, and what it takes of the wire.
const PACKET_BYTES: u64 = 4096;

/// Flows that start together do so within this, from a seed.
const SPREAD: Nanos = Nanos::from_micros(100);

/// A port at 100 Gb/s that drops nothing, and those who send through it all the time.
struct Bottleneck {
    flows: Vec<Flow>,
    /// What comes next: when, to which flow, when the packet left that is acknowledged.
    events: BinaryHeap<Reverse<(Time, usize, Option<Time>)>>,
    now: Time,
    /// When the port has sent all that it has.
    free_at: Time,
    /// How long it has been without work.
    idle: Nanos,
}

struct Flow {
    controller: AnyController,
    pacer: Pacer,
    base_rtt: Nanos,
    in_flight_bytes: u64,
    acked_bytes: u64,
    window_limited: bool,
    /// When it looks again by itself.
    wakes_at: Time,
}

impl Bottleneck {
    /// Flows with these base round trips that start at these times, or up to [`SPREAD`] later.
    fn new(seed: u64, word: &str, flows: &[(Nanos, Time)]) -> Self {
        let config: ControllerConfig = word.parse().unwrap();
        let (mut prng, now) = (Prng::new(seed), Time::ZERO);
        let flow = |&(base_rtt, _): &(Nanos, Time)| Flow {
            controller: config.build(now, &PathFacts::default()),
            pacer: Pacer::new(now, OFFLOADED_SEND_BYTES),
            base_rtt,
            in_flight_bytes: 0,
            acked_bytes: 0,
            window_limited: false,
            wakes_at: Time::NEVER,
        };
        let starts = flows.iter().map(|&(_, start)| start + Nanos(prng.below(SPREAD.0)));
        let events = starts.enumerate().map(|(flow, start)| Reverse((start, flow, None)));
        let (events, flows) = (events.collect(), flows.iter().map(flow).collect());
        Self { flows, events, now, free_at: now, idle: Nanos::ZERO }
    }

    fn run_for(&mut self, span: Nanos) {
        let end = self.now + span;
        while let Some(&Reverse((at, flow, sent_at))) = self.events.peek() {
            if at > end {
                break;
            }
            self.events.pop();
            self.now = at;
            if let Some(sent_at) = sent_at {
                self.acknowledge(flow, sent_at);
            }
            self.send(flow);
        }
        self.now = end;
    }

    fn acknowledge(&mut self, number: usize, sent_at: Time) {
        let flow = &mut self.flows[number];
        flow.controller.on_ack(&AckSample {
            now: self.now,
            rtt: Some(self.now.since(sent_at)),
            endpoint: Nanos::ZERO,
            acked_bytes: PACKET_BYTES,
            acked_chunks: 1,
            in_flight_bytes: flow.in_flight_bytes,
            window_limited: flow.window_limited,
            chunk_bytes: PACKET_BYTES as u32,
        });
        flow.in_flight_bytes -= PACKET_BYTES;
        flow.acked_bytes += PACKET_BYTES;
    }

    fn send(&mut self, number: usize) {
        let flow = &mut self.flows[number];
        loop {
            let in_flight = flow.in_flight_bytes;
            flow.window_limited = in_flight + PACKET_BYTES > flow.controller.window_bytes();
            if in_flight > 0 && flow.window_limited {
                return;
            }
            let rate = flow.controller.pacing_rate();
            let ready_at = flow.pacer.ready_at(self.now, PACKET_BYTES, rate);
            if ready_at > self.now {
                flow.window_limited = true;
                if flow.wakes_at <= self.now || ready_at < flow.wakes_at {
                    flow.wakes_at = ready_at;
                    self.events.push(Reverse((ready_at, number, None)));
                }
                return;
            }
            flow.pacer.on_sent(self.now, PACKET_BYTES, rate);
            flow.in_flight_bytes += PACKET_BYTES;
            self.idle = self.idle + self.now.since(self.free_at);
            // 8 bits take 0.08 ns.
            self.free_at = self.free_at.max(self.now) + Nanos(PACKET_BYTES * 8 / 100);
            let acked_at = self.free_at + flow.base_rtt;
            self.events.push(Reverse((acked_at, number, Some(self.now))));
        }
    }

    /// What each flow got since the last call, in bytes, and for how long the port was idle.
    fn take(&mut self) -> (Vec<u64>, Nanos) {
        let acked = self.flows.iter_mut().map(|flow| std::mem::take(&mut flow.acked_bytes));
        (acked.collect(), std::mem::replace(&mut self.idle, Nanos::ZERO))
    }
}

/// Goodput of each flow in Gb/s, and the share of the time that the port was busy, over `span`.
fn shares(bottleneck: &mut Bottleneck, span: Nanos) -> (Vec<f64>, f64) {
    bottleneck.take();
    bottleneck.run_for(span);
    let (bytes, idle) = bottleneck.take();
    let gbps = bytes.into_iter().map(|bytes| bytes as f64 * 8.0 / span.0 as f64).collect();
    (gbps, 1.0 - idle.0 as f64 / span.0 as f64)
}

#[test]
fn a_flow_alone_fills_its_port_however_long_the_path_is() {
    for rtt_us in [2, 10, 25, 40, 80] {
        let mut alone = Bottleneck::new(1, "swift", &[(Nanos::from_micros(rtt_us), Time::ZERO)]);
        alone.run_for(Nanos::from_millis(30));
        let (gbps, busy) = shares(&mut alone, Nanos::from_millis(10));
        assert!(gbps[0] > 93.0 && busy > 0.93, "{rtt_us} us: {gbps:?} {busy}");
    }
}

#[test]
fn two_flows_come_to_like_shares_whether_they_start_together_or_not() {
    for rtt in [10, 40].map(Nanos::from_micros) {
        for later in [0, 3_000].map(|us| Time::ZERO + Nanos::from_micros(us)) {
            for seed in 1..=5 {
                let flows = [(rtt, Time::ZERO), (rtt, later)];
                let mut two = Bottleneck::new(seed, "swift", &flows);
                two.run_for(Nanos::from_millis(60));
                let (gbps, busy) = shares(&mut two, Nanos::from_millis(5));
                let (less, more) = (gbps[0].min(gbps[1]), gbps[0].max(gbps[1]));
                let of = format!("{rtt}, {later:?}, seed {seed}: {gbps:?} {busy}");
                assert!(less > 0.7 * more && busy > 0.93, "{of}");
            }
        }
    }
}

#[test]
fn thousands_of_flows_keep_the_port_busy_and_none_of_them_starves() {
    for flows in [1_000, 6_000] {
        let rtt = Nanos::from_micros(10);
        let mut many = Bottleneck::new(1, "swift", &vec![(rtt, Time::ZERO); flows]);
        // What a packet of each takes.
        let round = Nanos(flows as u64 * 328);
        many.run_for(round.saturating_mul(30));
        let (gbps, busy) = shares(&mut many, round.saturating_mul(80));
        let least = gbps.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(busy > 0.97, "{flows}: {busy}");
        assert!(least > 0.0, "{flows}: {least}");
    }
}
