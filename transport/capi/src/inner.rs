//! An endpoint, with tables of what its caller holds.

use crate::fault::Fault;
use crate::ffi::{
    tow_buf, tow_channel, tow_close_reason, tow_denied, tow_down_reason, tow_event, tow_event_kind,
    tow_grant_id, tow_link, tow_message, tow_options, tow_outcome, tow_place, tow_rights,
    tow_segment, tow_send_id, tow_status,
};
use crate::table::Table;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;
use towpath_transport::{
    Buf, ChannelId, CloseReason, ConnectId, Denied, DownReason, Either, Endpoint, EngineUdp, Event,
    Grant, GrantId, LinkId, Message, OpId, OpOptions, OpOutcome, Outcome, Payload, Peer, Place,
    Rejected, Rights, RoceUdp, Segment, SendId, SendOptions, Time,
};

/// The userspace NIC, driven by the endpoint or by a thread of its own.
pub(crate) type Nic = Either<RoceUdp, EngineUdp>;

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
struct Sending {
    token: u64,
    /// None until the endpoint has taken it.
    send: Option<SendId>,
}

/// A one-sided operation under way.
struct Operation {
    token: u64,
    /// Its buffer is for the caller, if it was executed.
    is_read: bool,
}

/// An endpoint, with tables of what its caller holds.
pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint<Nic>,
    links: Table<LinkId>,
    /// Numbers of links, by the endpoint's own dense index.
    numbers: Vec<u64>,
    pub(crate) messages: Table<Held>,
    pub(crate) bufs: Table<Buf>,
    sends: Table<Sending>,
    ops: Table<Operation>,
    /// Tokens of connections that are being made: as many as the endpoint allows.
    dials: HashMap<ConnectId, u64>,
    /// The last poll did something, or there was an event since: do not wait.
    pub(crate) is_busy: bool,
}

impl Inner {
    pub(crate) fn new(endpoint: Endpoint<Nic>) -> Self {
        Self {
            endpoint,
            links: Table::default(),
            numbers: Vec::new(),
            messages: Table::default(),
            bufs: Table::default(),
            sends: Table::default(),
            ops: Table::default(),
            dials: HashMap::new(),
            is_busy: false,
        }
    }

    /// How many messages are being sent.
    pub(crate) fn sends_len(&self) -> usize {
        self.sends.len()
    }

    pub(crate) fn link(&mut self, link: tow_link) -> Result<LinkId, Fault> {
        self.links.at(link.id).copied().ok_or_else(|| Fault::stale("link"))
    }

    pub(crate) fn connect(&mut self, addr: SocketAddr, token: u64) -> Result<(), Fault> {
        let connect = self.endpoint.connect(addr).map_err(|error| Fault::from(&error))?;
        self.dials.insert(connect, token);
        Ok(())
    }

    /// Sends a message, or gives it back with the reason.
    pub(crate) fn send(
        &mut self,
        (link, channel): (LinkId, tow_channel),
        payload: Payload,
        options: &tow_options,
    ) -> Result<tow_send_id, (Payload, Fault)> {
        let id = self.sends.insert(Sending { token: options.token, send: None });
        let how = send_options(options).token(id);
        match self.endpoint.send(link, ChannelId(channel.id), payload, how) {
            Ok(send) => {
                if let Some(sending) = self.sends.at(id) {
                    sending.send = Some(send);
                }
                Ok(tow_send_id { id })
            }
            Err(Rejected { payload, error }) => {
                self.sends.remove(id);
                Err((payload, error.into()))
            }
        }
    }

    /// Sends buffers of the caller's, which stay its own if that is refused.
    pub(crate) fn send_bufs(
        &mut self,
        to: (LinkId, tow_channel),
        segments: &[tow_segment],
        options: &tow_options,
    ) -> Result<tow_send_id, Fault> {
        for (at, segment) in segments.iter().enumerate() {
            let buf = self.bufs.at(segment.buf.id).ok_or_else(|| Fault::stale("buffer"))?;
            if segment.len == 0 || segment.len > buf.capacity() {
                let capacity = buf.capacity();
                return Err(Fault::argument(format!(
                    "segment {at} has {} bytes, and its buffer holds 1 to {capacity}",
                    segment.len
                )));
            }
            if segments[..at].iter().any(|other| other.buf == segment.buf) {
                return Err(Fault::argument(format!("segment {at} has the buffer of another one")));
            }
        }
        let mut payload: Option<Payload> = None;
        for segment in segments {
            let taken = self.bufs.take_out(segment.buf.id);
            let Some(mut buf) = taken.filter(|buf| segment.len <= buf.capacity()) else { continue };
            buf.set_len(segment.len)?;
            match &mut payload {
                // There are no more than a payload holds.
                Some(payload) => drop(payload.push(buf)),
                None => payload = Some(buf.into()),
            }
        }
        let payload = payload.ok_or_else(|| Fault::argument("a message has 1 to 4 segments"))?;
        match self.send(to, payload, options) {
            Ok(send) => {
                segments.iter().for_each(|segment| self.bufs.forget(segment.buf.id));
                Ok(send)
            }
            Err((payload, fault)) => {
                for (part, segment) in payload.into_segments().zip(segments) {
                    match part {
                        Segment::Own(buf) => self.bufs.put_back(segment.buf.id, buf),
                        Segment::Frozen(_) => self.bufs.forget(segment.buf.id),
                    }
                }
                Err(fault)
            }
        }
    }

    /// Sends a message on that came, which stays its holder's if that is refused.
    pub(crate) fn send_message(
        &mut self,
        to: (LinkId, tow_channel),
        message: tow_message,
        options: &tow_options,
    ) -> Result<tow_send_id, Fault> {
        let held = self.messages.take_out(message.id).ok_or_else(|| Fault::stale("message"))?;
        let payload = match held {
            Held::Payload(payload) => payload,
            Held::Message(whole) => match whole.into_payload() {
                Ok(payload) => payload,
                Err(whole) => {
                    self.messages.put_back(message.id, Held::Message(whole));
                    let text = "the message came in more pieces than can be sent on: copy it";
                    return Err(Fault::new(tow_status::TOW_E_UNSUPPORTED, text));
                }
            },
        };
        match self.send(to, payload, options) {
            Ok(send) => {
                self.messages.forget(message.id);
                Ok(send)
            }
            Err((payload, fault)) => {
                self.messages.put_back(message.id, Held::Payload(payload));
                Err(fault)
            }
        }
    }

    pub(crate) fn cancel(&mut self, send: tow_send_id) -> Result<(), Fault> {
        let found = self.sends.at(send.id).and_then(|sending| sending.send);
        let send = found.ok_or_else(|| Fault::stale("send"))?;
        self.endpoint.cancel(send).map_err(|_| Fault::stale("send"))
    }

    pub(crate) fn release(&mut self, message: tow_message) -> Result<(), Fault> {
        match self.messages.remove(message.id).ok_or_else(|| Fault::stale("message"))? {
            Held::Message(message) => self.endpoint.release(message),
            Held::Payload(payload) => drop(payload),
        }
        Ok(())
    }

    /// The next thing to tell.
    pub(crate) fn next_event(&mut self) -> Option<(tow_event, Option<Fault>)> {
        loop {
            let event = self.endpoint.next_event()?;
            self.is_busy = true;
            if let Some(told) = self.translate(event) {
                return Some(told);
            }
        }
    }

    /// What an event is in C; none for those that no program has to know of.
    fn translate(&mut self, event: Event) -> Option<(tow_event, Option<Fault>)> {
        let mut out = tow_event::default();
        let mut fault = None;
        match event {
            Event::Message(message) => self.tell_message(message, &mut out),
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
                fault = Some(Fault::from(&error));
            }
            Event::Accepted { link, .. } => {
                out.kind = tow_event_kind::TOW_EVENT_ACCEPTED;
                out.link = self.number_new(link);
            }
            Event::AcceptFailed { from, error } => {
                out.kind = tow_event_kind::TOW_EVENT_ACCEPT_FAILED;
                let text = format!("{from} was turned away: {error}");
                fault = Some(Fault::new(tow_status::TOW_E_REFUSED, text));
            }
            event => return self.translate_more(event, out),
        }
        if let Some(fault) = &fault {
            out.status = fault.status;
        }
        Some((out, fault))
    }

    fn translate_more(
        &mut self,
        event: Event,
        mut out: tow_event,
    ) -> Option<(tow_event, Option<Fault>)> {
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
                let known = self.ops.remove(token);
                let Operation { token, is_read } = known?;
                out.token = token;
                (out.has_word, out.word) = (word.is_some(), word.unwrap_or_default());
                // Of a write it goes back to its pool.
                self.tell_op(outcome, buf.filter(|_| is_read), &mut out);
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
                } as u32;
            }
            // Streams are off; paths, carriers and the device's own events need no answer.
            _ => return None,
        }
        Some((out, None))
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

    /// Where on the other side a link is set up, or what its device is.
    pub(crate) fn peer(&mut self, link: tow_link) -> Result<Peer, Fault> {
        let link = self.link(link)?;
        self.endpoint.peer(link).ok_or_else(|| Fault::stale("link"))
    }

    /// Has an operation carried out: `submit` hands it to the endpoint, with options that name it
    /// by a number of ours.
    pub(crate) fn operate(
        &mut self,
        place: tow_place,
        (options, is_read): (&tow_options, bool),
        submit: impl FnOnce(&mut Endpoint<Nic>, Place, OpOptions) -> Result<OpId, Fault>,
    ) -> Result<(), Fault> {
        let place = self.place(place)?;
        let id = self.ops.insert(Operation { token: options.token, is_read });
        let submitted = submit(&mut self.endpoint, place, op_options(options).token(id));
        if submitted.is_err() {
            self.ops.remove(id);
        }
        submitted.map(drop)
    }

    fn place(&mut self, place: tow_place) -> Result<Place, Fault> {
        let link = self.link(place.link)?;
        Ok(Place { link, grant: GrantId(place.grant.id), offset: place.offset })
    }

    pub(crate) fn revoke(&mut self, link: tow_link, grant: tow_grant_id) -> Result<(), Fault> {
        let link = self.link(link)?;
        let was_there = self.endpoint.revoke(link, GrantId(grant.id));
        was_there.then_some(()).ok_or_else(|| Fault::stale("grant"))
    }
}

fn bits(rights: Rights) -> u32 {
    let bit = |may: bool, right: tow_rights| if may { right as u32 } else { 0 };
    bit(rights.read, tow_rights::TOW_MAY_READ)
        | bit(rights.write, tow_rights::TOW_MAY_WRITE)
        | bit(rights.atomic, tow_rights::TOW_MAY_ATOMIC)
}

/// Rights, added up.
pub(crate) fn rights(of: u32) -> Result<Rights, Fault> {
    let may = |right: tow_rights| of & right as u32 != 0;
    let rights = Rights {
        read: may(tow_rights::TOW_MAY_READ),
        write: may(tow_rights::TOW_MAY_WRITE),
        atomic: may(tow_rights::TOW_MAY_ATOMIC),
    };
    let known = of != 0 && bits(rights) == of;
    known.then_some(rights).ok_or_else(|| Fault::argument(format!("{of} are no rights")))
}

fn send_options(options: &tow_options) -> SendOptions {
    let mut how = SendOptions::new();
    if options.deadline_ns != 0 {
        how = how.deadline(Time(options.deadline_ns));
    }
    if options.timeout_ns != 0 {
        how = how.timeout(Duration::from_nanos(options.timeout_ns));
    }
    how
}

fn op_options(options: &tow_options) -> OpOptions {
    let mut how = OpOptions::new();
    if options.deadline_ns != 0 {
        how = how.deadline(Time(options.deadline_ns));
    }
    if options.timeout_ns != 0 {
        how = how.timeout(Duration::from_nanos(options.timeout_ns));
    }
    if options.fence != 0 { how.fenced() } else { how }
}
