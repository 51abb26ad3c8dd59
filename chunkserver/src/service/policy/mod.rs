//! What is done with a request while its data arrives: policies of four handlers.
//!
//! A policy gets the header of a request as soon as that is here, then its data piece by piece in
//! any order, then that all of it has come; or it gets nothing more, and cleans up. What it wants
//! done it puts in its [`Context`]. Nothing is published before a request is complete.
//!
//! | file | contents |
//! |---|---|
//! | `store` | the policy of writes: check, stage, store |
//! | `begin` | requests that begin before their data is here |
//! | `open` | requests whose data is still coming, and which events are for which |
//! | `staged` | what the store has of a write before the write is asked for |

mod begin;
mod open;
mod staged;
mod store;

use towpath_rpc::Piece;

use super::answer::Answer;
use super::ask::Ask;
use crate::store::ChunkId;

pub(super) use open::Open;
pub(super) use staged::Staged;
pub(super) use store::StoreWrite;

/// Puts pieces of data, each with where it begins, in order: those that follow each other are a
/// run.
pub(super) fn runs(pieces: &mut [(usize, Piece)]) -> impl Iterator<Item = &[(usize, Piece)]> {
    pieces.sort_unstable_by_key(|(offset, _)| *offset);
    pieces.chunk_by(|a, b| a.0 + a.1.len() == b.0)
}

/// The four handlers of a kind of request. They run on the network thread, to completion.
pub(super) trait Policy {
    /// What comes before the data.
    type Header;
    /// What is kept of a request between its handlers.
    type State;

    /// The header is here.
    ///
    /// # Errors
    /// The answer to a request that is refused; no other handler is called then.
    fn header(
        &mut self,
        context: &mut Context,
        header: Self::Header,
    ) -> Result<Self::State, Answer>;

    /// A piece of the data is here, which begins at `offset` of it.
    ///
    /// # Errors
    /// The answer to a request that is refused now; [`cleanup`](Self::cleanup) follows.
    fn payload(
        &mut self,
        context: &mut Context,
        state: &mut Self::State,
        offset: usize,
        piece: Piece,
    ) -> Result<(), Answer>;

    /// All data has come, and every effect has had its answer: what the store is asked now.
    ///
    /// # Errors
    /// The answer to a request that is refused now; [`cleanup`](Self::cleanup) follows.
    fn complete(&mut self, context: &mut Context, state: &mut Self::State) -> Result<Ask, Answer>;

    /// The request ends without being complete: what was done for it is undone.
    fn cleanup(&mut self, state: Self::State);
}

/// What handlers know of the server, and where their effects go.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// Data of a longer request cannot wait here until it is whole: its client would have no
    /// credit left to send the rest.
    pub(super) whole_bytes_max: usize,
    /// The store takes an effect now.
    pub(super) has_room: bool,
    /// What a handler wants done.
    pub(super) effect: Option<Effect>,
    /// A slice was not as it was sent.
    pub(super) is_corrupt: bool,
}

/// What a handler wants done.
#[derive(Debug)]
pub(super) enum Effect {
    /// Whole slices of a chunk go to the disk; the piece comes back where they are not taken.
    Stage { stage: u64, chunk: ChunkId, first_slice: u64, offset: usize, piece: Piece },
}
