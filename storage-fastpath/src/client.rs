//! The client end: operations started by call, ended by token.

mod writes;

pub(crate) use writes::copy;

use crate::change::Clear;
use crate::error::{ClientError, ErrorKind};
use crate::limits::{IO_BYTES_MAX, IO_HEADER_BYTES};
use crate::output::{Asked, Output, read_reply};
use crate::proof::{ClientProofs, PROVED, system_ms};
use crate::request::StorageRequest;
use crate::resident::ResidentReads;
use crate::slice::{ChunkId, SLICE_BYTES, Span};
use crate::wire::{ClearHeader, Method, ReadHeader, Sender, class_number, tenant_number};
use slab::Slab;
use towpath_cap::Grant;
use towpath_rpc::{Call, NoBuffer, Outgoing, Push, RequestId, RpcClient};
use towpath_transport::{ChannelId, Device, Endpoint, Event, LinkId, Nanos, Region, Time};

/// How long an operation may take unless set: a store that flushes, on a slow disk, and more.
pub const TIMEOUT_DEFAULT: Nanos = Nanos::from_secs(10);

/// The number of an operation. A client never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OpId(u64);

/// An operation that has ended.
#[derive(Debug)]
pub struct Done {
    /// Which.
    pub op: OpId,
    /// What it gave.
    pub result: Result<Output, ClientError>,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    id: OpId,
    request: Option<RequestId>,
    asked: Asked,
}

impl Op {
    fn error(&self, kind: impl Into<ErrorKind>) -> ClientError {
        let Asked { method, chunk, span } = self.asked;
        ClientError { method, chunk, offset: span.map(|span| span.start()), kind: kind.into() }
    }
}

/// A non-blocking client of a chunk server, on one channel of an endpoint that the caller drives.
///
/// A `start_...` method starts an operation and returns its [`OpId`]; [`poll`](Self::poll) returns
/// each operation that has ended, as [`Done`]. In each turn of the endpoint call
/// [`on_event`](Self::on_event) for each event, then [`expire`](Self::expire), then
/// [`poll`](Self::poll) until it returns nothing.
///
/// Checksums are computed once, in `start_write`, and checked once, when the reply to a read
/// arrives.
#[derive(Debug)]
pub struct ChunkClient {
    rpc: RpcClient,
    ops: Slab<Op>,
    sequence: u64,
    timeout: Nanos,
    /// What headers say of the link: what has been answered well.
    sender: Sender,
    /// What is being said of it.
    entering: Sender,
    pub(crate) resident: ResidentReads,
    proofs: Option<ClientProofs>,
}

impl ChunkClient {
    /// A client on an open channel, best an unordered one.
    #[must_use]
    pub fn new(link: LinkId, channel: ChannelId) -> Self {
        Self {
            rpc: RpcClient::new(link, channel),
            ops: Slab::new(),
            sequence: 0,
            timeout: TIMEOUT_DEFAULT,
            sender: Sender::default(),
            entering: Sender::default(),
            resident: ResidentReads::default(),
            proofs: None,
        }
    }

    /// Shows a capability with each request. Its times are the system's.
    #[must_use]
    pub fn capability(self, grant: Grant) -> Self {
        self.capability_at(grant, system_ms)
    }

    /// The same, with the times of another clock: milliseconds since the Unix epoch.
    #[must_use]
    pub fn capability_at(mut self, grant: Grant, clock: fn() -> u64) -> Self {
        self.proofs = Some(ClientProofs::new(grant, clock));
        self
    }

    /// How long each operation may take. Default 10 s. One that changes something and is given up
    /// may take a grace more, to learn what became of it.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<Nanos>) -> Self {
        self.timeout = timeout.into();
        self
    }

    /// How long an operation that was given up waits to learn what became of it. Default 100 ms.
    #[must_use]
    pub fn outcome_grace(mut self, span: impl Into<Nanos>) -> Self {
        self.rpc = self.rpc.outcome_grace(span);
        self
    }

    /// How long each operation may take.
    #[must_use]
    pub fn op_timeout(&self) -> Nanos {
        self.timeout
    }

    /// The rpc client, for its counters.
    #[must_use]
    pub fn rpc(&self) -> &RpcClient {
        &self.rpc
    }

    /// Operations under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.ops.len() + self.resident.beyond_requests()
    }

    /// The most bytes that one read or write moves over this link, a multiple of the slice.
    #[must_use]
    pub fn io_bytes_max<D: Device<Memory = Region>>(&self, endpoint: &Endpoint<D>) -> usize {
        io_bytes_max(self.rpc.request_bytes_max(endpoint))
    }

    /// Takes requests of up to so many bytes, headers included, even where an end with our settings
    /// would not hold them whole: a server says how long writes of whole slices may be
    /// ([`InfoReply::stream_bytes_max`](crate::control::InfoReply::stream_bytes_max)).
    pub fn set_longest_request(&mut self, bytes: usize) {
        self.rpc.set_longest_request(bytes);
    }

    /// What headers say of the link.
    fn sender<D: Device<Memory = Region>>(&self, endpoint: &Endpoint<D>) -> Sender {
        let class = endpoint.class_of(self.rpc.link()).map_or(0, |found| class_number(found.class));
        Sender { class, ..self.sender }
    }

    /// Reads `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_read<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<OpId, ClientError> {
        let deadline = endpoint.now() + self.timeout;
        self.start_read_until(endpoint, chunk, offset, length, deadline)
    }

    /// Reads `length` bytes from `offset` on, and gives it up at `deadline` whatever the client's
    /// [`timeout`](Self::timeout).
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_read_until<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
        deadline: Time,
    ) -> Result<OpId, ClientError> {
        let op = self.fitting_read(endpoint, chunk, offset, length)?;
        let (length, sender) = (length as u32, self.sender(endpoint));
        let header = ReadHeader { chunk, offset, length, sender };
        let built = self.outgoing(endpoint, Method::Read, &[&header.emit()], 0);
        self.start_until(endpoint, op, built, deadline)
    }

    fn fitting_read<D: Device<Memory = Region>>(
        &self,
        endpoint: &Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<Op, ClientError> {
        let op = self.io_op(Method::Read, chunk, offset, length)?;
        let max = self.io_bytes_max(endpoint);
        if length > max {
            return Err(op.error(ErrorKind::Length { length, max }));
        }
        Ok(op)
    }

    /// The number of a read that is not made by a request, or not at once.
    pub(crate) fn read_op<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &Endpoint<D>,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<(OpId, Span), ClientError> {
        let op = self.fitting_read(endpoint, chunk, offset, length)?;
        let max = self.rpc.capacity();
        if self.under_way() >= max {
            return Err(op.error(towpath_rpc::CallError::Full { max }));
        }
        self.sequence += 1;
        Ok((op.id, Span::new(offset, length as u64)))
    }

    /// Gives an operation up. It ends, with [`ErrorKind::Cancelled`] unless it was quicker, as soon
    /// as it is known whether the server has the request.
    pub fn cancel<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, op: OpId) {
        if self.cancel_resident(endpoint, op) {
            return;
        }
        let found = self.ops.iter().find(|(_, found)| found.id == op);
        if let Some(request) = found.and_then(|(_, found)| found.request) {
            self.rpc.cancel(endpoint, request);
        }
    }

    /// Takes an event in; gives back what is not this client's.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) -> Option<Event> {
        let event = self.on_lane_event(endpoint, event)?;
        self.rpc.on_event(endpoint, event)
    }

    /// The next thing that the server told unasked: docs/storage-protocol.md section 9.
    pub fn next_push(&mut self) -> Option<Push> {
        self.rpc.next_push()
    }

    /// Gives up what is out of time.
    pub fn expire<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        self.rpc.expire(endpoint);
        self.post_stalled(endpoint);
    }

    /// When [`expire`](Self::expire) next has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Time {
        self.rpc.next_deadline().min(self.resident.next_deadline())
    }

    /// Tells link and age of each operation that has waited for `after`, and whether it is told for
    /// the first time.
    pub fn note_slow(
        &mut self,
        now: Time,
        after: Nanos,
        mut tell: impl FnMut(LinkId, Nanos, bool),
    ) {
        let link = self.rpc.link();
        self.rpc.note_slow(now, after, |age, first| tell(link, age, first));
    }

    /// The next operation that has ended. Here the bytes of reads are verified.
    pub fn poll<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> Option<Done> {
        loop {
            if let Some(done) = self.resident.next_ended() {
                return Some(done);
            }
            let done = self.poll_request(endpoint)?;
            if let Some(done) = self.take_own(endpoint, done) {
                return Some(done);
            }
        }
    }

    /// The next request that has ended.
    fn poll_request<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> Option<Done> {
        let completion = self.rpc.poll()?;
        let op = self.ops.remove(completion.token as usize);
        let result = completion.result.map_err(ErrorKind::from);
        let result = result.and_then(|parcel| read_reply(endpoint, &op.asked, parcel));
        match result {
            Ok(Output::Session) => self.sender.epoch = self.entering.epoch,
            Ok(Output::Joined(_)) => self.sender.tenant = self.entering.tenant,
            _ => {}
        }
        Some(Done { op: op.id, result: result.map_err(|kind| op.error(kind)) })
    }

    /// Asks for something that moves no data: everything but writes.
    ///
    /// # Errors
    /// [`ClientError`]; nothing was sent.
    pub fn start_request<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        request: &StorageRequest,
    ) -> Result<OpId, ClientError> {
        let (method, chunk) = (request.method(), request.chunk());
        let mut op = self.op(method, chunk, None);
        match (request, chunk, request.range()) {
            (StorageRequest::Clear(header), ..) => {
                if let Clear::Trim { byte_len, .. } | Clear::Zero { byte_len, .. } = header.clear
                    && u32::try_from(byte_len).is_err()
                {
                    let length = usize::try_from(byte_len).unwrap_or(usize::MAX);
                    return Err(op.error(ErrorKind::Length { length, max: u32::MAX as usize }));
                }
                let header = ClearHeader { sender: self.sender(endpoint), ..*header };
                let built = self.outgoing(endpoint, method, &[&header.emit()], 0);
                return self.start(endpoint, op, built);
            }
            (StorageRequest::Read(header), ..) => {
                let ReadHeader { chunk, offset, length, .. } = *header;
                return self.start_read(endpoint, chunk, offset, length as usize);
            }
            (StorageRequest::Session { epoch, .. }, ..) => self.entering.epoch = *epoch,
            (StorageRequest::Join(join), ..) => self.entering.tenant = tenant_number(&join.tenant),
            (_, Some(chunk), Some((offset, length))) => {
                op = self.io_op(method, chunk, offset, length as usize)?;
                if !offset.is_multiple_of(SLICE_BYTES as u64) {
                    return Err(op.error(ErrorKind::Unaligned));
                }
            }
            _ => {}
        }
        let built = self.outgoing(endpoint, method, &[&request.emit()], 0);
        self.start(endpoint, op, built)
    }

    /// A request's message without its data: its proof, where one is shown, and its body.
    fn outgoing<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &Endpoint<D>,
        method: Method,
        body: &[&[u8]],
        data_len: usize,
    ) -> Result<Outgoing, NoBuffer> {
        let proof = self.proofs.as_mut().map(|proofs| proofs.prove(method, data_len, body));
        let proof: &[u8] = proof.as_ref().map_or(&[], |proof| proof);
        let body_bytes = body.iter().map(|part| part.len()).sum::<usize>();
        let mut out = Outgoing::new(endpoint, proof.len() + body_bytes, data_len)?;
        out.extend(proof)?;
        body.iter().try_for_each(|part| out.extend(part))?;
        Ok(out)
    }

    fn op(&self, method: Method, chunk: Option<ChunkId>, span: Option<Span>) -> Op {
        let asked = Asked { method, chunk, span };
        Op { id: OpId(self.sequence), request: None, asked }
    }

    fn io_op(
        &self,
        method: Method,
        chunk: ChunkId,
        offset: u64,
        length: usize,
    ) -> Result<Op, ClientError> {
        let fail = |kind| ClientError { method, chunk: Some(chunk), offset: Some(offset), kind };
        if length == 0 || length > IO_BYTES_MAX {
            return Err(fail(ErrorKind::Length { length, max: IO_BYTES_MAX }));
        }
        if offset.checked_add(length as u64).is_none() {
            return Err(fail(ErrorKind::Range));
        }
        Ok(self.op(method, Some(chunk), Some(Span::new(offset, length as u64))))
    }

    /// Checksums cost a pass over the data: they are not computed in vain.
    fn check_room(&self, op: &Op) -> Result<(), ClientError> {
        let max = self.rpc.capacity();
        if self.rpc.under_way() < max {
            return Ok(());
        }
        Err(op.error(towpath_rpc::CallError::Full { max }))
    }

    fn start<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        op: Op,
        built: Result<Outgoing, NoBuffer>,
    ) -> Result<OpId, ClientError> {
        let deadline = endpoint.now() + self.timeout;
        self.start_until(endpoint, op, built, deadline)
    }

    fn start_until<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        mut op: Op,
        built: Result<Outgoing, NoBuffer>,
        deadline: Time,
    ) -> Result<OpId, ClientError> {
        let outgoing = built.map_err(|e| op.error(towpath_rpc::CallError::from(e)))?;
        let entry = self.ops.vacant_entry();
        let proved = if self.proofs.is_some() { PROVED } else { 0 };
        let (method, token) = (op.asked.method as u16 | proved, entry.key() as u64);
        let call = Call { method, token, deadline, ask_fate: op.asked.method.is_change() };
        let request = self.rpc.call(endpoint, call, outgoing);
        op.request = Some(request.map_err(|refused| op.error(refused.error))?);
        entry.insert(op);
        self.sequence += 1;
        Ok(op.id)
    }
}

/// The most data in a message of `message_bytes` behind the rpc header, a multiple of the slice.
#[must_use]
pub fn io_bytes_max(message_bytes: usize) -> usize {
    // One checksum more than slices: an unaligned range touches one more.
    let rest = message_bytes.saturating_sub(IO_HEADER_BYTES + 4);
    (rest / (SLICE_BYTES + 4) * SLICE_BYTES).min(IO_BYTES_MAX)
}
