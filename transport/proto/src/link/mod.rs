//! The state machine between two endpoints, one file per protocol verb.

mod acks;
mod alarm;
mod build;
mod carriers;
mod census;
mod channels;
mod control;
mod deliver;
mod end;
mod fresh;
mod grow;
mod hold;
mod intact;
mod lane;
mod mtu;
mod paths;
mod presence;
mod receive;
mod renew;
mod send;
mod timers;
mod transmit;
mod usage;

#[cfg(test)]
mod tests;

pub use census::LinkCensus;
pub use channels::OpenError;
pub use send::{CancelError, SendError, SendRequest};
pub use usage::LinkUsage;

use self::alarm::AckAlarm;
use crate::channel::{Channel, Incoming, Outgoing};
use crate::config::{LinkConfig, PeerParams};
use crate::event::{ChannelId, DownReason, Event, IncomingKey, PathId, SendFrame, SendKey};
use crate::flow::Flow;
use crate::lane::Lane;
use crate::limits::{
    CONTROL_OUTSTANDING_MAX, CONTROL_WINDOW, FRAME_ALIGN_BYTES, PAGE_BYTES, PIECE_BYTES_MIN,
};
use crate::path::PathTable;
use crate::schedule::Scheduler;
use crate::slots::{Key, Slots};
use crate::stats::LinkStats;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use control::Control;
use presence::Presence;
use receive::Piggyback;
use towpath_base::{Nanos, Time, WindowBitmap};

/// Where the link is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinkState {
    Up,
    /// We want to leave: GOODBYE goes out when everything sent has had its outcome.
    Leaving,
    /// GOODBYE is on its way.
    GoodbyeSent,
    /// The peer said goodbye; down as soon as that is acknowledged.
    GoodbyeSeen,
    Down(DownReason),
}

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
/// One turn of a driver: hand in everything that arrived, take all events, let the application
/// act, then call [`poll_transmits`](Self::poll_transmits) until it says that there is nothing,
/// and only then [`poll_ack`](Self::poll_ack) until it is empty: so acks ride on replies where
/// there are any. An ack that rode on data waits for [`settle_piggyback`](Self::settle_piggyback),
/// so that a reply need not: call that when nothing is left to send, and send what it has then.
/// Call [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) has
/// come. `now` never goes backwards.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    peer: PeerParams,
    state: LinkState,
    down_told: bool,
    paths: PathTable,
    flow: Flow,
    /// Frames that were lost, and the rests of pieces that go in parts: to be sent before anything
    /// new.
    lost: VecDeque<Pending>,
    /// Signs in a row that acks do not get back to the peer, and when the first of them was a chunk
    /// that came twice.
    duplicates: u32,
    duplicate_at: Time,
    /// The path on which the peer asked last saying that none of its paths is acknowledged.
    heard_in_vain: Option<usize>,
    /// The last loss by a gap, on any path: while there are some a path may be silent by chance.
    gap_at: Option<Time>,
    /// The last doubt of a path among such losses.
    doubted_at: Option<Time>,
    acks_rerouted_at: Time,
    ack_alarm: AckAlarm,
    /// When the peer last asked what is acknowledged.
    asked_at: Time,
    /// The control queue pair is in error, or on a port that the first path has left: acks leave on
    /// those of paths.
    control_left: bool,
    /// It is in error here, and the peer was told.
    control_failed: bool,
    /// The first path has another port since it was made anew, and the control queue pair has not.
    control_follows: bool,
    /// Until then the controller has heard of the timeouts that there are.
    next_rto_at: Time,
    channels: Vec<Option<Box<Channel>>>,
    channels_open: u32,
    /// Where the search for a free channel id goes on, so that an id just closed rests.
    channel_cursor: u32,
    /// How many lives each place has had that we open channels at.
    channel_lives: Vec<u16>,
    /// The sum of all quotas: never above `config.credit_total`.
    quota_sum: u32,
    sends: Slots<Outgoing>,
    incoming: Slots<Incoming>,
    /// Messages whose reader takes pieces as they come, and has not been given all that came.
    begun: Vec<IncomingKey>,
    /// Channels that may have something to send now.
    schedule: Box<dyn Scheduler>,
    /// Channels that have something to send and no credit.
    starved: VecDeque<u32>,
    /// Channels whose credit is to be told.
    credit_due: VecDeque<u32>,
    /// Control chunks that wait; see [`crate::limits::CONTROL_QUEUE_MAX`].
    control_queue: VecDeque<Control>,
    control_sent: Slots<Control>,
    control_lost: VecDeque<(Key, u8)>,
    next_control: u64,
    /// Sequences of ours that were acknowledged, and of the peer's that were taken.
    control_acked: WindowBitmap,
    control_seen: WindowBitmap,
    /// Bounded by what exists: sends, incoming chunks and channels.
    events: VecDeque<Event>,
    next_deadline: Time,
    probe_at: Time,
    probes_unanswered: u32,
    last_heard: Time,
    presence: Presence,
    /// The last time that a path was found to carry only shorter packets than before.
    mtu_lowered_at: Option<Time>,
    /// Waits for what is more urgent.
    piggyback: Option<Piggyback>,
    /// When it was last looked at timers.
    looked_at: Time,
    /// Silence before this is our own: nobody looked.
    excused_until: Time,
    /// The longest piece that both ends take.
    piece_max: u32,
    whole_bytes_max: u32,
    receive_window_bytes: u64,
    /// The window that the peer was last told in an ack.
    window_told_bytes: u64,
    /// One-sided operations, once they are asked for.
    lane: Option<Box<Lane>>,
    stats: LinkStats,
    /// Kept between calls for its memory.
    ended_scratch: Vec<SendKey>,
    control_scratch: Vec<Key>,
    wake_scratch: Vec<u32>,
    frames_scratch: Vec<SendFrame>,
    newest_scratch: Vec<SendFrame>,
}

/// A frame that waits to be sent before anything new.
#[derive(Clone, Copy, Debug)]
struct Pending {
    frame: SendFrame,
    /// The path that lost it; none where it is the rest of a piece, sent for the first time.
    lost_on: Option<u8>,
}

impl Link {
    /// A link whose HELLOs were exchanged.
    ///
    /// # Panics
    /// When `peer` names no path or too many; [`crate::wire::Hello`] rules that out.
    #[must_use]
    pub fn new(mut config: LinkConfig, peer: PeerParams, now: Time) -> Self {
        peer.check();
        // Silence counts from the last sign of life, so idle links must ask for one in time.
        config.ping_interval = config.ping_interval.min(Nanos(config.peer_timeout.0 / 2));
        let whole_bytes_max = whole_bytes_max(&config, &peer);
        if !config.streams {
            config.message_bytes_max = config.message_bytes_max.min(whole_bytes_max);
        }
        Self {
            presence: Presence::new(&config, &peer),
            control_queue: presence::greeting(&config),
            paths: PathTable::new(&config, &peer, now),
            flow: Flow::new(&config, &peer, now),
            lost: VecDeque::with_capacity(64),
            duplicates: 0,
            duplicate_at: Time::ZERO,
            heard_in_vain: None,
            gap_at: None,
            doubted_at: None,
            acks_rerouted_at: Time::ZERO,
            ack_alarm: AckAlarm::default(),
            asked_at: Time::ZERO,
            control_left: false,
            control_failed: false,
            control_follows: false,
            next_rto_at: Time::ZERO,
            sends: Slots::new(config.sends_max),
            incoming: Slots::new(config.incoming_max()),
            begun: Vec::new(),
            control_sent: Slots::new(CONTROL_OUTSTANDING_MAX),
            piece_max: config.chunk_bytes_max.min(peer.chunk_bytes_max),
            whole_bytes_max,
            schedule: config.scheduling.scheduler(),
            config,
            peer,
            state: LinkState::Up,
            down_told: false,
            channels: Vec::new(),
            channels_open: 0,
            channel_cursor: 0,
            channel_lives: Vec::new(),
            quota_sum: 0,
            starved: VecDeque::new(),
            credit_due: VecDeque::new(),
            control_lost: VecDeque::new(),
            next_control: 0,
            control_acked: WindowBitmap::new(0, CONTROL_WINDOW as usize),
            control_seen: WindowBitmap::new(0, CONTROL_WINDOW as usize),
            events: VecDeque::new(),
            next_deadline: Time::NEVER,
            probe_at: Time::NEVER,
            probes_unanswered: 0,
            last_heard: now,
            mtu_lowered_at: None,
            piggyback: None,
            looked_at: now,
            excused_until: now,
            receive_window_bytes: u64::MAX,
            window_told_bytes: u64::MAX,
            lane: None,
            stats: LinkStats::default(),
            ended_scratch: Vec::new(),
            control_scratch: Vec::new(),
            wake_scratch: Vec::new(),
            frames_scratch: Vec::new(),
            newest_scratch: Vec::new(),
        }
    }

    /// Takes the next event. The key of a message lives until its [`Event::Sent`] is taken here.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let Some(event) = self.events.pop_front() else { return self.poll_rare() };
        if let Event::Sent { send, .. } = event {
            self.sends.free(send.0);
            self.leave_when_done();
        }
        Some(event)
    }

    fn poll_rare(&mut self) -> Option<Event> {
        if !self.begun.is_empty() {
            self.hand_out_begun();
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
        match self.state {
            LinkState::Down(reason) if !self.down_told && is_done => {
                self.down_told = true;
                Some(Event::Down { reason })
            }
            _ => None,
        }
    }

    /// This link's share of what the device can hold for all peers, in bytes; the next ack tells
    /// the peer.
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.receive_window_bytes = bytes;
    }

    /// Our host was away for up to `away` at a time of late: nobody looked at what had come.
    /// Congestion control and timeouts allow for it. For drivers whose completions carry no time;
    /// tell it when it changes. Zero until then.
    pub fn set_away(&mut self, away: Nanos) {
        self.flow.set_away(away);
        if let Some(lane) = &mut self.lane {
            lane.set_away(away);
        }
    }

    /// What it rides on now.
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
        matches!(self.state, LinkState::Down(_))
    }

    /// Whether nothing is queued, outstanding or waiting to be acknowledged or taken.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        // Probes are no work: a dead path is asked for as long as the link lives.
        let quiet = self.flow.in_flight_bytes == 0 && self.lost.is_empty();
        self.sends.len() == 0
            && self.ops_live() == 0
            && self.incoming.len() == 0
            && self.control_queue.is_empty()
            && self.control_sent.len() == 0
            && self.events.is_empty()
            && quiet
            && self.piggyback.is_none()
            && self.paths.acks_due == 0
    }

    /// Whether the link takes another message: it is up and has fewer than
    /// [`LinkConfig::sends_max`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.state == LinkState::Up && self.sends.len() < self.config.sends_max
    }

    /// Messages being sent whose [`Event::Sent`] was not taken.
    #[must_use]
    pub fn sends_live(&self) -> usize {
        self.sends.len()
    }

    /// The smoothed round-trip time of a path, once there is a sample.
    #[must_use]
    pub fn rtt(&self, path: PathId) -> Option<Nanos> {
        self.paths.get(usize::from(path.0))?.rtt.smoothed()
    }

    /// The smoothed round-trip time of all paths together, once there is a sample.
    #[must_use]
    pub fn srtt(&self) -> Option<Nanos> {
        self.flow.rtt.smoothed()
    }

    /// What may be in flight at present as far as congestion control goes, in bytes.
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
        self.whole_bytes_max
    }

    fn channel(&self, id: u32) -> Option<&Channel> {
        self.channels.get(ChannelId(id).place())?.as_deref().filter(|channel| channel.id == id)
    }

    fn channel_mut(&mut self, id: u32) -> Option<&mut Channel> {
        find_mut(&mut self.channels, id)
    }
}

/// See [`Link::whole_bytes_max`].
fn whole_bytes_max(config: &LinkConfig, peer: &PeerParams) -> u32 {
    let longest = config.chunk_bytes_max.min(peer.chunk_bytes_max) as usize;
    let align = if longest >= PAGE_BYTES { PAGE_BYTES } else { FRAME_ALIGN_BYTES };
    let shortest = longest.min(PIECE_BYTES_MIN) & !(align - 1);
    let in_credit = (config.quota_chunks / 2).max(1).saturating_mul(shortest as u32);
    in_credit.min(config.whole_bytes_max)
}

/// For those who need other parts of the link beside the channel.
#[inline]
fn find_mut(channels: &mut [Option<Box<Channel>>], id: u32) -> Option<&mut Channel> {
    let channel = channels.get_mut(ChannelId(id).place())?.as_deref_mut();
    channel.filter(|channel| channel.id == id)
}
