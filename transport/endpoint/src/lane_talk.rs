//! What a lane has under way where its operations go by messages.

use crate::message::Message;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::Range;
use towpath_memory::SharedMemory;
use towpath_proto::wire::{LANE_PIECE_BYTES, LaneRequest};
use towpath_proto::{ChannelId, GrantId, OpKey, OpPost, Rights, SendKey};

/// Memory of this end that the peer may reach.
pub(crate) struct OwnGrant {
    pub(crate) id: GrantId,
    /// Its key at the device, where that can serve it.
    pub(crate) lkey: Option<u32>,
    pub(crate) memory: SharedMemory,
    pub(crate) range: Range<usize>,
    pub(crate) rights: Rights,
}

/// An operation of which not everything was asked for.
struct Asking {
    post: OpPost,
    /// Its first bytes, so many, were.
    asked: u32,
}

/// A request without an answer.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) request: LaneRequest,
    pub(crate) key: OpKey,
    /// Which bytes of the operation it is for: from here on.
    pub(crate) at: u32,
    /// No bytes of the operation follow.
    pub(crate) is_last: bool,
}

/// Requests of both ends, in their order.
#[derive(Default)]
pub(crate) struct LaneTalk {
    /// The channel of ours, and whether it is open.
    pub(crate) ours: Option<(ChannelId, bool)>,
    /// The channel of the peer's.
    pub(crate) theirs: Option<ChannelId>,
    numbers: u64,
    asking: VecDeque<Asking>,
    pub(crate) asked: VecDeque<Asked>,
    /// Those of the peer that wait for a buffer to answer with. Each holds credit of its channel.
    pub(crate) waiting: VecDeque<Message>,
    /// Messages of the lane that are being sent.
    sends: SmallVec<[SendKey; 8]>,
    /// There can be a queue pair again: it is made when nothing is posted.
    pub(crate) is_leaving: bool,
}

impl LaneTalk {
    /// Whether what comes on a channel is the lane's.
    pub(crate) fn has(&self, channel: ChannelId) -> bool {
        self.theirs == Some(channel) || self.ours.is_some_and(|(ours, _)| ours == channel)
    }

    /// A message of the lane is under way.
    pub(crate) fn on_sent(&mut self, send: SendKey) {
        self.sends.push(send);
    }

    /// A message has its outcome; false when it was none of the lane's.
    pub(crate) fn leave(&mut self, send: SendKey) -> bool {
        let place = self.sends.iter().position(|&other| other == send);
        place.map(|place| self.sends.swap_remove(place)).is_some()
    }

    /// An operation is to be asked for.
    pub(crate) fn begin(&mut self, post: OpPost) {
        self.asking.push_back(Asking { post, asked: 0 });
    }

    /// Whether an operation is not answered yet.
    pub(crate) fn is_busy(&self) -> bool {
        !self.asking.is_empty() || !self.asked.is_empty()
    }

    /// Nothing more is asked for an operation.
    pub(crate) fn give_up(&mut self, key: OpKey) {
        self.asking.retain(|asking| asking.post.key != key);
    }

    /// Nothing that was asked for will be answered.
    pub(crate) fn forget(&mut self) {
        self.asking.clear();
        self.asked.clear();
    }

    /// What is to be asked for next.
    pub(crate) fn next(&self) -> Option<Asked> {
        let Asking { post, asked } = self.asking.front()?;
        let OpPost { key, kind, grant, offset, .. } = *post;
        let length = (post.length - asked).min(LANE_PIECE_BYTES);
        // Within what was granted, which does not overflow.
        let offset = offset + asked;
        let request = LaneRequest { number: self.numbers, kind, grant, offset, length };
        Some(Asked { request, key, at: *asked, is_last: asked + length == post.length })
    }

    /// That was asked for.
    pub(crate) fn on_asked(&mut self, asked: Asked) {
        self.numbers += 1;
        if asked.is_last {
            self.asking.pop_front();
        } else if let Some(front) = self.asking.front_mut() {
            front.asked += asked.request.length;
        }
        self.asked.push_back(asked);
    }
}
