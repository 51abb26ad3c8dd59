//! A client: it asks for operations of all kinds, so many at a time.

use super::area::{self, AREA_BYTES, FIELD_MAX};
use super::books::{Asked, Books, OpAnswer};
use super::broken::Broken;
use super::server::{GRANTS, Nic, break_lane};
use super::swapper;
use crate::device::SharedLink;
use towpath_base::{Nanos, Prng, Time};
use towpath_proto::{GrantId, OpError, OpOutcome};
use towpath_transport::{Endpoint, Event, LaneError, LinkId, OpOptions, Place, RejectedOp};

/// Operations under way: more than the device answers at a time.
pub(super) const DEPTH: usize = 32;

/// One operation in so many has a deadline, at most so late.
const LATE_ONE_IN: u64 = 10;
const LATE_MAX_NS: u64 = 2_000_000;

/// One operation in so many waits for those before it.
const FENCED_ONE_IN: u64 = 16;

pub(super) struct Client {
    number: usize,
    pub(super) link: SharedLink,
    /// None while it is dead.
    pub(super) endpoint: Option<(Endpoint<Nic>, LinkId)>,
    grants: [Option<GrantId>; GRANTS],
    prng: Prng,
    stalled_until: Time,
    /// Additions that it has still to ask for, all told and in its field.
    additions: u64,
    field: u64,
    /// The value of the shared word that it has seen last.
    swapped: u64,
}

impl Client {
    pub(super) fn new(number: usize, link: SharedLink, seed: u64, additions: u64) -> Self {
        Self {
            number,
            link,
            endpoint: None,
            grants: [None; GRANTS],
            prng: Prng::new(seed),
            stalled_until: Time::ZERO,
            additions,
            field: FIELD_MAX,
            swapped: 0,
        }
    }

    /// It has an endpoint with a link to the server.
    pub(super) fn start(&mut self, endpoint: Endpoint<Nic>, link: LinkId) {
        (self.endpoint, self.grants) = (Some((endpoint, link)), [None; GRANTS]);
    }

    pub(super) fn stall(&mut self, until: Time) {
        self.stalled_until = self.stalled_until.max(until);
    }

    pub(super) fn break_lane(&mut self) {
        if let Some((endpoint, link)) = &mut self.endpoint {
            break_lane(endpoint, *link);
        }
    }

    /// It has asked for all that it had to.
    pub(super) fn has_asked(&self) -> bool {
        self.additions == 0
    }

    pub(super) fn check_buffers(&self) -> Result<(), Broken> {
        let census = self.endpoint.as_ref().map(|(endpoint, _)| endpoint.buffers());
        match census.filter(|census| census.send_free != census.send_all) {
            Some(_) => Err(Broken::Buffers { client: self.number }),
            None => Ok(()),
        }
    }

    pub(super) fn next_time(&self, now: Time) -> Time {
        if self.stalled_until > now {
            return self.stalled_until;
        }
        let held = self.link.link().next_release().unwrap_or(Time::NEVER);
        let timeout = self.endpoint.as_ref().map(|(endpoint, _)| endpoint.next_timeout());
        timeout.map_or(Time::NEVER, |timeout| timeout.min(held))
    }

    pub(super) fn turn(&mut self, now: Time, books: &mut Books) -> bool {
        let Some((mut endpoint, link)) = self.endpoint.take_if(|_| self.stalled_until <= now)
        else {
            return false;
        };
        let mut busy = endpoint.poll() > 0;
        while let Some(event) = endpoint.next_event() {
            busy = true;
            let result = self.on_event(event, books);
            books.note(result);
        }
        while books.live(self.number) < DEPTH && self.additions > 0 && books.broken.is_none() {
            match self.ask((&mut endpoint, link), books) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    let host = self.number;
                    books.note(Err(Broken::Refused { host, error }));
                }
            }
        }
        endpoint.flush();
        self.endpoint = Some((endpoint, link));
        busy
    }

    fn on_event(&mut self, event: Event, books: &mut Books) -> Result<(), Broken> {
        match event {
            Event::Granted { grant, .. } => {
                let nth = match grant.byte_len as usize {
                    area::SHARED_BYTES => 0,
                    AREA_BYTES => 1,
                    _ => 2,
                };
                self.grants[nth] = Some(grant.id);
                Ok(())
            }
            Event::Revoked { grant, .. } => {
                let mut known = self.grants.iter_mut();
                if let Some(known) = known.find(|known| **known == Some(grant)) {
                    *known = None;
                }
                Ok(())
            }
            Event::OpDone { token, outcome, word, buf, .. } => {
                if outcome == OpOutcome::Executed
                    && let Some(Asked::Swap { compare, swap }) = books.asked(self.number, token)
                    && let Some(word) = word
                {
                    let is_done = word == compare;
                    self.swapped = self.swapped.max(if is_done { swap } else { word });
                }
                let bytes = buf.as_deref().unwrap_or_default();
                books.answer(self.number, token, &OpAnswer { outcome, word, bytes })
            }
            Event::LinkDown { .. } => Err(Broken::Down { host: self.number }),
            _ => Ok(()),
        }
    }

    /// Asks for one operation, drawn from its dice; false where the grant for it is missing.
    fn ask(
        &mut self,
        (endpoint, link): (&mut Endpoint<Nic>, LinkId),
        books: &mut Books,
    ) -> Result<bool, LaneError> {
        let me = self.number;
        let kind = self.prng.below(100);
        let nth = match kind {
            0..86 => 0,
            86..94 => 1,
            _ => 2,
        };
        let Some(grant) = self.grants[nth] else { return Ok(false) };
        let asked = match kind {
            0..50 => Asked::Add { is_field: false },
            50..80 => Asked::Add { is_field: self.field > 0 },
            80..86 => {
                let compare = self.swapped;
                Asked::Swap { compare, swap: swapper::next_of(compare, me) }
            }
            86..90 => Asked::Word { number: books.next_write(me, false) },
            90..94 => Asked::Block { number: books.next_write(me, true) },
            _ => {
                let writer = self.prng.below(books.clients() as u64) as usize;
                Asked::Look { writer, low: books.sure_of(writer) }
            }
        };
        let op = books.ask(me, asked);
        let options = self.options(endpoint.now(), op);
        let refused = self.submit((endpoint, link, grant), asked, options).err();
        if refused.is_none() {
            if let Asked::Add { is_field } = asked {
                self.additions -= 1;
                self.field -= u64::from(is_field);
            }
            return Ok(true);
        }
        let result = books.take_back(me, op);
        books.note(result);
        match refused {
            // It was revoked, and the event waits to be taken.
            Some(LaneError::Op(OpError::NoSuchGrant)) | None => Ok(false),
            Some(error) => Err(error),
        }
    }

    fn options(&mut self, now: Time, op: u64) -> OpOptions {
        let mut options = OpOptions::new().token(op);
        if self.prng.below(LATE_ONE_IN) == 0 {
            options = options.deadline(now + Nanos(self.prng.below(LATE_MAX_NS)));
        }
        if self.prng.below(FENCED_ONE_IN) == 0 { options.fenced() } else { options }
    }

    fn submit(
        &mut self,
        (endpoint, link, grant): (&mut Endpoint<Nic>, LinkId, GrantId),
        asked: Asked,
        options: OpOptions,
    ) -> Result<(), LaneError> {
        let place = |offset: usize| Place { link, grant, offset: offset as u32 };
        let (field, shift) = area::field(self.number);
        let done = match asked {
            Asked::Add { is_field: false } => endpoint.fetch_add(place(area::COUNTER), 1, options),
            Asked::Add { is_field: true } => endpoint.fetch_add(place(field), 1 << shift, options),
            Asked::Swap { compare, swap } => {
                endpoint.cmp_swap(place(area::SWAPPED), (compare, swap), options)
            }
            Asked::Word { number } => endpoint.write_word(place(0), number, options),
            Asked::Block { number } => {
                // As many buffers as operations.
                let buf = endpoint.copy(&area::block(number)).expect("a buffer for each");
                let written = endpoint.write(place(area::BLOCK), buf, options);
                written.map_err(|RejectedOp { error, .. }| error)
            }
            Asked::Look { writer, .. } => {
                let buf = endpoint.alloc(AREA_BYTES).expect("a buffer for each");
                let at = place(area::area(writer).start);
                let read = endpoint.read(at, AREA_BYTES as u32, buf, options);
                read.map_err(|RejectedOp { error, .. }| error)
            }
        };
        done.map(drop)
    }
}
