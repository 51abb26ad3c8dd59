//! Messages that are sent before all of their bytes are there, and such that go on as they come.

mod common;

use common::{Pair, pattern};
use std::collections::{BTreeMap, HashMap};
use towpath_base::{Nanos, Prng, Time};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_proto::{Outcome, Side};
use towpath_sim::{FaultPlan, HostConfig, SwitchConfig, VirtualLink, World};
use towpath_transport::{
    BufferCensus, CarrierChoice, ChannelId, Chunk, Endpoint, EndpointConfig, Event, LinkId, Pool,
    SendId, SendOptions, StreamId, SubmitError, SupplyError, SupplyFault,
};

/// Bytes of the first segment of each message.
const HEAD: usize = 64;

fn small() -> EndpointConfig {
    EndpointConfig::new().quota_chunks(32).credit_total(64).progress_budget(64).links_max(2)
}

fn is_home(census: BufferCensus) -> bool {
    let all_received = census.recv_posted + census.recv_free == census.recv_all;
    all_received && census.send_free == census.send_all
}

/// `0..len` divided in ranges of pages, mostly, in random order.
fn shuffled(prng: &mut Prng, len: usize) -> Vec<(usize, usize)> {
    let (mut at, mut ranges) = (0, Vec::new());
    while at < len {
        let unit = if prng.chance(0.8) { 4096 } else { 8 };
        let step = (prng.between(600, 100_000) as usize).next_multiple_of(unit);
        ranges.push((at, len.min(at + step)));
        at += step;
    }
    for at in (1..ranges.len()).rev() {
        ranges.swap(at, prng.below(at as u64 + 1) as usize);
    }
    ranges
}

/// Takes what the server got: the bytes of the message once it is whole.
fn take_whole(server: &mut common::Node, parts: &mut BTreeMap<u32, Vec<u8>>) -> Option<Vec<u8>> {
    let mut whole = None;
    for event in server.events.drain(..) {
        match event {
            Event::Message(message) => whole = Some(message.to_vec()),
            Event::StreamChunk { chunk, end, .. } => {
                parts.insert(chunk.offset(), chunk.to_vec());
                if end {
                    whole = Some(std::mem::take(parts).into_values().flatten().collect());
                }
            }
            _ => {}
        }
    }
    whole
}

#[test]
fn bytes_supplied_in_any_order_arrive_as_they_were_on_every_carrier() {
    let seed = 61;
    println!("seed {seed}");
    let mut prng = Prng::new(seed);
    for carrier in [CarrierChoice::Uc, CarrierChoice::Rc, CarrierChoice::Tcp] {
        for comes in [false, true] {
            let config = small().carrier(carrier).streams(true).pieces_as_they_come(comes);
            let mut pair = Pair::new(config);
            let channel = pair.open(false);
            for token in 0..8 {
                let bytes = pattern(HEAD + prng.between(1, 1 << 20) as usize, token);
                let (head, later) = bytes.split_at(HEAD);
                let client = &mut pair.client.endpoint;
                let payload = client.copy(head).expect("a free buffer");
                let options = SendOptions::new().token(token);
                let send = client.send_growing(
                    pair.client_link,
                    channel,
                    payload,
                    later.len() as u32,
                    options,
                );
                let send = send.expect("room");
                let (mut ranges, mut parts) = (shuffled(&mut prng, later.len()), BTreeMap::new());
                let got = pair.until(|client, server| {
                    if prng.chance(0.3)
                        && let Some((from, until)) = ranges.pop()
                    {
                        let piece = client.endpoint.copy(&later[from..until]);
                        let piece = piece.expect("a free buffer");
                        client.endpoint.supply(send, from as u32, piece).expect("it goes on");
                    }
                    take_whole(server, &mut parts)
                });
                assert!(got == bytes, "{carrier:?}, {comes}, {token}");
                let (outcome, payload) = pair.until(|client, _| client.take_sent(token));
                assert_eq!(outcome, Outcome::Delivered);
                assert_eq!(&payload.segments()[0][..], head);
            }
            pair.until(|client, server| {
                let ends = [client.endpoint.buffers(), server.endpoint.buffers()];
                ends.into_iter().all(is_home).then_some(())
            });
        }
    }
}

#[test]
fn buffers_come_home_one_by_one_and_what_is_wrong_is_refused_with_its_buffer() {
    let mut pair = Pair::new(small());
    let (ordered, channel) = (pair.open(true), pair.open(false));
    let link = pair.client_link;
    let client = &mut pair.client.endpoint;
    let copy = |client: &common::UdpEndpoint, len| client.copy(&pattern(len, 1)).expect("free");
    let mut grow = |channel, later| {
        let head = copy(client, HEAD);
        client.send_growing(link, channel, head, later, SendOptions::new().token(7))
    };
    let refused = |sent: Result<SendId, towpath_transport::Rejected>| sent.expect_err("no").error;
    assert_eq!(refused(grow(ordered, 100)), SubmitError::Ordered(ordered));
    assert_eq!(refused(grow(channel, 0)), SubmitError::BadGrowth);
    let send = grow(channel, 200_000).expect("room");
    let free = client.buffers().send_free;
    let supply = |client: &mut common::UdpEndpoint, offset, len| {
        let piece = copy(client, len);
        let address = piece.as_ptr();
        let rejected = client.supply(send, offset, piece).err()?;
        assert_eq!(rejected.segment.as_ptr(), address);
        Some(rejected.error)
    };
    assert_eq!(supply(client, 0, 57_344), None);
    assert_eq!(client.buffers().send_free, free - 1);
    let fault = |error| Some(SupplyFault::Refused(error));
    assert_eq!(supply(client, 8, 8), fault(SupplyError::Overlap));
    assert_eq!(supply(client, 57_345, 8), fault(SupplyError::Misaligned));
    assert_eq!(supply(client, 199_999, 2), fault(SupplyError::OutOfRange { len: 200_000 }));
    let stranger = Pool::with_count(4096, 1).expect("memory").take();
    let mut stranger = stranger.expect("a fresh pool");
    stranger.extend(&[1; 4096]).expect("it fits");
    let rejected = client.supply(send, 57_344, stranger).expect_err("not registered");
    assert_eq!(rejected.error, SupplyFault::NotRegistered);
    // The peer has it while the message is not whole.
    pair.until(|client, _| (client.endpoint.buffers().send_free == free).then_some(()));
    assert_eq!(supply(&mut pair.client.endpoint, 65_536, 4096), None);
    pair.client.endpoint.cancel(send).expect("it has not ended");
    let (outcome, _) = pair.until(|client, _| client.take_sent(7));
    assert_eq!(outcome, Outcome::Abandoned);
    let ended = supply(&mut pair.client.endpoint, 100_000, 4096);
    assert_eq!(ended, fault(SupplyError::Ended));
    pair.until(|client, server| {
        server.events.clear();
        let ends = [client.endpoint.buffers(), server.endpoint.buffers()];
        ends.into_iter().all(is_home).then_some(())
    });
}

type End = Endpoint<RoceDevice<VirtualLink>>;

/// Three endpoints on one switch: the first sends to the second, which sends on to the third.
struct Chain {
    world: World,
    ends: [Option<End>; 3],
    /// From the first to the second, at both ends, and from the second to the third.
    links: [LinkId; 4],
    relay: Relay,
    /// What the third got of each message, by where it begins, and messages that are whole there.
    parts: HashMap<StreamId, BTreeMap<u32, Vec<u8>>>,
    whole: Vec<Vec<u8>>,
    aborted: usize,
    /// The first piece of data was at the third before the last was at the second.
    is_ahead: bool,
    outcomes: Vec<Outcome>,
}

/// What the second sends on.
#[derive(Default)]
struct Relay {
    /// By which message it came in; what comes before the head waits.
    onward: HashMap<StreamId, Option<SendId>>,
    early: HashMap<StreamId, Vec<Chunk>>,
    to: Option<(LinkId, ChannelId)>,
    /// Pieces that the link to the third did not take, and outcomes there.
    refused: usize,
    outcomes: Vec<Outcome>,
    broken: usize,
    has_last: bool,
}

impl Relay {
    fn on_event(&mut self, end: &mut End, event: Event) {
        match event {
            Event::StreamChunk { stream, chunk, message_len, end: is_last, .. } => {
                self.has_last |= is_last;
                self.on_piece(end, stream, chunk, message_len);
            }
            Event::StreamAborted { stream, .. } => {
                self.broken += 1;
                self.early.remove(&stream);
                if let Some(send) = self.onward.remove(&stream).flatten() {
                    // It may have ended already.
                    let _ = end.cancel(send);
                }
            }
            Event::Message(_) => panic!("messages are longer than what one turn takes in"),
            Event::Sent { outcome, .. } => self.outcomes.push(outcome),
            _ => {}
        }
    }

    fn on_piece(&mut self, end: &mut End, stream: StreamId, chunk: Chunk, message_len: u32) {
        if chunk.offset() > 0 {
            match self.onward.get(&stream) {
                Some(&Some(send)) => self.supply(end, send, chunk),
                // It goes nowhere.
                Some(None) => {}
                None => self.early.entry(stream).or_default().push(chunk),
            }
            return;
        }
        assert_eq!(chunk.len(), HEAD, "a piece never spans two segments");
        let (link, channel) = self.to.expect("its channel is open");
        let (later, options) = (message_len - HEAD as u32, SendOptions::new());
        let sent = end.send_growing(link, channel, chunk.into_payload(), later, options);
        self.refused += usize::from(sent.is_err());
        let send = sent.ok();
        self.onward.insert(stream, send);
        for chunk in self.early.remove(&stream).unwrap_or_default() {
            if let Some(send) = send {
                self.supply(end, send, chunk);
            }
        }
    }

    fn supply(&mut self, end: &mut End, send: SendId, chunk: Chunk) {
        let offset = chunk.offset() - HEAD as u32;
        let (crcs, place) = (chunk.page_crcs().iter().copied().collect(), chunk.as_ptr());
        let frozen = chunk.freeze();
        assert_eq!(frozen.as_ptr(), place, "it is sent from where it landed");
        if let Err(rejected) = end.supply_with_crcs(send, offset, frozen, crcs) {
            assert_eq!(rejected.error, SupplyFault::Refused(SupplyError::Ended));
            self.refused += 1;
        }
    }
}

impl Chain {
    fn new(seed: u64, plan: &FaultPlan) -> Self {
        let world = World::new(seed);
        let switch = world.add_switch(&SwitchConfig::default());
        let mut ends = [0, 1, 2].map(|number| {
            let host = world.add_host(switch, &HostConfig::default());
            for wire in [world.cable(host).forth(), world.cable(host).back()] {
                world.set_faults(wire, plan.clone());
            }
            let device =
                RoceDevice::new(world.end(host), RoceConfig::default().seed(seed + number));
            let config = small().streams(true).pieces_as_they_come(true).seed(seed + number);
            let config = config.tune_links(|link| link.peer_timeout(Nanos::from_millis(200)));
            Endpoint::new(device, config).expect("a small endpoint")
        });
        let mut join = |near: usize, far: usize| {
            let (near_hello, near_half) = ends[near].offer().expect("room");
            let (far_hello, far_half) = ends[far].offer().expect("room");
            let at_near = ends[near].establish(near_half, &far_hello, Side::Client);
            let at_far = ends[far].establish(far_half, &near_hello, Side::Server);
            (at_near.expect("they fit"), at_far.expect("they fit"))
        };
        let (first, second) = (join(0, 1), join(1, 2));
        let links = [first.0, first.1, second.0, second.1];
        let mut chain = Self {
            world,
            ends: ends.map(Some),
            links,
            relay: Relay::default(),
            parts: HashMap::new(),
            whole: Vec::new(),
            aborted: 0,
            is_ahead: false,
            outcomes: Vec::new(),
        };
        let onward = chain.open(1, links[2]);
        chain.relay.to = Some((links[2], onward));
        chain
    }

    fn open(&mut self, at: usize, link: LinkId) -> ChannelId {
        let end = self.ends[at].as_mut().expect("it lives");
        let channel = end.open_channel(link, false).expect("room");
        let mut is_open = false;
        while !is_open {
            self.turn(|number, event| {
                let opened =
                    matches!(event, Event::ChannelOpened { channel: of, .. } if *of == channel);
                is_open |= number == at && opened;
            });
        }
        channel
    }

    /// A turn of each end that lives; time goes on when none has anything to do.
    fn turn(&mut self, mut see: impl FnMut(usize, &Event)) {
        let [first, second, third] = &mut self.ends;
        let mut busy = false;
        let outcomes = &mut self.outcomes;
        busy |= first.as_mut().is_some_and(|end| {
            end.turn(|_, event| {
                see(0, &event);
                if let Event::Sent { outcome, .. } = event {
                    outcomes.push(outcome);
                }
            })
        });
        let relay = &mut self.relay;
        busy |= second.as_mut().is_some_and(|end| {
            end.turn(|end, event| {
                see(1, &event);
                relay.on_event(end, event);
            })
        });
        let Self { parts, whole, aborted, is_ahead, .. } = self;
        busy |= third.as_mut().is_some_and(|end| {
            end.turn(|_, event| {
                see(2, &event);
                match event {
                    Event::StreamChunk { stream, chunk, end, .. } => {
                        *is_ahead |= chunk.offset() > 0 && !relay.has_last;
                        let of = parts.entry(stream).or_default();
                        of.insert(chunk.offset(), chunk.to_vec());
                        if end && let Some(of) = parts.remove(&stream) {
                            whole.push(of.into_values().flatten().collect());
                        }
                    }
                    Event::Message(message) => whole.push(message.to_vec()),
                    Event::StreamAborted { stream, .. } => {
                        *aborted += 1;
                        parts.remove(&stream);
                    }
                    _ => {}
                }
            })
        });
        if !busy {
            let timers = self.ends.iter().flatten().map(Endpoint::next_timeout);
            let next = timers.chain(self.world.next_event_time()).fold(Time::NEVER, Time::min);
            assert!(next < Time(60_000_000_000), "it would never happen: {:?}", self.outcomes);
            self.world.advance_to(next.max(self.world.now() + Nanos(1)));
        }
    }

    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) {
            self.turn(|_, _| {});
        }
    }

    /// Sends from the first.
    fn send(&mut self, channel: ChannelId, bytes: &[u8]) {
        let first = self.ends[0].as_mut().expect("it lives");
        let copy = |bytes: &[u8]| first.copy(bytes).expect("a free buffer");
        let mut payload = towpath_transport::Payload::new(copy(&bytes[..HEAD]));
        payload.push(copy(&bytes[HEAD..])).expect("room for a segment");
        first.send(self.links[0], channel, payload, SendOptions::new()).expect("room");
    }

    fn all_home(&self) -> bool {
        self.ends.iter().flatten().all(|end| is_home(end.buffers()))
    }
}

/// Sends messages through the chain and waits until all has come home: pieces that the third got,
/// and frames that brought them.
fn pass_on(chain: &mut Chain, channel: ChannelId, seed: u64) -> (u64, u64) {
    let counts = |chain: &Chain| {
        let third = chain.ends[2].as_ref().expect("it lives");
        let census = third.link_census(chain.links[3]).expect("it is up");
        (census.credit_taken_total, third.stats_of_all_links().frames_received)
    };
    let before = counts(chain);
    let mut sent = Vec::new();
    for round in 0..6 {
        let bytes = pattern(HEAD + 900_000 + round * 12_345, seed * 10 + round as u64);
        chain.send(channel, &bytes);
        sent.push(bytes);
    }
    chain.until(|chain| chain.whole.len() == 6 && chain.all_home());
    sent.sort();
    chain.whole.sort();
    assert!(chain.whole == sent, "seed {seed}");
    chain.whole.clear();
    let after = counts(chain);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_message_goes_on_piece_by_piece_while_it_still_comes() {
    let us = Nanos::from_micros;
    let none = FaultPlan::none();
    let bad = FaultPlan::none().drop(0.02).duplicate(0.01, us(500)).reorder(0.02, 8, us(200));
    for seed in 0..10 {
        println!("seed {seed}");
        let is_bad = seed > 1;
        let mut chain = Chain::new(seed, if is_bad { &bad } else { &none });
        let channel = chain.open(0, chain.links[0]);
        pass_on(&mut chain, channel, seed);
        assert!(chain.is_ahead || is_bad, "the third has some before the second has the last");
        // Windows are wide by now, so that pieces go whole.
        let (pieces, frames) = pass_on(&mut chain, channel, seed + 100);
        assert!(is_bad || frames == pieces, "{pieces} pieces came in {frames} frames");
        let all = |outcomes: &[Outcome]| outcomes == [Outcome::Delivered; 12];
        chain.until(|chain| all(&chain.outcomes) && all(&chain.relay.outcomes));
        let [_, second, third] = chain.ends.each_ref().map(|end| end.as_ref().expect("it lives"));
        let sent = second.link_census(chain.links[2]).expect("it is up");
        let got = third.link_census(chain.links[3]).expect("it is up");
        assert_eq!((got.credit_held, got.credit_taken_total), (0, sent.credit_used_total));
        assert_eq!(second.stats_of_all_links().violations, 0);
    }
}

#[test]
fn when_the_link_that_a_message_comes_over_dies_the_rest_is_given_up_and_all_buffers_come_home() {
    for seed in 0..10 {
        println!("seed {seed}");
        let mut chain = Chain::new(seed, &FaultPlan::none());
        let channel = chain.open(0, chain.links[0]);
        for round in 0..4 {
            chain.send(channel, &pattern(1 << 20, round));
        }
        let pieces = 1 + seed as usize;
        chain.until(|chain| chain.parts.values().map(BTreeMap::len).sum::<usize>() >= pieces);
        chain.ends[0] = None;
        chain.until(|chain| {
            let third = chain.ends[2].as_ref().expect("it lives");
            chain.relay.broken > 0 && third.is_idle(chain.links[3]) && chain.all_home()
        });
        assert_eq!(
            chain.aborted,
            chain.relay.outcomes.iter().filter(|o| **o == Outcome::Abandoned).count()
        );
        assert!(chain.aborted > 0 && chain.parts.is_empty());
    }
}

#[test]
fn when_the_link_that_a_message_goes_on_over_dies_the_sender_is_not_held_up() {
    for seed in 0..10 {
        println!("seed {seed}");
        let mut chain = Chain::new(seed, &FaultPlan::none());
        let channel = chain.open(0, chain.links[0]);
        for round in 0..4 {
            chain.send(channel, &pattern(1 << 20, round));
        }
        let pieces = 1 + seed as usize;
        chain.until(|chain| chain.parts.values().map(BTreeMap::len).sum::<usize>() >= pieces);
        chain.ends[2] = None;
        // What was to go on is dropped, and its credit is the sender's again.
        chain.until(|chain| chain.outcomes.len() == 4 && chain.all_home());
        assert!(chain.outcomes.iter().all(|&outcome| outcome == Outcome::Delivered));
        assert!(chain.relay.refused > 0);
    }
}
