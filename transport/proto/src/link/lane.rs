//! The lane of a link: commands of its application, and what the driver has to do for it.

use super::control::Control;
use super::{Link, LinkState};
use crate::event::Event;
use crate::lane::{
    GrantId, GrantMessage, Lane, LaneEvent, LaneHalf, LaneStep, LaneWay, OpCounts, OpEnd, OpError,
    OpKey, OpPost, OpRequest, Rights,
};
use crate::limits::CONTROL_QUEUE_MAX;
use crate::wire::{ChunkHeader, Kind};
use alloc::boxed::Box;
use towpath_base::Time;
use towpath_base::serial::Psn;
use towpath_verbs::{QpNum, RcAttr};

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
        let lane = self.lane()?;
        let granted = lane.grants.grant((addr, byte_len), rkey, rights);
        let (id, GrantMessage { channel, message, index, message_len }) = granted?;
        lane.life.want(now);
        let told = Control::of(Kind::Grant, channel);
        self.control.push(Control { message, index, message_len, ..told });
        Ok(id)
    }

    /// Takes a grant back. The driver deregisters the memory first: when it has, the peer does not
    /// reach it any more. False when there is no such grant.
    pub fn revoke(&mut self, id: GrantId) -> bool {
        let known = self.lane.as_mut().is_some_and(|lane| lane.grants.revoke(id));
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
        self.lane()?.submit(request)
    }

    fn lane(&mut self) -> Result<&mut Lane, OpError> {
        if self.end.state != LinkState::Up {
            return Err(OpError::LinkDown);
        }
        let Self { lane, config, .. } = self;
        Ok(lane.get_or_insert_with(|| Box::new(Lane::new(config))))
    }

    /// Whether there is a lane, which may have something for the driver to do:
    /// [`poll_lane`](Self::poll_lane), [`poll_op`](Self::poll_op).
    #[must_use]
    #[inline]
    pub fn has_lane(&self) -> bool {
        self.lane.is_some()
    }

    /// Operations that may be under way.
    #[must_use]
    pub fn ops_max(&self) -> usize {
        self.config.limits.lane_ops_max
    }

    /// The next thing that the driver has to do for the queue pair of the lane. Ask as for
    /// [`poll_renew`](Self::poll_renew).
    pub fn poll_lane(&mut self, now: Time) -> Option<LaneStep> {
        if self.is_down() {
            return None;
        }
        self.lane.as_mut()?.poll_step(now)
    }

    /// The driver has made our half, or says that it makes none, and nothing of the one before is
    /// posted any more.
    pub fn lane_made(&mut self, ours: LaneWay) {
        let made = self.lane.as_mut().and_then(|lane| lane.life.on_made(ours));
        let Some(number) = made else { return };
        let (message, index) = match ours {
            LaneWay::QueuePair(LaneHalf { qp_num, psn, rd_atomic }) => {
                (u64::from(qp_num.0) | u64::from(psn.value()) << 32, u32::from(rd_atomic))
            }
            LaneWay::Messages => (0, 0),
        };
        let told = Control::of(Kind::Lane, number);
        self.control.push(Control { message, index, ..told });
    }

    /// Whether operations go by messages now: carry out what [`poll_op`](Self::poll_op) tells on
    /// [the channel of the lane](Self::open_lane_channel).
    #[must_use]
    pub fn lane_is_by_messages(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.is_by_messages())
    }

    /// Operations went by messages, none is posted, and our end can have a queue pair again.
    pub fn renew_lane(&mut self, now: Time) {
        if let Some(lane) = &mut self.lane {
            lane.life.renew(now);
        }
    }

    /// The driver could not make our half: it is asked again, later.
    pub fn lane_make_failed(&mut self, now: Time) {
        if let Some(lane) = &mut self.lane {
            lane.life.on_make_failed(now);
        }
    }

    /// The peer takes no operations by messages, or there is no channel for them: those that wait
    /// end as not carried out.
    pub fn refuse_ops(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.refuse();
        }
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
        if self.is_down() {
            return None;
        }
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
        self.lane.as_ref().map_or(0, |lane| lane.live())
    }

    /// How operations ended so far.
    #[must_use]
    pub fn op_counts(&self) -> OpCounts {
        self.lane.as_ref().map_or_else(OpCounts::default, |lane| lane.counts())
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
        let told = GrantMessage { channel, message, index, message_len };
        let taken = self.lane().is_ok_and(|lane| lane.on_grant(&told));
        self.stats.violations += u64::from(!taken && self.end.state == LinkState::Up);
    }

    /// What the peer tells of the lane is about. A link that leaves takes it in too: operations are
    /// under way still, and need the next queue pair where one dies.
    fn lane_of_peer(&mut self) -> Option<&mut Lane> {
        // One that leaves begins none.
        let _ = self.lane();
        self.lane.as_deref_mut()
    }

    /// REVOKE: the peer lets us reach it no longer.
    pub(super) fn on_revoke(&mut self, header: &ChunkHeader) {
        let taken = self.lane_of_peer().is_some_and(|lane| lane.on_revoke(header.channel));
        self.stats.violations += u64::from(!taken && self.end.state == LinkState::Up);
    }

    /// LANE: the peer has made its half of a life.
    pub(super) fn on_lane(&mut self, now: Time, header: &ChunkHeader) {
        let (qp_num, psn) = (header.message & 0xffff_ffff, header.message >> 32);
        let half = u32::try_from(qp_num)
            .ok()
            .zip(u32::try_from(psn).ok())
            .zip(u8::try_from(header.index).ok().filter(|&n| n <= RcAttr::RD_ATOMIC_MAX));
        let sound = half.filter(|&((qp_num, psn), _)| {
            qp_num <= QpNum::MAX.0 && psn <= QpNum::MAX.0 && header.channel > 0
        });
        let Some(((qp_num, psn), rd_atomic)) = sound else {
            self.stats.violations += 1;
            return;
        };
        let theirs = match (header.message, header.index) {
            (0, 0) => LaneWay::Messages,
            _ => LaneWay::QueuePair(LaneHalf {
                qp_num: QpNum(qp_num),
                psn: Psn::new(psn),
                rd_atomic,
            }),
        };
        if let Some(lane) = self.lane_of_peer() {
            lane.life.on_told(now, header.channel, theirs);
        }
    }
}
