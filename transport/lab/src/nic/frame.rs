//! What a packet of the model carries.

/// Bytes that a packet has beside its payload: BTH 12, ICRC 4.
const PACKET_BYTES: u64 = 12 + 4;

/// Bytes of an acknowledgement's own header (AETH).
const ACK_BYTES: u64 = 4;

/// Bytes of a notification of congestion behind its BTH, which are reserved.
const NOTIFICATION_BYTES: u64 = 16;

/// Bytes of a frame.
const FRAME_BYTES: usize = 21;

/// A packet between the two halves of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Of which flow.
    pub(super) flow: u32,
    pub(super) kind: FrameKind,
}

/// What a packet says. Packets of a flow are numbered from 0 in the order of their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A packet of data.
    Data {
        /// Its number.
        number: u64,
        /// Whether it asks for an acknowledgement.
        wants_ack: bool,
    },
    /// All packets before `expected` have come.
    Ack {
        /// The first packet that is missing.
        expected: u64,
    },
    /// Packet `came` has come, and `expected` is missing.
    Gap {
        /// The first packet that is missing.
        expected: u64,
        /// What came in place of it.
        came: u64,
    },
    /// A switch was congested.
    Congested,
}

impl Frame {
    pub(super) fn emit(self) -> [u8; FRAME_BYTES] {
        let (kind, first, second) = match self.kind {
            FrameKind::Data { number, wants_ack: false } => (0, number, 0),
            FrameKind::Data { number, wants_ack: true } => (1, number, 0),
            FrameKind::Ack { expected } => (2, expected, 0),
            FrameKind::Gap { expected, came } => (3, expected, came),
            FrameKind::Congested => (4, 0, 0),
        };
        let mut bytes = [0; FRAME_BYTES];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&self.flow.to_le_bytes());
        bytes[5..13].copy_from_slice(&first.to_le_bytes());
        bytes[13..].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// `None` for what no host of the model sends.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_BYTES] = bytes.try_into().ok()?;
        let flow = u32::from_le_bytes(bytes[1..5].try_into().ok()?);
        let first = u64::from_le_bytes(bytes[5..13].try_into().ok()?);
        let second = u64::from_le_bytes(bytes[13..].try_into().ok()?);
        let kind = match bytes[0] {
            0 => FrameKind::Data { number: first, wants_ack: false },
            1 => FrameKind::Data { number: first, wants_ack: true },
            2 => FrameKind::Ack { expected: first },
            3 => FrameKind::Gap { expected: first, came: second },
            4 => FrameKind::Congested,
            _ => return None,
        };
        Some(Self { flow, kind })
    }

    /// Its bytes on the wire, BTH to ICRC, where a packet of data has `payload_bytes`.
    pub(super) fn wire_bytes(self, payload_bytes: u64) -> u64 {
        PACKET_BYTES
            + match self.kind {
                FrameKind::Data { .. } => payload_bytes,
                FrameKind::Ack { .. } | FrameKind::Gap { .. } => ACK_BYTES,
                FrameKind::Congested => NOTIFICATION_BYTES,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let kinds = [
            FrameKind::Data { number: 7, wants_ack: false },
            FrameKind::Data { number: u64::MAX, wants_ack: true },
            FrameKind::Ack { expected: 9 },
            FrameKind::Gap { expected: 10, came: 12 },
            FrameKind::Congested,
        ];
        for kind in kinds {
            let frame = Frame { flow: 3, kind };
            assert_eq!(Frame::parse(&frame.emit()), Some(frame));
        }
        assert_eq!(Frame::parse(&[5; FRAME_BYTES]), None);
        assert_eq!(Frame::parse(&[0; 4]), None);
    }
}
