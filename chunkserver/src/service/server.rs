//! The server: one endpoint, run to completion, and the store behind it.

use std::hint::spin_loop;
use std::time::{Duration, Instant};

use towpath_rpc::{
    Incoming, NoBuffer, Outgoing, Piece, RequestKey, Responder, RpcServer,
    ServerConfig as RpcConfig, Status,
};
use towpath_transport::{Buf, Device, Endpoint, Event, LinkId, Nanos, Region, Time};

use super::answer::Answer;
use super::ask::Asked;
use super::clients::Clients;
use super::config::{ServiceConfig, cores_to_spare};
use super::drive::Drive;
use super::gate::Gate;
use super::limits::{CONTROL_LOOK, DISK_SPIN, ENTRY_LOOK, GOODBYE_WAIT, STORE_WAIT};
use super::onward::Onward;
use super::open::Open;
use super::scheduler::Scheduler;
use super::stats::ServerStats;
use super::stops::StopReason;
use super::trace::Trace;
use super::waiting::{Look, Waiting};
use super::watch::Watch;
use crate::guard::Guard;
use crate::qos::TenantId;
use crate::store::Completion;
use crate::store::disks::{Closed, Disks};

/// An answer on its way to its client.
#[derive(Debug)]
struct Answered {
    responder: Responder,
    deadline: Time,
    answer: Answer,
    /// Of a request that went to the store, and whose it is.
    trace: Option<(Trace, TenantId)>,
}

impl Answered {
    /// The response; none where nobody waits for it any more.
    fn build<D: Device<Memory = Region>>(
        &mut self,
        now: Time,
        endpoint: &Endpoint<D>,
        rpc: &RpcServer,
    ) -> Result<Option<(Status, Outgoing)>, NoBuffer> {
        if now >= self.deadline || !rpc.is_wanted(&self.responder) {
            return Ok(None);
        }
        let link = self.responder.link();
        let mut built = self.answer.build(&endpoint.buffers_of(link));
        if built.is_err() && endpoint.link_usage(link).is_some_and(|of| of.sends == 0) {
            // Data that waits for its head may be all of the share of a link, and none of it would
            // ever be given back: nothing of the link is under way.
            built = self.answer.build(endpoint);
        }
        built.map(Some)
    }
}

/// A chunk server: serves the chunks of a store to the clients of an endpoint.
///
/// The thread that owns it is the network thread. It drives the endpoint, checks the data of writes
/// while the data is in the processor's cache, and passes requests to the store in the order in
/// which they came over each link: to the store's thread, or, where no core is to spare for one,
/// [driving](Self::driving) the store itself. A change is answered when it is on stable media. A
/// read that is sent after the answer to a write sees that write; a read that is sent earlier may
/// see the old data.
///
/// The data of a write stays in its receive buffers until the store is done with it. These buffers
/// are credit of the channel, so a slow store slows its clients and drops nothing. Requests that
/// find the store's queue full wait, link by link in turn. A link with more than
/// [`link_requests_max`](ServiceConfig::link_requests_max) requests under way gets the answer
/// that the server is busy.
pub struct ChunkServer<D: Device<Memory = Region>> {
    pub(super) endpoint: Endpoint<D>,
    pub(super) rpc: RpcServer,
    pub(super) store: Disks<Piece>,
    /// The stores that this thread drives.
    pub(super) drive: Drive,
    /// Answers of the store end a wait of the endpoint.
    store_wakes: bool,
    pub(super) config: ServiceConfig,
    /// What the store has, and what waits for it.
    pub(super) sched: Scheduler<Asked>,
    pub(super) gate: Gate,
    pub(super) clients: Clients,
    /// Of each link in its order, as far as there are buffers for it.
    answers: Waiting<Answered>,
    /// Requests whose data is still coming.
    pub(super) open: Open,
    /// Writes that go on to other servers.
    pub(super) onward: Onward,
    pub(super) stats: ServerStats,
    pub(super) watch: Watch,
    idle_since: Option<Time>,
    /// There are cores beyond those that a client, the network and the store keep busy.
    cores_to_spare: bool,
}

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// A server on an endpoint that listens already, or will: the only one of its disks, or one of
    /// several, each with clients of its own on a thread of its own.
    #[must_use]
    pub fn new(
        endpoint: Endpoint<D>,
        store: impl Into<Disks<Piece>>,
        config: &ServiceConfig,
    ) -> Self {
        let (waker, store) = (endpoint.waker(), store.into());
        let store_wakes = waker.is_some();
        store.wake(waker.as_ref());
        let rpc = RpcConfig::new().requests_max(config.link_requests_max).streams(true);
        Self {
            onward: Onward::new(endpoint.instance()),
            gate: Gate::new(&endpoint),
            clients: Clients::default(),
            watch: Watch::new(config.health, endpoint.now()),
            endpoint,
            rpc: RpcServer::new(rpc),
            store,
            drive: Drive::default(),
            store_wakes,
            config: *config,
            sched: Scheduler::default(),
            answers: Waiting::default(),
            open: Open::default(),
            stats: ServerStats::default(),
            idle_since: None,
            cores_to_spare: cores_to_spare(),
        }
    }

    /// Does what a guard allows, and nothing else. Without one everything is allowed.
    #[must_use]
    pub fn guard(mut self, guard: Option<Guard>) -> Self {
        self.gate.set_guard(guard);
        self
    }

    /// The endpoint, for its counters.
    pub fn endpoint(&self) -> &Endpoint<D> {
        &self.endpoint
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let links = self.endpoint.stats_of_all_links();
        ServerStats { rpc: self.rpc.stats(), links, ..self.stats }
    }

    /// One turn: takes in what came from the network and from the store, and sends what is ready.
    /// Returns whether anything happened.
    pub fn turn(&mut self) -> bool {
        // Asked before their answers are taken: then none comes after them.
        let ended = self.store.look_for_ends();
        self.watch.begin_turn(self.endpoint.now());
        let mut busy = self.endpoint.poll() > 0;
        while let Some(event) = self.endpoint.next_event() {
            busy = true;
            self.on_event(event);
        }
        busy |= self.drive_store();
        busy |= self.take_completions();
        if ended != 0 {
            self.abandon_staged(ended);
        }
        self.store.say_changes();
        self.turn_onward();
        self.expire_waiting();
        self.look_at_health();
        for link in self.sched.tenants_mut().turn(&mut self.endpoint, &mut self.rpc) {
            for grant in self.clients.take_grants(link) {
                self.endpoint.revoke(link, grant);
            }
        }
        self.sched.turn(self.endpoint.now());
        self.answer_entries();
        // Before new reads: buffers that came back are for answers first.
        self.send_answers();
        self.unstage_unwanted();
        self.start_waiting();
        busy |= self.pass_on();
        self.endpoint.flush();
        busy
    }

    /// Whether there were any.
    pub(super) fn take_completions(&mut self) -> bool {
        let (mut any, now) = (false, self.endpoint.now());
        while let Some(completion) = self.store.try_next() {
            any = true;
            self.on_completion(now, completion);
        }
        // Before requests that wait ask for leave: some of it may be what has ended.
        self.sched.settle(now);
        any
    }

    /// Whether any disk still answers. A disk's thread ends early only by a fault; after the last
    /// of them this server changes and reads nothing any more, and its owner should end it.
    #[must_use]
    pub fn store_is_running(&self) -> bool {
        self.store.are_running()
    }

    /// Blocks until the store has answered everything that it was asked, and takes in the answers.
    /// True when there were any. For drivers in virtual time, where the store must not lag behind,
    /// and the order of its answers must not depend on how its thread runs: it is that in which the
    /// requests have their places here.
    pub fn await_store(&mut self) -> bool {
        let mut answers: Vec<Completion<Piece, Buf>> = Vec::new();
        while answers.len() < self.sched.at_store() {
            // None is the end of a disk's thread, which the next turn finds.
            let Some(answer) = self.wait_for_store() else { break };
            answers.push(answer);
        }
        answers.sort_by_key(|answer| answer.token);
        let any = !answers.is_empty();
        let now = self.endpoint.now();
        answers.into_iter().for_each(|answer| self.on_completion(now, answer));
        self.sched.settle(now);
        any
    }

    /// One turn, and after some time without work a short sleep: until packets come in, the store
    /// answers, or something is due.
    pub fn turn_or_wait(&mut self) {
        self.turn_or_sleep(Nanos::ZERO);
    }

    /// The same; a server that has nothing under way sleeps for up to `most`. For an owner that
    /// rings the [waker](Endpoint::waker) of the endpoint when it wants something.
    pub fn turn_or_sleep(&mut self, most: Nanos) {
        if self.turn() {
            self.idle_since = None;
            return;
        }
        let now = self.endpoint.now();
        let since = *self.idle_since.get_or_insert(now);
        let at_store = self.sched.at_store();
        let spin = match (self.drives_store(), at_store == 0 || self.cores_to_spare) {
            // The disk has done with them by then, and a sleep would add a half.
            (true, _) if at_store > 0 => self.config.busy_poll.max(DISK_SPIN),
            // The store's thread may want this very core.
            (false, false) => Nanos::ZERO,
            _ => self.config.busy_poll,
        };
        if now.since(since) < spin {
            // Not a yield: it would give the core away for a whole time slice.
            spin_loop();
        } else {
            // What an entry waits for another worker may end, which wakes nobody here.
            let entering = self.clients.are_waiting() || self.onward.is_waiting();
            let told = self.store_wakes || self.store.are_all_own();
            let blind = at_store > 0 && !told;
            let span = match (blind, entering) {
                (true, _) => STORE_WAIT,
                (false, true) => ENTRY_LOOK,
                (false, false) if self.is_quiet() => self.config.idle_wait.max(most),
                (false, false) => self.config.idle_wait,
            };
            let span = if self.sched.waits_for_control() { span.min(CONTROL_LOOK) } else { span };
            let due = self.sched.next_due(now);
            self.sleep(span.min(due.since(now)));
        }
    }

    /// Whether nothing is to be looked at before something comes, which ends a sleep.
    fn is_quiet(&self) -> bool {
        let idle = self.rpc.under_way() == 0 && self.sched.at_store() == 0 && self.onward.is_idle();
        idle && self.watch.health().is_settled() && self.store_wakes && !self.gate.is_closed()
    }

    fn on_event(&mut self, event: Event) {
        self.watch.health_mut().on_event(&event);
        let Some(event) = self.onward.on_event(&mut self.endpoint, event) else { return };
        let mut next = self.rpc.on_event(&mut self.endpoint, event);
        while let Some(incoming) = next {
            match incoming {
                Incoming::Request(request) => self.on_request(request),
                Incoming::Streamed(streamed) => self.on_streamed(streamed),
                Incoming::Cancelled { link, request } => self.on_cancelled(link, request),
                Incoming::Other(event) => self.on_other(event),
            }
            next = self.rpc.next_incoming();
        }
    }

    fn on_other(&mut self, event: Event) {
        match event {
            Event::Accepted { link, peer } => {
                self.stats.links_accepted += 1;
                let (class, peer) = (peer.class, peer.device_addr);
                tracing::debug!(link = link.index(), %peer, %class, "a client has connected");
                if self.gate.is_closed() {
                    self.endpoint.close(link);
                }
            }
            Event::AcceptFailed { from, error } => {
                self.stats.links_refused += 1;
                self.watch.refused(self.endpoint.now(), from, &error);
            }
            Event::LinkDown { link, reason } => {
                self.stats.links_down += 1;
                self.watch.left(self.endpoint.now(), link, reason);
                self.forget(link);
            }
            _ => {}
        }
    }

    /// What a lost link still wanted has not happened and will not.
    fn forget(&mut self, link: LinkId) {
        self.forget_begun(link);
        self.clients.forget(&self.store, link);
        self.sched.tenants_mut().forget(&self.endpoint, link);
        let gone = self.sched.cancel(self.endpoint.now(), link.index(), |_| true);
        self.stats.expired += self.give_up(gone);
    }

    /// Nobody waits for a request any more. What the store has not been given, it never gets: its
    /// data goes, and with it the credit that it held. What the store has goes on; its answer is
    /// not sent, and tells what became of the request.
    fn on_cancelled(&mut self, link: LinkId, request: RequestKey) {
        if self.give_up_begun(request, StopReason::Cancelled) {
            self.stats.cancelled += 1;
            return;
        }
        let is_it = |asked: &Asked| matches!(asked, Asked::Job(job) if job.is(request));
        let gone = self.sched.cancel(self.endpoint.now(), link.index(), is_it);
        self.stats.cancelled += self.give_up(gone);
    }

    /// Gives up what waits and whose time is over, whether or not its client says so: a store that
    /// is stuck must not hold the credit of those who have gone elsewhere.
    fn expire_waiting(&mut self) {
        let now = self.endpoint.now();
        let over = self.sched.expire(now);
        self.stats.expired += self.give_up(over);
        self.stats.expired += self.expire_begun(now);
    }

    pub(super) fn answer(&mut self, responder: Responder, deadline: Time, answer: Answer) {
        self.answer_traced(responder, deadline, answer, None);
    }

    pub(super) fn answer_traced(
        &mut self,
        responder: Responder,
        deadline: Time,
        answer: Answer,
        trace: Option<(Trace, TenantId)>,
    ) {
        let is_good = answer.is_good();
        *(if is_good { &mut self.stats.done } else { &mut self.stats.failed }) += 1;
        self.watch.meter().count(responder.method(), is_good);
        let link = responder.link();
        self.answers.push(link.index(), Answered { responder, deadline, answer, trace });
    }

    /// Sends the answers that there are buffers for: of each link in their order, until it holds
    /// its share of the buffers. Those that nobody waits for any more give their buffers back.
    pub(super) fn send_answers(&mut self) {
        let (now, mut blocked) = (self.endpoint.now(), 0);
        while blocked < self.answers.links() {
            let Self { answers, endpoint, rpc, .. } = self;
            let next = answers.next(|answered| match answered.build(now, endpoint, rpc) {
                Ok(built) => Look::TakeAndStay(built),
                Err(NoBuffer { .. }) => Look::Wait,
            });
            match next {
                Some((answered, built)) => self.send_answer(now, answered, built),
                None => blocked += 1,
            }
        }
    }

    /// Sends an answer that is built, where somebody waits for it.
    fn send_answer(&mut self, now: Time, answered: Answered, built: Option<(Status, Outgoing)>) {
        let Answered { responder, answer, trace, .. } = answered;
        self.note_end(trace, &responder, now);
        let fate = answer.fate();
        match built {
            None => self.rpc.abandon(&mut self.endpoint, responder, fate),
            Some((status, outgoing)) => {
                self.rpc.set_fate(&responder, fate);
                self.rpc.respond(&mut self.endpoint, responder, status, outgoing);
            }
        }
        if let Answer::Read(_, crcs, _) = answer {
            self.open.spare().put_crcs(crcs);
        }
    }

    /// Takes no more clients and requests, and finishes what was taken: until every answer has
    /// arrived and every copy is where it goes, or `timeout` is over. Then leaves the links in
    /// order. True when all was answered.
    pub fn drain(&mut self, timeout: Nanos) -> bool {
        self.gate.close();
        self.endpoint.stop_listening();
        let end = self.endpoint.now() + timeout;
        while self.rpc.under_way() + self.open.trailing().len() > 0 && self.endpoint.now() < end {
            self.turn_or_wait();
        }
        let drained = self.rpc.under_way() == 0;
        let links: Vec<LinkId> = self.endpoint.links().collect();
        links.into_iter().for_each(|link| self.endpoint.close(link));
        let end = self.endpoint.now() + GOODBYE_WAIT;
        while self.endpoint.links().next().is_some() && self.endpoint.now() < end {
            self.turn_or_wait();
        }
        drained
    }

    /// Ends at once: links that are still up see their peer gone. What the disks were asked is
    /// done, and their stores sealed by the last of the servers, which waits for that for `timeout`
    /// at most. Returns the counters, and how the disk closed that did worst.
    pub fn close_within(self, timeout: Nanos) -> (ServerStats, Closed) {
        let (stats, timeout) = (self.stats(), Duration::from_nanos(timeout.0));
        let end = Instant::now() + timeout;
        // It is good at once for stores that no thread of their own drives.
        let closed = self.store.stop_within(timeout);
        let closed = self.drive.stop_by(end, closed);
        (stats, closed)
    }
}
