//! The two ends of a measurement, and threads that keep channels busy.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use towpath_lab::studies::StudyError;
use towpath_transport::{
    Buf, ChannelHandle, ChannelId, CompletionQueue, Device, Endpoint, EndpointConfig,
    EndpointHandle, Event, LinkHandle, LinkId, Nanos, Outcome, Payload, Region, RoceUdp,
    SendOptions, SentMessage, SubmitError, UdpConfig,
};

/// Chunks that each channel may have under way: the least there is, so that many fit.
pub const QUOTA_CHUNKS: u32 = 8;

/// How long anything may take that is not measured.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the server has seen.
#[derive(Debug)]
struct Seen {
    /// Payload bytes by the channel's place.
    bytes: Vec<AtomicU64>,
    /// Queue pairs of the link.
    qps: AtomicUsize,
    stop: AtomicBool,
}

/// A server on a thread of its own that counts.
pub struct Counted {
    addr: SocketAddr,
    seen: Arc<Seen>,
    thread: Option<JoinHandle<()>>,
}

/// A server that counts, and a client with open channels.
pub struct Rig {
    /// The client.
    pub endpoint: EndpointHandle,
    /// Its link.
    pub link: LinkHandle,
    /// Its channels.
    pub channels: Vec<ChannelHandle>,
    /// What the channels lead to.
    pub server: Counted,
}

fn udp() -> UdpConfig {
    UdpConfig::new(Ipv4Addr::LOCALHOST.into())
}

/// How both ends are set up for so many channels.
#[must_use]
pub fn config(channels: usize, pools: &[(usize, usize)]) -> EndpointConfig {
    let channels = channels as u32;
    EndpointConfig::new()
        .links_max(1)
        .quota_chunks(QUOTA_CHUNKS)
        .credit_total(QUOTA_CHUNKS * channels.max(64))
        .tune_links(move |link| link.channels_max(channels.max(1)))
        .send_pools(pools)
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StudyError {
    StudyError::run("set-up", cause)
}

impl Counted {
    /// For a client with so many channels.
    ///
    /// # Errors
    /// [`StudyError::Run`] with what was refused.
    pub fn new(channels: usize, config: &EndpointConfig) -> Result<Self, StudyError> {
        let places = 2 * channels + 2;
        let seen = Arc::new(Seen {
            bytes: (0..places).map(|_| AtomicU64::new(0)).collect(),
            qps: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let mut endpoint = Endpoint::udp(udp(), config.clone()).map_err(failed)?;
        let addr = endpoint.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(failed)?;
        let theirs = Arc::clone(&seen);
        let thread = thread::spawn(move || serve(endpoint, &theirs));
        Ok(Self { addr, seen, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Payload bytes that it has taken in, of all channels.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.seen.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Payload bits in a second that arrive in a span from now on, after a fifth of it went before.
    #[must_use]
    pub fn bits_per_s(&self, span: Duration) -> f64 {
        thread::sleep(span / 5);
        let (bytes, began) = (self.bytes(), Instant::now());
        thread::sleep(span);
        (self.bytes() - bytes) as f64 * 8.0 / began.elapsed().as_secs_f64()
    }

    /// Queue pairs that the link has at this end.
    #[must_use]
    pub fn qps(&self) -> usize {
        self.seen.qps.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // What it has to say about its end was said on stderr.
            let _ = thread.join();
        }
    }
}

impl Rig {
    /// Makes both ends and opens ordered channels.
    ///
    /// # Errors
    /// [`StudyError::Run`] with what was refused.
    pub fn new(channels: usize, config: &EndpointConfig) -> Result<Self, StudyError> {
        let server = Counted::new(channels, config)?;
        let endpoint = EndpointHandle::spawn_udp(udp(), config.clone()).map_err(failed)?;
        let link = endpoint.connect(server.addr()).map_err(failed)?;
        let open = |_| link.open_channel(true).map_err(failed);
        let channels = (0..channels).map(open).collect::<Result<_, _>>()?;
        Ok(Self { endpoint, link, channels, server })
    }
}

/// A client that drives its endpoint itself, with channels open to a server that counts.
pub struct OwnLoop {
    /// The client.
    pub endpoint: Endpoint<RoceUdp>,
    /// Its link.
    pub link: LinkId,
    /// Its channels.
    pub channels: Vec<ChannelId>,
    /// What they lead to.
    pub server: Counted,
}

impl OwnLoop {
    /// Makes both ends and opens ordered channels.
    ///
    /// # Errors
    /// [`StudyError::Run`] with what was refused.
    pub fn new(count: usize, config: &EndpointConfig) -> Result<Self, StudyError> {
        let server = Counted::new(count, config)?;
        let mut endpoint = Endpoint::udp(udp(), config.clone()).map_err(failed)?;
        endpoint.connect(server.addr()).map_err(failed)?;
        let (mut link, mut channels, mut refused) = (None, Vec::new(), None);
        let until = Instant::now() + PATIENCE;
        while channels.len() < count {
            endpoint.turn(|at, event| match event {
                Event::Connected { link: up, .. } => {
                    link = Some(up);
                    refused = (0..count).find_map(|_| at.open_channel(up, true).err());
                }
                Event::ChannelOpened { channel, .. } => channels.push(channel),
                _ => {}
            });
            if let Some(error) = refused {
                return Err(failed(error));
            }
            if Instant::now() > until {
                return Err(failed("the server does not answer"));
            }
        }
        let link = link.ok_or_else(|| failed("no link"))?;
        Ok(Self { endpoint, link, channels, server })
    }
}

/// A client and a server with workers, and the client's link.
///
/// # Errors
/// [`StudyError::Run`] with what was refused.
pub fn two_handles(
    config: &EndpointConfig,
) -> Result<(EndpointHandle, EndpointHandle, LinkHandle), StudyError> {
    let server = EndpointHandle::spawn_udp(udp(), config.clone()).map_err(failed)?;
    let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).map_err(failed)?;
    let client = EndpointHandle::spawn_udp(udp(), config.clone()).map_err(failed)?;
    let link = client.connect(addr).map_err(failed)?;
    Ok((client, server, link))
}

fn serve(mut endpoint: Endpoint<impl Device<Memory = Region>>, seen: &Seen) {
    let count = |place: usize, bytes: usize| {
        if let Some(counter) = seen.bytes.get(place) {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    };
    while !seen.stop.load(Ordering::Relaxed) {
        let is_busy = endpoint.turn(|at, event| match event {
            Event::Message(message) => {
                count(message.channel().place(), message.len());
                at.release(message);
            }
            Event::StreamChunk { channel, chunk, .. } => count(channel.place(), chunk.len()),
            Event::Accepted { link, .. } => {
                // Those of its paths, and the one for acks.
                seen.qps.store(at.paths(link).count() + 1, Ordering::Relaxed);
            }
            _ => {}
        });
        if !is_busy {
            endpoint.wait(Nanos::from_millis(1));
        }
    }
}

/// A thread's own supply of buffers and its outcomes.
pub struct Poster {
    done: CompletionQueue,
    spare: Vec<Buf>,
    message_bytes: usize,
    depth: usize,
}

/// Why a poster cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// No outcome came for long.
    #[error("no acknowledgement for {} s; the machine may be overloaded", PATIENCE.as_secs())]
    Stuck,
    /// The pools are too small.
    #[error("no buffer of {0} bytes is free")]
    NoBuffer(usize),
    /// The channel took nothing more.
    #[error("the channel refused a message")]
    Refused(#[source] SubmitError),
    /// A message was not delivered.
    #[error("a message ended as {0:?}")]
    Lost(Outcome),
}

impl Poster {
    /// For messages of this length, so many under way.
    #[must_use]
    pub fn new(message_bytes: usize, depth: usize) -> Self {
        let done = CompletionQueue::new(depth);
        Self { done, spare: Vec::new(), message_bytes, depth }
    }

    fn buf(&mut self, channel: &ChannelHandle) -> Result<Buf, PostError> {
        if let Some(buf) = self.spare.pop() {
            return Ok(buf);
        }
        let none = PostError::NoBuffer(self.message_bytes);
        let Some(mut buf) = channel.alloc(self.message_bytes) else { return Err(none) };
        // What the bytes are does not matter here: they were zero, or another message's.
        buf.set_len(self.message_bytes).map_err(|_| none)?;
        Ok(buf)
    }

    /// Posts one message; waits for an outcome while as many are under way as may be.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn post(&mut self, channel: &ChannelHandle) -> Result<(), PostError> {
        while self.done.under_way() >= self.depth {
            self.wait()?;
        }
        let mut payload = Payload::from(self.buf(channel)?);
        loop {
            match channel.post(payload, SendOptions::new(), &self.done) {
                Ok(()) => return Ok(()),
                // Others fill the queue too, or the completions of this thread wait.
                Err(rejected) if rejected.error == SubmitError::QueueFull => {
                    payload = rejected.payload;
                    self.wait()?;
                }
                Err(rejected) => return Err(PostError::Refused(rejected.error)),
            }
        }
    }

    /// Waits for one outcome.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn wait(&mut self) -> Result<(), PostError> {
        let SentMessage { outcome, payload, .. } = match self.done.wait(PATIENCE) {
            Some(Ok(sent)) => sent,
            Some(Err(rejected)) => return Err(PostError::Refused(rejected.error)),
            None => return Err(PostError::Stuck),
        };
        self.spare.extend(payload.into_segments());
        match outcome {
            Outcome::Delivered => Ok(()),
            other => Err(PostError::Lost(other)),
        }
    }

    /// Takes outcomes until none is left to come.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn finish(&mut self) -> Result<(), PostError> {
        while self.done.under_way() > 0 {
            self.wait()?;
        }
        Ok(())
    }
}

/// Has threads post to channels in turn, each to its own ones, until a span is over; returns the
/// payload bits in a second that arrived in it, after a fifth of it went before.
///
/// # Errors
/// The first [`PostError`] of a thread.
pub fn throughput(
    rig: &Rig,
    threads: usize,
    message_bytes: usize,
    depth: usize,
    span: Duration,
) -> Result<f64, StudyError> {
    let per_thread = rig.channels.len().div_ceil(threads);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let posters: Vec<_> = rig
            .channels
            .chunks(per_thread)
            .map(|channels| {
                scope.spawn(move || {
                    let mut poster = Poster::new(message_bytes, depth);
                    for channel in channels.iter().cycle() {
                        if over.load(Ordering::Relaxed) {
                            break;
                        }
                        poster.post(channel)?;
                    }
                    poster.finish()
                })
            })
            .collect();
        let bits_per_s = rig.server.bits_per_s(span);
        over.store(true, Ordering::Relaxed);
        for poster in posters {
            let ended = poster.join().unwrap_or(Err(PostError::Stuck));
            ended.map_err(|error| StudyError::run("posting", error))?;
        }
        Ok(bits_per_s)
    })
}
