//! A client of one chunk server, driven by its caller.
//!
//! | file | what it does |
//! |---|---|
//! | `connect` | finds a server, and connects to it |
//! | `transfer` | many reads or writes under way at a time |
//! | `whole` | many small chunks under way at a time |
//! | `probe` | requests one at a time, each with the time that this side had of it |
//! | `load` | reads and writes that a load draws |
//! | `window` | what is under way of these |
//! | `pace` | what to do while nothing happens: wait, or let virtual time go on |
//! | `error` | what can go wrong, and what to do next |
//!
//! The caller's thread does everything, so that it can stop at any time, and so that the same
//! code runs in virtual time. The client makes its link again where that breaks, and repeats what
//! was asked for.

mod connect;
mod error;
mod load;
mod pace;
mod probe;
mod transfer;
mod whole;
mod window;

use std::net::SocketAddr;

use towpath_fastpath::control::{ChunkInfo, InfoReply, ListReply, ScrubReply};
use towpath_fastpath::health::HealthReply;
use towpath_fastpath::qos::wire::QosReply;
use towpath_fastpath::{ChunkId, Client, Driver, HedgeStats, NewChunk, Pending, ResidentStats};
use towpath_status::say;
use towpath_transport::{Device, LinkStats, Mtu, Nanos, Region, Time};

pub(crate) use connect::{Server, device_ip};
pub(crate) use error::SessionError;
pub(crate) use load::{Io, Load, Troubles};
pub(crate) use pace::{Pace, WallClock};
pub(crate) use probe::Probed;
pub(crate) use transfer::{Pipeline, Source};
pub(crate) use whole::Whole;

/// A client of one chunk server, and perhaps of a second that holds the same.
pub(crate) struct Session<D: Device<Memory = Region>, P> {
    client: Client,
    driver: Driver<D>,
    pace: P,
    server: SocketAddr,
    /// How long the server may be away.
    patience: Nanos,
    /// It was told that the server is away.
    is_away: bool,
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// The device's clock.
    #[must_use]
    pub(crate) fn now(&self) -> Time {
        self.driver.endpoint().now()
    }

    /// What the transport counted, its links that are down included.
    #[must_use]
    pub(crate) fn stats(&self) -> LinkStats {
        self.driver.endpoint().stats_of_all_links()
    }

    /// How often the link was made again.
    #[must_use]
    pub(crate) fn links_again(&self) -> u64 {
        self.client.stats().links_made.saturating_sub(1)
    }

    /// The path MTU of the link to the server in bytes, while it is up.
    #[must_use]
    pub(crate) fn mtu(&self) -> Option<u32> {
        let link = self.driver.endpoint().links().next()?;
        self.driver.endpoint().mtu_of(link).map(Mtu::bytes)
    }

    /// What hedging did.
    #[must_use]
    pub(crate) fn hedge_stats(&self) -> HedgeStats {
        self.driver.hedge_stats()
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
        let info = self.info()?;
        Ok(self.client.op_bytes_by(&info) as u64)
    }

    /// The most bytes of one read, or of one write of whole slices, which the server takes in as
    /// they come.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn io_bytes_max_of(&mut self, is_write: bool) -> Result<u64, SessionError> {
        let ours = self.client.link_bytes_max() as u64;
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
        self.end_of(self.client.create(chunk, None, kind))
    }

    /// What became of reads of resident chunks.
    #[must_use]
    pub(crate) fn resident_stats(&self) -> ResidentStats {
        self.driver.resident_stats()
    }

    /// Says that a chunk of `byte_len` bytes is whole.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn finish(&mut self, chunk: ChunkId, byte_len: u64) -> Result<(), SessionError> {
        self.end_of(self.client.finish(chunk, byte_len))
    }

    /// Removes a chunk.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn delete(&mut self, chunk: ChunkId) -> Result<(), SessionError> {
        self.end_of(self.client.delete(chunk))
    }

    /// The state of a chunk.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn stat(&mut self, chunk: ChunkId) -> Result<ChunkInfo, SessionError> {
        self.end_of(self.client.stat(chunk))
    }

    /// One page of the listing.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn list(&mut self, after: Option<ChunkId>) -> Result<ListReply, SessionError> {
        self.end_of(self.client.list_page(after))
    }

    /// One step of a scrub, of as many slices as the server likes.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn scrub_step(&mut self, budget_slices: u64) -> Result<ScrubReply, SessionError> {
        self.end_of(self.client.scrub_step(budget_slices))
    }

    /// What the server is and how it is.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn info(&mut self) -> Result<InfoReply, SessionError> {
        self.end_of(self.client.info())
    }

    /// Has the server refuse the capabilities of a serial number, which all expire by `until_ms`.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn revoke(&mut self, serial: u64, until_ms: u64) -> Result<(), SessionError> {
        self.end_of(self.client.revoke(serial, until_ms))
    }

    /// How reservations are kept.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn qos(&mut self) -> Result<QosReply, SessionError> {
        self.end_of(self.client.qos())
    }

    /// How the links of the server are, as it sees them.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn health(&mut self) -> Result<HealthReply, SessionError> {
        self.end_of(self.client.health())
    }

    /// The smoothed round-trip time of the link to the first server, once there is one.
    #[must_use]
    pub(crate) fn rtt(&self) -> Option<Nanos> {
        let endpoint = self.driver.endpoint();
        endpoint.links().next().and_then(|link| endpoint.rtt(link))
    }

    /// How that link is protected, in one sentence.
    #[must_use]
    pub(crate) fn protection(&self) -> Option<String> {
        let endpoint = self.driver.endpoint();
        endpoint.links().next().map(|link| endpoint.protection(link))
    }

    /// Leaves in order, so that the server does not take this side for dead.
    ///
    /// # Errors
    /// [`SessionError::Interrupted`].
    pub(crate) fn close(&mut self) -> Result<(), SessionError> {
        self.driver.leave();
        let end = self.now() + GOODBYE_WAIT;
        while self.driver.endpoint().links().next().is_some() && self.now() < end {
            self.step()?;
        }
        Ok(())
    }

    /// Waits for the end of one operation.
    fn end_of<T>(&mut self, mut pending: Pending<T>) -> Result<T, SessionError> {
        loop {
            self.stay()?;
            if let Some(outcome) = pending.try_take() {
                return Ok(outcome?);
            }
        }
    }

    /// Keeps the link alive for a moment, for whoever waits for something else.
    ///
    /// # Errors
    /// [`SessionError`].
    pub(crate) fn stay(&mut self) -> Result<(), SessionError> {
        self.step()?;
        // Operations of a transfer that stopped early: nobody waits for them any more.
        while self.driver.next_ended().is_some() {}
        Ok(())
    }

    /// Sends what is to be sent, takes in what has come; waits when that is nothing.
    fn step(&mut self) -> Result<(), SessionError> {
        let was_busy = self.driver.turn();
        self.tell_away();
        if !was_busy {
            let due = self.driver.next_due();
            self.pace.idle(self.driver.endpoint_mut(), due)?;
        }
        Ok(())
    }

    fn tell_away(&mut self) {
        let (is_away, server) = (self.driver.is_away(), self.server);
        if std::mem::replace(&mut self.is_away, is_away) == is_away {
            return;
        }
        let seconds = self.patience.0 / 1_000_000_000;
        match is_away {
            true => say(format_args!(
                "towpath: lost the server at {server}: waiting for it, {seconds} s at most"
            )),
            false => say(format_args!("towpath: the server at {server} is back")),
        }
    }
}

/// How long a goodbye may take; the server notices an end without one, too, only later.
const GOODBYE_WAIT: Nanos = Nanos::from_millis(500);
