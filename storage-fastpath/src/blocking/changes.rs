//! Changes of chunks by the blocking client.

use super::{BlockingClient, wrong};
use crate::change::{Clear, NewChunk, Terms};
use crate::client::OpId;
use crate::error::ClientError;
use crate::output::Output;
use crate::slice::ChunkId;
use crate::wire::Method;
use towpath_transport::{Device, Region};

impl<D: Device<Memory = Region>> BlockingClient<D> {
    /// Creates a chunk that may grow to `limit_bytes`, or to the largest size of a chunk.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create(&mut self, chunk: ChunkId, limit_bytes: Option<u64>) -> Result<(), ClientError> {
        let op = self.client.primary_mut().start_create(&mut self.endpoint, chunk, limit_bytes)?;
        self.wait(op).map(drop)
    }

    /// Creates a chunk that is unfinished until [`finish`](Self::finish) is called. Until then it
    /// cannot be read, and the server removes it when no client writes to it for a while.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_unfinished(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
    ) -> Result<(), ClientError> {
        let kind = NewChunk { unfinished: true, ..NewChunk::default() };
        self.create_as(chunk, limit_bytes, kind)
    }

    /// Creates a chunk of another kind.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn create_as(
        &mut self,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        kind: NewChunk,
    ) -> Result<(), ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_create_as(&mut self.endpoint, chunk, limit_bytes, kind)?;
        self.wait(op).map(drop)
    }

    /// Finishes an unfinished chunk, which must have `byte_len` bytes: it can be read from now on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn finish(&mut self, chunk: ChunkId, byte_len: u64) -> Result<(), ClientError> {
        let op = self.client.primary_mut().start_finish(&mut self.endpoint, chunk, byte_len)?;
        self.wait(op).map(drop)
    }

    /// As [`finish`](Self::finish), on terms; gives the version that the chunk has then.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn finish_on(
        &mut self,
        terms: Terms,
        chunk: ChunkId,
        byte_len: u64,
    ) -> Result<u64, ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_finish_on(&mut self.endpoint, terms, chunk, byte_len)?;
        self.version_of(op, Method::Finish)
    }

    /// Raises the chain version of a chunk, so that changes that name a lower one are refused from
    /// then on; gives the version that the chunk has then. A chunk that has this one already stays
    /// as it is.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn raise_chain(&mut self, chunk: ChunkId, chain: u32) -> Result<u64, ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_raise_chain(&mut self.endpoint, (chunk, chain), None, 0)?;
        self.version_of(op, Method::Chain)
    }

    /// Deletes a chunk.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn delete(&mut self, chunk: ChunkId) -> Result<(), ClientError> {
        let op = self.client.primary_mut().start_delete(&mut self.endpoint, chunk)?;
        self.wait(op).map(drop)
    }

    /// As [`delete`](Self::delete), where the chunk has that version.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn delete_if(&mut self, chunk: ChunkId, version: u64) -> Result<(), ClientError> {
        let client = self.client.primary_mut();
        let op = client.start_delete_if(&mut self.endpoint, chunk, Some(version))?;
        self.wait(op).map(drop)
    }

    /// Takes bytes of a chunk away, of a range at most 2^32 - 1.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn clear(&mut self, chunk: ChunkId, clear: Clear) -> Result<(), ClientError> {
        let terms = Terms::default();
        let op = self.client.primary_mut().start_clear(&mut self.endpoint, terms, chunk, clear)?;
        self.wait(op).map(drop)
    }

    /// As [`clear`](Self::clear), on terms; gives the version that the chunk has then.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn clear_on(
        &mut self,
        terms: Terms,
        chunk: ChunkId,
        clear: Clear,
    ) -> Result<u64, ClientError> {
        let op = self.client.primary_mut().start_clear(&mut self.endpoint, terms, chunk, clear)?;
        self.version_of(op, clear.method())
    }

    /// Writes at most one operation's bytes from `offset` on, all or nothing;
    /// [`write`](Self::write) takes more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn write_once(
        &mut self,
        chunk: ChunkId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), ClientError> {
        let op =
            self.client.primary_mut().start_write_copy(&mut self.endpoint, chunk, offset, bytes)?;
        self.wait(op).map(drop)
    }

    /// As [`write_once`](Self::write_once), on terms; gives the version that the chunk has then.
    ///
    /// # Errors
    /// [`ClientError`]. Where it is not known whether the write was made, the same write on the
    /// same terms may be asked for again over another connection, if they have version and stamp.
    pub fn write_once_on(
        &mut self,
        terms: Terms,
        chunk: ChunkId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, ClientError> {
        let (client, at) = (self.client.primary_mut(), (chunk, offset));
        let op = client.start_write_copy_on(&mut self.endpoint, terms, at, bytes)?;
        self.version_of(op, Method::Write)
    }

    /// The version that a change has made.
    fn version_of(&mut self, op: OpId, method: Method) -> Result<u64, ClientError> {
        match self.wait(op)? {
            Output::Changed(_, Some(version)) => Ok(version),
            _ => Err(wrong(method)),
        }
    }
}
