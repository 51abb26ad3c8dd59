//! The two ends of a measurement, and threads that keep channels busy.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use towpath_handle::{ChannelHandle, EndpointHandle, LinkHandle};
use towpath_lab::studies::StudyError;
use towpath_transport::{
    ChannelId, Device, Endpoint, EndpointConfig, Event, LinkId, Nanos, Region, RoceUdp, UdpConfig,
};

use towpath_lab::failure::PostError;
use towpath_lab::solo::Poster;

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
    /// The place of a channel of which nothing is given back any more.
    stalled: AtomicUsize,
    stop: AtomicBool,
}

/// The place of no channel.
const NOWHERE: usize = usize::MAX;

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
            stalled: AtomicUsize::new(NOWHERE),
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

    /// Payload bytes of one channel.
    #[must_use]
    pub fn bytes_of(&self, channel: ChannelId) -> u64 {
        self.seen.bytes.get(channel.place()).map_or(0, |bytes| bytes.load(Ordering::Relaxed))
    }

    /// Payload bits in a second that arrive in a span from now on, after a fifth of it went before.
    #[must_use]
    pub fn bits_per_s(&self, span: Duration) -> f64 {
        self.rate(span, Self::bytes)
    }

    /// As [`bits_per_s`](Self::bits_per_s), of what `count` counts.
    #[must_use]
    pub fn rate(&self, span: Duration, count: impl Fn(&Self) -> u64) -> f64 {
        thread::sleep(span / 5);
        let (bytes, began) = (count(self), Instant::now());
        thread::sleep(span);
        (count(self) - bytes) as f64 * 8.0 / began.elapsed().as_secs_f64()
    }

    /// From now on keeps what comes on a channel, as a reader that stalls.
    pub fn stall(&self, channel: ChannelId) {
        self.seen.stalled.store(channel.place(), Ordering::Relaxed);
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
        Self::with(channels, channels, config)
    }

    /// The same with room for `most` channels at a time.
    ///
    /// # Errors
    /// As above.
    pub fn with(channels: usize, most: usize, config: &EndpointConfig) -> Result<Self, StudyError> {
        let server = Counted::new(most, config)?;
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
    let (mut messages, mut chunks) = (Vec::new(), Vec::new());
    while !seen.stop.load(Ordering::Relaxed) {
        let stalled = seen.stalled.load(Ordering::Relaxed);
        let is_busy = endpoint.turn(|at, event| match event {
            Event::Message(message) => {
                count(message.channel().place(), message.len());
                // As much as its credit is.
                if message.channel().place() == stalled {
                    messages.push(message);
                } else {
                    at.release(message);
                }
            }
            Event::StreamChunk { channel, chunk, .. } => {
                count(channel.place(), chunk.len());
                if channel.place() == stalled {
                    chunks.push(chunk);
                }
            }
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

/// Has threads post to channels in turn, each to its own ones, until it is over.
pub fn post_in_turn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    channels: &'scope [ChannelHandle],
    threads: usize,
    message_bytes: usize,
    depth: usize,
    over: &'scope AtomicBool,
) -> Vec<ScopedJoinHandle<'scope, Result<(), PostError>>> {
    let per_thread = channels.len().div_ceil(threads);
    let post = |channels: &'scope [ChannelHandle]| {
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
    };
    channels.chunks(per_thread).map(post).collect()
}

/// Has threads post to all channels of a rig for a span; returns the payload bits in a second that
/// arrived in it, after a fifth of it went before.
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
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let posters = post_in_turn(scope, &rig.channels, threads, message_bytes, depth, &over);
        let bits_per_s = rig.server.bits_per_s(span);
        over.store(true, Ordering::Relaxed);
        for poster in posters {
            let ended = poster.join().unwrap_or(Err(PostError::Stuck));
            ended.map_err(|error| StudyError::run("posting", error))?;
        }
        Ok(bits_per_s)
    })
}
