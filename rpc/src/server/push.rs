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
        let out = Outgoing::with_body(&endpoint.buffers_of(to.0), body)?;
        let fields =
            Fields { kind: Kind::Push, method, status: Status::OK, request: 0, timeout_us: 0 };
        let options = SendOptions::new().token(TOKEN).deadline(deadline.min(now + TIMEOUT_MAX));
        let (link, channel) = to;
        endpoint.send(link, channel, out.finish(fields), options).map_err(|no| no.error.into())
    }

    /// A message has its outcome; false when it was no push.
    pub(super) fn on_push_sent(&mut self, send: SendId, token: u64, outcome: Outcome) -> bool {
        let is_push = token == TOKEN && self.pushes.leave(send);
        self.stats.pushes_given_up += u64::from(is_push && outcome != Outcome::Delivered);
        is_push
    }
}
