//! A write while its data comes: each piece is checked while it is in cache, and staged.

use smallvec::SmallVec;
use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::{PieceShape, verify_pieces};
use towpath_fastpath::wire::WriteHeader;
use towpath_rpc::Piece;
use towpath_transport::Class;

use super::{Staged, runs};
use crate::service::ask::{Ask, Place};
use crate::service::limits::STAGE_BYTES_MIN;
use crate::service::spare::Spare;
use crate::store::{ChunkId, SLICE_BYTES};

/// A write whose data is coming.
#[derive(Debug)]
pub(in crate::service) struct Writing {
    header: WriteHeader,
    crcs: Vec<u32>,
    /// Bytes that have come.
    arrived: usize,
    /// Pieces that are here, each with where it begins in the data.
    held: SmallVec<[(usize, Piece); 2]>,
    /// Some of them begin or end within a slice, and are not checked.
    has_cut_slices: bool,
    /// Stages that the store has not answered.
    asked: usize,
    staged: Staged,
}

/// Whole slices that go to the disk now; the piece comes back where they are not taken.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) name: u64,
    pub(super) class: Class,
    pub(super) first_slice: u64,
    pub(super) piece: Piece,
}

impl Writing {
    /// Its header is here.
    pub(super) fn new(header: WriteHeader, crcs: Vec<u32>, staged: Staged) -> Self {
        let (held, has_cut_slices) = (SmallVec::new(), false);
        Self { header, crcs, arrived: 0, held, has_cut_slices, asked: 0, staged }
    }

    pub(super) fn place(&self) -> Place {
        Place::of(&self.header)
    }

    pub(super) fn chunk(&self) -> ChunkId {
        self.header.chunk
    }

    pub(super) fn class(&self) -> Class {
        self.staged.class()
    }

    /// Whether the store has not answered a stage yet.
    pub(super) fn waits(&self) -> bool {
        self.asked > 0
    }

    /// A disk is asked to take something of it.
    pub(super) fn ask(&mut self, disk: usize) {
        self.asked += 1;
        self.staged.ask(disk);
    }

    /// The store has said whether it took a piece, which comes back where it did not.
    pub(super) fn on_staged(&mut self, offset: usize, refused: Option<Piece>) {
        self.asked -= 1;
        match refused {
            Some(piece) => self.held.push((offset, piece)),
            None => self.staged.note(),
        }
    }

    /// Whether what is held can wait until the write is whole. Data of one that is longer than its
    /// link holds whole cannot: its client would have no credit left to send the rest.
    pub(super) fn can_wait(&self, whole_bytes_max: usize) -> bool {
        self.held.is_empty() || self.header.length as usize <= whole_bytes_max
    }

    fn check<'a>(
        &self,
        pieces: impl IntoIterator<Item = (usize, &'a Piece)>,
    ) -> Result<(), ErrorReply> {
        let pieces = pieces.into_iter().map(|(at, piece)| (at, &piece[..], piece.page_crcs()));
        verify_pieces(&self.header, &self.crcs, pieces)
    }

    /// A piece of the data is here, which begins at `offset` of it. It is held, or it is staged,
    /// where the store has room.
    pub(super) fn take(
        &mut self,
        offset: usize,
        piece: Piece,
        whole_bytes_max: usize,
        has_room: impl FnOnce(&Self) -> bool,
    ) -> Result<Option<Stage>, ErrorReply> {
        let length = self.header.length as usize;
        let shape = PieceShape::of(&self.header, offset, piece.len());
        match shape {
            PieceShape::CutsSlices => self.has_cut_slices = true,
            _ => self.check([(offset, &piece)])?,
        }
        self.arrived += piece.len();
        let is_last = self.arrived == length;
        let is_for_stage =
            shape == PieceShape::WholeSlices && length >= STAGE_BYTES_MIN && !is_last;
        if is_for_stage
            && has_room(self)
            && let Some(name) = self.staged.stage()
        {
            let first_slice = (self.header.offset + offset as u64) / SLICE_BYTES as u64;
            return Ok(Some(Stage { name, class: self.class(), first_slice, piece }));
        }
        self.held.push((offset, piece));
        match is_for_stage {
            _ if is_last || self.can_wait(whole_bytes_max) => Ok(None),
            // The store has no room for it now.
            true => Err(ErrorReply::Busy),
            false => Err(ErrorReply::TooLong { max: whole_bytes_max as u64 }),
        }
    }

    /// All data has come, and every stage has had its answer: what the store is asked now.
    pub(super) fn complete(mut self, spare: &mut Spare) -> Result<Ask, ErrorReply> {
        let mut held = std::mem::take(&mut self.held);
        // Between runs of them lie slices that were checked, and are staged.
        for run in runs(&mut held) {
            if self.has_cut_slices {
                self.check(run.iter().map(|(at, piece)| (*at, piece)))?;
            }
        }
        let mut data = spare.take_data();
        data.extend(held.into_iter().map(|(_, piece)| piece));
        Ok(Ask::write(self.header, self.crcs, data, self.staged))
    }
}
