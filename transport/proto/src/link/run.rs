//! New data: chunks of one channel that take one path, cut in one go.
//!
//! What the first chunk of such a run was asked for (whose turn it is, which path it takes, what
//! rides on it, whether windows and pacer let it go) holds for those behind it as long as nothing
//! comes in between. So it is asked once, and what they have used up is told once, at the end.

use super::transmit::{Total, fill_in};
use super::{Link, find_mut};
use crate::channel::{Channel, ChannelState, Outgoing, SendState};
use crate::event::{ChannelId, PathId, SendKey, Transmit};
use crate::limits::HEADER_BYTES;
use crate::path::{DataChunk, PathTable, Spreading, What};
use crate::schedule::Scheduler;
use crate::slots::Slots;
use crate::wire::Kind;
use alloc::collections::VecDeque;
use core::hint::cold_path;
use towpath_base::Time;

/// What goes next: chunks of new data, or one of something that goes before them.
pub(super) struct Run {
    transmit: Transmit,
    /// The channel, the path, and what may still follow on it.
    channel: u32,
    index: usize,
    window_room: u64,
    path_room: u64,
    /// Others have their turn, and other acks their ride, on the next run.
    is_alone: bool,
    /// It is something else than new data, was handed out, and is paid for.
    is_urgent: bool,
    total: Total,
}

impl Run {
    /// A chunk that goes before new data.
    pub(super) fn urgent(transmit: Transmit) -> Self {
        Self {
            transmit,
            channel: 0,
            index: 0,
            window_room: 0,
            path_room: 0,
            is_alone: false,
            is_urgent: true,
            total: Total::default(),
        }
    }

    /// The next chunk, if everything lets another follow at once.
    #[inline(always)]
    pub(super) fn next(&mut self, link: &mut Link, now: Time) -> Option<&mut Transmit> {
        if self.is_urgent {
            cold_path();
            let is_first = self.total.chunks == 0;
            self.total.chunks = 1;
            return is_first.then_some(&mut self.transmit);
        }
        let Link { channels, sends, schedule, flow, paths, .. } = link;
        let channel = find_mut(channels, self.channel)?;
        if !channel.tx.has_credit() {
            return None;
        }
        let (send, message) = next_message(channel, sends)?;
        let path = &mut paths[self.index];
        let length = message.next_length(flow.chunk_bytes(message.cut_at()));
        let charge = flow.charge(length);
        // The first was asked for by itself.
        let may_follow = self.is_alone
            && u64::from(charge) <= self.window_room
            && self.path_room > 0
            && path.has_number();
        if self.total.chunks > 0 && !may_follow {
            return None;
        }
        let chunk = cut(channel, schedule.as_mut(), send, message, length);
        message.posted += 1;
        let header = &mut self.transmit.header;
        (header.message, header.message_len) = (message.id, message.message_len);
        fill_in(&mut self.transmit, &chunk, path.tx.send(What::Data(chunk), charge, now));
        flow.chunk_size.on_sent(length);
        self.total.add(length, charge, flow.chunk_size.packets_of(length));
        self.window_room = self.window_room.saturating_sub(u64::from(charge));
        self.path_room = self.path_room.saturating_sub(u64::from(charge));
        Some(&mut self.transmit)
    }

    /// Whether it had anything; keeps account of it.
    #[inline]
    pub(super) fn settle(self, link: &mut Link, now: Time) -> bool {
        if !self.is_urgent {
            link.settle_sent(now, self.index, &self.total);
            debug_assert!(self.total.chunks > 0, "who has the turn can send");
        }
        self.total.chunks > 0
    }
}

impl Link {
    /// New data of the channel whose turn it is, if any may go now.
    #[inline]
    pub(super) fn next_run(&mut self, now: Time) -> Option<Run> {
        let (channel, index) = self.next_turn(now)?;
        let mut header = self.data_header(channel, index);
        let ride = self.ride_along(now, index, Kind::Data);
        ride.on(&mut header);
        let Self { schedule, flow, paths, .. } = self;
        let is_alone = !schedule.has_others() && paths.acks_due == 0 && !ride.is_of_another(index);
        Some(Run {
            transmit: Transmit {
                path: PathId(index as u8),
                header,
                payload: None,
                filler_bytes: 0,
                cut_at: paths[index].mtu.cut_at(),
            },
            channel,
            index,
            window_room: flow.room_of_run(),
            path_room: paths.room_of_run(now, index),
            is_alone,
            is_urgent: false,
            total: Total::default(),
        })
    }

    /// The channel whose turn it is, and the path of its next chunk, if that may go now.
    #[inline]
    fn next_turn(&mut self, now: Time) -> Option<(u32, usize)> {
        while let Some(ChannelId(id)) = self.schedule.turn() {
            let Self { channels, sends, starved, schedule, flow, paths, .. } = self;
            let sendable = find_mut(channels, id).and_then(|channel| {
                let (_, message) = next_message(channel, sends)?;
                if channel.tx.has_credit() {
                    return Some(message);
                }
                list_starved(channel, starved);
                None
            });
            let Some(message) = sendable else {
                cold_path();
                schedule.pass();
                if let Some(channel) = self.channel_mut(id) {
                    channel.tx.is_ready = false;
                }
                continue;
            };
            let length = message.next_length(flow.chunk_bytes(message.cut_at()));
            let index =
                if flow.may_send(now, length) { choose_for(now, paths, message) } else { None };
            if index.is_none() {
                cold_path();
                self.arm_credit_probe(now);
            }
            return index.map(|index| (id, index));
        }
        self.flow.on_nothing_to_send();
        self.arm_credit_probe(now);
        None
    }
}

/// The message of a channel that can have a chunk cut now, if there is credit for one.
#[inline]
fn next_message<'a>(
    channel: &mut Channel,
    sends: &'a mut Slots<Outgoing>,
) -> Option<(SendKey, &'a mut Outgoing)> {
    let sends_on = matches!(channel.state, ChannelState::Open | ChannelState::Closing);
    let send = channel.tx.queue.front(|send| is_queued(sends, send)).filter(|_| sends_on)?;
    let message = sends.get_mut(send.0).expect("queued messages are live");
    let has_id = message.state != SendState::Queued || channel.tx.has_id();
    (has_id && message.may_cut()).then_some((send, message))
}

/// Whether a message that was queued is so still.
pub(super) fn is_queued(sends: &Slots<Outgoing>, send: SendKey) -> bool {
    sends.get(send.0).is_some_and(Outgoing::is_queued)
}

#[cold]
fn list_starved(channel: &mut Channel, starved: &mut VecDeque<u32>) {
    channel.tx.is_starved = true;
    if !core::mem::replace(&mut channel.tx.is_listed_starved, true) {
        starved.push_back(channel.id);
    }
}

/// The path for the next chunk of a message.
#[inline]
fn choose_for(now: Time, paths: &mut PathTable, message: &mut Outgoing) -> Option<usize> {
    if paths.spreading != Spreading::Message || !paths.has_choice() {
        return paths.choose(now, 0);
    }
    choose_to_keep(now, paths, message)
}

#[inline(never)]
fn choose_to_keep(now: Time, paths: &mut PathTable, message: &mut Outgoing) -> Option<usize> {
    let kept = message.path.map(usize::from).filter(|&index| paths.is_usable(index));
    let index = kept.or_else(|| paths.choose(now, 0))?;
    message.path = Some(index as u8);
    Some(index)
}

/// Cuts a chunk for the channel whose turn it is, and gives the turn on.
#[inline]
fn cut(
    channel: &mut Channel,
    schedule: &mut dyn Scheduler,
    send: SendKey,
    message: &mut Outgoing,
    length: u32,
) -> DataChunk {
    if message.state == SendState::Queued {
        message.state = SendState::Sending;
        message.id = channel.tx.assign_id();
    }
    channel.tx.use_credit();
    let chunk = message.cut(send, length);
    if message.is_fully_cut() {
        channel.tx.queue.pop_front();
    }
    let has_more = !channel.tx.queue.is_empty();
    channel.tx.is_ready = has_more;
    // A chunk of a byte takes the link for its header too.
    let more = has_more.then_some(channel.tx.weight);
    schedule.served(length + HEADER_BYTES as u32, more);
    chunk
}
