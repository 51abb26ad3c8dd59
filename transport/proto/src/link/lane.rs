//! The lane of a link: what of its commands and of its peer needs other parts of the link.

use super::control::Control;
use super::renew::{half_of, packed_half};
use super::{Link, LinkState};
use crate::event::Event;
use crate::lane::{
    GrantId, Lane, LaneEvent, LaneHalf, LaneWay, OpEnd, OpError, OpKey, OpPost, OpRequest, Rights,
};
use crate::limits::CONTROL_QUEUE_MAX;
use crate::wire::{ChunkHeader, Kind};
use alloc::boxed::Box;
use towpath_base::Time;
use towpath_verbs::RcAttr;

impl Link {
    /// Lets the peer reach memory: `byte_len` bytes at `addr`, that the driver has registered
    /// under `rkey` in the domain of this link. The peer learns of it by
    /// [`Event::Granted`].
    ///
    /// # Errors
    /// [`OpError::LinkDown`], [`OpError::Full`].
    pub fn grant(
        &mut self,
        now: Time,
        (addr, byte_len): (u64, u32),
        rkey: u32,
        rights: Rights,
    ) -> Result<GrantId, OpError> {
        if self.control.is_full() {
            return Err(OpError::Full { max: CONTROL_QUEUE_MAX });
        }
        let (id, number) = self.begin_lane()?.grant(now, rights)?;
        let (told, message_len) = (Control::of(Kind::Grant, number), byte_len);
        self.control.push(Control { message: addr, index: rkey, message_len, ..told });
        Ok(id)
    }

    /// Takes a grant back. The driver deregisters the memory first: when it has, the peer does not
    /// reach it any more. False when there is no such grant.
    pub fn revoke(&mut self, id: GrantId) -> bool {
        let known = self.lane.as_mut().is_some_and(|lane| lane.revoke(id));
        if known && self.end.state == LinkState::Up {
            self.control.push(Control::of(Kind::Revoke, id.0));
        }
        known
    }

    /// Takes on an operation on memory that the peer has granted; [`Event::OpDone`] tells how it
    /// ended.
    ///
    /// # Errors
    /// [`OpError`]; then nothing happens.
    pub fn operate(&mut self, request: &OpRequest) -> Result<OpKey, OpError> {
        self.begin_lane()?.submit(request)
    }

    fn begin_lane(&mut self) -> Result<&mut Lane, OpError> {
        if self.end.state != LinkState::Up {
            return Err(OpError::LinkDown);
        }
        Ok(self.lane.get_or_insert_with(|| Box::new(Lane::new())))
    }

    /// The lane, once one end has asked for it.
    #[must_use]
    #[inline]
    pub fn lane(&self) -> Option<&Lane> {
        self.lane.as_deref()
    }

    /// The same for the driver: [`Lane::poll_step`], [`Lane::renew`] and what it could not do.
    pub fn lane_mut(&mut self) -> Option<&mut Lane> {
        self.lane.as_deref_mut()
    }

    /// The driver has made our half, or says that it makes none, and nothing of the one before is
    /// posted any more.
    pub fn lane_made(&mut self, ours: LaneWay) {
        let made = self.lane.as_mut().and_then(|lane| lane.on_made(ours));
        let Some(number) = made else { return };
        let (message, index) = match ours {
            LaneWay::QueuePair(half) => {
                (packed_half(half.qp_num, half.psn), u32::from(half.rd_atomic))
            }
            LaneWay::Messages => (0, 0),
        };
        let told = Control::of(Kind::Lane, number);
        self.control.push(Control { message, index, ..told });
    }

    /// The queue pair of the lane is in error.
    pub fn lane_failed(&mut self, now: Time) {
        if self.lane.as_mut().is_some_and(|lane| lane.on_failed(now)) {
            self.flow.on_operations_failed(now);
        }
    }

    /// The next operation to post to the queue pair of the lane.
    #[inline]
    pub fn poll_op(&mut self, now: Time) -> Option<OpPost> {
        let Self { lane, flow, .. } = self;
        lane.as_mut()?.poll_op(now, |charge| flow.post_operation(now, charge))
    }

    /// The device is done with an operation that was posted: at `timestamp`, if it tells.
    pub fn handle_op_done(&mut self, now: Time, op: OpKey, end: OpEnd, timestamp: Option<Time>) {
        let charged = self.lane.as_mut().and_then(|lane| lane.on_op_done(op, end));
        match charged {
            Some((charge, posted_at)) if end == OpEnd::Done => {
                let times = (posted_at, timestamp);
                self.flow.on_operation_done(now, self.peer.mtu, charge, times);
            }
            Some((charge, _)) => self.flow.on_operation_lost(charge),
            None => {}
        }
    }

    /// Operations whose [`Event::OpDone`] was not taken.
    #[must_use]
    pub fn ops_live(&self) -> usize {
        self.lane().map_or(0, Lane::live)
    }

    /// What the lane has to tell.
    pub(super) fn poll_lane_event(&mut self) -> Option<Event> {
        Some(match self.lane.as_mut()?.poll_event()? {
            LaneEvent::Granted(grant) => Event::Granted { grant },
            LaneEvent::Revoked(grant) => Event::Revoked { grant },
            LaneEvent::OpDone { op, token, outcome } => {
                self.leave_when_done();
                Event::OpDone { op, token, outcome }
            }
        })
    }

    /// GRANT: the peer lets us reach memory.
    pub(super) fn on_grant(&mut self, header: &ChunkHeader) {
        let ChunkHeader { channel, message, index, message_len, .. } = *header;
        let lane = self.begin_lane();
        let taken = lane.is_ok_and(|lane| lane.on_grant(channel, (message, message_len), index));
        self.stats.violations += u64::from(!taken && self.end.state == LinkState::Up);
    }

    /// What the peer tells of the lane is about. A link that leaves takes it in too: operations are
    /// under way still, and need the next queue pair where one dies.
    fn lane_of_peer(&mut self) -> Option<&mut Lane> {
        // One that leaves begins none.
        let _ = self.begin_lane();
        self.lane.as_deref_mut()
    }

    /// REVOKE: the peer lets us reach it no longer.
    pub(super) fn on_revoke(&mut self, header: &ChunkHeader) {
        let taken = self.lane_of_peer().is_some_and(|lane| lane.on_revoke(header.channel));
        self.stats.violations += u64::from(!taken && self.end.state == LinkState::Up);
    }

    /// LANE: the peer has made its half of a life.
    pub(super) fn on_lane(&mut self, now: Time, header: &ChunkHeader) {
        let rd_atomic = u8::try_from(header.index).ok().filter(|&n| n <= RcAttr::RD_ATOMIC_MAX);
        let half = half_of(header.message).zip(rd_atomic).filter(|_| header.channel > 0);
        let Some(((qp_num, psn), rd_atomic)) = half else {
            self.stats.violations += 1;
            return;
        };
        let theirs = match (header.message, header.index) {
            (0, 0) => LaneWay::Messages,
            _ => LaneWay::QueuePair(LaneHalf { qp_num, psn, rd_atomic }),
        };
        if let Some(lane) = self.lane_of_peer() {
            lane.on_told(now, header.channel, theirs);
        }
    }
}
