//! Requests come back as typed replies, and what a client repeats is done once.

mod common;

use common::stores;
use std::sync::Arc;
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_kv::client::{ClientConfig, ClientError, Transport, TransportError};
use towpath_kv::limits::{
    CLIENTS_PER_CONNECTION_MAX, LISTING_BYTES_MAX, SESSIONS_MAX, STORE_BYTES_MIN, UNDER_WAY_MAX,
};
use towpath_kv::wire::{Answer, Ask, Failure, Listing, Method, Reply, Request};
use towpath_kv::{Caller, OPTION_STORE_BYTES, Service, When};

type Answered = Result<Vec<u8>, Failure>;

/// A client of a service, and what it was answered with, as bytes.
struct Client {
    service: Service,
    caller: Caller,
    now: Time,
}

impl Client {
    fn ask(&mut self, client: u64, sequence: u64, ask: Ask<'_>) -> Answered {
        let (mut asked, mut out) = (Vec::new(), Vec::new());
        let request = Request { client, sequence, ask };
        request.emit(&mut asked);
        let (parsed, len) = Request::parse(&asked).expect("sound");
        assert_eq!((parsed, len), (request, asked.len()));
        self.service.answer(&parsed, &mut self.caller, self.now, &mut out);
        let (reply, len) = Reply::parse(&out).expect("sound");
        assert_eq!(len, out.len());
        assert_eq!((reply.head.client, reply.head.sequence), (client, sequence));
        reply.answer.map(|answer| match answer {
            Answer::Done => Vec::new(),
            Answer::Value(value) => value.to_vec(),
            Answer::Sum(sum) => sum.to_string().into_bytes(),
        })
    }

    /// Makes clients known.
    fn meet(&mut self, clients: [u64; 2]) {
        for client in clients {
            assert_eq!(self.ask(client, 0, Ask::Ping), Ok(Vec::new()));
        }
    }

    /// As nobody, whose repetitions are done again.
    fn once(&mut self, ask: Ask<'_>) -> Answered {
        self.ask(0, 0, ask)
    }
}

fn clients() -> impl Iterator<Item = Client> {
    let services = stores(1 << 30).map(Service::new);
    services.into_iter().map(|service| Client {
        service,
        caller: Caller::default(),
        now: Time::ZERO,
    })
}

fn set<'a>(key: &'a [u8], value: &'a [u8]) -> Ask<'a> {
    Ask::Set { key, value, when: When::Always, expire_ms: 0 }
}

#[test]
fn each_method_has_its_replies() {
    for mut client in clients() {
        let done = Ok(Vec::new());
        assert_eq!(client.once(Ask::Ping), done);
        assert_eq!(client.once(Ask::Get { key: b"k" }), Err(Failure::NoKey));
        assert_eq!(client.once(set(b"k", b"v")), done);
        assert_eq!(client.once(Ask::Get { key: b"k" }), Ok(b"v".to_vec()));
        let absent = Ask::Set { key: b"k", value: b"", when: When::Absent, expire_ms: 0 };
        assert_eq!(client.once(absent), Err(Failure::Condition));
        assert_eq!(client.once(Ask::Incr { key: b"k", by: 1 }), Err(Failure::NotANumber));
        assert_eq!(client.once(Ask::Incr { key: b"n", by: -5 }), Ok(b"-5".to_vec()));
        assert_eq!(client.once(Ask::Del { key: b"k" }), done);
        assert_eq!(client.once(Ask::Del { key: b"k" }), Err(Failure::NoKey));
        assert_eq!(client.once(Ask::Reset), done);
        assert_eq!(client.once(Ask::Get { key: b"n" }), Err(Failure::NoKey));
        assert_eq!(client.once(Ask::Exit), done);
    }
}

#[test]
fn a_value_is_gone_when_its_time_is_over() {
    for mut client in clients() {
        let ask = Ask::Set { key: b"k", value: b"v", when: When::Always, expire_ms: 5 };
        assert_eq!(client.once(ask), Ok(Vec::new()));
        client.now += Nanos(4_999_999);
        assert_eq!(client.once(Ask::Get { key: b"k" }), Ok(b"v".to_vec()));
        client.now += Nanos(1);
        assert_eq!(client.once(Ask::Get { key: b"k" }), Err(Failure::NoKey));
    }
}

#[test]
fn the_option_bounds_the_store_and_others_are_refused() {
    for mut client in clients() {
        let bytes = STORE_BYTES_MIN.to_string();
        let opt = |name, value| Ask::SetOpt { name, value };
        assert_eq!(client.once(opt(OPTION_STORE_BYTES, bytes.as_bytes())), Ok(Vec::new()));
        assert_eq!(client.service.store().figures().bytes_max, STORE_BYTES_MIN);
        for (name, value) in
            [(OPTION_STORE_BYTES, &b"7"[..]), (OPTION_STORE_BYTES, b"x"), (b"bytes", b"99999999")]
        {
            assert_eq!(client.once(opt(name, value)), Err(Failure::BadOption));
        }
        let value = vec![1; 1 << 20];
        let sets = (0..4u8).map(|key| client.once(set(&[key], &value)));
        let refused = sets.filter(|answer| *answer == Err(Failure::Full)).count();
        assert_eq!(refused, 1, "of four where three fit");
    }
}

#[test]
fn a_listing_has_what_there_is_room_for() {
    for mut client in clients() {
        let value = vec![7; LISTING_BYTES_MAX / 8];
        for key in 0..20u8 {
            client.once(set(&[key], &value)).expect("room");
        }
        let dumped = client.once(Ask::Dump).expect("a listing");
        let listing = Listing::parse(&dumped).expect("sound");
        assert_eq!(listing.keys, 20);
        let entries: Vec<_> = listing.entries().map(|entry| entry.expect("whole")).collect();
        assert_eq!(entries.len(), 7);
        assert!(entries.iter().all(|(key, found)| key.len() == 1 && *found == value));
    }
}

#[test]
fn what_a_client_repeats_is_done_once_over_any_connection() {
    for mut client in clients() {
        let incr = Ask::Incr { key: b"n", by: 1 };
        client.meet([7, 8]);
        assert_eq!(client.ask(7, 1, incr), Ok(b"1".to_vec()));
        client.caller = Caller::default();
        assert_eq!(client.ask(7, 1, incr), Ok(b"1".to_vec()), "as it was answered");
        assert_eq!(client.ask(8, 1, incr), Ok(b"2".to_vec()), "another client's");
        assert_eq!(client.ask(7, 2, incr), Ok(b"3".to_vec()));
        assert_eq!(client.ask(7, 3, set(b"k", b"old")), Ok(Vec::new()));
        assert_eq!(client.ask(8, 2, set(b"k", b"new")), Ok(Vec::new()));
        assert_eq!(client.ask(7, 3, set(b"k", b"old")), Ok(Vec::new()));
        let get = Ask::Get { key: b"k" };
        assert_eq!(client.ask(7, 4, get), Ok(b"new".to_vec()), "it is not set back");
        for sequence in 5..5 + UNDER_WAY_MAX as u64 {
            client.ask(7, sequence, incr).expect("a number");
        }
        assert_eq!(client.ask(7, 3, set(b"k", b"old")), Err(Failure::Stale));
        assert_eq!(client.ask(7, 4, get), Ok(b"new".to_vec()));
    }
}

#[test]
fn another_change_with_the_number_of_one_is_refused_and_not_made() {
    for mut client in clients() {
        client.meet([7, 8]);
        assert_eq!(client.ask(7, 1, set(b"k", b"5")), Ok(Vec::new()));
        let incr = Ask::Incr { key: b"k", by: 1 };
        assert_eq!(client.ask(7, 1, incr), Err(Failure::Malformed));
        assert_eq!(client.ask(7, 2, incr), Ok(b"6".to_vec()));
    }
}

#[test]
fn a_change_of_a_client_that_is_not_known_is_not_made() {
    for mut client in clients() {
        let incr = Ask::Incr { key: b"n", by: 1 };
        assert_eq!(client.ask(7, 1, incr), Err(Failure::Stale));
        client.meet([7, 7]);
        assert_eq!(client.ask(7, 2, incr), Ok(b"1".to_vec()));
    }
}

/// A client's connection breaks, and before it repeats its change another client has many others
/// made known: over one connection it cannot, and over many it has the first forgotten.
#[test]
fn who_makes_many_clients_known_has_no_change_made_twice() {
    for mut client in clients() {
        let (incr, answered) = (Ask::Incr { key: b"n", by: 1 }, Ok(b"1".to_vec()));
        client.meet([7, 7]);
        assert_eq!(client.ask(7, 1, incr), answered);
        client.caller = Caller::default();
        let last = 1_000 + SESSIONS_MAX as u64;
        let met = (1_000..last).filter(|&other| client.ask(other, 1, Ask::Ping).is_ok());
        assert_eq!(met.count(), CLIENTS_PER_CONNECTION_MAX);
        assert_eq!(client.ask(last, 1, Ask::Ping), Err(Failure::TooManyClients));
        client.caller = Caller::default();
        assert_eq!(client.ask(7, 1, incr), answered, "as it was answered");
        for other in 1_000..=2 * last {
            if other % CLIENTS_PER_CONNECTION_MAX as u64 == 0 {
                client.caller = Caller::default();
            }
            assert_eq!(client.ask(other, 1, Ask::Ping), Ok(Vec::new()));
            // Idle ones are forgotten by when they last asked for a change.
            client.now += Nanos(1);
        }
        client.caller = Caller::default();
        assert_eq!(client.ask(7, 1, incr), Err(Failure::Stale), "nobody knows any more");
        assert_eq!(client.once(Ask::Get { key: b"n" }), answered, "it was not made again");
    }
}

/// A way to a service without a network, which may lose the reply to a request.
#[derive(Debug)]
struct Direct {
    service: Service,
    caller: Caller,
    replies: Vec<Vec<u8>>,
    loses_reply_to: Option<Method>,
    /// The server starts again, and has kept what it stored, once a reply was lost.
    restarts: bool,
}

impl Transport for Direct {
    fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        let (request, _) = Request::parse(request)?;
        let mut out = Vec::new();
        self.service.answer(&request, &mut self.caller, Time::ZERO, &mut out);
        if self.loses_reply_to == Some(request.ask.method()) {
            self.loses_reply_to = None;
            if self.restarts {
                self.restart();
            }
        } else {
            self.replies.push(out);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        _: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let reply = self.replies.pop();
        reply.iter().for_each(|reply| take(reply));
        Ok(reply.is_some())
    }

    fn renew(&mut self, _: Duration) -> Result<(), TransportError> {
        Ok(())
    }
}

impl Direct {
    fn restart(&mut self) {
        self.service = Service::new(Arc::clone(self.service.store()));
        self.caller = Caller::default();
    }
}

#[test]
fn a_client_that_was_forgotten_asks_again_what_came_once_and_nothing_else() {
    for store in stores(1 << 30) {
        let (caller, replies) = (Caller::default(), Vec::new());
        let (loses_reply_to, restarts) = (None, false);
        let service = Service::new(store);
        let direct = Direct { service, caller, replies, loses_reply_to, restarts };
        let config = ClientConfig { repeat_after: Duration::from_millis(1), ..Default::default() };
        let mut client = towpath_kv::client::Client::new(direct, config);
        assert_eq!(client.incr(b"n", 1).expect("a number"), 1);
        client.transport().restart();
        assert_eq!(client.incr(b"n", 1).expect("as another one"), 2);
        assert_eq!(client.stats().repeated, 0);
        client.transport().loses_reply_to = Some(Method::Incr);
        assert_eq!(client.incr(b"n", 1).expect("as it was answered"), 3);
        client.transport().loses_reply_to = Some(Method::Incr);
        client.transport().restarts = true;
        let told = client.incr(b"n", 1);
        assert!(matches!(told, Err(ClientError::Refused(Failure::Stale))), "{told:?}");
        assert_eq!(client.incr(b"n", 1).expect("as another one"), 5, "it was made once");
        client.transport().restart();
        client.transport().loses_reply_to = Some(Method::Ping);
        assert_eq!(client.incr(b"n", 1).expect("a greeting may be repeated"), 6);
    }
}
