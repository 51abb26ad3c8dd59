//! Replies to requests, built, and how clients are told.

use super::Rejection;
use crate::control::{ChunkInfo, InfoReply, ListReply, LocateReply, ScrubReply};
use crate::digest::{DigestReply, SketchReply};
use crate::health::HealthReply;
use crate::limits::READ_REPLY_BYTES;
use crate::qos::wire::{JoinReply, QosReply};
use crate::run::page_crcs;
use crate::wire::{ChangeReply, ErrorReply, ReadReplyHeader, emit_crcs};
use prost::Message;
use towpath_rpc::{NoBuffer, Outgoing, Responder, RpcServer, Status};
use towpath_transport::{Buf, Device, Endpoint, Region, SendBuffers};

/// The reply to a change that was made, durably, and gave the chunk that version.
///
/// # Errors
/// [`NoBuffer`].
pub fn changed_reply(buffers: &impl SendBuffers, chunk_version: u64) -> Result<Outgoing, NoBuffer> {
    Outgoing::with_body(buffers, &ChangeReply { chunk_version }.emit())
}

/// The reply to a session that was entered.
///
/// # Errors
/// [`NoBuffer`].
pub fn done_reply(buffers: &impl SendBuffers) -> Result<Outgoing, NoBuffer> {
    Outgoing::new(buffers, 0, 0)
}

/// The reply to a read: `data` holds the bytes that `header` describes, `crcs` one checksum per
/// touched slice.
///
/// # Errors
/// [`NoBuffer`]; the data goes home to its pool.
pub fn read_reply(
    buffers: &impl SendBuffers,
    header: &ReadReplyHeader,
    crcs: &[u32],
    data: Buf,
) -> Result<Outgoing, NoBuffer> {
    debug_assert_eq!(data.len(), header.length as usize);
    let mut reply = Outgoing::new(buffers, READ_REPLY_BYTES + 4 * crcs.len(), data.len())?;
    reply.extend(&header.emit())?;
    reply.extend(&emit_crcs(crcs))?;
    let known = page_crcs(header.chunk, header.offset, data.len(), crcs);
    reply.set_data_with_crcs(data, known);
    Ok(reply)
}

/// The reply to a stat.
///
/// # Errors
/// [`NoBuffer`].
pub fn stat_reply(buffers: &impl SendBuffers, info: &ChunkInfo) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, info)
}

/// The reply to a listing.
///
/// # Errors
/// [`NoBuffer`].
pub fn list_reply(buffers: &impl SendBuffers, list: &ListReply) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, list)
}

/// The reply to a question where a chunk is.
///
/// # Errors
/// [`NoBuffer`].
pub fn locate_reply(
    buffers: &impl SendBuffers,
    located: &LocateReply,
) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, located)
}

/// The reply to a question for the checksums of slices.
///
/// # Errors
/// [`NoBuffer`].
pub fn digest_reply(
    buffers: &impl SendBuffers,
    digest: &DigestReply,
) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, digest)
}

/// The reply to a question for sketches of slices.
///
/// # Errors
/// [`NoBuffer`].
pub fn sketch_reply(
    buffers: &impl SendBuffers,
    sketches: &SketchReply,
) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, sketches)
}

/// The reply to a scrub.
///
/// # Errors
/// [`NoBuffer`].
pub fn scrub_reply(buffers: &impl SendBuffers, report: &ScrubReply) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, report)
}

/// The reply to a question for the health of the server's links.
///
/// # Errors
/// [`NoBuffer`].
pub fn health_reply(
    buffers: &impl SendBuffers,
    health: &HealthReply,
) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, health)
}

/// The reply to a question for the server's state.
///
/// # Errors
/// [`NoBuffer`].
pub fn info_reply(buffers: &impl SendBuffers, info: &InfoReply) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, info)
}

/// The reply to a link that said whose it is.
///
/// # Errors
/// [`NoBuffer`].
pub fn join_reply(buffers: &impl SendBuffers, joined: &JoinReply) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, joined)
}

/// The reply to a question for the reservations.
///
/// # Errors
/// [`NoBuffer`].
pub fn qos_reply(buffers: &impl SendBuffers, report: &QosReply) -> Result<Outgoing, NoBuffer> {
    encoded(buffers, report)
}

fn encoded(buffers: &impl SendBuffers, message: &impl Message) -> Result<Outgoing, NoBuffer> {
    Outgoing::with_body(buffers, &message.encode_to_vec())
}

/// Responds with an error.
pub fn respond_error<D: Device<Memory = Region>>(
    rpc: &mut RpcServer,
    endpoint: &mut Endpoint<D>,
    responder: Responder,
    error: ErrorReply,
) {
    rpc.set_fate(&responder, error.fate());
    match Outgoing::with_body(&endpoint.buffers_of(responder.link()), &error.emit()) {
        Ok(reply) => rpc.respond(endpoint, responder, Status::APPLICATION, reply),
        Err(_) => rpc.abandon(endpoint, responder, error.fate()),
    }
}

/// Responds with what was built, or with [`ErrorReply::Busy`] when there was no buffer for it.
pub fn respond_built<D: Device<Memory = Region>>(
    rpc: &mut RpcServer,
    endpoint: &mut Endpoint<D>,
    responder: Responder,
    reply: Result<Outgoing, NoBuffer>,
) {
    match reply {
        Ok(reply) => rpc.respond(endpoint, responder, Status::OK, reply),
        Err(NoBuffer { .. }) => respond_error(rpc, endpoint, responder, ErrorReply::Busy),
    }
}

/// Tells a client that its request was none.
pub fn respond_rejected<D: Device<Memory = Region>>(
    rpc: &mut RpcServer,
    endpoint: &mut Endpoint<D>,
    responder: Responder,
    rejection: Rejection,
) {
    match rejection.error_reply() {
        Some(error) => respond_error(rpc, endpoint, responder, error),
        None => rpc.respond_status(endpoint, responder, Status::UNSUPPORTED),
    }
}
