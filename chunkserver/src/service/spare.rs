//! Lists that are used again, so that serving does not allocate.

use towpath_rpc::Piece;

use super::limits::SPARE_MAX;

/// Empty lists with room in them.
#[derive(Debug, Default)]
pub(super) struct Spare {
    crcs: Vec<Vec<u32>>,
    data: Vec<Vec<Piece>>,
}

impl Spare {
    pub(super) fn take_crcs(&mut self) -> Vec<u32> {
        self.crcs.pop().unwrap_or_default()
    }

    pub(super) fn take_data(&mut self) -> Vec<Piece> {
        self.data.pop().unwrap_or_default()
    }

    pub(super) fn put_crcs(&mut self, mut crcs: Vec<u32>) {
        if self.crcs.len() < SPARE_MAX {
            crcs.clear();
            self.crcs.push(crcs);
        }
    }

    /// Takes a list back; what is in it is dropped, which gives its credit back.
    pub(super) fn put_data(&mut self, mut data: Vec<Piece>) {
        data.clear();
        if self.data.len() < SPARE_MAX {
            self.data.push(data);
        }
    }
}
