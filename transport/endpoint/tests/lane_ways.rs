//! The same one-sided operations on whatever carries them: a queue pair, messages over UC, over
//! TCP, and in memory. All come to the same as plain memory.

mod common;

use common::{Node, Pair, drive};
use towpath_base::Prng;
use towpath_transport::{
    CarrierChoice, Device, EndpointConfig, Event, Grant, LinkId, OpError, OpOptions, OpOutcome,
    Place, Region, Rights, Served, SharedMemory, mem_pair,
};

const MEMORY_BYTES: u32 = 200_000;
const OPERATIONS: u64 = 400;
const UNDER_WAY: usize = 24;

/// What an operation should come to.
struct Expected {
    token: u64,
    word: Option<u64>,
    read: Option<Vec<u8>>,
}

/// Plain memory, and operations on it.
struct Model {
    prng: Prng,
    bytes: Vec<u8>,
    /// What the owner of the memory should have counted; long operations may be several requests.
    served: Served,
}

impl Model {
    fn word(&mut self, at: usize) -> &mut [u8; 8] {
        self.bytes[at..].first_chunk_mut().expect("within the memory")
    }

    /// Asks for any operation, and does the same here.
    fn operate<D: Device<Memory = Region>>(
        &mut self,
        near: &mut Node<D>,
        (link, grant, token): (LinkId, Grant, u64),
    ) -> Expected {
        let options = OpOptions::new().token(token).fenced();
        let place = |offset: usize| Place { link, grant: grant.id, offset: offset as u32 };
        let kind = self.prng.below(5);
        let is_long = self.prng.below(8) == 0;
        let length = 1 + self.prng.below(if is_long { 60_000 } else { 600 }) as usize;
        let range = self.prng.below(u64::from(MEMORY_BYTES) - length as u64) as usize;
        let word = (range / 8 * 8).min(MEMORY_BYTES as usize - 8);
        let value = self.prng.next_u64();
        let was = u64::from_ne_bytes(*self.word(word));
        let at = &mut near.endpoint;
        let mut expected = Expected { token, word: None, read: None };
        let asked = match kind {
            0 => {
                let buf = at.alloc(length).expect("a free buffer");
                expected.read = Some(self.bytes[range..range + length].to_vec());
                self.served.reads += 1;
                self.served.read_bytes += length as u64;
                at.read(place(range), length as u32, buf, options).map_err(|refused| refused.error)
            }
            1 => {
                let mut bytes = vec![0; length];
                self.prng.fill(&mut bytes);
                self.bytes[range..range + length].copy_from_slice(&bytes);
                let buf = at.copy(&bytes).expect("a free buffer");
                expected.read = Some(bytes);
                self.served.writes += 1;
                self.served.write_bytes += length as u64;
                at.write(place(range), buf, options).map_err(|refused| refused.error)
            }
            2 => {
                *self.word(word) = value.to_ne_bytes();
                expected.word = Some(value);
                self.served.writes += 1;
                self.served.write_bytes += 8;
                at.write_word(place(word), value, options)
            }
            3 => {
                *self.word(word) = was.wrapping_add(value).to_ne_bytes();
                expected.word = Some(was);
                at.fetch_add(place(word), value, options)
            }
            _ => {
                let compare = if value & 1 == 0 { was } else { value };
                if compare == was {
                    *self.word(word) = value.to_ne_bytes();
                }
                expected.word = Some(was);
                at.cmp_swap(place(word), (compare, value), options)
            }
        };
        self.served.atomics += u64::from(kind > 2);
        asked.expect("it is allowed, and there is room");
        expected
    }
}

/// What the far end granted, as the near end learns it.
fn granted<N: Device<Memory = Region>, F: Device<Memory = Region>>(
    near: &mut Node<N>,
    far: &mut Node<F>,
    memory: &SharedMemory,
    (far_link, rights): (LinkId, Rights),
) -> Grant {
    let range = 0..MEMORY_BYTES as usize;
    far.endpoint.grant(far_link, memory, range, rights).expect("room");
    drive(near, far, |near, _| {
        near.take(|event| match event {
            Event::Granted { grant, .. } => Some(*grant),
            _ => None,
        })
    })
}

/// Runs random operations, many under way, and compares all that comes of them.
fn same_as_plain_memory<N: Device<Memory = Region>, F: Device<Memory = Region>>(
    (mut near, mut far): (Node<N>, Node<F>),
    (near_link, far_link): (LinkId, LinkId),
    by_messages: bool,
) {
    let seed = 11;
    println!("seed {seed}");
    let memory = SharedMemory::new(MEMORY_BYTES as usize).expect("memory for a test");
    let grant = granted(&mut near, &mut far, &memory, (far_link, Rights::ALL));
    let bytes = vec![0; MEMORY_BYTES as usize];
    let mut model = Model { prng: Prng::new(seed), bytes, served: Served::default() };
    let (mut asked, mut expected) = (0, std::collections::VecDeque::new());
    let done = |event: &Event| matches!(event, Event::OpDone { .. });
    while asked < OPERATIONS || !expected.is_empty() {
        while asked < OPERATIONS && expected.len() < UNDER_WAY {
            expected.push_back(model.operate(&mut near, (near_link, grant, asked)));
            asked += 1;
        }
        let event = drive(&mut near, &mut far, |near, _| {
            let place = near.events.iter().position(done)?;
            Some(near.events.remove(place))
        });
        let Event::OpDone { token, outcome, word, buf, .. } = event else { unreachable!() };
        let first: Expected = expected.pop_front().expect("one is under way");
        assert_eq!((token, outcome), (first.token, OpOutcome::Executed));
        assert_eq!(word, first.word, "operation {token}");
        assert!(buf.map(|buf| buf.to_vec()) == first.read, "operation {token}");
    }
    let report = near.endpoint.lane(near_link).expect("there is a lane");
    assert_eq!(report.is_by_messages, by_messages);
    let mut bytes = vec![0; MEMORY_BYTES as usize];
    memory.read(0, &mut bytes).expect("it fits");
    assert!(bytes == model.bytes, "the memory is another one");
    let served = far.endpoint.served(far_link).expect("the device counts, or the endpoint does");
    assert!(served.reads >= model.served.reads && served.writes >= model.served.writes);
    let again = (served.reads_again, served.read_again_bytes);
    let first = served.read_bytes - served.read_again_bytes;
    assert_eq!((first, served.write_bytes), (model.served.read_bytes, model.served.write_bytes));
    assert_eq!(served.atomics, model.served.atomics);
    assert!(!by_messages || again == (0, 0), "a message comes once");
    assert_eq!(near.endpoint.served(near_link), Some(Served::default()), "nobody asked of it");
    let stats = near.endpoint.stats(near_link).expect("the link is up");
    assert_eq!(stats.violations, 0);
    for event in near.events.iter().chain(&far.events) {
        let of_lane = matches!(event, Event::Sent { .. } | Event::Message(_));
        assert!(!of_lane, "the messages of a lane are not the application's: {event:?}");
    }
}

fn config() -> EndpointConfig {
    EndpointConfig::new().links_max(1).send_pools(&[(64 << 10, 64)])
}

fn over_sockets(config: EndpointConfig, by_messages: bool) {
    let pair = Pair::new(config);
    let links = (pair.client_link, pair.server_link);
    same_as_plain_memory((pair.client, pair.server), links, by_messages);
}

#[test]
fn operations_by_a_queue_pair_come_to_the_same_as_on_plain_memory() {
    over_sockets(config(), false);
}

#[test]
fn operations_by_messages_over_uc_come_to_the_same_as_on_plain_memory() {
    over_sockets(config().lanes_by_messages(true), true);
}

#[test]
fn operations_over_tcp_come_to_the_same_as_on_plain_memory() {
    over_sockets(config().carrier(CarrierChoice::Tcp), true);
}

#[test]
fn operations_in_memory_come_to_the_same_as_on_plain_memory() {
    let (near, far) = mem_pair(config(), config()).expect("they fit");
    let links = (near.link, far.link);
    same_as_plain_memory((Node::on(near.endpoint), Node::on(far.endpoint)), links, true);
}

#[test]
fn where_one_end_goes_by_messages_both_do() {
    let pair = Pair::with(config().lanes_by_messages(true), config());
    let links = (pair.server_link, pair.client_link);
    same_as_plain_memory((pair.server, pair.client), links, true);
}

#[test]
fn what_was_revoked_is_denied_by_messages_too_and_the_link_goes_on() {
    let mut pair = Pair::new(config().carrier(CarrierChoice::Tcp));
    let (link, far_link) = (pair.client_link, pair.server_link);
    let memory = SharedMemory::new(MEMORY_BYTES as usize).expect("memory for a test");
    let Pair { client, server, .. } = &mut pair;
    let grant = granted(client, server, &memory, (far_link, Rights::ALL));
    let place = Place { link, grant: grant.id, offset: 0 };
    let options = OpOptions::new();
    // One by which the channel of the lane is opened.
    client.endpoint.fetch_add(place, 1, options).expect("allowed");
    let first = drive(client, server, |client, _| {
        client.take(|event| match event {
            Event::OpDone { outcome, .. } => Some(*outcome),
            _ => None,
        })
    });
    assert_eq!(first, OpOutcome::Executed);
    // What is on its way when the grant is taken back finds it gone, or waits and is told.
    for token in 0..40 {
        client.endpoint.fetch_add(place, 1, options.token(token)).expect("allowed");
    }
    client.endpoint.flush();
    assert!(server.endpoint.revoke(far_link, grant.id));
    let before = memory.word(0).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    let (mut ended, mut executed) = (0, 1);
    pair.until(|client, _| {
        for event in client.events.drain(..) {
            if let Event::OpDone { outcome, .. } = event {
                ended += 1;
                executed += u64::from(outcome == OpOutcome::Executed);
                assert!(matches!(outcome, OpOutcome::Executed | OpOutcome::Denied(_)));
            }
        }
        (ended == 40).then_some(())
    });
    let word = memory.word(0).expect("aligned").load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((word, executed), (before, before), "nothing happened after that");
    let Pair { client, server, .. } = &mut pair;
    let served = Served { atomics: word, ..Served::default() };
    assert_eq!(server.endpoint.served(far_link), Some(served), "what was denied is not counted");
    let refused = client.endpoint.fetch_add(place, 1, options);
    assert!(matches!(refused, Err(towpath_transport::LaneError::Op(OpError::NoSuchGrant))));
    let again = granted(client, server, &memory, (far_link, Rights::READ));
    let buf = client.endpoint.alloc(8).expect("a free buffer");
    let place = Place { grant: again.id, ..place };
    client.endpoint.read(place, 8, buf, options).expect("allowed");
    let outcome = pair.until(|client, _| {
        client.take(|event| match event {
            Event::OpDone { outcome, .. } => Some(*outcome),
            _ => None,
        })
    });
    assert_eq!(outcome, OpOutcome::Executed);
}
