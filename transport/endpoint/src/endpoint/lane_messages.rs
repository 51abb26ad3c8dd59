//! One-sided operations that go by messages: asking the peer, and carrying out what it asks for
//! (docs/protocol.md section 11).

use super::Endpoint;
use crate::conn::Conn;
use crate::ids::LinkId;
use crate::lane::LaneQp;
use crate::lane_talk::Asked;
use crate::limits::{LANE_ANSWER_WAIT, LANE_BUFS, LANE_REQUESTS_MAX};
use crate::message::Message;
use crate::payload::SendOptions;
use std::sync::atomic::Ordering;
use towpath_base::Time;
use towpath_memory::{Buf, MemoryError, Pool, Region, SharedMemory};
use towpath_proto::limits::LANE_MESSAGE_BYTES_MAX;
use towpath_proto::wire::{LANE_ANSWER_BYTES, LANE_REQUEST_BYTES, LaneAnswer, LaneRequest};
use towpath_proto::{Carrier, ChannelId, Link, OpEnd, OpKind, Outcome};
use towpath_verbs::Device;

/// What a peer said on the channel of a lane is nothing that a lane says.
struct Breach;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Whether the device has what the queue pair of a lane needs, and lanes may have one.
    pub(super) fn device_has_lanes(&self) -> bool {
        let verbs = self.device.caps().verbs;
        // A WRITE lands before anybody could open it.
        let by_messages = self.config.lanes_by_messages || self.config.secure.is_some();
        verbs.rc && verbs.read && verbs.atomics && !by_messages
    }

    /// Whether the lane of a link can have a queue pair now.
    pub(super) fn lane_has_way(&self, link: LinkId) -> bool {
        let state = self.links.find(link).and_then(|conn| conn.link.as_ref());
        self.device_has_lanes() && state.is_some_and(|state| state.carrier() != Carrier::Tcp)
    }

    /// A link rides on another carrier: where there was no queue pair for its lane there may be one
    /// now.
    pub(super) fn reconsider_lane(&mut self, link: LinkId) {
        if !self.lane_has_way(link) {
            return;
        }
        if let Some(lane) = self.links.lane_mut(link) {
            lane.talk.is_leaving = true;
            self.links.touch(link.index);
        }
    }

    /// Asks for operations, and carries out what waits of the peer's.
    pub(super) fn run_talk(&mut self, index: u16, now: Time) {
        let Some(link) = self.links.at(index).map(|conn| conn.id) else { return };
        self.serve(link);
        let Some(conn) = self.links.at(index) else { return };
        let (Some(state), Some(lane)) = (conn.link.as_mut(), conn.lane.as_mut()) else { return };
        if lane.talk.is_leaving && lane.posted == 0 {
            lane.talk.is_leaving = false;
            if let Some(lane) = state.lane_mut() {
                lane.renew(now);
            }
            self.links.touch(index);
        }
        // Also in a life that has a queue pair again: what was begun goes on.
        self.ask(link);
    }

    /// Sends requests as far as there is room.
    fn ask(&mut self, link: LinkId) {
        loop {
            let conn = self.links.find(link);
            let Some(lane) = conn.and_then(|conn| conn.lane.as_ref()) else { return };
            let Some((channel, true)) = lane.talk.ours else { return };
            let full = lane.talk.asked.len() >= LANE_REQUESTS_MAX;
            let Some(asked) = lane.talk.next().filter(|_| !full) else { return };
            let Some(mut buf) = self.lane_buf(link) else { return };
            let Some(lane) = self.links.lane_mut(link) else { return };
            if !lane.put_request(&asked, &mut buf) {
                lane.talk.give_up(asked.key);
                continue;
            }
            if !self.say(link, channel, buf, SendOptions::new()) {
                return;
            }
            if let Some(lane) = self.links.lane_mut(link) {
                lane.talk.on_asked(asked);
            }
        }
    }

    /// Sends a message of a lane; false when there is no room for one.
    fn say(&mut self, link: LinkId, channel: ChannelId, buf: Buf, options: SendOptions) -> bool {
        let sent = self.send_unseen(link, channel, buf, options);
        let Some(send) = sent else { return false };
        if let Some(lane) = self.links.lane_mut(link) {
            lane.talk.on_sent(send);
        }
        true
    }

    /// A buffer for a message of a lane. Where there is none, or the link holds its share, the link
    /// is looked at again when one comes back.
    fn lane_buf(&mut self, link: LinkId) -> Option<Buf> {
        if self.lanes.bufs.is_none() {
            let made = Pool::with_accounts(
                LANE_MESSAGE_BYTES_MAX as usize,
                LANE_BUFS,
                self.config.sizes.links_max,
            );
            let pool = made.inspect_err(|error| tracing::warn!(%error, "no buffers for lanes"));
            let pool = pool.ok()?;
            let registered = self.register(pool.region());
            registered
                .inspect_err(|error| tracing::warn!(%error, "the buffers of lanes stay unknown"))
                .ok()?;
            self.lanes.bufs = Some(pool);
        }
        let buf = self.lanes.bufs.as_ref().and_then(|pool| pool.take_for(link.index()).ok());
        if buf.is_none() && !self.lanes.short.contains(&link) {
            self.lanes.short.push(link);
        }
        buf
    }

    /// A message of a lane has its outcome.
    #[cold]
    pub(super) fn on_lane_sent(&mut self, link: LinkId, outcome: Outcome) {
        self.links.touch(link.index);
        if outcome == Outcome::Abandoned
            && let Some(theirs) = self.links.lane_mut(link).and_then(|lane| lane.talk.theirs)
            && let Some(state) = self.links.up(link)
        {
            // The peer takes no answers, and one that is left out it cannot make sense of. It may
            // be closing already.
            let _ = state.close_channel(theirs);
        }
        while let Some(waiting) = self.lanes.short.pop() {
            self.links.touch(waiting.index);
        }
    }

    /// The peer, or this end, opened the channel of a lane.
    pub(super) fn on_lane_opened(&mut self, link: LinkId, channel: ChannelId, by_peer: bool) {
        let Some(conn) = self.links.find_mut(link) else { return };
        match &mut conn.lane {
            Some(lane) if !by_peer => lane.talk.ours = Some((channel, true)),
            Some(lane) if !lane.grants.is_empty() => lane.talk.theirs = Some(channel),
            _ => {
                // A peer that asks for what nobody grants any more.
                conn.refused_lane = Some(channel);
                let _ = conn.link.as_mut().map(|state| state.close_channel(channel));
            }
        }
        self.links.touch(link.index);
    }

    /// The channel of a lane is closed; false when it was none.
    pub(super) fn on_lane_closed(&mut self, link: LinkId, channel: ChannelId) -> bool {
        let now = self.device.now();
        let Some(conn) = self.links.find_mut(link) else { return false };
        if conn.refused_lane == Some(channel) {
            conn.refused_lane = None;
            return true;
        }
        let Some(lane) = conn.lane.as_mut().filter(|lane| lane.talk.has(channel)) else {
            return false;
        };
        if lane.talk.theirs == Some(channel) {
            lane.talk.theirs = None;
            lane.talk.waiting.clear();
        } else {
            lane.talk.ours = None;
            super::lane_qp::take_back_ops(conn, now);
            if let Some(lane) = conn.link.as_mut().and_then(Link::lane_mut) {
                // The peer refuses it, or closes it: whoever asks later tries another one.
                lane.refuse();
            }
        }
        self.links.touch(link.index);
        true
    }

    /// The peer said something on the channel of a lane.
    #[cold]
    pub(super) fn on_lane_message(&mut self, link: LinkId, message: Message) {
        let is_refused = |conn: &Conn| conn.refused_lane == Some(message.channel());
        if self.links.find(link).is_some_and(is_refused) {
            return self.release(message);
        }
        let Some(lane) = self.links.lane_mut(link) else { return };
        if lane.talk.theirs == Some(message.channel()) {
            lane.talk.waiting.push_back(message);
            return self.serve(link);
        }
        let taken = self.on_answer(link, &message);
        self.release(message);
        if taken.is_err() {
            self.breach(link);
        }
    }

    fn breach(&mut self, link: LinkId) {
        tracing::warn!(link = link.index, "what a peer says on its lane is none: the link ends");
        self.tally.stats.lane_breaches += 1;
        self.cut(link);
    }

    /// What a request of ours came to.
    fn on_answer(&mut self, link: LinkId, message: &Message) -> Result<(), Breach> {
        let now = self.device.now();
        let mut bytes = [0; LANE_ANSWER_BYTES];
        message.copy_to(&mut bytes);
        let answer = LaneAnswer::parse(&bytes, message.len()).map_err(|_| Breach)?;
        let Some(conn) = self.links.find_mut(link) else { return Ok(()) };
        let (Some(state), Some(lane)) = (&mut conn.link, &mut conn.lane) else { return Ok(()) };
        let asked = lane.talk.asked.pop_front().ok_or(Breach)?;
        let is_read = asked.request.kind == OpKind::Read && answer.is_done;
        let length = if is_read { asked.request.length } else { 0 };
        if (answer.number, answer.length) != (asked.request.number, length) {
            return Err(Breach);
        }
        if let Some(end) = lane.take_answer(&asked, &answer, message)
            && let Some(key) = lane.give_back(asked.key.index())
        {
            state.handle_op_done(now, key, end, None);
        }
        self.links.touch(link.index);
        Ok(())
    }

    /// Carries out what the peer asks for, as far as there is room for answers.
    fn serve(&mut self, link: LinkId) {
        loop {
            let Some(conn) = self.links.find(link) else { return };
            let (Some(state), Some(lane)) = (&conn.link, &conn.lane) else { return };
            let Some(channel) = lane.talk.theirs.filter(|_| !lane.talk.waiting.is_empty()) else {
                return;
            };
            if !state.has_room() {
                return;
            }
            let Some(mut buf) = self.lane_buf(link) else { return };
            let Some(lane) = self.links.lane_mut(link) else { return };
            let Some(message) = lane.talk.waiting.pop_front() else { return };
            let answered = lane.carry_out(&message, &mut buf);
            self.release(message);
            if answered.is_err() {
                return self.breach(link);
            }
            // There is room, unless the channel is just being closed: then nobody waits for it.
            let options = SendOptions::new().deadline(self.device.now() + LANE_ANSWER_WAIT);
            self.say(link, channel, buf, options);
        }
    }
}

impl LaneQp {
    /// Opens the channel of the lane where there is none and operations wait for it.
    pub(super) fn open_channel(&mut self, state: &mut Link) {
        if state.ops_live() == 0 || self.talk.ours.is_some() {
            return;
        }
        match state.open_lane_channel() {
            Ok(channel) => self.talk.ours = Some((channel, false)),
            // The link leaves, or the application has opened all channels that there may be.
            Err(_) => {
                if let Some(lane) = state.lane_mut() {
                    lane.refuse();
                }
            }
        }
    }

    /// Writes a request, with what it writes; false when its operation is gone.
    fn put_request(&mut self, asked: &Asked, out: &mut Buf) -> bool {
        let Asked { request, key, at, .. } = asked;
        let landing = self.at(key.index()).filter(|landing| landing.key == *key);
        let Some(bytes) = landing.and_then(|landing| landing.berth.buf()) else { return false };
        let (at, length) = (*at as usize, request.written() as usize);
        let Some(written) = bytes.get(at..at + length) else { return false };
        out.extend(&request.emit()).and_then(|()| out.extend(written)).is_ok()
    }

    /// Takes in what was answered; how the operation ended, if it has.
    fn take_answer(
        &mut self,
        asked: &Asked,
        answer: &LaneAnswer,
        message: &Message,
    ) -> Option<OpEnd> {
        let is_live =
            |landing: &&mut crate::lane::Landing| landing.key == asked.key && landing.is_posted;
        let landing = self.at(asked.key.index()).filter(is_live)?;
        if !answer.is_done {
            self.talk.give_up(asked.key);
            return Some(OpEnd::Refused);
        }
        let buf = landing.berth.buf_mut()?;
        let taken = match asked.request.kind {
            OpKind::Read => copy_out(message, buf, asked.at as usize),
            OpKind::FetchAdd { .. } | OpKind::CmpSwap { .. } => {
                buf.get_mut(..8).map(|word| word.copy_from_slice(&answer.word.to_ne_bytes()))
            }
            OpKind::Write | OpKind::WriteWord { .. } => Some(()),
        };
        debug_assert!(taken.is_some(), "the buffer is as long as the operation");
        asked.is_last.then_some(OpEnd::Done)
    }

    /// Does what a request asks for, and writes the answer.
    fn carry_out(&mut self, message: &Message, out: &mut Buf) -> Result<(), Breach> {
        let mut bytes = [0; LANE_REQUEST_BYTES];
        message.copy_to(&mut bytes);
        let request = LaneRequest::parse(&bytes, message.len()).map_err(|_| Breach)?;
        let LaneRequest { number, length, .. } = request;
        let is_read = request.kind == OpKind::Read;
        let bytes_max = LANE_ANSWER_BYTES + if is_read { length as usize } else { 0 };
        out.set_len(bytes_max).map_err(|_| Breach)?;
        let (head, body) = out.split_at_mut(LANE_ANSWER_BYTES);
        let reached = self.reach(&request);
        let done = reached.and_then(|at| operate(at, &request, message, body).ok());
        let (is_done, word) = (done.is_some(), done.unwrap_or(0));
        if is_done {
            self.count(request.kind, length);
        }
        let length = if is_read && is_done { length } else { 0 };
        head.copy_from_slice(&LaneAnswer { number, is_done, word, length }.emit());
        out.set_len(LANE_ANSWER_BYTES + length as usize).map_err(|_| Breach)
    }
}

/// Carries an operation out on memory that the peer may reach: what a word was.
fn operate(
    (memory, at): (&SharedMemory, usize),
    request: &LaneRequest,
    message: &Message,
    read: &mut [u8],
) -> Result<u64, MemoryError> {
    const ORDER: Ordering = Ordering::SeqCst;
    match request.kind {
        OpKind::Read => memory.read(at, read).map(|()| 0),
        OpKind::Write => {
            let (mut skip, mut to) = (LANE_REQUEST_BYTES, at);
            for part in message.parts() {
                let bytes = part.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(part.len());
                memory.write(to, bytes)?;
                to += bytes.len();
            }
            Ok(0)
        }
        OpKind::WriteWord { value } => {
            memory.word(at)?.store(value, ORDER);
            Ok(0)
        }
        OpKind::FetchAdd { add } => Ok(memory.word(at)?.fetch_add(add, ORDER)),
        OpKind::CmpSwap { compare, swap } => {
            let swapped = memory.word(at)?.compare_exchange(compare, swap, ORDER, ORDER);
            Ok(swapped.unwrap_or_else(|was| was))
        }
    }
}

/// Copies what was read to its place in the buffer of the operation.
fn copy_out(message: &Message, buf: &mut Buf, at: usize) -> Option<()> {
    let (mut skip, mut to) = (LANE_ANSWER_BYTES, at);
    for part in message.parts() {
        let bytes = part.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(part.len());
        buf.get_mut(to..to + bytes.len())?.copy_from_slice(bytes);
        to += bytes.len();
    }
    Some(())
}

#[cfg(test)]
mod tests;
