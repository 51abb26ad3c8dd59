//! The worker's side of sending: takes what threads posted, channel by channel, and tells them the
//! outcomes.

use super::egress::{Doorbell, Egress, Outgoing, Reply};
use super::link::SentMessage;
use crate::endpoint::Endpoint;
use crate::limits::{BATCH, EGRESS_QUANTUM};
use crate::payload::{Payload, Rejected, SendOptions, SubmitError};
use crate::sends::Segments;
use std::collections::VecDeque;
use std::sync::Arc;
use towpath_memory::Region;
use towpath_proto::Outcome;
use towpath_verbs::Device;

/// A message that the link has.
struct Waiting {
    reply: Reply,
    /// The caller's own word.
    token: u64,
    egress: Arc<Egress>,
}

/// Messages that one link had no room for, each with its channel, which is not served meanwhile.
#[derive(Default)]
struct Line {
    messages: VecDeque<(Arc<Egress>, Outgoing)>,
    /// A message of the link has ended since it had no room.
    has_room: bool,
}

/// What was posted, on its way.
pub(super) struct Outbound {
    bell: Arc<Doorbell>,
    /// By the token that the endpoint knows.
    sends: Vec<Option<Waiting>>,
    free: Vec<usize>,
    /// By [`LinkId::index`](crate::LinkId::index).
    stalled: Vec<Line>,
    /// The lines that have room.
    roomy: Vec<usize>,
}

impl Outbound {
    pub(super) fn new(bell: Arc<Doorbell>) -> Self {
        let (sends, free, stalled, roomy) = Default::default();
        Self { bell, sends, free, stalled, roomy }
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
        channels > 0
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
                return;
            }
            let Some(message) = egress.take() else {
                if egress.take_leave() {
                    // A channel that is gone is closed already.
                    let _ = endpoint.close_channel(egress.link, egress.channel);
                }
                return self.bell.through(&egress);
            };
            if let Some(message) = self.send(endpoint, &egress, message) {
                return self.stall(egress, message);
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
        let Outgoing { payload, options, reply } = message;
        let place = self.free.pop().unwrap_or_else(|| {
            self.sends.push(None);
            self.sends.len() - 1
        });
        let here = SendOptions { token: place as u64, ..options };
        match endpoint.send(egress.link, egress.channel, payload, here) {
            Ok(_) => {
                egress.on_taken();
                let egress = Arc::clone(egress);
                self.sends[place] = Some(Waiting { reply, token: options.token, egress });
                None
            }
            Err(Rejected { payload, error: SubmitError::Full }) => {
                self.free.push(place);
                Some(Outgoing { payload, options, reply })
            }
            Err(rejected) => {
                self.free.push(place);
                reply.tell(Err(rejected));
                None
            }
        }
    }

    fn stall(&mut self, egress: Arc<Egress>, message: Outgoing) {
        let index = egress.link.index();
        if self.stalled.len() <= index {
            self.stalled.resize_with(index + 1, Line::default);
        }
        self.stalled[index].messages.push_back((egress, message));
    }

    /// Tries again what a link had no room for, in order and for as long as there is room.
    fn retry<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, index: usize) {
        self.stalled[index].has_room = false;
        while let Some((egress, message)) = self.stalled[index].messages.pop_front() {
            if let Some(message) = self.send(endpoint, &egress, message) {
                return self.stalled[index].messages.push_front((egress, message));
            }
            self.bell.again(egress);
        }
    }

    /// Gives back what waits for room, refused: the worker ends.
    pub(super) fn refuse_all(&mut self) {
        for (_, message) in self.stalled.iter_mut().flat_map(|line| line.messages.drain(..)) {
            message.refuse();
        }
    }

    /// Tells whoever still waits that nobody knows what became of their messages, and where the
    /// buffers are that the device was not seen to let go of.
    pub(super) fn give_up_all(&mut self) {
        for Waiting { reply, token, .. } in self.sends.drain(..).flatten() {
            let payload = Payload { segments: Segments::new() };
            reply.tell(Ok(SentMessage { token, outcome: Outcome::Unknown, payload }));
        }
    }

    fn make_room(&mut self, index: usize) {
        if let Some(line) = self.stalled.get_mut(index)
            && !line.messages.is_empty()
            && !std::mem::replace(&mut line.has_room, true)
        {
            self.roomy.push(index);
        }
    }

    /// A message has had its outcome.
    pub(super) fn on_sent(&mut self, place: u64, outcome: Outcome, payload: Payload) {
        let sent = usize::try_from(place).ok().and_then(|place| self.sends.get_mut(place));
        let Some(waiting) = sent.and_then(Option::take) else { return };
        self.free.push(place as usize);
        self.make_room(waiting.egress.link.index());
        if waiting.egress.on_sent() {
            self.bell.again(waiting.egress);
        }
        let message = SentMessage { token: waiting.token, outcome, payload };
        waiting.reply.tell(Ok(message));
    }
}
