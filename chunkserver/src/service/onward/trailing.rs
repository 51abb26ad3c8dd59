//! Writes that go on after they were answered, to servers that are not waited for.
//!
//! They keep their bytes claimed until they have ended, so that every server makes writes of the
//! same bytes in one order. A server that does not make one lacks it from then on, which is told.

use towpath_base::share::may_take;
use towpath_rpc::RequestKey;
use towpath_transport::{Device, Region, Time};

use super::Trailing;
use crate::service::limits::{SILENT_FOR, TRAILING_MAX, TRAILING_SHARE};
use crate::service::server::ChunkServer;
use crate::service::stops::StopReason;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Whether a write may be answered while servers that are not waited for still get it.
    pub(super) fn has_trailing_room(&mut self, request: RequestKey) -> bool {
        let Some((along, to)) = self.open.passed_on(request) else { return true };
        if !along.is_trailing() {
            return true;
        }
        let (link, byte_len) = (to.way.0, along.byte_len());
        // What came over a link that is gone has given its credit back.
        let whole = self.endpoint.whole_bytes_max(link).map_or(u64::MAX, u64::from);
        let of_link = self.open.trailing().values().filter(|trailing| trailing.to.way.0 == link);
        let (count, bytes) = of_link.fold((0, 0), |(count, bytes), trailing| {
            (count + 1, bytes + trailing.along.byte_len())
        });
        // A long one goes alone: all of it is here.
        let fits = bytes == 0 || bytes + byte_len <= whole / TRAILING_SHARE;
        fits && may_take(count, TRAILING_MAX.saturating_sub(self.open.trailing().len()))
    }

    /// Ends a write that goes nowhere any more.
    pub(super) fn end_trailing(&mut self, request: RequestKey) {
        let is_over = |trailing: &Trailing| !trailing.along.is_trailing();
        if self.open.trailing().get(&request).is_some_and(is_over) {
            self.drop_trailing(request);
        }
    }

    /// Those whose time is over.
    pub(in crate::service) fn expire_trailing(&mut self, now: Time) {
        let over = self.open.trailing().iter().filter(|(_, of)| of.to.deadline <= now);
        let over: Vec<RequestKey> = over.map(|(request, _)| *request).collect();
        over.into_iter().for_each(|request| self.drop_trailing(request));
    }

    fn drop_trailing(&mut self, request: RequestKey) {
        let Some(Trailing { mut along, to }) = self.open.take_trailing(request) else { return };
        self.leave(&along);
        along.skip_trailing(|_| true);
        let until = self.endpoint.now() + SILENT_FOR;
        for peer in along.silent() {
            self.onward.silent.insert(peer, until);
        }
        for _ in 0..along.behind() {
            self.note_stopped(to.way.0, along.matter(), StopReason::Behind);
        }
    }
}
