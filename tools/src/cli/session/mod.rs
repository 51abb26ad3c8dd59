//! A client of one chunk server, driven by its caller.
//!
//! | file | what it does |
//! |---|---|
//! | `again` | makes a link again that broke, for what was asked for over it |
//! | `connect` | finds a server, and joins a link and a channel with it |
//! | `transfer` | many reads or writes under way at a time |
//! | `whole` | many small chunks under way at a time |
//! | `load` | reads and writes that a load draws |
//! | `pace` | what to do while nothing happens: wait, or let virtual time go on |
//! | `error` | what can go wrong, and what to do next |
//!
//! The caller's thread does everything, so that it can stop at any time, and so that the same
//! code runs in virtual time.

mod again;
mod connect;
mod error;
mod load;
mod pace;
mod transfer;
mod whole;

use crate::random::random;
use towpath_fastpath::control::{ChunkInfo, InfoReply, ListReply, ScrubReply};
use towpath_fastpath::health::HealthReply;
use towpath_fastpath::qos::wire::QosReply;
use towpath_fastpath::{
    ChunkClient, ChunkId, ClientError, Done, ErrorKind, ErrorReply, HedgeStats, HedgedClient,
    NewChunk, OpId, Output, ResidentStats, SLICE_BYTES,
};
use towpath_transport::{Device, Endpoint, LinkStats, Mtu, Nanos, Region, Time};

use again::{Way, is_lost};
pub(crate) use connect::{Server, device_ip};
pub(crate) use error::SessionError;
pub(crate) use load::{Io, Load, Troubles};
pub(crate) use pace::{Pace, WallClock};
pub(crate) use transfer::{Pipeline, Source};
pub(crate) use whole::Whole;

/// A link and a channel to one chunk server, and perhaps to a second that holds the same.
pub(crate) struct Session<D: Device<Memory = Region>, P> {
    endpoint: Endpoint<D>,
    client: HedgedClient,
    pace: P,
    /// How its link is made again; none where that breaks for good.
    way: Option<Way>,
}

/// A stamp by which the server knows a create that is asked for again; 0 stands for none.
fn fresh_stamp() -> u64 {
    random().max(1)
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// The device's clock.
    #[must_use]
    pub(crate) fn now(&self) -> Time {
        self.endpoint.now()
    }

    /// What the transport counted, its links that are down included.
    #[must_use]
    pub(crate) fn stats(&self) -> LinkStats {
        self.endpoint.stats_of_all_links()
    }

    /// The path MTU of the link to the server in bytes, while it is up.
    #[must_use]
    pub(crate) fn mtu(&self) -> Option<u32> {
        let link = self.endpoint.links().next()?;
        self.endpoint.mtu_of(link).map(Mtu::bytes)
    }

    /// What hedging did.
    #[must_use]
    pub(crate) fn hedge_stats(&self) -> HedgeStats {
        self.client.stats()
    }

    /// What to do while nothing happens.
    pub(crate) fn pace(&mut self) -> &mut P {
        &mut self.pace
    }

    /// The most bytes that both ends take in one read or write.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn io_bytes_max(&mut self) -> Result<u64, SessionError> {
        let theirs = self.info()?.request_bytes_max;
        let head = towpath_rpc::limits::HEADER_BYTES as u64;
        let theirs = towpath_fastpath::io_bytes_max(theirs.saturating_sub(head) as usize);
        let ours = self.client.primary().io_bytes_max(&self.endpoint);
        Ok(ours.min(theirs).max(SLICE_BYTES) as u64)
    }

    /// The most bytes of one read, or of one write of whole slices, which the server takes in as
    /// they come.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn io_bytes_max_of(&mut self, is_write: bool) -> Result<u64, SessionError> {
        let ours = self.client.primary().io_bytes_max(&self.endpoint) as u64;
        if !is_write {
            return Ok(ours);
        }
        let theirs = self.info()?.stream_bytes_max;
        Ok(ours.min(towpath_fastpath::io_bytes_max(theirs as usize) as u64))
    }

    /// Makes a chunk, which is not whole, and not read, before [`finish`](Self::finish).
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn create(&mut self, chunk: ChunkId, resident: bool) -> Result<(), SessionError> {
        let kind = NewChunk { unfinished: true, resident, chain: 0 };
        // By its stamp the server knows one that it has made already. Where no link is made again,
        // none is asked for twice.
        let stamp = self.way.as_ref().map_or(0, |_| fresh_stamp());
        self.one(|client, endpoint| client.start_create_stamped(endpoint, chunk, None, kind, stamp))
            .map(drop)
    }

    /// What became of reads of resident chunks.
    #[must_use]
    pub(crate) fn resident_stats(&self) -> ResidentStats {
        self.client.primary().resident_stats()
    }

    /// Says that a chunk of `byte_len` bytes is whole.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn finish(&mut self, chunk: ChunkId, byte_len: u64) -> Result<(), SessionError> {
        self.one(|client, endpoint| client.start_finish(endpoint, chunk, byte_len)).map(drop)
    }

    /// Removes a chunk.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn delete(&mut self, chunk: ChunkId) -> Result<(), SessionError> {
        let links = self.links_again();
        match self.one(|client, endpoint| client.start_delete(endpoint, chunk)) {
            // It was deleted over the link before, or nobody has it any more.
            Err(SessionError::Client(error))
                if links != self.links_again()
                    && matches!(error.kind, ErrorKind::Refused(ErrorReply::NoSuchChunk { .. })) =>
            {
                Ok(())
            }
            deleted => deleted.map(drop),
        }
    }

    /// The state of a chunk.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn stat(&mut self, chunk: ChunkId) -> Result<ChunkInfo, SessionError> {
        match self.one(|client, endpoint| client.start_stat(endpoint, chunk))? {
            Output::Stat(info) => Ok(info),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// The state of a chunk at the second server; none where there is no such server.
    ///
    /// # Errors
    /// [`SessionError`].
    fn stat_replica(&mut self, chunk: ChunkId) -> Result<Option<ChunkInfo>, SessionError> {
        let Some(replica) = self.client.replica_mut() else { return Ok(None) };
        let op = replica.start_stat(&mut self.endpoint, chunk)?;
        match self.end_of(op)? {
            Output::Stat(info) => Ok(Some(info)),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// One page of the listing.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn list(&mut self, after: Option<ChunkId>) -> Result<ListReply, SessionError> {
        match self.one(|client, endpoint| client.start_list(endpoint, after, 0))? {
            Output::List(page) => Ok(page),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// One step of a scrub, of as many slices as the server likes.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn scrub_step(&mut self, budget_slices: u64) -> Result<ScrubReply, SessionError> {
        match self.one(|client, endpoint| client.start_scrub(endpoint, budget_slices))? {
            Output::Scrub(report) => Ok(report),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// What the server is and how it is.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn info(&mut self) -> Result<InfoReply, SessionError> {
        match self.one(|client, endpoint| client.start_info(endpoint))? {
            Output::Info(info) => Ok(info),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// Has the server refuse the capabilities of a serial number, which all expire by `until_ms`.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn revoke(&mut self, serial: u64, until_ms: u64) -> Result<(), SessionError> {
        let revoked = |client: &mut ChunkClient, endpoint: &mut Endpoint<D>| {
            client.start_revoke(endpoint, serial, until_ms)
        };
        self.one(revoked).map(drop)
    }

    /// How reservations are kept.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn qos(&mut self) -> Result<QosReply, SessionError> {
        match self.one(|client, endpoint| client.start_qos(endpoint))? {
            Output::Qos(reply) => Ok(reply),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// How the links of the server are, as it sees them.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn health(&mut self) -> Result<HealthReply, SessionError> {
        match self.one(|client, endpoint| client.start_health(endpoint))? {
            Output::Health(health) => Ok(health),
            _ => Err(SessionError::OtherOutput),
        }
    }

    /// The smoothed round-trip time of the link to the first server, once there is one.
    #[must_use]
    pub(crate) fn rtt(&self) -> Option<Nanos> {
        self.endpoint.rtt(self.client.primary().rpc().link())
    }

    /// Leaves in order, so that the server does not take this side for dead.
    ///
    /// # Errors
    /// [`SessionError::Interrupted`].
    pub(crate) fn close(&mut self) -> Result<(), SessionError> {
        let links: Vec<_> = self.endpoint.links().collect();
        links.into_iter().for_each(|link| self.endpoint.close(link));
        let end = self.now() + GOODBYE_WAIT;
        while self.endpoint.links().next().is_some() && self.now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Starts one operation and waits for its end; over another link where the link breaks: what
    /// it changes nobody else does.
    fn one(
        &mut self,
        start: impl Fn(&mut ChunkClient, &mut Endpoint<D>) -> Result<OpId, ClientError>,
    ) -> Result<Output, SessionError> {
        loop {
            let op = start(self.client.primary_mut(), &mut self.endpoint);
            match op.map_err(SessionError::from).and_then(|op| self.end_of(op)) {
                Err(error) if is_lost(&error) => self.again(error)?,
                ended => return ended,
            }
        }
    }

    /// Waits for the end of one operation.
    fn end_of(&mut self, op: OpId) -> Result<Output, SessionError> {
        loop {
            self.step()?;
            while let Some(done) = self.client.poll(&mut self.endpoint) {
                if done.op == op {
                    return Ok(done.result?);
                }
                self.drop_late(done);
            }
        }
    }

    /// An operation of a transfer that stopped early: nobody waits for it any more.
    fn drop_late(&mut self, done: Done) {
        if let Ok(Output::Read(data)) = done.result {
            data.release(&mut self.endpoint);
        }
    }

    /// Keeps the link alive for a moment, for whoever waits for something else.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn stay(&mut self) -> Result<(), SessionError> {
        self.step()?;
        while let Some(done) = self.client.poll(&mut self.endpoint) {
            self.drop_late(done);
        }
        Ok(())
    }

    /// Sends what is to be sent, takes in what has come; waits when that is nothing.
    fn step(&mut self) -> Result<(), SessionError> {
        self.endpoint.flush();
        let was_busy = self.take_in();
        if !was_busy {
            self.pace.idle(&mut self.endpoint, self.client.next_deadline())?;
        }
        Ok(())
    }

    fn take_in(&mut self) -> bool {
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            // What is not the client's is about channels that nobody opened.
            drop(self.client.on_event(&mut self.endpoint, event));
        }
        self.client.expire(&mut self.endpoint);
        busy
    }
}

/// How long a goodbye may take; the server notices an end without one, too, only later.
const GOODBYE_WAIT: Nanos = Nanos::from_millis(500);
