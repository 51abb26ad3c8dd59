//! A card: its queue pairs, and whose turn it is to send.

use super::NicConfig;
use super::frame::{Frame, FrameKind};
use super::receiver::Receiver;
use super::sender::Sender;
use crate::cluster::run::Machine;
use crate::cluster::{FlowCount, Load};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use towpath_base::Time;
use towpath_sim::{TxTrain, VirtualLink};
use towpath_verbs::PacketLink;

/// The ECN bits of a sender that heeds marks, and of a packet with a mark.
const ECN_CAPABLE: u8 = 0b10;
const ECN_MARKED: u8 = 0b11;

/// Packets taken in at a time.
const BUDGET: usize = 256;

/// One card.
pub(super) struct NicHost {
    link: VirtualLink,
    pub(super) config: NicConfig,
    pub(super) rate_bits_per_s: u64,
    senders: Vec<(usize, Sender, SocketAddr)>,
    /// By flow: where in `senders`.
    sender_of: BTreeMap<usize, usize>,
    receivers: BTreeMap<usize, (Receiver, SocketAddr)>,
    /// Acknowledgements and notifications that the wire has not taken yet.
    answers: VecDeque<(SocketAddr, Frame)>,
    /// The queue pair whose turn is next.
    turn: usize,
    /// Packets of data that were sent.
    sent: u64,
    /// The wire took no more.
    is_full: bool,
}

impl NicHost {
    pub(super) fn new(link: VirtualLink, config: NicConfig, rate_bits_per_s: u64) -> Self {
        Self {
            link,
            config,
            rate_bits_per_s,
            senders: Vec::new(),
            sender_of: BTreeMap::new(),
            receivers: BTreeMap::new(),
            answers: VecDeque::new(),
            turn: 0,
            sent: 0,
            is_full: false,
        }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.link.local_addr()
    }

    pub(super) fn send_to(&mut self, flow: usize, sender: Sender, peer: SocketAddr) {
        self.sender_of.insert(flow, self.senders.len());
        self.senders.push((flow, sender, peer));
    }

    pub(super) fn receive_from(&mut self, flow: usize, receiver: Receiver, peer: SocketAddr) {
        self.receivers.insert(flow, (receiver, peer));
    }

    /// Packets that were sent again, and all packets of data.
    pub(super) fn resent(&self) -> (u64, u64) {
        (self.senders.iter().map(|(_, sender, _)| sender.resent).sum(), self.sent)
    }

    fn take_in(&mut self, now: Time) -> usize {
        let Self { link, senders, sender_of, receivers, answers, .. } = self;
        link.receive_trains(BUDGET, &mut |train| {
            let Some(Frame { flow, kind }) = Frame::parse(train.bytes) else { return };
            let flow_index = flow as usize;
            let place = sender_of.get(&flow_index).copied();
            let sender = place.map(|place| &mut senders[place].1);
            match (kind, sender, receivers.get_mut(&flow_index)) {
                (FrameKind::Data { number, wants_ack }, _, Some((receiver, peer))) => {
                    let is_marked = train.tclass & ECN_MARKED == ECN_MARKED;
                    if is_marked && receiver.notifies(now) {
                        answers.push_back((*peer, Frame { flow, kind: FrameKind::Congested }));
                    }
                    if let Some(kind) = receiver.on_data(number, wants_ack) {
                        answers.push_back((*peer, Frame { flow, kind }));
                    }
                }
                (FrameKind::Ack { expected }, Some(sender), _) => sender.on_ack(expected, now),
                (FrameKind::Gap { expected, came }, Some(sender), _) => {
                    sender.on_gap(expected, came, now);
                }
                (FrameKind::Congested, Some(sender), _) => sender.on_congested(now),
                _ => {}
            }
        })
    }

    /// Counts what was delivered, posts what is due, and lets timers expire.
    fn look_after(&mut self, counts: &mut [FlowCount], now: Time) {
        for (flow, sender, _) in &mut self.senders {
            let (count, plan) = (&mut counts[*flow], sender.plan);
            let delivered = sender.delivered();
            count.bytes += (delivered - count.delivered) * u64::from(plan.message_bytes);
            (count.delivered, count.read) = (delivered, delivered);
            let Load::Closed { depth } = plan.load else { continue };
            if (plan.start..plan.stop).contains(&now) {
                while count.sent - count.delivered < u64::from(depth) {
                    sender.post();
                    count.sent += 1;
                }
            }
            if sender.retry_at() <= now {
                sender.on_timeout(now);
            }
        }
    }

    fn transmit(&mut self, dest: SocketAddr, frame: Frame, payload_bytes: u64) -> bool {
        let is_data = matches!(frame.kind, FrameKind::Data { .. });
        let tclass = if is_data && self.config.dcqcn.is_some() { ECN_CAPABLE } else { 0 };
        let train = TxTrain {
            dest,
            source_port: (frame.flow % u32::from(self.link.caps().source_ports)) as u16,
            tclass,
            packets: 1,
            byte_len: frame.wire_bytes(payload_bytes),
            token: 0,
            bytes: &frame.emit(),
        };
        self.is_full = self.link.transmit_trains(&[train]) == 0;
        !self.is_full
    }

    /// Sends answers, then one packet of each queue pair in turn.
    fn give_out(&mut self, now: Time) -> usize {
        let mut sent = 0;
        while let Some(&(dest, frame)) = self.answers.front() {
            if !self.transmit(dest, frame, 0) {
                return sent;
            }
            self.answers.pop_front();
            sent += 1;
        }
        for _ in 0..self.senders.len() {
            self.turn = (self.turn + 1) % self.senders.len();
            let (flow, sender, dest) = &mut self.senders[self.turn];
            let Some((number, wants_ack)) = sender.candidate() else { continue };
            if sender.paced_until(now) > now {
                continue;
            }
            let (payload_bytes, dest) = (sender.payload_bytes(number), *dest);
            let frame = Frame { flow: *flow as u32, kind: FrameKind::Data { number, wants_ack } };
            if !self.transmit(dest, frame, payload_bytes) {
                // Its turn is still to come.
                self.turn = (self.turn + self.senders.len() - 1) % self.senders.len();
                return sent;
            }
            let (_, sender, _) = &mut self.senders[self.turn];
            sender.on_sent(number, frame.wire_bytes(payload_bytes), now);
            self.sent += 1;
            sent += 1;
        }
        sent
    }
}

impl Machine for NicHost {
    type Shared = Vec<FlowCount>;

    fn turn(&mut self, counts: &mut Vec<FlowCount>) {
        let now = self.link.now();
        loop {
            let moved = self.take_in(now);
            self.look_after(counts, now);
            if moved + self.give_out(now) == 0 {
                return;
            }
        }
    }

    fn next_time(&self, now: Time, _: &Vec<FlowCount>) -> Time {
        let of = |(_, sender, _): &(usize, Sender, SocketAddr)| {
            let starts = if sender.plan.start > now { sender.plan.start } else { Time::NEVER };
            // Where the wire is full the world says when it is not.
            let waits = !self.is_full && sender.candidate().is_some();
            let paced = if waits { sender.sends_at().max(now) } else { Time::NEVER };
            starts.min(sender.retry_at()).min(paced)
        };
        self.senders.iter().map(of).fold(Time::NEVER, Time::min)
    }
}
