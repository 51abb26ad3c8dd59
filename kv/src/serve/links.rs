//! Requests over Towpath channels, served by few threads: one message each way for a request.

use super::counters::{Counters, add};
use super::requests::answer_message;
use crate::channel::SEND_TIMEOUT;
use crate::execute::{Caller, Service};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use towpath_clock::Clock;
use towpath_transport::{
    AllocError, ChannelId, Device, Endpoint, Event, LinkId, Message, Nanos, Payload, Region,
    Rights, SendBuffers as _, SendOptions, SubmitError,
};

/// The longest sleep: packets and the wish to stop end it before.
const WAIT_MAX: Nanos = Nanos::from_secs(1);

/// Threads that serve links until they are dropped or stopped.
#[derive(Debug)]
pub struct LinkServer {
    is_stopped: Arc<AtomicBool>,
    /// What ends the sleep of each thread.
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<()>>,
}

/// What one thread serves.
struct LinkWorker<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    service: Service,
    counters: Arc<Counters>,
    clock: Clock,
    links: HashMap<LinkId, Peer>,
    out: Vec<u8>,
}

/// One link.
#[derive(Default)]
struct Peer {
    callers: HashMap<ChannelId, Caller>,
    /// The reply that there was no room for. The link's next requests wait, and hold its credit.
    unsent: Option<(ChannelId, Unsent)>,
    waiting: VecDeque<Message>,
}

enum Unsent {
    /// There was no buffer, or the link held its share of them.
    Bytes(Vec<u8>),
    /// The link was full.
    Payload(Payload),
}

impl LinkServer {
    /// Serves each endpoint on a thread of its own; the caller has them listen. With `polls` they
    /// do not sleep.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start<D: Device<Memory = Region> + Send + 'static>(
        endpoints: Vec<Endpoint<D>>,
        service: &Service,
        counters: &Arc<Counters>,
        clock: &Clock,
        polls: bool,
    ) -> io::Result<Self> {
        let (wakers, threads) = (Vec::new(), Vec::new());
        let mut server = Self { is_stopped: Arc::default(), wakers, threads };
        for (number, endpoint) in endpoints.into_iter().enumerate() {
            server.wakers.extend(endpoint.waker());
            let worker = LinkWorker {
                endpoint,
                service: service.clone(),
                counters: Arc::clone(counters),
                clock: clock.clone(),
                links: HashMap::new(),
                out: Vec::new(),
            };
            let is_stopped = Arc::clone(&server.is_stopped);
            let name = format!("kv-link-{number}");
            let thread = thread::Builder::new().name(name);
            server.threads.push(thread.spawn(move || worker.run(&is_stopped, polls))?);
        }
        Ok(server)
    }

    /// Ends all links and threads.
    ///
    /// # Errors
    /// A thread had panicked.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_stopped.store(true, Relaxed);
        self.wakers.iter().for_each(Waker::wake_by_ref);
        self.threads
            .drain(..)
            .try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread panicked")))
    }
}

impl Drop for LinkServer {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.end();
    }
}

impl<D: Device<Memory = Region>> LinkWorker<D> {
    fn run(mut self, is_stopped: &AtomicBool, polls: bool) {
        while !is_stopped.load(Relaxed) {
            let mut is_busy = self.endpoint.poll() > 0;
            while let Some(event) = self.endpoint.next_event() {
                is_busy = true;
                self.handle(event);
            }
            self.endpoint.flush();
            if !is_busy && !polls {
                self.endpoint.wait(WAIT_MAX);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message(message) => {
                let link = message.link();
                let peer = self.links.entry(link).or_default();
                peer.waiting.push_back(message);
                self.go_on(link);
            }
            Event::Accepted { link, .. } => {
                add(&self.counters.accepted, 1);
                if let Some(published) = self.service.store().published() {
                    let memory = published.memory();
                    // A client to which it is not granted asks for all.
                    let range = 0..published.shape().bytes();
                    let _ = self.endpoint.grant(link, memory, range, Rights::READ);
                }
            }
            Event::Writable { link } => self.go_on(link),
            Event::Sent { send, .. } => {
                let link = send.link();
                if self.links.get(&link).is_some_and(|peer| peer.unsent.is_some()) {
                    self.go_on(link);
                }
            }
            Event::BufferFree { .. } => {
                let waiting = self.links.iter().filter(|(_, peer)| peer.unsent.is_some());
                let waiting: Vec<_> = waiting.map(|(link, _)| *link).collect();
                waiting.into_iter().for_each(|link| self.go_on(link));
            }
            Event::ChannelClosed { link, channel, .. } => {
                if let Some(peer) = self.links.get_mut(&link) {
                    peer.callers.remove(&channel);
                }
            }
            Event::CarrierChanged { link, from, to, why } => {
                let addr = self.endpoint.peer(link).map(|peer| peer.device_addr);
                let peer = addr.map(|addr| addr.to_string()).unwrap_or_default();
                let link = link.index();
                tracing::warn!(link, peer, %from, %to, %why, "a link changes carrier");
            }
            Event::LinkDown { link, .. } => {
                let peer = self.links.remove(&link).unwrap_or_default();
                peer.waiting.into_iter().for_each(|message| self.endpoint.release(message));
            }
            _ => {}
        }
    }

    /// Answers the requests of a link, as long as there is room for the replies.
    fn go_on(&mut self, link: LinkId) {
        let Some(peer) = self.links.get_mut(&link) else { return };
        loop {
            if let Some((channel, unsent)) = peer.unsent.take() {
                peer.unsent = send(&mut self.endpoint, link, channel, unsent);
                if peer.unsent.is_some() {
                    return;
                }
            }
            let Some(message) = peer.waiting.pop_front() else { return };
            let channel = message.channel();
            let caller = peer.callers.entry(channel).or_default();
            self.out.clear();
            let now = self.clock.now();
            let is_sound = match message.as_slice() {
                Some(bytes) => answer_message(&self.service, bytes, caller, now, &mut self.out),
                None => {
                    answer_message(&self.service, &message.to_vec(), caller, now, &mut self.out)
                }
            };
            self.counters.count_message(is_sound);
            // Before the reply, which tells of the credit that this gives back.
            self.endpoint.release(message);
            match self.endpoint.buffers_of(link).copy(&self.out) {
                Ok(buf) => {
                    let payload = Unsent::Payload(buf.into());
                    peer.unsent = send(&mut self.endpoint, link, channel, payload);
                }
                Err(_) => peer.unsent = Some((channel, Unsent::Bytes(self.out.clone()))),
            }
        }
    }
}

/// Sends a reply; gives it back where it has to wait.
fn send<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    link: LinkId,
    channel: ChannelId,
    unsent: Unsent,
) -> Option<(ChannelId, Unsent)> {
    let payload = match unsent {
        Unsent::Payload(payload) => payload,
        Unsent::Bytes(bytes) => match endpoint.buffers_of(link).copy(&bytes) {
            Ok(buf) => buf.into(),
            // It goes on when some of what the link sends has ended.
            Err(AllocError::OverShare { .. }) => return Some((channel, Unsent::Bytes(bytes))),
            Err(_) => {
                endpoint.want_buffer(bytes.len());
                return Some((channel, Unsent::Bytes(bytes)));
            }
        },
    };
    // A peer that takes none for so long asks again, if it is there.
    let options = SendOptions::new().timeout(SEND_TIMEOUT.into());
    let rejected = endpoint.send(link, channel, payload, options).err()?;
    match rejected.error {
        SubmitError::Full => Some((channel, Unsent::Payload(rejected.payload))),
        // The link or the channel is gone, and with it whoever asked.
        _ => None,
    }
}
