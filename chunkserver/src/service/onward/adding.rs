//! Data parts of a stripe that are added up to a parity part, which is stored once all are here.

use std::sync::Arc;

use towpath_fastpath::server::{PieceShape, verify_pieces};
use towpath_fastpath::wire::{Why, WriteHeader};
use towpath_fastpath::{ErrorReply, Route};
use towpath_rpc::{Piece, RequestKey};
use towpath_transport::{Device, Region, SendBuffers as _};

use super::Passed;
use crate::service::answer::Answer;
use crate::service::ask::{Ask, Place};
use crate::service::open::{Begun, Staged, What, runs};
use crate::service::server::ChunkServer;
use crate::service::trace::Came;
use crate::store::{Held, Hold, SLICE_BYTES, SumEnd, SumName, SumOwner, Sums, writer_crcs};

/// The data part of a stripe while it comes, at a server with a parity part.
#[derive(Debug)]
pub(in crate::service) struct Adding {
    header: WriteHeader,
    crcs: Vec<u32>,
    /// The rank of the data part, and that of this server.
    from: usize,
    rank: u8,
    /// Pieces that begin or end within a slice.
    cut: Vec<(usize, Piece)>,
    sums: Arc<Sums>,
    sum: Of,
}

#[derive(Debug)]
enum Of {
    /// Nothing of it was added yet: its name, and who begins it.
    None(SumName, SumOwner),
    Sum(Hold),
    /// It was stored before: the chunk had that version then.
    Made(u64),
}

impl Adding {
    pub(in crate::service) fn new(
        (sums, owner): (&Arc<Sums>, SumOwner),
        route: &Route,
        (header, crcs): (WriteHeader, Vec<u32>),
    ) -> Result<Self, Answer> {
        let (rank, from) = (route.rank(), usize::from(route.adds().unwrap_or(0)));
        let data = usize::from(route.data());
        let bad = |_| Answer::Error(ErrorReply::BadRequest { why: Why::Header });
        let shape = towpath_ec::Shape::new(data, route.servers().len() - data).map_err(bad)?;
        let WriteHeader { chunk, offset, length: byte_len, terms, .. } = header;
        let (stamp, parity) = (terms.stamp, usize::from(rank) - data);
        let name = SumName { chunk, offset, byte_len, stamp, shape, parity };
        let (sums, sum) = (Arc::clone(sums), Of::None(name, owner));
        Ok(Self { header, crcs, from, rank, cut: Vec::new(), sums, sum })
    }

    /// Its chunk, and which bytes.
    pub(in crate::service) fn place(&self) -> Place {
        Place::of(&self.header)
    }

    /// A piece is here: it is checked and added, and its buffer is free again.
    /// `whole` is what its link holds whole.
    pub(in crate::service) fn take(
        &mut self,
        offset: usize,
        piece: Piece,
        whole: usize,
    ) -> Result<(), ErrorReply> {
        if PieceShape::of(&self.header, offset, piece.len()) == PieceShape::CutsSlices {
            if self.header.length as usize > whole {
                // Its client would have no credit left to send the rest.
                return Err(ErrorReply::TooLong { max: whole as u64 });
            }
            self.cut.push((offset, piece));
            return Ok(());
        }
        self.add(offset, &piece, piece.page_crcs())
    }

    fn add(&mut self, offset: usize, bytes: &[u8], pages: &[u32]) -> Result<(), ErrorReply> {
        verify_pieces(&self.header, &self.crcs, [(offset, bytes, pages)])?;
        if let Of::None(name, owner) = self.sum {
            // Only now: what takes room is data that has come.
            self.sum = match self.sums.hold(name, owner) {
                Some(Held::Made(version)) => Of::Made(version),
                Some(Held::Sum(hold)) => Of::Sum(hold),
                None => return Err(ErrorReply::NoSums),
            };
        }
        if let Of::Sum(hold) = &self.sum {
            hold.add(self.from, offset, bytes);
        }
        Ok(())
    }

    /// All of it is here.
    pub(in crate::service) fn complete(&mut self) -> Result<(), ErrorReply> {
        for run in runs(&mut std::mem::take(&mut self.cut)) {
            let pieces: Vec<&[u8]> = run.iter().map(|(_, piece)| &piece[..]).collect();
            let at = run.first().map_or(0, |(offset, _)| *offset);
            self.add(at, &pieces.concat(), &[])?;
        }
        Ok(())
    }

    fn end(&self) -> Option<SumEnd> {
        match &self.sum {
            Of::None(..) => None,
            Of::Made(version) => Some(Ok(*version)),
            Of::Sum(hold) => hold.end(),
        }
    }

    fn answer(&self, end: SumEnd) -> Answer {
        let rank = self.rank.into();
        match end {
            Ok(version) => Answer::Changed(version),
            Err(code) if code == ErrorReply::Busy.code() => Answer::Error(ErrorReply::Busy),
            // Whether it is stored is not known.
            Err(code) if is_unsure(code) => Answer::Error(ErrorReply::ReplicaLost { rank }),
            Err(code) => Answer::Error(ErrorReply::ReplicaRefused { rank, code }),
        }
    }
}

/// Whether who is told this code does not know whether the sum was stored.
fn is_unsure(code: u16) -> bool {
    let lost = ErrorReply::ReplicaLost { rank: 0 };
    [0, ErrorReply::CommitFailed.code(), lost.code()].contains(&code)
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Goes on with a data part that is here: its sum is stored by whoever brought what came last,
    /// and the others hear of it.
    pub(super) fn settle_sum(&mut self, request: RequestKey) {
        let Some(adding) = self.open.adding(request) else { return };
        if let Some(end) = adding.end() {
            let answer = adding.answer(end);
            return self.refuse_begun(request, answer);
        }
        let taken = if let Of::Sum(hold) = &adding.sum { hold.take() } else { None };
        let Some(bytes) = taken else { return self.onward.wait(request) };
        let Some(begun) = self.open.take(request) else { return };
        let Begun { responder, deadline, began, what: What::Adding(adding), .. } = begun else {
            return;
        };
        let Adding { header, rank, sum: Of::Sum(hold), .. } = adding else { return };
        let passed = Passed::of_sum(rank, hold);
        let Ok(copied) = self.endpoint.buffers_of(responder.link()).copy(&bytes) else {
            let answer = Answer::Error(ErrorReply::Busy).of_passed(Some(&passed));
            return self.answer(responder, deadline, answer);
        };
        let crcs = writer_crcs(header.chunk, header.offset, &bytes);
        debug_assert_eq!(crcs.len(), bytes.len() / SLICE_BYTES);
        let data = vec![Piece::from(copied.freeze())];
        let ask = Ask::write(header, crcs, data, Staged::default());
        let came = Came { began, taken: self.endpoint.now() };
        self.take_in_new(responder, deadline, ask, came, Some(passed));
    }
}
