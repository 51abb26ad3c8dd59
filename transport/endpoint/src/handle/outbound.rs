//! The worker's side of sending: takes what threads posted, channel by channel, and tells them the
//! outcomes.

use super::egress::{Doorbell, Egress, Outgoing, Post, Reply};
use super::link::SentMessage;
use crate::endpoint::Endpoint;
use crate::limits::{BATCH, EGRESS_QUANTUM};
use crate::payload::{Payload, Rejected, SendOptions, SubmitError};
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

/// What was posted, on its way.
pub(super) struct Outbound {
    bell: Arc<Doorbell>,
    /// By the token that the endpoint knows.
    sends: Vec<Option<Waiting>>,
    free: Vec<usize>,
    /// Messages that their link had no room for; their channels are not served meanwhile.
    stalled: VecDeque<(Arc<Egress>, Outgoing)>,
    /// An outcome came since the stalled ones were tried.
    has_room: bool,
}

impl Outbound {
    pub(super) fn new(bell: Arc<Doorbell>) -> Self {
        let (sends, free, stalled) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { bell, sends, free, stalled, has_room: false }
    }

    /// Hands to the links what was posted, a few messages of each channel in turn. Says whether
    /// there was any.
    pub(super) fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> bool {
        if std::mem::take(&mut self.has_room) {
            self.retry(endpoint);
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
        for _ in 0..EGRESS_QUANTUM {
            if !egress.may_send() {
                return;
            }
            match egress.take() {
                Some(Post::Message(message)) => {
                    if let Some(message) = self.send(endpoint, &egress, message) {
                        return self.stalled.push_back((egress, message));
                    }
                }
                // A channel that is gone is closed already.
                Some(Post::Close) => drop(endpoint.close_channel(egress.link, egress.channel)),
                None => return self.bell.through(&egress),
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

    /// Tries again what links had no room for, each once and in turn.
    fn retry<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        for _ in 0..self.stalled.len() {
            let Some((egress, message)) = self.stalled.pop_front() else { break };
            match self.send(endpoint, &egress, message) {
                Some(message) => self.stalled.push_back((egress, message)),
                None => self.bell.again(egress),
            }
        }
    }

    /// A message has had its outcome.
    pub(super) fn on_sent(&mut self, place: u64, outcome: Outcome, payload: Payload) {
        let sent = usize::try_from(place).ok().and_then(|place| self.sends.get_mut(place));
        let Some(waiting) = sent.and_then(Option::take) else { return };
        self.free.push(place as usize);
        self.has_room = true;
        if waiting.egress.on_sent() {
            self.bell.again(waiting.egress);
        }
        let message = SentMessage { token: waiting.token, outcome, payload };
        waiting.reply.tell(Ok(message));
    }
}
