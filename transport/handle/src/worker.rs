//! The worker that owns an endpoint: commands in, turns, events to whom they concern.

use crate::clock::Clock;
use crate::commands::{Command, NewLink};
use crate::desk::Desk;
use crate::doorbell::Doorbell;
use crate::endpoint::EndpointHandle;
use crate::limits::{BATCH, WORKER_BLOCK_NS, WORKER_SLEEP_NS};
use crate::link::LinkHandle;
use crate::queue::{Sender, TryRecvError};
use std::sync::Arc;
use std::time::Duration;
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_proto::Side;
use towpath_proto::wire::Hello;
use towpath_transport::LinkError;
use towpath_transport::{Endpoint, PendingLink};
use towpath_verbs::Device;

/// How long links may take to close in order when the worker ends.
const GRACE: Nanos = Nanos::from_secs(1);

/// Turns in which the device lets go of what links had that are cut: one for them to end, three for
/// completions, and as many to spare.
const LAST_TURNS: u32 = 8;

/// What an [`EndpointHandle`] talks to: it owns the endpoint. Most have a thread that drives them;
/// one that was made by [`EndpointHandle::driven`](crate::EndpointHandle::driven) is driven by
/// whoever holds it: in virtual time, or in one thread with the applications. Nothing blocks here.
///
/// When it is dropped, its links end without a word: what was posted is refused, as is what is
/// posted afterwards, and what a link had already has an outcome as on any link that ends, unknown
/// where the peer may have it.
pub struct EndpointWorker<D: Device<Memory = Region>> {
    endpoint: Endpoint<D>,
    commands: crossbeam_channel::Receiver<Command>,
    bell: Arc<Doorbell>,
    clock: Arc<Clock>,
    desk: Desk,
    spin: Nanos,
    ending: bool,
}

impl<D: Device<Memory = Region>> EndpointWorker<D> {
    pub(super) fn new(
        endpoint: Endpoint<D>,
        commands: crossbeam_channel::Receiver<Command>,
        (bell, clock): (Arc<Doorbell>, Arc<Clock>),
        accept: Sender<NewLink>,
        spin: Nanos,
    ) -> Self {
        let desk = Desk::new(accept, &bell);
        Self { endpoint, commands, bell, clock, desk, spin, ending: false }
    }

    pub(super) fn run(mut self) {
        let mut busy_at = self.endpoint.now();
        self.clock.run(busy_at);
        while !self.ending {
            let worked = self.take_turn();
            let now = self.endpoint.now();
            if worked {
                busy_at = now;
            } else if now.since(busy_at) >= self.spin {
                self.clock.run(now);
                self.block(now);
            }
        }
        self.leave();
    }

    /// One turn: takes what handles asked for and posted, and has the endpoint take its turn, whose
    /// outcomes and arrivals it tells. Says whether there was anything to do.
    pub fn turn(&mut self) -> bool {
        self.clock.set(self.endpoint.now());
        self.take_turn()
    }

    fn take_turn(&mut self) -> bool {
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

    /// Joins our half with the peer's, for a handle of this worker; see [`Endpoint::establish`].
    ///
    /// # Errors
    /// [`LinkError`]; our half is withdrawn.
    pub fn establish(
        &mut self,
        handle: &EndpointHandle,
        half: PendingLink,
        peer: &Hello,
        side: Side,
    ) -> Result<LinkHandle, LinkError> {
        let id = self.endpoint.establish(half, peer, side)?;
        let peer = self.endpoint.peer(id).ok_or(LinkError::NotPending)?;
        Ok(LinkHandle::new(&handle.shared, self.desk.add_link(id, peer)))
    }

    /// Blocks until something arrives, is due or is asked for.
    fn block(&mut self, before: Time) {
        self.bell.bell().sleeps();
        let asked = !(self.commands.is_empty() && self.bell.is_empty());
        if !asked
            && !self.endpoint.wait(self.sleep())
            && self.endpoint.now().since(before) < self.spin
        {
            self.block_on_commands();
        }
        self.bell.bell().wakes();
    }

    /// How long nothing needs to be looked at: what is asked for, posted or given back rings, and
    /// deadlines of what waits for its turn are known.
    fn sleep(&self) -> Nanos {
        let most = if self.bell.bell().is_heard() { WORKER_SLEEP_NS } else { WORKER_BLOCK_NS };
        self.desk.outbound.due().since(self.endpoint.now()).min(Nanos(most))
    }

    /// Where the device cannot block.
    fn block_on_commands(&mut self) {
        let span = Duration::from(self.spin.saturating_mul(2)).min(Duration::from_millis(1));
        if let Ok(command) = self.commands.recv_timeout(span) {
            self.on_command(command);
        }
    }

    fn take_commands(&mut self) -> bool {
        for taken in 0..BATCH {
            match self.commands.try_recv() {
                Ok(command) => self.on_command(command),
                Err(TryRecvError::Empty) => return taken > 0,
                Err(TryRecvError::Disconnected) => {
                    self.ending = true;
                    return true;
                }
            }
        }
        true
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

    /// Closes all links in order, for as long as that may take.
    fn leave(mut self) {
        self.bell.end();
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

impl<D: Device<Memory = Region>> Drop for EndpointWorker<D> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.bell.panic();
        }
        self.bell.end();
        self.bell.leave();
        let channels = self.desk.links.iter().flatten().flat_map(|entry| &entry.channels);
        channels.flatten().for_each(|(_, egress)| egress.refuse_all());
        self.desk.outbound.refuse_all();
        self.commands.try_iter().for_each(Command::refuse);
        // One that panicked may do so again.
        if !std::thread::panicking() {
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
