//! The worker's side of sending: takes what threads posted, channel by channel, and tells them the
//! outcomes.

use crate::doorbell::Doorbell;
use crate::egress::{Egress, Outgoing, Reply};
use crate::limits::{BATCH, CANCELS_AT_A_TIME, EGRESS_EXPIRY_NS, EGRESS_QUANTUM};
use crate::places::Places;
use crate::ticket::SentMessage;
use std::collections::{HashSet, VecDeque};
use std::iter;
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
pub(super) struct Outbound {
    bell: Arc<Doorbell>,
    /// By the token that the endpoint knows.
    sends: Places<Waiting>,
    /// Channels whose next message their link had no room for, by [`LinkId::index`]; they are not
    /// served meanwhile.
    stalled: Vec<VecDeque<Arc<Egress>>>,
    /// Those of them that have room.
    roomy: Vec<usize>,
    /// Channels that are blocked and have messages with deadlines.
    watched: Vec<Arc<Egress>>,
    /// When the first of these messages is to end.
    due: Time,
}

impl Outbound {
    pub(super) fn new(bell: Arc<Doorbell>) -> Self {
        let (sends, stalled, roomy, watched) = Default::default();
        Self { bell, sends, stalled, roomy, watched, due: Time::NEVER }
    }

    pub(super) fn bell(&self) -> &Arc<Doorbell> {
        &self.bell
    }

    /// Hands to the links what was posted, a few messages of each channel in turn. Says whether
    /// there was any.
    pub(super) fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> bool {
        while let Some(index) = self.roomy.pop() {
            self.retry(endpoint, index);
        }
        let channels = self.bell.len().min(BATCH);
        for _ in 0..channels {
            let Some(egress) = self.bell.next() else { break };
            self.serve_channel(endpoint, egress);
        }
        let looked = self.watch_timed(endpoint) | self.give_up_cancelled(endpoint);
        channels > 0 || looked
    }

    /// When a message that waits for its turn is to end.
    pub(super) fn due(&self) -> Time {
        self.due
    }

    /// Looks after the messages that have deadlines on channels that are not served now. Says
    /// whether there was anything to do.
    fn watch_timed<D: Device<Memory = Region>>(&mut self, endpoint: &Endpoint<D>) -> bool {
        let mut is_news = false;
        while let Some(egress) = self.bell.next_timed() {
            is_news = true;
            egress.set_may_expire(true);
            self.watch(endpoint, egress);
        }
        if self.due == Time::NEVER {
            return is_news;
        }
        let now = endpoint.now();
        if now < self.due {
            return is_news;
        }
        let mut due = Time::NEVER;
        self.watched.retain(|egress| {
            let next = egress.sift(|post| post.options.deadline > now, Outgoing::abandon);
            due = due.min(next);
            egress.set_watched(next != Time::NEVER);
            next != Time::NEVER
        });
        // Many deadlines in a row cost a look each millisecond.
        self.due = due.max(now + Nanos(EGRESS_EXPIRY_NS));
        true
    }

    /// Watches the deadlines of a channel, if it has any and is not served now.
    fn watch<D: Device<Memory = Region>>(&mut self, endpoint: &Endpoint<D>, egress: Arc<Egress>) {
        if !egress.may_expire() || !egress.is_blocked() {
            return;
        }
        // A message that was put back is in the line already.
        let put_back = egress.next_deadline();
        self.due = self.due.min(put_back).min(egress.line_up(endpoint.now()));
        if !egress.set_watched(true) {
            self.watched.push(egress);
        }
    }

    /// Gives up messages that were cancelled, wherever they are.
    fn give_up_cancelled<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
    ) -> bool {
        let Some(first) = self.bell.next_cancelled() else { return false };
        let mut wanted = HashSet::new();
        let mut channels: Vec<Arc<Egress>> = Vec::new();
        let rest = iter::from_fn(|| self.bell.next_cancelled());
        for (egress, number) in iter::once(first).chain(rest).take(CANCELS_AT_A_TIME) {
            if wanted.insert((Arc::as_ptr(&egress), number))
                && !channels.iter().any(|channel| Arc::ptr_eq(channel, &egress))
            {
                channels.push(egress);
            }
        }
        let is_wanted = |egress: &Arc<Egress>, reply: &Reply| {
            reply.ticket().is_some_and(|number| wanted.contains(&(Arc::as_ptr(egress), number)))
        };
        for egress in &channels {
            let stays = |post: &Outgoing| !is_wanted(egress, &post.reply);
            egress.line_up(endpoint.now());
            egress.sift(stays, Outgoing::abandon);
        }
        for waiting in self.sends.iter() {
            if is_wanted(&waiting.egress, &waiting.reply) {
                // One that has just ended has its outcome.
                let _ = endpoint.cancel(waiting.send);
            }
        }
        true
    }

    fn serve_channel<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        egress: Arc<Egress>,
    ) {
        if let Some(weight) = egress.take_weight() {
            // A channel that is gone needs no share.
            let _ = endpoint.set_weight(egress.link, egress.channel, weight);
        }
        for _ in 0..EGRESS_QUANTUM {
            if !egress.may_send() {
                return self.watch(endpoint, egress);
            }
            let Some(message) = egress.take() else {
                if egress.take_leave() {
                    // A channel that is gone is closed already.
                    let _ = endpoint.close_channel(egress.link, egress.channel);
                }
                egress.set_may_expire(false);
                return self.bell.through(&egress);
            };
            if let Some(message) = self.send(endpoint, &egress, message) {
                return self.stall(endpoint, egress, message);
            }
        }
        self.bell.again(egress);
    }

    /// Gives the message back when the link has no room for it now.
    fn send<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        egress: &Arc<Egress>,
        message: Outgoing,
    ) -> Option<Outgoing> {
        let Outgoing { payload, mut options, reply } = message;
        options = options.counted_from(|| endpoint.now());
        let here = SendOptions { token: self.sends.next(), ..options };
        match endpoint.send(egress.link, egress.channel, payload, here) {
            Ok(send) => {
                egress.on_taken();
                let egress = Arc::clone(egress);
                self.sends.put(Waiting { send, reply, token: options.token, egress });
                None
            }
            Err(Rejected { payload, error: SubmitError::Full }) => {
                Some(Outgoing { payload, options, reply })
            }
            Err(rejected) => {
                reply.tell(Err(rejected));
                None
            }
        }
    }

    fn stall<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &Endpoint<D>,
        egress: Arc<Egress>,
        message: Outgoing,
    ) {
        let index = egress.link.index();
        if self.stalled.len() <= index {
            self.stalled.resize_with(index + 1, VecDeque::new);
        }
        egress.put_back(message);
        egress.set_stalled(true);
        self.stalled[index].push_back(Arc::clone(&egress));
        self.watch(endpoint, egress);
    }

    /// Tries again what a link had no room for, in order and for as long as there is room.
    fn retry<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, index: usize) {
        while let Some(egress) = self.stalled[index].pop_front() {
            // It may have been given up meanwhile.
            if let Some(message) = egress.take()
                && let Some(message) = self.send(endpoint, &egress, message)
            {
                egress.put_back(message);
                return self.stalled[index].push_front(egress);
            }
            egress.set_stalled(false);
            self.bell.again(egress);
        }
    }

    /// Gives back what waits for room, refused: the worker ends.
    pub(super) fn refuse_all(&mut self) {
        for egress in self.stalled.iter_mut().flat_map(|channels| channels.drain(..)) {
            egress.refuse_all();
        }
    }

    /// Tells whoever still waits that nobody knows what became of their messages, and where the
    /// buffers are that the device was not seen to let go of.
    pub(super) fn give_up_all(&mut self) {
        for Waiting { reply, token, .. } in self.sends.drain() {
            let payload = Payload::lost();
            reply.tell(Ok(SentMessage { token, outcome: Outcome::Unknown, payload }));
        }
    }

    /// A link has room again, or is down: what waits for room is tried again.
    pub(super) fn make_room(&mut self, link: LinkId) {
        let index = link.index();
        if self.stalled.get(index).is_some_and(|channels| !channels.is_empty()) {
            self.roomy.push(index);
        }
    }

    /// A message has had its outcome.
    pub(super) fn on_sent(&mut self, place: u64, outcome: Outcome, payload: Payload) {
        let Some(waiting) = self.sends.take(place) else { return };
        if waiting.egress.on_sent() {
            self.bell.again(waiting.egress);
        }
        let message = SentMessage { token: waiting.token, outcome, payload };
        waiting.reply.tell(Ok(message));
    }
}
