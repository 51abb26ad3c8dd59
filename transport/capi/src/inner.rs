//! An endpoint, with what its caller holds.

use crate::fault::Fault;
use crate::ffi::{
    tow_channel, tow_event, tow_grant_id, tow_link, tow_message, tow_options, tow_place,
    tow_rights, tow_segment, tow_send_id, tow_status,
};
use crate::names::{Held, Names, Operation, Sending, bits};
use std::net::SocketAddr;
use std::time::Duration;
use towpath_transport::{
    ChannelId, Either, Endpoint, EngineUdp, GrantId, LinkId, OpId, OpOptions, Payload, Peer, Place,
    Rejected, Rights, RoceUdp, Segment, SendOptions, Time,
};

/// The userspace NIC, driven by the endpoint or by a thread of its own.
pub(crate) type Nic = Either<RoceUdp, EngineUdp>;

/// An endpoint, with what its caller holds.
pub(crate) struct Inner {
    pub(crate) endpoint: Endpoint<Nic>,
    pub(crate) names: Names,
    /// The last poll did something, or there was an event since: do not wait.
    pub(crate) is_busy: bool,
}

impl Inner {
    pub(crate) fn new(endpoint: Endpoint<Nic>) -> Self {
        Self { endpoint, names: Names::default(), is_busy: false }
    }

    pub(crate) fn link(&mut self, link: tow_link) -> Result<LinkId, Fault> {
        self.names.link(link)
    }

    /// Puts the next thing to tell into an empty event; false when there is none.
    ///
    /// # Errors
    /// The event tells of a fault, which has a text.
    #[inline]
    pub(crate) fn next_event(&mut self, out: &mut tow_event) -> Result<bool, Fault> {
        let Self { endpoint, names, is_busy } = self;
        let mut told = Ok(false);
        // Where it was put together: to copy it just then is slow.
        while matches!(told, Ok(false))
            && endpoint.take_event(|_, event| told = names.translate(event, out))
        {
            *is_busy = true;
        }
        told
    }

    pub(crate) fn connect(&mut self, addr: SocketAddr, token: u64) -> Result<(), Fault> {
        let connect = self.endpoint.connect(addr).map_err(|error| Fault::from(&error))?;
        self.names.dials.insert(connect, token);
        Ok(())
    }

    /// Sends a message, or gives it back with the reason.
    pub(crate) fn send(
        &mut self,
        (link, channel): (LinkId, tow_channel),
        payload: Payload,
        options: &tow_options,
    ) -> Result<tow_send_id, (Payload, Fault)> {
        let id = self.names.sends.insert(Sending { token: options.token, send: None });
        let how = send_options(options).token(id);
        match self.endpoint.send(link, ChannelId(channel.id), payload, how) {
            Ok(send) => {
                if let Some(sending) = self.names.sends.at(id) {
                    sending.send = Some(send);
                }
                Ok(tow_send_id { id })
            }
            Err(Rejected { payload, error }) => {
                self.names.sends.remove(id);
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
            let buf = self.names.bufs.at(segment.buf.id).ok_or_else(|| Fault::stale("buffer"))?;
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
            let taken = self.names.bufs.take_out(segment.buf.id);
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
                segments.iter().for_each(|segment| self.names.bufs.forget(segment.buf.id));
                Ok(send)
            }
            Err((payload, fault)) => {
                for (part, segment) in payload.into_segments().zip(segments) {
                    match part {
                        Segment::Own(buf) => self.names.bufs.put_back(segment.buf.id, buf),
                        Segment::Frozen(_) => self.names.bufs.forget(segment.buf.id),
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
        let held =
            self.names.messages.take_out(message.id).ok_or_else(|| Fault::stale("message"))?;
        let payload = match held {
            Held::Payload(payload) => payload,
            Held::Message(whole) => match whole.into_payload() {
                Ok(payload) => payload,
                Err(whole) => {
                    self.names.messages.put_back(message.id, Held::Message(whole));
                    let text = "the message came in more pieces than can be sent on: copy it";
                    return Err(Fault::new(tow_status::TOW_E_UNSUPPORTED, text));
                }
            },
        };
        match self.send(to, payload, options) {
            Ok(send) => {
                self.names.messages.forget(message.id);
                Ok(send)
            }
            Err((payload, fault)) => {
                self.names.messages.put_back(message.id, Held::Payload(payload));
                Err(fault)
            }
        }
    }

    pub(crate) fn cancel(&mut self, send: tow_send_id) -> Result<(), Fault> {
        let found = self.names.sends.at(send.id).and_then(|sending| sending.send);
        let send = found.ok_or_else(|| Fault::stale("send"))?;
        self.endpoint.cancel(send).map_err(|_| Fault::stale("send"))
    }

    pub(crate) fn release(&mut self, message: tow_message) -> Result<(), Fault> {
        match self.names.messages.remove(message.id).ok_or_else(|| Fault::stale("message"))? {
            Held::Message(message) => self.endpoint.release(message),
            Held::Payload(payload) => drop(payload),
        }
        Ok(())
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
        let id = self.names.ops.insert(Operation { token: options.token, is_read });
        let submitted = submit(&mut self.endpoint, place, op_options(options).token(id));
        if submitted.is_err() {
            self.names.ops.remove(id);
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
