//! One-sided operations that go by messages: asking the peer, and carrying out what it asks for
//! (docs/protocol.md section 11).

use super::Endpoint;
use crate::event::LinkId;
use crate::lane::LaneQp;
use crate::lane_talk::Asked;
use crate::limits::{LANE_BUFS, LANE_OPS_POSTED, LANE_REQUESTS_MAX};
use crate::message::Message;
use std::sync::atomic::Ordering;
use towpath_base::Time;
use towpath_memory::{Buf, MemoryError, Pool, Region, SharedMemory};
use towpath_proto::limits::LANE_MESSAGE_BYTES_MAX;
use towpath_proto::wire::{LANE_ANSWER_BYTES, LANE_REQUEST_BYTES, LaneAnswer, LaneRequest};
use towpath_proto::{Carrier, ChannelId, Link, OpEnd, OpKind, OpPost};
use towpath_verbs::Device;

/// What a peer said on the channel of a lane is nothing that a lane says.
struct Breach;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Whether the device has what the queue pair of a lane needs.
    pub(super) fn device_has_lanes(&self) -> bool {
        let verbs = self.device.caps().verbs;
        verbs.rc && verbs.read && verbs.atomics && !self.config.lanes_by_messages
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
        if state.lane_is_by_messages() && !lane.talk.is_leaving {
            take_ops(state, lane, now);
        }
        if lane.talk.is_leaving && lane.posted == 0 {
            lane.talk.is_leaving = false;
            state.renew_lane(now);
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
            if !self.say(link, channel, buf) {
                return;
            }
            if let Some(lane) = self.links.lane_mut(link) {
                lane.talk.on_asked(asked);
            }
        }
    }

    /// Sends a message of a lane; false when there is no room for one.
    fn say(&mut self, link: LinkId, channel: ChannelId, buf: Buf) -> bool {
        let Some(send) = self.send_unseen(link, channel, buf) else { return false };
        if let Some(lane) = self.links.lane_mut(link) {
            lane.talk.on_sent(send);
        }
        true
    }

    /// A buffer for a message of a lane. Where there is none the link is looked at again when one
    /// comes back.
    fn lane_buf(&mut self, link: LinkId) -> Option<Buf> {
        if self.lanes.bufs.is_none() {
            let made = Pool::with_count(LANE_MESSAGE_BYTES_MAX as usize, LANE_BUFS);
            let pool = made.inspect_err(|error| tracing::warn!(%error, "no buffers for lanes"));
            let pool = pool.ok()?;
            let registered = self.register(pool.region());
            registered
                .inspect_err(|error| tracing::warn!(%error, "the buffers of lanes stay unknown"))
                .ok()?;
            self.lanes.bufs = Some(pool);
        }
        let buf = self.lanes.bufs.as_ref().and_then(Pool::take);
        if buf.is_none() && !self.lanes.short.contains(&link) {
            self.lanes.short.push(link);
        }
        buf
    }

    /// A message of a lane has its outcome.
    #[cold]
    pub(super) fn on_lane_sent(&mut self, link: LinkId) {
        self.links.touch(link.index);
        while let Some(waiting) = self.lanes.short.pop() {
            self.links.touch(waiting.index);
        }
    }

    /// The peer, or this end, opened the channel of a lane.
    pub(super) fn on_lane_opened(&mut self, link: LinkId, channel: ChannelId, by_peer: bool) {
        let made = if by_peer { self.lane_of(link) } else { Ok(()) };
        let conn = self.links.find_mut(link);
        let Some(conn) = conn else { return };
        match (&mut conn.lane, made) {
            (Some(lane), Ok(())) if by_peer => lane.talk.theirs = Some(channel),
            (Some(lane), Ok(())) => lane.talk.ours = Some((channel, true)),
            _ => {
                // A peer that asks for what nobody granted.
                let _ = conn.link.as_mut().map(|state| state.close_channel(channel));
            }
        }
        self.links.touch(link.index);
    }

    /// The channel of a lane is closed; false when it was none.
    pub(super) fn on_lane_closed(&mut self, link: LinkId, channel: ChannelId) -> bool {
        let now = self.device.now();
        let Some(conn) = self.links.find_mut(link) else { return false };
        let Some(lane) = conn.lane.as_mut().filter(|lane| lane.talk.has(channel)) else {
            return false;
        };
        if lane.talk.theirs == Some(channel) {
            lane.talk.theirs = None;
            lane.talk.waiting.clear();
        } else {
            lane.talk.ours = None;
            super::lane_qp::take_back_ops(conn, now);
            if let Some(state) = &mut conn.link {
                // In the next life there is another one.
                state.lane_failed(now);
            }
        }
        self.links.touch(link.index);
        true
    }

    /// The peer said something on the channel of a lane.
    #[cold]
    pub(super) fn on_lane_message(&mut self, link: LinkId, message: Message) {
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
        self.stats.lane_breaches += 1;
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
            state.handle_op_done(now, key, end);
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
            self.say(link, channel, buf);
        }
    }
}

/// Takes operations on that may be asked for now: none before there is a channel for them.
fn take_ops(state: &mut Link, lane: &mut LaneQp, now: Time) {
    if state.ops_live() == 0 {
        return;
    }
    match lane.talk.ours {
        Some((_, true)) => {}
        Some((_, false)) => return,
        None => {
            return match state.open_lane_channel() {
                Ok(channel) => lane.talk.ours = Some((channel, false)),
                // Later: a channel of the application may be closed, or credit come back.
                Err(_) => state.lane_failed(now),
            };
        }
    }
    while lane.posted < LANE_OPS_POSTED
        && let Some(post) = state.poll_op(now)
    {
        if lane.prepare_talk(&post) {
            lane.talk.begin(post);
        } else {
            state.handle_op_done(now, post.key, OpEnd::Refused);
        }
    }
}

impl LaneQp {
    /// Makes the buffer of an operation ready for its answers. It stays here all the time.
    fn prepare_talk(&mut self, post: &OpPost) -> bool {
        let Some(landing) = self.at(post.key.index()).filter(|landing| landing.key == post.key)
        else {
            return false;
        };
        let Some(buf) = landing.berth.buf_mut() else { return false };
        if post.kind == OpKind::Read && buf.set_len(post.length as usize).is_err() {
            return false;
        }
        landing.is_posted = true;
        self.posted += 1;
        true
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
mod tests {
    use super::*;
    use crate::config::EndpointConfig;
    use crate::endpoint::joined::{End, Joined, joined};
    use crate::event::Event;
    use towpath_proto::{DownReason, GrantId, Rights};
    use towpath_sim::World;

    struct Lab {
        world: World,
        near: End,
        far: End,
        link: LinkId,
        far_link: LinkId,
        memory: SharedMemory,
        grant: GrantId,
    }

    impl Lab {
        /// The far end has granted a page, and the near end has asked for something once.
        fn new() -> Self {
            let pair = joined(&EndpointConfig::new().links_max(1).lanes_by_messages(true));
            let Joined { world, near, mut far, near_link: link, far_link } = pair;
            let memory = SharedMemory::new(4096).expect("memory for a test");
            let grant = far.grant(far_link, &memory, 8..4096, Rights::READ).expect("room");
            let mut lab = Self { world, near, far, link, far_link, memory, grant };
            lab.until(|event| matches!(event, Event::Granted { .. }));
            let place = crate::lane::Place { link, grant, offset: 0 };
            let buf = lab.near.alloc(8).expect("a free buffer");
            lab.near.read(place, 8, buf, crate::lane::OpOptions::new()).expect("allowed");
            lab.until(|event| matches!(event, Event::OpDone { .. }));
            lab
        }

        fn until(&mut self, is_it: impl Fn(&Event) -> bool) -> Event {
            for _ in 0..10_000 {
                let mut found = None;
                for end in [&mut self.near, &mut self.far] {
                    end.turn(|_, event| found = found.take().or(Some(event).filter(&is_it)));
                }
                if let Some(event) = found {
                    return event;
                }
                self.world.advance_to(self.world.now() + towpath_base::Nanos::from_micros(10));
            }
            panic!("it does not come");
        }

        /// Says something on the channel of the lane that the application of no end could say.
        fn say(&mut self, bytes: &[u8]) {
            let lane = self.near.links.find(self.link).and_then(|conn| conn.lane.as_ref());
            let (channel, _) = lane.and_then(|lane| lane.talk.ours).expect("it was opened");
            let buf = self.near.copy(bytes).expect("a free buffer");
            self.near.send_unseen(self.link, channel, buf).expect("there is room");
        }
    }

    #[test]
    fn what_is_no_request_ends_the_link_and_is_counted() {
        let request =
            LaneRequest { number: 9, kind: OpKind::Read, grant: GrantId(1), offset: 0, length: 8 };
        let mut unknown = request.emit();
        unknown[0] = 77;
        for bytes in [&[1; 7][..], &request.emit()[..39], &[0; 40], &unknown] {
            let mut lab = Lab::new();
            lab.say(bytes);
            let event = lab.until(|event| matches!(event, Event::LinkDown { .. }));
            let Event::LinkDown { link, reason } = event else { unreachable!() };
            assert_eq!((link, reason), (lab.far_link, DownReason::Local));
            assert_eq!(lab.far.endpoint_stats().lane_breaches, 1);
        }
    }

    #[test]
    fn an_answer_to_what_nobody_asked_for_ends_the_link() {
        let mut lab = Lab::new();
        // The far end answers a request that the near end did not note.
        let kind = OpKind::Read;
        let request = LaneRequest { number: 9, kind, grant: GrantId(1), offset: 0, length: 8 };
        lab.say(&request.emit());
        let event = lab.until(|event| matches!(event, Event::LinkDown { .. }));
        assert!(matches!(event, Event::LinkDown { link, .. } if link == lab.link));
        assert_eq!(lab.near.endpoint_stats().lane_breaches, 1);
    }

    #[test]
    fn a_request_reaches_what_was_granted_and_nothing_beside_it() {
        let lab = Lab::new();
        let lane = lab.far.links.find(lab.far_link).and_then(|conn| conn.lane.as_ref());
        let lane = lane.expect("it was made");
        let reach = |kind, grant, offset, length| {
            let request = LaneRequest { number: 0, kind, grant, offset, length };
            lane.reach(&request).map(|(memory, at)| (memory.addr() - lab.memory.addr(), at))
        };
        let read = |offset, length| reach(OpKind::Read, lab.grant, offset, length);
        assert_eq!(read(0, 8), Some((0, 8)));
        assert_eq!(read(4087, 1), Some((0, 4095)));
        for (offset, length) in [(4088, 1), (4087, 2), (0, 4089), (u32::MAX, 1), (u32::MAX, 9)] {
            assert_eq!(read(offset, length), None, "{offset} {length}");
        }
        assert_eq!(reach(OpKind::Read, GrantId(lab.grant.0 + 1), 0, 8), None);
        for kind in [
            OpKind::Write,
            OpKind::WriteWord { value: 1 },
            OpKind::FetchAdd { add: 1 },
            OpKind::CmpSwap { compare: 0, swap: 1 },
        ] {
            assert_eq!(reach(kind, lab.grant, 0, 8), None, "{kind:?} of what may be read");
        }
    }
}
