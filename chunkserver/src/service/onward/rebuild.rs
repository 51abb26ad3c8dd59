//! Parts of a file that are made anew on their way from server to server
//! (docs/storage-protocol.md section 12).
//!
//! Each server that helps reads its own part, multiplies it by its coefficient, and adds what comes
//! from the one before, piece by piece; the sum of a piece goes on as soon as it is made. The last
//! one has the target write the sum. Nothing is kept of it once it has ended.

use towpath_base::share::may_take;
use towpath_fastpath::cap::Capability;
use towpath_fastpath::{ErrorReply, Method, Rebuild};
use towpath_rpc::RequestKey;
use towpath_transport::{
    Buf, Device, Endpoint, LinkId, Nanos, PageCrcs, Region, SendBuffers as _, Time,
};

use super::hop::{Asking, Sent};
use super::rebuilding::Rebuilding;
use super::{Onward, Part};
use crate::guard::Guard;
use crate::service::answer::Answer;
use crate::service::ask::Asked;
use crate::service::errors::of_read;
use crate::service::limits::REBUILD_BYTES_MAX;
use crate::service::scheduler::{Due, Kind};
use crate::service::server::ChunkServer;
use crate::store::{Fenced, ReadDone, ReadError};

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// What a range that is made anew has at a server that helps, from its header on.
    pub(in crate::service) fn begin_rebuilding(
        &mut self,
        link: LinkId,
        plan: &Rebuild,
        capability: Option<Capability>,
    ) -> Result<Rebuilding, Answer> {
        let (Some(helper), Some((onward, server))) = (plan.helper(), plan.onward()) else {
            return Err(Answer::Unsupported);
        };
        self.check_peer(onward.rank(), server).map_err(Answer::Error)?;
        let length = plan.target().length;
        self.gate.check_room(length).map_err(Answer::Error)?;
        // In ranges of this length, of which each link may have its share.
        let free = REBUILD_BYTES_MAX.saturating_sub(self.onward.rebuilding_bytes);
        let (held, length_bytes) = (self.open.rebuilding_bytes_of(link), (length as usize).max(1));
        if !may_take(held.div_ceil(length_bytes), free / length_bytes) {
            return Err(Answer::Error(ErrorReply::NoSums));
        }
        let (class, now) = (self.class_of(link), self.endpoint.now());
        let leave = self.clients.begin(link).map_err(|Fenced| {
            self.stats.fenced += 1;
            Answer::Error(ErrorReply::Fenced)
        })?;
        let peer = self.onward.peers.hold((server, class, 0), now);
        let peer = peer.ok_or(Answer::Error(ErrorReply::Busy))?;
        self.onward.rebuilding_bytes += length as usize;
        let of = (class, capability);
        Ok(Rebuilding::new(plan, (onward, *helper), peer, of, leave))
    }

    /// A rebuild has begun: asks the store for this server's own part of the range, like any read.
    pub(in crate::service) fn set_out_rebuilding(&mut self, request: RequestKey) {
        let Some((rebuilding, link, deadline)) = self.open.rebuilding(request) else { return };
        let (class, byte_len) = (rebuilding.class, rebuilding.byte_len());
        let (chunk, offset) = (rebuilding.helper.chunk, rebuilding.onward.target().offset);
        let read = (Kind::Sketch, byte_len as u64);
        let price = self.sched.tenants().price(link, read);
        let when = (self.endpoint.now(), deadline);
        let due = Due::new((link.index(), class), read, price, when);
        let own = Asked::Own { request, link, bytes: (chunk, offset, byte_len) };
        if let Err((limit, _)) = self.sched.push(due, own) {
            self.refuse_begun(request, price.past_limit(limit));
        }
    }

    /// It has ended: what it has is free for others, and the next server is left.
    pub(in crate::service) fn leave_rebuilding(
        &mut self,
        (request, link): (RequestKey, LinkId),
        rebuilding: &Rebuilding,
    ) {
        self.onward.rebuilding_bytes -= rebuilding.byte_len();
        let is_own =
            |asked: &Asked| matches!(asked, Asked::Own { request: other, .. } if *other == request);
        self.sched.cancel(self.endpoint.now(), link.index(), is_own);
        self.onward.leave(&mut self.endpoint, &rebuilding.hop);
    }

    /// Goes on with it, as far as what is here allows.
    pub(super) fn advance_rebuilding(&mut self, request: RequestKey) {
        let Some((rebuilding, _, deadline)) = self.open.rebuilding(request) else { return };
        let (endpoint, guard) = (&mut self.endpoint, self.gate.guard());
        let answer = match rebuilding.hop.ended() {
            None => match self.onward.send_sum(endpoint, guard, rebuilding, (request, deadline)) {
                Ok(Sent::All) => return,
                Ok(Sent::Waits) => return self.onward.wait(request),
                Err(error) => Answer::Error(error),
            },
            Some(Ok(version)) => {
                self.stats.passed_on += 1;
                self.stats.passed_on_bytes += rebuilding.byte_len() as u64;
                Answer::Changed(version)
            }
            Some(Err(error)) => Answer::Error(error),
        };
        self.refuse_begun(request, answer);
    }

    /// The store has read this server's own part, or has not.
    pub(in crate::service) fn on_own(
        &mut self,
        request: RequestKey,
        result: Result<ReadDone, ReadError>,
        (buf, crcs): (Buf, Vec<u32>),
    ) {
        self.open.spare().put_crcs(crcs);
        let now = self.endpoint.now();
        let Some((rebuilding, link, _)) = self.open.rebuilding(request) else { return };
        let chunk = rebuilding.helper.chunk;
        let refused = match result {
            Ok(ReadDone { unfinished: true, .. }) => ErrorReply::Unfinished { chunk },
            Ok(ReadDone { version, .. }) if version != rebuilding.helper.version => {
                ErrorReply::OtherVersion { version }
            }
            Ok(_) => {
                self.stats.read_bytes += buf.len() as u64;
                rebuilding.take_own(&buf);
                // To read it has cost as much; this is for the sum that is made of it.
                self.sched.tenants().added(now, link, buf.len() as u64);
                drop(buf);
                return self.advance(request);
            }
            Err(error) => of_read(chunk, error),
        };
        self.refuse_begun(request, Answer::Error(refused));
    }
}

impl Onward {
    /// Sends the sum on, as far as it is made.
    fn send_sum<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        guard: Option<&Guard>,
        rebuilding: &mut Rebuilding,
        (request, deadline): (RequestKey, Time),
    ) -> Result<Sent, ErrorReply> {
        if !rebuilding.can_ask() {
            return Ok(Sent::All);
        }
        if rebuilding.hop.request().is_none() {
            let (body, capability) = (rebuilding.body(), rebuilding.capability);
            let asking = Asking {
                of: (Method::Rebuild, rebuilding.byte_len() as u32),
                parts: &[&body[..]],
                capability: capability.as_ref(),
                deadline: share(endpoint.now(), deadline, rebuilding.onward.servers_left()),
            };
            if self.ask(endpoint, guard, (&mut rebuilding.hop, request), asking)?.is_none() {
                return Ok(Sent::Waits);
            }
        }
        while let Some((offset, bytes)) = rebuilding.next_ready() {
            let link = self.peers.link(rebuilding.hop.peer()).map(|(rpc, _)| rpc.link());
            let copied = link.and_then(|link| endpoint.buffers_of(link).copy(bytes).ok());
            let Some(copied) = copied else { return Ok(Sent::Waits) };
            let part = Part { offset, bytes: copied.freeze(), crcs: PageCrcs::default() };
            self.supply(endpoint, &rebuilding.hop, part)?;
            rebuilding.note_sent();
        }
        Ok(Sent::All)
    }
}

/// Until when the next server may take: as long as each of those behind needs as much again as this
/// one has to tell how it ended.
fn share(now: Time, deadline: Time, servers_behind: u64) -> Time {
    let (left, hops) = (deadline.since(now).0, servers_behind + 1);
    now + Nanos(left / (hops + 1) * hops)
}
