//! Two endpoints on the device in memory, on one thread and on two.

use std::thread;
use towpath_base::{Nanos, Prng};
use towpath_proto::{ChannelId, Outcome};
use towpath_transport::{
    Carrier, CarrierChoice, EndpointConfig, EndpointError, Event, MemEnd, Message, PollFdError,
    SendOptions, mem_pair,
};

const MESSAGES: u64 = 2_000;
const UNDER_WAY: u64 = 32;

fn config() -> EndpointConfig {
    EndpointConfig::new().links_max(1).send_pools(&[(256 << 10, 40)])
}

fn bytes_of(number: u64) -> Vec<u8> {
    let mut prng = Prng::new(number);
    let len = if number.is_multiple_of(8) { 200_000 } else { 1_000 };
    let mut bytes = vec![0; prng.between(8, len) as usize];
    prng.fill(&mut bytes);
    bytes
}

/// Sends all messages, takes their outcomes, and says goodbye.
struct Sender {
    end: MemEnd,
    next: u64,
    delivered: u64,
    down: bool,
}

impl Sender {
    fn new(mut end: MemEnd) -> Self {
        end.endpoint.open_channel(end.link, true).expect("a fresh link has room");
        Self { end, next: 0, delivered: 0, down: false }
    }

    fn turn(&mut self) -> bool {
        let Self { end, next, delivered, down } = self;
        let link = end.link;
        let send = |at: &mut towpath_transport::Endpoint<_>, channel: ChannelId, number: u64| {
            let buf = at.copy(&bytes_of(number)).expect("a free buffer");
            at.send(link, channel, buf, SendOptions::new()).expect("an open channel");
        };
        end.endpoint.turn(|at, event| match event {
            Event::ChannelOpened { channel, .. } => {
                (0..UNDER_WAY).for_each(|number| send(at, channel, number));
                *next = UNDER_WAY;
            }
            Event::Sent { outcome, payload, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                drop(payload);
                *delivered += 1;
                match *next {
                    MESSAGES if *delivered == MESSAGES => at.close(link),
                    MESSAGES => {}
                    number => {
                        send(at, ChannelId(0), number);
                        *next += 1;
                    }
                }
            }
            Event::LinkDown { .. } => *down = true,
            _ => {}
        })
    }
}

/// Takes messages in order until the link is down.
struct Receiver {
    end: MemEnd,
    received: u64,
    down: bool,
}

impl Receiver {
    fn new(end: MemEnd) -> Self {
        Self { end, received: 0, down: false }
    }

    fn turn(&mut self) -> bool {
        let Self { end, received, down } = self;
        end.endpoint.turn(|at, event| match event {
            Event::Message(message) => {
                assert!(message.to_vec() == bytes_of(*received), "message {received}");
                *received += 1;
                at.release(message);
            }
            Event::LinkDown { .. } => *down = true,
            _ => {}
        })
    }
}

fn ends() -> (Sender, Receiver) {
    let (client, server) = mem_pair(config(), config()).expect("two small endpoints");
    (Sender::new(client), Receiver::new(server))
}

fn check(sender: &Sender, receiver: &Receiver) {
    assert_eq!((sender.delivered, receiver.received), (MESSAGES, MESSAGES));
    let census = receiver.end.endpoint.buffers();
    assert_eq!(census.recv_posted + census.recv_free, census.recv_all);
    let counters = receiver.end.endpoint.device().counters();
    assert_eq!(counters.recv_too_long + counters.bad_rkey + counters.cq_overruns, 0);
}

/// One run with both ends on this thread; how many chunks were sent again.
fn on_one_thread() -> u64 {
    let (mut sender, mut receiver) = ends();
    while !(sender.down && receiver.down) {
        let busy = sender.turn() | receiver.turn();
        if !busy {
            // Only the goodbye's last word may have to wait for a timer.
            thread::yield_now();
        }
    }
    check(&sender, &receiver);
    sender.end.endpoint.stats_of_all_links().chunks_retransmitted
}

#[test]
fn messages_arrive_in_order_with_both_ends_on_one_thread_and_none_is_sent_again() {
    // A host that lets this thread wait makes acks late, but not in each of so many runs.
    assert!((0..10).any(|_| on_one_thread() == 0));
}

#[test]
fn messages_arrive_in_order_with_an_end_on_each_of_two_threads() {
    let (mut sender, mut receiver) = ends();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !receiver.down {
                if !receiver.turn() {
                    receiver.end.endpoint.wait(Nanos::from_millis(1));
                }
            }
        });
        while !sender.down {
            if !sender.turn() {
                sender.end.endpoint.wait(Nanos::from_millis(1));
            }
        }
    });
    check(&sender, &receiver);
}

#[test]
fn a_device_without_rc_says_so() {
    let refused = mem_pair(config().carrier(CarrierChoice::Rc), config());
    let refused = refused.map(|_| ()).expect_err("memory carries UC only");
    let source = std::error::Error::source(&refused).expect("the endpoint's error");
    let error = source.downcast_ref::<EndpointError>().expect("the endpoint's error");
    assert!(matches!(error, EndpointError::NoCarrier { wanted: Carrier::Rc }), "{error}");
}

/// Turns of both ends until neither has anything to do: what the receiver was told, and whose
/// messages it took.
fn run(near: &mut MemEnd, far: &mut MemEnd, taken: &mut Vec<Message>) -> Vec<Event> {
    let mut told = Vec::new();
    for _ in 0..20 {
        near.endpoint.turn(|_, _| {});
        far.endpoint.turn(|_, event| match event {
            Event::Message(message) => taken.push(message),
            event => told.push(event),
        });
    }
    told
}

#[test]
fn what_is_released_in_any_order_gives_each_channel_its_credit_back() {
    const QUOTA: usize = 8;
    let config = || config().quota_chunks(QUOTA as u32).credit_total(2 * QUOTA as u32);
    let (mut near, mut far) = mem_pair(config(), config()).expect("two small endpoints");
    let channels =
        [(); 2].map(|()| near.endpoint.open_channel(near.link, false).expect("there is room"));
    let (mut prng, mut held) = (Prng::new(1), Vec::new());
    run(&mut near, &mut far, &mut held);
    for round in 0..20 {
        // The second half waits for credit.
        for channel in [channels, channels].concat() {
            for _ in 0..QUOTA {
                let buf = near.endpoint.copy(b"some").expect("a free buffer");
                let sent = near.endpoint.send(near.link, channel, buf, SendOptions::new());
                sent.expect("an open channel");
            }
        }
        for _ in 0..2 {
            run(&mut near, &mut far, &mut held);
            assert_eq!(held.len(), 2 * QUOTA, "round {round}");
            for channel in channels {
                let of_channel = held.iter().filter(|message| message.channel() == channel);
                assert_eq!(of_channel.count(), QUOTA, "round {round}");
            }
            while !held.is_empty() {
                let place = prng.below(held.len() as u64) as usize;
                far.endpoint.release(held.swap_remove(place));
            }
        }
    }
    for channel in channels {
        let buf = near.endpoint.copy(b"last").expect("a free buffer");
        near.endpoint.send(near.link, channel, buf, SendOptions::new()).expect("an open channel");
    }
    run(&mut near, &mut far, &mut held);
    assert_eq!(held.len(), 2);
    near.endpoint.close(near.link);
    while far.endpoint.links().next().is_some() {
        run(&mut near, &mut far, &mut held);
    }
    // Of a link that has gone.
    held.drain(..).for_each(|message| far.endpoint.release(message));
    run(&mut near, &mut far, &mut held);
    let census = far.endpoint.buffers();
    assert_eq!(census.recv_posted + census.recv_free, census.recv_all);
}

#[test]
fn a_channel_can_be_opened_as_soon_as_what_another_held_is_released() {
    let config = || config().quota_chunks(8).credit_total(8);
    let (mut near, mut far) = mem_pair(config(), config()).expect("two small endpoints");
    let channel = near.endpoint.open_channel(near.link, false).expect("there is room");
    let mut held = Vec::new();
    run(&mut near, &mut far, &mut held);
    let buf = near.endpoint.copy(b"some").expect("a free buffer");
    near.endpoint.send(near.link, channel, buf, SendOptions::new()).expect("an open channel");
    run(&mut near, &mut far, &mut held);
    near.endpoint.close_channel(near.link, channel).expect("an open channel");
    let told = run(&mut near, &mut far, &mut held);
    assert!(told.iter().any(|event| matches!(event, Event::ChannelClosed { .. })), "{told:?}");
    far.endpoint.open_channel(far.link, false).expect_err("its message is held");
    held.drain(..).for_each(|message| far.endpoint.release(message));
    far.endpoint.open_channel(far.link, false).expect("its credit is there again");
}

#[test]
fn messages_are_sent_on_from_where_they_arrived() {
    let short = |number| bytes_of(number).into_iter().take(50_000).collect::<Vec<_>>();
    let (mut client, mut server) = mem_pair(config(), config()).expect("two small endpoints");
    client.endpoint.open_channel(client.link, true).expect("a fresh link has room");
    let (mut sent, mut back, mut forwarded) = (0, 0, 0);
    while back < 500 || forwarded < 500 {
        client.endpoint.turn(|at, event| {
            let channel = match event {
                Event::ChannelOpened { channel, .. } => channel,
                Event::Message(message) => {
                    assert!(message.to_vec() == short(back), "message {back}");
                    back += 1;
                    message.channel()
                }
                _ => return,
            };
            while sent < 500 && sent - back < 8 {
                let buf = at.copy(&short(sent)).expect("a free buffer");
                at.send(client.link, channel, buf, SendOptions::new()).expect("an open channel");
                sent += 1;
            }
        });
        server.endpoint.turn(|at, event| match event {
            Event::Message(message) => {
                let (link, channel) = (message.link(), message.channel());
                let payload = message.into_payload().expect("few pieces");
                at.send(link, channel, payload, SendOptions::new()).expect("an open channel");
            }
            Event::Sent { outcome, .. } => {
                assert_eq!(outcome, Outcome::Delivered);
                forwarded += 1;
            }
            _ => {}
        });
    }
    server.endpoint.turn(|_, _| {});
    let census = server.endpoint.buffers();
    assert_eq!(census.recv_posted + census.recv_free, census.recv_all);
    assert_eq!(census.send_free, census.send_all, "no buffer for sending was used");
}

#[test]
fn a_device_without_files_says_that_nobody_can_wait_for_it_by_a_descriptor() {
    let (mut client, _server) = mem_pair(config(), config()).expect("two small endpoints");
    let refused = client.endpoint.poll_fd().expect_err("it has no file");
    assert!(matches!(refused, PollFdError::Unsupported), "{refused}");
}
