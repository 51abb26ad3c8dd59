//! A service that takes its time, stops what it has not begun, and keeps a book of what it did.

use std::collections::BTreeMap;
use towpath_base::{Nanos, Prng, Time};
use towpath_memory::Region;
use towpath_rpc::{
    Fate, Incoming, Outgoing, Request, RequestKey, Responder, RpcServer, ServerConfig, Status,
};
use towpath_transport::Endpoint;
use towpath_verbs::Device;

/// A request that was not begun: it holds its data.
#[derive(Debug)]
struct Waiting {
    begin_at: Time,
    request: Request,
}

/// A request that cannot be stopped any more.
#[derive(Debug)]
struct Begun {
    done_at: Time,
    token: u64,
    responder: Responder,
}

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) rpc: RpcServer,
    prng: Prng,
    waiting: Vec<Waiting>,
    begun: Vec<Begun>,
    /// How often each was done.
    book: BTreeMap<u64, u32>,
}

impl Service {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rpc: RpcServer::new(ServerConfig::new()),
            prng: Prng::new(seed),
            waiting: Vec::new(),
            begun: Vec::new(),
            book: BTreeMap::new(),
        }
    }

    pub(crate) fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && self.begun.is_empty() && self.rpc.under_way() == 0
    }

    /// How often a request was done.
    pub(crate) fn done(&self, token: u64) -> u32 {
        self.book.get(&token).copied().unwrap_or(0)
    }

    pub(crate) fn next_time(&self) -> Time {
        let begins = self.waiting.iter().map(|waiting| waiting.begin_at);
        let ends = self.begun.iter().map(|begun| begun.done_at);
        begins.chain(ends).min().unwrap_or(Time::NEVER)
    }

    pub(crate) fn turn<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        endpoint.poll();
        while let Some(event) = endpoint.next_event() {
            match self.rpc.on_event(endpoint, event) {
                Some(Incoming::Request(request)) => {
                    let begin_at = endpoint.now() + self.span(18);
                    self.waiting.push(Waiting { begin_at, request });
                }
                Some(Incoming::Cancelled { request, .. }) => self.on_cancelled(endpoint, request),
                Some(Incoming::Streamed(_) | Incoming::Other(_)) | None => {}
            }
        }
        self.begin(endpoint);
        self.finish(endpoint);
        endpoint.flush();
    }

    /// Mostly short; now and then longer than anybody waits for a fate.
    fn span(&mut self, bits_max: u64) -> Nanos {
        if self.prng.chance(0.005) {
            return Nanos::from_millis(150);
        }
        let bits = self.prng.between(4, bits_max);
        Nanos(self.prng.below(1 << bits))
    }

    fn on_cancelled<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        key: RequestKey,
    ) {
        let is_it = |waiting: &Waiting| waiting.request.request_key() == key;
        if let Some(place) = self.waiting.iter().position(is_it) {
            let Waiting { request, .. } = self.waiting.swap_remove(place);
            self.drop_unbegun(endpoint, request);
        }
    }

    fn drop_unbegun<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        request: Request,
    ) {
        let (responder, message) = request.into_message();
        endpoint.release(message);
        self.rpc.abandon(endpoint, responder, Fate::DidNotHappen);
    }

    fn begin<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let now = endpoint.now();
        let due = |waiting: &Waiting| waiting.begin_at.min(waiting.request.deadline()) <= now;
        while let Some(place) = self.waiting.iter().position(due) {
            let Waiting { request, .. } = self.waiting.swap_remove(place);
            if request.deadline() <= now {
                self.drop_unbegun(endpoint, request);
                continue;
            }
            let token = u64::from_le_bytes(request.body().try_into().expect("eight bytes"));
            let (responder, message) = request.into_message();
            endpoint.release(message);
            let done_at = now + self.span(16);
            self.begun.push(Begun { done_at, token, responder });
        }
    }

    fn finish<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) {
        let now = endpoint.now();
        while let Some(place) = self.begun.iter().position(|begun| begun.done_at <= now) {
            let Begun { token, responder, .. } = self.begun.swap_remove(place);
            if self.prng.chance(0.1) {
                self.rpc.set_fate(&responder, Fate::DidNotHappen);
                self.rpc.respond_status(endpoint, responder, Status::APPLICATION);
                continue;
            }
            *self.book.entry(token).or_default() += 1;
            let data_bytes = self.prng.below(100_000) as usize;
            match response(endpoint, data_bytes) {
                Some(response) => self.rpc.respond(endpoint, responder, Status::OK, response),
                None => self.rpc.abandon(endpoint, responder, Fate::Happened),
            }
        }
    }
}

/// A response with some data; none while no buffer is free.
fn response<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    data_bytes: usize,
) -> Option<Outgoing> {
    let mut response = Outgoing::new(endpoint, 0, data_bytes).ok()?;
    let mut data = endpoint.alloc(data_bytes).ok()?;
    data.set_len(data_bytes).ok()?;
    response.set_data(data);
    Some(response)
}
