//! Parts of a file that are made anew on their way from server to server
//! (docs/storage-protocol.md section 12).
//!
//! Each server that helps reads its own part, multiplies it by its coefficient, and adds what comes
//! from the one before, piece by piece; the sum of a piece goes on as soon as it is made. The last
//! one has the target write the sum. Nothing is kept of it once it has ended.

use towpath_base::share::may_take;
use towpath_fastpath::cap::Capability;
use towpath_fastpath::{ErrorReply, Method, Rebuild};
use towpath_rpc::{Completion, RequestKey};
use towpath_transport::{
    Buf, Device, LinkId, Nanos, Region, SendBuffers as _, SupplyError, SupplyFault, Time,
};

use super::asking::Called;
use super::rebuilding::Rebuilding;
use super::{PeerId, Sent, outcome_of};
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
        if length as usize > self.read_bytes_max {
            let max = self.read_bytes_max as u64;
            return Err(Answer::Error(ErrorReply::TooLong { max }));
        }
        // In ranges of this length, of which each link may have its share.
        let free = REBUILD_BYTES_MAX.saturating_sub(self.onward.rebuilding_bytes);
        let (held, length_bytes) = (self.open.rebuilding_bytes_of(link), (length as usize).max(1));
        if !may_take(held.div_ceil(length_bytes), free / length_bytes) {
            return Err(Answer::Error(ErrorReply::NoSums));
        }
        let (class, now) = (self.class_of(link), self.endpoint.now());
        let leave = self.entries.begin(link).map_err(|Fenced| {
            self.stats.fenced += 1;
            Answer::Error(ErrorReply::Fenced)
        })?;
        let peer = self.onward.peers.hold((server, class), now);
        let peer = peer.ok_or(Answer::Error(ErrorReply::Busy))?;
        self.onward.rebuilding_bytes += length as usize;
        let of = (class, capability);
        Ok(Rebuilding::new(plan, (onward, *helper), peer, of, leave))
    }

    /// A range that is made anew has begun: the store is asked for this server's own part of it, as
    /// it is asked for whatever is read.
    pub(in crate::service) fn set_out_rebuilding(&mut self, request: RequestKey) {
        let Some(link) = self.open.link_of(request) else { return };
        let Some((rebuilding, deadline)) = self.open.rebuilding(request) else { return };
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
        let peer = rebuilding.peer;
        if let (Some(request), false) = (rebuilding.request, rebuilding.has_ended) {
            self.onward.sent.remove(&(peer, request.number()));
            self.onward.peers.cancel(&mut self.endpoint, peer, request);
        }
        self.onward.peers.release(peer);
    }

    /// Goes on with it, as far as what is here allows.
    pub(in crate::service) fn advance_rebuilding(&mut self, request: RequestKey) {
        match self.send_sum(request) {
            Err(error) => self.refuse_begun(request, Answer::Error(error)),
            Ok(Sent::All) => {}
            Ok(Sent::Waits) => {
                let Some((rebuilding, _)) = self.open.rebuilding(request) else { return };
                if !std::mem::replace(&mut rebuilding.is_waiting, true) {
                    self.onward.rebuilds.push(request);
                }
            }
        }
    }

    /// Those that wait for a link or a buffer.
    pub(super) fn advance_rebuilds(&mut self) {
        for request in std::mem::take(&mut self.onward.rebuilds) {
            if let Some((rebuilding, _)) = self.open.rebuilding(request) {
                rebuilding.is_waiting = false;
                self.advance_rebuilding(request);
            }
        }
    }

    /// The store has read this server's own part, or has not.
    pub(in crate::service) fn on_own(
        &mut self,
        request: RequestKey,
        result: Result<ReadDone, ReadError>,
        (buf, crcs): (Buf, Vec<u32>),
    ) {
        self.policy.spare.put_crcs(crcs);
        let (now, link) = (self.endpoint.now(), self.open.link_of(request));
        let Some((rebuilding, _)) = self.open.rebuilding(request) else { return };
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
                let (byte_len, tenants) = (buf.len() as u64, self.sched.tenants());
                link.into_iter().for_each(|link| tenants.added(now, link, byte_len));
                drop(buf);
                return self.advance_rebuilding(request);
            }
            Err(error) => of_read(chunk, error),
        };
        self.refuse_begun(request, Answer::Error(refused));
    }

    /// Sends the sum on, as far as it is made.
    fn send_sum(&mut self, request: RequestKey) -> Result<Sent, ErrorReply> {
        let Some((rebuilding, deadline)) = self.open.rebuilding(request) else {
            return Ok(Sent::All);
        };
        if rebuilding.has_ended || !rebuilding.can_ask() {
            return Ok(Sent::All);
        }
        let peer = rebuilding.peer;
        let sent_as = match rebuilding.request {
            Some(sent_as) => sent_as,
            None => {
                let until = share(self.endpoint.now(), deadline, rebuilding.onward.servers_left());
                let (body, byte_len) = (rebuilding.body(), rebuilding.byte_len() as u32);
                let (of, capability) = ((Method::Rebuild, byte_len), rebuilding.capability);
                let (endpoint, guard) = (&mut self.endpoint, self.guard.as_ref());
                let asked = (of, &[&body[..]][..], until);
                match self.onward.call(endpoint, guard, peer, capability.as_ref(), asked) {
                    Ok(Called::Waits) => return Ok(Sent::Waits),
                    Ok(Called::As(sent_as)) => {
                        self.onward.sent.insert((peer, sent_as.number()), request);
                        *rebuilding.request.insert(sent_as)
                    }
                    Err(None) => return Err(rebuilding.refused()),
                    Err(Some(error)) => return Err(error),
                }
            }
        };
        while let Some((offset, bytes)) = rebuilding.next_ready() {
            let Some((rpc, _)) = self.onward.peers.link(peer) else { return Ok(Sent::Waits) };
            let copied = self.endpoint.buffers_of(rpc.link()).copy(bytes);
            let Ok(copied) = copied else { return Ok(Sent::Waits) };
            let given = rpc.supply(&mut self.endpoint, sent_as, offset, copied.freeze());
            match given.map_err(|rejected| rejected.error) {
                Ok(()) => rebuilding.note_sent(),
                // Its end is told by a completion.
                Err(SupplyFault::Refused(SupplyError::Ended)) => return Ok(Sent::All),
                Err(error) => {
                    tracing::warn!(%error, "a piece of a sum cannot be passed on");
                    return Err(rebuilding.refused());
                }
            }
        }
        Ok(Sent::All)
    }

    /// The next server has said how it ended.
    pub(super) fn on_rebuilt(&mut self, request: RequestKey, completion: Completion) {
        let Some((rebuilding, _)) = self.open.rebuilding(request) else { return };
        rebuilding.has_ended = true;
        let (rank, byte_len) = (rebuilding.onward.rank(), rebuilding.byte_len() as u64);
        let answer = match outcome_of(rank, completion) {
            Ok(version) => {
                self.stats.passed_on += 1;
                self.stats.passed_on_bytes += byte_len;
                Answer::Changed(version)
            }
            Err(error) => Answer::Error(error),
        };
        self.refuse_begun(request, answer);
    }

    /// Whether that request of the next server is of one that is made anew here.
    pub(super) fn is_rebuilding(&mut self, request: RequestKey, peer: PeerId, sent: u64) -> bool {
        self.open.rebuilding(request).is_some_and(|(of, _)| of.is_sent_as(peer, sent))
    }
}

/// Until when the next server may take: as long as each of those behind needs as much again as this
/// one has to tell how it ended.
fn share(now: Time, deadline: Time, servers_behind: u64) -> Time {
    let (left, hops) = (deadline.since(now).0, servers_behind + 1);
    now + Nanos(left / (hops + 1) * hops)
}
