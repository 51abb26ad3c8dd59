//! Packets: through cards and over the wire, lost and sent again.

use super::plan::{Program, Transport, Waiting};
use super::world::{CLIENTS, Event, Packet, SERVER, What, World};
use towpath_kv::workload::{Kind, Mix};

/// What precedes a message: of InfiniBand 30 bytes (LRH, BTH, ICRC, VCRC) and 16 of the READ's
/// address or the datagram's, counted always; of TCP over it 44 more, of Towpath 64.
const HEADERS: u64 = 46;
const TCP_HEADERS: u64 = 44;
const TOWPATH_HEADERS: u64 = 64;

/// The thesis's request has 352 bytes and its reply 272, whatever is asked (figures 3.1 and 3.2).
const STUDY_REQUEST: u64 = 352;
const STUDY_REPLY: u64 = 272;

/// How often a sender sends again at most: a run with more loss than that is no question.
const TRIES_MAX: u32 = 30;

impl World<'_> {
    fn bytes(&self, what: What, changes: bool) -> u64 {
        let is_study = self.plan.mix == Mix::Study;
        let value = self.plan.mix.value_bytes() as u64;
        let message = match what {
            What::Request if is_study => STUDY_REQUEST,
            What::Reply if is_study => STUDY_REPLY,
            // Header and key, and the value of what changes; ours has 32 and 24.
            What::Request => 32 + 23 + if changes { value } else { 0 },
            What::Reply => 24 + if changes { 0 } else { value },
            What::Found => value,
            What::Ack | What::Read => 0,
        };
        let more = match self.plan.transport {
            Transport::Tcp => TCP_HEADERS,
            Transport::Towpath => TOWPATH_HEADERS,
            _ => 0,
        };
        HEADERS + more + message
    }

    /// Sends a packet, and again until it comes, where the transport does so.
    pub(super) fn transmit(&mut self, packet: Packet) {
        let from = 1 - usize::from(packet.to);
        let queue_pair = self.plan.queue_pair(packet.client, from == SERVER);
        let passed = self.cards[from].pass(self.now, queue_pair, &mut self.prng);
        let hardware = &self.plan.hardware;
        let changes = self.clients[packet.client as usize].task.kind != Kind::Read;
        let ready = passed + hardware.host;
        let sent =
            self.cards[from].send(ready, self.bytes(packet.what, changes), hardware.line_gbps);
        if !self.plan.transport.is_rc() && self.plan.waits_for_sends() {
            let gone = sent + hardware.host;
            let told = self.told(from, gone);
            self.at(told, Event::Sent(packet.sender));
        }
        if let Some(late) = self.lost() {
            self.at(sent + hardware.link + late, Event::Arrive(packet));
        }
    }

    /// How much later a packet comes because it was lost; `None` if nobody sends it again.
    fn lost(&mut self) -> Option<u64> {
        let losses = &self.plan.losses;
        let (first, doubles) = match self.plan.transport {
            Transport::Uc | Transport::Ud => (0, false),
            Transport::Rc | Transport::OneSided => (losses.rc, false),
            Transport::Tcp => (losses.tcp, true),
            Transport::Towpath => (losses.towpath, true),
        };
        let mut late = 0;
        for tries in 0..TRIES_MAX {
            if !self.prng.chance(losses.share) {
                break;
            }
            self.out.lost += 1;
            if self.plan.transport.is_raw() {
                return None;
            }
            late += first << if doubles { tries.min(10) } else { 0 };
        }
        Some(late)
    }

    /// When a machine's threads may know of what is in memory then: at once where they poll,
    /// otherwise when the processor that gets the interrupts has handled its.
    fn told(&mut self, side: usize, in_memory: u64) -> u64 {
        let takes = match (self.plan.transport, self.plan.waiting(side)) {
            (Transport::Tcp, _) => self.plan.costs.tcp_arrival,
            (_, Waiting::Blocking) => self.plan.hardware.interrupt,
            (_, Waiting::Polling) => return in_memory,
        };
        if self.plan.program == Program::Ours {
            // Interrupts go to as many processors as there are.
            return in_memory + takes;
        }
        self.interrupt(side, takes).max(in_memory)
    }

    /// A packet is at the card of its destination.
    pub(super) fn arrive(&mut self, packet: Packet) {
        let to = usize::from(packet.to);
        let queue_pair = self.plan.queue_pair(packet.client, to == SERVER);
        let passed = self.cards[to].pass(self.now, queue_pair, &mut self.prng);
        let hardware = &self.plan.hardware;
        let in_memory = passed + hardware.host;
        match packet.what {
            What::Ack => {
                let told = self.told(to, in_memory);
                self.at(told, Event::Sent(packet.sender));
            }
            What::Read => {
                // The card asks the memory, which costs a round trip, and answers.
                let read = in_memory + hardware.host + self.plan.packet();
                let back = Packet { what: What::Found, to: CLIENTS as u8, ..packet };
                let bytes = self.bytes(What::Found, false);
                let sent = self.cards[SERVER].send(read, bytes, hardware.line_gbps);
                if let Some(late) = self.lost() {
                    self.at(sent + hardware.link + late, Event::Arrive(back));
                }
            }
            What::Request | What::Reply | What::Found => {
                let in_memory = self.told(to, in_memory);
                self.at(in_memory, Event::Deliver(packet));
                if self.plan.transport.is_rc() && packet.what != What::Found {
                    self.acknowledge(packet, queue_pair);
                }
            }
        }
    }

    /// The card of the receiver acknowledges; the sender's card sees it, late if it was lost.
    fn acknowledge(&mut self, packet: Packet, queue_pair: u32) {
        let to = usize::from(packet.to);
        let passed = self.cards[to].pass(self.now, queue_pair, &mut self.prng);
        let hardware = &self.plan.hardware;
        let sent = self.cards[to].send(passed, HEADERS, hardware.line_gbps);
        let late = self.lost().unwrap_or(0);
        let ack = Packet { what: What::Ack, to: 1 - packet.to, ..packet };
        self.at(sent + hardware.link + late, Event::Arrive(ack));
    }
}
