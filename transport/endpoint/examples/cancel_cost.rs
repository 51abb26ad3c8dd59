//! What it costs to give a message up, on the device in memory: from the call to the outcome.
//!
//! Both ends run in turn on one thread, so that a span is the work of both of them and no waiting.
//! Messages that are given up and messages that are delivered take turns, one by one, over one
//! link. The window lets through a third of a message before the first ack.
//!
//! `cargo run --profile dist -p towpath-transport --features mem --example cancel_cost`

use clap::Parser;
use std::error::Error;
use std::time::Instant;
use towpath_cc::{ControllerConfig, FixedWindowConfig};
use towpath_device_mem::MemDevice;
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkId, MemEnd, Mtu, Outcome, Payload, SendOptions,
    mem_pair,
};

/// Bytes of a message: 24 chunks, below what is streamed.
const MESSAGE_BYTES: usize = 24 * 4032;

/// Turns of both ends after which something is wrong.
const TURNS_MAX: u32 = 10_000;

/// Measures what it costs to give messages up.
#[derive(Parser)]
struct Args {
    /// Messages of each kind; one tenth more goes before them.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(10..))]
    messages: u64,
}

/// How a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Given up before anything left.
    Queued,
    /// Given up when a third of it had left.
    InFlight,
    /// Given up when the peer had taken in the third that had left.
    Read,
    /// Not given up.
    Delivered,
}

const ENDS: [(End, &str); 4] = [
    (End::Queued, "given up before anything left"),
    (End::InFlight, "given up when a third had left"),
    (End::Read, "given up when a third had been read"),
    (End::Delivered, "not given up: from the send on"),
];

struct Pair {
    client: Endpoint<MemDevice>,
    server: Endpoint<MemDevice>,
    link: LinkId,
    channel: ChannelId,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let (mut pair, mut payload) = Pair::new()?;
    let mut spans: [Vec<u64>; ENDS.len()] = Default::default();
    let mut turns = [0; ENDS.len()];
    for message in 0..args.messages + args.messages / 10 {
        for (place, (end, _)) in ENDS.into_iter().enumerate() {
            let (back, span_ns, turned) = pair.run(end, payload)?;
            payload = back;
            if message >= args.messages / 10 {
                spans[place].push(span_ns);
                turns[place] += turned;
            }
        }
    }
    println!(
        "{:38}{:>10}{:>10}{:>10}",
        "nanoseconds of both ends together", "median", "p99", "turns"
    );
    for (place, (_, what)) in ENDS.into_iter().enumerate() {
        let spans = &mut spans[place];
        spans.sort_unstable();
        let at = |share: f64| spans[(spans.len() as f64 * share) as usize];
        let turns = turns[place] as f64 / spans.len() as f64;
        println!("{what:38}{:>10}{:>10}{turns:>10.2}", at(0.5), at(0.99));
    }
    pair.check_nothing_left()
}

impl Pair {
    fn new() -> Result<(Self, Payload), Box<dyn Error>> {
        let window = FixedWindowConfig::new(32 << 10)?;
        let config = EndpointConfig::new()
            .links_max(1)
            .mtu_max(Mtu::Mtu4096)
            .chunk_bytes_max(4096 - 64)
            .controller(ControllerConfig::Fixed(window))
            .send_pools(&[(MESSAGE_BYTES, 1)]);
        let (MemEnd { endpoint: client, link }, server) = mem_pair(config.clone(), config)?;
        let mut pair = Self { client, server: server.endpoint, link, channel: ChannelId(0) };
        pair.client.open_channel(link, false)?;
        let mut opened = 0;
        while opened < 2 {
            let mut count = |event: &Event| {
                if let Event::ChannelOpened { channel, .. } = *event {
                    (pair.channel, opened) = (channel, opened + 1);
                }
            };
            pair.client.turn(|_, event| count(&event));
            pair.server.turn(|_, event| count(&event));
        }
        let mut buf = pair.client.alloc(MESSAGE_BYTES)?;
        buf.set_len(MESSAGE_BYTES)?;
        Ok((pair, Payload::new(buf)))
    }

    /// One message to its outcome: the buffer, the span in nanoseconds, the turns of each end.
    fn run(&mut self, end: End, payload: Payload) -> Result<(Payload, u64, u32), Box<dyn Error>> {
        let Self { client, server, link, channel } = self;
        let mut start = Instant::now();
        let send = client.send(*link, *channel, payload, SendOptions::new());
        let send = send.map_err(|rejected| rejected.error)?;
        if matches!(end, End::InFlight | End::Read) {
            client.flush();
        }
        if end == End::Read {
            server.turn(take);
        }
        if end != End::Delivered {
            start = Instant::now();
            client.cancel(send)?;
        }
        client.flush();
        let mut ended = None;
        let mut turns = 0;
        while ended.is_none() {
            if end != End::Queued || turns > 0 {
                server.turn(take);
            }
            client.turn(|_, event| {
                if let Event::Sent { payload, outcome, .. } = event {
                    ended = Some((payload, outcome));
                }
            });
            turns += 1;
            if turns == TURNS_MAX {
                return Err("a message has no outcome".into());
            }
        }
        let span_ns = start.elapsed().as_nanos() as u64;
        let (payload, outcome) = ended.ok_or("no outcome")?;
        let expected = if end == End::Delivered { Outcome::Delivered } else { Outcome::Abandoned };
        if outcome != expected {
            return Err(format!("{end:?} ended as {outcome:?}").into());
        }
        self.settle();
        Ok((payload, span_ns, turns))
    }

    /// Until both ends have nothing more to say.
    fn settle(&mut self) {
        while self.server.turn(take) | self.client.turn(|_, _| {}) {}
    }

    fn check_nothing_left(&mut self) -> Result<(), Box<dyn Error>> {
        self.settle();
        for end in [&self.client, &self.server] {
            let buffers = end.buffers();
            if buffers.recv_posted + buffers.recv_free != buffers.recv_all {
                return Err(format!("buffers are left: {buffers:?}").into());
            }
        }
        Ok(())
    }
}

fn take(server: &mut Endpoint<MemDevice>, event: Event) {
    match event {
        Event::Message(message) => server.release(message),
        Event::StreamChunk { chunk, .. } => server.release_chunk(chunk),
        _ => {}
    }
}
