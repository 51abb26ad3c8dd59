//! A whole packet, checked once.

use super::bth::{BTH_BYTES, Bth, BthRepr};
use super::ext::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth};
use super::icrc::{ICRC_BYTES, IcrcBase};
use super::opcode::Opcode;
use super::{Field, WireError};
use core::net::SocketAddr;

/// A view of a well-formed packet. The ICRC is not checked by parsing: it needs the addresses, see
/// [`IcrcBase::difference`].
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth<'a>,
    /// The opcode's properties.
    pub opcode: &'static Opcode,
    ext: &'a [u8],
    /// The payload without its pad.
    pub payload: &'a [u8],
    /// The ICRC as it came.
    pub icrc: u32,
}

impl<'a> Packet<'a> {
    /// Checks lengths, version and opcode.
    ///
    /// # Errors
    /// [`WireError`], which names the field.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let have = bytes.len();
        let short = |field, need| WireError::TooShort { field, need, have };
        let bth = Bth::new_checked(bytes)?;
        if bth.tver() != 0 {
            return Err(WireError::BadVersion(bth.tver()));
        }
        let opcode = Opcode::of(bth.opcode()).ok_or(WireError::BadOpcode(bth.opcode()))?;
        let ext_end = BTH_BYTES + opcode.ext_bytes();
        let ext = bytes.get(BTH_BYTES..ext_end).ok_or(short(Field::ExtHeaders, ext_end))?;
        let (body, icrc) = bytes[ext_end..]
            .split_last_chunk::<ICRC_BYTES>()
            .ok_or(short(Field::Icrc, ext_end + ICRC_BYTES))?;
        let pad = usize::from(bth.pad_count());
        let payload_len =
            body.len().checked_sub(pad).ok_or(short(Field::Pad, ext_end + pad + ICRC_BYTES))?;
        if !body.len().is_multiple_of(4) {
            return Err(WireError::NotWords { have });
        }
        let payload = &body[..payload_len];
        Ok(Self { bth, opcode, ext, payload, icrc: u32::from_le_bytes(*icrc) })
    }

    /// The RETH, on opcodes that carry one; so for all of these.
    #[must_use]
    pub fn reth(&self) -> Option<Reth> {
        self.ext.first_chunk().filter(|_| self.opcode.has_reth()).map(Reth::parse)
    }

    /// The DETH.
    #[must_use]
    pub fn deth(&self) -> Option<Deth> {
        self.ext.first_chunk().filter(|_| self.opcode.has_deth()).map(Deth::parse)
    }

    /// The AETH.
    #[must_use]
    pub fn aeth(&self) -> Option<Aeth> {
        self.ext.first_chunk().filter(|_| self.opcode.has_aeth()).map(Aeth::parse)
    }

    /// The AtomicETH.
    #[must_use]
    pub fn atomic(&self) -> Option<AtomicEth> {
        self.ext.first_chunk().filter(|_| self.opcode.has_atomic()).map(AtomicEth::parse)
    }

    /// The AtomicAckETH.
    #[must_use]
    pub fn atomic_ack(&self) -> Option<AtomicAckEth> {
        self.ext.last_chunk().filter(|_| self.opcode.has_atomic_ack()).map(AtomicAckEth::parse)
    }

    /// The immediate data.
    #[must_use]
    pub fn imm(&self) -> Option<ImmDt> {
        self.ext.last_chunk().filter(|_| self.opcode.has_imm()).map(ImmDt::parse)
    }

    /// The IETH.
    #[must_use]
    pub fn ieth(&self) -> Option<Ieth> {
        self.ext.last_chunk().filter(|_| self.opcode.has_ieth()).map(Ieth::parse)
    }
}

/// The extended headers of a packet. Which of them an opcode has is in the opcode's table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtHeaders {
    /// RETH.
    pub reth: Option<Reth>,
    /// DETH.
    pub deth: Option<Deth>,
    /// AETH.
    pub aeth: Option<Aeth>,
    /// AtomicETH.
    pub atomic: Option<AtomicEth>,
    /// AtomicAckETH.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data.
    pub imm: Option<ImmDt>,
    /// IETH.
    pub ieth: Option<Ieth>,
}

/// The values of a packet: for tests, traces and control packets. The data path writes its headers
/// in place instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRepr {
    /// Base transport header.
    pub bth: BthRepr,
    /// Extended headers.
    pub ext: ExtHeaders,
    /// Payload without pad.
    pub payload: Vec<u8>,
}

impl PacketRepr {
    /// The values of a packet.
    ///
    /// # Errors
    /// As [`Packet::parse`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let packet = Packet::parse(bytes)?;
        let ext = ExtHeaders {
            reth: packet.reth(),
            deth: packet.deth(),
            aeth: packet.aeth(),
            atomic: packet.atomic(),
            atomic_ack: packet.atomic_ack(),
            imm: packet.imm(),
            ieth: packet.ieth(),
        };
        Ok(Self { bth: BthRepr::parse(&packet.bth)?, ext, payload: packet.payload.to_vec() })
    }

    /// The packet's bytes, with the pad count of the payload and the ICRC of these addresses.
    #[must_use]
    pub fn emit(&self, source: SocketAddr, dest: SocketAddr) -> Vec<u8> {
        let pad = pad_bytes(self.payload.len());
        let bth = BthRepr { pad_count: pad as u8, ..self.bth };
        let mut bytes = bth.emit().to_vec();
        let ExtHeaders { reth, deth, aeth, atomic, atomic_ack, imm, ieth } = &self.ext;
        bytes.extend(deth.iter().flat_map(Deth::emit));
        bytes.extend(reth.iter().flat_map(Reth::emit));
        bytes.extend(aeth.iter().flat_map(Aeth::emit));
        bytes.extend(atomic.iter().flat_map(AtomicEth::emit));
        bytes.extend(atomic_ack.iter().flat_map(AtomicAckEth::emit));
        bytes.extend(imm.iter().flat_map(ImmDt::emit));
        bytes.extend(ieth.iter().flat_map(Ieth::emit));
        bytes.extend_from_slice(&self.payload);
        bytes.resize(bytes.len() + pad + ICRC_BYTES, 0);
        let base = IcrcBase::new(source, dest, bth.dest_qp);
        let difference = base.difference(&bytes).expect("a packet holds a BTH and an ICRC");
        let at = bytes.len() - ICRC_BYTES;
        bytes[at..].copy_from_slice(&difference.to_le_bytes());
        bytes
    }
}

/// Bytes of pad behind a payload of `len` bytes.
#[must_use]
pub(crate) const fn pad_bytes(len: usize) -> usize {
    len.wrapping_neg() & 3
}
