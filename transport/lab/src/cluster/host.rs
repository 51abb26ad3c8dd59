//! One host of a cluster: its endpoint, and the applications on it.

use super::flow::Flow;
use super::pattern::Pattern;
use super::record::{Answer, PathMove, Record};
use super::run::Machine;
use super::{Trouble, TroubleKind};
use towpath_base::Time;
use towpath_memory::Region;
use towpath_proto::{ChannelId, Outcome};
use towpath_transport::{Endpoint, Event, LinkId, SendOptions};
use towpath_verbs::Device;

/// Turns at one instant before the host counts as stuck.
const TURNS_MAX: u32 = 100_000;

/// What hosts share: the flows between them, the bytes, and what went wrong.
pub(super) struct Shared {
    pub(super) flows: Vec<Flow>,
    pub(super) pattern: Pattern,
    pub(super) troubles: Vec<Trouble>,
    pub(super) record: Option<Record>,
}

impl Shared {
    /// The flow of the message that is due next on the channel of `owner`.
    fn due(&self, owner: usize) -> Option<usize> {
        self.flows[owner].line.as_ref().map_or(Some(owner), |line| line.front().copied())
    }

    /// A message of a flow takes its place in the channel.
    fn line_up(&mut self, flow: usize) {
        let owner = self.flows[flow].owner;
        if let Some(line) = &mut self.flows[owner].line {
            line.push_back(flow);
        }
    }

    pub(super) fn report(&mut self, flow: Option<usize>, kind: TroubleKind) {
        // The first few tell all that there is to tell.
        if self.troubles.len() < super::TROUBLES_MAX {
            self.troubles.push(Trouble { flow, kind });
        }
    }
}

/// One host.
pub(super) struct Host<D: Device<Memory = Region>> {
    pub(super) number: usize,
    pub(super) endpoint: Endpoint<D>,
    /// Flows that it sends.
    pub(super) sends: Vec<usize>,
    /// Flows by the channel that is theirs, for each link by its index.
    pub(super) routes: Vec<Vec<(ChannelId, usize)>>,
}

impl<D: Device<Memory = Region>> Host<D> {
    pub(super) fn new(number: usize, endpoint: Endpoint<D>) -> Self {
        Self { number, endpoint, sends: Vec::new(), routes: Vec::new() }
    }

    /// From now on a channel of a link carries this flow.
    pub(super) fn route(&mut self, link: LinkId, channel: ChannelId, flow: usize) {
        if self.routes.len() <= link.index() {
            self.routes.resize_with(link.index() + 1, Vec::new);
        }
        self.routes[link.index()].push((channel, flow));
    }

    /// The flow that a channel belongs to.
    fn owner_of(&self, link: LinkId, channel: ChannelId) -> Option<usize> {
        let routes = self.routes.get(link.index())?;
        routes.iter().find(|&&(of, _)| of == channel).map(|&(_, flow)| flow)
    }

    fn on_event(&mut self, event: Event, shared: &mut Shared) {
        match event {
            Event::Message(message) => {
                let mut at = 0;
                let owner = self.owner_of(message.link(), message.channel());
                if let Some(flow) = owner.and_then(|owner| shared.due(owner)) {
                    let len = message.len();
                    for part in message.parts() {
                        read_piece(shared, flow, at, part, at + part.len() == len);
                        at += part.len();
                    }
                } else {
                    shared.report(None, TroubleKind::Stray { host: self.number });
                }
                self.endpoint.release(message);
            }
            Event::StreamChunk { link, channel, chunk, end, .. } => {
                match self.owner_of(link, channel).and_then(|owner| shared.due(owner)) {
                    Some(flow) => read_piece(shared, flow, chunk.offset() as usize, &chunk, end),
                    None => shared.report(None, TroubleKind::Stray { host: self.number }),
                }
                self.endpoint.release_chunk(chunk);
            }
            Event::Sent { send, token, outcome, .. } => {
                self.on_sent(send.link(), token, outcome, shared);
            }
            Event::ChannelOpened { link, channel, by_peer: false, .. } => {
                if let Some(owner) = self.owner_of(link, channel) {
                    for &flow in &self.sends {
                        let flow = &mut shared.flows[flow];
                        flow.is_open |= flow.owner == owner;
                    }
                }
            }
            Event::ChannelOpened { .. } => {}
            Event::PathChanged { link, path, from, to, signal } => {
                if let Some(record) = &mut shared.record {
                    let (at, host) = (self.endpoint.now(), self.number);
                    record.moves.push(PathMove { at, host, link, path, from, to, signal });
                }
            }
            Event::LinkDown { .. } | Event::ChannelClosed { .. } | Event::StreamAborted { .. } => {
                shared.report(None, TroubleKind::Down { host: self.number });
            }
            _ => {}
        }
    }

    /// The token says when the message was sent, and the low bits which flow it is of.
    fn on_sent(&mut self, link: LinkId, token: u64, outcome: Outcome, shared: &mut Shared) {
        let now = self.endpoint.now();
        let (flow, at) = ((token >> 44) as usize, Time(token & ((1 << 44) - 1)));
        debug_assert_eq!(shared.flows[flow].link, link);
        if outcome != Outcome::Delivered {
            return shared.report(Some(flow), TroubleKind::Outcome { outcome });
        }
        let count = &mut shared.flows[flow].count;
        count.delivered += 1;
        count.latency = count.latency + now.since(at);
        if let Some(record) = &mut shared.record {
            record.answers.push(Answer { flow, sent_at: at, answered_at: now });
        }
    }

    fn send_what_is_due(&mut self, shared: &mut Shared) {
        let now = self.endpoint.now();
        for place in 0..self.sends.len() {
            let number = self.sends[place];
            while shared.flows[number].is_due(now) {
                let Shared { flows, pattern, .. } = &mut *shared;
                let flow = &mut flows[number];
                let len = flow.plan.message_bytes as usize;
                let Ok(mut buf) = self.endpoint.alloc(len) else {
                    flow.on_no_buffer();
                    break;
                };
                let filled = buf.extend(pattern.piece(number, flow.count.sent, 0, len));
                debug_assert!(filled.is_ok(), "the buffer was asked for this length");
                let token = (number as u64) << 44 | now.0;
                let options = SendOptions::new().token(token);
                let sent = self.endpoint.send(flow.link, flow.channel, buf, options);
                if sent.is_err() {
                    shared.report(Some(number), TroubleKind::Refused);
                    break;
                }
                flow.count.sent += 1;
                shared.line_up(number);
            }
        }
    }
}

impl<D: Device<Memory = Region>> Machine for Host<D> {
    type Shared = Shared;

    fn turn(&mut self, shared: &mut Shared) {
        for _ in 0..TURNS_MAX {
            let mut busy = self.endpoint.poll() > 0;
            while let Some(event) = self.endpoint.next_event() {
                busy = true;
                self.on_event(event, shared);
            }
            self.send_what_is_due(shared);
            self.endpoint.flush();
            if !busy {
                return;
            }
        }
        shared.report(None, TroubleKind::Restless { host: self.number });
    }

    fn next_time(&self, now: Time, shared: &Shared) -> Time {
        let times = self.sends.iter().map(|&flow| shared.flows[flow].next_time(now));
        times.fold(self.endpoint.next_timeout(), Time::min)
    }
}

/// A piece of the message that is due next, which `end`s it or not.
fn read_piece(shared: &mut Shared, number: usize, offset: usize, piece: &[u8], end: bool) {
    let Shared { flows, pattern, .. } = &mut *shared;
    let flow = &mut flows[number];
    let len = flow.plan.message_bytes as usize;
    let in_order = offset == flow.read_bytes as usize;
    let fits = offset + piece.len() <= len && end == (offset + piece.len() == len);
    let good =
        in_order && fits && piece == pattern.piece(number, flow.count.read, offset, piece.len());
    flow.count.bytes += piece.len() as u64;
    flow.read_bytes = if end { 0 } else { (offset + piece.len()) as u32 };
    flow.count.read += u64::from(end);
    let owner = flow.owner;
    if let Some(line) = flows[owner].line.as_mut().filter(|_| end) {
        line.pop_front();
    }
    if !good {
        let message = shared.flows[number].count.read;
        shared.report(Some(number), TroubleKind::Content { message, offset });
    }
}
