//! One sender on an ordinary network: a slow wire with a short queue, a TCP flow beside it, hosts
//! whose threads are away now and then.
//!
//! | file | contents |
//! |---|---|
//! | `wire` | the wire: a rate, a queue that drops what does not fit, random loss |
//! | `ours` | a sender with a controller of `towpath-cc`, chunks of several packets, a noisy host |
//! | `tcp` | a TCP flow with the window of CUBIC (RFC 9438), to compare with and to share with |
//! | `scenarios` | what must be seen, each from named seeds |

mod ours;
mod scenarios;
mod tcp;
mod wire;

use std::collections::BinaryHeap;

use std::cmp::Reverse;

use ours::Ours;
use tcp::Tcp;
use towpath_base::{Nanos, Prng, Time};
use wire::Wire;

/// What happens next, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An acknowledgement of this number of our sender reaches its host.
    OurAck(u64),
    /// Our sender looks at what has come.
    OurTurn,
    /// An acknowledgement of this segment reaches TCP.
    TcpAck(u64),
    /// TCP looks at its timer.
    TcpTimer,
}

/// What is to happen, in order.
#[derive(Default)]
struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
}

impl Agenda {
    fn add(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.heap.push(Reverse((at, self.count, event)));
    }
}

/// What a scenario is made of.
#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    controller: &'static str,
    rate_bits_per_s: u64,
    queue_bytes: u64,
    /// Payload bytes of our packets and of segments of TCP.
    packet_bytes: (u32, u32),
    base_rtt: Nanos,
    loss: f64,
    /// A host is away for up to this long at a time, for a tenth of the time.
    away: Nanos,
    /// The kernel tells when packets have come, so that absences are not in round trips.
    is_stamped: bool,
    with_ours: bool,
    with_tcp: bool,
}

/// 1 Gb/s with a queue of 64 KB, a long MTU and quiet hosts.
const PLAN: Plan = Plan {
    seed: 1,
    controller: "swift",
    rate_bits_per_s: 1_000_000_000,
    queue_bytes: 64 << 10,
    packet_bytes: (4096, 8948),
    base_rtt: Nanos::from_micros(120),
    loss: 0.0,
    away: Nanos::ZERO,
    is_stamped: true,
    with_ours: true,
    with_tcp: false,
};

/// What was seen from a second after the start on.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Payload of our sender and of TCP, as a share of the wire.
    ours: f64,
    tcp: f64,
    /// Chunks of our sender that were lost, of those that it sent; from the very start on.
    lost: f64,
    /// How long a packet would have waited in the queue, on average.
    queue: Nanos,
}

/// Runs a scenario for this long after the first second.
fn run(plan: &Plan, span: Nanos) -> Seen {
    let mut prng = Prng::new(plan.seed);
    let mut agenda = Agenda::default();
    let mut wire = Wire::new(plan, prng.next_u64());
    let mut ours = Ours::new(plan, prng.next_u64());
    let mut tcp = Tcp::new(plan);
    if plan.with_ours {
        ours.look_at(Time(prng.below(1_000_000)), &mut agenda);
    }
    if plan.with_tcp {
        agenda.add(Time(prng.below(1_000_000)), Event::TcpTimer);
    }
    let warm = Time::ZERO + Nanos::from_secs(1);
    let (end, mut before, mut waited) = (warm + span, None, (0u128, 0u64));
    while let Some(Reverse((now, _, event))) = agenda.heap.pop().filter(|next| next.0.0 < end) {
        if now >= warm {
            before.get_or_insert((ours.delivered_bytes, tcp.delivered_bytes));
            waited = (waited.0 + u128::from(wire.wait(now).0), waited.1 + 1);
        }
        match event {
            Event::OurAck(number) => ours.on_ack_arrives(now, number, &mut agenda),
            Event::OurTurn => ours.turn(now, &mut wire, &mut agenda),
            Event::TcpAck(number) => tcp.on_ack(now, number, &mut wire, &mut agenda),
            Event::TcpTimer => tcp.on_timer(now, &mut wire, &mut agenda),
        }
    }
    let before = before.unwrap_or_default();
    let share = |bytes: u64| bytes as f64 * 8e9 / span.0 as f64 / plan.rate_bits_per_s as f64;
    Seen {
        ours: share(ours.delivered_bytes - before.0),
        tcp: share(tcp.delivered_bytes - before.1),
        lost: ours.lost as f64 / ours.sent.max(1) as f64,
        queue: Nanos((waited.0 / u128::from(waited.1.max(1))) as u64),
    }
}
