//! Clients whose calls one thread carries on: each is answered as it is alone.

mod common;

use common::clients::{IMPATIENT, SOON};
use common::lossy::Lossy;
use common::seeds;
use common::serving::{LOCAL, SHARING, serve_shared, serve_tcp, service, shared, tcp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use towpath_kv::When;
use towpath_kv::client::{
    Client, ClientConfig, ClientError, Many, SharedLink, SharedTransport, Sign, Told, Transport,
    TransportError, Waiting, Watched,
};
use towpath_kv::limits::READ_BYTES;
use towpath_kv::wire::{Answer, Ask, Failure, Method, Reply, ReplyHead};

/// The number that all count up.
const ALL: &[u8] = b"all";

const ADD: Ask<'_> = Ask::Incr { key: ALL, by: 1 };

/// Repeats nothing within the time of a test: what comes unseen is missed.
const PATIENT: ClientConfig = ClientConfig {
    repeat_after: Duration::from_secs(600),
    repeat_least: None,
    timeout: Duration::from_secs(600),
};

/// A transport that fails as a test wants.
#[derive(Debug)]
struct Faulty {
    send: fn() -> Result<(), TransportError>,
    /// What comes, the last one again and again if `is_endless`.
    comes: VecDeque<Vec<u8>>,
    is_endless: bool,
    is_watched: bool,
    /// A watch fails.
    is_deaf: bool,
    /// How often another connection was made.
    renewed: Arc<AtomicUsize>,
}

impl Transport for Faulty {
    fn send(&mut self, _: &[u8]) -> Result<(), TransportError> {
        (self.send)()
    }

    fn receive(
        &mut self,
        _: Duration,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, TransportError> {
        let Some(reply) = self.comes.pop_front() else { return Ok(false) };
        take(&reply);
        if self.is_endless && self.comes.is_empty() {
            self.comes.push_back(reply);
        }
        Ok(true)
    }

    fn renew(&mut self, _: Duration) -> Result<(), TransportError> {
        self.renewed.fetch_add(1, Relaxed);
        Ok(())
    }
}

impl Watched for Faulty {
    /// Never raises it: nothing comes later.
    fn watch(&mut self, _: &Sign) -> Result<bool, TransportError> {
        if self.is_deaf {
            return gone();
        }
        Ok(!std::mem::replace(&mut self.is_watched, true))
    }
}

/// Sends well, and nothing comes.
fn mute() -> Faulty {
    let (comes, renewed) = (VecDeque::new(), Arc::default());
    let (is_endless, is_watched, is_deaf) = (false, false, false);
    Faulty { send: || Ok(()), comes, is_endless, is_watched, is_deaf, renewed }
}

fn gone<A>() -> Result<A, TransportError> {
    Err(TransportError::Gone(String::from("as the test wants")))
}

fn open(link: &Arc<SharedLink>) -> SharedTransport {
    SharedTransport::open(link, Waiting::Polling).expect("room")
}

fn many<T: Watched>(
    count: usize,
    config: ClientConfig,
    mut connect: impl FnMut(usize) -> T,
) -> Many<T> {
    let mut many = Many::new().expect("files");
    for number in 0..count {
        assert_eq!(many.add(Client::new(connect(number), config)), number);
    }
    many
}

/// What came of a call, whosever it was.
fn next<T: Watched>(many: &mut Many<T>) -> (usize, Result<Told, ClientError>) {
    many.wait(SOON).expect("the system tells").expect("in time")
}

/// Each adds one so many times; the sums that were told.
fn count<T: Watched>(many: &mut Many<T>, times: usize) -> Vec<i64> {
    let mut left = vec![times; many.len()];
    let mut sums = Vec::new();
    (0..many.len()).for_each(|number| assert!(many.start(number, ADD)));
    while sums.len() < times * many.len() {
        let (number, told) = next(many);
        let Told::Sum(sum) = told.expect("in time") else { panic!("no sum") };
        sums.push(sum);
        left[number] -= 1;
        if left[number] > 0 {
            assert!(many.start(number, ADD));
            assert!(!many.start(number, ADD), "one is under way");
        }
    }
    assert!(many.wait(Duration::ZERO).expect("the system tells").is_none(), "nobody asks");
    sums
}

/// Each sum once: no addition was left out, and none was made twice.
fn assert_each_once(mut sums: Vec<i64>, over: &str) {
    sums.sort_unstable();
    assert!(sums.iter().copied().eq(1..=sums.len() as i64), "over {over}: {sums:?}");
}

#[test]
fn all_clients_of_a_thread_have_a_call_under_way_and_each_is_answered() {
    let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    let mut clients = many(200, PATIENT, |_| tcp(addr, Waiting::Polling));
    assert_each_once(count(&mut clients, 20), "TCP");
    let (_server, addr) = serve_shared(&service(), (LOCAL, 0).into());
    let link = shared(addr);
    let mut clients = many(SHARING.into(), PATIENT, |_| open(&link));
    assert_each_once(count(&mut clients, 20), "a shared link");
    let stats = (0..clients.len()).filter_map(|number| clients.client(number)).map(Client::stats);
    assert!(stats.clone().all(|stats| stats.requests == 20 && stats.repeated == 0));
}

#[test]
fn those_that_sleep_in_their_sockets_are_answered_as_well() {
    let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    let mut clients = many(3, PATIENT, |_| tcp(addr, Waiting::Blocking));
    assert_each_once(count(&mut clients, 5), "TCP");
}

#[test]
fn what_is_lost_is_repeated_and_done_once_while_others_go_on() {
    let mut totals = [(0, 0); 2];
    let mut note = |over: usize, stats: towpath_kv::client::ClientStats| {
        totals[over].0 += stats.repeated;
        totals[over].1 += stats.renewed;
    };
    for seed in seeds(2) {
        let lossy_seed = |number: usize| seed << 16 | number as u64;
        let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
        let mut clients = many(16, IMPATIENT, |number| {
            Lossy::new(tcp(addr, Waiting::Polling), 0.05, lossy_seed(number))
        });
        assert_each_once(count(&mut clients, 40), "TCP");
        (0..16).for_each(|number| note(0, clients.client(number).expect("added").stats()));
        let (_server, addr) = serve_shared(&service(), (LOCAL, 0).into());
        let link = shared(addr);
        let mut clients =
            many(16, IMPATIENT, |number| Lossy::new(open(&link), 0.05, lossy_seed(number)));
        assert_each_once(count(&mut clients, 40), "a shared link");
        (0..16).for_each(|number| note(1, clients.client(number).expect("added").stats()));
    }
    for (repeated, renewed) in totals {
        assert!(repeated > 0 && renewed > 0, "{totals:?}");
    }
}

#[test]
fn they_find_a_server_that_was_away() {
    // They hear that it went while nobody asks, or when somebody does.
    for is_idle in [true, false] {
        let service = service();
        let (server, addr) = serve_tcp(&service, (LOCAL, 0).into());
        let mut clients = many(5, PATIENT, |_| tcp(addr, Waiting::Polling));
        let mut sums = count(&mut clients, 1);
        server.stop().expect("no thread failed");
        let pause = Duration::from_millis(20);
        if is_idle {
            assert!(clients.wait(pause).expect("the system tells").is_none());
        }
        assert!((0..5).all(|number| clients.start(number, ADD)));
        assert!(clients.wait(pause).expect("the system tells").is_none());
        let (_server, _) = serve_tcp(&service, addr);
        for _ in 0..5 {
            let Ok(Told::Sum(sum)) = next(&mut clients).1 else { panic!("no sum") };
            sums.push(sum);
        }
        assert_each_once(sums, "TCP");
        assert!((0..5).all(|number| clients.client(number).expect("added").stats().renewed > 0));
    }
}

#[test]
fn without_a_server_each_call_ends_when_its_time_is_over() {
    let config = ClientConfig { timeout: Duration::from_millis(300), ..IMPATIENT };
    let (server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    let mut clients = many(4, config, |_| tcp(addr, Waiting::Polling));
    server.stop().expect("no thread failed");
    assert!((0..4).all(|number| clients.start(number, ADD)));
    let mut found: Vec<usize> = (0..4)
        .map(|_| {
            let (number, told) = next(&mut clients);
            assert!(matches!(told, Err(ClientError::TimedOut(_))), "{told:?}");
            number
        })
        .collect();
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 3]);
}

#[test]
fn values_longer_than_what_is_read_at_a_time_come_whole() {
    let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    let mut clients = many(4, PATIENT, |_| tcp(addr, Waiting::Polling));
    for bytes in [READ_BYTES - 24, READ_BYTES, 2 * READ_BYTES - 24, 7 * READ_BYTES] {
        let value = vec![9; bytes];
        let set = Ask::Set { key: b"long", value: &value, when: When::Always, expire_ms: 0 };
        assert!(clients.start(0, set));
        assert!(matches!(next(&mut clients), (0, Ok(Told::Done))));
        assert!((0..4).all(|number| clients.start(number, Ask::Get { key: b"long" })));
        for _ in 0..4 {
            assert_eq!(next(&mut clients).1.expect("in time"), Told::Value(value.clone()));
        }
    }
    assert!(clients.start(3, Ask::Get { key: b"none" }));
    let (number, told) = next(&mut clients);
    assert!(number == 3 && matches!(told, Err(ClientError::Refused(Failure::NoKey))));
    assert!(!clients.start(4, ADD), "there are four");
}

#[test]
fn no_connection_is_tried_for_a_call_whose_time_is_over() {
    let renewed = Arc::new(AtomicUsize::new(0));
    let config = ClientConfig { timeout: Duration::ZERO, ..PATIENT };
    let mut client =
        Client::new(Faulty { send: gone, renewed: Arc::clone(&renewed), ..mute() }, config);
    for _ in 0..3 {
        assert!(matches!(client.ping(), Err(ClientError::TimedOut(_))));
    }
    assert_eq!(renewed.load(Relaxed), 0);
}

/// The reply to a client's first request, a PING.
fn pong(client: u64) -> Vec<u8> {
    let head = ReplyHead { client, sequence: 1, method: Method::Ping };
    let mut bytes = Vec::new();
    Reply { head, answer: Ok(Answer::Done) }.emit(&mut bytes);
    bytes
}

#[test]
fn a_server_that_sends_what_nobody_asked_for_holds_nobody() {
    let liar = || Faulty { comes: [pong(1)].into(), is_endless: true, ..mute() };
    let config = ClientConfig { timeout: Duration::from_millis(20), ..PATIENT };
    let mut client = Client::with_number(liar(), config, 7);
    assert!(matches!(client.ping(), Err(ClientError::TimedOut(_))));
    let (_server, addr) = serve_tcp(&service(), (LOCAL, 0).into());
    let mut clients = Many::<Box<dyn Watched>>::new().expect("files");
    clients.add(Client::with_number(Box::new(liar()), PATIENT, 7));
    clients.add(Client::new(Box::new(tcp(addr, Waiting::Polling)), PATIENT));
    assert!(clients.start(0, Ask::Ping));
    for sum in 1..=100 {
        assert!(clients.start(1, ADD));
        let (number, told) = next(&mut clients);
        assert_eq!((number, told.expect("in time")), (1, Told::Sum(sum)));
    }
    assert!(clients.wait(Duration::from_millis(1)).expect("the system tells").is_none());
}

#[test]
fn the_reply_is_found_behind_many_that_nobody_asked_for() {
    let mut comes = VecDeque::from(vec![pong(1); 1000]);
    comes.push_back(pong(7));
    let transport = Faulty { comes, ..mute() };
    let mut clients = Many::new().expect("files");
    clients.add(Client::with_number(transport, PATIENT, 7));
    assert!(clients.start(0, Ask::Ping));
    assert!(matches!(next(&mut clients), (0, Ok(Told::Done))));
    assert_eq!(clients.client(0).expect("added").stats().stray, 1000);
}

/// The pauses before them, from 1 ms on and each twice as long, have no room in the call's time.
#[test]
fn connections_that_fail_at_once_are_few() {
    let config = ClientConfig { timeout: Duration::from_millis(200), ..PATIENT };
    for faulty in [Faulty { is_deaf: true, ..mute() }, Faulty { send: gone, ..mute() }] {
        let renewed = Arc::clone(&faulty.renewed);
        let mut clients = Many::new().expect("files");
        clients.add(Client::new(faulty, config));
        assert!(clients.start(0, ADD));
        let (_, told) = next(&mut clients);
        assert!(matches!(told, Err(ClientError::TimedOut(Some(_)))), "{told:?}");
        let renewed = renewed.load(Relaxed);
        assert!(renewed <= 9, "{renewed}");
    }
}

#[test]
fn a_call_that_ends_as_it_begins_is_told_before_the_next_one() {
    let send = || Err(TransportError::TooLong { bytes: 2, max: 1 });
    let mut clients = Many::new().expect("files");
    clients.add(Client::new(Faulty { send, ..mute() }, PATIENT));
    for _ in 0..2 {
        assert!(clients.start(0, ADD));
        assert!(!clients.start(0, ADD), "it was not told");
        let (_, told) = next(&mut clients);
        assert!(matches!(told, Err(ClientError::TooLong { bytes: 2, max: 1 })), "{told:?}");
        assert!(clients.wait(Duration::ZERO).expect("the system tells").is_none());
    }
}
