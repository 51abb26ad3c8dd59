//! Receiving: datagrams come in batches, runs are cut into packets, packets go to the sink.

use super::clock::{StampClock, Stamper};
use super::coalescing::Coalescing;
use super::limits::{
    LONE_BYTES_MAX, LOOKS_APART_NS, RECV_CACHED_BYTES, RECV_MESSAGES_MAX, TCLASS_ASKED_FIRST,
    TCLASS_UNASKED,
};
use super::mmsg::RecvBatch;
use super::setup::ignore;
use super::sys;
use super::tx::Counts;
use core::hint::cold_path;
use core::net::SocketAddr;
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use towpath_base::Time;
use towpath_base::passes::{Pass, note};
use towpath_clock::Clock;
use towpath_verbs::RxPacket;

/// Calls in a row that may fail, for instance with errors of earlier sends, before a receive
/// gives up for this time.
const ERRORS_MAX: u32 = 8;

/// The receiving side of a link.
pub(super) struct Receiver {
    batch: RecvBatch,
    /// The first datagram not handed on whole, and how much of it was.
    slot: usize,
    offset: usize,
    /// When the batch came in.
    batch_time: Time,
    /// When this end last looked.
    looked_at: Time,
    /// How many datagrams to ask for: more while as many come, back to one when fewer do.
    burst: usize,
    wall: StampClock,
    /// Of the network card, where that stamps.
    card: Option<StampClock>,
    classes: Classes,
    coalescing: Coalescing,
}

/// When the kernel is asked for the traffic class of what comes in, which costs 0.13 us a call.
#[derive(Clone, Copy, Debug)]
enum Classes {
    /// For so many calls more.
    Asked(u32),
    /// Not for so many calls more.
    Unasked(u32),
    Always,
}

impl Receiver {
    /// Of a socket that is set up, on an interface whose card stamps by this clock.
    pub(super) fn new(coalescing: Coalescing, card: Option<Arc<File>>) -> Self {
        Self {
            batch: RecvBatch::new(),
            slot: 0,
            offset: 0,
            batch_time: Time::ZERO,
            looked_at: Time::ZERO,
            burst: 1,
            wall: StampClock::default(),
            card: card.map(|file| StampClock::of(Stamper::Card(file))),
            classes: Classes::Asked(TCLASS_ASKED_FIRST),
            coalescing,
        }
    }

    /// From now on asks for the traffic class of each datagram.
    pub(super) fn look_at_each_tclass(&mut self, socket: &UdpSocket, local: SocketAddr) {
        self.classes = Classes::Always;
        self.coalescing.fix(socket);
        ignore(sys::ask_for_tclass(socket.as_fd(), local, true));
    }

    /// After a call that received something: whether the next is to tell traffic classes.
    fn take_turns_in_asking(&mut self, socket: &UdpSocket, local: SocketAddr) {
        let (next, asked) = match self.classes {
            Classes::Asked(1) => (Classes::Unasked(TCLASS_UNASKED), false),
            Classes::Unasked(1) => (Classes::Asked(1), true),
            Classes::Asked(left) => return self.classes = Classes::Asked(left - 1),
            Classes::Unasked(left) => return self.classes = Classes::Unasked(left - 1),
            Classes::Always => return,
        };
        cold_path();
        self.classes = next;
        ignore(sys::ask_for_tclass(socket.as_fd(), local, asked));
    }

    /// Hands at most `budget` packets to `sink`; what is over waits for the next call. Fewer than
    /// `budget` does not mean that the socket is empty, none does.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        place: (&Clock, SocketAddr),
        budget: usize,
        counts: &mut Counts,
        sink: &mut dyn FnMut(RxPacket<'_>),
    ) -> usize {
        let mut handed = 0;
        if self.holds_packets() {
            cold_path();
            handed = self.hand_on(place, budget, counts, sink);
        }
        let mut errors = 0;
        let is_late = self.look_again(place.0.now());
        while handed < budget {
            let limit = (budget - handed).min(self.burst);
            counts.udp.receive_calls += 1;
            (self.slot, self.offset) = (0, 0);
            let is_plain = self.coalescing.is_off() && matches!(self.classes, Classes::Unasked(_));
            let is_plain = is_plain && !is_late;
            let outcome = match limit {
                1 if is_plain => self.batch.recv_plain(socket.as_fd()),
                _ => self.batch.recv(socket.as_fd(), limit),
            };
            match outcome {
                Ok(received) => {
                    self.batch_time = place.0.now();
                    let in_runs_before = counts.udp.segments_received;
                    let all = received == limit;
                    self.burst = if all { self.next_burst(limit) } else { 1 };
                    handed += match self.batch.plain() {
                        Some((bytes, source)) => {
                            counts.udp.messages_received += 1;
                            counts.link.packets_received += 1;
                            counts.link.bytes_received += bytes.len() as u64;
                            note(Pass::Socket, bytes.len());
                            let (dest, timestamp) = (place.1, self.batch_time);
                            sink(RxPacket { source, dest, tclass: None, bytes, timestamp });
                            self.slot = 1;
                            1
                        }
                        None => self.hand_on(place, budget - handed, counts, sink),
                    };
                    let is_lone = received == 1
                        && self.batch.first_bytes() <= LONE_BYTES_MAX
                        && counts.udp.segments_received == in_runs_before;
                    self.coalescing.note(socket, is_lone);
                    self.take_turns_in_asking(socket, place.1);
                    // A lone datagram is acted on before the next is asked for.
                    if !all || limit == 1 {
                        break;
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                    self.burst = 1;
                    break;
                }
                Err(_) => {
                    cold_path();
                    counts.udp.receive_errors += 1;
                    errors += 1;
                    if errors == ERRORS_MAX {
                        break;
                    }
                }
            }
        }
        handed
    }

    /// This end looks now; whether what comes may have come long before.
    #[inline]
    fn look_again(&mut self, now: Time) -> bool {
        let before = core::mem::replace(&mut self.looked_at, now);
        now.since(before).0 >= LOOKS_APART_NS
    }

    /// How many datagrams to ask for after as many came as were asked for: twice as many, and of
    /// the first one's length no more than stay in a cache until they are looked at.
    fn next_burst(&self, limit: usize) -> usize {
        let in_cache = RECV_CACHED_BYTES / self.batch.first_bytes().max(1);
        (limit * 2).min(RECV_MESSAGES_MAX).min(in_cache)
    }

    /// Hands on what is held.
    #[inline(never)]
    fn hand_on(
        &mut self,
        (clock, dest): (&Clock, SocketAddr),
        budget: usize,
        counts: &mut Counts,
        sink: &mut dyn FnMut(RxPacket<'_>),
    ) -> usize {
        let mut handed = 0;
        while self.slot < self.batch.len() && handed < budget {
            let datagram = self.batch.datagram(self.slot);
            if self.offset == 0 {
                counts.udp.messages_received += 1;
                counts.udp.truncated += u64::from(datagram.truncated);
            }
            let (Some(source), false) = (datagram.source, datagram.truncated) else {
                self.slot += 1;
                continue;
            };
            let timestamp = match (datagram.card_ns.zip(self.card.as_mut()), datagram.wall_ns) {
                (Some((card_ns, card)), _) => card.bring_over(card_ns, self.batch_time, clock),
                (None, Some(wall_ns)) => self.wall.bring_over(wall_ns, self.batch_time, clock),
                (None, None) => self.batch_time,
            };
            // The kernel joins packets of one traffic class only.
            let (len, tclass) = (datagram.bytes.len(), datagram.tclass);
            let step = datagram.segment.filter(|&bytes| bytes > 0).unwrap_or(len);
            let in_run = step < len;
            // An empty datagram is one empty packet.
            loop {
                let end = (self.offset + step).min(len);
                let bytes = &datagram.bytes[self.offset..end];
                counts.link.packets_received += 1;
                counts.link.bytes_received += bytes.len() as u64;
                note(Pass::Socket, bytes.len());
                counts.udp.segments_received += u64::from(in_run);
                sink(RxPacket { source, dest, tclass, bytes, timestamp });
                self.offset = end;
                handed += 1;
                if end == len || handed == budget {
                    break;
                }
            }
            if self.offset == len {
                self.slot += 1;
                self.offset = 0;
            }
        }
        handed
    }

    #[cfg(test)]
    pub(super) fn is_coalescing_paused(&self) -> bool {
        self.coalescing == Coalescing::Paused
    }

    /// Whether packets that came in wait to be handed on.
    pub(super) fn holds_packets(&self) -> bool {
        self.slot < self.batch.len()
    }
}
