//! What a `wr_id` says: which table entry a completion belongs to.

use towpath_verbs::QpNum;

/// No queue pair: 24 bits hold those that there are.
pub(crate) const NO_QP: QpNum = QpNum(u32::MAX);

/// The number of no receive queue.
pub(crate) const NO_QUEUE: u32 = u32::MAX;

/// The meaning of a `wr_id`. Layout from the top: kind (8 bits), link (16), path (8), index (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrId {
    /// A receive of a path: the slot of the receive table.
    DataRecv { slot: u32 },
    /// A send of a path: the position in its ring.
    DataSend { link: u16, path: u8, position: u32 },
    /// A receive of a control queue pair: the slot of the link's table.
    ControlRecv { link: u16, slot: u32 },
    /// A send of a control queue pair: the slot of the link's table.
    ControlSend { link: u16, slot: u32 },
    /// A one-sided operation of a link: its index among those.
    LaneOp { link: u16, op: u32 },
}

impl WrId {
    pub(crate) const fn pack(self) -> u64 {
        let (kind, link, path, index) = match self {
            Self::DataRecv { slot } => (1, 0, 0, slot),
            Self::DataSend { link, path, position } => (2, link, path, position),
            Self::ControlRecv { link, slot } => (3, link, 0, slot),
            Self::ControlSend { link, slot } => (4, link, 0, slot),
            Self::LaneOp { link, op } => (5, link, 0, op),
        };
        (kind as u64) << 56 | (link as u64) << 40 | (path as u64) << 32 | index as u64
    }

    /// None for a word that this endpoint never posted.
    pub(crate) const fn unpack(word: u64) -> Option<Self> {
        let (link, path, index) = ((word >> 40) as u16, (word >> 32) as u8, word as u32);
        Some(match word >> 56 {
            1 => Self::DataRecv { slot: index },
            2 => Self::DataSend { link, path, position: index },
            3 => Self::ControlRecv { link, slot: index },
            4 => Self::ControlSend { link, slot: index },
            5 => Self::LaneOp { link, op: index },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_as_it_went_and_a_foreign_word_is_none() {
        for id in [
            WrId::DataRecv { slot: u32::MAX },
            WrId::DataSend { link: 0xabcd, path: 15, position: 0xfedc_ba98 },
            WrId::ControlRecv { link: u16::MAX, slot: 3 },
            WrId::ControlSend { link: 1, slot: u32::MAX },
            WrId::LaneOp { link: 2, op: 7 },
        ] {
            assert_eq!(WrId::unpack(id.pack()), Some(id));
        }
        assert_eq!(WrId::unpack(0), None);
        assert_eq!(WrId::unpack(6 << 56), None);
    }
}
