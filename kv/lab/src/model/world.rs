//! One run: its threads, cards, store and agenda.

use super::card::Card;
use super::machine::{Alarm, Machine, Mode, Thread};
use super::outcome::Outcome;
use super::plan::{Plan, Transport, Waiting};
use super::store::{Lock, Model};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use towpath_base::Prng;
use towpath_kv::limits::BUCKETS;
use towpath_kv::workload::{Choice, Client as Draws, Kind, Task, Workload};

/// The clients' machine, and the server.
pub(super) const CLIENTS: usize = 0;
pub(super) const SERVER: usize = 1;

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    End {
        side: u8,
        cpu: u8,
        generation: u32,
    },
    Slice {
        side: u8,
        cpu: u8,
    },
    /// A packet is at the card of its destination.
    Arrive(Packet),
    /// It is in the memory there.
    Deliver(Packet),
    /// A thread's message has gone, or has come: it need not wait for it.
    Sent(u32),
    /// A sleeping thread may run.
    Wake(u32),
    /// A client has waited long for an answer.
    Repeat {
        client: u32,
        request: u32,
        tries: u8,
    },
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Request,
    Reply,
    /// Of RC.
    Ack,
    /// A READ, and what was read.
    Read,
    Found,
}

/// One packet. Messages here have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) what: What,
    pub(super) to: u8,
    pub(super) client: u32,
    /// The client's number for it.
    pub(super) request: u32,
    /// Who sent it.
    pub(super) sender: u32,
}

/// What a thread does, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Client: waits for the clients' lock, holds it, does its own work, hands over a request,
    /// waits for the answer, takes it.
    Turn,
    Hold,
    Own,
    Ask,
    Answer,
    Take,
    /// Worker: waits for a request, takes it, waits for a lock, does it, hands over the reply.
    Request,
    Accept,
    Lock,
    Do,
    Reply,
    /// Both: waits until a message has gone, and takes note of it.
    Sent,
    Noted,
    /// It is done.
    Over,
}

/// What both kinds of threads have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    pub(super) step: Step,
    pub(super) sent: bool,
    pub(super) waking: bool,
}

/// A client, beside its thread.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) draws: Draws,
    pub(super) left: u64,
    pub(super) task: Task,
    /// Numbers its requests.
    pub(super) request: u32,
    pub(super) started: u64,
    pub(super) answered: bool,
    /// READs that it has yet to make, or requests, of this operation.
    pub(super) more: u32,
    /// The last of its requests that the server carried out.
    pub(super) executed: u32,
}

/// A worker, beside its thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) inbox: usize,
    /// Whose request it has.
    pub(super) client: u32,
    pub(super) request: u32,
    pub(super) task: Task,
    /// A lock was given to it.
    pub(super) granted: bool,
    /// Its client is gone.
    pub(super) retired: bool,
}

/// Requests that nobody has taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox {
    pub(super) requests: VecDeque<(u32, u32, Task)>,
    /// Its workers: the first, and how many.
    pub(super) workers: (u32, u32),
    /// Where the next look for one that waits begins.
    pub(super) turn: u32,
}

/// All of it.
#[derive(Debug)]
pub(super) struct World<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    numbered: u64,
    pub(super) machines: [Machine; 2],
    pub(super) cards: [Card; 2],
    /// When the processor that gets a machine's interrupts has handled those that there are.
    pub(super) interrupts: [u64; 2],
    /// Clients, then workers.
    pub(super) threads: Vec<Thread>,
    pub(super) roles: Vec<Role>,
    pub(super) clients: Vec<Client>,
    pub(super) workers: Vec<Worker>,
    pub(super) inboxes: Vec<Inbox>,
    pub(super) model: Model,
    pub(super) locks: Vec<Lock>,
    /// Whether a client has the lock that all share, and who asks for it.
    pub(super) serial_held: bool,
    pub(super) serial_waiting: VecDeque<u32>,
    pub(super) prng: Prng,
    pub(super) running: u32,
    pub(super) out: Outcome,
}

impl<'a> World<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let (clients, workers) = (plan.clients, plan.threads());
        let workload = Workload::new(plan.mix, plan.keys, plan.seed);
        let is_shared = plan.transport == Transport::Ud;
        let inboxes = if is_shared { 1 } else { workers };
        let inbox = |number: u32| Inbox {
            workers: if is_shared { (0, workers) } else { (number, 1) },
            ..Inbox::default()
        };
        let share = |number: u32| {
            let (each, rest) =
                (plan.operations / u64::from(clients), plan.operations % u64::from(clients));
            each + u64::from(u64::from(number) < rest)
        };
        let task = Task { kind: Kind::Read, key: 0 };
        let client = |number: u32| Client {
            draws: workload.client(u64::from(number)),
            left: share(number),
            task,
            request: 0,
            started: 0,
            answered: false,
            more: 0,
            executed: 0,
        };
        let worker = |number: u32| Worker {
            inbox: if is_shared { 0 } else { number as usize },
            client: 0,
            request: 0,
            task,
            granted: false,
            retired: false,
        };
        let role = |number: u32| Role {
            step: if number < clients { Step::Turn } else { Step::Request },
            sent: false,
            waking: false,
        };
        let thread = Thread { mode: Mode::Spinning, on: None };
        Self {
            plan,
            now: 0,
            agenda: BinaryHeap::new(),
            numbered: 0,
            machines: [Machine::new(&plan.hardware), Machine::new(&plan.hardware)],
            cards: [Card::new(plan, false), Card::new(plan, true)],
            interrupts: [0; 2],
            threads: vec![thread; (clients + workers) as usize],
            roles: (0..clients + workers).map(role).collect(),
            clients: (0..clients).map(client).collect(),
            workers: (0..workers).map(worker).collect(),
            inboxes: (0..inboxes).map(inbox).collect(),
            model: Model::new(plan, plan.mix.choice() != Choice::Uniform),
            locks: (0..BUCKETS).map(|_| Lock::default()).collect(),
            serial_held: false,
            serial_waiting: VecDeque::new(),
            prng: Prng::new(plan.seed ^ 0x6b76),
            running: clients,
            out: Outcome::default(),
        }
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.numbered += 1;
        self.agenda.push(Reverse((time, self.numbered, event)));
    }

    /// The next event, and its time is now.
    pub(super) fn next(&mut self) -> Option<Event> {
        let Reverse((time, _, event)) = self.agenda.pop()?;
        self.now = time;
        Some(event)
    }

    pub(super) fn side(&self, id: u32) -> usize {
        if id < self.plan.clients { CLIENTS } else { SERVER }
    }

    /// How a thread waits for messages.
    pub(super) fn waiting(&self, id: u32) -> Waiting {
        self.plan.waiting(self.side(id))
    }

    pub(super) fn worker(&mut self, id: u32) -> &mut Worker {
        &mut self.workers[(id - self.plan.clients) as usize]
    }

    /// When a machine's interrupt that comes now has been handled.
    pub(super) fn interrupt(&mut self, side: usize, takes: u64) -> u64 {
        self.interrupts[side] = self.interrupts[side].max(self.now) + takes;
        self.interrupts[side]
    }

    /// Puts on the agenda what a machine has asked for.
    fn alarms(&mut self, side: usize) {
        let alarms = std::mem::take(&mut self.machines[side].alarms);
        for alarm in &alarms {
            let side = side as u8;
            match *alarm {
                Alarm::End { cpu, generation, at } => {
                    self.at(at, Event::End { side, cpu, generation });
                }
                Alarm::Slice { cpu, at } => self.at(at, Event::Slice { side, cpu }),
            }
        }
        self.machines[side].alarms = alarms;
        self.machines[side].alarms.clear();
    }

    /// A thread has so much to do from now on.
    pub(super) fn work(&mut self, id: u32, step: Step, ns: u64) {
        self.roles[id as usize].step = step;
        self.set_mode(id, Mode::Working(ns * 100));
    }

    pub(super) fn set_mode(&mut self, id: u32, mode: Mode) {
        self.threads[id as usize].mode = mode;
        let side = self.side(id);
        if let Some(cpu) = self.threads[id as usize].on {
            self.machines[side].changed(self.now, cpu, &self.threads);
            self.alarms(side);
        }
    }

    /// A thread without a processor wants one.
    pub(super) fn want(&mut self, id: u32) {
        let side = self.side(id);
        let has = self.machines[side].want(self.now, id, &mut self.threads);
        self.alarms(side);
        if has {
            self.has_processor(id);
        }
    }

    /// A thread gives its processor back, and sleeps.
    pub(super) fn sleep(&mut self, id: u32) {
        self.threads[id as usize].mode = Mode::Sleeping;
        let side = self.side(id);
        let Some(cpu) = self.threads[id as usize].on else { return };
        let next = self.machines[side].leave(self.now, cpu, &mut self.threads);
        self.alarms(side);
        if let Some(next) = next {
            self.has_processor(next);
        }
    }

    pub(super) fn slice(&mut self, side: usize, cpu: u8) {
        let next = self.machines[side].slice(self.now, cpu, &mut self.threads);
        self.alarms(side);
        if let Some(next) = next {
            self.has_processor(next);
        }
    }

    /// A thread has a processor: what it asks for may have come meanwhile.
    fn has_processor(&mut self, id: u32) {
        let is_asking = self.threads[id as usize].mode == Mode::Spinning;
        if is_asking && self.is_gone(id) {
            self.sleep(id);
        } else if is_asking && self.is_ready(id) {
            self.resume(id, 0);
        }
    }
}
