//! The worker's side of sending: takes what threads posted, channel by channel, and tells them the
//! outcomes.

use crate::egress::{Egress, Line, Outgoing, Standing};
use crate::inbox::{Inbox, Word};
use crate::limits::{BATCH, EGRESS_EXPIRY_NS, EGRESS_QUANTUM, EGRESS_UNDER_WAY_MAX};
use crate::places::Places;
use crate::reply::{Reply, SentMessage};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::Outcome;
use towpath_transport::{Endpoint, LinkId, SendId};
use towpath_transport::{Payload, Rejected, SendOptions, SubmitError};
use towpath_verbs::Device;

/// A message that the link has.
struct Waiting {
    send: SendId,
    reply: Reply,
    /// The caller's own word.
    token: u64,
    egress: Arc<Egress>,
}

/// What was posted, on its way.
pub(crate) struct Outbound {
    inbox: Arc<Inbox>,
    /// By the token that the endpoint knows.
    sends: Places<Waiting>,
    /// Channels that are served next.
    ready: VecDeque<Arc<Egress>>,
    /// Channels whose next message their link had no room for, by [`LinkId::index`].
    stalled: Vec<VecDeque<Arc<Egress>>>,
    /// Links that have stalled channels, and room.
    roomy: Vec<usize>,
    /// Channels that are not served now and have messages with deadlines.
    watched: Vec<Arc<Egress>>,
    /// When the first of these messages is to end.
    due: Time,
}

impl Outbound {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        let (sends, ready, stalled, roomy, watched) = Default::default();
        Self { inbox, sends, ready, stalled, roomy, watched, due: Time::NEVER }
    }

    /// Hands to the links what was posted, a few messages of each channel in turn. Says whether
    /// there was any.
    pub(crate) fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> bool {
        // What comes meanwhile has its turn later.
        let words = self.inbox.words();
        for _ in 0..words {
            let Some((egress, word)) = self.inbox.next_word() else { break };
            self.take_in(endpoint, egress, word);
        }
        while let Some(index) = self.roomy.pop() {
            self.retry(endpoint, index);
        }
        let channels = self.ready.len().min(BATCH);
        for _ in 0..channels {
            let Some(egress) = self.ready.pop_front() else { break };
            self.serve_channel(endpoint, egress);
        }
        let has_ended_some = self.due != Time::NEVER && self.end_those_due(endpoint.now());
        words + channels > 0 || has_ended_some
    }

    /// When there is something to do, unless something comes before.
    pub(crate) fn due(&self) -> Time {
        if self.ready.is_empty() { self.due } else { Time::ZERO }
    }

    fn take_in<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        egress: Arc<Egress>,
        word: Word,
    ) {
        match word {
            Word::Send(mut message) => {
                message.options = message.options.counted_from(|| endpoint.now());
                let mut line = egress.line();
                line.due = line.due.min(message.options.deadline);
                line.posts.push_back(message);
            }
            Word::Leave => egress.line().is_leaving = true,
            Word::Cancel(number) => return self.cancel(endpoint, &egress, number),
            Word::Weigh => {
                if let Some(weight) = egress.take_weight() {
                    // A channel that is gone needs no share.
                    let _ = endpoint.set_weight(egress.link, egress.channel, weight);
                }
                return;
            }
        }
        let mut line = egress.line();
        match line.standing {
            Standing::Idle => self.list(&egress, &mut line),
            Standing::Ready => {}
            Standing::Paused | Standing::Stalled => self.watch(&egress, &mut line),
        }
    }

    /// The channel's turn comes.
    fn list(&mut self, egress: &Arc<Egress>, line: &mut Line) {
        line.standing = Standing::Ready;
        self.ready.push_back(Arc::clone(egress));
    }

    /// The channel is not served now: its deadlines are watched.
    fn watch(&mut self, egress: &Arc<Egress>, line: &mut Line) {
        self.due = self.due.min(line.due);
        if line.due != Time::NEVER && !mem::replace(&mut line.is_watched, true) {
            self.watched.push(Arc::clone(egress));
        }
    }

    fn end_those_due(&mut self, now: Time) -> bool {
        if now < self.due {
            return false;
        }
        let mut due = Time::NEVER;
        self.watched.retain(|egress| {
            let next = egress.abandon(|message| message.options.deadline <= now);
            due = due.min(next);
            egress.line().is_watched = next != Time::NEVER;
            next != Time::NEVER
        });
        // Many deadlines in a row cost a look each millisecond.
        self.due = due.max(now + Nanos(EGRESS_EXPIRY_NS));
        true
    }

    /// Gives up the message whose ticket has that number, wherever it is.
    fn cancel<D: Device<Memory = Region>>(
        &self,
        endpoint: &mut Endpoint<D>,
        egress: &Arc<Egress>,
        number: u64,
    ) {
        let is_it = |reply: &Reply| reply.ticket() == Some(number);
        egress.abandon(|message| is_it(&message.reply));
        let is_on_its_way =
            |sent: &&Waiting| is_it(&sent.reply) && Arc::ptr_eq(&sent.egress, egress);
        if let Some(sent) = self.sends.iter().find(is_on_its_way) {
            // One that has just ended has its outcome.
            let _ = endpoint.cancel(sent.send);
        }
    }

    fn serve_channel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        egress: Arc<Egress>,
    ) {
        for _ in 0..EGRESS_QUANTUM {
            let mut line = egress.line();
            if line.under_way == EGRESS_UNDER_WAY_MAX && !line.posts.is_empty() {
                line.standing = Standing::Paused;
                return self.watch(&egress, &mut line);
            }
            let Some(message) = line.posts.pop_front() else {
                (line.standing, line.due) = (Standing::Idle, Time::NEVER);
                if mem::take(&mut line.is_leaving) {
                    // A channel that is gone is closed already.
                    let _ = endpoint.close_channel(egress.link, egress.channel);
                }
                return;
            };
            drop(line);
            if let Some(message) = self.send(endpoint, &egress, message) {
                return self.stall(&egress, message);
            }
        }
        self.list(&egress, &mut egress.line());
    }

    /// Gives the message back when the link has no room for it now.
    fn send<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        egress: &Arc<Egress>,
        message: Outgoing,
    ) -> Option<Outgoing> {
        let Outgoing { payload, options, reply } = message;
        let here = SendOptions { token: self.sends.next(), ..options };
        match endpoint.send(egress.link, egress.channel, payload, here) {
            Ok(send) => {
                egress.line().under_way += 1;
                let (token, egress) = (options.token, Arc::clone(egress));
                self.sends.put(Waiting { send, reply, token, egress });
            }
            Err(Rejected { payload, error: SubmitError::Full }) => {
                return Some(Outgoing { payload, options, reply });
            }
            Err(rejected) => reply.tell(Err(rejected)),
        }
        egress.free();
        None
    }

    /// The link has no room: the channel waits for some, with this message in front.
    fn stall(&mut self, egress: &Arc<Egress>, message: Outgoing) {
        let index = egress.link.index();
        if self.stalled.len() <= index {
            self.stalled.resize_with(index + 1, VecDeque::new);
        }
        self.stalled[index].push_back(Arc::clone(egress));
        let mut line = egress.line();
        line.due = line.due.min(message.options.deadline);
        line.posts.push_front(message);
        line.standing = Standing::Stalled;
        self.watch(egress, &mut line);
    }

    /// Serves the channels that a link had no room for, in order and for as long as there is room.
    fn retry<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, index: usize) {
        for _ in 0..self.stalled[index].len() {
            let Some(egress) = self.stalled[index].pop_front() else { return };
            self.serve_channel(endpoint, Arc::clone(&egress));
            if egress.line().standing == Standing::Stalled {
                // It stays in front of the others.
                return self.stalled[index].rotate_right(1);
            }
        }
    }

    /// A link has room again, or is down: what waits for room is tried again.
    pub(crate) fn make_room(&mut self, link: LinkId) {
        let index = link.index();
        if self.stalled.get(index).is_some_and(|channels| !channels.is_empty()) {
            self.roomy.push(index);
        }
    }

    /// A message has had its outcome.
    pub(crate) fn on_sent(&mut self, place: u64, outcome: Outcome, payload: Payload) {
        let Some(Waiting { reply, token, egress, .. }) = self.sends.take(place) else { return };
        let mut line = egress.line();
        line.under_way -= 1;
        if line.standing == Standing::Paused && line.under_way <= EGRESS_UNDER_WAY_MAX / 2 {
            self.list(&egress, &mut line);
        }
        drop(line);
        reply.tell(Ok(SentMessage { token, outcome, payload }));
    }

    /// Gives back what waits for its turn: the worker ends. A channel that is paused has messages
    /// under way.
    pub(crate) fn refuse_all(&self) {
        let stalled = self.stalled.iter().flatten();
        let paused = self.sends.iter().map(|sent| &sent.egress);
        self.ready.iter().chain(stalled).chain(paused).for_each(|egress| egress.refuse_all());
    }

    /// Tells whoever still waits that nobody knows what became of their messages, and where the
    /// buffers are that the device was not seen to let go of.
    pub(crate) fn give_up_all(&mut self) {
        for Waiting { reply, token, .. } in self.sends.drain() {
            let payload = Payload::lost();
            reply.tell(Ok(SentMessage { token, outcome: Outcome::Unknown, payload }));
        }
    }
}
