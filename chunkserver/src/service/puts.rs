//! Unfinished chunks that a link has made: they are kept while it is there, however slowly their
//! data comes.

use std::collections::HashMap;

use towpath_rpc::Piece;
use towpath_transport::{Buf, Device, LinkId, Region};

use super::ask::Ask;
use super::limits::OPEN_PUTS_MAX;
use super::server::ChunkServer;
use crate::store::{ChunkId, NewChunk, Reply};

/// By link.
pub(super) type OpenPuts = HashMap<LinkId, Vec<ChunkId>>;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Follows what a change of a link did to an unfinished chunk.
    pub(super) fn follow_put(
        &mut self,
        link: LinkId,
        chunk: ChunkId,
        done: (&Reply<Piece, Buf>, &Ask),
    ) {
        match done {
            (Reply::Change(Ok(_)), Ask::Create(_, _, NewChunk { unfinished: true, .. }, _)) => {
                self.begin_put(link, chunk);
            }
            (Reply::Change(Ok(_)), Ask::Finish(..) | Ask::Delete(..)) => self.end_put(link, chunk),
            _ => {}
        }
    }

    /// A link has made an unfinished chunk.
    fn begin_put(&mut self, link: LinkId, chunk: ChunkId) {
        // One that is gone has been forgotten.
        if self.endpoint.class_of(link).is_none() {
            return;
        }
        let of_link = self.puts.entry(link).or_default();
        if of_link.len() < OPEN_PUTS_MAX {
            of_link.push(chunk);
            self.store.begin_put(chunk);
        }
    }

    /// A link has finished or deleted a chunk.
    fn end_put(&mut self, link: LinkId, chunk: ChunkId) {
        let Some(of_link) = self.puts.get_mut(&link) else { return };
        if let Some(at) = of_link.iter().position(|known| *known == chunk) {
            of_link.swap_remove(at);
            self.store.end_put(chunk);
        }
    }

    /// A link is gone.
    pub(super) fn end_puts(&mut self, link: LinkId) {
        for chunk in self.puts.remove(&link).unwrap_or_default() {
            self.store.end_put(chunk);
        }
    }
}
