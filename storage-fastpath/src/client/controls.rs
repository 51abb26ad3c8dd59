//! Operations that move no data.

use super::{ChunkClient, OpId};
use crate::change::{Clear, NewChunk, Terms};
use crate::control::{
    ChainRequest, ChunkRequest, CreateRequest, DeleteRequest, FinishRequest, InfoRequest,
    ListRequest, LocateRequest, RevokeRequest, ScrubRequest, SessionRequest,
};
use crate::digest::{DigestRequest, SketchRequest};
use crate::error::{ClientError, ErrorKind};
use crate::health::HealthRequest;
use crate::qos::wire::{JoinRequest, QosRequest};
use crate::session::ClientSession;
use crate::slice::ChunkId;
use crate::wire::{ClearHeader, Method, tenant_number};
use prost::Message as _;
use towpath_transport::{Device, Endpoint, Region};

impl ChunkClient {
    /// Makes a chunk that may grow to `limit_bytes`, or to the most a chunk can have.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_create<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
    ) -> Result<OpId, ClientError> {
        self.start_create_as(endpoint, chunk, limit_bytes, NewChunk::default())
    }

    /// As [`start_create`](Self::start_create), of a chunk of another kind.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_create_as<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        kind: NewChunk,
    ) -> Result<OpId, ClientError> {
        self.start_create_stamped(endpoint, chunk, limit_bytes, kind, 0)
    }

    /// As [`start_create_as`](Self::start_create_as), under a stamp by which a create that is asked
    /// for again is known.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_create_stamped<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        limit_bytes: Option<u64>,
        NewChunk { unfinished, resident, chain }: NewChunk,
        stamp: u64,
    ) -> Result<OpId, ClientError> {
        let name = chunk.into();
        let body = CreateRequest { chunk: name, limit_bytes, unfinished, resident, stamp, chain };
        self.start_control(endpoint, Method::Create, Some(chunk), &body)
    }

    /// Says that an unfinished chunk of `byte_len` bytes is whole.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_finish<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        byte_len: u64,
    ) -> Result<OpId, ClientError> {
        self.start_finish_on(endpoint, Terms::default(), chunk, byte_len)
    }

    /// As [`start_finish`](Self::start_finish), on terms.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_finish_on<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        Terms { version, stamp, chain }: Terms,
        chunk: ChunkId,
        byte_len: u64,
    ) -> Result<OpId, ClientError> {
        let body = FinishRequest { chunk: chunk.into(), byte_len, version, stamp, chain };
        self.start_control(endpoint, Method::Finish, Some(chunk), &body)
    }

    /// Raises the chain version of a chunk: changes that name a lower one are refused from then on.
    /// A chunk that has this one already stays as it is, whatever its version; of another it may
    /// be asked that it has a version. Under a stamp a raise that is asked for again is known.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_raise_chain<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (chunk, chain): (ChunkId, u32),
        version: Option<u64>,
        stamp: u64,
    ) -> Result<OpId, ClientError> {
        let body = ChainRequest { chunk: chunk.into(), chain, version, stamp };
        self.start_control(endpoint, Method::Chain, Some(chunk), &body)
    }

    /// Takes a chunk away.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_delete<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
    ) -> Result<OpId, ClientError> {
        self.start_delete_if(endpoint, chunk, None)
    }

    /// As [`start_delete`](Self::start_delete), where the chunk has that version.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_delete_if<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        version: Option<u64>,
    ) -> Result<OpId, ClientError> {
        let body = DeleteRequest { chunk: chunk.into(), version };
        self.start_control(endpoint, Method::Delete, Some(chunk), &body)
    }

    /// Takes bytes of a chunk away, of a range at most 2^32 - 1.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_clear<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        terms: Terms,
        chunk: ChunkId,
        clear: Clear,
    ) -> Result<OpId, ClientError> {
        let op = self.op(clear.method(), Some(chunk), None);
        if let Clear::Trim { byte_len, .. } | Clear::Zero { byte_len, .. } = clear
            && u32::try_from(byte_len).is_err()
        {
            let length = usize::try_from(byte_len).unwrap_or(usize::MAX);
            return Err(op.error(ErrorKind::Length { length, max: u32::MAX as usize }));
        }
        let header = ClearHeader { chunk, clear, sender: self.sender(endpoint), terms };
        let built = self.outgoing(endpoint, clear.method(), &[&header.emit()], 0);
        self.start(endpoint, op, built)
    }

    /// Asks for the state of a chunk.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_stat<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
    ) -> Result<OpId, ClientError> {
        let body = ChunkRequest { chunk: chunk.into() };
        self.start_control(endpoint, Method::Stat, Some(chunk), &body)
    }

    /// Asks where the slices of a chunk lie in memory, from slice `first_slice` on.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_locate<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        first_slice: u64,
    ) -> Result<OpId, ClientError> {
        let body = LocateRequest { chunk: chunk.into(), first_slice };
        self.start_control(endpoint, Method::Locate, Some(chunk), &body)
    }

    /// Asks for the checksums of the slices of a range that begins with one, of at most
    /// [`IO_BYTES_MAX`](crate::limits::IO_BYTES_MAX) bytes, as far as the chunk has them.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_digest<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<OpId, ClientError> {
        let op = self.slices_op(Method::Digest, chunk, offset, length)?;
        let body = DigestRequest { chunk: chunk.into(), offset, length: length as u32 };
        let built = self.outgoing(endpoint, Method::Digest, &[&body.encode_to_vec()], 0);
        self.start(endpoint, op, built)
    }

    /// Asks for the sketch of each slice of a range that begins with one, of at most
    /// [`SKETCHED_BYTES_MAX`](crate::limits::SKETCHED_BYTES_MAX) bytes, drawn by a seed.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_sketch<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        (offset, length): (u64, usize),
        seed: u64,
    ) -> Result<OpId, ClientError> {
        let op = self.slices_op(Method::Sketch, chunk, offset, length)?;
        let body = SketchRequest { chunk: chunk.into(), offset, length: length as u32, seed };
        let built = self.outgoing(endpoint, Method::Sketch, &[&body.encode_to_vec()], 0);
        self.start(endpoint, op, built)
    }

    /// Asks for one page of the listing: what comes after `after`, at most `count_max` chunks, or
    /// as many as go in one reply when that is 0.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_list<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        after: Option<ChunkId>,
        count_max: u32,
    ) -> Result<OpId, ClientError> {
        let body = ListRequest { after: after.map(Into::into), count_max };
        self.start_control(endpoint, Method::List, None, &body)
    }

    /// Has up to `budget_slices` more slices checked, or as many as the server likes when that is
    /// 0.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_scrub<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        budget_slices: u64,
    ) -> Result<OpId, ClientError> {
        self.start_control(endpoint, Method::Scrub, None, &ScrubRequest { budget_slices })
    }

    /// Has the capabilities of a serial number, all of which have expired by `until_ms`, hold no
    /// more. When it has ended well, the server refuses them and remembers it durably.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_revoke<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        serial: u64,
        until_ms: u64,
    ) -> Result<OpId, ClientError> {
        self.start_control(endpoint, Method::Revoke, None, &RevokeRequest { serial, until_ms })
    }

    /// Asks what the server is and how it is.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_info<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Result<OpId, ClientError> {
        self.start_control(endpoint, Method::Info, None, &InfoRequest {})
    }

    /// Asks how the links of the server are, as it sees them.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_health<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Result<OpId, ClientError> {
        self.start_control(endpoint, Method::Health, None, &HealthRequest {})
    }

    /// Says that the requests of this link are those of a tenant. With `runs_engine` this client
    /// has the tenant's tokens from then on: the reply names the words for a
    /// [`LaneEngine`](crate::qos::LaneEngine), and the server pushes the starts of periods.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_join<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        tenant: &str,
        runs_engine: bool,
    ) -> Result<OpId, ClientError> {
        self.entering.tenant = tenant_number(tenant);
        let body = JoinRequest { tenant: tenant.into(), runs_engine };
        self.start_control(endpoint, Method::Join, None, &body)
    }

    /// Asks how reservations are kept.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_qos<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Result<OpId, ClientError> {
        self.start_control(endpoint, Method::Qos, None, &QosRequest {})
    }

    /// Makes this link the newest of `session`. When it has ended well, nothing of what was asked
    /// for over older links of the session is still to come, and whatever of it is not done is
    /// refused. It is the first operation of a link; others wait until it has ended.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_session<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        session: &ClientSession,
    ) -> Result<OpId, ClientError> {
        let (high, low) = ((session.id() >> 64) as u64, session.id() as u64);
        let epoch = session.next_epoch();
        self.entering.epoch = epoch;
        let body = SessionRequest { high, low, epoch };
        self.start_control(endpoint, Method::Session, None, &body)
    }
}
