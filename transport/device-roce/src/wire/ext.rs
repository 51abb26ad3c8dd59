//! The extended transport headers: small, of fixed length, each a value with `parse` and `emit`.
//!
//! Their length is part of their types, so that neither direction can fail; that a packet holds
//! them is checked in one place, [`Packet::parse`](super::Packet::parse).

use super::opcode::{AETH_BYTES, DETH_BYTES, IETH_BYTES, IMM_BYTES, RETH_BYTES};
use super::opcode::{ATOMIC_ACK_BYTES, ATOMIC_BYTES};

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

/// RDMA extended transport header: where a WRITE lands or a READ fetches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at the receiver.
    pub va: u64,
    /// The receiver's key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub dma_len: u32,
}

impl Reth {
    /// Its values.
    #[must_use]
    pub fn parse(bytes: &[u8; RETH_BYTES]) -> Self {
        Self { va: be64(bytes, 0), rkey: be32(bytes, 8), dma_len: be32(bytes, 12) }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; RETH_BYTES] {
        let mut bytes = [0; RETH_BYTES];
        bytes[0..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.dma_len.to_be_bytes());
        bytes
    }
}

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deth {
    /// Queue key: must be the receiver's.
    pub qkey: u32,
    /// The sender's queue pair, 24 bits.
    pub src_qp: u32,
}

impl Deth {
    /// Its values.
    #[must_use]
    pub fn parse(bytes: &[u8; DETH_BYTES]) -> Self {
        Self { qkey: be32(bytes, 0), src_qp: be32(bytes, 4) & 0xff_ffff }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; DETH_BYTES] {
        let mut bytes = [0; DETH_BYTES];
        bytes[0..4].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[4..8].copy_from_slice(&(self.src_qp & 0xff_ffff).to_be_bytes());
        bytes
    }
}

/// ACK extended transport header (RC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK, with credits, timer or reason: see [`Syndrome`](super::Syndrome).
    pub syndrome: u8,
    /// Message sequence number, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Its values.
    #[must_use]
    pub fn parse(bytes: &[u8; AETH_BYTES]) -> Self {
        let word = u32::from_be_bytes(*bytes);
        Self { syndrome: (word >> 24) as u8, msn: word & 0xff_ffff }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; AETH_BYTES] {
        (u32::from(self.syndrome) << 24 | (self.msn & 0xff_ffff)).to_be_bytes()
    }
}

/// Atomic extended transport header (RC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address of the eight bytes.
    pub va: u64,
    /// The receiver's key.
    pub rkey: u32,
    /// What is put there (`CMP_SWAP`), or added (`FETCH_ADD`).
    pub swap_add: u64,
    /// What must be there (`CMP_SWAP`).
    pub compare: u64,
}

impl AtomicEth {
    /// Its values.
    #[must_use]
    pub fn parse(bytes: &[u8; ATOMIC_BYTES]) -> Self {
        let (va, rkey) = (be64(bytes, 0), be32(bytes, 8));
        Self { va, rkey, swap_add: be64(bytes, 12), compare: be64(bytes, 20) }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; ATOMIC_BYTES] {
        let mut bytes = [0; ATOMIC_BYTES];
        bytes[0..8].copy_from_slice(&self.va.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.swap_add.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.compare.to_be_bytes());
        bytes
    }
}

/// Atomic ACK extended transport header (RC): what the eight bytes were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// The original value.
    pub original: u64,
}

impl AtomicAckEth {
    /// Its values.
    #[must_use]
    pub fn parse(bytes: &[u8; ATOMIC_ACK_BYTES]) -> Self {
        Self { original: u64::from_be_bytes(*bytes) }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; ATOMIC_ACK_BYTES] {
        self.original.to_be_bytes()
    }
}

/// Immediate data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImmDt {
    /// The 32 bits.
    pub imm_data: u32,
}

impl ImmDt {
    /// Its value.
    #[must_use]
    pub fn parse(bytes: &[u8; IMM_BYTES]) -> Self {
        Self { imm_data: u32::from_be_bytes(*bytes) }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; IMM_BYTES] {
        self.imm_data.to_be_bytes()
    }
}

/// Invalidate extended transport header (RC SEND with invalidate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ieth {
    /// The key to invalidate.
    pub rkey: u32,
}

impl Ieth {
    /// Its value.
    #[must_use]
    pub fn parse(bytes: &[u8; IETH_BYTES]) -> Self {
        Self { rkey: u32::from_be_bytes(*bytes) }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; IETH_BYTES] {
        self.rkey.to_be_bytes()
    }
}
