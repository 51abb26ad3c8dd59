//! An rpc client and a slow service in virtual time, over a wire with faults, and a book of what
//! the service did.

mod service;

use service::Service;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_lab::app::GiveUpLog;
use towpath_proto::{LinkCensus, Side};
use towpath_rpc::{Call, Completion, Fate, Outgoing, RequestId, RpcClient, RpcError, ServerStats};
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};
use towpath_transport::{ChannelId, Endpoint, EndpointConfig, Event, LinkId};

type Device = RoceDevice<FaultLink<VirtualLink>>;

/// Requests under way at a time.
const DEPTH: usize = 48;

/// Steps of one run after which it counts as stuck: a request takes some dozens.
const STEPS_MAX: u64 = 20_000_000;

/// What a run did.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) answered: u64,
    pub(crate) happened: u64,
    pub(crate) not_happened: u64,
    pub(crate) unknown: u64,
    pub(crate) server: ServerStats,
    pub(crate) packets_lost: u64,
    pub(crate) log: GiveUpLog,
}

/// A request that has no completion yet.
struct Out {
    id: RequestId,
    cancel_at: Time,
    deadline: Time,
    /// When it was cancelled, if it was.
    cancelled_at: Option<Time>,
    ask_fate: bool,
}

pub(crate) struct Rig {
    world: World,
    controls: [FaultControl; 2],
    client: Endpoint<Device>,
    server: Endpoint<Device>,
    links: [LinkId; 2],
    rpc: RpcClient,
    service: Service,
    prng: Prng,
    out: BTreeMap<u64, Out>,
    next_token: u64,
    /// What each caller was told: done, not done, or neither.
    told: Vec<Option<Fate>>,
    report: Report,
}

fn draw_faults(prng: &mut Prng) -> FaultPlan {
    let us = Nanos::from_micros;
    let mut up_to = |most: f64| most * prng.unit();
    let (drop, duplicate, reorder, late) = (up_to(0.03), up_to(0.03), up_to(0.03), up_to(0.02));
    FaultPlan::none().drop(drop).duplicate(duplicate, us(200)).reorder(reorder, 5, us(50)).late(
        late,
        us(20),
        us(2_000),
    )
}

fn end(world: &World, link: VirtualLink, seed: u64, control: &FaultControl) -> Endpoint<Device> {
    let link = FaultLink::new(link, world.next_seed(), control.clone());
    let device = RoceDevice::new(link, RoceConfig::default().seed(seed));
    let config = EndpointConfig::new().seed(seed).links_max(1).send_pools(&[
        (256, 512),
        (4096, 128),
        (128 << 10, 128),
    ]);
    Endpoint::new(device, config).expect("an endpoint")
}

impl Rig {
    pub(crate) fn new(seed: u64) -> Self {
        let mut prng = Prng::new(seed);
        let world = World::new(seed);
        let addr = |last: u8| SocketAddr::from(([10, 0, 0, last], 4791));
        let wire = LinkConfig {
            addrs: [addr(1), addr(2)],
            delay: Nanos(prng.between(500, 10_000)),
            ..LinkConfig::default()
        };
        let controls = [(); 2].map(|()| FaultControl::new(FaultPlan::none()));
        let (near, far) = world.link(&wire);
        let mut client = end(&world, near, 2 * seed, &controls[0]);
        let mut server = end(&world, far, 2 * seed + 1, &controls[1]);
        let (near_hello, near_half) = client.offer().expect("room for a link");
        let (far_hello, far_half) = server.offer().expect("room for a link");
        let links = [
            client.establish(near_half, &far_hello, Side::Client).expect("they fit"),
            server.establish(far_half, &near_hello, Side::Server).expect("they fit"),
        ];
        let channel = client.open_channel(links[0], false).expect("a fresh link has room");
        let mut rig = Self {
            rpc: RpcClient::new(links[0], channel),
            service: Service::new(prng.next_u64()),
            world,
            controls,
            client,
            server,
            links,
            prng,
            out: BTreeMap::new(),
            next_token: 0,
            told: Vec::new(),
            report: Report::default(),
        };
        rig.open(channel);
        rig
    }

    fn open(&mut self, channel: ChannelId) {
        for _ in 0..10_000 {
            self.server.turn(|_, _| {});
            let mut is_open = false;
            self.client.turn(|_, event| {
                is_open |=
                    matches!(event, Event::ChannelOpened { channel: of, .. } if of == channel);
            });
            if is_open {
                return;
            }
            self.advance();
        }
        panic!("no channel");
    }

    /// Sends `requests`, gives most of them up, and compares what was said with what was done.
    pub(crate) fn run(mut self, requests: u64) -> Result<Report, String> {
        for control in self.controls.clone() {
            control.set_receive(draw_faults(&mut self.prng));
        }
        let mut steps = 0;
        while self.next_token < requests || !self.is_at_rest() {
            self.turn(requests)?;
            self.advance();
            steps += 1;
            if steps > STEPS_MAX {
                return Err(format!("no end: {:?} {:?}", self.rpc, self.service));
            }
        }
        self.compare()?;
        self.check_nothing_left()?;
        self.serve_one_more()?;
        self.report.server = self.service.rpc.stats();
        let faults = self.controls[0].counters().plus(self.controls[1].counters());
        self.report.packets_lost = faults.lost();
        Ok(self.report)
    }

    fn is_at_rest(&self) -> bool {
        self.out.is_empty()
            && self.rpc.held() == 0
            && self.service.is_at_rest()
            && self.client.is_idle(self.links[0])
            && self.server.is_idle(self.links[1])
    }

    fn turn(&mut self, requests: u64) -> Result<(), String> {
        let Self { client, server, rpc, service, .. } = self;
        service.turn(server);
        client.poll();
        while let Some(event) = client.next_event() {
            drop(rpc.on_event(client, event));
        }
        rpc.expire(client);
        while let Some(completion) = self.rpc.poll() {
            self.end(completion)?;
        }
        let now = self.world.now();
        for out in self.out.values_mut().filter(|out| out.cancel_at <= now) {
            (out.cancel_at, out.cancelled_at) = (Time::NEVER, Some(now));
            self.rpc.cancel(&mut self.client, out.id);
        }
        while self.out.len() < DEPTH && self.next_token < requests && self.call() {}
        self.client.flush();
        Ok(())
    }

    /// False when there is no room now.
    fn call(&mut self) -> bool {
        let (token, now) = (self.next_token, self.world.now());
        let prng = &mut self.prng;
        let data_bytes = if prng.chance(0.5) { prng.below(60_000) as usize } else { 0 };
        let moment = |prng: &mut Prng, least| {
            let bits = prng.between(least, 21);
            Nanos(prng.below(1 << bits))
        };
        let deadline = now + moment(prng, 14) + Nanos(1);
        let cancels = prng.chance(0.5);
        let cancel_at = if cancels { now + moment(prng, 8) } else { Time::NEVER };
        let ask_fate = prng.chance(0.7);
        let Ok(mut outgoing) = Outgoing::new(&self.client, 8, data_bytes) else { return false };
        outgoing.extend(&token.to_le_bytes()).expect("room for a number");
        if data_bytes > 0 {
            let Ok(mut data) = self.client.alloc(data_bytes) else { return false };
            data.set_len(data_bytes).expect("room");
            outgoing.set_data(data);
        }
        let call = Call { method: 1, token, deadline, ask_fate };
        let Ok(id) = self.rpc.call(&mut self.client, call, outgoing) else { return false };
        self.out.insert(token, Out { id, cancel_at, deadline, cancelled_at: None, ask_fate });
        self.next_token += 1;
        self.told.push(None);
        true
    }

    fn end(&mut self, completion: Completion) -> Result<(), String> {
        let Completion { token, result, .. } = completion;
        let Some(out) = self.out.remove(&token) else {
            return Err(format!("request {token} ended twice"));
        };
        let now = self.world.now();
        let fate = match result {
            Ok(response) => {
                self.report.answered += 1;
                let fate = response.header().status.fate();
                self.client.release(response.into_message());
                // The service said that it failed, and that it changed nothing.
                if fate == Fate::Unknown { Fate::DidNotHappen } else { fate }
            }
            Err(RpcError::TimedOut { fate } | RpcError::Cancelled { fate }) => {
                let given_up_at = out.cancelled_at.unwrap_or(out.deadline);
                if out.ask_fate {
                    self.report.log.latencies.push(now.since(given_up_at));
                    *match fate {
                        Fate::Happened => &mut self.report.happened,
                        Fate::DidNotHappen => &mut self.report.not_happened,
                        Fate::Unknown => &mut self.report.unknown,
                    } += 1;
                }
                fate
            }
            Err(other) => return Err(format!("request {token}: {other}")),
        };
        self.told[token as usize] = Some(fate);
        Ok(())
    }

    /// Whether what was said is what was done.
    fn compare(&self) -> Result<(), String> {
        for (token, told) in self.told.iter().enumerate() {
            let done = self.service.done(token as u64);
            let fits = match told {
                Some(Fate::Happened) => done == 1,
                Some(Fate::DidNotHappen) => done == 0,
                Some(Fate::Unknown) => done <= 1,
                None => false,
            };
            if !fits {
                return Err(format!("request {token} was done {done} times, and said: {told:?}"));
            }
        }
        Ok(())
    }

    /// With the link up and at rest: no buffer, no credit, no request, no state anywhere.
    fn check_nothing_left(&self) -> Result<(), String> {
        let ends = [(&self.client, self.links[0]), (&self.server, self.links[1])];
        let census = ends.map(|(endpoint, link)| endpoint.link_census(link).unwrap_or_default());
        for (end, (endpoint, _)) in ends.into_iter().enumerate() {
            let (link, peer) = (census[end], census[1 - end]);
            let clean = LinkCensus {
                channels: 1,
                credit_used_total: link.credit_used_total,
                credit_taken_total: peer.credit_used_total,
                sent_ids_total: link.sent_ids_total,
                ended_ids_total: peer.sent_ids_total,
                ..LinkCensus::default()
            };
            let buffers = endpoint.buffers();
            let held = buffers.recv_all - buffers.recv_posted - buffers.recv_free;
            if link != clean || held > 0 || buffers.send_free != buffers.send_all {
                return Err(format!("end {end} holds {link:?} and {buffers:?}"));
            }
        }
        Ok(())
    }

    /// The link carries requests as before.
    fn serve_one_more(&mut self) -> Result<(), String> {
        let token = self.next_token;
        let mut outgoing = Outgoing::new(&self.client, 8, 0).map_err(|error| error.to_string())?;
        outgoing.extend(&token.to_le_bytes()).map_err(|error| error.to_string())?;
        let deadline = self.world.now() + Nanos::from_secs(10);
        let call = Call { method: 1, token, deadline, ask_fate: true };
        let id = self.rpc.call(&mut self.client, call, outgoing).map_err(|e| e.to_string())?;
        let answered = self.report.answered;
        let (cancel_at, cancelled_at) = (Time::NEVER, None);
        self.out.insert(token, Out { id, cancel_at, deadline, cancelled_at, ask_fate: true });
        self.told.push(None);
        while !self.out.is_empty() {
            self.turn(0)?;
            self.advance();
        }
        let fine = self.report.answered == answered + 1;
        if fine { Ok(()) } else { Err("the link is not as good as new".to_owned()) }
    }

    /// Lets time go on to what is due next.
    fn advance(&mut self) {
        let released = |end: &Endpoint<Device>| end.device().link().next_release();
        let arrives = self.world.next_event_time();
        let cancels = self.out.values().map(|out| out.cancel_at).min();
        let times = [released(&self.client), released(&self.server), arrives, cancels];
        let next = self.client.next_timeout().min(self.server.next_timeout());
        let next = next.min(self.rpc.next_deadline()).min(self.service.next_time());
        let next = times.into_iter().flatten().fold(next, Time::min);
        let now = self.world.now();
        // Whatever is due and cannot be done yet waits for something else to happen.
        let next = if next == Time::NEVER { now + Nanos::from_micros(10) } else { next };
        self.world.advance_to(next.max(now + Nanos(1)));
    }
}
