//! OPEN, OPENED, CLOSE: channels and their grants.

use super::control::Control;
use super::{Link, LinkState, find_mut};
use crate::channel::{Channel, ChannelRx, ChannelState, ChannelTx};
use crate::config::{LinkConfig, Side};
use crate::event::{ChannelId, CloseReason, Event};
use crate::lane::Lane;
use crate::limits::{
    CREDIT_OUTSTANDING_MAX, LANE_MESSAGE_BYTES_MAX, LANE_QUOTA_CHUNKS, MESSAGE_BYTES_MAX,
};
use crate::schedule::FairQueue;
use crate::wire::{ChunkHeader, Kind};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// OPENED: accepted.
const ACCEPTED: u32 = 0;
/// OPENED: as many channels or as much credit as the opener's peer allows.
const REFUSED_FULL: u32 = 1;
/// OPENED: the id belongs to the other side or is beyond the limit.
const REFUSED_ID: u32 = 2;
/// OPENED: a channel for a lane where nothing is granted.
const REFUSED_LANE: u32 = 3;

/// `index` bit of OPEN: the channel keeps order.
const ORDERED: u32 = 1;
/// `index` bit of OPEN: the channel is the lane's (docs/protocol.md section 11).
const LANE: u32 = 1 << 1;

/// What a channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Purpose {
    ordered: bool,
    for_lane: bool,
}

impl Purpose {
    fn bits(self) -> u32 {
        let bit = |is_set, bit| if is_set { bit } else { 0 };
        bit(self.ordered, ORDERED) | bit(self.for_lane, LANE)
    }

    fn from_bits(bits: u32) -> Self {
        let for_lane = bits & LANE != 0;
        Self { ordered: bits & ORDERED != 0 || for_lane, for_lane }
    }

    /// Pieces that the peer may have outstanding.
    fn quota(self, config: &LinkConfig) -> u32 {
        let quota = config.limits.quota_chunks;
        if self.for_lane { quota.min(LANE_QUOTA_CHUNKS) } else { quota }
    }

    /// The longest message that an end takes.
    fn message_bytes_max(self, told: u32) -> u32 {
        if self.for_lane { LANE_MESSAGE_BYTES_MAX } else { told.clamp(1, MESSAGE_BYTES_MAX) }
    }
}

/// Why a channel cannot be opened or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OpenError {
    /// As many channels are open as the configuration allows; raise `channels_max`.
    #[error(
        "as many channels of the link are open as channels_max allows (1,024 by default): close \
         one, raise channels_max at both ends, or open another link"
    )]
    TooMany,
    /// Another channel's grant would exceed `credit_total`; raise it or lower `quota_chunks`.
    #[error(
        "the open channels of the link take all of its credit: each takes quota_chunks (128 by \
         default), together they may take credit_total (an endpoint's is 4,096 by default, enough \
         for 32 channels). Raise credit_total or lower quota_chunks, at both ends, or close a \
         channel"
    )]
    NoCredit,
    /// The link is leaving or down.
    #[error("the link is down or leaving")]
    Down,
    /// No such channel is open.
    #[error("no such channel is open")]
    NotOpen,
}

/// The channels of a link, and what of them waits for its turn.
#[derive(Debug)]
pub(super) struct Channels {
    pub(super) all: Vec<Option<Box<Channel>>>,
    pub(super) open: u32,
    /// Where the search for a free channel id goes on, so that an id just closed rests.
    pub(super) cursor: u32,
    /// How many lives each place has had that we open channels at.
    pub(super) lives: Vec<u16>,
    /// The sum of all quotas: never above `config.limits.credit_total`.
    pub(super) quota_sum: u32,
    /// Channels that may have something to send now.
    pub(super) schedule: FairQueue,
    /// Channels that have something to send and no credit.
    pub(super) starved: VecDeque<u32>,
    /// Channels whose credit is to be told.
    pub(super) credit_due: VecDeque<u32>,
}

impl Channels {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            open: 0,
            cursor: 0,
            lives: Vec::new(),
            quota_sum: 0,
            schedule: FairQueue::default(),
            starved: VecDeque::new(),
            credit_due: VecDeque::new(),
        }
    }

    /// Puts a channel in the line of those with something to send.
    #[inline]
    pub(super) fn make_ready(&mut self, id: u32) {
        let Self { all, schedule, .. } = self;
        if let Some(channel) = find_mut(all, id) {
            line_up(channel, schedule);
        }
    }
}

impl Link {
    /// Opens a channel; [`Event::Opened`] or [`Event::Closed`] (refused) follows.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_channel(&mut self, ordered: bool) -> Result<ChannelId, OpenError> {
        self.open_for(Purpose { ordered, for_lane: false })
    }

    /// Opens the channel on which our one-sided operations go by messages, and the answers to them:
    /// those of [`wire::LaneRequest`](crate::wire::LaneRequest) and
    /// [`wire::LaneAnswer`](crate::wire::LaneAnswer), in order. [`Event::Opened`] or
    /// [`Event::Closed`] follows. It is no channel of the application.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_lane_channel(&mut self) -> Result<ChannelId, OpenError> {
        self.open_for(Purpose { ordered: true, for_lane: true })
    }

    fn open_for(&mut self, purpose: Purpose) -> Result<ChannelId, OpenError> {
        if self.end.state != LinkState::Up {
            return Err(OpenError::Down);
        }
        self.check_room(purpose)?;
        let first = u32::from(self.config.side == Side::Server);
        // Each side has every other id.
        let (cursor, count) = (self.channels.cursor, self.config.limits.channels_max);
        let mut places = (0..count).map(|i| (cursor + i) % count * 2 + first);
        let is_free = |place: &u32| self.at_place(*place).is_none();
        let place = places.find(is_free).ok_or(OpenError::TooMany)?;
        self.channels.cursor = place / 2 + 1;
        let id = self.next_life(place);
        self.place_channel(id, purpose, ChannelState::Opening, 0, 0);
        self.control.push(Control {
            index: purpose.bits(),
            message_len: self.config.limits.message_bytes_max,
            ..Control::of(Kind::Open, id)
        });
        Ok(ChannelId(id))
    }

    /// Closes a channel when everything sent on it has had its outcome; [`Event::Closed`] follows.
    ///
    /// # Errors
    /// [`OpenError::NotOpen`].
    pub fn close_channel(&mut self, channel: ChannelId) -> Result<(), OpenError> {
        let found = self.channel_mut(channel.0).filter(|c| c.state == ChannelState::Open);
        found.ok_or(OpenError::NotOpen)?.state = ChannelState::Closing;
        self.close_when_done(channel.0);
        Ok(())
    }

    /// Sets a channel's weight at this end: channels that are busy share the link's bytes in the
    /// proportion of their weights. It holds from the next piece but one on. Default
    /// [`WEIGHT_DEFAULT`](crate::WEIGHT_DEFAULT); zero counts as 1.
    ///
    /// # Errors
    /// [`OpenError::NotOpen`].
    pub fn set_weight(&mut self, channel: ChannelId, weight: u16) -> Result<(), OpenError> {
        self.channel_mut(channel.0).ok_or(OpenError::NotOpen)?.tx.weight = weight;
        Ok(())
    }

    /// The application is done with this many received pieces of a channel: their credit goes
    /// back to the peer.
    pub fn release(&mut self, channel: ChannelId, chunks: u32) {
        let Channels { all, credit_due, .. } = &mut self.channels;
        let Some(found) = find_mut(all, channel.0) else { return };
        found.rx.release(u64::from(chunks));
        if found.state == ChannelState::Drained {
            self.free_channel_when_drained(channel.0);
        } else if found.rx.should_tell_credit() {
            note_credit(found, credit_due);
        }
    }

    fn at_place(&self, place: u32) -> Option<&Channel> {
        self.channels.all.get(place as usize)?.as_deref()
    }

    /// The id of the next channel at a place of ours.
    fn next_life(&mut self, place: u32) -> u32 {
        if self.channels.lives.len() <= place as usize {
            self.channels.lives.resize(place as usize + 1, 0);
        }
        let life = &mut self.channels.lives[place as usize];
        let id = ChannelId::new(place, *life);
        *life = life.wrapping_add(1);
        id.0
    }

    /// The channels of lanes have credit of their own, and each end has one.
    fn check_room(&self, purpose: Purpose) -> Result<(), OpenError> {
        if purpose.for_lane {
            return Ok(());
        }
        if self.channels.open >= self.config.limits.channels_max {
            return Err(OpenError::TooMany);
        }
        if self.channels.quota_sum + self.config.limits.quota_chunks
            > self.config.limits.credit_total
        {
            return Err(OpenError::NoCredit);
        }
        Ok(())
    }

    fn place_channel(
        &mut self,
        id: u32,
        Purpose { ordered, for_lane }: Purpose,
        state: ChannelState,
        peer_quota: u64,
        peer_message_max: u32,
    ) {
        let quota = Purpose { ordered, for_lane }.quota(&self.config);
        let place = ChannelId(id).place();
        if self.channels.all.len() <= place {
            self.channels.all.resize_with(place + 1, || None);
        }
        let (tx, rx) = (ChannelTx::new(peer_quota), ChannelRx::new(quota));
        let channel = Channel { id, state, ordered, for_lane, peer_message_max, tx, rx };
        self.channels.all[place] = Some(Box::new(channel));
        if !for_lane {
            self.channels.quota_sum += quota;
        }
        self.channels.open += 1;
    }

    /// OPEN (docs/protocol.md section 3).
    pub(super) fn on_open(&mut self, header: &ChunkHeader) -> bool {
        let id = header.channel;
        let place = ChannelId(id).place() as u32;
        let theirs = u32::from(self.config.side == Side::Client);
        let is_theirs = place % 2 == theirs && place < 2 * self.config.limits.channels_max;
        // The peer opens a place again only after the channel before is over for it; we may still
        // wait for the ack of our CLOSE.
        if let Some(before) = self.at_place(place).filter(|_| is_theirs).map(|c| c.id)
            && before != id
        {
            self.end_channel(before, CloseReason::Peer);
        }
        let purpose = Purpose::from_bits(header.index);
        let is_taken = self.at_place(place).is_some()
            || purpose.for_lane && self.has_lane_channel_of(place % 2);
        let refusal = if !is_theirs {
            REFUSED_ID
        } else if purpose.for_lane && !self.has_granted() {
            REFUSED_LANE
        } else if is_taken || self.check_room(purpose).is_err() {
            REFUSED_FULL
        } else {
            ACCEPTED
        };
        let answer = Control {
            index: refusal,
            message_len: self.config.limits.message_bytes_max,
            ..Control::of(Kind::Opened, id)
        };
        if !self.answer(answer) {
            return false;
        }
        if refusal == ACCEPTED {
            let message_max = purpose.message_bytes_max(header.message_len);
            self.place_channel(id, purpose, ChannelState::Open, peer_quota(header), message_max);
            let (channel, Purpose { ordered, for_lane }) = (ChannelId(id), purpose);
            self.events.push_back(Event::Opened { channel, ordered, for_lane, by_peer: true });
        }
        true
    }

    /// Whether the peer has anything to ask of a lane.
    fn has_granted(&self) -> bool {
        self.lane().is_some_and(Lane::has_granted)
    }

    /// Whether the end with these places has a channel for its lane: one is enough.
    fn has_lane_channel_of(&self, side: u32) -> bool {
        let mut all = self.channels.all.iter().filter_map(|channel| channel.as_deref());
        all.any(|channel| channel.for_lane && ChannelId(channel.id).place() as u32 % 2 == side)
    }

    pub(super) fn on_opened(&mut self, header: &ChunkHeader) {
        let id = header.channel;
        let Some(channel) = self.channel_mut(id) else { return };
        if channel.state != ChannelState::Opening {
            return;
        }
        if header.index != ACCEPTED {
            self.end_channel(id, CloseReason::Refused(header.index));
            return;
        }
        let purpose = Purpose { ordered: channel.ordered, for_lane: channel.for_lane };
        channel.state = ChannelState::Open;
        channel.peer_message_max = purpose.message_bytes_max(header.message_len);
        channel.tx.open(peer_quota(header));
        let (channel, Purpose { ordered, for_lane }) = (ChannelId(id), purpose);
        self.events.push_back(Event::Opened { channel, ordered, for_lane, by_peer: false });
    }
}

/// Puts a channel in line, if it is not there.
#[inline]
pub(super) fn line_up(channel: &mut Channel, schedule: &mut FairQueue) {
    if !core::mem::replace(&mut channel.tx.is_ready, true) {
        schedule.enter(channel.id, channel.tx.weight);
    }
}

/// Notes that the credit of a channel is to be told, where that is news enough.
#[inline(never)]
pub(super) fn note_credit(channel: &mut Channel, credit_due: &mut VecDeque<u32>) {
    if channel.rx.should_tell_credit() && !core::mem::replace(&mut channel.rx.credit_due, true) {
        credit_due.push_back(channel.id);
    }
}

/// What the peer grants on a channel at first, as its OPEN or OPENED tells.
fn peer_quota(header: &ChunkHeader) -> u64 {
    u64::from(header.credit).min(u64::from(CREDIT_OUTSTANDING_MAX - 1))
}
