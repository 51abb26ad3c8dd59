//! The base transport header.

use super::{Field, WireError};
use towpath_base::serial::Psn;

/// Bytes of a BTH.
pub const BTH_BYTES: usize = 12;

/// The default partition, full member.
pub const PKEY_DEFAULT: u16 = 0xffff;

mod field {
    pub(super) const OPCODE: usize = 0;
    pub(super) const FLAGS: usize = 1;
    pub(super) const PKEY: [usize; 2] = [2, 3];
    pub(super) const ECN: usize = 4;
    pub(super) const DEST_QP: [usize; 3] = [5, 6, 7];
    pub(super) const ACK_REQ: usize = 8;
    pub(super) const PSN: [usize; 3] = [9, 10, 11];
}

const SOLICITED: u8 = 0x80;
const MIG_REQ: u8 = 0x40;
const FECN: u8 = 0x80;
const BECN: u8 = 0x40;
const ACK_REQ: u8 = 0x80;

/// A view of a base transport header: of 12 bytes, so that no field can fail.
#[derive(Clone, Copy, Debug)]
pub struct Bth<'a> {
    bytes: &'a [u8; BTH_BYTES],
}

impl<'a> Bth<'a> {
    /// A view of the first 12 bytes.
    ///
    /// # Errors
    /// [`WireError::TooShort`].
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, WireError> {
        match bytes.first_chunk() {
            Some(bytes) => Ok(Self { bytes }),
            None => {
                let (field, have) = (Field::Bth, bytes.len());
                Err(WireError::TooShort { field, need: BTH_BYTES, have })
            }
        }
    }

    /// The header itself.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8; BTH_BYTES] {
        self.bytes
    }

    /// The opcode, valid or not.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.bytes[field::OPCODE]
    }

    /// Solicited event: the receiver's completion raises its event.
    #[must_use]
    pub fn solicited(&self) -> bool {
        self.bytes[field::FLAGS] & SOLICITED != 0
    }

    /// Migration request: meaningless here, kept as it came.
    #[must_use]
    pub fn mig_req(&self) -> bool {
        self.bytes[field::FLAGS] & MIG_REQ != 0
    }

    /// Bytes of pad behind the payload, 0 to 3.
    #[must_use]
    pub fn pad_count(&self) -> u8 {
        (self.bytes[field::FLAGS] >> 4) & 3
    }

    /// Transport header version.
    #[must_use]
    pub fn tver(&self) -> u8 {
        self.bytes[field::FLAGS] & 0x0f
    }

    /// Partition key.
    #[must_use]
    pub fn pkey(&self) -> u16 {
        let [hi, lo] = field::PKEY.map(|at| self.bytes[at]);
        u16::from_be_bytes([hi, lo])
    }

    /// Forward congestion notification.
    #[must_use]
    pub fn fecn(&self) -> bool {
        self.bytes[field::ECN] & FECN != 0
    }

    /// Backward congestion notification.
    #[must_use]
    pub fn becn(&self) -> bool {
        self.bytes[field::ECN] & BECN != 0
    }

    /// The queue pair that the packet is for.
    #[must_use]
    pub fn dest_qp(&self) -> u32 {
        let [a, b, c] = field::DEST_QP.map(|at| self.bytes[at]);
        u32::from_be_bytes([0, a, b, c])
    }

    /// Acknowledge request.
    #[must_use]
    pub fn ack_req(&self) -> bool {
        self.bytes[field::ACK_REQ] & ACK_REQ != 0
    }

    /// Packet sequence number.
    #[must_use]
    pub fn psn(&self) -> Psn {
        let [a, b, c] = field::PSN.map(|at| self.bytes[at]);
        Psn::new(u32::from_be_bytes([0, a, b, c]))
    }
}

/// The values of a base transport header. The version is 0, reserved bits are sent as zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BthRepr {
    /// The opcode's number.
    pub opcode: u8,
    /// See [`Bth::solicited`].
    pub solicited: bool,
    /// See [`Bth::mig_req`].
    pub mig_req: bool,
    /// Bytes of pad, 0 to 3.
    pub pad_count: u8,
    /// Partition key.
    pub pkey: u16,
    /// See [`Bth::fecn`].
    pub fecn: bool,
    /// See [`Bth::becn`].
    pub becn: bool,
    /// The queue pair that the packet is for, 24 bits.
    pub dest_qp: u32,
    /// Acknowledge request.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl BthRepr {
    /// The values of a header.
    ///
    /// # Errors
    /// [`WireError::BadVersion`].
    pub fn parse(bth: &Bth<'_>) -> Result<Self, WireError> {
        if bth.tver() != 0 {
            return Err(WireError::BadVersion(bth.tver()));
        }
        Ok(Self {
            opcode: bth.opcode(),
            solicited: bth.solicited(),
            mig_req: bth.mig_req(),
            pad_count: bth.pad_count(),
            pkey: bth.pkey(),
            fecn: bth.fecn(),
            becn: bth.becn(),
            dest_qp: bth.dest_qp(),
            ack_req: bth.ack_req(),
            psn: bth.psn(),
        })
    }

    /// The header's bytes.
    #[must_use]
    #[inline]
    pub fn emit(&self) -> [u8; BTH_BYTES] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let [_, qp_a, qp_b, qp_c] = self.dest_qp.to_be_bytes();
        let [_, psn_a, psn_b, psn_c] = self.psn.value().to_be_bytes();
        let [pkey_a, pkey_b] = self.pkey.to_be_bytes();
        let flags = flag(self.solicited, SOLICITED) | flag(self.mig_req, MIG_REQ);
        [
            self.opcode,
            flags | (self.pad_count & 3) << 4,
            pkey_a,
            pkey_b,
            flag(self.fecn, FECN) | flag(self.becn, BECN),
            qp_a,
            qp_b,
            qp_c,
            flag(self.ack_req, ACK_REQ),
            psn_a,
            psn_b,
            psn_c,
        ]
    }
}
