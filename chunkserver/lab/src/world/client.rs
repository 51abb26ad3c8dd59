//! A client: an application that reads records, and the endpoint that carries its reads.

use super::books::Books;
use super::host::{NUMBER_BYTES, Nic};
use super::plan::{RECORD_BYTES, Sides};
use super::store::{self, RECORDS};
use super::work::Work;
use towpath_base::{Prng, Time};
use towpath_transport::{
    ChannelId, Endpoint, Event, GrantId, LinkId, OpOptions, OpOutcome, Place, SendOptions,
};

/// An I/O under way.
#[derive(Clone, Copy, Debug)]
struct Io {
    asked_at: Time,
    record: u64,
}

pub(super) struct Client {
    number: usize,
    endpoint: Endpoint<Nic>,
    link: LinkId,
    records: Option<GrantId>,
    channel: Option<ChannelId>,
    is_ready: bool,
    pub(super) work: Work,
    sides: Sides,
    prng: Prng,
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
        work: Work,
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
            sides,
            prng: Prng::new(seed),
            ios: vec![None; depth as usize],
            free: (0..depth as usize).collect(),
            processor_free: Time::ZERO,
        }
    }

    pub(super) fn turn(&mut self, books: &mut Books) -> bool {
        let now = self.endpoint.now();
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            self.on_event(event, now, books);
        }
        self.work.look(now, books.start);
        while self.work.may_go() && self.go(now, books) {}
        self.endpoint.flush();
        busy
    }

    pub(super) fn next_time(&self, books: &Books) -> Time {
        let mut next = self.endpoint.next_timeout().min(self.work.next_time(books.start));
        if self.work.may_go() && matches!(self.sides, Sides::Two { .. }) {
            next = next.min(self.processor_free);
        }
        next
    }

    fn on_event(&mut self, event: Event, now: Time, books: &mut Books) {
        match event {
            Event::Granted { grant, .. } if grant.rights.read => {
                self.records = Some(grant.id);
                self.look_whether_ready(books);
            }
            Event::ChannelOpened { channel, by_peer: true, .. } => {
                self.channel = Some(channel);
                self.look_whether_ready(books);
            }
            Event::OpDone { token, outcome, buf, .. } => {
                let bytes = buf.as_deref().filter(|_| outcome == OpOutcome::Executed);
                self.on_answer(token, bytes, now, books);
            }
            Event::Message(message) => {
                let mut bytes = [0; NUMBER_BYTES + RECORD_BYTES];
                let len = message.copy_to(&mut bytes);
                self.endpoint.release(message);
                match bytes[..len].split_first_chunk() {
                    Some((token, record)) => {
                        self.on_answer(u64::from_le_bytes(*token), Some(record), now, books);
                    }
                    None => books.note(|| "an answer without a token".to_owned()),
                }
            }
            Event::LinkDown { reason, .. } => {
                books.note(|| format!("the link of client {} is down: {reason:?}", self.number));
            }
            _ => {}
        }
    }

    fn look_whether_ready(&mut self, books: &mut Books) {
        if self.records.is_some() && self.channel.is_some() && !self.is_ready {
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
        match bytes {
            Some(bytes) if store::is_record(bytes, io.record) => {
                books.on_done(self.number, io.asked_at, now);
            }
            Some(_) => books.note(|| format!("client {}: not record {}", self.number, io.record)),
            None => books.note(|| format!("client {}: a read was not done", self.number)),
        }
    }

    /// Lets one I/O go, if it may.
    fn go(&mut self, now: Time, books: &mut Books) -> bool {
        let (Some(grant), Some(channel)) = (self.records, self.channel) else { return false };
        if self.processor_free > now {
            return false;
        }
        let (Some(place), Some(asked_at)) = (self.free.pop(), self.work.go()) else {
            return false;
        };
        let record = self.prng.below(RECORDS);
        self.ios[place] = Some(Io { asked_at, record });
        let result = match self.sides {
            Sides::One => self.read(grant, place as u64, record),
            Sides::Two { client, .. } => {
                self.processor_free = now + client;
                self.ask(channel, place as u64, record)
            }
        };
        if let Err(why) = result {
            books.note(|| format!("client {}: {why}", self.number));
            return false;
        }
        true
    }

    fn read(&mut self, grant: GrantId, token: u64, record: u64) -> Result<(), String> {
        let buf = self.endpoint.alloc(RECORD_BYTES).map_err(|error| error.to_string())?;
        let offset = record as u32 * RECORD_BYTES as u32;
        let place = Place { link: self.link, grant, offset };
        let options = OpOptions::new().token(token);
        let read = self.endpoint.read(place, RECORD_BYTES as u32, buf, options);
        read.map(drop).map_err(|rejected| rejected.error.to_string())
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
