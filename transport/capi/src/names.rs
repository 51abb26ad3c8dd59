//! What the caller of an endpoint holds, by number, and events as C has them.

use crate::fault::Fault;
use crate::ffi::{
    tow_buf, tow_carrier, tow_carrier_reason, tow_close_reason, tow_denied, tow_down_reason,
    tow_event, tow_event_kind, tow_link, tow_message, tow_outcome, tow_rights, tow_status,
};
use crate::table::Table;
use std::collections::HashMap;
use towpath_transport::{
    Buf, Carrier, CarrierReason, CloseReason, ConnectId, Denied, DownReason, Event, Grant, LinkId,
    Message, OpOutcome, Outcome, Payload, Rights, SendId,
};

/// A message that came, as its holder has it.
pub(crate) enum Held {
    Message(Message),
    /// It was to be sent on, and that was refused.
    Payload(Payload),
}

impl Held {
    /// Its bytes, piece by piece.
    pub(crate) fn parts(&self) -> Vec<&[u8]> {
        match self {
            Self::Message(message) => message.parts().collect(),
            Self::Payload(payload) => payload.segments().iter().map(|part| &part[..]).collect(),
        }
    }
}

/// A message that is being sent.
pub(crate) struct Sending {
    pub(crate) token: u64,
    /// None until the endpoint has taken it.
    pub(crate) send: Option<SendId>,
}

/// A one-sided operation under way.
pub(crate) struct Operation {
    pub(crate) token: u64,
    /// Its buffer is for the caller, if it was executed.
    pub(crate) is_read: bool,
}

/// What the caller of an endpoint holds.
#[derive(Default)]
pub(crate) struct Names {
    links: Table<LinkId>,
    /// Numbers of links, by the endpoint's own dense index.
    numbers: Vec<u64>,
    pub(crate) messages: Table<Held>,
    pub(crate) bufs: Table<Buf>,
    pub(crate) sends: Table<Sending>,
    pub(crate) ops: Table<Operation>,
    /// Tokens of connections that are being made: as many as the endpoint allows.
    pub(crate) dials: HashMap<ConnectId, u64>,
}

impl Names {
    pub(crate) fn link(&mut self, link: tow_link) -> Result<LinkId, Fault> {
        self.links.at(link.id).copied().ok_or_else(|| Fault::stale("link"))
    }

    /// Puts what an event is in C into an empty one; false for those that no program has to know
    /// of.
    ///
    /// # Errors
    /// The event tells of a fault, which has a text.
    #[inline]
    pub(crate) fn translate(&mut self, event: Event, out: &mut tow_event) -> Result<bool, Fault> {
        match event {
            Event::Message(message) => self.tell_message(message, out),
            Event::Sent { send, token, outcome, payload } => {
                drop(payload);
                out.kind = tow_event_kind::TOW_EVENT_SENT;
                out.link = self.number(send.link());
                out.token = self.sends.remove(token).map_or(0, |sending| sending.token);
                out.outcome = match outcome {
                    Outcome::Delivered => tow_outcome::TOW_DELIVERED,
                    Outcome::Abandoned => tow_outcome::TOW_ABANDONED,
                    Outcome::Unknown => tow_outcome::TOW_UNKNOWN,
                };
            }
            Event::Connected { connect, link, .. } => {
                out.kind = tow_event_kind::TOW_EVENT_CONNECTED;
                out.token = self.dials.remove(&connect).unwrap_or_default();
                out.link = self.number_new(link);
            }
            Event::ConnectFailed { connect, error } => {
                out.kind = tow_event_kind::TOW_EVENT_CONNECT_FAILED;
                out.token = self.dials.remove(&connect).unwrap_or_default();
                return Err(told_of(Fault::from(&error), out));
            }
            Event::Accepted { link, .. } => {
                out.kind = tow_event_kind::TOW_EVENT_ACCEPTED;
                out.link = self.number_new(link);
            }
            Event::AcceptFailed { from, error } => {
                out.kind = tow_event_kind::TOW_EVENT_ACCEPT_FAILED;
                let text = format!("{from} was turned away: {error}");
                return Err(told_of(Fault::new(tow_status::TOW_E_REFUSED, text), out));
            }
            event => return Ok(self.translate_more(event, out)),
        }
        Ok(true)
    }

    fn translate_more(&mut self, event: Event, out: &mut tow_event) -> bool {
        match event {
            Event::ChannelOpened { link, channel, ordered, by_peer } => {
                out.kind = tow_event_kind::TOW_EVENT_CHANNEL_OPENED;
                (out.link, out.channel.id) = (self.number(link), channel.0);
                (out.ordered, out.by_peer) = (ordered, by_peer);
            }
            Event::ChannelClosed { link, channel, reason } => {
                out.kind = tow_event_kind::TOW_EVENT_CHANNEL_CLOSED;
                (out.link, out.channel.id) = (self.number(link), channel.0);
                out.reason = match reason {
                    CloseReason::Local => tow_close_reason::TOW_CLOSED_HERE,
                    CloseReason::Peer => tow_close_reason::TOW_CLOSED_BY_PEER,
                    CloseReason::Refused(_) => tow_close_reason::TOW_CLOSED_REFUSED,
                } as u32;
            }
            Event::Writable { link } => {
                out.kind = tow_event_kind::TOW_EVENT_WRITABLE;
                out.link = self.number(link);
            }
            Event::BufferFree { bytes } => {
                out.kind = tow_event_kind::TOW_EVENT_BUFFER_FREE;
                out.len = bytes;
            }
            Event::Granted { link, grant: Grant { id, byte_len, rights } } => {
                out.kind = tow_event_kind::TOW_EVENT_GRANTED;
                (out.link, out.grant.id) = (self.number(link), id.0);
                (out.len, out.rights) = (byte_len as usize, bits(rights));
            }
            Event::Revoked { link, grant } => {
                out.kind = tow_event_kind::TOW_EVENT_REVOKED;
                (out.link, out.grant.id) = (self.number(link), grant.0);
            }
            Event::OpDone { op, token, outcome, word, buf } => {
                out.kind = tow_event_kind::TOW_EVENT_OP_DONE;
                out.link = self.number(op.link());
                let Some(Operation { token, is_read }) = self.ops.remove(token) else {
                    return false;
                };
                out.token = token;
                (out.has_word, out.word) = (word.is_some(), word.unwrap_or_default());
                // Of a write it goes back to its pool.
                self.tell_op(outcome, buf.filter(|_| is_read), out);
            }
            Event::LinkDown { link, reason } => {
                out.kind = tow_event_kind::TOW_EVENT_LINK_DOWN;
                out.link = self.number(link);
                self.links.remove(out.link.id);
                out.reason = match reason {
                    DownReason::Local => tow_down_reason::TOW_DOWN_HERE,
                    DownReason::Goodbye => tow_down_reason::TOW_DOWN_GOODBYE,
                    DownReason::Silent(_) => tow_down_reason::TOW_DOWN_SILENT,
                    DownReason::PeerGone => tow_down_reason::TOW_DOWN_PEER_GONE,
                    DownReason::PathsFailed => tow_down_reason::TOW_DOWN_PATHS_FAILED,
                    DownReason::Untrusted => tow_down_reason::TOW_DOWN_UNTRUSTED,
                    DownReason::KeysUsedUp => tow_down_reason::TOW_DOWN_KEYS_USED_UP,
                } as u32;
            }
            Event::CarrierChanged { link, to, why, .. } => {
                out.kind = tow_event_kind::TOW_EVENT_CARRIER;
                out.link = self.number(link);
                (out.carrier, out.reason) = (carrier_code(to), carrier_reason(why) as u32);
            }
            // Streams are off; paths and the device's own events need no answer.
            _ => return false,
        }
        true
    }

    fn tell_message(&mut self, message: Message, out: &mut tow_event) {
        out.kind = tow_event_kind::TOW_EVENT_MESSAGE;
        out.link = self.number(message.link());
        out.channel.id = message.channel().0;
        out.len = message.len();
        // It does not move: the bytes are in the receive buffer, wherever the message is.
        out.data = message.as_slice().map_or(std::ptr::null(), <[u8]>::as_ptr);
        out.message = tow_message { id: self.messages.insert(Held::Message(message)) };
    }

    fn tell_op(&mut self, outcome: OpOutcome, buf: Option<Buf>, out: &mut tow_event) {
        out.outcome = match outcome {
            OpOutcome::Executed => tow_outcome::TOW_EXECUTED,
            OpOutcome::Denied(_) => tow_outcome::TOW_DENIED,
            OpOutcome::NotExecuted => tow_outcome::TOW_NOT_EXECUTED,
            OpOutcome::Unknown => tow_outcome::TOW_UNKNOWN,
        };
        if let OpOutcome::Denied(why) = outcome {
            out.reason = match why {
                Denied::Revoked => tow_denied::TOW_DENIED_REVOKED,
                Denied::Device => tow_denied::TOW_DENIED_DEVICE,
            } as u32;
        }
        if let Some(buf) = buf.filter(|_| outcome == OpOutcome::Executed) {
            (out.data, out.len) = (buf.as_ptr(), buf.len());
            out.buf = tow_buf { id: self.bufs.insert(buf) };
        }
    }

    /// A link that is just up.
    fn number_new(&mut self, link: LinkId) -> tow_link {
        let id = self.links.insert(link);
        if self.numbers.len() <= link.index() {
            self.numbers.resize(link.index() + 1, 0);
        }
        self.numbers[link.index()] = id;
        tow_link { id }
    }

    fn number(&self, link: LinkId) -> tow_link {
        tow_link { id: self.numbers.get(link.index()).copied().unwrap_or_default() }
    }
}

pub(crate) fn carrier_code(carrier: Carrier) -> u32 {
    (match carrier {
        Carrier::Uc => tow_carrier::TOW_CARRIER_UC,
        Carrier::Rc => tow_carrier::TOW_CARRIER_RC,
        Carrier::Tcp => tow_carrier::TOW_CARRIER_TCP,
    }) as u32
}

fn carrier_reason(why: CarrierReason) -> tow_carrier_reason {
    match why {
        CarrierReason::Silent => tow_carrier_reason::TOW_CARRIER_SILENT,
        CarrierReason::Lossy => tow_carrier_reason::TOW_CARRIER_LOSSY,
        CarrierReason::Failed => tow_carrier_reason::TOW_CARRIER_FAILED,
        CarrierReason::Peer => tow_carrier_reason::TOW_CARRIER_PEER,
        CarrierReason::Recovered => tow_carrier_reason::TOW_CARRIER_RECOVERED,
        _ => tow_carrier_reason::TOW_CARRIER_OTHER,
    }
}

/// A fault that an event tells of.
fn told_of(fault: Fault, out: &mut tow_event) -> Fault {
    out.status = fault.status;
    fault
}

pub(crate) fn bits(rights: Rights) -> u32 {
    let bit = |may: bool, right: tow_rights| if may { right as u32 } else { 0 };
    bit(rights.read, tow_rights::TOW_MAY_READ)
        | bit(rights.write, tow_rights::TOW_MAY_WRITE)
        | bit(rights.atomic, tow_rights::TOW_MAY_ATOMIC)
}
