//! The layout of the fast path with its checksums in passes of their own: the middle of the three
//! ways that the memory traffic of a write is compared by, where data is sliced on its way and the
//! processor sums it.

use towpath_rpc::{Call, CallError, Outgoing, Request, RpcClient};
use towpath_transport::{Buf, Device, Endpoint, Nanos, Region};

use towpath_fastpath::limits::IO_HEADER_BYTES;
use towpath_fastpath::slice::{ChunkId, writer_crcs};
use towpath_fastpath::wire::{ErrorReply, Method, WriteHeader};
use towpath_fastpath::{Coverage, verify_slices};

/// Sends a write as the fast path lays it out, and lets the link sum the chunk anew.
///
/// # Errors
/// [`CallError`]; nothing was sent.
pub fn start_write<D: Device<Memory = Region>>(
    (rpc, endpoint): (&mut RpcClient, &mut Endpoint<D>),
    (chunk, offset): (ChunkId, u64),
    data: Buf,
    token: u64,
) -> Result<(), CallError> {
    let crcs = writer_crcs(chunk, offset, &data);
    let header = WriteHeader { chunk, offset, length: data.len() as u32, ..WriteHeader::default() };
    let mut out = Outgoing::new(endpoint, IO_HEADER_BYTES + 4 * crcs.len(), data.len())?;
    out.extend(&header.emit())?;
    crcs.iter().try_for_each(|crc| out.extend(&crc.to_le_bytes()))?;
    out.set_data(data);
    let deadline = endpoint.now() + Nanos::from_secs(10);
    let call = Call { method: Method::Write as u16, token, deadline, ask_fate: false };
    rpc.call(endpoint, call, out).map(drop).map_err(|refused| refused.error)
}

/// As [`verify_write`](towpath_fastpath::server::verify_write), in a pass over the bytes whatever
/// the link knows of them.
///
/// # Errors
/// [`ErrorReply::WireCorrupt`] with the first slice that is not as it was sent.
pub fn verify_write(
    request: &Request,
    header: &WriteHeader,
    crcs: &[u32],
) -> Result<(), ErrorReply> {
    let coverage = Coverage { chunk: header.chunk, span: header.span(), chunk_bytes: None };
    let pieces = request.data_pieces().map(|(offset, bytes)| (offset, bytes, &[][..]));
    verify_slices(coverage, pieces, crcs)
        .map_err(|slice| ErrorReply::WireCorrupt { chunk: header.chunk, slice })
}
