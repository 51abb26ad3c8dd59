//! The server end over our rpc.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use towpath_rpc::{Fate, Incoming, Request, Responder, RpcServer, ServerConfig, Status};
use towpath_transport::{Device, Endpoint, Event, Region};

use super::message::{READ, ReadRequest, Verdict, WRITE, WriteRequest};
use super::passes::{decode, encode};
use super::serve::{Served, read_reply, take_read, take_write, write_reply};
use super::store::{SliceOp, SliceOutcome, SliceStore};

/// What the store has answered, from whatever thread, and who is to be woken.
#[derive(Debug, Default)]
struct Answers {
    ended: Mutex<Vec<(Responder, Served)>>,
    waker: Option<Waker>,
}

impl Answers {
    fn put(&self, responder: Responder, served: Served) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).push((responder, served));
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    fn take(&self, into: &mut Vec<(Responder, Served)>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut ended);
    }
}

/// A server of protobuf messages, on every channel that peers open on an endpoint.
pub struct ProstServer<S> {
    rpc: RpcServer,
    store: S,
    answers: Arc<Answers>,
    ready: Vec<(Responder, Served)>,
    under_way: usize,
}

impl<S: SliceStore> ProstServer<S> {
    /// A server of a store. Answers of the store end a wait of the endpoint.
    pub fn new<D: Device<Memory = Region>>(endpoint: &Endpoint<D>, store: S) -> Self {
        let answers = Answers { waker: endpoint.waker(), ..Answers::default() };
        Self {
            rpc: RpcServer::new(ServerConfig::new()),
            store,
            answers: Arc::new(answers),
            ready: Vec::new(),
            under_way: 0,
        }
    }

    /// Requests that the store has.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Takes an event in.
    pub fn on_event<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        event: Event,
    ) {
        if let Some(Incoming::Request(request)) = self.rpc.on_event(endpoint, event) {
            self.serve(endpoint, request);
        }
    }

    /// Sends the answers that are there; returns how many.
    pub fn answer<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> usize {
        self.answers.take(&mut self.ready);
        let count = self.ready.len();
        for (responder, served) in self.ready.drain(..) {
            self.under_way -= 1;
            let built = match &served {
                Served::Write(reply) => encode(endpoint, reply),
                Served::Read(reply) => encode(endpoint, reply),
            };
            match built {
                Ok(reply) => self.rpc.respond(endpoint, responder, Status::OK, reply),
                // It was done; nobody is told.
                Err(_) => self.rpc.abandon(endpoint, responder, Fate::Happened),
            }
        }
        count
    }

    fn serve<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>, request: Request) {
        let method = request.method();
        let parcel = request.parcel();
        let op = match method {
            WRITE => decode::<WriteRequest>(parcel)
                .ok_or(Verdict::Malformed)
                .and_then(|write| take_write(&write)),
            READ => decode::<ReadRequest>(parcel)
                .ok_or(Verdict::Malformed)
                .and_then(|read| take_read(&read)),
            _ => {
                let (responder, message) = request.into_message();
                endpoint.release(message);
                self.rpc.respond_status(endpoint, responder, Status::UNSUPPORTED);
                return;
            }
        };
        let (responder, message) = request.into_message();
        // The data was copied out: its credit goes back before the store is done.
        endpoint.release(message);
        self.start(op, responder, method == READ);
    }

    fn start(&mut self, op: Result<SliceOp, Verdict>, responder: Responder, is_read: bool) {
        self.under_way += 1;
        let answers = Arc::clone(&self.answers);
        let done = move |outcome: SliceOutcome| {
            let served = match is_read {
                true => Served::Read(read_reply(outcome)),
                false => Served::Write(write_reply(&outcome)),
            };
            answers.put(responder, served);
        };
        match op {
            Ok(op) => self.store.start(op, Box::new(done)),
            Err(verdict) => done(SliceOutcome::Not(verdict)),
        }
    }
}
