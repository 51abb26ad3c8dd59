//! One run: everything is drawn from its seed.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use towpath_base::{Nanos, Prng, Time};
use towpath_cc::{ControllerConfig, FixedWindowConfig};
use towpath_lab::app::{GiveUpLog, Planned};
use towpath_lab::failure::Failure;
use towpath_lab::limits::DRAIN_TURNS;
use towpath_lab::oracle::{Ending, Violation};
use towpath_lab::pair::{Happening, Pair, PairConfig};
use towpath_proto::{LinkCensus, LinkStats};
use towpath_sim::{FaultCounters, FaultPlan, LinkConfig as WireConfig};
use towpath_transport::EndpointConfig;
use towpath_verbs::Mtu;

/// Channels: each host opens two, one of them ordered.
const CHANNELS: usize = 4;

/// The longest message: several times what any drawn quota holds whole, so it is streamed.
const BYTES_MAX: u32 = 384 << 10;

/// Times that a reader stops reading for a while.
const PAUSES: u64 = 40;

const KIB: u64 = 1 << 10;

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct GiveUp {
    /// Where everything random comes from.
    pub seed: u64,
    /// Messages that each host sends.
    pub messages: u64,
}

/// What a run did.
#[derive(Clone, Debug)]
#[must_use]
pub struct GiveUpReport {
    /// What became of what was given up, both hosts together.
    pub log: GiveUpLog,
    /// Messages sent, both hosts together.
    pub messages: u64,
    /// Messages that readers got.
    pub delivered: u64,
    /// The counters of both ends of the link together.
    pub links: LinkStats,
    /// What the faults did, both ends together.
    pub faults: FaultCounters,
}

impl GiveUp {
    /// Runs it.
    ///
    /// # Errors
    /// [`Failure`] when a promise was broken, something was left behind, or the run gets stuck.
    pub fn run(&self) -> Result<GiveUpReport, Failure> {
        let mut prng = Prng::new(self.seed);
        let mut pair = Pair::new(config(self.seed, &mut prng))?;
        pair.join()?;
        let plans = [(); 2].map(|()| draw_faults(&mut prng));
        for (host, plan) in plans.into_iter().enumerate() {
            pair.host_mut(host).control.set_receive(plan);
        }
        open_channels(&mut pair)?;
        for host in 0..2 {
            let depth = 1 << prng.between(2, 6);
            let script = draw_script(&mut prng, pair.world().now(), self.messages, true);
            pair.host_mut(host).app.perform(script, depth);
        }
        for _ in 0..PAUSES {
            let at = pair.world().now() + Nanos(prng.below(self.messages * 4_000));
            let until = at + Nanos(1 << prng.between(12, 20));
            pair.schedule(at, prng.below(2) as usize, Happening::StopReading(until));
        }
        rest(&mut pair)?;
        check_nothing_left(&mut pair)?;
        for host in 0..2 {
            let script = draw_script(&mut prng, pair.world().now(), 8 * CHANNELS as u64, false);
            pair.host_mut(host).app.perform(script, 8);
        }
        rest(&mut pair)?;
        check_nothing_left(&mut pair)?;
        leave(&mut pair)?;
        Ok(self.report(&mut pair))
    }

    fn report(&self, pair: &mut Pair) -> GiveUpReport {
        let mut log = GiveUpLog::default();
        let mut faults = FaultCounters::default();
        for host in 0..2 {
            log.add(pair.host_mut(host).app.take_give_ups());
            faults = faults.plus(pair.host(host).control.counters());
        }
        GiveUpReport {
            log,
            messages: 2 * (self.messages + 8 * CHANNELS as u64),
            delivered: pair.oracle.messages_delivered(),
            links: pair.totals(),
            faults,
        }
    }
}

fn config(seed: u64, prng: &mut Prng) -> PairConfig {
    let addr = |last| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)), 4791);
    let rates = [10, 25, 100];
    let wire = WireConfig {
        addrs: [addr(1), addr(2)],
        rate_bits_per_s: rates[prng.below(3) as usize] * 1_000_000_000,
        delay: Nanos(prng.between(500, 10_000)),
        ..WireConfig::default()
    };
    let window = FixedWindowConfig::new(prng.between(32, 512) * KIB).unwrap_or_default();
    let mtu = if prng.chance(0.5) { Mtu::Mtu4096 } else { Mtu::Mtu1024 };
    let chunk_bytes_max = mtu.bytes() * prng.between(1, 4) as u32;
    let quota = 1 << prng.between(3, 6);
    let endpoint = EndpointConfig::new()
        .chunk_bytes_max(chunk_bytes_max)
        .quota_chunks(quota)
        .credit_total(quota * CHANNELS as u32)
        .progress_budget(32)
        .links_max(1)
        .send_queue_depth(64)
        .mtu_max(mtu)
        .shared_receiving(prng.chance(0.7))
        .send_pools(&[(256, 64), (4096, 64), (64 << 10, 32), (BYTES_MAX as usize, 4)])
        .controller(ControllerConfig::Fixed(window));
    PairConfig { seed, wire, spines: 0, endpoint, pause: Nanos::ZERO }
}

/// Loss, copies and disorder, all at once. Chunks have at most five packets.
fn draw_faults(prng: &mut Prng) -> FaultPlan {
    let us = Nanos::from_micros;
    let mut up_to = |most: f64| most * prng.unit();
    let (drop, duplicate, reorder, late) = (up_to(0.04), up_to(0.03), up_to(0.05), up_to(0.02));
    FaultPlan::none()
        .drop(drop)
        .duplicate(duplicate, us(200))
        .reorder(reorder, prng.between(1, 10) as u32, us(50))
        .late(late, us(20), us(2_000))
}

fn open_channels(pair: &mut Pair) -> Result<(), Failure> {
    for (host, ordered) in [(0, true), (0, false), (1, true), (1, false)] {
        let Some(link) = pair.link(host) else { continue };
        let opened = pair.host_mut(host).endpoint.open_channel(link, ordered);
        opened.map_err(|error| pair.failure(error))?;
    }
    pair.run_until("all channels are open", |pair| {
        (0..2).all(|host| pair.host(host).app.channels().len() == CHANNELS)
    })
}

fn draw_len(prng: &mut Prng) -> u32 {
    let most = match prng.below(100) {
        0..60 => 2 << 10,
        60..90 => 16 << 10,
        90..98 => 64 << 10,
        _ => return prng.between(64 << 10, u64::from(BYTES_MAX)) as u32,
    };
    // Even over the orders of magnitude.
    ((f64::from(most).log2() * prng.unit()).exp2() as u32).clamp(1, most)
}

/// A moment anywhere in the life of a message: at once, within a round trip, or long after.
fn draw_moment(prng: &mut Prng) -> Nanos {
    let bits = match prng.below(4) {
        0 => 10,
        1 | 2 => prng.between(10, 16),
        _ => prng.between(16, 22),
    };
    Nanos(prng.below(1 << bits))
}

fn draw_script(prng: &mut Prng, mut at: Time, count: u64, given_up: bool) -> Vec<Planned> {
    let mut script = Vec::with_capacity(count as usize);
    for number in 0..count {
        at += Nanos(if prng.chance(0.2) { prng.below(4_000) } else { 0 });
        let len = draw_len(prng);
        let moment = Some(draw_moment(prng)).filter(|_| given_up);
        let (cancel_after, deadline_after) =
            if prng.chance(0.3) { (None, moment) } else { (moment, None) };
        let segments = if len > 64 << 10 { 1 } else { prng.between(1, 3) as u32 };
        let channel = if given_up { prng.below(CHANNELS as u64) } else { number } as usize;
        script.push(Planned { at, channel, len, segments, cancel_after, deadline_after });
    }
    script
}

/// Until all messages have ended, all that came was given back, and both links are idle.
fn rest(pair: &mut Pair) -> Result<(), Failure> {
    let life = pair.life();
    pair.run_until("all messages have ended and come", |pair| {
        (0..2).all(|host| pair.host(host).app.is_done()) && pair.oracle.is_settled(life)
    })?;
    pair.clear_agenda();
    pair.run_until("all that was kept is read", |pair| {
        (0..2).all(|host| pair.host(host).app.holds_nothing())
    })?;
    pair.run_until("both links are idle", |pair| {
        let idle = |host| pair.link(host).is_none_or(|link| pair.host(host).endpoint.is_idle(link));
        (0..2).all(idle)
    })?;
    for _ in 0..DRAIN_TURNS {
        pair.run_for(Nanos::from_micros(1))?;
    }
    Ok(())
}

/// With the link up and at rest: no buffer, no credit and no state is held anywhere.
fn check_nothing_left(pair: &mut Pair) -> Result<(), Failure> {
    let ends = [0, 1].map(|host| {
        let endpoint = &pair.host(host).endpoint;
        let link = pair.link(host).and_then(|link| endpoint.link_census(link));
        (link.unwrap_or_default(), endpoint.buffers())
    });
    for host in 0..2 {
        let ((link, buffers), (peer, _)) = (ends[host], ends[1 - host]);
        // What is right when nothing is left, in terms of what the peer says.
        let clean = LinkCensus {
            channels: CHANNELS,
            credit_used_total: link.credit_used_total,
            credit_taken_total: peer.credit_used_total,
            sent_ids_total: link.sent_ids_total,
            ended_ids_total: peer.sent_ids_total,
            ..LinkCensus::default()
        };
        if link != clean {
            let census = Box::new(link);
            pair.oracle.report(Violation::StateLeft { host, census, clean: Box::new(clean) });
        }
        let held = buffers.recv_all - buffers.recv_posted - buffers.recv_free;
        if buffers.send_free != buffers.send_all || held > 0 {
            pair.oracle.report(Violation::BuffersLeft { host, census: buffers });
        }
    }
    pair.run_until("the verdict", |_| true)
}

/// One host leaves; then everything is home for good.
fn leave(pair: &mut Pair) -> Result<(), Failure> {
    let life = pair.life();
    (0..2).for_each(|host| pair.count(host));
    (0..2).for_each(|host| pair.host_mut(host).app.expect_closing());
    if let Some(link) = pair.link(0) {
        pair.host_mut(0).endpoint.close(link);
    }
    pair.run_until("both links are down", |pair| {
        (0..2).all(|host| pair.host(host).app.down(life).is_some())
    })?;
    pair.oracle.end_life(life, [Ending::Orderly; 2]);
    pair.run_until("the verdict", |_| true)
}
