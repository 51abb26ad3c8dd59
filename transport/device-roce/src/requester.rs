//! Sending: work requests become packets, in place.
//!
//! A queue pair's requester has two cursors. What the link took is past for good; what is planned
//! lies in the batch being offered, and is planned anew when the link takes less. So the link may
//! stop in the middle of a message and nothing is copied or kept for it.

use crate::limits::TX_COPY_BYTES_MAX;
use crate::middle::Middle;
use crate::qp::Path;
use crate::send_queue::{Lists, Posted, Terms};
use crate::wire::opcode::{DETH_BYTES, IMM_BYTES, RETH_BYTES};
use crate::wire::{
    BTH_BYTES, BthRepr, Deth, ICRC_BYTES, IcrcBase, ImmDt, Opcode, PKEY_DEFAULT, Position, Reth,
    Service, Trailer,
};
use std::collections::VecDeque;
use std::hint::cold_path;
use std::net::SocketAddr;
use towpath_base::serial::Psn;
use towpath_memory::{Hold, MrTable, Piece};
use towpath_verbs::{
    PdNum, QpNum, QpType, RemoteAddr, SendOp, SendWr, TxPacket, VerbError, link::PARTS_MAX,
};

/// Pieces of payload of a packet that is not copied: headers, pad and ICRC are two parts more.
const PAYLOAD_PARTS_MAX: usize = PARTS_MAX - 2;

/// Bytes that may stand between a BTH and its payload.
const EXT_BYTES_MAX: usize = RETH_BYTES + DETH_BYTES + IMM_BYTES;

#[derive(Clone, Copy)]
struct Cursor {
    /// Which work request of the queue.
    index: usize,
    /// Bytes of it that are done.
    offset: u32,
    psn: Psn,
}

/// A packet of the batch being offered.
#[derive(Clone, Copy)]
pub(crate) struct Planned {
    pub(crate) qp_index: u32,
    pub(crate) what: What,
}

/// What a planned packet is.
#[derive(Clone, Copy)]
pub(crate) enum What {
    /// Of an unreliable message.
    Message { payload_bytes: u32, last: bool },
    /// RC: a request of the numbers from `seq` to before `end`.
    Request { seq: u64, end: u64 },
    /// RC: a packet of a reply.
    Reply { seq: u64 },
    /// RC: an ACK or a NAK.
    Answer,
}

/// The batch being offered: packets, and what they are made of.
pub(crate) struct Batch<'a> {
    pub(crate) packets: Vec<TxPacket<'a>>,
    pub(crate) scratch: &'a mut [u8],
    /// Where responses to READs are written.
    pub(crate) replies: &'a mut [u8],
    /// Packets of those responses so far.
    pub(crate) reply_packets: usize,
    pub(crate) mrs: &'a MrTable,
}

/// What came of planning a queue pair's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Everything posted is planned.
    Empty,
    /// The turn is over before the queue is.
    More,
    /// The next packet's memory is gone.
    BadMemory,
}

/// Identity of the queue pair whose turn it is.
pub(crate) struct Sender<'q> {
    pub(crate) num: QpNum,
    pub(crate) index: u32,
    pub(crate) qp_type: QpType,
    pub(crate) pd: PdNum,
    pub(crate) path: &'q Path,
    /// The address that its packets leave from.
    pub(crate) source: SocketAddr,
    /// They have no ICRC.
    pub(crate) omits_icrc: bool,
}

pub(crate) struct Requester {
    queue: VecDeque<Posted>,
    lists: Lists,
    depth: usize,
    taken: Cursor,
    planned: Cursor,
    /// ICRC up to the BTH, for the destination that it was computed for.
    base: Option<(SocketAddr, QpNum, IcrcBase)>,
    /// It stands in the list of queue pairs with work.
    pub(crate) listed: bool,
}

impl Requester {
    pub(crate) fn new(depth: u32, max_send_sge: u32) -> Self {
        let lists = Lists::new(depth, max_send_sge);
        let depth = depth as usize;
        let start = Cursor { index: 0, offset: 0, psn: Psn::new(0) };
        let queue = VecDeque::with_capacity(depth);
        Self { queue, lists, depth, taken: start, planned: start, base: None, listed: false }
    }

    pub(crate) fn start(&mut self, psn: Psn) {
        self.taken = Cursor { index: 0, offset: 0, psn };
        self.planned = self.taken;
        self.base = None;
    }

    /// After the source address changed.
    pub(crate) fn forget_source(&mut self) {
        self.base = None;
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() == self.depth
    }

    /// False when a queue pair of the domain may not name its memory.
    pub(crate) fn push<const N: usize>(
        &mut self,
        wr: &SendWr<N>,
        terms: Terms,
        memory: (&mut MrTable, PdNum),
    ) -> bool {
        let posted = self.lists.post(wr, terms, self.queue.is_empty(), memory);
        posted.map(|posted| self.queue.push_back(posted)).is_some()
    }

    /// Takes the oldest work request back, with whatever was planned.
    pub(crate) fn pop_unsent(&mut self, mrs: &mut MrTable) -> Option<Posted> {
        let wr = self.queue.pop_front()?;
        self.lists.give_up(&wr, mrs);
        self.taken.offset = 0;
        self.planned = self.taken;
        Some(wr)
    }

    /// Whether nothing of it is in the batch.
    pub(crate) fn nothing_planned(&self) -> bool {
        (self.planned.index, self.planned.offset) == (0, self.taken.offset)
    }

    /// Plans anew from what the link took.
    pub(crate) fn unplan(&mut self) {
        self.planned = self.taken;
    }

    /// The link took this packet. The work request whose last packet it was.
    #[inline]
    pub(crate) fn on_taken(
        &mut self,
        payload_bytes: u32,
        last: bool,
        mrs: &mut MrTable,
    ) -> Option<Posted> {
        self.taken.psn = self.taken.psn.plus(1);
        if !last {
            self.taken.offset += payload_bytes;
            return None;
        }
        self.taken.offset = 0;
        self.planned.index = self.planned.index.saturating_sub(1);
        let wr = self.queue.pop_front()?;
        self.lists.give_up(&wr, mrs);
        Some(wr)
    }

    /// Adds up to `packets_max` packets to the batch.
    pub(crate) fn plan(
        &mut self,
        sender: &Sender<'_>,
        packets_max: usize,
        batch: &mut Batch<'_>,
        planned: &mut Vec<Planned>,
    ) -> Turn {
        let packets_end = batch.packets.len() + packets_max;
        while batch.packets.len() < packets_end {
            let cursor = self.planned;
            let Some(wr) = self.queue.get(cursor.index) else { return Turn::Empty };
            let (list, byte_len) = (self.lists.of(wr), wr.byte_len);
            let (dest, dest_qp) = destination(wr, sender);
            let base = match &self.base {
                // Of a connected queue pair it is that of its path.
                &Some((addr, qp, base)) if wr.ud.is_none() || (addr, qp) == (dest, dest_qp) => base,
                _ => {
                    let base = IcrcBase::new(sender.source, dest, dest_qp.0);
                    self.base.insert((dest, dest_qp, base)).2
                }
            };
            let base = (!sender.omits_icrc).then_some(&base);
            let mtu = packet_bytes(wr, sender);
            let payload_bytes = (byte_len - cursor.offset).min(mtu);
            let last = cursor.offset + payload_bytes == byte_len;
            let draft = Draft {
                wr,
                list,
                offset: cursor.offset,
                payload_bytes,
                psn: cursor.psn,
                position: position(cursor.offset == 0, last),
                ack_req: false,
            };
            let packets_max = packets_end - batch.packets.len();
            if let Some(middle) = Middle::of(list, byte_len, cursor.offset, mtu, packets_max)
                .filter(|middle| !middle.is_shared())
            {
                let (first, _) = draft.bth(sender, dest_qp, 0);
                if middle.emit(&first, base, sender, batch, planned, wr.flags.alone).is_err() {
                    return Turn::BadMemory;
                }
                self.planned.offset += middle.byte_len();
                self.planned.psn = cursor.psn.plus(middle.packets());
                continue;
            }
            if draft.emit(sender, base, batch).is_err() {
                return Turn::BadMemory;
            }
            let what = What::Message { payload_bytes, last };
            planned.push(Planned { qp_index: sender.index, what });
            self.planned = Cursor {
                index: cursor.index + usize::from(last),
                offset: if last { 0 } else { cursor.offset + payload_bytes },
                psn: cursor.psn.plus(1),
            };
        }
        if self.planned.index < self.queue.len() { Turn::More } else { Turn::Empty }
    }
}

/// Where the packets of a work request go.
#[inline]
fn destination(wr: &Posted, sender: &Sender<'_>) -> (SocketAddr, QpNum) {
    match &wr.ud {
        Some(ud) => (ud.dest, ud.remote_qpn),
        None => (sender.path.dest, sender.path.dest_qp),
    }
}

/// Payload bytes of the packets that a work request is cut into, but for its last.
#[inline]
fn packet_bytes(wr: &Posted, sender: &Sender<'_>) -> u32 {
    let mtu = sender.path.mtu;
    match wr.flags.cut_at {
        Some(size) if sender.qp_type == QpType::Uc => size.bytes().min(mtu),
        _ => mtu,
    }
}

/// Where a packet stands that starts or ends its message.
pub(crate) fn position(starts: bool, ends: bool) -> Position {
    match (starts, ends) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, false) => Position::Middle,
        (false, true) => Position::Last,
    }
}

/// One packet, about to be written.
pub(crate) struct Draft<'q> {
    pub(crate) wr: &'q Posted,
    pub(crate) list: &'q [Hold],
    pub(crate) offset: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) psn: Psn,
    pub(crate) position: Position,
    pub(crate) ack_req: bool,
}

impl Draft<'_> {
    /// Adds it to the batch; `base` is the ICRC up to its BTH, where it has one.
    pub(crate) fn emit(
        &self,
        sender: &Sender<'_>,
        base: Option<&IcrcBase>,
        batch: &mut Batch<'_>,
    ) -> Result<(), VerbError> {
        let (dest, dest_qp) = destination(self.wr, sender);
        let payload_bytes = self.payload_bytes as usize;
        let pad = crate::wire::pad_bytes(payload_bytes);
        let (bth, has_imm) = self.bth(sender, dest_qp, pad as u8);
        let bth = bth.emit();
        let mut extended;
        let ext: &[u8] = if self.wr.ud.is_none() && matches!(self.wr.op, SendOp::Send) {
            &[]
        } else {
            extended = [0; EXT_BYTES_MAX];
            let len = self.extended_headers(sender, has_imm, &mut extended);
            &extended[..len]
        };
        let head_bytes = BTH_BYTES + ext.len();
        let packet_bytes = head_bytes + payload_bytes + pad + ICRC_BYTES;
        let trailer = Trailer::of(base, &bth, packet_bytes);
        let path = sender.path;
        let pieces = pieces(self.list, self.offset, self.payload_bytes);

        let copied = payload_bytes <= TX_COPY_BYTES_MAX
            || pieces.clone().any(|piece| piece.is_shared())
            || self.list.len() > PAYLOAD_PARTS_MAX
                && pieces.clone().nth(PAYLOAD_PARTS_MAX).is_some();
        let own_bytes = if copied { packet_bytes } else { packet_bytes - payload_bytes };
        let (own, rest) = std::mem::take(&mut batch.scratch).split_at_mut(own_bytes);
        batch.scratch = rest;
        own[..BTH_BYTES].copy_from_slice(&bth);
        if !ext.is_empty() {
            own[BTH_BYTES..head_bytes].copy_from_slice(ext);
        }
        let icrc_at = own_bytes - ICRC_BYTES;
        if pad > 0 {
            own[icrc_at - pad..icrc_at].fill(0);
        }
        // Written where it stays: it is too long to be copied without a call.
        let packet = batch.packets.push_mut(TxPacket::new(dest, path.source_port, path.tclass));
        packet.alone = self.wr.flags.alone;
        let added = if copied {
            add_copied(packet, own, (head_bytes, icrc_at), pieces, trailer, batch.mrs)
        } else {
            add_in_place(packet, own.split_at_mut(head_bytes), pieces, trailer, batch.mrs)
        };
        if added.is_err() {
            cold_path();
            batch.packets.pop();
        }
        added
    }

    /// Its BTH, and whether immediate data is behind it.
    fn bth(&self, sender: &Sender<'_>, dest_qp: QpNum, pad_count: u8) -> (BthRepr, bool) {
        let ends = self.position.ends();
        let (write, imm) = match self.wr.op {
            SendOp::Write { .. } => (true, false),
            SendOp::WriteWithImm { .. } => (true, true),
            SendOp::SendWithImm { .. } => (false, true),
            _ => (false, false),
        };
        let service = match sender.qp_type {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            QpType::Ud => Service::Ud,
        };
        let bth = BthRepr {
            opcode: Opcode::request(service, write, self.position, imm && ends),
            solicited: self.wr.flags.solicited && ends,
            mig_req: false,
            pad_count,
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: dest_qp.0,
            ack_req: self.ack_req,
            psn: self.psn,
        };
        (bth, imm && ends)
    }

    /// Writes what stands between the BTH and the payload; returns its length.
    #[inline(never)]
    fn extended_headers(
        &self,
        sender: &Sender<'_>,
        has_imm: bool,
        out: &mut [u8; EXT_BYTES_MAX],
    ) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        if let Some(ud) = &self.wr.ud {
            put(&Deth { qkey: ud.remote_qkey, src_qp: sender.num.0 }.emit());
        }
        match self.wr.op {
            SendOp::Write { remote } | SendOp::WriteWithImm { remote, .. }
                if self.position.starts() =>
            {
                let RemoteAddr { addr: va, rkey } = remote;
                put(&Reth { va, rkey, dma_len: self.wr.byte_len }.emit());
            }
            _ => {}
        }
        match self.wr.op {
            SendOp::SendWithImm { imm_data } | SendOp::WriteWithImm { imm_data, .. } if has_imm => {
                put(&ImmDt { imm_data }.emit());
            }
            _ => {}
        }
        at
    }
}

/// Adds a packet in one piece, of which headers and pad are written.
#[inline]
fn add_copied<'a, 'p>(
    packet: &mut TxPacket<'a>,
    own: &'a mut [u8],
    (head_bytes, icrc_at): (usize, usize),
    pieces: impl Iterator<Item = Piece<'p>>,
    mut trailer: Trailer,
    mrs: &'a MrTable,
) -> Result<(), VerbError> {
    let mut at = head_bytes;
    for piece in pieces {
        let end = at + piece.byte_len() as usize;
        mrs.gather_into(&piece, &mut own[at..end])?;
        at = end;
    }
    trailer.update(&own[BTH_BYTES..icrc_at]);
    own[icrc_at..].copy_from_slice(&trailer.bytes());
    packet.push(own);
    Ok(())
}

/// Adds headers, the payload where it lies, and behind it pad and ICRC; `trailer` covers all
/// before the extended headers.
#[inline(never)]
fn add_in_place<'a, 'p>(
    packet: &mut TxPacket<'a>,
    (head, tail): (&'a mut [u8], &'a mut [u8]),
    pieces: impl Iterator<Item = Piece<'p>>,
    mut trailer: Trailer,
    mrs: &'a MrTable,
) -> Result<(), VerbError> {
    let (ext, pad) = (&head[BTH_BYTES..], tail.len() - ICRC_BYTES);
    if !ext.is_empty() {
        trailer.update(ext);
    }
    packet.push(head);
    for piece in pieces {
        let bytes = mrs.gather(&piece)?;
        trailer.update(bytes);
        packet.push(bytes);
    }
    if pad > 0 {
        trailer.update(&tail[..pad]);
    }
    tail[pad..].copy_from_slice(&trailer.bytes());
    packet.push(tail);
    Ok(())
}

/// The parts of `list` that hold `len` bytes from `skip` on.
pub(crate) fn pieces(
    list: &[Hold],
    skip: u32,
    len: u32,
) -> impl Iterator<Item = Piece<'_>> + Clone {
    let (mut skip, mut left) = (skip, len);
    list.iter().filter_map(move |hold| {
        if skip >= hold.byte_len() {
            skip -= hold.byte_len();
            return None;
        }
        let piece = hold.whole().part(skip, left);
        (skip, left) = (0, left - piece.byte_len());
        (piece.byte_len() > 0).then_some(piece)
    })
}
