//! The state machine between two endpoints: the parts of a link, and the order of their work.
//!
//! | files | what they do |
//! |---|---|
//! | `send`, `sends`, `usage` | messages that the application sends, until each has an outcome |
//! | `build`, `pack`, `transmit` | the next chunk, and which frames it carries |
//! | `receive`, `receives`, `hold`, `intact` | what arrives, until the application gives it back |
//! | `acks`, `loss`, `alarm` | what is acknowledged, and what counts as lost |
//! | `paths`, `renew`, `mtu`, `carriers`, `presence` | which paths and which carrier are used |
//! | `channels`, `control`, `verbs`, `lane` | channels, and the control chunks of all verbs |
//! | `timers`, `end`, `census` | the clock, the end of the link, and what tests look at |

mod acks;
mod alarm;
mod build;
mod carriers;
mod census;
mod channels;
mod control;
mod end;
mod hold;
mod intact;
mod lane;
mod loss;
mod mtu;
mod pack;
mod paths;
mod presence;
mod receive;
mod receives;
mod renew;
mod send;
mod sends;
mod timers;
mod transmit;
mod usage;
mod verbs;

#[cfg(test)]
mod tests;

pub use census::LinkCensus;
pub use channels::OpenError;
pub use usage::LinkUsage;

use crate::channel::Channel;
use crate::config::{LinkConfig, PeerParams};
use crate::event::{ChannelId, ChunkRef, Event, IncomingKey, PathId};
use crate::flow::Flow;
use crate::lag::Lag;
use crate::lane::Lane;
use crate::limits::{FRAME_ALIGN_BYTES, PAGE_BYTES, PIECE_BYTES_MIN};
use crate::path::PathTable;
use crate::stats::LinkStats;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use channels::Channels;
use control::Controls;
use end::{End, LinkState};
use paths::Doubts;
use presence::Presence;
use receives::{Receives, Report};
use sends::Sends;
use towpath_base::{Nanos, Time};

/// One link: everything that is kept about one peer in one traffic class.
///
/// Its methods are of four kinds, in the manner of a sans-IO state machine:
///
/// - **commands** of the application: [`open_channel`](Self::open_channel), [`send`](Self::send),
///   [`cancel`](Self::cancel), [`release`](Self::release), [`goodbye`](Self::goodbye);
/// - **`handle_*`** for what the network, the device and the clock did;
/// - **`poll_*`** for what is to be done: transmissions, acks, events, the next timeout;
/// - **getters**.
///
/// One turn of a driver: hand in everything that arrived, take all events, let the application act,
/// then call [`poll_transmits`](Self::poll_transmits) until it says that there is nothing, and only
/// then [`poll_ack`](Self::poll_ack) until it is empty: so acks ride on replies where there are
/// any. An ack that rode on data is taken in late, so that a reply can leave first: call
/// [`settle_piggyback`](Self::settle_piggyback) when nothing is left to send, and `poll_transmits`
/// again if that was true. Call [`handle_timeout`](Self::handle_timeout) when
/// [`poll_timeout`](Self::poll_timeout) has come. `now` never goes backwards.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    peer: PeerParams,
    end: End,
    presence: Presence,
    paths: PathTable,
    doubts: Doubts,
    flow: Flow,
    /// Of acks in frames of their own, and of chunks.
    ack_lag: Lag,
    chunk_lag: Lag,
    control: Controls,
    channels: Channels,
    sends: Sends,
    receives: Receives,
    /// One-sided operations, once they are asked for.
    lane: Option<Box<Lane>>,
    /// Bounded by what exists: sends, incoming chunks and channels.
    events: VecDeque<Event>,
    stats: LinkStats,
}

impl Link {
    /// A link whose HELLOs were exchanged.
    ///
    /// # Panics
    /// When `peer` names no path or too many; [`crate::wire::Hello`] rules that out.
    #[must_use]
    pub fn new(mut config: LinkConfig, peer: PeerParams, now: Time) -> Self {
        peer.check();
        let whole_bytes_max = whole_bytes_max(&config, &peer);
        if !config.rules.streams {
            config.limits.message_bytes_max = config.limits.message_bytes_max.min(whole_bytes_max);
        }
        let piece_max = config.flow.chunk_bytes_max.min(peer.chunk_bytes_max);
        Self {
            end: End::default(),
            presence: Presence::new(now),
            paths: PathTable::new(&config, &peer, now),
            doubts: Doubts::default(),
            flow: Flow::new(&config, &peer, now),
            ack_lag: Lag::default(),
            chunk_lag: Lag::default(),
            control: Controls::new(&config),
            channels: Channels::new(),
            sends: Sends::new(config.limits.sends_max, piece_max),
            receives: Receives::new(config.limits.incoming_max(), whole_bytes_max),
            lane: None,
            events: VecDeque::new(),
            stats: LinkStats::default(),
            config,
            peer,
        }
    }

    /// Takes the next event. The key of a message lives until its [`Event::Sent`] is taken here.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let Some(event) = self.events.pop_front() else { return self.poll_late() };
        if let Event::Sent { send, .. } = event {
            self.sends.free(send);
            self.leave_when_done();
        }
        Some(event)
    }

    /// Events that wait until no other is left: `Down` is the last of all.
    fn poll_late(&mut self) -> Option<Event> {
        if self.receives.has_begun() {
            let (receives, channels, mut report) = self.receiving();
            receives.hand_out_begun(channels, &mut report);
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
        }
        if self.lane.is_some()
            && let Some(event) = self.poll_lane_event()
        {
            return Some(event);
        }
        let is_done = self.sends.len() == 0 && self.ops_live() == 0;
        match self.end.state {
            LinkState::Down(reason) if !self.end.down_told && is_done => {
                self.end.down_told = true;
                Some(Event::Down { reason })
            }
            _ => None,
        }
    }

    /// Sets this link's share of what the device can hold for all peers, in bytes. The next ack
    /// tells the peer.
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.receives.window_bytes = bytes;
    }

    /// Sets the longest recent time in which this host did not poll. Congestion control and
    /// timeouts allow for it. Drivers whose completions carry no time call it when that changes.
    /// Zero until then.
    pub fn set_away(&mut self, away: Nanos) {
        self.flow.set_away(away);
    }

    /// The carrier that it uses now.
    #[must_use]
    pub fn carrier(&self) -> crate::Carrier {
        self.paths.ladder.carrier()
    }

    /// Its counters.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// Whether it is down: nothing is sent or taken any more.
    #[must_use]
    pub fn is_down(&self) -> bool {
        matches!(self.end.state, LinkState::Down(_))
    }

    /// Whether nothing is queued, outstanding or waiting to be acknowledged or taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // Probes do not count: a dead path is probed as long as the link lives.
        let quiet = self.flow.in_flight_bytes == 0 && self.sends.lost.is_empty();
        self.sends.len() == 0
            && self.ops_live() == 0
            && self.receives.len() == 0
            && self.control.len() == 0
            && self.events.is_empty()
            && quiet
            && self.receives.piggyback.is_none()
            && self.paths.acks_due == 0
    }

    /// Whether the link takes another message: it is up and has fewer than
    /// [`LinkConfig::sends_max`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.end.state == LinkState::Up && self.sends.len() < self.config.limits.sends_max
    }

    /// Messages being sent whose [`Event::Sent`] was not taken.
    #[must_use]
    pub fn sends_live(&self) -> usize {
        self.sends.len()
    }

    /// The smoothed round-trip time of a path, once there is a sample.
    #[must_use]
    pub fn rtt(&self, path: PathId) -> Option<Nanos> {
        self.paths.get(usize::from(path.0))?.timing.srtt()
    }

    /// The smoothed round-trip time of all paths together, once there is a sample.
    #[must_use]
    pub fn srtt(&self) -> Option<Nanos> {
        self.flow.rtt.smoothed()
    }

    /// The newest sample of the round trip, of any path, without what it took within the hosts.
    #[must_use]
    pub fn rtt_latest(&self) -> Option<Nanos> {
        self.flow.rtt.latest()
    }

    /// Bytes that congestion control allows in flight now.
    #[must_use]
    pub fn window_bytes(&self) -> u64 {
        self.flow.window_bytes()
    }

    /// Bytes behind the header of the next chunk, at most.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.flow.body_max()
    }

    /// Messages longer than this are streamed to the reader (docs/protocol.md section 6): half the
    /// quota of a channel in the shortest pieces that a sender may cut, or what
    /// [`LinkConfig::whole_bytes_max`] says if that is less.
    #[must_use]
    pub fn whole_bytes_max(&self) -> u32 {
        self.receives.whole_bytes_max()
    }

    /// The receiving side, the channels, and where results are reported.
    #[inline]
    fn receiving(&mut self) -> (&mut Receives, &mut [Option<Box<Channel>>], Report<'_>) {
        let Self { channels, receives, events, stats, .. } = self;
        let Channels { all, credit_due, .. } = channels;
        (receives, &mut all[..], Report { events, stats, credit_due })
    }

    /// Hands the chunks of a whole message to `take`, in order, and ends the message here. Their
    /// buffers are the application's until it calls [`release`](Self::release).
    #[inline]
    pub fn take_message(&mut self, incoming: IncomingKey, take: impl FnOnce(&[ChunkRef])) {
        self.receives.take(incoming, take);
    }

    fn channel(&self, id: u32) -> Option<&Channel> {
        self.channels.all.get(ChannelId(id).place())?.as_deref().filter(|channel| channel.id == id)
    }

    fn channel_mut(&mut self, id: u32) -> Option<&mut Channel> {
        find_mut(&mut self.channels.all, id)
    }
}

/// See [`Link::whole_bytes_max`].
fn whole_bytes_max(config: &LinkConfig, peer: &PeerParams) -> u32 {
    let longest = config.flow.chunk_bytes_max.min(peer.chunk_bytes_max) as usize;
    let align = if longest >= PAGE_BYTES { PAGE_BYTES } else { FRAME_ALIGN_BYTES };
    let shortest = longest.min(PIECE_BYTES_MIN) & !(align - 1);
    let in_credit = (config.limits.quota_chunks / 2).max(1).saturating_mul(shortest as u32);
    in_credit.min(config.limits.whole_bytes_max)
}

/// As [`Link::channel_mut`], where other parts of the link are borrowed, too.
#[inline]
fn find_mut(channels: &mut [Option<Box<Channel>>], id: u32) -> Option<&mut Channel> {
    let channel = channels.get_mut(ChannelId(id).place())?.as_deref_mut();
    channel.filter(|channel| channel.id == id)
}
