//! The policy of writes: check each piece while it is in cache, stage it, and store the write.

use smallvec::SmallVec;
use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::{PieceShape, verify_pieces};
use towpath_fastpath::wire::WriteHeader;
use towpath_rpc::Piece;

use super::{Context, Effect, Policy, Staged, runs};
use crate::service::answer::Answer;
use crate::service::ask::{Ask, Place};
use crate::service::limits::STAGE_BYTES_MIN;
use crate::service::spare::Spare;
use crate::store::{ChunkId, SLICE_BYTES};

/// Stores writes on the disk of this server.
#[derive(Debug, Default)]
pub(in crate::service) struct StoreWrite {
    pub(in crate::service) spare: Spare,
}

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
    pub(super) asked: usize,
    pub(super) staged: Staged,
}

impl Writing {
    /// Its chunk, and which bytes.
    pub(super) fn place(&self) -> Place {
        Place::of(&self.header)
    }

    pub(super) fn chunk(&self) -> ChunkId {
        self.header.chunk
    }

    /// The store has said whether it took a piece, which comes back where it did not.
    pub(super) fn on_staged(&mut self, offset: usize, refused: Option<Piece>) {
        self.asked -= 1;
        match refused {
            Some(piece) => self.held.push((offset, piece)),
            None => self.staged.note(),
        }
    }

    /// Whether what is held can wait until the write is whole.
    pub(super) fn can_wait(&self, context: &Context) -> bool {
        self.held.is_empty() || self.header.length as usize <= context.whole_bytes_max
    }

    fn check<'a>(
        &self,
        context: &mut Context,
        pieces: impl IntoIterator<Item = (usize, &'a Piece)>,
    ) -> Result<(), Answer> {
        let pieces = pieces.into_iter().map(|(at, piece)| (at, &piece[..], piece.page_crcs()));
        verify_pieces(&self.header, &self.crcs, pieces).map_err(|error| {
            context.is_corrupt = true;
            Answer::Error(error)
        })
    }
}

impl Policy for StoreWrite {
    type Header = (WriteHeader, Vec<u32>, Staged);
    type State = Writing;

    fn header(&mut self, _: &mut Context, header: Self::Header) -> Result<Writing, Answer> {
        let (header, crcs, staged) = header;
        let (arrived, asked) = (0, 0);
        let (held, has_cut_slices) = (SmallVec::new(), false);
        Ok(Writing { header, crcs, arrived, held, has_cut_slices, asked, staged })
    }

    fn payload(
        &mut self,
        context: &mut Context,
        writing: &mut Writing,
        offset: usize,
        piece: Piece,
    ) -> Result<(), Answer> {
        let WriteHeader { chunk, offset: start, length, .. } = writing.header;
        let shape = PieceShape::of(&writing.header, offset, piece.len());
        match shape {
            PieceShape::CutsSlices => writing.has_cut_slices = true,
            _ => writing.check(context, [(offset, &piece)])?,
        }
        writing.arrived += piece.len();
        let is_last = writing.arrived == length as usize;
        let is_for_stage =
            shape == PieceShape::WholeSlices && length as usize >= STAGE_BYTES_MIN && !is_last;
        if is_for_stage
            && context.has_room
            && let Some(stage) = writing.staged.stage()
        {
            let first_slice = (start + offset as u64) / SLICE_BYTES as u64;
            context.effect = Some(Effect::Stage { stage, chunk, first_slice, offset, piece });
            writing.asked += 1;
            return Ok(());
        }
        writing.held.push((offset, piece));
        if is_last || writing.can_wait(context) {
            return Ok(());
        }
        let max = context.whole_bytes_max as u64;
        Err(Answer::Error(match is_for_stage {
            // The store has no room for it now.
            true => ErrorReply::Busy,
            false => ErrorReply::TooLong { max },
        }))
    }

    fn complete(&mut self, context: &mut Context, writing: &mut Writing) -> Result<Ask, Answer> {
        let mut held = std::mem::take(&mut writing.held);
        // Between runs of them lie slices that were checked, and are staged.
        for run in runs(&mut held) {
            if writing.has_cut_slices {
                writing.check(context, run.iter().map(|(at, piece)| (*at, piece)))?;
            }
        }
        let mut data = self.spare.take_data();
        data.extend(held.into_iter().map(|(_, piece)| piece));
        let crcs = std::mem::take(&mut writing.crcs);
        Ok(Ask::write(writing.header, crcs, data, std::mem::take(&mut writing.staged)))
    }

    fn cleanup(&mut self, writing: Writing) {
        // Pieces give their credit back, and what is staged is forgotten.
        drop(writing);
    }
}
