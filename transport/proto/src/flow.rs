//! What all paths of a link, and its one-sided operations, share: window, pacing, chunk size.
//!
//! A link has one window over all its paths, so that one with sixteen takes no more of a network
//! than one with one. Each path keeps its own round-trip times, by which it is chosen.

mod operations;
#[cfg(test)]
mod tests;

use crate::carrier::Carrier;
use crate::chunk_size::ChunkSize;
use crate::config::{LinkConfig, PeerParams};
use crate::limits::{BURST_BYTES, STREAM_WINDOW_BYTES};
use core::hint::cold_path;
use operations::{Operations, share_of};
use towpath_base::{Nanos, Time};
use towpath_cc::{
    AckSample, AnyController, Cached, Controller, LossSample, Pacer, PathFacts, Rate, RttConfig,
    RttEstimator,
};
use towpath_verbs::Mtu;

/// Before the first sample the peer may be on another continent or off its CPU.
const RTO_INITIAL: Nanos = Nanos::from_millis(20);

/// A window holds at least so many chunks, unless it holds less than so many packets: acks then
/// come often enough to send smoothly by.
const CHUNKS_PER_WINDOW: u64 = 4;

/// A delay of acks within the hosts is half forgotten in some two thirds of this: busy hosts are
/// away for some milliseconds several times in it.
const HOLD_FORGOTTEN_AFTER: Nanos = Nanos::from_millis(100);

/// What governs how much of a link is under way.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) cc: Cached<AnyController>,
    pub(crate) pacer: Pacer,
    pub(crate) chunk_size: ChunkSize,
    /// Bytes of the longest send, with its header.
    send_bytes_max: u32,
    /// Round trips of all paths together.
    pub(crate) rtt: RttEstimator,
    /// What the peer lets us have in flight.
    pub(crate) peer_window_bytes: u64,
    /// What is in flight on all paths.
    pub(crate) in_flight_bytes: u64,
    operations: Operations,
    /// The longest recent delay of acks within the hosts, decaying.
    hold_max: Nanos,
    held_at: Time,
    /// The longest that our host was away of late, as far as that is measured.
    away: Nanos,
    /// A chunk found the window full, and it has not opened by a burst since.
    window_full: bool,
    /// Window or pacer, not the application, held us back when we last looked for a chunk.
    window_limited: bool,
    /// A chunk larger than the window went out: nothing more before this.
    oversize_until: Time,
    /// When the pacer lets the next chunk go; `NEVER` when it is not what holds us back.
    pub(crate) paced_until: Time,
    charge_bytes: u32,
    /// What the controller takes for a full packet: that of the path whose acks it heard last.
    packet_bytes: u32,
    /// TCP has a window and a pace of its own, and knows more of its way than our samples do.
    is_stream: bool,
}

/// An estimator as a link begins with.
pub(crate) fn estimator(config: &LinkConfig) -> RttEstimator {
    let rtt = RttConfig::default()
        .with_rto_initial(RTO_INITIAL)
        .with_rto_range(config.times.rto.0, config.times.rto.1)
        .expect("LinkConfig::rto keeps the bounds in order");
    RttEstimator::new(rtt)
}

impl Flow {
    pub(crate) fn new(config: &LinkConfig, peer: &PeerParams, now: Time) -> Self {
        let chunk_bytes_max = config.flow.chunk_bytes_max.min(peer.chunk_bytes_max);
        let packet_bytes = peer.mtu.bytes() + peer.charge_bytes;
        let facts = PathFacts { packet_bytes, delay_noise: config.flow.delay_noise };
        Self {
            cc: Cached::new(config.flow.controller.build(now, &facts)),
            pacer: Pacer::new(now, BURST_BYTES),
            chunk_size: ChunkSize::new(peer.mtu.bytes(), chunk_bytes_max, config),
            send_bytes_max: u32::MAX,
            rtt: estimator(config),
            peer_window_bytes: peer.window_bytes,
            in_flight_bytes: 0,
            operations: Operations::new(config),
            hold_max: Nanos::ZERO,
            held_at: now,
            away: Nanos::ZERO,
            window_full: false,
            window_limited: false,
            oversize_until: now,
            paced_until: Time::NEVER,
            charge_bytes: peer.charge_bytes,
            packet_bytes,
            is_stream: Carrier::best(&peer.carriers) == Carrier::Tcp,
        }
    }

    /// Rides on another carrier: its window, pace and round trips are unknown.
    pub(crate) fn ride_on(
        &mut self,
        now: Time,
        carrier: Carrier,
        (config, peer): (&LinkConfig, &PeerParams),
    ) {
        let before = core::mem::replace(self, Self::new(config, peer, now));
        self.peer_window_bytes = before.peer_window_bytes;
        self.in_flight_bytes = before.in_flight_bytes;
        self.operations = before.operations;
        self.is_stream = carrier == Carrier::Tcp;
        self.set_away(before.away);
    }

    /// All that the controller has heard of late was of packets that were too long for the way: it
    /// begins anew, with packets of `mtu`. Round trips stay known.
    pub(crate) fn restart_controller(&mut self, now: Time, config: &LinkConfig, mtu: Mtu) {
        self.packet_bytes = mtu.bytes() + self.charge_bytes;
        let facts =
            PathFacts { packet_bytes: self.packet_bytes, delay_noise: config.flow.delay_noise };
        self.cc = Cached::new(config.flow.controller.build(now, &facts));
        self.cc.set_away(self.away);
        self.oversize_until = now;
    }

    /// What the controller hears next is of a path with packets of `mtu`.
    #[inline]
    fn hear_of(&mut self, mtu: Mtu) {
        let packet_bytes = mtu.bytes() + self.charge_bytes;
        if packet_bytes != self.packet_bytes {
            cold_path();
            self.packet_bytes = packet_bytes;
            self.cc.set_packet_bytes(packet_bytes);
        }
    }

    /// Our host is away for up to `away` at a time.
    pub(crate) fn set_away(&mut self, away: Nanos) {
        self.away = away;
        self.cc.set_away(away);
    }

    /// How long acks may wait within the hosts. Of a peer's absences nothing is known before they
    /// have happened; hosts that talk to each other are taken to be alike.
    pub(crate) fn hosts_max(&self) -> Nanos {
        self.hold_max.max(self.away)
    }

    /// What a chunk counts against windows: its bytes and what the receiver charges beside them.
    #[inline(always)]
    pub(crate) fn charge(&self, body_bytes: u32) -> u32 {
        body_bytes + self.chunk_size.around_bytes() + self.charge_bytes
    }

    /// What may be in flight as far as the way there goes.
    pub(crate) fn window_bytes(&self) -> u64 {
        if self.is_stream { STREAM_WINDOW_BYTES } else { self.cc.window_bytes() }
    }

    /// What of that is for chunks, beside operations of the lane.
    #[inline]
    fn share_bytes(&self) -> u64 {
        let window = self.window_bytes();
        if self.is_stream { window } else { share_of(window, self.operations.in_flight_bytes) }
    }

    /// Whether windows and pacer let a chunk go. Of what is ready behind its first frame there are
    /// `ready_bytes`: it waits for room for as much of that as it can carry, for else each ack
    /// would let a short one go.
    #[inline]
    pub(crate) fn may_send(&mut self, now: Time, body_bytes: u32, ready_bytes: u64) -> bool {
        let behind = ready_bytes.min(u64::from(self.body_max().saturating_sub(body_bytes)));
        if !self.has_room(body_bytes + behind as u32) {
            return false;
        }
        let at = self.ready_at(now, body_bytes);
        if at > now {
            self.paced_until = at;
        }
        at <= now
    }

    /// Whether the windows have room for a chunk. One chunk always goes when nothing is in flight:
    /// windows may be smaller than a packet, and chunks are not cut shorter than one.
    ///
    /// A window that was full opens again only when there is room for a burst (or a quarter of the
    /// window): chunks that are let go one by one, as acks come, leave in sends as small as they,
    /// and come in so, and are acknowledged so, for ever.
    pub(crate) fn has_room(&mut self, body_bytes: u32) -> bool {
        let in_flight = self.in_flight_bytes;
        let charge = u64::from(self.charge(body_bytes));
        let of_controller = self.share_bytes();
        let window = of_controller.min(self.peer_window_bytes);
        let wanted =
            if self.window_full { charge.max(BURST_BYTES.min(window / 4)) } else { charge };
        self.window_full = in_flight > 0 && in_flight + wanted > window;
        // A chunk that goes although it is larger than the window shows the limit as well.
        let blocked = self.window_full && of_controller <= self.peer_window_bytes;
        self.window_limited = blocked || in_flight + charge > of_controller;
        !self.window_full
    }

    /// Bytes behind the header of the next chunk, at most: what loss suggests, and no more than a
    /// part of the window, so that a sender with a small share of a link puts small chunks into its
    /// queue.
    pub(crate) fn body_max(&self) -> u32 {
        let body = self.chunk_size.body_within(self.window_bytes() / CHUNKS_PER_WINDOW);
        self.within_send(body)
    }

    /// Bytes behind the header of a chunk of one packet.
    pub(crate) fn one_packet(&self) -> u32 {
        self.within_send(self.chunk_size.one_packet())
    }

    fn within_send(&self, body: u32) -> u32 {
        body.min(self.send_bytes_max.saturating_sub(self.chunk_size.around_bytes()))
    }

    /// Packets are so long, and no send is longer than so many bytes.
    pub(crate) fn set_packets(&mut self, mtu: Mtu, send_bytes_max: u32) {
        self.chunk_size.set_packet_bytes(mtu.bytes());
        self.send_bytes_max = send_bytes_max;
    }

    /// There was nothing to send: the application is what holds us back.
    pub(crate) fn on_nothing_to_send(&mut self) {
        self.window_limited = false;
    }

    /// When pacing lets the next chunk go.
    pub(crate) fn ready_at(&mut self, now: Time, body_bytes: u32) -> Time {
        if self.is_stream {
            return now;
        }
        let charge = u64::from(self.charge(body_bytes));
        let at = self.pacer.ready_at(now, charge, self.cc.pacing_rate()).max(self.oversize_until);
        self.window_limited |= at > now;
        at
    }

    /// What a chunk may be charged that was let go with less: as much as the windows have room for.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        let window = self.share_bytes().min(self.peer_window_bytes);
        window.saturating_sub(self.in_flight_bytes)
    }

    /// A chunk goes out.
    #[inline(always)]
    pub(crate) fn on_sent(&mut self, now: Time, body_bytes: u32) {
        self.chunk_size.on_sent(body_bytes);
        self.on_charged(now, u64::from(self.charge(body_bytes)));
    }

    #[inline(always)]
    fn on_charged(&mut self, now: Time, charge: u64) {
        self.in_flight_bytes += charge;
        if !self.is_stream && charge > self.cc.window_bytes() {
            self.hold_after_oversize(now, charge, self.rtt.smoothed());
        }
        self.pacer.on_sent(now, charge, self.cc.pacing_rate());
    }

    /// A window may be smaller than a packet, and chunks are not cut shorter than one: one that is
    /// larger than the window goes alone, and takes as long as the window says that its bytes take.
    #[inline(never)]
    fn hold_after_oversize(&mut self, now: Time, charge: u64, srtt: Option<Nanos>) {
        let window = self.cc.window_bytes();
        let Some(srtt) = srtt else { return };
        if self.cc.pacing_rate().is_none() {
            let span = Rate::from_bytes_per(window, srtt).time_for(charge);
            self.oversize_until = now + span;
        }
    }

    /// Feeds a retransmission timeout to the controller.
    pub(crate) fn on_rto(&mut self, now: Time) {
        // What was sent is paid for at the rate at which it was.
        self.pacer.on_sent(now, 0, self.cc.pacing_rate());
        self.cc.on_rto(now);
    }

    /// What the last timeouts took for lost had come.
    pub(crate) fn on_false_rto(&mut self) {
        self.cc.on_false_rto();
    }

    /// Feeds the estimator and the controller with what an ack brought, on a path with packets of
    /// `mtu`: one that was under way and held in the hosts for `endpoint`, and that took `rtt`
    /// beside. `landed_bytes` of what it acknowledges were in flight until now.
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        mtu: Mtu,
        (rtt, endpoint): (Option<Nanos>, Nanos),
        (acked_chunks, acked_bytes, landed_bytes): (u32, u64, u64),
    ) {
        if let Some(rtt) = rtt {
            self.rtt.update(rtt);
            self.note_hold(now, endpoint);
        }
        let in_flight_bytes = self.in_flight_bytes;
        self.in_flight_bytes -= landed_bytes;
        if acked_chunks == 0 {
            return;
        }
        self.hear_of(mtu);
        // A chunk is a part of the window at most: a message that goes alone and fits one is held
        // back by nothing else, and would go in several for ever.
        let is_chunk = in_flight_bytes >= self.cc.window_bytes() / CHUNKS_PER_WINDOW;
        self.cc.on_ack(&AckSample {
            now,
            rtt,
            endpoint,
            acked_bytes,
            acked_chunks,
            in_flight_bytes,
            window_limited: self.window_limited || is_chunk,
            chunk_bytes: self.body_max(),
        });
    }

    /// An ack waited in the hosts for so long. A host that was away will be away again, and a delay
    /// that is longer than others is forgotten with time, not with the acks that come right after.
    fn note_hold(&mut self, now: Time, endpoint: Nanos) {
        let since = now.since(core::mem::replace(&mut self.held_at, now)).min(HOLD_FORGOTTEN_AFTER);
        let kept = 1.0 - since.0 as f64 / HOLD_FORGOTTEN_AFTER.0 as f64;
        self.hold_max = Nanos((self.hold_max.0 as f64 * kept) as u64).max(endpoint);
    }

    /// Numbers were declared lost that were in flight.
    pub(crate) fn on_gone(&mut self, lost_bytes: u64) {
        self.in_flight_bytes -= lost_bytes;
    }

    /// Takes in losses found by a gap, on a path with packets of `mtu`; `singles` of them are
    /// chunks of one packet.
    pub(crate) fn on_losses(
        &mut self,
        now: Time,
        mtu: Mtu,
        (lost_chunks, singles): (u32, u32),
        lost_bytes: u64,
    ) {
        self.chunk_size.on_lost(lost_chunks as i32, singles as i32);
        self.hear_of(mtu);
        let in_flight_bytes = self.in_flight_bytes;
        self.cc.on_loss(&LossSample { now, lost_bytes, lost_chunks, in_flight_bytes });
    }
}
