//! The data node: it grants, and answers messages; of READs its processor sees nothing.

use super::books::Books;
use super::host::{NUMBER_BYTES, Nic};
use super::plan::{RECORD_BYTES, Sides};
use super::steward::Steward;
use super::store::{self, RECORDS};
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};
use towpath_transport::{
    ChannelId, Endpoint, Event, LinkId, Message, Rights, SendOptions, SharedMemory,
};

/// A request that waits for the processor.
struct Request {
    link: LinkId,
    channel: ChannelId,
    token: u64,
    record: u64,
}

pub(super) struct Server {
    pub(super) endpoint: Endpoint<Nic>,
    records: SharedMemory,
    steward: Option<Steward>,
    cost: Nanos,
    requests: VecDeque<Request>,
    /// When the answer to the first of them is ready.
    ready_at: Time,
}

impl Server {
    pub(super) fn new(
        endpoint: Endpoint<Nic>,
        records: SharedMemory,
        (sides, steward): (Sides, Option<Steward>),
    ) -> Self {
        let cost = match sides {
            Sides::One => Nanos::ZERO,
            Sides::Two { server, .. } => server,
        };
        let (requests, ready_at) = (VecDeque::new(), Time::NEVER);
        Self { endpoint, records, steward, cost, requests, ready_at }
    }

    /// A client has a link: it gets a channel, and may read all records; one that has a share,
    /// whose number is told, when it has joined.
    pub(super) fn admit(&mut self, link: LinkId, number: Option<usize>) -> Result<(), String> {
        self.endpoint.open_channel(link, true).map_err(|error| error.to_string())?;
        match self.steward.as_mut().zip(number) {
            Some((steward, number)) => steward.expect(link, number),
            None => {
                let rights = Rights { read: true, write: false, atomic: false };
                let granted =
                    self.endpoint.grant(link, &self.records, self.records.whole(), rights);
                granted.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    pub(super) fn turn(&mut self, books: &mut Books) -> bool {
        let now = self.endpoint.now();
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            match event {
                Event::Message(message) => self.on_request(message, now, books),
                Event::ChannelOpened { link, channel, .. } => {
                    if let Some(steward) = &mut self.steward {
                        steward.on_channel(link, channel);
                    }
                }
                Event::LinkDown { link, .. } => {
                    // A client is dead; it is those that live whose links must hold.
                    if let Some(steward) = &mut self.steward {
                        steward.dismiss(&self.endpoint, link);
                    }
                }
                _ => {}
            }
        }
        while self.ready_at <= now {
            self.answer(books);
        }
        if let Some(steward) = &mut self.steward {
            steward.turn((&mut self.endpoint, &self.records), now, books);
        }
        self.endpoint.flush();
        busy
    }

    pub(super) fn next_time(&self) -> Time {
        let next = self.endpoint.next_timeout().min(self.ready_at);
        self.steward.as_ref().map_or(next, |steward| next.min(steward.next_time()))
    }

    fn on_request(&mut self, message: Message, now: Time, books: &mut Books) {
        let mut bytes = [0; 2 * NUMBER_BYTES];
        let len = message.copy_to(&mut bytes);
        let (link, channel) = (message.link(), message.channel());
        self.endpoint.release(message);
        let ([token, record], []) = bytes.as_chunks() else { return };
        let [token, record] = [token, record].map(|number| u64::from_le_bytes(*number));
        if len != bytes.len() || record >= RECORDS {
            return books.note(|| "a request that is none".to_owned());
        }
        if self.requests.is_empty() {
            self.ready_at = now + self.cost;
        }
        self.requests.push_back(Request { link, channel, token, record });
    }

    /// Answers the first request.
    fn answer(&mut self, books: &mut Books) {
        let Some(Request { link, channel, token, record }) = self.requests.pop_front() else {
            return;
        };
        self.ready_at =
            if self.requests.is_empty() { Time::NEVER } else { self.ready_at + self.cost };
        let Ok(mut buf) = self.endpoint.alloc(NUMBER_BYTES + RECORD_BYTES) else {
            return books.note(|| "the server has no buffer for an answer".to_owned());
        };
        let filled =
            buf.extend(&token.to_le_bytes()).and_then(|()| buf.extend(&store::bytes_of(record)));
        debug_assert!(filled.is_ok(), "the buffer was asked for this length");
        if self.endpoint.send(link, channel, buf, SendOptions::new()).is_err() {
            books.note(|| "an answer was not taken".to_owned());
        }
    }
}
