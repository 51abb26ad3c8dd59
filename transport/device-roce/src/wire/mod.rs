//! RoCEv2 packets, from the BTH to the ICRC: checked views, valid representations, opcodes.
//!
//! [`Packet::parse`] checks a packet once; nothing that it hands out can fail afterwards. A packet
//! is the UDP payload; the addresses that the ICRC covers stand beside it.

mod bth;
mod ext;
pub mod icrc;
pub mod opcode;
mod packet;
#[cfg(test)]
pub(crate) mod pcap;
mod syndrome;
#[cfg(test)]
mod tests;

pub use bth::{BTH_BYTES, Bth, BthRepr, PKEY_DEFAULT};
pub use ext::{Aeth, AtomicAckEth, AtomicEth, Deth, Ieth, ImmDt, Reth};
pub(crate) use icrc::Trailer;
pub use icrc::{ICRC_BYTES, IcrcBase, NO_ICRC};
pub use opcode::{Opcode, Operation, Position, Service};
pub(crate) use packet::pad_bytes;
pub use packet::{ExtHeaders, Packet, PacketRepr};
pub use syndrome::{CREDITS_UNLIMITED, NakCode, RnrTimer, Syndrome};

/// Parts of a packet, for naming the one that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Base transport header.
    Bth,
    /// The extended headers that the opcode asks for.
    ExtHeaders,
    /// Padding as the BTH counts it.
    Pad,
    /// Invariant CRC.
    Icrc,
}

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The packet ends before the field does.
    #[error("{have} bytes end within {field:?}, which needs {need}")]
    TooShort {
        /// Which field.
        field: Field,
        /// Bytes up to its end.
        need: usize,
        /// Bytes of the packet.
        have: usize,
    },
    /// Payload and pad together are always whole words.
    #[error("{have} bytes are not whole words")]
    NotWords {
        /// Bytes of the packet.
        have: usize,
    },
    /// The transport header version is not 0.
    #[error("transport header version {0}: only 0 exists")]
    BadVersion(u8),
    /// No such opcode.
    #[error("opcode {0:#04x} does not exist")]
    BadOpcode(u8),
}
