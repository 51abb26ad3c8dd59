//! The worker that owns an endpoint: commands in, turns, events to whom they concern.

use crate::clock::Clock;
use crate::desk::Desk;
use crate::engine::{Came, Drive};
use crate::inbox::{Command, Inbox, OpenLink};
use crate::limits::{BATCH, WORKER_BLOCK_NS};
use crate::queue::Sender;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::wire::Hello;
use towpath_transport::{Endpoint, LinkError, PendingLink};
use towpath_verbs::Device;

/// How long links may take to close in order when the worker ends.
const GRACE: Nanos = Nanos::from_secs(1);

/// Turns in which the device lets go of what links had that are cut: one for them to end, three for
/// completions, and as many to spare.
const LAST_TURNS: u32 = 8;

/// What an `EndpointHandle` talks to: it owns the endpoint. Most have a thread that drives them;
/// one that was made by [`EndpointHandle::driven`](crate::EndpointHandle::driven) is driven by
/// whoever holds it: in virtual time, or in one thread with the applications. Nothing blocks here.
///
/// When it is dropped, its links end without a word: what was posted is refused, as is what is
/// posted afterwards, and what a link had already has an outcome as on any link that ends, unknown
/// where the peer may have it.
pub struct EndpointWorker<D: Device<Memory = Region>> {
    pub(crate) endpoint: Endpoint<D>,
    inbox: Arc<Inbox>,
    clock: Arc<Clock>,
    pub(crate) desk: Desk,
    ending: bool,
}

impl<D: Device<Memory = Region>> EndpointWorker<D> {
    pub(crate) fn new(
        endpoint: Endpoint<D>,
        (inbox, clock): (Arc<Inbox>, Arc<Clock>),
        accept: Sender<OpenLink>,
    ) -> Self {
        let desk = Desk::new(accept, &inbox);
        Self { endpoint, inbox, clock, desk, ending: false }
    }

    /// One turn: takes what handles asked for and posted, and has the endpoint take its turn, whose
    /// outcomes and arrivals it tells. Says whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        self.clock.set(self.endpoint.now());
        self.take_commands() | self.serve()
    }

    fn serve(&mut self) -> bool {
        let Self { endpoint, desk, .. } = self;
        desk.serve(endpoint) | endpoint.turn(|_, event| desk.on_event(event))
    }

    /// When [`turn`](Self::turn) has something to do at the latest, unless something arrives or is
    /// asked for: see [`Endpoint::next_timeout`].
    #[must_use]
    pub fn next_timeout(&self) -> Time {
        self.endpoint.next_timeout().min(self.desk.outbound.due())
    }

    /// Whether its last handle is gone, or one of them asked for the end.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ending
    }

    /// The endpoint, for its clock and its counters.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint<D> {
        &self.endpoint
    }

    /// Our half of a link whose HELLOs travel in another way than over TCP; see
    /// [`Endpoint::offer`].
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn offer(&mut self) -> Result<(Hello, PendingLink), LinkError> {
        self.endpoint.offer()
    }

    fn take_commands(&mut self) -> bool {
        let mut taken = 0;
        while taken < BATCH
            && let Some(command) = self.inbox.next_command()
        {
            self.on_command(command);
            taken += 1;
        }
        taken > 0
    }

    fn on_command(&mut self, command: Command) {
        let Self { endpoint, desk, .. } = self;
        // An answer that nobody waits for any more is dropped.
        match command {
            Command::Listen { addr, reply } => drop(reply.send(endpoint.listen(addr))),
            Command::Connect { addr, class, reply } => {
                let connect = match class {
                    Some(class) => endpoint.connect_as(addr, class),
                    None => endpoint.connect(addr),
                };
                match connect {
                    Ok(connect) => desk.connects.push((connect, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Command::Register { region, reply } => drop(reply.send(endpoint.register(&region))),
            Command::OpenChannel { link, ordered, reply } => {
                match endpoint.open_channel(link, ordered) {
                    Ok(channel) => desk.opens.push((link, channel, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
            Command::Grant { link, memory, range, rights, reply } => {
                let granted = endpoint.grant(link, &memory, range, rights);
                if let Err(Ok(id)) = reply.send(granted) {
                    // Nobody knows of it who could revoke it.
                    endpoint.revoke(link, id);
                }
            }
            Command::Revoke { link, grant, reply } => {
                let _ = reply.send(endpoint.revoke(link, grant));
            }
            Command::Operate(asked) => desk.ops.ask(endpoint, asked),
            Command::CloseLink { link } => desk.begin_close(link),
            Command::Stats { link, reply } => drop(reply.send(endpoint.stats(link))),
            Command::Shutdown => self.ending = true,
        }
    }

    /// Ends all links without a word, and tells what became of their messages.
    fn cut_links(&mut self) {
        let Self { endpoint, desk, .. } = self;
        endpoint.stop_listening();
        let links: Vec<_> = endpoint.links().collect();
        links.into_iter().for_each(|link| endpoint.cut(link));
        for _ in 0..LAST_TURNS {
            if desk.links.iter().all(Option::is_none) {
                break;
            }
            endpoint.turn(|_, event| desk.on_event(event));
        }
    }
}

impl<D: Device<Memory = Region> + Send> Drive for EndpointWorker<D> {
    fn take_in(&mut self) -> Came {
        let mut is_busy = self.endpoint.poll() > 0;
        let Self { endpoint, desk, .. } = self;
        while endpoint.take_event(|_, event| desk.on_event(event)) {
            is_busy = true;
        }
        match (std::mem::take(&mut desk.has_arrivals), is_busy) {
            (true, _) => Came::Messages,
            (false, true) => Came::Something,
            (false, false) => Came::Nothing,
        }
    }

    fn send_off(&mut self) -> bool {
        let is_busy = self.take_commands() | self.desk.serve(&mut self.endpoint);
        self.endpoint.flush();
        is_busy
    }

    fn prepare(&mut self, most: Duration) -> Duration {
        let due = self.desk.outbound.due().since(self.endpoint.now());
        self.endpoint.prepare_wait(most.min(due.into()))
    }

    fn block(&mut self, most: Duration) {
        let (begin, now) = (Instant::now(), self.endpoint.now());
        let span = self.next_timeout().since(now).min(most.into());
        self.inbox.bell().sleeps();
        if self.inbox.is_empty()
            && !self.endpoint.wait(span)
            && begin.elapsed() < Duration::from(span) / 2
        {
            // The device cannot block.
            thread::sleep(Duration::from(span.min(Nanos(WORKER_BLOCK_NS))));
        }
        self.inbox.bell().wakes();
    }

    fn time_left(&self) -> Option<Duration> {
        let due = self.next_timeout();
        (due != Time::NEVER).then(|| due.since(self.endpoint.now()).into())
    }

    fn is_over(&self) -> bool {
        self.ending
    }

    fn leave(mut self: Box<Self>) {
        self.inbox.end();
        self.endpoint.stop_listening();
        self.endpoint
            .links()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|l| self.desk.begin_close(l));
        let until = self.endpoint.now() + GRACE;
        while self.endpoint.links().next().is_some() && self.endpoint.now() < until {
            if !self.serve() {
                self.endpoint.wait(Nanos(WORKER_BLOCK_NS));
            }
        }
    }
}

impl<D: Device<Memory = Region>> Drop for EndpointWorker<D> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.inbox.panic();
        }
        let has_panicked = self.inbox.has_panicked();
        self.inbox.end();
        self.inbox.abandon();
        let channels = self.desk.links.iter().flatten().flat_map(|entry| &entry.channels);
        channels.flatten().for_each(|(_, egress)| egress.refuse_all());
        self.desk.outbound.refuse_all();
        // One that panicked may do so again.
        if !has_panicked {
            self.cut_links();
        }
        self.desk.outbound.give_up_all();
        self.desk.ops.give_up_all();
    }
}

impl<D: Device<Memory = Region>> std::fmt::Debug for EndpointWorker<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointWorker").field("ending", &self.ending).finish_non_exhaustive()
    }
}
