//! Answers on their way to clients.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::control::{ChunkInfo, InfoReply, ListReply, LocateReply, ScrubReply};
use towpath_fastpath::digest::{DigestReply, SketchReply, SliceRange};
use towpath_fastpath::health::HealthReply;
use towpath_fastpath::limits::READ_REPLY_BYTES;
use towpath_fastpath::qos::wire::{JoinReply, QosReply};
use towpath_fastpath::run::page_crcs;
use towpath_fastpath::server::{
    Rejection, changed_reply, digest_reply, done_reply, health_reply, info_reply, join_reply,
    list_reply, locate_reply, qos_reply, scrub_reply, sketch_reply, stat_reply,
};
use towpath_fastpath::wire::{ReadHeader, ReadReplyHeader, emit_crcs};
use towpath_rpc::limits::HEADER_BYTES;
use towpath_rpc::{Fate, NoBuffer, Outgoing, Status};
use towpath_transport::{Buf, SendBuffers};

use super::onward::Passed;
use crate::store::ChunkStat;

/// What a client is told.
#[derive(Debug)]
pub(super) enum Answer {
    /// A change is durable, and has made this version of the chunk.
    Changed(u64),
    /// The link has entered its session.
    Done,
    /// The checksums of slices.
    Digest(DigestReply),
    /// Nothing was changed, unless the error says that this is not known.
    Error(ErrorReply),
    /// How the links are.
    Health(Box<HealthReply>),
    /// The server's state.
    Info(Box<InfoReply>),
    /// What the tenant of the link has.
    Joined(JoinReply),
    /// A page of the listing.
    List(ListReply),
    /// Where the slices of a chunk lie in memory.
    Locate(Box<LocateReply>),
    /// Bytes and their checksums.
    Read(ReadReplyHeader, Vec<u32>, Option<Buf>),
    /// How reservations are kept.
    Qos(Box<QosReply>),
    /// What a scrub found.
    Scrub(ScrubReply),
    /// Sketches of slices.
    Sketch(SketchReply),
    /// The state of a chunk.
    Stat(ChunkInfo),
    /// There is no such method.
    Unsupported,
}

impl From<Rejection> for Answer {
    fn from(rejection: Rejection) -> Self {
        rejection.error_reply().map_or(Self::Unsupported, Self::Error)
    }
}

impl Answer {
    /// What the client of a write is told that others may have made.
    pub(super) fn of_passed(self, passed: Option<&Passed>) -> Self {
        match passed {
            None => self,
            Some(passed) => passed.answer(self),
        }
    }

    /// Whether the client gets what it asked for.
    pub(super) fn is_good(&self) -> bool {
        !matches!(self, Self::Error(_) | Self::Unsupported)
    }

    /// What became of what was asked for.
    pub(super) fn fate(&self) -> Fate {
        match self {
            Self::Error(error) => error.fate(),
            Self::Unsupported => Fate::DidNotHappen,
            _ => Fate::Happened,
        }
    }

    /// The response. Without a buffer for it the answer stays as it is, for another try: a change
    /// that was made must not be answered as one that was not.
    pub(super) fn build(
        &mut self,
        buffers: &impl SendBuffers,
    ) -> Result<(Status, Outgoing), NoBuffer> {
        let outgoing = match self {
            Self::Changed(version) => changed_reply(buffers, *version),
            Self::Digest(digest) => digest_reply(buffers, digest),
            Self::Done => done_reply(buffers),
            Self::Error(error) => {
                return Ok((Status::APPLICATION, Outgoing::with_body(buffers, &error.emit())?));
            }
            Self::Health(health) => health_reply(buffers, health),
            Self::Info(info) => info_reply(buffers, info),
            Self::Joined(joined) => join_reply(buffers, joined),
            Self::Qos(report) => qos_reply(buffers, report),
            Self::List(list) => list_reply(buffers, list),
            Self::Locate(located) => locate_reply(buffers, located),
            Self::Read(header, crcs, data) => {
                let body_bytes = READ_REPLY_BYTES + 4 * crcs.len();
                let data_bytes = header.length as usize;
                // Short data goes into the head where there is room, else it stays where it is.
                let mut reply = Outgoing::new(buffers, body_bytes, data_bytes)
                    .or_else(|_| Outgoing::new(buffers, body_bytes, 0))?;
                reply.extend(&header.emit())?;
                reply.extend(&emit_crcs(crcs))?;
                let data = data.take().ok_or(NoBuffer { wanted: data_bytes })?;
                let known = page_crcs(header.chunk, header.offset, data_bytes, crcs);
                reply.set_data_with_crcs(data, known);
                Ok(reply)
            }
            Self::Scrub(found) => scrub_reply(buffers, found),
            Self::Sketch(sketches) => sketch_reply(buffers, sketches),
            Self::Stat(info) => stat_reply(buffers, info),
            Self::Unsupported => {
                return Ok((Status::UNSUPPORTED, Outgoing::new(buffers, 0, 0)?));
            }
        };
        Ok((Status::OK, outgoing?))
    }
}

/// Bytes of the buffer that the head of a read's answer needs at least.
pub(super) fn read_head_bytes(header: &ReadHeader) -> usize {
    HEADER_BYTES + READ_REPLY_BYTES + 4 * header.span().count() as usize
}

/// The same of an answer with sketches: four bytes of each slice, and less than a read's header.
pub(super) fn sketch_bytes(range: SliceRange) -> usize {
    HEADER_BYTES + READ_REPLY_BYTES + 4 * range.span().count() as usize
}

/// What clients are told of a chunk.
pub(super) fn chunk_info(stat: &ChunkStat) -> ChunkInfo {
    ChunkInfo {
        chunk: stat.chunk.into(),
        byte_len: stat.byte_len,
        limit_bytes: stat.limit_bytes,
        version: stat.version,
        unfinished: stat.unfinished,
        resident: stat.resident,
        chain: stat.chain,
    }
}
