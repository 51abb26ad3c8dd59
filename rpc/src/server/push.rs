//! Messages of a server's own: what a client is told without having asked.

use super::RpcServer;
use crate::error::PushError;
use crate::limits::{PUSH_BODY_BYTES_MAX, PUSHES_MAX, TIMEOUT_MAX};
use crate::parcel::{Fields, Outgoing};
use crate::wire::{Kind, Status};
use towpath_transport::{
    ChannelId, Device, Endpoint, LinkId, Outcome, Region, SendId, SendOptions, Time,
};

/// The token of every push: no place of a request is so high.
const TOKEN: u64 = u64::MAX - 1;

/// The pushes that have no outcome yet: at most [`PUSHES_MAX`] of each channel. All have
/// theirs before the end of their link or channel is told.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    /// By the dense index of their link.
    per_link: Vec<Vec<(SendId, ChannelId)>>,
}

impl Pushes {
    fn of_channel(&self, (link, channel): (LinkId, ChannelId)) -> usize {
        let of = |&&(send, on): &&(SendId, ChannelId)| send.link() == link && on == channel;
        self.per_link.get(link.index()).map_or(0, |pushes| pushes.iter().filter(of).count())
    }

    fn put(&mut self, send: SendId, channel: ChannelId) {
        let index = send.link().index();
        if self.per_link.len() <= index {
            self.per_link.resize_with(index + 1, Vec::new);
        }
        self.per_link[index].push((send, channel));
    }

    fn place(&self, send: SendId) -> Option<usize> {
        let pushes = self.per_link.get(send.link().index())?;
        pushes.iter().position(|&(other, _)| other == send)
    }
}

impl RpcServer {
    /// Tells a client something that it did not ask for, over a channel that it has opened.
    ///
    /// Nobody answers, nothing says whether it arrived, and pushes may overtake each other and
    /// responses: what holds for more than a moment says in its body of when it is. It is abandoned
    /// at its deadline, and 60 s from now at the latest. A channel takes [`PUSHES_MAX`] at a time,
    /// so a client that gives no credit holds no more than these.
    ///
    /// # Errors
    /// [`PushError`]; nothing was sent.
    pub fn push<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        to: (LinkId, ChannelId),
        method: u16,
        body: &[u8],
        deadline: Time,
    ) -> Result<(), PushError> {
        let sent = self.try_push(endpoint, to, method, body, deadline);
        *(match sent {
            Ok(_) => &mut self.stats.pushes,
            Err(_) => &mut self.stats.pushes_refused,
        }) += 1;
        self.pushes.put(sent?, to.1);
        Ok(())
    }

    fn try_push<D: Device<Memory = Region>>(
        &self,
        endpoint: &mut Endpoint<D>,
        to: (LinkId, ChannelId),
        method: u16,
        body: &[u8],
        deadline: Time,
    ) -> Result<SendId, PushError> {
        if body.len() > PUSH_BODY_BYTES_MAX {
            return Err(PushError::TooLong { bytes: body.len(), max: PUSH_BODY_BYTES_MAX });
        }
        let now = endpoint.now();
        if deadline <= now {
            return Err(PushError::Expired);
        }
        if self.pushes.of_channel(to) >= PUSHES_MAX {
            return Err(PushError::Full { max: PUSHES_MAX });
        }
        let out = Outgoing::with_body(endpoint, body)?;
        let fields =
            Fields { kind: Kind::Push, method, status: Status::OK, request: 0, timeout_us: 0 };
        let options = SendOptions::new().token(TOKEN).deadline(deadline.min(now + TIMEOUT_MAX));
        let (link, channel) = to;
        endpoint.send(link, channel, out.finish(fields), options).map_err(|no| no.error.into())
    }

    pub(super) fn is_push(&self, send: SendId, token: u64) -> bool {
        token == TOKEN && self.pushes.place(send).is_some()
    }

    pub(super) fn on_push_sent(&mut self, send: SendId, outcome: Outcome) {
        if let Some(place) = self.pushes.place(send) {
            self.pushes.per_link[send.link().index()].swap_remove(place);
        }
        self.stats.pushes_given_up += u64::from(outcome != Outcome::Delivered);
    }
}
