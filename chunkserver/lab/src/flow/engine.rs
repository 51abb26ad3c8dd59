//! The events, in the order of time; those of one time in the order in which they were made.

use super::plan::{Ack, Granule, Plan, Ps};
use super::port::{Job, Lane, Part, Pool};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a node has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSeen {
    /// Bytes of data that it received.
    pub data_in: u64,
    /// Bytes of data that it sent.
    pub data_out: u64,
    /// Bytes that it sent, headers and acknowledgements included.
    pub wire_out: u64,
    /// How long its port was busy sending.
    pub sending: Ps,
    /// Body jobs, and how long they had a unit, all together.
    pub bodies: u64,
    /// See `bodies`.
    pub bodies_took: Ps,
}

/// What came of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When the client had the last acknowledgement of each group; `None` if it never came.
    pub finished: Vec<Option<Ps>>,
    /// Each node.
    pub nodes: Vec<NodeSeen>,
    /// When the bytes of each body job of each stream were stored, in this order.
    pub stored: Vec<Vec<Ps>>,
    /// Over all packets that were received, and when.
    pub trace_hash: u64,
}

impl Outcome {
    /// When the last group was finished, if all were.
    #[must_use]
    pub fn end(&self) -> Option<Ps> {
        self.finished.iter().copied().collect::<Option<Vec<Ps>>>()?.into_iter().max()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A group begins.
    Begin(usize),
    /// A packet of a stream comes to its sender's card.
    Send(usize, usize),
    /// Its first byte is at the receiver's port.
    Land(usize, usize),
    /// The receiver's card has it.
    Arrive(usize, usize),
    /// A unit can take it.
    Ready(usize, usize),
    /// A body job may pass on.
    Pass(usize, usize),
    /// A job is done.
    Done(usize, Part),
    /// A unit is free again.
    Free(usize, usize),
    /// Bytes of a body job are stored.
    Stored(usize),
    /// An acknowledgement of a stream comes to the card of who received the stream.
    AckSend(usize),
    /// Its first byte is at the port of whom it is for.
    AckLand(usize),
    /// Who it is for has it.
    AckIn(usize),
}

/// A stream as its receiver knows it.
#[derive(Clone, Debug, Default)]
struct State {
    packets: Vec<u64>,
    parent: Option<usize>,
    group: usize,
    ready: usize,
    asked_head: bool,
    head_done: bool,
    waiting: Vec<usize>,
    handled: usize,
    stored: usize,
    tail_done: bool,
    acks_missing: usize,
}

struct Engine<'a> {
    plan: &'a Plan,
    now: Ps,
    made: u64,
    events: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    out: Vec<Lane>,
    in_: Vec<Lane>,
    pools: Vec<Vec<Pool>>,
    states: Vec<State>,
    joins: Vec<usize>,
    group_acks: Vec<usize>,
    seen: Outcome,
}

/// Runs a plan to its end.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let mut engine = Engine::new(plan);
    for (number, group) in plan.groups.iter().enumerate() {
        if group.after.is_none() {
            engine.at(group.at, Event::Begin(number));
        }
    }
    while let Some(Reverse((at, _, event))) = engine.events.pop() {
        engine.now = at;
        engine.handle(event);
    }
    for (node, lane) in engine.seen.nodes.iter_mut().zip(&engine.out) {
        node.sending = lane.busy;
    }
    engine.seen
}

impl<'a> Engine<'a> {
    fn new(plan: &'a Plan) -> Self {
        let state = |stream: &super::Stream| State {
            packets: plan.wire.packets(stream.bytes, stream.first_header),
            ..State::default()
        };
        let mut states: Vec<State> = plan.streams.iter().map(state).collect();
        let nodes = plan.pools.len();
        let mut engine = Self {
            plan,
            now: 0,
            made: 0,
            events: BinaryHeap::new(),
            out: vec![Lane::default(); nodes],
            in_: vec![Lane::default(); nodes],
            pools: plan
                .pools
                .iter()
                .map(|pools| pools.iter().map(|&units| Pool::new(units)).collect())
                .collect(),
            joins: Vec::new(),
            group_acks: vec![0; plan.groups.len()],
            seen: Outcome {
                finished: vec![None; plan.groups.len()],
                nodes: vec![NodeSeen::default(); nodes],
                stored: vec![Vec::new(); plan.streams.len()],
                trace_hash: 0xcbf2_9ce4_8422_2325,
            },
            states: Vec::new(),
        };
        for (number, group) in plan.groups.iter().enumerate() {
            let mut todo: Vec<(usize, Option<usize>)> =
                group.roots.iter().map(|&root| (root, None)).collect();
            while let Some((stream, parent)) = todo.pop() {
                let what = &plan.streams[stream];
                states[stream].parent = parent;
                states[stream].group = number;
                engine.count_ack(what.ack, parent, number, &mut states);
                if what.service.granule == Granule::Packet {
                    // They leave as they come, whatever headers are left out or added.
                    for &next in &what.next {
                        states[next].packets = states[stream].packets.clone();
                    }
                }
                todo.extend(what.next.iter().map(|&next| (next, Some(stream))));
            }
        }
        engine.states = states;
        engine
    }

    /// Notes who waits for the acknowledgement of a stream.
    fn count_ack(&mut self, ack: Ack, parent: Option<usize>, group: usize, states: &mut [State]) {
        match (ack, parent) {
            (Ack::Nobody, _) => {}
            (Ack::Sender, Some(parent)) => states[parent].acks_missing += 1,
            (Ack::Client, _) | (Ack::Sender, None) => self.group_acks[group] += 1,
            (Ack::Joined(join), _) => {
                if self.joins.len() <= join {
                    self.joins.resize(join + 1, 0);
                }
                self.joins[join] += 1;
                if self.joins[join] == 1 {
                    self.group_acks[group] += 1;
                }
            }
        }
    }

    fn at(&mut self, at: Ps, event: Event) {
        self.made += 1;
        self.events.push(Reverse((at, self.made, event)));
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Begin(group) => self.begin(group),
            Event::Send(stream, packet) => {
                self.send(stream, packet);
            }
            Event::Land(stream, packet) => {
                let to = self.plan.streams[stream].to;
                let there = self.land(to, self.wire_bytes(stream, packet));
                self.at(there, Event::Arrive(stream, packet));
            }
            Event::Arrive(stream, packet) => self.arrive(stream, packet),
            Event::Ready(stream, packet) => self.ready(stream, packet),
            Event::Pass(stream, packet) => self.pass(stream, packet),
            Event::Done(stream, part) => self.done(stream, part),
            Event::Free(node, pool) => {
                if let Some(job) = self.pools[node][pool].done() {
                    self.start(job);
                }
            }
            Event::Stored(stream) => {
                self.states[stream].stored += 1;
                self.seen.stored[stream].push(self.now);
                self.settle(stream);
            }
            Event::AckSend(stream) => self.send_ack(stream),
            Event::AckLand(stream) => {
                let (to, cost) = self.ack_goes(stream);
                let there = self.land(to, self.plan.wire.ack);
                self.at(there + cost, Event::AckIn(stream));
            }
            Event::AckIn(stream) => self.ack_in(stream),
        }
    }

    /// The client hands a group to its card.
    fn begin(&mut self, group: usize) {
        let group = &self.plan.groups[group];
        let mut all: Vec<(usize, usize, usize)> = Vec::new();
        for (turn, &stream) in group.roots.iter().enumerate() {
            let packets = 0..self.states[stream].packets.len();
            all.extend(packets.map(|packet| {
                if group.in_turn { (packet, turn, stream) } else { (turn, packet, stream) }
            }));
        }
        all.sort_unstable();
        let at = self.now + self.plan.client_out;
        for (first, second, stream) in all {
            let packet = if group.in_turn { first } else { second };
            self.at(at, Event::Send(stream, packet));
        }
    }

    /// Through the sender's port; returns when the last byte has left, and when the first is at
    /// the receiver's.
    fn leave(&mut self, from: usize, bytes: u64) -> (Ps, Ps) {
        let wire = &self.plan.wire;
        let span = bytes * wire.ps_per_byte;
        let sent = self.out[from].take(self.now + wire.card, span);
        self.seen.nodes[from].wire_out += bytes;
        (sent, sent - span + wire.link)
    }

    /// Through the receiver's port, in the order in which first bytes come; returns when the card
    /// has all of it.
    fn land(&mut self, to: usize, bytes: u64) -> Ps {
        let wire = &self.plan.wire;
        self.in_[to].take(self.now, bytes * wire.ps_per_byte) + wire.card
    }

    fn wire_bytes(&self, stream: usize, packet: usize) -> u64 {
        let first = if packet == 0 { self.plan.streams[stream].first_header } else { 0 };
        self.states[stream].packets[packet] + first + self.plan.wire.header
    }

    fn send(&mut self, stream: usize, packet: usize) -> Ps {
        let from = self.plan.streams[stream].from;
        let (sent, there) = self.leave(from, self.wire_bytes(stream, packet));
        self.seen.nodes[from].data_out += self.states[stream].packets[packet];
        self.at(there, Event::Land(stream, packet));
        sent
    }

    fn arrive(&mut self, stream: usize, packet: usize) {
        let what = &self.plan.streams[stream];
        let data = self.states[stream].packets[packet];
        self.seen.nodes[what.to].data_in += data;
        for word in [self.now, stream as u64, packet as u64] {
            // FNV-1a by 64-bit words: equality is all that is asked of it.
            self.seen.trace_hash = (self.seen.trace_hash ^ word).wrapping_mul(0x100_0000_01b3);
        }
        self.at(self.now + what.service.into.of(data), Event::Ready(stream, packet));
    }

    fn ready(&mut self, stream: usize, packet: usize) {
        let state = &mut self.states[stream];
        state.ready += 1;
        let body = match self.plan.streams[stream].service.granule {
            Granule::Packet => Some(packet),
            Granule::Message => (state.ready == state.packets.len()).then_some(0),
        };
        let Some(body) = body else { return };
        if state.head_done {
            return self.offer(stream, Part::Body(body));
        }
        state.waiting.push(body);
        // The header is in the first packet; those that came before it wait.
        let has_header = packet == 0 || state.ready == state.packets.len();
        if !state.asked_head && has_header {
            state.asked_head = true;
            self.offer(stream, Part::Head);
        }
    }

    fn offer(&mut self, stream: usize, part: Part) {
        let what = &self.plan.streams[stream];
        let job = self.pools[what.to][what.service.pool].offer(Job { stream, part });
        if let Some(job) = job {
            self.start(job);
        }
    }

    fn bytes(&self, stream: usize, packet: usize) -> u64 {
        let what = &self.plan.streams[stream];
        match what.service.granule {
            Granule::Packet => self.states[stream].packets[packet],
            Granule::Message => what.bytes,
        }
    }

    /// A unit begins a job.
    fn start(&mut self, Job { stream, part }: Job) {
        let service = &self.plan.streams[stream].service;
        match part {
            Part::Head => self.at(self.now + service.head, Event::Done(stream, part)),
            Part::Tail => self.at(self.now + service.tail, Event::Done(stream, part)),
            Part::Body(packet) => {
                let span = service.body.of(self.bytes(stream, packet));
                let node = &mut self.seen.nodes[self.plan.streams[stream].to];
                node.bodies += 1;
                node.bodies_took += span;
                self.at(self.now + span, Event::Pass(stream, packet));
            }
        }
    }

    /// The first part of a body job is over.
    fn pass(&mut self, stream: usize, packet: usize) {
        let plan = self.plan;
        let what = &plan.streams[stream];
        let service = &what.service;
        self.at(self.now + service.store, Event::Stored(stream));
        let mut busy_until = self.now + service.after.of(self.bytes(stream, packet));
        for &next in &what.next {
            let packets = match service.granule {
                Granule::Packet => packet..packet + 1,
                Granule::Message => 0..self.states[next].packets.len(),
            };
            for packet in packets {
                if service.out == 0 {
                    let sent = self.send(next, packet);
                    if service.holds {
                        busy_until = busy_until.max(sent);
                    }
                } else {
                    self.at(self.now + service.out, Event::Send(next, packet));
                }
            }
        }
        self.seen.nodes[what.to].bodies_took += busy_until - self.now;
        self.at(busy_until, Event::Done(stream, Part::Body(packet)));
    }

    fn done(&mut self, stream: usize, part: Part) {
        let what = &self.plan.streams[stream];
        self.at(self.now, Event::Free(what.to, what.service.pool));
        let state = &mut self.states[stream];
        match part {
            Part::Head => {
                state.head_done = true;
                for packet in std::mem::take(&mut state.waiting) {
                    self.offer(stream, Part::Body(packet));
                }
            }
            Part::Body(_) => {
                state.handled += 1;
                if state.handled == jobs(what.service.granule, state) {
                    self.offer(stream, Part::Tail);
                }
            }
            Part::Tail => {
                state.tail_done = true;
                self.settle(stream);
            }
        }
    }

    /// Acknowledges a stream if all is done and stored, here and further on.
    fn settle(&mut self, stream: usize) {
        let what = &self.plan.streams[stream];
        let state = &self.states[stream];
        let stored = state.stored == jobs(what.service.granule, state);
        if !(state.tail_done && stored && state.acks_missing == 0) {
            return;
        }
        let last = match what.ack {
            Ack::Nobody => false,
            Ack::Client | Ack::Sender => true,
            Ack::Joined(join) => {
                self.joins[join] -= 1;
                self.joins[join] == 0
            }
        };
        if last {
            self.at(self.now + what.service.ack_out, Event::AckSend(stream));
        }
    }

    /// Whom an acknowledgement is for, and what it takes there.
    fn ack_goes(&self, stream: usize) -> (usize, Ps) {
        let what = &self.plan.streams[stream];
        match (what.ack, self.states[stream].parent) {
            (Ack::Sender, Some(parent)) => (what.from, self.plan.streams[parent].service.ack_in),
            _ => (0, self.plan.client_in),
        }
    }

    fn send_ack(&mut self, stream: usize) {
        let (_, there) = self.leave(self.plan.streams[stream].to, self.plan.wire.ack);
        self.at(there, Event::AckLand(stream));
    }

    fn ack_in(&mut self, stream: usize) {
        let state = &self.states[stream];
        if let (Ack::Sender, Some(parent)) = (self.plan.streams[stream].ack, state.parent) {
            self.states[parent].acks_missing -= 1;
            return self.settle(parent);
        }
        let group = state.group;
        self.group_acks[group] -= 1;
        if self.group_acks[group] > 0 {
            return;
        }
        self.seen.finished[group] = Some(self.now);
        for (number, next) in self.plan.groups.iter().enumerate() {
            if next.after == Some(group) {
                self.at(self.now, Event::Begin(number));
            }
        }
    }
}

/// How many body jobs a stream makes.
fn jobs(granule: Granule, state: &State) -> usize {
    match granule {
        Granule::Packet => state.packets.len(),
        Granule::Message => 1,
    }
}
