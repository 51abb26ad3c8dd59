//! What the books say about each event, and what was reached.

use super::{CREDIT_TOTAL, Host, Ready, Report, Stream, byte_of};
use crate::input::coarse;
use towpath_proto::{ChannelId, ChunkRef, Event, IncomingKey, LinkStats};

impl Host {
    /// Takes all events and checks the books.
    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.link.poll_event() {
            assert!(self.down.is_none(), "{event:?} after Down");
            self.on_event(event);
        }
        let held: u32 = self.channels.values().map(|channel| channel.held).sum();
        let pieces = self.bufs.pieces() + held;
        assert!(pieces <= CREDIT_TOTAL, "{pieces} pieces for a credit of {CREDIT_TOTAL}");
        assert_eq!(self.link.sends_live(), self.live.len(), "each send is reported once");
        assert_eq!(self.link.ops_live(), self.lane.live.len(), "each operation is reported once");
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Opened { channel: id, ordered, by_peer, .. } => {
                self.note(0);
                let channel = self.channels.entry(id).or_default();
                assert!(!channel.open && channel.opening != by_peer, "{id:?} opens once");
                assert!(by_peer || channel.ordered == ordered);
                (channel.opening, channel.open, channel.ordered) = (false, true, ordered);
                channel.life += 1;
            }
            Event::Closed { channel: id, .. } => {
                self.note(1);
                let channel = self.channels.get_mut(&id).expect("it was opened");
                assert!(channel.open || channel.opening, "{id:?} closes once");
                (channel.opening, channel.open) = (false, false);
            }
            Event::Message { channel, incoming, length } => {
                self.note(2);
                let report = self.report(channel);
                self.ready.push_back(Ready { report, incoming, length });
            }
            Event::StreamChunk { channel, incoming, chunk, message_len, end } => {
                self.note(if end { 3 } else { 4 });
                self.on_stream(channel, incoming, chunk, (message_len, end));
            }
            Event::StreamAborted { channel, incoming } => {
                self.note(5);
                let stream = self.streams.remove(&incoming).expect("only a stream is aborted");
                assert_eq!(stream.report.channel, channel);
            }
            Event::Recycled { buf } => {
                self.note(6);
                self.bufs.let_go(buf);
            }
            Event::Sent { send, token, outcome } => {
                self.note(7 + outcome as u64);
                assert_eq!(self.live.remove(&send), Some(token), "reported once");
                let sent = &mut self.sends[token as usize];
                assert!(sent.key == send && sent.outcome.is_none());
                assert_eq!(sent.posted, 0, "the device holds none of its buffers");
                sent.outcome = Some(outcome);
            }
            Event::PieceSent { send, offset, length } => {
                self.note(13);
                self.on_piece_sent(send, (offset, length));
            }
            Event::PathChanged { from, to, signal, .. } => {
                assert_eq!(from.after(signal), Some(to), "a legal move");
                self.note(11);
            }
            Event::PathMtuChanged { .. } => self.note(12),
            Event::Granted { grant } => self.lane.granted.push(grant),
            Event::Revoked { grant } => {
                let before = self.lane.granted.len();
                self.lane.granted.retain(|known| known.id != grant);
                assert_eq!(before, self.lane.granted.len() + 1, "it was granted");
            }
            Event::OpDone { op, outcome, .. } => self.on_op_done(op, outcome),
            Event::CarrierChanged { .. } => panic!("all paths ride on the same carrier"),
            Event::Down { reason } => {
                self.note(10);
                assert!(self.live.is_empty(), "every message has had its outcome");
                assert!(self.lane.live.is_empty(), "and every operation");
                self.down = Some(reason);
            }
        }
    }

    pub(super) fn note(&mut self, bit: u64) {
        self.seen |= 1 << bit;
    }

    /// The application takes a piece, and looks at every byte: of which message it is.
    pub(super) fn take_buf(&mut self, id: ChannelId, chunk: ChunkRef) -> u64 {
        let kept = self.bufs.kept.get(&chunk.buf.0).expect("a piece lies in a kept buffer");
        let bytes = &kept.bytes[chunk.start as usize..][..chunk.length as usize];
        let tag = byte_of(bytes[0], chunk.offset);
        let places = chunk.offset..chunk.offset + chunk.length;
        assert!(bytes.iter().copied().eq(places.map(|at| byte_of(tag, at))), "{chunk:?}");
        self.bufs.let_go(chunk.buf);
        self.channels.get_mut(&id).expect("it was opened").held += 1;
        u64::from(tag)
    }

    /// A message is reported, or its stream begins.
    fn report(&mut self, channel: ChannelId) -> Report {
        let known = self.channels[&channel];
        assert!(known.open, "nothing arrives on a closed channel");
        self.reports += 1;
        Report { channel, life: known.life, nth: self.reports }
    }

    /// What was reported earlier was begun earlier by its sender.
    pub(super) fn check_order(&mut self, Report { channel, life, nth }: Report, tag: u64) {
        if !self.channels[&channel].ordered {
            return;
        }
        let others = (channel, life, 0)..=(channel, life, u64::MAX);
        for (&(.., other), &other_tag) in self.order.range(others) {
            assert_eq!(other < nth, other_tag < tag, "in order, and once");
        }
        self.order.insert((channel, life, nth), tag);
    }

    fn on_stream(
        &mut self,
        id: ChannelId,
        incoming: IncomingKey,
        chunk: ChunkRef,
        (message_len, ends): (u32, bool),
    ) {
        let arrived = self.take_buf(id, chunk);
        if chunk.offset == 0 {
            let report = self.report(id);
            self.check_order(report, arrived);
            let stream = Stream { report, tag: arrived, end: 0 };
            assert!(self.streams.insert(incoming, stream).is_none(), "a stream begins once");
        }
        let stream = self.streams.get_mut(&incoming).expect("a stream begins at its beginning");
        assert_eq!((stream.report.channel, stream.tag, stream.end), (id, arrived, chunk.offset));
        assert_eq!(self.channels[&id].life, stream.report.life, "it ends with its channel");
        stream.end += chunk.length;
        assert_eq!(ends, stream.end == message_len);
        if ends {
            let Stream { report, tag, .. } = self.streams.remove(&incoming).expect("found above");
            assert!(self.delivered.insert((id, report.life, tag)), "delivered once");
        }
    }

    /// What was reached: kinds of events, and counters on a coarse scale.
    pub(crate) fn classes(&self) -> Vec<u64> {
        let s: LinkStats = self.link.stats();
        let counts = [
            s.chunks_sent,
            s.chunks_retransmitted,
            s.control_sent,
            s.acks_sent,
            s.acks_piggybacked,
            s.losses_by_gap,
            s.tail_probes,
            s.rtos,
            s.losses_spurious,
            s.credit_probes,
            s.chunks_received,
            s.chunks_duplicate,
            s.chunks_stale,
            s.headers_bad,
            s.payloads_bad,
            s.violations,
            s.acks_received,
            s.acks_bad,
            s.messages_delivered,
            s.messages_abandoned,
            s.messages_received,
        ];
        let mut classes = vec![self.seen, u64::from(self.down.is_some())];
        // None, a few, many: with so many counters that is thousands of classes.
        classes.extend(counts.map(|count| coarse(count).div_ceil(2).min(2)));
        classes
    }
}
