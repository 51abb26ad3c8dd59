//! A server that does so many requests a second, and tenants that ask it, in virtual time: the
//! production monitor and engines, and a store that is a queue.

use std::collections::VecDeque;

use towpath_base::Prng;
use towpath_transport::{Nanos, Time};

use super::node::Node;
use super::requests::Pass;
use super::tenant::TenantId;

/// Requests that the store has at a time: what keeps it busy, and not so many that their order is
/// of no use any more.
const QUEUE: usize = 32;

/// How long it is from one turn of the server to the next.
const STEP: Nanos = Nanos::from_micros(10);

/// How a tenant asks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asks {
    /// It always has so many requests waiting.
    Always(usize),
    /// It asks for so many tokens' worth a second, evenly.
    Rate(f64),
}

/// The clients of one tenant.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) id: TenantId,
    pub(super) name: String,
    /// What each of their requests costs.
    pub(super) cost: u32,
    /// What each of them turns out to cost beyond that, once it is done.
    pub(super) more: u32,
    pub(super) asks: Asks,
    pub(super) waiting: usize,
    /// Tokens that were wanted and are less than a request.
    owed: f64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) node: Node,
    pub(super) now: Time,
    pub(super) clients: Vec<Clients>,
    queue: VecDeque<(Time, usize, Pass)>,
    free_at: Time,
    /// What each did, in tokens, by period.
    pub(super) done: Vec<Vec<u32>>,
    prng: Prng,
    /// Tokens' worth that the store does in a second.
    pub(super) rate: u32,
}

impl Model {
    pub(super) fn new(node: Node, rate: u32, seed: u64) -> Self {
        Self {
            node,
            now: Time(1),
            clients: Vec::new(),
            queue: VecDeque::new(),
            free_at: Time::ZERO,
            done: Vec::new(),
            prng: Prng::new(seed),
            rate,
        }
    }

    /// The clients of a tenant, if there is one of that name.
    pub(super) fn add(&mut self, name: &str, cost: u32, asks: Asks) -> bool {
        let Some(id) = self.node.find(name) else { return false };
        let name = name.to_owned();
        self.clients.push(Clients { id, name, cost, more: 0, asks, waiting: 0, owed: 0.0 });
        true
    }

    /// So many whole periods, after what of one is left.
    pub(super) fn run(&mut self, periods: usize) {
        let end = self.done.len() + periods;
        while self.done.len() <= end {
            self.now += STEP;
            self.turn();
        }
        self.done.truncate(end);
    }

    pub(super) fn turn(&mut self) {
        let now = self.now;
        let before = self.node.periods;
        self.node.turn(now);
        if self.node.periods > before || self.done.is_empty() {
            self.done.push(vec![0; self.clients.len()]);
        }
        while let Some((_, client, pass)) = self.queue.pop_front_if(|(at, ..)| *at <= now) {
            self.node.done(now, pass);
            let Clients { id, more, .. } = self.clients[client];
            if more > 0 {
                self.node.owe(now, id, more.into());
            }
            if let Some(done) = self.done.last_mut() {
                done[client] += self.clients[client].cost;
            }
        }
        self.ask();
        self.start();
    }

    fn ask(&mut self) {
        for clients in &mut self.clients {
            let wanted = match clients.asks {
                Asks::Always(wanted) => wanted,
                Asks::Rate(rate) => {
                    clients.owed += rate * STEP.0 as f64 / 1e9;
                    let whole = (clients.owed / f64::from(clients.cost)).floor();
                    clients.owed -= whole * f64::from(clients.cost);
                    clients.waiting + whole as usize
                }
            };
            while clients.waiting < wanted {
                // One that costs more than its tenant may use waits for ever, as it would there.
                let _ = self.node.arrived(self.now, clients.id, clients.cost);
                clients.waiting += 1;
            }
        }
    }

    fn start(&mut self) {
        let waits = |clients: &&Clients| clients.waiting > 0;
        let mut order: Vec<TenantId> = self.clients.iter().filter(waits).map(|c| c.id).collect();
        let mut next = 0;
        self.node.order(self.now, &mut order);
        while next < order.len() && self.queue.len() < QUEUE {
            let Some(client) = self.clients.iter().position(|c| c.id == order[next]) else {
                return;
            };
            let Clients { id, cost, more, .. } = self.clients[client];
            let Some(pass) = self.node.admit(self.now, id, cost) else {
                next += 1;
                continue;
            };
            self.clients[client].waiting -= 1;
            let mean = u64::from(cost + more) * 1_000_000_000 / u64::from(self.rate.max(1));
            let service = mean / 2 + self.prng.below(mean + 1);
            self.free_at = self.free_at.max(self.now) + Nanos(service);
            self.queue.push_back((self.free_at, client, pass));
            if self.clients[client].waiting == 0 {
                next += 1;
            }
            self.node.order(self.now, &mut order[next..]);
        }
        if next < order.len() {
            self.node.note_full();
        }
    }

    /// What one did in each period, in tokens.
    pub(super) fn of(&self, name: &str) -> Vec<u32> {
        let index = self.clients.iter().position(|clients| clients.name == name);
        index.map_or(Vec::new(), |index| self.done.iter().map(|period| period[index]).collect())
    }
}
