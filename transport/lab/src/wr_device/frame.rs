//! What travels in a train: the receiving queue pair, the immediate, the message.

use towpath_verbs::{QpNum, SendOp};

/// Bytes before the message.
pub(super) const FRAME_BYTES: usize = 16;

/// Bytes that a packet has beside its share of the message: BTH 12, ICRC 4.
const PACKET_BYTES: u64 = 12 + 4;

/// Bytes that an immediate adds to the last packet.
const IMM_BYTES: u64 = 4;

/// The head of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) dest_qp: QpNum,
    pub(super) imm_data: Option<u32>,
}

impl Frame {
    pub(super) fn of(op: &SendOp, dest_qp: QpNum) -> Self {
        let imm_data = match op {
            SendOp::SendWithImm { imm_data } => Some(*imm_data),
            _ => None,
        };
        Self { dest_qp, imm_data }
    }

    pub(super) fn emit(self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&self.dest_qp.0.to_le_bytes());
        bytes[4] = u8::from(self.imm_data.is_some());
        bytes[8..12].copy_from_slice(&self.imm_data.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// The head and the message; `None` for what is too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, message) = bytes.split_first_chunk::<FRAME_BYTES>()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let imm_data = (head[4] == 1).then(|| word(8));
        Some((Self { dest_qp: QpNum(word(0)), imm_data }, message))
    }

    /// How many packets a message makes, and their bytes from BTH to ICRC.
    pub(super) fn on_wire(self, message_bytes: u32, mtu: u32) -> (u32, u64) {
        let packets = message_bytes.div_ceil(mtu).max(1);
        let imm = if self.imm_data.is_some() { IMM_BYTES } else { 0 };
        // Packets are padded to four bytes; only the last one may need it.
        let padded = u64::from(message_bytes).next_multiple_of(4);
        (packets, padded + u64::from(packets) * PACKET_BYTES + imm)
    }
}
