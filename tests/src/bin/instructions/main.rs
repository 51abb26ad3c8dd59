//! Sends messages between two endpoints in one thread, so that a tool can count instructions.
//!
//! `instructions BYTES IN_FLIGHT MESSAGES` sends that many messages of that length over a reliable
//! link between two in-process devices, `IN_FLIGHT` of them at a time. The sender's work is below
//! the function `sender_turn` and the receiver's work below `receiver_turn`, so a call graph gives
//! the cost of each end. The clock advances by a fixed step per turn, because timers and congestion
//! control would otherwise depend on the speed of the machine. `cargo xtask instructions` runs this
//! program under callgrind.

#![forbid(unsafe_code)]

mod steady;

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use steady::Steady;
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, Payload, SendOptions, Side,
};

/// Time between two turns: about what a turn with some messages takes.
const STEP_NS: u64 = 5_000;

/// The sending end.
struct Sender {
    endpoint: Endpoint<Steady>,
    link: LinkId,
    channel: ChannelId,
    /// Messages that are not yet given to the link.
    unsent: u64,
    /// Messages that the receiver has acknowledged.
    delivered: u64,
}

/// One turn of the sender, which replaces each delivered message by the next one.
#[inline(never)]
fn sender_turn(sender: &mut Sender) {
    let Sender { endpoint, link, channel, unsent, delivered } = sender;
    endpoint.turn(|endpoint, event| {
        let Event::Sent { payload, .. } = event else { return };
        *delivered += 1;
        if *unsent > 0 {
            *unsent -= 1;
            send(endpoint, *link, *channel, payload);
        }
    });
}

fn send(endpoint: &mut Endpoint<Steady>, link: LinkId, channel: ChannelId, payload: Payload) {
    endpoint
        .send(link, channel, payload, SendOptions::new())
        .expect("a link takes as many messages as are under way here");
}

/// One turn of the receiver, which gives each message back at once.
#[inline(never)]
fn receiver_turn(receiver: &mut Endpoint<Steady>) {
    receiver.turn(|endpoint, event| match event {
        Event::Message(message) => endpoint.release(message),
        Event::StreamChunk { chunk, .. } => endpoint.release_chunk(chunk),
        _ => {}
    });
}

/// Counts an opened channel.
fn opened(event: &Event, opened: &mut usize) -> Option<ChannelId> {
    let Event::ChannelOpened { channel, .. } = *event else { return None };
    *opened += 1;
    Some(channel)
}

/// Two endpoints with a link and an open channel; `count` send buffers of `bytes`.
fn pair(
    clock: &Rc<Cell<u64>>,
    bytes: usize,
    count: usize,
) -> Result<(Sender, Endpoint<Steady>), Box<dyn Error>> {
    // A checksum over each payload, as links over packets have it by default.
    let config = EndpointConfig::new()
        .links_max(1)
        .payload_crc(true)
        .quota_chunks(256)
        .send_pools(&[(bytes, count)]);
    let (near, far) = Steady::pair(clock);
    let mut endpoint = Endpoint::new(near, config.clone())?;
    let mut receiver = Endpoint::new(far, config)?;
    let (near_hello, near_half) = endpoint.offer()?;
    let (far_hello, far_half) = receiver.offer()?;
    let link = endpoint.establish(near_half, &far_hello, Side::Client)?;
    receiver.establish(far_half, &near_hello, Side::Server)?;
    endpoint.open_channel(link, false)?;
    let (mut channel, mut open) = (None, 0);
    while open < 2 {
        endpoint.turn(|_, event| channel = opened(&event, &mut open).or(channel));
        receiver.turn(|_, event| {
            opened(&event, &mut open);
        });
        clock.set(clock.get() + STEP_NS);
    }
    let channel = channel.ok_or("the channel opened at the receiver only")?;
    Ok((Sender { endpoint, link, channel, unsent: 0, delivered: 0 }, receiver))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let [bytes, in_flight, messages] = arguments[..] else {
        return Err("usage: instructions BYTES IN_FLIGHT MESSAGES".into());
    };
    let clock = Rc::new(Cell::new(0));
    let bytes = usize::try_from(bytes)?;
    let (mut sender, mut receiver) = pair(&clock, bytes, usize::try_from(in_flight)?)?;
    sender.unsent = messages.saturating_sub(in_flight);
    for _ in 0..in_flight.min(messages) {
        let mut buf = sender.endpoint.alloc(bytes)?;
        buf.set_len(bytes)?;
        send(&mut sender.endpoint, sender.link, sender.channel, Payload::new(buf));
    }
    while sender.delivered < messages {
        sender_turn(&mut sender);
        clock.set(clock.get() + STEP_NS);
        receiver_turn(&mut receiver);
        clock.set(clock.get() + STEP_NS);
    }
    Ok(())
}
