//! What threads do, step by step.

use super::machine::Mode;
use super::outcome::Outcome;
use super::plan::{Plan, Program, Transport, Waiting};
use super::world::{CLIENTS, Event, Packet, SERVER, Step, What, World};
use towpath_kv::workload::{Kind, Task};

/// Events of one operation at most, beside the begin: some thirty without loss and with threads
/// that take turns on processors. Beyond that a run is stuck.
const EVENTS_PER_OPERATION_MAX: u64 = 2_000;

/// Events of threads' slices at the begin.
const EVENTS_FREE: u64 = 10_000_000;

/// Events between looks whether somebody wants it to stop.
const LOOK_EVERY: u64 = 1 << 16;

/// Why there is no outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunError {
    /// Somebody wanted it to stop.
    Stopped,
    /// Nothing happens any more, or too much.
    Stuck,
}

/// Runs a plan. `stop` is asked now and then.
///
/// # Errors
/// [`RunError`].
pub fn run(plan: &Plan, stop: &dyn Fn() -> bool) -> Result<Outcome, RunError> {
    let mut world = World::new(plan);
    (0..plan.clients + plan.threads()).for_each(|id| world.start(id));
    let most = EVENTS_FREE + plan.operations.saturating_mul(EVENTS_PER_OPERATION_MAX);
    let mut events = 0_u64;
    while world.running > 0 {
        let event = world.next().ok_or(RunError::Stuck)?;
        world.happen(event);
        events += 1;
        if events > most {
            return Err(RunError::Stuck);
        }
        if events.is_multiple_of(LOOK_EVERY) && stop() {
            return Err(RunError::Stopped);
        }
    }
    Ok(world.outcome())
}

impl World<'_> {
    fn start(&mut self, id: u32) {
        if self.side(id) == CLIENTS {
            self.begin(id);
            if self.roles[id as usize].step != Step::Over {
                self.want(id);
            }
        } else if self.waiting(id) == Waiting::Polling {
            self.want(id);
        } else {
            self.threads[id as usize].mode = Mode::Sleeping;
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::End { side, cpu, generation } => {
                let ended = self.machines[usize::from(side)].ended(self.now, cpu, generation);
                if let Some(id) = ended {
                    self.worked(id);
                }
            }
            Event::Slice { side, cpu } => self.slice(usize::from(side), cpu),
            Event::Arrive(packet) => self.arrive(packet),
            Event::Deliver(packet) => self.deliver(packet),
            Event::Sent(id) => {
                self.roles[id as usize].sent = true;
                self.notify(id);
            }
            Event::Wake(id) => {
                self.roles[id as usize].waking = false;
                if self.threads[id as usize].mode == Mode::Sleeping && self.is_ready(id) {
                    self.resume(id, self.plan.hardware.event);
                    self.want(id);
                }
            }
            Event::Repeat { client, request, tries } => self.repeat(client, request, tries),
        }
    }

    /// A client begins its next operation, or is done.
    fn begin(&mut self, id: u32) {
        let client = &mut self.clients[id as usize];
        if client.left == 0 {
            self.finish(id);
            return;
        }
        client.left -= 1;
        client.task = client.draws.next_task();
        let is_read = client.task.kind == Kind::Read;
        client.more = match self.plan.transport {
            Transport::OneSided if is_read => self.plan.reads.max(1),
            _ if client.task.kind == Kind::ReadModifyWrite => 2,
            _ => 1,
        };
        if self.plan.program == Program::Ours || self.plan.costs.client_serial == 0 {
            self.work(id, Step::Own, self.plan.costs.client);
        } else if self.serial_held {
            self.serial_waiting.push_back(id);
            self.roles[id as usize].step = Step::Turn;
            self.set_mode(id, Mode::Spinning);
        } else {
            self.hold(id);
        }
    }

    /// The lock that all clients of the thesis share is this client's.
    fn hold(&mut self, id: u32) {
        self.serial_held = true;
        self.work(id, Step::Hold, self.plan.costs.client_serial);
    }

    /// A client gives the lock back: to the one that has asked for it longest, of those that run.
    fn held(&mut self, id: u32) {
        self.serial_held = false;
        self.work(id, Step::Own, self.plan.costs.client);
        let runs = |id: &&u32| self.threads[**id as usize].on.is_some();
        if let Some(&next) = self.serial_waiting.iter().find(runs) {
            self.resume(next, 0);
        }
    }

    fn finish(&mut self, id: u32) {
        self.roles[id as usize].step = Step::Over;
        self.running -= 1;
        self.out.took = self.now;
        self.sleep(id);
        if self.plan.threads() == self.plan.clients && self.plan.transport != Transport::Ud {
            let worker = self.plan.clients + id;
            self.worker(worker).retired = true;
            let is_asking = self.threads[worker as usize].mode == Mode::Spinning;
            if is_asking && self.is_gone(worker) {
                self.sleep(worker);
            }
        }
    }

    /// Whether a worker has nothing to wait for any more.
    pub(super) fn is_gone(&mut self, id: u32) -> bool {
        self.side(id) == SERVER
            && self.roles[id as usize].step == Step::Request
            && self.worker(id).retired
            && !self.is_ready(id)
    }

    /// Whether what a thread waits for is there.
    pub(super) fn is_ready(&self, id: u32) -> bool {
        let worker = || &self.workers[(id - self.plan.clients) as usize];
        match self.roles[id as usize].step {
            Step::Turn => !self.serial_held,
            Step::Answer => self.clients[id as usize].answered,
            Step::Request => !self.inboxes[worker().inbox].requests.is_empty(),
            Step::Lock => worker().granted,
            Step::Sent => self.roles[id as usize].sent,
            _ => false,
        }
    }

    /// A thread has a processor and waits.
    fn wait(&mut self, id: u32, step: Step) {
        self.roles[id as usize].step = step;
        // Locks are the kernel's.
        let waiting = if step == Step::Lock { Waiting::Blocking } else { self.waiting(id) };
        if self.is_ready(id) {
            // There is an event to be taken all the same.
            let is_event = waiting == Waiting::Blocking && step != Step::Lock;
            let cost = if is_event { self.plan.hardware.event / 2 } else { 0 };
            self.resume(id, cost);
        } else if self.is_gone(id) {
            self.sleep(id);
        } else if waiting == Waiting::Polling {
            self.set_mode(id, Mode::Spinning);
        } else {
            let side = self.side(id);
            self.machines[side].voluntary += 1;
            self.sleep(id);
        }
    }

    /// Something has come for a thread.
    pub(super) fn notify(&mut self, id: u32) {
        if !self.is_ready(id) {
            return;
        }
        match self.threads[id as usize].mode {
            Mode::Spinning if self.threads[id as usize].on.is_some() => self.resume(id, 0),
            Mode::Sleeping if !self.roles[id as usize].waking => {
                self.roles[id as usize].waking = true;
                self.at(self.now + self.plan.hardware.wake, Event::Wake(id));
            }
            // It sees it when it has a processor.
            _ => {}
        }
    }

    /// A thread takes what it has waited for, and goes on; `more` is what the waiting costs.
    pub(super) fn resume(&mut self, id: u32, more: u64) {
        let plan = self.plan;
        let costs = &plan.costs;
        match self.roles[id as usize].step {
            Step::Turn => {
                self.serial_waiting.retain(|&waiting| waiting != id);
                self.hold(id);
            }
            Step::Answer => {
                self.clients[id as usize].answered = false;
                self.work(id, Step::Take, more + costs.reap + plan.per_message());
            }
            Step::Request => {
                let crowd = costs.crowd * self.asking(self.worker_inbox(id));
                let inbox = self.worker_inbox(id);
                let Some((client, request, task)) = self.inboxes[inbox].requests.pop_front() else {
                    return;
                };
                let worker = self.worker(id);
                (worker.client, worker.request, worker.task) = (client, request, task);
                let cost = more + costs.reap + crowd + plan.per_message();
                self.work(id, Step::Accept, cost);
            }
            Step::Lock => {
                self.worker(id).granted = false;
                self.carry_out(id, more);
            }
            Step::Sent => self.work(id, Step::Noted, more + costs.reap),
            _ => {}
        }
    }

    fn worker_inbox(&self, id: u32) -> usize {
        self.workers[(id - self.plan.clients) as usize].inbox
    }

    /// How many threads ask an inbox's completion queue beside the one that takes from it.
    fn asking(&self, inbox: usize) -> u64 {
        let (first, count) = self.inboxes[inbox].workers;
        if count == 1 {
            return 0;
        }
        let asks = |number: &u32| {
            let id = (self.plan.clients + number) as usize;
            let is_asking = self.roles[id].step == Step::Request;
            is_asking && self.threads[id].mode == Mode::Spinning && self.threads[id].on.is_some()
        };
        ((first..first + count).filter(asks).count() as u64).saturating_sub(1)
    }

    /// The work of a thread's step is done.
    fn worked(&mut self, id: u32) {
        let costs = &self.plan.costs;
        match self.roles[id as usize].step {
            Step::Hold => self.held(id),
            Step::Own => {
                let client = &mut self.clients[id as usize];
                client.started = self.now;
                self.work(id, Step::Ask, costs.post + self.plan.per_message());
            }
            Step::Ask => self.ask(id),
            Step::Take => self.taken(id),
            Step::Noted if self.side(id) == CLIENTS => self.wait(id, Step::Answer),
            Step::Accept => {
                let task = self.worker(id).task;
                match self.model.lock(task) {
                    Some(lock) if !self.locks[lock].take(id) => self.wait(id, Step::Lock),
                    _ => self.carry_out(id, 0),
                }
            }
            Step::Do => {
                let task = self.worker(id).task;
                let lock = self.model.lock(task);
                if let Some(next) = lock.and_then(|lock| self.locks[lock].release()) {
                    self.worker(next).granted = true;
                    self.notify(next);
                }
                self.work(id, Step::Reply, costs.post + self.plan.per_message());
            }
            Step::Reply => self.reply(id),
            Step::Noted => self.wait(id, Step::Request),
            _ => {}
        }
    }

    fn ask(&mut self, id: u32) {
        let plan = self.plan;
        let client = &mut self.clients[id as usize];
        client.request += 1;
        client.answered = false;
        let request = client.request;
        let is_read = client.task.kind == Kind::Read && plan.transport == Transport::OneSided;
        let what = if is_read { What::Read } else { What::Request };
        self.roles[id as usize].sent = false;
        self.transmit(Packet { what, to: SERVER as u8, client: id, request, sender: id });
        if plan.losses.share > 0.0 && plan.transport.is_raw() {
            self.at(self.now + plan.losses.client, Event::Repeat { client: id, request, tries: 1 });
        }
        let waits = plan.waits_for_sends() && !is_read;
        self.wait(id, if waits { Step::Sent } else { Step::Answer });
    }

    /// A client has waited long, and asks again.
    fn repeat(&mut self, id: u32, request: u32, tries: u8) {
        let client = &self.clients[id as usize];
        let waits = matches!(self.roles[id as usize].step, Step::Sent | Step::Noted | Step::Answer);
        if client.request != request || client.answered || !waits {
            return;
        }
        self.out.repeated += 1;
        let to = SERVER as u8;
        self.transmit(Packet { what: What::Request, to, client: id, request, sender: id });
        // Sooner, and a server that is slow would have more to do with each repetition.
        let wait = self.plan.losses.client << tries.min(10);
        let tries = tries.saturating_add(1);
        self.at(self.now + wait, Event::Repeat { client: id, request, tries });
    }

    /// A client has taken what came: of an operation, or a part of one.
    fn taken(&mut self, id: u32) {
        let plan = self.plan;
        let client = &mut self.clients[id as usize];
        client.more -= 1;
        if client.more > 0 {
            if client.task.kind == Kind::ReadModifyWrite {
                client.task.kind = Kind::Update;
            }
            self.work(id, Step::Ask, plan.costs.post + plan.per_message());
            return;
        }
        if client.task.kind == Kind::Insert {
            client.draws.inserted(client.task.key);
        }
        let mut took = self.now - client.started;
        if client.task.kind == Kind::Read && plan.transport == Transport::OneSided {
            took += plan.costs.check;
            self.out.one_sided += 1;
        }
        self.out.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
        let end = self.now ^ u64::from(id).rotate_left(40);
        self.out.hash = (self.out.hash ^ end).wrapping_mul(0x0000_0100_0000_01b3);
        self.begin(id);
    }

    fn deliver(&mut self, packet: Packet) {
        let id = packet.client;
        let client = &mut self.clients[id as usize];
        if usize::from(packet.to) == CLIENTS {
            // Answers to what was answered before are dropped.
            let waits =
                matches!(self.roles[id as usize].step, Step::Sent | Step::Noted | Step::Answer);
            if packet.request == client.request && waits {
                client.answered = true;
                self.notify(id);
            }
            return;
        }
        let mut task = client.task;
        if task.kind == Kind::ReadModifyWrite {
            task = Task { kind: Kind::Read, ..task };
        }
        let inbox = id as usize % self.inboxes.len();
        self.inboxes[inbox].requests.push_back((id, packet.request, task));
        self.call(inbox);
    }

    /// Tells one worker that waits at an inbox: rather one that asks than one that sleeps.
    fn call(&mut self, inbox: usize) {
        let Self { plan, threads, roles, .. } = self;
        let (first, count) = self.inboxes[inbox].workers;
        let turn = self.inboxes[inbox].turn;
        let each = || (0..count).map(|place| plan.clients + first + (turn + place) % count);
        let waits = |id: &u32| roles[*id as usize].step == Step::Request;
        let asks = |id: &u32| {
            let thread = threads[*id as usize];
            thread.mode == Mode::Spinning && thread.on.is_some()
        };
        let sleeps =
            |id: &u32| threads[*id as usize].mode == Mode::Sleeping && !roles[*id as usize].waking;
        let asking = each().find(|id| waits(id) && asks(id));
        let called = asking.or_else(|| each().find(|id| waits(id) && sleeps(id)));
        if let Some(id) = called {
            self.inboxes[inbox].turn = (turn + 1) % count;
            self.notify(id);
        }
    }

    /// A worker has the lock, if it needs one.
    fn carry_out(&mut self, id: u32, more: u64) {
        let worker = *self.worker(id);
        let client = &mut self.clients[worker.client as usize];
        self.out.again += u64::from(client.executed == worker.request);
        client.executed = worker.request;
        self.out.executed += 1;
        let cost = more + self.model.carry_out(worker.task);
        self.work(id, Step::Do, cost);
    }

    fn reply(&mut self, id: u32) {
        let worker = *self.worker(id);
        self.roles[id as usize].sent = false;
        let (client, request) = (worker.client, worker.request);
        let to = CLIENTS as u8;
        self.transmit(Packet { what: What::Reply, to, client, request, sender: id });
        let waits = self.plan.waits_for_sends();
        self.wait(id, if waits { Step::Sent } else { Step::Request });
    }

    fn outcome(mut self) -> Outcome {
        let mut out = std::mem::take(&mut self.out);
        out.latencies.sort_unstable();
        let of = |of: fn(&super::machine::Machine) -> u64| {
            [of(&self.machines[0]), of(&self.machines[1])]
        };
        out.voluntary = of(|machine| machine.voluntary);
        out.involuntary = of(|machine| machine.involuntary);
        out.server_worked = self.machines[SERVER].worked / 100;
        out.misses = self.cards[SERVER].misses;
        out
    }
}
