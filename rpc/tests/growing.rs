//! Requests that are sent before their data is there, and such that go on while they come.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use towpath_base::passes::{Counts, Pass};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::Side;
use towpath_rpc::{
    Call, CallError, Completion, Fate, Head, Incoming, Outgoing, Piece, RequestId, RequestKey,
    Responder, RpcClient, RpcError, RpcServer, ServerConfig, Status, Streamed,
};
use towpath_sim::{FaultPlan, HostConfig, SwitchConfig, VirtualLink, World};
use towpath_transport::{
    BufferCensus, Endpoint, EndpointConfig, Event, Nanos, SupplyError, SupplyFault, Time,
};

type End = Endpoint<RoceDevice<VirtualLink>>;

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    towpath_base::Prng::new(seed).fill(&mut bytes);
    bytes
}

fn is_home(census: BufferCensus) -> bool {
    let all_received = census.recv_posted + census.recv_free == census.recv_all;
    all_received && census.send_free == census.send_all
}

/// A request that the second has begun to pass on.
struct Onward {
    responder: Option<Responder>,
    /// The request to the third; none where it did not take it, or has answered.
    request: Option<RequestId>,
    /// What is staged here meanwhile.
    staged: Vec<Piece>,
    is_whole: bool,
}

/// The second: it serves the first, and is a client of the third.
struct Relay {
    rpc: RpcClient,
    serving: RpcServer,
    under_way: HashMap<RequestKey, Onward>,
    answers: HashMap<RequestId, (RequestKey, Status)>,
    by_request: HashMap<RequestId, RequestKey>,
    /// Pieces that came when their request to the third had ended.
    late: usize,
    has_last: bool,
}

impl Relay {
    fn on_event(&mut self, end: &mut End, event: Event) {
        let Some(event) = self.rpc.on_event(end, event) else { return };
        let mut next = self.serving.on_event(end, event);
        while let Some(incoming) = next {
            match incoming {
                Incoming::Streamed(streamed) => self.on_streamed(end, streamed),
                Incoming::Request(_) => panic!("requests are longer than what one turn takes in"),
                Incoming::Cancelled { request, .. } => {
                    let onward = self.under_way.remove(&request);
                    let onward = onward.and_then(|onward| onward.request);
                    onward.into_iter().for_each(|onward| self.rpc.cancel(end, onward));
                }
                Incoming::Other(_) => {}
            }
            next = self.serving.next_incoming();
        }
    }

    fn on_streamed(&mut self, end: &mut End, streamed: Streamed) {
        match streamed {
            Streamed::Begun(head) => self.begin(end, head),
            Streamed::Data { request, offset, piece } => {
                let Some(onward) = self.under_way.get_mut(&request) else { return };
                let (crcs, place) = (piece.page_crcs().iter().copied().collect(), piece.as_ptr());
                let (piece, shared) = piece.share();
                let shared = shared.expect("data has a segment of its own");
                assert_eq!(shared.as_ptr(), place);
                onward.staged.push(piece);
                let Some(to) = onward.request else { return self.late += 1 };
                if let Err(no) = self.rpc.supply_with_crcs(end, to, offset, shared, crcs) {
                    assert_eq!(no.error, SupplyFault::Refused(SupplyError::Ended));
                    self.late += 1;
                }
            }
            Streamed::Whole { request } => {
                self.has_last = true;
                if let Some(onward) = self.under_way.get_mut(&request) {
                    onward.is_whole = true;
                }
            }
            Streamed::Broken { request } => {
                let onward = self.under_way.remove(&request).and_then(|onward| onward.request);
                onward.into_iter().for_each(|onward| self.rpc.cancel(end, onward));
            }
        }
    }

    fn begin(&mut self, end: &mut End, head: Head) {
        let key = head.request_key();
        let call =
            Call { method: head.method(), token: 0, deadline: head.deadline(), ask_fate: true };
        let out = Outgoing::with_body(end, head.body()).expect("a buffer");
        let request = self.rpc.call_growing(end, call, out, head.data_len() as u32).ok();
        if let Some(request) = request {
            self.by_request.insert(request, key);
        }
        let responder = Some(head.into_responder());
        let onward = Onward { responder, request, staged: Vec::new(), is_whole: false };
        self.under_way.insert(key, onward);
    }

    /// Answers what has its answer from the third, once it is whole here or refused there.
    fn answer(&mut self, end: &mut End) {
        self.rpc.expire(end);
        while let Some(Completion { request, result, .. }) = self.rpc.poll() {
            let status = match result {
                Ok(parcel) => {
                    let status = parcel.header().status;
                    end.release(parcel.into_message());
                    status
                }
                Err(_) => Status(70),
            };
            if let Some(&key) = self.by_request.get(&request) {
                self.answers.insert(request, (key, status));
            }
        }
        let under_way = &mut self.under_way;
        let serving = &mut self.serving;
        self.answers.retain(|_, (key, status)| {
            let Some(onward) = under_way.get_mut(key) else { return false };
            onward.request = None;
            if *status == Status::OK && !onward.is_whole {
                return true;
            }
            if let Some(responder) = onward.responder.take() {
                serving.respond_status(end, responder, *status);
            }
            under_way.remove(key);
            false
        });
    }
}

/// Pieces of data, and where they begin.
type Pieces = Vec<(usize, Piece)>;

/// The third.
struct Last {
    serving: RpcServer,
    /// What was received of each request, where it came; and its head.
    open: HashMap<RequestKey, (Head, Pieces)>,
    whole: Vec<(Vec<u8>, Pieces)>,
    answer: Answer,
    broken: usize,
    is_ahead: bool,
}

/// When the third answers.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Whole,
    /// At the first piece of data.
    Early(Status),
    Never,
}

impl Last {
    fn on_event(&mut self, end: &mut End, event: Event, relay: &Relay) {
        let mut next = self.serving.on_event(end, event);
        while let Some(incoming) = next {
            if let Incoming::Streamed(streamed) = incoming {
                self.on_streamed(end, streamed, relay);
            }
            next = self.serving.next_incoming();
        }
    }

    fn on_streamed(&mut self, end: &mut End, streamed: Streamed, relay: &Relay) {
        match streamed {
            Streamed::Begun(head) => {
                self.open.insert(head.request_key(), (head, Vec::new()));
            }
            Streamed::Data { request, offset, piece } => {
                self.is_ahead |= !relay.has_last;
                if let Some((_, pieces)) = self.open.get_mut(&request) {
                    pieces.push((offset, piece));
                }
                if let Answer::Early(status) = self.answer
                    && let Some((head, _)) = self.open.remove(&request)
                {
                    self.serving.respond_status(end, head.into_responder(), status);
                }
            }
            Streamed::Whole { request } => {
                let Some((head, pieces)) = self.open.remove(&request) else { return };
                self.whole.push((head.body().to_vec(), pieces));
                if self.answer == Answer::Whole {
                    self.serving.respond_status(end, head.into_responder(), Status::OK);
                }
            }
            Streamed::Broken { request } => {
                self.broken += usize::from(self.open.remove(&request).is_some());
            }
        }
    }
}

/// Passes are counted for the whole process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

struct Chain {
    _turn: MutexGuard<'static, ()>,
    world: World,
    ends: [Option<End>; 3],
    rpc: RpcClient,
    completions: Vec<Completion>,
    relay: Relay,
    last: Last,
}

impl Chain {
    fn new(seed: u64, plan: &FaultPlan) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let world = World::new(seed);
        let switch = world.add_switch(&SwitchConfig::default());
        let mut ends = [0, 1, 2].map(|number| {
            let host = world.add_host(switch, &HostConfig::default());
            for wire in [world.cable(host).forth(), world.cable(host).back()] {
                world.set_faults(wire, plan.clone());
            }
            let device =
                RoceDevice::new(world.end(host), RoceConfig::default().seed(seed + number));
            let config = EndpointConfig::new().links_max(2).pieces_as_they_come(true);
            let config = config.tune_links(|link| link.peer_timeout(Nanos::from_millis(200)));
            Endpoint::new(device, config.seed(seed + number)).expect("an endpoint")
        });
        let mut join = |near: usize, far: usize| {
            let (near_hello, near_half) = ends[near].offer().expect("room");
            let (far_hello, far_half) = ends[far].offer().expect("room");
            let link = ends[near].establish(near_half, &far_hello, Side::Client).expect("they fit");
            ends[far].establish(far_half, &near_hello, Side::Server).expect("they fit");
            let channel = ends[near].open_channel(link, false).expect("room for a channel");
            let mut rpc = RpcClient::new(link, channel);
            rpc.set_longest_request(2 << 20);
            rpc
        };
        let (rpc, onward) = (join(0, 1), join(1, 2));
        let serving = || RpcServer::new(ServerConfig::new().streams(true));
        let relay = Relay {
            rpc: onward,
            serving: serving(),
            under_way: HashMap::new(),
            answers: HashMap::new(),
            by_request: HashMap::new(),
            late: 0,
            has_last: false,
        };
        let last = Last {
            serving: serving(),
            open: HashMap::new(),
            whole: Vec::new(),
            answer: Answer::Whole,
            broken: 0,
            is_ahead: false,
        };
        let (ends, completions) = (ends.map(Some), Vec::new());
        let mut chain = Self { _turn: turn, world, ends, rpc, completions, relay, last };
        // Until the channels are open.
        let start = chain.world.now();
        chain.until(|chain| chain.world.now() > start + Nanos::from_millis(5));
        chain
    }

    fn turn(&mut self) {
        let Self { ends: [first, second, third], rpc, completions, relay, last, .. } = self;
        let mut busy = first.as_mut().is_some_and(|end| {
            let busy = end.turn(|end, event| drop(rpc.on_event(end, event)));
            rpc.expire(end);
            completions.extend(std::iter::from_fn(|| rpc.poll()));
            busy
        });
        busy |= second.as_mut().is_some_and(|end| {
            let busy = end.turn(|end, event| relay.on_event(end, event));
            relay.answer(end);
            end.flush();
            busy
        });
        busy |= third
            .as_mut()
            .is_some_and(|end| end.turn(|end, event| last.on_event(end, event, relay)));
        if !busy {
            let timers = self.ends.iter().flatten().map(Endpoint::next_timeout);
            let due = [self.rpc.next_deadline(), self.relay.rpc.next_deadline()];
            let now = self.world.now();
            let next = timers.chain(self.world.next_event_time()).chain(due);
            let next = next.fold(now + Nanos::from_millis(1), Time::min);
            assert!(now < Time(60_000_000_000), "it would never happen");
            self.world.advance_to(next.max(now + Nanos(1)));
        }
    }

    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) {
            self.turn();
        }
    }

    fn call(&mut self, body: &[u8], data: &[u8]) -> RequestId {
        let end = self.ends[0].as_mut().expect("it lives");
        let mut out = Outgoing::with_body(end, body).expect("a buffer");
        out.set_data(end.copy(data).expect("a buffer"));
        let deadline = end.now() + Nanos::from_secs(10);
        let call = Call { method: 5, token: 0, deadline, ask_fate: true };
        self.rpc.call(end, call, out).expect("room for a request")
    }

    /// Begins a request of the second's own, of which the data comes later.
    fn begin(&mut self, later: u32, deadline_ms: u64) -> RequestId {
        let end = self.ends[1].as_mut().expect("it lives");
        let out = Outgoing::with_body(end, b"body").expect("a buffer");
        let deadline = end.now() + Nanos::from_millis(deadline_ms);
        let call = Call { method: 6, token: 0, deadline, ask_fate: true };
        self.relay.rpc.call_growing(end, call, out, later).expect("room for a request")
    }

    fn supply(&mut self, request: RequestId, offset: usize, bytes: &[u8]) -> Option<SupplyFault> {
        let end = self.ends[1].as_mut().expect("it lives");
        let piece = end.copy(bytes).expect("a buffer");
        let taken = self.relay.rpc.supply(end, request, offset, piece);
        end.flush();
        taken.err().map(|rejected| rejected.error)
    }

    /// The completion of a request of the second's own.
    fn completion(&mut self) -> Completion {
        for _ in 0..100_000 {
            let Self { ends: [_, Some(second), Some(third)], relay, last, world, .. } = self else {
                panic!("two live")
            };
            second.turn(|end, event| relay.on_event(end, event));
            relay.rpc.expire(second);
            third.turn(|end, event| last.on_event(end, event, relay));
            if let Some(completion) = relay.rpc.poll() {
                return completion;
            }
            world.advance_to(world.now() + Nanos::from_micros(20));
        }
        panic!("no completion");
    }

    fn all_home(&self) -> bool {
        self.ends.iter().flatten().all(|end| is_home(end.buffers()))
    }

    /// Passes requests on, and compares what arrives; nothing is held when it returns. How many
    /// bytes of data there were.
    fn pass_on(&mut self, seed: u64) -> u64 {
        let data: Vec<_> =
            (0..6).map(|at| pattern(1_000_000 + at * 4_321, seed + at as u64)).collect();
        for (number, data) in data.iter().enumerate() {
            self.call(&[number as u8; 100], data);
        }
        self.until(|chain| chain.completions.len() == 6);
        for Completion { result, .. } in self.completions.drain(..) {
            let parcel = result.expect("a response");
            assert_eq!(parcel.header().status, Status::OK);
            let end = self.ends[0].as_mut().expect("it lives");
            end.release(parcel.into_message());
        }
        for (body, mut pieces) in self.last.whole.drain(..) {
            let data = &data[usize::from(body[0])];
            pieces.sort_by_key(|(offset, _)| *offset);
            let mut end = 0;
            for (offset, piece) in &pieces {
                assert!(*offset == end && data[end..].starts_with(piece), "at {offset}");
                end += piece.len();
            }
            assert_eq!(end, data.len());
        }
        self.until(Self::all_home);
        data.iter().map(|data| data.len() as u64).sum()
    }
}

#[test]
fn a_request_goes_on_without_a_copy_while_it_comes_and_is_staged() {
    let us = Nanos::from_micros;
    let none = FaultPlan::none();
    let bad = FaultPlan::none().drop(0.02).duplicate(0.01, us(500)).reorder(0.02, 8, us(200));
    for seed in 0..8 {
        println!("seed {seed}");
        let is_bad = seed > 1;
        let mut chain = Chain::new(seed, if is_bad { &bad } else { &none });
        chain.pass_on(seed);
        // Windows are wide by now, so that pieces go whole.
        let before = Counts::now();
        let bytes = chain.pass_on(seed + 100);
        let copied = Counts::now().since(&before).of(Pass::Copy);
        // The first copies the data to where it sends it from; beside that there are heads.
        let is_few = copied < bytes + (8 << 10);
        assert!(is_few || is_bad, "{copied} bytes were copied of {bytes}");
        assert!(chain.last.is_ahead || is_bad, "some is there before the second has all");
        assert_eq!(chain.relay.late, 0);
    }
}

#[test]
fn when_either_side_of_a_relay_dies_everything_comes_home() {
    for seed in 0..8 {
        println!("seed {seed}");
        for dies in [0, 2] {
            let mut chain = Chain::new(seed, &FaultPlan::none());
            chain.call(b"body", &pattern(1_000_000, seed));
            let pieces = 1 + seed as usize;
            chain.until(|chain| chain.last.open.values().any(|(_, got)| got.len() >= pieces));
            chain.ends[dies] = None;
            if dies == 0 {
                chain.until(|chain| chain.relay.under_way.is_empty() && chain.last.broken == 1);
            } else {
                chain.last.open.clear();
                chain.until(|chain| !chain.completions.is_empty());
                let result = &chain.completions[0].result;
                let parcel = result.as_ref().expect("the second answers");
                assert_eq!(parcel.header().status, Status(70));
                chain.completions.clear();
            }
            chain.until(Chain::all_home);
        }
    }
}

#[test]
fn an_answer_before_all_data_is_given_ends_the_request_and_the_rest_is_refused() {
    for status in [Status(77), Status::OK] {
        let mut chain = Chain::new(1, &FaultPlan::none());
        chain.last.answer = Answer::Early(status);
        // Its deadline is behind the end of the test.
        let request = chain.begin(200_000, 100_000);
        assert_eq!(chain.supply(request, 0, &pattern(65_536, 1)), None);
        let parcel = chain.completion().result.expect("a response");
        assert_eq!(parcel.header().status, status);
        drop(parcel);
        let ended = Some(SupplyFault::Refused(SupplyError::Ended));
        assert_eq!(chain.supply(request, 65_536, &pattern(65_536, 1)), ended);
        chain.until(Chain::all_home);
        assert_eq!((chain.relay.rpc.held(), chain.last.serving.under_way()), (0, 0));
    }
}

#[test]
fn a_request_whose_data_does_not_come_is_given_up_and_did_not_happen() {
    for cancels in [false, true] {
        let mut chain = Chain::new(2, &FaultPlan::none());
        let request = chain.begin(200_000, 50);
        assert_eq!(chain.supply(request, 131_072, &pattern(40_000, 1)), None);
        if cancels {
            let end = chain.ends[1].as_mut().expect("it lives");
            chain.relay.rpc.cancel(end, request);
        }
        let error = chain.completion().result.expect_err("not whole");
        let fate = Fate::DidNotHappen;
        assert_eq!(
            error,
            if cancels { RpcError::Cancelled { fate } } else { RpcError::TimedOut { fate } }
        );
        chain.until(|chain| chain.all_home() && chain.last.open.is_empty());
    }
}

#[test]
fn data_comes_later_or_with_the_request_and_not_both() {
    let mut chain = Chain::new(3, &FaultPlan::none());
    chain.last.answer = Answer::Never;
    let end = chain.ends[1].as_mut().expect("it lives");
    let mut out = Outgoing::with_body(end, b"body").expect("a buffer");
    out.set_data(end.copy(b"data").expect("a buffer"));
    let call =
        Call { method: 1, token: 0, deadline: end.now() + Nanos(1_000_000), ask_fate: false };
    let refused = chain.relay.rpc.call_growing(end, call, out, 100).expect_err("it has data");
    assert_eq!(refused.error, CallError::HasData);
    assert!(refused.outgoing.is_some());
}
