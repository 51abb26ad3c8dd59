//! Changes that several clients may ask for, and that are made once.

use super::client::{Client, changed};
use super::pending::Pending;
use super::request::Request;
use crate::change::{NewChunk, Terms};
use crate::slice::ChunkId;

impl Client {
    /// As [`create`](Self::create), of a chunk of any length; gives the version that the new chunk
    /// has: whoever changes what has that version finds nothing in it.
    pub fn create_new(&self, chunk: ChunkId) -> Pending<u64> {
        let (stamp, kind) = (self.stamp(), NewChunk::default());
        self.ask(Request::Create { chunk, limit_bytes: None, kind, stamp }, false, changed)
    }

    /// As [`write_if`](Self::write_if), with a stamp, not 0, that the caller has for the change and
    /// for no other one. Whoever asks for the same change, of the same version with the same
    /// stamp, gets the version that it made, as long as it is the chunk's last one
    /// (docs/storage-protocol.md section 7): so one client finishes what another has begun.
    pub fn write_as(
        &self,
        chunk: ChunkId,
        offset: u64,
        bytes: impl Into<Vec<u8>>,
        (version, stamp): (u64, u64),
    ) -> Pending<u64> {
        let terms = Terms { version: Some(version), stamp, ..self.any_terms() };
        let bytes = bytes.into();
        self.ask(Request::Write { chunk, offset, bytes, terms }, false, changed)
    }
}
