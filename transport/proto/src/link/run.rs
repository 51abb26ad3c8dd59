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

impl Link {
    /// Cuts chunks of the channel whose turn it is for as long as `each` and everything else lets
    /// another follow at once. False when none may go now.
    #[inline]
    pub(super) fn send_run(
        &mut self,
        now: Time,
        mut each: impl FnMut(&mut Transmit) -> bool,
    ) -> bool {
        let Some((id, index)) = self.next_turn(now) else { return false };
        let mut header = self.data_header(id, index);
        let ride = self.ride_along(now, index, Kind::Data);
        ride.on(&mut header);
        let Self { channels, sends, schedule, flow, paths, .. } = self;
        let channel = find_mut(channels, id).expect("it has the turn");
        // Others have their turn, and other acks their ride, on the next.
        let is_alone = !schedule.has_others() && paths.acks_due == 0 && !ride.is_of_another(index);
        let mut window_room = flow.room_of_run();
        let mut path_room = paths.room_of_run(now, index);
        let path = &mut paths[index];
        let mut transmit = Transmit { path: PathId(index as u8), header, payload: None };
        let mut total = Total::default();
        while channel.tx.has_credit()
            && let Some((send, message)) = next_message(channel, sends)
        {
            let length = message.next_length(flow.chunk_bytes(message.cut_at()));
            let charge = flow.charge(length);
            // The first was asked for by itself.
            let may_follow = u64::from(charge) <= window_room && path_room > 0 && path.has_number();
            if total.chunks > 0 && !(is_alone && may_follow) {
                break;
            }
            let chunk = cut(channel, schedule.as_mut(), send, message, length);
            message.posted += 1;
            (transmit.header.message, transmit.header.message_len) =
                (message.id, message.message_len);
            fill_in(&mut transmit, &chunk, path.tx.send(What::Data(chunk), charge, now));
            flow.chunk_size.on_sent(length);
            total.add(length, charge, flow.chunk_size.packets_of(length));
            window_room = window_room.saturating_sub(u64::from(charge));
            path_room = path_room.saturating_sub(u64::from(charge));
            if !each(&mut transmit) {
                break;
            }
        }
        self.settle_sent(now, index, &total);
        debug_assert!(total.chunks > 0, "who has the turn can send");
        total.chunks > 0
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
    channel: &Channel,
    sends: &'a mut Slots<Outgoing>,
) -> Option<(SendKey, &'a mut Outgoing)> {
    let sends_on = matches!(channel.state, ChannelState::Open | ChannelState::Closing);
    let &send = channel.tx.queue.front().filter(|_| sends_on)?;
    let message = sends.get_mut(send.0).expect("queued messages are live");
    let has_id = message.state != SendState::Queued || channel.tx.has_id();
    (has_id && message.may_cut()).then_some((send, message))
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
