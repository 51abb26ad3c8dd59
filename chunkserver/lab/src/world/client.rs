//! A client: an application that reads records, and the endpoint that carries its reads.

use super::books::Books;
use super::host::{NUMBER_BYTES, Nic};
use super::plan::{Manner, RECORD_BYTES, Sides};
use super::store::{self, RECORDS};
use super::tenant::Tenant;
use super::work::Work;
use std::collections::VecDeque;
use towpath_base::{Prng, Time};
use towpath_qos::Ticket;
use towpath_transport::{
    ChannelId, Endpoint, Event, GrantId, LinkId, Message, OpId, OpOptions, OpOutcome, Place,
    SendOptions,
};

/// Bytes of a word of the token protocol: what is granted and has more are the records.
const WORD_BYTES: u32 = 8;

/// An I/O under way.
#[derive(Clone, Copy, Debug)]
struct Io {
    asked_at: Time,
    record: u64,
    ticket: Option<Ticket>,
    /// The READ; none where a message asks.
    op: Option<OpId>,
}

pub(super) struct Client {
    number: usize,
    endpoint: Endpoint<Nic>,
    link: LinkId,
    records: Option<GrantId>,
    channel: Option<ChannelId>,
    is_ready: bool,
    work: Work,
    pub(super) tenant: Option<Tenant>,
    manner: Manner,
    sides: Sides,
    prng: Prng,
    /// Tokens of I/Os that wait, where they take them before they go.
    tickets: VecDeque<Ticket>,
    /// By the token of the operation.
    ios: Vec<Option<Io>>,
    free: Vec<usize>,
    /// When the processor, whose work is counted, is free.
    processor_free: Time,
}

impl Client {
    pub(super) fn new(
        number: usize,
        (endpoint, link): (Endpoint<Nic>, LinkId),
        (work, tenant, manner): (Work, Option<Tenant>, Manner),
        (sides, depth): (Sides, u32),
        seed: u64,
    ) -> Self {
        Self {
            number,
            endpoint,
            link,
            records: None,
            channel: None,
            is_ready: false,
            work,
            tenant,
            manner,
            sides,
            prng: Prng::new(seed),
            tickets: VecDeque::new(),
            ios: vec![None; depth as usize],
            free: (0..depth as usize).collect(),
            processor_free: Time::ZERO,
        }
    }

    pub(super) fn turn(&mut self, books: &mut Books) -> bool {
        let now = self.endpoint.now();
        if self.manner.away_until(now, books.start).is_some() {
            return false;
        }
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            self.on_event(event, now, books);
        }
        let looked = self.work.look(now, books.start);
        if let Some(tenant) = &mut self.tenant {
            tenant.on_work(now, looked);
        }
        if self.work.takes_tokens_early() {
            self.take_tokens(now, looked.0 > 0);
        }
        while self.work.may_go() && self.go(now, books) {}
        if let Some(tenant) = &mut self.tenant
            && let Err(error) = tenant.drive(&mut self.endpoint)
        {
            books.note(|| format!("client {}: its words: {error}", self.number));
        }
        self.endpoint.flush();
        busy
    }

    pub(super) fn next_time(&self, now: Time, books: &Books) -> Time {
        if let Some(until) = self.manner.away_until(now, books.start) {
            return until;
        }
        let mut next = self.endpoint.next_timeout().min(self.work.next_time(now, books.start));
        if self.work.may_go() && matches!(self.sides, Sides::Two { .. }) {
            next = next.min(self.processor_free);
        }
        self.tenant.as_ref().map_or(next, |tenant| next.min(tenant.next_timeout()))
    }

    fn on_event(&mut self, event: Event, now: Time, books: &mut Books) {
        match event {
            Event::Granted { grant, .. } => {
                if grant.byte_len > WORD_BYTES {
                    self.records = Some(grant.id);
                } else if let Some(tenant) = &mut self.tenant {
                    tenant.on_grant(&grant);
                }
                self.look_whether_ready(books);
            }
            Event::Revoked { grant, .. } if self.records == Some(grant) => self.records = None,
            Event::Revoked { grant, .. } => {
                if let Some(tenant) = &mut self.tenant {
                    tenant.on_revoked(grant);
                }
            }
            Event::ChannelOpened { channel, by_peer: true, .. } => {
                self.channel = Some(channel);
                self.look_whether_ready(books);
            }
            Event::OpDone { op, token, outcome, word, buf, .. } => {
                let tenant = self.tenant.as_mut();
                let is_word = |tenant: &mut Tenant| tenant.on_op_done(now, op, (outcome, word));
                let io = self.ios.get(token as usize).and_then(Option::as_ref);
                // Else it is a liar's report, or of an engine that it has no more.
                let is_read = io.is_some_and(|io| io.op == Some(op));
                if tenant.is_some_and(is_word) || !is_read {
                    return;
                }
                let bytes = buf.as_deref().filter(|_| outcome == OpOutcome::Executed);
                self.on_answer(token, bytes, now, books);
            }
            Event::Message(message) => self.on_message(message, now, books),
            Event::LinkDown { reason, .. } => {
                books.note(|| format!("the link of client {} is down: {reason:?}", self.number));
            }
            _ => {}
        }
    }

    /// What the monitor says, or an answer.
    fn on_message(&mut self, message: Message, now: Time, books: &mut Books) {
        let mut bytes = [0; NUMBER_BYTES + RECORD_BYTES];
        let len = message.copy_to(&mut bytes);
        self.endpoint.release(message);
        if let Some(tenant) = &mut self.tenant {
            if let Err(why) = tenant.on_message(now, &bytes[..len]) {
                books.note(|| format!("client {}: {why}", self.number));
            }
            return;
        }
        match bytes[..len].split_first_chunk() {
            Some((token, record)) => {
                self.on_answer(u64::from_le_bytes(*token), Some(record), now, books);
            }
            None => books.note(|| "an answer without a token".to_owned()),
        }
    }

    fn look_whether_ready(&mut self, books: &mut Books) {
        let has_words = self.tenant.as_ref().is_none_or(Tenant::is_ready);
        if self.records.is_some() && self.channel.is_some() && has_words && !self.is_ready {
            self.is_ready = true;
            books.ready += 1;
        }
    }

    /// What a read came to.
    fn on_answer(&mut self, token: u64, bytes: Option<&[u8]>, now: Time, books: &mut Books) {
        let place = token as usize;
        let Some(io) = self.ios.get_mut(place).and_then(Option::take) else {
            return books.note(|| format!("client {}: an answer to nothing", self.number));
        };
        self.free.push(place);
        self.work.under_way -= 1;
        if let (Some(tenant), Some(ticket)) = (&mut self.tenant, io.ticket) {
            tenant.done(now, ticket);
        }
        match bytes {
            Some(bytes) if store::is_record(bytes, io.record) => {
                books.on_done(self.number, io.asked_at, now);
            }
            Some(_) => books.note(|| format!("client {}: not record {}", self.number, io.record)),
            // It was cut off.
            None if self.manner == Manner::Greedy => {}
            None => books.note(|| format!("client {}: a read was not done", self.number)),
        }
    }

    /// Takes tokens for I/Os that wait; those of the last period are void.
    fn take_tokens(&mut self, now: Time, is_new_period: bool) {
        if is_new_period {
            self.tickets.clear();
        }
        let Some(tenant) = &mut self.tenant else { return };
        while self.tickets.len() < self.work.waiting() {
            let Ok(Some(ticket)) = tenant.admit(now) else { return };
            self.tickets.push_back(ticket);
        }
    }

    /// Lets one I/O go, if it may.
    fn go(&mut self, now: Time, books: &mut Books) -> bool {
        let (Some(grant), Some(channel)) = (self.records, self.channel) else { return false };
        if self.processor_free > now {
            return false;
        }
        let takes_early = self.work.takes_tokens_early();
        let ticket = match self.tenant.as_mut() {
            None => None,
            Some(_) if takes_early => match self.tickets.pop_front() {
                None => return false,
                ticket => ticket,
            },
            Some(tenant) => match tenant.admit(now) {
                Ok(ticket) => ticket,
                Err(_) => return false,
            },
        };
        let (Some(place), Some(asked_at)) = (self.free.pop(), self.work.go()) else {
            return false;
        };
        let record = self.prng.below(RECORDS);
        let result = match self.sides {
            Sides::One => self.read(grant, place as u64, record).map(Some),
            Sides::Two { client, .. } => {
                self.processor_free = now + client;
                self.ask(channel, place as u64, record).map(|()| None)
            }
        };
        match result {
            Ok(op) => self.ios[place] = Some(Io { asked_at, record, ticket, op }),
            Err(why) => {
                books.note(|| format!("client {}: {why}", self.number));
                return false;
            }
        }
        true
    }

    fn read(&mut self, grant: GrantId, token: u64, record: u64) -> Result<OpId, String> {
        let buf = self.endpoint.alloc(RECORD_BYTES).map_err(|error| error.to_string())?;
        let offset = record as u32 * RECORD_BYTES as u32;
        let place = Place { link: self.link, grant, offset };
        let options = OpOptions::new().token(token);
        let read = self.endpoint.read(place, RECORD_BYTES as u32, buf, options);
        read.map_err(|rejected| rejected.error.to_string())
    }

    fn ask(&mut self, channel: ChannelId, token: u64, record: u64) -> Result<(), String> {
        let mut bytes = [0; 2 * NUMBER_BYTES];
        bytes[..NUMBER_BYTES].copy_from_slice(&token.to_le_bytes());
        bytes[NUMBER_BYTES..].copy_from_slice(&record.to_le_bytes());
        let buf = self.endpoint.copy(&bytes).map_err(|error| error.to_string())?;
        let sent = self.endpoint.send(self.link, channel, buf, SendOptions::new());
        sent.map(drop).map_err(|rejected| format!("{rejected:?}"))
    }
}
