//! Packets that are written in one piece: requests without payload, acknowledgements, responses.

use crate::requester::Sender;
use crate::wire::opcode::{AETH_BYTES, ATOMIC_ACK_BYTES, ATOMIC_BYTES};
use crate::wire::{BTH_BYTES, BthRepr, ICRC_BYTES, IcrcBase, PKEY_DEFAULT, pad_bytes};
use towpath_base::crc::Crc32;
use towpath_base::serial::Psn;
use towpath_verbs::{TxPacket, VerbError};

const EXT_BYTES_MAX: usize = ATOMIC_BYTES;
const _: () = assert!(AETH_BYTES + ATOMIC_ACK_BYTES <= EXT_BYTES_MAX);

/// Bytes of the longest such packet with a payload of this many bytes.
pub(crate) const fn packet_bytes_max(payload_bytes: usize) -> usize {
    BTH_BYTES + AETH_BYTES + payload_bytes + 3 + ICRC_BYTES
}

/// The ICRC up to the BTH of a connection, computed once.
#[derive(Default)]
pub(super) struct IcrcFor {
    base: Option<IcrcBase>,
}

impl IcrcFor {
    pub(super) fn base(&mut self, sender: &Sender<'_>) -> IcrcBase {
        let path = sender.path;
        *self.base.get_or_insert_with(|| IcrcBase::new(sender.source, path.dest, path.dest_qp.0))
    }
}

/// A packet about to be written.
pub(super) struct Plain<'p> {
    pub(super) opcode: u8,
    pub(super) ack_req: bool,
    pub(super) psn: Psn,
    /// Extended headers.
    pub(super) ext: &'p [u8],
    pub(super) payload_bytes: usize,
}

impl Plain<'_> {
    /// Writes it to the front of `room`, which moves on behind it; `fill` writes the payload.
    pub(super) fn emit<'a>(
        &self,
        sender: &Sender<'_>,
        base: &IcrcBase,
        room: &mut &'a mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), VerbError>,
    ) -> Result<TxPacket<'a>, VerbError> {
        let pad = pad_bytes(self.payload_bytes);
        let head = BTH_BYTES + self.ext.len();
        let icrc_at = head + self.payload_bytes + pad;
        let (own, rest) = std::mem::take(room).split_at_mut(icrc_at + ICRC_BYTES);
        *room = rest;
        let bth = BthRepr {
            opcode: self.opcode,
            solicited: false,
            mig_req: false,
            pad_count: pad as u8,
            pkey: PKEY_DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: sender.path.dest_qp.0,
            ack_req: self.ack_req,
            psn: self.psn,
        }
        .emit();
        own[..BTH_BYTES].copy_from_slice(&bth);
        own[BTH_BYTES..head].copy_from_slice(self.ext);
        fill(&mut own[head..head + self.payload_bytes])?;
        own[icrc_at - pad..icrc_at].fill(0);
        let mut crc = Crc32::resume(base.to_bth(&bth, own.len()));
        crc.update(&own[BTH_BYTES..icrc_at]);
        own[icrc_at..].copy_from_slice(&crc.value().to_le_bytes());
        let path = sender.path;
        let mut packet = TxPacket::new(path.dest, path.source_port, path.tclass);
        packet.push(own);
        Ok(packet)
    }
}
