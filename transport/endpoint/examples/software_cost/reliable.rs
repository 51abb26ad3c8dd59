//! The same traffic over a reliable link: on one thread, one message at a time, on two threads.

use crate::case::{Case, Cost, MESSAGE};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use towpath_base::Nanos;
use towpath_device_mem::MemDevice;
use towpath_transport::{
    ChannelId, Endpoint, EndpointConfig, Event, LinkConfig, LinkId, MemEnd, Mtu, Payload,
    SendOptions, mem_pair,
};

/// Two endpoints with a link and a channel, and the messages that wait to be sent.
pub(crate) struct Pair {
    client: Endpoint<MemDevice>,
    server: Endpoint<MemDevice>,
    link: LinkId,
    channel: ChannelId,
    idle: Vec<Payload>,
    chunks_of_message: u64,
}

impl Pair {
    pub(crate) fn new(case: &Case) -> Result<Self, Box<dyn Error>> {
        let mtu = Mtu::from_bytes(case.mtu_bytes).ok_or("no such MTU")?;
        // So that chunks have the length of the case. Messages of less than a packet share chunks.
        let chunk_bytes = case.chunk_bytes.max(case.mtu_bytes - 64);
        let config = EndpointConfig::new()
            .links_max(1)
            .paths(case.paths)
            .quota_chunks(256)
            .mtu_max(mtu)
            .payload_crc(case.payload_crc)
            .tune_links(be_patient)
            .send_pools(&[(case.message_bytes(), case.depth)])
            .chunk_bytes_max(chunk_bytes);
        let (MemEnd { endpoint: client, link }, server) = mem_pair(config.clone(), config)?;
        let server = server.endpoint;
        let idle = Vec::with_capacity(case.depth);
        let chunks_of_message = u64::from(case.chunks_of_message);
        let channel = ChannelId(0);
        let mut pair = Self { client, server, link, channel, idle, chunks_of_message };
        pair.open()?;
        for _ in 0..case.depth {
            let mut buf = pair.client.alloc(case.message_bytes())?;
            buf.set_len(case.message_bytes())?;
            pair.idle.push(Payload::new(buf));
        }
        Ok(pair)
    }

    fn open(&mut self) -> Result<(), Box<dyn Error>> {
        self.client.open_channel(self.link, false)?;
        let mut opened = 0;
        while opened < 2 {
            let mut count = |event: &Event| {
                if let Event::ChannelOpened { channel, .. } = *event {
                    self.channel = channel;
                    opened += 1;
                }
            };
            self.client.turn(|_, event| count(&event));
            self.server.turn(|_, event| count(&event));
        }
        Ok(())
    }

    /// Sends `chunks` and waits until all of them are delivered.
    pub(crate) fn run(&mut self, chunks: u64) -> Cost {
        let messages = chunks / self.chunks_of_message;
        let (mut sent, mut delivered, mut cost) = (0, 0, Cost::default());
        let (link, channel) = (self.link, self.channel);
        while delivered < messages {
            let start = Instant::now();
            while sent < messages
                && let Some(payload) = self.idle.pop()
            {
                sent += 1;
                post(&mut self.client, link, channel, payload);
            }
            let idle = &mut self.idle;
            self.client.turn(|client, event| {
                if let Event::Sent { payload, .. } = event {
                    delivered += 1;
                    if sent < messages {
                        sent += 1;
                        post(client, link, channel, payload);
                    } else {
                        idle.push(payload);
                    }
                }
            });
            let turned = Instant::now();
            #[expect(
                clippy::redundant_closure,
                reason = "its name alone copies each event once more"
            )]
            self.server.turn(|server, event| take(server, event));
            cost.sender_ns += (turned - start).as_nanos() as f64;
            cost.receiver_ns += turned.elapsed().as_nanos() as f64;
        }
        let chunks = (messages * self.chunks_of_message) as f64;
        Cost { sender_ns: cost.sender_ns / chunks, receiver_ns: cost.receiver_ns / chunks }
    }
}

/// No timer expires, though a turn takes fifty times as long when its instructions are counted.
fn be_patient(link: LinkConfig) -> LinkConfig {
    link.rto(Nanos::from_millis(100), Nanos::from_millis(500)).sla_tick(Nanos::from_millis(500))
}

fn post(client: &mut Endpoint<MemDevice>, link: LinkId, channel: ChannelId, payload: Payload) {
    client.send(link, channel, payload, SendOptions::new()).expect("the link took as many before");
}

fn take(server: &mut Endpoint<MemDevice>, event: Event) {
    match event {
        Event::Message(message) => server.release(message),
        Event::StreamChunk { chunk, .. } => server.release_chunk(chunk),
        _ => {}
    }
}

/// What each turn costs when one message goes at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AloneCost {
    /// From the application's send to the chunk posted.
    pub(crate) send_ns: f64,
    /// From the chunk's completion to its ack posted, with the message taken in between.
    pub(crate) ack_turnaround_ns: f64,
    /// From the ack's completion to the outcome told.
    pub(crate) outcome_ns: f64,
    /// A turn in which nothing happens.
    pub(crate) idle_turn_ns: f64,
}

/// One message of 64 bytes at a time.
pub(crate) struct Alone {
    pair: Pair,
    clock_ns: f64,
}

impl Alone {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        Ok(Self { pair: Pair::new(&Case { depth: 1, ..MESSAGE })?, clock_ns: clock_ns() })
    }

    pub(crate) fn run(&mut self, messages: u64) -> AloneCost {
        let Pair { client, server, link, channel, idle, .. } = &mut self.pair;
        let mut cost = AloneCost::default();
        let mut payload = idle.pop();
        for _ in 0..messages {
            let start = Instant::now();
            post(client, *link, *channel, payload.take().expect("it came back"));
            client.flush();
            let sent = Instant::now();
            server.turn(take);
            let acked = Instant::now();
            client.turn(|_, event| {
                if let Event::Sent { payload: back, .. } = event {
                    payload = Some(back);
                }
            });
            let told = Instant::now();
            client.turn(|_, _| {});
            cost.idle_turn_ns += told.elapsed().as_nanos() as f64;
            cost.send_ns += (sent - start).as_nanos() as f64;
            cost.ack_turnaround_ns += (acked - sent).as_nanos() as f64;
            cost.outcome_ns += (told - acked).as_nanos() as f64;
        }
        idle.extend(payload);
        let each = |sum: f64| sum / messages as f64 - self.clock_ns;
        AloneCost {
            send_ns: each(cost.send_ns),
            ack_turnaround_ns: each(cost.ack_turnaround_ns),
            outcome_ns: each(cost.outcome_ns),
            idle_turn_ns: each(cost.idle_turn_ns),
        }
    }
}

/// What reading the clock costs, which each span above holds once: the least of many tries, so
/// that other work on the machine is not taken for it.
fn clock_ns() -> f64 {
    const TRIES: u32 = 200;
    const READS: u32 = 500;
    let try_once = |_| {
        let start = Instant::now();
        for _ in 0..READS {
            std::hint::black_box(Instant::now());
        }
        start.elapsed().as_nanos() as f64 / f64::from(READS)
    };
    (0..TRIES).map(try_once).fold(f64::INFINITY, f64::min)
}

/// Millions of 64-byte messages a second with the receiver on a thread of its own.
pub(crate) fn two_threads(messages: u64) -> Result<f64, Box<dyn Error>> {
    let Pair { mut client, mut server, link, channel, idle, .. } = Pair::new(&MESSAGE)?;
    let done = AtomicBool::new(false);
    Ok(thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                server.turn(take);
            }
        });
        let start = Instant::now();
        let (mut sent, mut delivered) = (idle.len() as u64, 0);
        idle.into_iter().for_each(|payload| post(&mut client, link, channel, payload));
        while delivered < messages {
            client.turn(|client, event| {
                if let Event::Sent { payload, .. } = event {
                    delivered += 1;
                    if sent < messages {
                        sent += 1;
                        post(client, link, channel, payload);
                    }
                }
            });
        }
        let rate = messages as f64 / start.elapsed().as_secs_f64() / 1e6;
        done.store(true, Ordering::Relaxed);
        rate
    }))
}
