//! Writes: to one server, or along the servers of a route.

use super::{ChunkClient, OpId};
use crate::change::Terms;
use crate::error::ClientError;
use crate::route::Route;
use crate::run::page_crcs;
use crate::slice::{ChunkId, writer_crcs};
use crate::wire::{Method, WriteHeader, emit_crcs};
use towpath_rpc::NoBuffer;
use towpath_transport::{Buf, Device, Endpoint, Region};

impl ChunkClient {
    /// Writes the bytes of `data` from `offset` on, without copying them. The buffer goes home to
    /// its pool when it is sent, or when this fails.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_write<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        data: Buf,
    ) -> Result<OpId, ClientError> {
        let (room, terms) = (data.len(), Terms::default());
        self.start_data(endpoint, None, (chunk, offset), (room, terms), |_| Ok(data))
    }

    /// Writes a copy of `bytes` from `offset` on.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_write_copy<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<OpId, ClientError> {
        self.start_write_copy_on(endpoint, Terms::default(), (chunk, offset), bytes)
    }

    /// As [`start_write_copy`](Self::start_write_copy), on terms: where the chunk has a version,
    /// and under a stamp by which a write that is asked for again is known.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_write_copy_on<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        terms: Terms,
        place: (ChunkId, u64),
        bytes: &[u8],
    ) -> Result<OpId, ClientError> {
        let copied = |endpoint: &mut Endpoint<D>| copy(endpoint, bytes);
        self.start_data(endpoint, None, place, (bytes.len(), terms), copied)
    }

    /// Writes a copy of `bytes` from `offset` on along the servers of a route, of which this is the
    /// first: it has ended well when all of them have made it durable. The terms name no version.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_forward_copy<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (route, terms): (&Route, Terms),
        place: (ChunkId, u64),
        bytes: &[u8],
    ) -> Result<OpId, ClientError> {
        let copied = |endpoint: &mut Endpoint<D>| copy(endpoint, bytes);
        self.start_data(endpoint, Some(route), place, (bytes.len(), terms), copied)
    }

    /// Writes what `data` gives, where there is room for a request.
    pub(crate) fn start_data<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        route: Option<&Route>,
        (chunk, offset): (ChunkId, u64),
        (length, terms): (usize, Terms),
        data: impl FnOnce(&mut Endpoint<D>) -> Result<Buf, NoBuffer>,
    ) -> Result<OpId, ClientError> {
        let method = if route.is_some() { Method::Forward } else { Method::Write };
        let op = self.io_op(method, chunk, offset, length)?;
        self.check_room(&op)?;
        let data = data(endpoint).map_err(|e| op.error(towpath_rpc::CallError::from(e)))?;
        let crcs = writer_crcs(chunk, offset, &data);
        let sender = self.sender(endpoint);
        let header = WriteHeader { chunk, offset, length: length as u32, sender, terms };
        let (route, crc_bytes) = (route.map(Route::emit).unwrap_or_default(), emit_crcs(&crcs));
        let body = [&route[..], &header.emit(), &crc_bytes];
        let built = self.outgoing(endpoint, method, &body, data.len()).map(|mut out| {
            let known = page_crcs(chunk, offset, data.len(), &crcs);
            out.set_data_with_crcs(data, known);
            out
        });
        self.start(endpoint, op, built)
    }
}

/// A send buffer with a copy of `bytes`.
pub(crate) fn copy<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    bytes: &[u8],
) -> Result<Buf, NoBuffer> {
    endpoint.copy(bytes).map_err(|_| NoBuffer { wanted: bytes.len() })
}
