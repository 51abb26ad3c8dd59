//! The application at one end: it sends a script of messages, reads what comes, tells the oracle
//! of both, and now and then stops reading or changes its mind.

mod log;
mod watch;

pub use log::GiveUpLog;

use crate::content::{Content, Fingerprint, MessageKey};
use crate::oracle::{FlowId, Oracle, Violation};
use std::collections::{BTreeMap, VecDeque};
use towpath_base::{Nanos, Prng, Time};
use towpath_memory::{Buf, Region};
use towpath_proto::{ChannelId, DownReason};
use towpath_transport::{
    Endpoint, Event, LinkId, Message, Payload, SendId, SendOptions, StreamId, SubmitError,
};
use towpath_verbs::Device;
use watch::{Draft, Received, Shelved, Watch};

/// A message that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Not before this.
    pub at: Time,
    /// On which of the open channels, modulo their number.
    pub channel: usize,
    /// Its bytes, at least one.
    pub len: u32,
    /// In how many segments, 1 to 4; short messages have fewer.
    pub segments: u32,
    /// Cancelled this long after it was taken.
    pub cancel_after: Option<Nanos>,
    /// Given up by itself this long after it was taken.
    pub deadline_after: Option<Nanos>,
}

/// A message being sent.
#[derive(Clone, Copy)]
struct Out {
    flow: FlowId,
    number: u64,
    send: SendId,
    cancel_at: Time,
    /// When it was or will be given up, if it has no outcome until then.
    given_up_at: Time,
}

/// A message being read in pieces.
struct OpenStream {
    link: LinkId,
    stream: StreamId,
    fingerprint: Fingerprint,
    read: u32,
}

/// An open channel.
#[derive(Clone, Copy)]
struct Open {
    id: ChannelId,
    ordered: bool,
}

/// The application of one host.
pub struct App {
    host: u8,
    seed: u64,
    /// Links of earlier lives too: events of them may still come.
    lives: Vec<(LinkId, u32)>,
    channels: Vec<Open>,
    script: VecDeque<Planned>,
    depth: usize,
    out: BTreeMap<u64, Out>,
    next_token: u64,
    streams: Vec<OpenStream>,
    shelf: Vec<Shelved>,
    watch: Option<Watch>,
    drafts: VecDeque<Draft>,
    reads_again_at: Time,
    down: Vec<(u32, DownReason)>,
    /// Channels are being closed on purpose.
    closing: bool,
    give_ups: GiveUpLog,
}

impl App {
    /// That of host 0 or 1, in the run `seed`.
    #[must_use]
    pub fn new(host: u8, seed: u64) -> Self {
        Self {
            host,
            seed,
            lives: Vec::new(),
            channels: Vec::new(),
            script: VecDeque::new(),
            depth: 1,
            out: BTreeMap::new(),
            next_token: 0,
            streams: Vec::new(),
            shelf: Vec::new(),
            watch: None,
            drafts: VecDeque::new(),
            reads_again_at: Time::ZERO,
            down: Vec::new(),
            closing: false,
            give_ups: GiveUpLog::default(),
        }
    }

    /// From now on it uses `link`, which is life `life` of the link between the hosts.
    pub fn begin_life(&mut self, link: LinkId, life: u32) {
        self.lives.push((link, life));
        self.channels.clear();
        self.script.clear();
        self.drafts.clear();
        self.closing = false;
    }

    /// From now on it watches its buffers: it fills some before it sends them and lets them lie,
    /// keeps what it received, each for up to `span_max`, and then looks whether any byte changed.
    pub fn watch(&mut self, span_max: Nanos, seed: u64) {
        self.watch = Some(Watch { span_max, prng: Prng::new(seed) });
    }

    /// Adds to what it sends, with at most `depth` messages under way.
    pub fn perform(&mut self, script: impl IntoIterator<Item = Planned>, depth: usize) {
        self.script.extend(script);
        self.depth = depth.max(1);
    }

    /// It keeps what it receives until `time`.
    pub fn stop_reading_until(&mut self, time: Time) {
        self.reads_again_at = self.reads_again_at.max(time);
    }

    /// Channels that close from now on were meant to.
    pub fn expect_closing(&mut self) {
        self.closing = true;
    }

    /// Whether everything of the script was sent, and has had its outcome.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.script.is_empty() && self.drafts.is_empty() && self.out.is_empty()
    }

    /// Messages of the script that were not sent yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.script.len() + self.drafts.len()
    }

    /// Messages that have no outcome yet.
    #[must_use]
    pub fn in_doubt(&self) -> usize {
        self.out.len()
    }

    /// Drops what was not sent yet.
    pub fn forget_script(&mut self) {
        self.script.clear();
        self.drafts.clear();
    }

    /// Whether it holds nothing that it received.
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.shelf.is_empty()
    }

    /// What became of the messages that it gave up; it starts anew.
    pub fn take_give_ups(&mut self) -> GiveUpLog {
        core::mem::take(&mut self.give_ups)
    }

    /// The open channels of this life.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = ChannelId> {
        self.channels.iter().map(|open| open.id)
    }

    /// Why the link of a life went down, once it has.
    #[must_use]
    pub fn down(&self, life: u32) -> Option<DownReason> {
        self.down.iter().find(|&&(of, _)| of == life).map(|&(_, reason)| reason)
    }

    /// When after `now` it does something by itself. What is due but cannot be done yet waits for
    /// something else to happen.
    #[must_use]
    pub fn next_time(&self, now: Time) -> Time {
        let cancel = self.out.values().map(|out| out.cancel_at).min().unwrap_or(Time::NEVER);
        let send = match self.script.front() {
            Some(planned) if self.out.len() < self.depth && planned.at > now => planned.at,
            _ => Time::NEVER,
        };
        let lies = match self.drafts.front() {
            Some(draft) if self.out.len() < self.depth && draft.until > now => draft.until,
            _ => Time::NEVER,
        };
        let looks = self.shelf.iter().map(|shelved| shelved.until).min();
        let read = looks.map_or(Time::NEVER, |looks| looks.max(self.reads_again_at));
        cancel.min(send).min(lies).min(read)
    }

    fn life_of(&self, link: LinkId) -> Option<u32> {
        self.lives.iter().find(|&&(of, _)| of == link).map(|&(_, life)| life)
    }

    /// What the peer sends on a channel.
    fn incoming(&self, link: LinkId, channel: ChannelId) -> Option<FlowId> {
        Some(FlowId { life: self.life_of(link)?, from: 1 - self.host, channel: channel.0 })
    }

    /// Takes in one event of `endpoint`.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
        oracle: &mut Oracle,
    ) {
        match event {
            Event::Message(message) => self.read(endpoint, message, oracle),
            Event::StreamChunk { link, channel, stream, chunk, message_len, end } => {
                self.read_piece(link, stream, &chunk);
                if end && let Some(read) = self.end_stream(link, stream) {
                    let whole = if read.read == message_len { read.fingerprint.value() } else { 0 };
                    if let Some(flow) = self.incoming(link, channel) {
                        oracle.delivered(flow, message_len, whole);
                    }
                }
                self.shelve(endpoint, Received::Chunk(chunk));
            }
            Event::StreamAborted { link, stream, .. } => {
                self.give_ups.streams_aborted += 1;
                self.end_stream(link, stream);
            }
            Event::ChannelOpened { link, channel, ordered, .. }
                if self.lives.last().is_some_and(|&(current, _)| current == link) =>
            {
                self.channels.push(Open { id: channel, ordered });
                self.channels.sort_unstable_by_key(|open| open.id);
            }
            Event::ChannelClosed { channel, .. } => {
                self.channels.retain(|open| open.id != channel);
                if !self.closing {
                    let (host, channel) = (usize::from(self.host), channel.0);
                    oracle.report(Violation::ChannelClosed { host, channel });
                }
            }
            Event::Sent { token, outcome, .. } => {
                if let Some(out) = self.out.remove(&token) {
                    let now = endpoint.now();
                    if out.given_up_at <= now {
                        self.give_ups.note(out.given_up_at, now, outcome);
                    }
                    oracle.outcome(out.flow, out.number, outcome);
                }
            }
            Event::LinkDown { link, reason } => {
                self.down.extend(self.life_of(link).map(|life| (life, reason)));
                self.streams.retain(|stream| stream.link != link);
            }
            _ => {}
        }
    }

    fn read<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        message: Message,
        oracle: &mut Oracle,
    ) {
        let mut whole = Fingerprint::new();
        message.parts().for_each(|part| whole.update(part));
        if let Some(flow) = self.incoming(message.link(), message.channel()) {
            oracle.delivered(flow, message.len() as u32, whole.value());
        }
        self.shelve(endpoint, Received::Message(message));
    }

    fn read_piece(&mut self, link: LinkId, stream: StreamId, piece: &[u8]) {
        let is_it = |known: &OpenStream| known.link == link && known.stream == stream;
        let place = self.streams.iter().position(is_it).unwrap_or_else(|| {
            self.streams.push(OpenStream {
                link,
                stream,
                fingerprint: Fingerprint::new(),
                read: 0,
            });
            self.streams.len() - 1
        });
        let known = &mut self.streams[place];
        known.fingerprint.update(piece);
        known.read += piece.len() as u32;
    }

    fn end_stream(&mut self, link: LinkId, stream: StreamId) -> Option<OpenStream> {
        let is_it = |known: &OpenStream| known.link == link && known.stream == stream;
        let place = self.streams.iter().position(is_it)?;
        Some(self.streams.swap_remove(place))
    }

    fn content(&self, flow: FlowId, number: u64) -> Content {
        let FlowId { life, from, channel } = flow;
        Content::new(MessageKey { seed: self.seed, life, from, channel, number })
    }

    /// The channel that a planned message goes to now.
    fn open(&self, planned: &Planned) -> Option<(Open, FlowId)> {
        let &(_, life) = self.lives.last()?;
        let open = *self.channels.get(planned.channel % self.channels.len().max(1))?;
        Some((open, FlowId { life, from: self.host, channel: open.id.0 }))
    }

    /// Does what is due by itself: reads again, changes its mind, sends.
    pub fn act<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        oracle: &mut Oracle,
    ) {
        let now = endpoint.now();
        self.read_again(endpoint, oracle);
        for out in self.out.values_mut().filter(|out| out.cancel_at <= now) {
            out.cancel_at = Time::NEVER;
            out.given_up_at = out.given_up_at.min(now);
            // A message that has just ended keeps its outcome.
            let _ = endpoint.cancel(out.send);
        }
        self.draft(endpoint, oracle);
        self.send_drafts(endpoint, oracle);
        while self.watch.is_none()
            && self.out.len() < self.depth
            && let Some(&planned) = self.script.front().filter(|planned| planned.at <= now)
            && self.send(endpoint, &planned, oracle)
        {
            self.script.pop_front();
        }
    }

    /// False when it cannot be sent now.
    fn send<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        planned: &Planned,
        oracle: &mut Oracle,
    ) -> bool {
        let Some((open, flow)) = self.open(planned) else { return false };
        let content = self.content(flow, oracle.next_number(flow));
        let Some(made) = make(endpoint, planned, content) else { return false };
        self.submit(endpoint, planned, (open, flow), made, oracle)
    }

    /// False when the channel does not take it now.
    fn submit<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        planned: &Planned,
        (open, flow): (Open, FlowId),
        (payload, fingerprint): (Payload, u64),
        oracle: &mut Oracle,
    ) -> bool {
        let Some(&(link, _)) = self.lives.last() else { return false };
        let number = oracle.next_number(flow);
        let now = endpoint.now();
        let deadline = planned.deadline_after.map_or(Time::NEVER, |span| now + span);
        let options = SendOptions::new().token(self.next_token).deadline(deadline);
        match endpoint.send(link, open.id, payload, options) {
            Ok(send) => {
                oracle.sent(flow, open.ordered, planned.len, fingerprint);
                let cancel_at = planned.cancel_after.map_or(Time::NEVER, |span| now + span);
                let given_up_at = deadline;
                let out = Out { flow, number, send, cancel_at, given_up_at };
                self.out.insert(self.next_token, out);
                self.next_token += 1;
                true
            }
            // The link is leaving: what was not sent never will be.
            Err(rejected) => {
                matches!(rejected.error, SubmitError::NoSuchLink | SubmitError::NotOpen(_))
            }
        }
    }
}

/// The message in its segments, and its fingerprint; `None` while the pools lack the buffers.
fn make<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    planned: &Planned,
    content: Content,
) -> Option<(Payload, u64)> {
    let len = planned.len as usize;
    let each = len.div_ceil(planned.segments.clamp(1, 4) as usize).max(1);
    let sizes = (0..len).step_by(each).map(|offset| (offset, each.min(len - offset)));
    let segments: Result<Vec<Buf>, _> =
        sizes.clone().map(|(_, size)| endpoint.alloc(size)).collect();
    let mut fingerprint = Fingerprint::new();
    let mut payload: Option<Payload> = None;
    for (mut segment, (offset, size)) in segments.ok()?.into_iter().zip(sizes) {
        segment.set_len(size).ok()?;
        content.fill(offset as u64, &mut segment);
        fingerprint.update(&segment);
        match &mut payload {
            None => payload = Some(Payload::new(segment)),
            Some(payload) => payload.push(segment).ok()?,
        }
    }
    Some((payload?, fingerprint.value()))
}
