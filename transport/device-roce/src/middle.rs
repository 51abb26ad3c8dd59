//! The packets in the middle of a message, which differ in number and payload alone, as most of a
//! long message does. Of UC SENDs and WRITEs in long packets they leave by a shorter way, on which
//! what they have in common is worked out once. Of UC SENDs they come in by a shorter way, on which
//! a packet is compared with the one that has to come next.

use crate::addr::is_same;
use crate::limits::TX_COPY_BYTES_MAX;
use crate::qp::Qp;
use crate::requester::{Batch, Planned, Sender, What, pieces};
use crate::responder::{Message, land};
use crate::wire::{
    BTH_BYTES, BthRepr, ICRC_BYTES, IcrcBase, Opcode, PKEY_DEFAULT, Position, Service, Trailer,
};
use towpath_memory::{Hold, MrTable, Piece};
use towpath_verbs::{RxPacket, TxPacket, VerbError};

/// The packets of a message from some offset on that are neither its first nor its last, and whose
/// payload lies in one piece of memory.
pub(crate) struct Middle<'q> {
    /// That piece: whole packets, one at least.
    payload: Piece<'q>,
    mtu: usize,
}

impl<'q> Middle<'q> {
    /// Of the message of `list`, `byte_len` long, from `offset` on: `packets_max` at most. None
    /// where the next packet is no such, or is so short that it is copied.
    #[inline]
    pub(crate) fn of(
        list: &'q [Hold],
        byte_len: u32,
        offset: u32,
        mtu: u32,
        packets_max: usize,
    ) -> Option<Self> {
        // The last packet has one byte at least.
        let full = (byte_len - offset).saturating_sub(1) / mtu;
        if offset == 0 || full == 0 || mtu as usize <= TX_COPY_BYTES_MAX {
            return None;
        }
        let bytes = mtu * full.min(packets_max as u32);
        let piece = pieces(list, offset, bytes).next()?;
        let payload = piece.part(0, piece.byte_len() - piece.byte_len() % mtu);
        (payload.byte_len() > 0).then_some(Self { payload, mtu: mtu as usize })
    }

    /// Whether their payload has to be copied, since others may change it: see
    /// [`MrTable::gather`](towpath_memory::MrTable::gather).
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.payload.is_shared()
    }

    /// How many there are.
    pub(crate) fn packets(&self) -> u32 {
        self.payload.byte_len() / self.mtu as u32
    }

    /// Bytes of payload of all of them.
    pub(crate) fn byte_len(&self) -> u32 {
        self.payload.byte_len()
    }

    /// Adds them to the batch; `first` is the header of the first one and `base` the ICRC up to it,
    /// where they have one.
    pub(crate) fn emit(
        &self,
        first: &BthRepr,
        base: Option<&IcrcBase>,
        sender: &Sender<'_>,
        batch: &mut Batch<'_>,
        planned: &mut Vec<Planned>,
        alone: bool,
    ) -> Result<(), VerbError> {
        let payload = batch.mrs.gather(&self.payload)?;
        let path = sender.path;
        let what = What::Message { payload_bytes: self.mtu as u32, last: false };
        for (index, payload) in payload.chunks_exact(self.mtu).enumerate() {
            let bth = BthRepr { psn: first.psn.plus(index as u32), ..*first }.emit();
            let packet_bytes = BTH_BYTES + payload.len() + ICRC_BYTES;
            let mut trailer = Trailer::of(base, &bth, packet_bytes);
            trailer.update(payload);
            let (own, rest) =
                std::mem::take(&mut batch.scratch).split_at_mut(BTH_BYTES + ICRC_BYTES);
            batch.scratch = rest;
            let (head, tail) = own.split_at_mut(BTH_BYTES);
            head.copy_from_slice(&bth);
            tail.copy_from_slice(&trailer.bytes());
            let packet = TxPacket::new(path.dest, path.source_port, path.tclass);
            let packet = batch.packets.push_mut(packet);
            packet.alone = alone;
            packet.push(head);
            packet.push(payload);
            packet.push(tail);
            planned.push(Planned { qp_index: sender.index, what });
        }
        Ok(())
    }
}

impl Qp {
    /// Takes a packet in if it is the next one of the SEND under way on this UC queue pair, sound
    /// and not its last, as a peer like us sends it. Of any other it says false and leaves the
    /// queue pair as it was, for the rules of [`responder`](crate::responder) to be gone through;
    /// where memory went away, these write again what part of the payload has landed.
    #[inline]
    pub(crate) fn on_middle(&mut self, rx: &RxPacket<'_>, mrs: &mut MrTable) -> bool {
        let Message::Send { offset } = self.responder.message else { return false };
        self.on_middle_at(offset, rx, mrs).is_some()
    }

    #[inline(never)]
    fn on_middle_at(&mut self, offset: u32, rx: &RxPacket<'_>, mrs: &mut MrTable) -> Option<()> {
        let heard = self.responder.heard.as_ref()?;
        let next = BthRepr {
            opcode: Opcode::request(Service::Uc, false, Position::Middle, false),
            solicited: false,
            mig_req: false,
            pad_count: 0,
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: self.num.0,
            ack_req: false,
            psn: self.responder.expected,
        };
        let (bth, rest) = rx.bytes.split_first_chunk::<BTH_BYTES>()?;
        let (payload, icrc) = rest.split_last_chunk::<ICRC_BYTES>()?;
        let is_next = *bth == next.emit()
            && payload.len() == self.responder.packet_bytes as usize
            && heard.from_peer
            && is_same(&heard.source, &rx.source)
            && is_same(&heard.dest, &rx.dest)
            && self.receives();
        if !is_next {
            return None;
        }
        let base = (!self.omits_icrc).then_some(&heard.base);
        let mut trailer = Trailer::of(base, bth, rx.bytes.len());
        trailer.update(payload);
        if trailer.bytes() != *icrc {
            return None;
        }
        let end = land(self.responder.held.as_ref()?, offset, payload, mrs).ok()?;
        self.responder.message = Message::Send { offset: end };
        self.responder.expected = next.psn.plus(1);
        Some(())
    }
}
