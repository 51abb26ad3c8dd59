//! An endpoint that sends without end, and counts.

use std::net::{Ipv4Addr, SocketAddr};
use towpath_base::Nanos;
use towpath_device_verbs::VerbsDevice;
use towpath_transport::{
    ChannelId, DownReason, Endpoint, EndpointConfig, Event, LinkId, Outcome, SendOptions,
};

/// Bytes of a message: several chunks.
const MESSAGE_BYTES: usize = 60_000;

/// Messages under way.
const DEPTH: u64 = 16;

/// Turns in which nothing happened before something has gone wrong: minutes.
const IDLE_TURNS_MAX: u32 = 60_000;

/// One end, with one link.
pub(crate) struct Talker {
    pub(crate) endpoint: Endpoint<VerbsDevice>,
    pub(crate) counts: Counts,
    channel: Option<(LinkId, ChannelId)>,
}

/// What happened so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: u64,
    pub(crate) delivered: u64,
    /// Messages that ended in another way.
    pub(crate) failed: u64,
    pub(crate) received: u64,
    pub(crate) down: Option<DownReason>,
    /// What the device itself told.
    pub(crate) device: Vec<towpath_verbs::AsyncEvent>,
}

pub(crate) fn config() -> EndpointConfig {
    let pools = [(4096, 256), (64 << 10, 64)];
    EndpointConfig::new().quota_chunks(32).credit_total(128).links_max(2).send_pools(&pools)
}

impl Talker {
    pub(crate) fn new(device: VerbsDevice) -> Self {
        let endpoint = Endpoint::new(device, config()).expect("an endpoint");
        Self { endpoint, counts: Counts::default(), channel: None }
    }

    /// Listens; the address is for whoever dials.
    pub(crate) fn listen(&mut self) -> SocketAddr {
        self.endpoint.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port")
    }

    pub(crate) fn dial(&mut self, addr: SocketAddr) {
        self.endpoint.connect(addr).expect("room");
    }

    /// Turns until `done`.
    pub(crate) fn run_until(&mut self, what: &str, done: impl Fn(&Counts) -> bool) {
        let mut idle = 0;
        while !done(&self.counts) {
            idle = if self.turn() { 0 } else { idle + 1 };
            assert!(idle < IDLE_TURNS_MAX, "stuck until {what}: {:?}", self.counts);
            if idle > 0 {
                self.endpoint.wait(Nanos::from_millis(1));
            }
        }
    }

    /// Turns together with the other end until `done`.
    pub(crate) fn run_beside(
        &mut self,
        other: &mut Self,
        what: &str,
        done: impl Fn(&Counts, &Counts) -> bool,
    ) {
        let mut idle = 0;
        while !done(&self.counts, &other.counts) {
            idle = if self.turn() | other.turn() { 0 } else { idle + 1 };
            let counts = (&self.counts, &other.counts);
            assert!(idle < IDLE_TURNS_MAX, "stuck until {what}: {counts:?}");
            if idle > 0 {
                self.endpoint.wait(Nanos::from_micros(100));
            }
        }
    }

    /// True when something happened.
    pub(crate) fn turn(&mut self) -> bool {
        let Self { endpoint, counts, channel } = self;
        let busy = endpoint.turn(|endpoint, event| match event {
            // Who has dialled opens the channel; both send on it.
            Event::Connected { link, .. } => {
                endpoint.open_channel(link, true).expect("a fresh link has room");
            }
            Event::ChannelOpened { link, channel: opened, .. } => *channel = Some((link, opened)),
            Event::Message(message) => {
                counts.received += 1;
                endpoint.release(message);
            }
            Event::Sent { outcome: Outcome::Delivered, .. } => counts.delivered += 1,
            Event::Sent { .. } => counts.failed += 1,
            Event::LinkDown { reason, .. } => {
                counts.down = Some(reason);
                *channel = None;
            }
            Event::Device { event } => counts.device.push(event),
            Event::ConnectFailed { error, .. } => panic!("{error}"),
            _ => {}
        });
        self.post();
        busy
    }

    fn post(&mut self) {
        let Some((link, channel)) = self.channel else { return };
        while self.counts.sent - self.counts.delivered - self.counts.failed < DEPTH {
            let Ok(mut buf) = self.endpoint.alloc(MESSAGE_BYTES) else { return };
            buf.set_len(MESSAGE_BYTES).expect("it was asked for");
            if self.endpoint.send(link, channel, buf, SendOptions::new()).is_err() {
                return;
            }
            self.counts.sent += 1;
        }
    }
}
