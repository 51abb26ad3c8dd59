//! Receiving: packets become messages, by the rules of UC and UD.
//!
//! What a queue pair does with a packet, and where that comes from (IBA = InfiniBand Architecture,
//! volume 1, 9.8.2 and 9.8.3; rxe = the Linux driver; choice = ours, where those leave it open):
//!
//! - A FIRST or ONLY packet starts a message at any PSN; one under way is lost silently (IBA, rxe).
//! - A MIDDLE or LAST packet that is not the next one of the message under way is dropped, and the
//!   rest of its message with it (IBA, rxe).
//! - The packets of a message but its last are all of one size: one of the five that RoCE knows, no
//!   longer than the MTU of the queue pair (choice: IBA knows no size but that MTU, and foreign
//!   peers send no other; ours send shorter packets where the path carries no longer ones).
//! - The payload lands packet by packet: a message that is lost later stays half written (IBA).
//! - SEND takes a receive work request at its first packet. When the message is lost, the work
//!   request is kept and the next message starts again at its first byte (choice: as IBA allows;
//!   rxe drops that next message too, and wedges with a shared receive queue).
//! - WRITE takes one at the packet with the immediate, before its payload lands. Without one the
//!   packet is dropped, though earlier ones have landed (IBA, rxe).
//! - Key, range and length of a WRITE are checked at its first packet against the RETH; a bad one
//!   is dropped silently (rxe without a shared queue; hardware too).
//! - A SEND that is longer than its receive work request completes it with `LocLenErr`, nothing
//!   of the packet that did not fit is written, and the queue pair stays up (choice: hardware
//!   reports it and rxe does so with a shared queue only).
//! - Receive memory that was deregistered: `LocProtErr`, and the queue pair goes to ERR.

use crate::addr::is_same;
use crate::counters::RoceCounters;
use crate::cq::Cqs;
use crate::limits::GRH_BYTES;
use crate::qp::Qp;
use crate::recv_queue::{PostedRecv, RecvQueue};
use crate::requester::pieces;
use crate::wire::{IcrcBase, Operation, Packet};
use std::hint::cold_path;
use std::net::{IpAddr, SocketAddr};
use towpath_base::serial::Psn;
use towpath_memory::{Hold, MrTable};
use towpath_verbs::{Mtu, QpNum, RemoteAddr, RxPacket, Wc, WcOpcode, WcStatus};

/// The message under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Message {
    #[default]
    None,
    /// A SEND, with so many bytes landed.
    Send { offset: u32 },
    /// A WRITE of `total` bytes to `remote`, with so many landed.
    Write { remote: RemoteAddr, total: u32, offset: u32 },
}

/// The receiving half of a queue pair.
#[derive(Default)]
pub(crate) struct Responder {
    pub(crate) expected: Psn,
    pub(crate) message: Message,
    /// Payload bytes of each of its packets but the last.
    pub(crate) packet_bytes: u32,
    /// A receive work request that was taken and not completed.
    pub(crate) held: Option<PostedRecv>,
    pub(crate) heard: Option<Heard>,
}

/// Where the last packet was from and to, and what that says of the next ones.
#[derive(Clone, Copy)]
pub(crate) struct Heard {
    pub(crate) source: SocketAddr,
    pub(crate) dest: SocketAddr,
    /// ICRC up to the BTH.
    pub(crate) base: IcrcBase,
    pub(crate) from_peer: bool,
}

impl Responder {
    pub(crate) fn start(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// The queue pair is connected: what was heard before says nothing of its peer.
    pub(crate) fn forget_heard(&mut self) {
        self.heard = None;
    }
}

/// What a responder works on besides its queue pair.
pub(crate) struct Surroundings<'e> {
    pub(crate) mrs: &'e mut MrTable,
    pub(crate) cqs: &'e mut Cqs,
    pub(crate) srqs: &'e mut [RecvQueue],
    pub(crate) counters: &'e mut RoceCounters,
}

/// Whether a packet may start a message on UC, as its length goes.
fn starts_well(packet: &Packet<'_>, mtu: u32) -> bool {
    let len = packet.payload.len() as u32;
    let is_size = || Mtu::from_bytes(len).is_some();
    len <= mtu && (packet.opcode.position.ends() || len == mtu || is_size())
}

/// Whether the packet's payload fits what its position in the message demands.
pub(crate) fn length_fits(packet: &Packet<'_>, mtu: u32) -> bool {
    let (len, mtu) = (packet.payload.len(), mtu as usize);
    match (packet.opcode.position.starts(), packet.opcode.position.ends()) {
        (_, false) => len == mtu,
        (false, true) => (1..=mtu).contains(&len),
        (true, true) => len <= mtu,
    }
}

impl Qp {
    /// The ICRC base of packets between the addresses of this one, and whether it may be of a
    /// connected queue pair's peer.
    #[inline]
    pub(crate) fn hear(&mut self, packet: &RxPacket<'_>) -> (IcrcBase, bool) {
        match &self.responder.heard {
            Some(heard)
                if is_same(&heard.source, &packet.source) && is_same(&heard.dest, &packet.dest) =>
            {
                (heard.base, heard.from_peer)
            }
            _ => self.hear_anew(packet),
        }
    }

    #[cold]
    fn hear_anew(&mut self, packet: &RxPacket<'_>) -> (IcrcBase, bool) {
        let &RxPacket { source, dest, .. } = packet;
        let base = IcrcBase::new(source, dest, self.num.0);
        let from_peer = self.is_peer(source.ip());
        self.responder.heard = Some(Heard { source, dest, base, from_peer });
        (base, from_peer)
    }

    /// A packet for this connected queue pair: sound, from its peer.
    pub(crate) fn on_uc(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        let psn = packet.bth.psn();
        let in_order = psn == self.responder.expected;
        if !packet.opcode.position.starts() {
            return self.on_uc_next(packet, in_order, rx, s);
        }
        let mtu = self.path.as_ref().map_or(0, |path| path.mtu);
        s.counters.messages_lost += u64::from(self.responder.message != Message::None);
        s.counters.resyncs += u64::from(!in_order);
        self.responder.message = Message::None;
        self.responder.expected = psn.plus(1);
        if !starts_well(packet, mtu) {
            cold_path();
            s.counters.length_error += 1;
            return;
        }
        self.responder.packet_bytes = packet.payload.len() as u32;
        match packet.opcode.operation {
            Operation::Send => self.on_send(packet, 0, rx, s),
            _ => self.on_first_write(packet, rx, s),
        }
    }

    /// A packet that goes on with a message.
    #[inline(never)]
    fn on_uc_next(
        &mut self,
        packet: &Packet<'_>,
        in_order: bool,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        let next = packet.bth.psn().plus(1);
        let message = std::mem::take(&mut self.responder.message);
        let lost = u64::from(message != Message::None);
        let packet_bytes = self.responder.packet_bytes;
        let is_send = packet.opcode.operation == Operation::Send;
        match message {
            _ if !in_order => s.counters.psn_mismatch += 1,
            Message::None => s.counters.psn_mismatch += 1,
            _ if !length_fits(packet, packet_bytes) => s.counters.length_error += 1,
            Message::Send { offset } if is_send => {
                self.responder.expected = next;
                return self.on_send(packet, offset, rx, s);
            }
            Message::Write { remote, total, offset } if !is_send => {
                self.responder.expected = next;
                return self.on_write(packet, (remote, total, offset), rx, s);
            }
            _ => s.counters.psn_mismatch += 1,
        }
        s.counters.messages_lost += lost;
    }

    fn on_send(
        &mut self,
        packet: &Packet<'_>,
        offset: u32,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        self.hold_recv_wr(s);
        let Some(wr) = &self.responder.held else {
            cold_path();
            s.counters.no_recv_wqe += 1;
            return;
        };
        match land(wr, offset, packet.payload, s.mrs) {
            Ok(end) if packet.opcode.position.ends() => {
                self.complete_recv(WcOpcode::Recv, end, packet, rx, s);
            }
            Ok(end) => self.responder.message = Message::Send { offset: end },
            Err(status) => self.fail_recv(status, s),
        }
    }

    fn on_first_write(&mut self, packet: &Packet<'_>, rx: &RxPacket<'_>, s: &mut Surroundings<'_>) {
        let Some(reth) = packet.reth() else {
            s.counters.bad_opcode += 1;
            return;
        };
        let (remote, total) = (RemoteAddr { addr: reth.va, rkey: reth.rkey }, reth.dma_len);
        // A WRITE of no bytes reaches no memory, and its key is not looked at.
        let open = self.init.qp_access_flags.remote_write
            && s.mrs.allows_remote_write(self.init.pd, remote, total as usize);
        if total > 0 && !open {
            s.counters.bad_rkey += 1;
            return;
        }
        self.on_write(packet, (remote, total, 0), rx, s);
    }

    fn on_write(
        &mut self,
        packet: &Packet<'_>,
        (remote, total, offset): (RemoteAddr, u32, u32),
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        let ends = packet.opcode.position.ends();
        let left = (total - offset) as usize;
        let fits = if ends { packet.payload.len() == left } else { packet.payload.len() < left };
        if !fits {
            s.counters.length_error += 1;
            return;
        }
        let takes_one = packet.opcode.has_imm();
        if takes_one && !self.hold_recv_wr(s) {
            s.counters.no_recv_wqe += 1;
            return;
        }
        let addr = remote.addr.wrapping_add(u64::from(offset));
        let here = RemoteAddr { addr, rkey: remote.rkey };
        if !packet.payload.is_empty()
            && s.mrs.remote_write(self.init.pd, here, packet.payload).is_err()
        {
            s.counters.bad_rkey += 1;
            return;
        }
        match takes_one {
            true => self.complete_recv(WcOpcode::RecvRdmaWithImm, total, packet, rx, s),
            false if ends => s.counters.messages_received += 1,
            false => {
                let offset = offset + packet.payload.len() as u32;
                self.responder.message = Message::Write { remote, total, offset };
            }
        }
    }

    /// A datagram: sound, whoever it is from.
    pub(crate) fn on_ud(
        &mut self,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        let Some(deth) = packet.deth() else {
            s.counters.bad_opcode += 1;
            return;
        };
        if deth.qkey != self.init.qkey {
            s.counters.bad_qkey += 1;
            return;
        }
        self.hold_recv_wr(s);
        let Some(wr) = &self.responder.held else {
            s.counters.no_recv_wqe += 1;
            return;
        };
        let grh = routing_header(rx);
        let landed = land(wr, 0, &grh, s.mrs);
        let end = match landed.and_then(|at| land(wr, at, packet.payload, s.mrs)) {
            Ok(end) => end,
            Err(status) => return self.fail_recv(status, s),
        };
        let mut wc = self.recv_wc(wr.wr_id, WcOpcode::Recv, end, packet, rx);
        self.give_up_held(s);
        s.counters.messages_received += 1;
        (wc.src_qp, wc.src_addr) = (QpNum(deth.src_qp), Some(rx.source));
        s.cqs.push(self.init.recv_cq, wc);
    }

    /// Takes the next receive work request, if there is any, where none is held; whether one is.
    #[inline]
    pub(crate) fn hold_recv_wr(&mut self, s: &mut Surroundings<'_>) -> bool {
        if self.responder.held.is_none() {
            self.responder.held = match self.init.srq {
                Some(srq) => s.srqs.get_mut(srq.0 as usize).and_then(RecvQueue::pop),
                None => self.recv_queue.pop(),
            };
        }
        self.responder.held.is_some()
    }

    /// The receive work request that was held is done with its memory: its word.
    #[inline]
    pub(crate) fn give_up_held(&mut self, s: &mut Surroundings<'_>) -> Option<u64> {
        let PostedRecv { wr_id, list } = self.responder.held.take()?;
        s.mrs.release_all(list);
        Some(wr_id)
    }

    /// The receive work request that is held ends in error.
    #[cold]
    fn fail_recv(&mut self, status: WcStatus, s: &mut Surroundings<'_>) {
        s.counters.recv_too_long += u64::from(status == WcStatus::LocLenErr);
        let Some(wr_id) = self.give_up_held(s) else { return };
        let (opcode, qp_num) = (WcOpcode::Recv, self.num);
        s.cqs.push(self.init.recv_cq, Wc { wr_id, status, opcode, qp_num, ..Wc::default() });
        if status == WcStatus::LocProtErr {
            self.fail((s.cqs, s.mrs), true);
        }
    }

    /// The receive work request that is held ends well.
    pub(crate) fn complete_recv(
        &mut self,
        opcode: WcOpcode,
        byte_len: u32,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
        s: &mut Surroundings<'_>,
    ) {
        let Some(wr_id) = self.give_up_held(s) else { return };
        s.counters.messages_received += 1;
        s.cqs.push(self.init.recv_cq, self.recv_wc(wr_id, opcode, byte_len, packet, rx));
    }

    fn recv_wc(
        &self,
        wr_id: u64,
        opcode: WcOpcode,
        byte_len: u32,
        packet: &Packet<'_>,
        rx: &RxPacket<'_>,
    ) -> Wc {
        Wc {
            wr_id,
            status: WcStatus::Success,
            opcode,
            byte_len,
            imm_data: packet.imm().map(|imm| imm.imm_data),
            qp_num: self.num,
            src_qp: QpNum(0),
            src_addr: None,
            tclass: rx.tclass,
            timestamp: Some(rx.timestamp),
            vendor_err: 0,
        }
    }

    /// Whether `source` may send to this queue pair. Any port may: NICs use it for path entropy.
    fn is_peer(&self, source: IpAddr) -> bool {
        let peer = self.path.as_ref().map(|path| path.dest.ip());
        peer.is_some_and(|peer| peer == source || peer.to_canonical() == source.to_canonical())
    }
}

/// Scatters `bytes` from `offset` on: where the message ends now, or how the work request does.
#[inline]
pub(crate) fn land(
    wr: &PostedRecv,
    offset: u32,
    bytes: &[u8],
    mrs: &mut MrTable,
) -> Result<u32, WcStatus> {
    let end = u32::try_from(u64::from(offset) + bytes.len() as u64);
    match end {
        Ok(end) if u64::from(end) > wr.list.byte_len() => Err(WcStatus::LocLenErr),
        Ok(end) if scatter(mrs, &wr.list, offset, bytes) => Ok(end),
        Ok(_) => Err(WcStatus::LocProtErr),
        Err(_) => Err(WcStatus::LocLenErr),
    }
}

/// Copies `bytes` into the entries of `list` from `offset` on; false when they forbid it.
pub(crate) fn scatter(mrs: &mut MrTable, list: &[Hold], offset: u32, mut bytes: &[u8]) -> bool {
    for piece in pieces(list, offset, bytes.len() as u32) {
        let (part, rest) = bytes.split_at(piece.byte_len() as usize);
        if mrs.scatter(&piece, part).is_err() {
            return false;
        }
        bytes = rest;
    }
    bytes.is_empty()
}

/// The 40 bytes that verbs put before a datagram: an IPv6 header, or 20 bytes of nothing and an
/// IPv4 header. What a socket does not show (TTL, checksum, flow label) is zero.
fn routing_header(rx: &RxPacket<'_>) -> [u8; GRH_BYTES] {
    let mut grh = [0; GRH_BYTES];
    let tclass = rx.tclass.unwrap_or(0);
    let udp_len = rx.bytes.len() as u16 + 8;
    match (rx.source.ip().to_canonical(), rx.dest.ip().to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            (grh[20], grh[21]) = (0x45, tclass);
            grh[22..24].copy_from_slice(&udp_len.wrapping_add(20).to_be_bytes());
            (grh[26], grh[29]) = (0x40, 17);
            grh[32..36].copy_from_slice(&source.octets());
            grh[36..40].copy_from_slice(&dest.octets());
        }
        (source, dest) => {
            let octets = |ip| match ip {
                IpAddr::V4(ip) => std::net::Ipv4Addr::to_ipv6_mapped(&ip).octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            (grh[0], grh[1], grh[6]) = (0x60 | tclass >> 4, tclass << 4, 17);
            grh[4..6].copy_from_slice(&udp_len.to_be_bytes());
            grh[8..24].copy_from_slice(&octets(source));
            grh[24..40].copy_from_slice(&octets(dest));
        }
    }
    grh
}
