//! Two honest links over a wire that does what the input says: exactly once, in order, and with
//! outcomes that are true.

use crate::class;
use crate::input::Reader;
use crate::targets::proto_host::{Flying, Host, Send};
use std::collections::VecDeque;
use towpath_base::{Nanos, Time};
use towpath_proto::{Outcome, Side};

/// Most operations of one input.
const OPERATIONS_MAX: usize = 300;

/// Most frames on the wire each way; more are lost.
const FRAMES_MAX: usize = 256;

/// Time moves by at most 2^29 ns at once: half a second, so that nobody is taken for dead.
const TIME_SHIFT_MAX: u8 = 30;

/// Rounds within which two links must settle when the wire has healed. Each is a flight or a timer:
/// a peer that has left is asked for each tick of 4 ms until its 10 s are over.
const ROUNDS_MAX: usize = 20_000;

/// The first byte chooses how many paths; then operations: a kind, whose high bit names the end.
pub(crate) fn run(input: &[u8]) -> u64 {
    let mut reader = Reader::new(input);
    let paths = 1 + (reader.u8() & 1);
    let mut pair = Pair::new(paths);
    for _ in 0..OPERATIONS_MAX {
        if reader.is_empty() {
            break;
        }
        pair.operate(&mut reader);
        pair.hosts.iter_mut().for_each(Host::take_events);
    }
    pair.end()
}

pub(crate) struct Pair {
    pub(crate) hosts: [Host; 2],
    /// Frames on their way to each end, oldest first.
    wires: [VecDeque<Flying>; 2],
    /// Which end closed a channel: what it had not read by then is lost to it.
    closed: [bool; 2],
    /// Somebody said goodbye.
    pub(crate) gone: bool,
}

impl Pair {
    pub(crate) fn new(paths: u8) -> Self {
        let hosts = [Side::Client, Side::Server].map(|side| Host::new(side, paths));
        Self { hosts, wires: Default::default(), closed: [false; 2], gone: false }
    }

    /// Lets all come to its end; the class of what was reached before.
    pub(crate) fn end(mut self) -> u64 {
        self.hosts.iter_mut().for_each(Host::end_growing);
        let classes: Vec<u64> = self.hosts.iter().flat_map(Host::classes).collect();
        self.settle();
        self.check();
        class(&classes)
    }

    fn operate(&mut self, reader: &mut Reader<'_>) {
        let kind = reader.u8();
        let at = usize::from(kind >> 7);
        let host = &mut self.hosts[at];
        match kind & 15 {
            0 => host.open(kind & 16 == 0),
            2 if kind & 16 != 0 => {
                let channel = host.nth_channel(reader.u8());
                let lens = [1 + u32::from(reader.u8()), 1 + u32::from(reader.u16() % 8192)];
                host.grow(channel, lens, Time::NEVER);
            }
            2 if kind & 32 != 0 => {
                let nth = usize::from(reader.u8());
                let offset = u32::from(reader.u16() % 8192);
                // In whole grains, mostly.
                let offset = if kind & 64 == 0 { offset & !7 } else { offset };
                host.supply(nth, (offset, 8 * u32::from(reader.u8())));
            }
            1 | 2 => {
                let channel = host.nth_channel(reader.u8());
                let lens = [1 + u32::from(reader.u16() % 8192), u32::from(reader.u8())];
                let shift = reader.u8();
                let deadline = match shift & 1 {
                    0 => Time::NEVER,
                    _ => host.now + Nanos(1 << (shift % TIME_SHIFT_MAX)),
                };
                host.send(channel, &lens[..if lens[1] == 0 { 1 } else { 2 }], deadline);
            }
            3 => host.cancel(usize::from(reader.u8())),
            4 => {
                let channel = host.nth_channel(reader.u8());
                self.closed[at] |= host.link.close_channel(channel).is_ok();
            }
            5 => host.take_messages(usize::from(reader.u8())),
            6 => {
                let channel = host.nth_channel(reader.u8());
                host.release(channel, u32::from(reader.u8()));
            }
            7 => {
                let span = Nanos(1 << (reader.u8() % TIME_SHIFT_MAX));
                self.hosts.iter_mut().for_each(|host| host.now += span);
            }
            8 | 9 => self.turn(at, usize::from(reader.u8())),
            10 => host.return_sent(usize::from(reader.u8()), kind & 16 == 0),
            11 if kind & 0x70 == 0x70 => {
                host.link.goodbye();
                self.gone = true;
            }
            11..=13 => self.deliver(at, usize::from(reader.u8())),
            14 => {
                let nth = usize::from(reader.u8());
                self.disturb(at, kind >> 4 & 7, nth);
            }
            _ => {
                self.round(kind & 16 == 0);
            }
        }
    }

    /// One turn of an end's driver.
    pub(crate) fn turn(&mut self, at: usize, most: usize) {
        let mut frames = Vec::new();
        let host = &mut self.hosts[at];
        host.transmit(if most == 0 { usize::MAX } else { most }, &mut frames);
        host.acks(&mut frames);
        let wire = &mut self.wires[1 - at];
        wire.extend(frames);
        wire.truncate(FRAMES_MAX);
    }

    /// The oldest frames arrive.
    pub(crate) fn deliver(&mut self, to: usize, most: usize) {
        let most = most.min(self.wires[to].len());
        let frames: Vec<Flying> = self.wires[to].drain(..most).collect();
        self.hosts[to].give(&frames);
    }

    /// What wires do to one frame: lose it, copy it, let it wait, bend it.
    pub(crate) fn disturb(&mut self, to: usize, how: u8, nth: usize) {
        let wire = &mut self.wires[to];
        let len = wire.len();
        if len == 0 {
            return;
        }
        let nth = nth % len;
        match how {
            0 | 1 => drop(wire.remove(nth)),
            2 | 3 => {
                let copy = wire[nth].clone();
                wire.push_back(copy);
            }
            4 => wire.swap(nth, len - 1),
            5 => {
                if let Some(late) = wire.remove(nth) {
                    wire.push_back(late);
                }
            }
            6 => wire[nth].corrupt(nth),
            _ => wire.truncate(nth),
        }
    }

    /// At most so many operations of an end reach the peer's device; whether its queue pair takes
    /// all of them.
    pub(crate) fn carry(&mut self, at: usize, most: usize) -> bool {
        for _ in 0..most {
            let Some((post, from, to)) = self.hosts[at].next_op() else { break };
            if !self.hosts[1 - at].takes_ops(to, from) {
                return false;
            }
            if self.hosts[1 - at].reaches(&post) {
                self.hosts[at].on_executed();
            } else {
                self.hosts[1 - at].break_unseen();
                self.hosts[at].on_refused();
            }
        }
        true
    }

    /// All operations that are posted come to their end; how many.
    fn settle_ops(&mut self, at: usize) -> usize {
        let before = self.hosts[at].link.ops_live();
        let is_taken = self.carry(at, usize::MAX);
        self.hosts[at].answer_ops(usize::MAX);
        if !is_taken {
            self.hosts[at].break_lane(false);
        }
        self.hosts[at].flush_broken();
        self.hosts[at].take_events();
        before - self.hosts[at].link.ops_live()
    }

    /// Both drivers have their turn, everything arrives, and all is taken; how many frames moved.
    pub(crate) fn round(&mut self, takes: bool) -> usize {
        let mut moved = 0;
        for at in 0..2 {
            self.turn(at, 0);
            moved += self.wires.iter().map(VecDeque::len).sum::<usize>();
            self.deliver(at, usize::MAX);
            moved += self.settle_ops(at);
            let host = &mut self.hosts[at];
            host.return_sent(usize::MAX, false);
            host.take_events();
            if takes {
                host.take_messages(usize::MAX);
                host.release_all();
            }
        }
        moved
    }

    /// The wire heals and time goes on until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let moved = self.round(true);
            let quiet = self.hosts.iter().all(Host::is_quiet);
            if quiet && self.wires.iter().all(VecDeque::is_empty) {
                return;
            }
            if moved == 0 {
                let timers = self.hosts.iter().map(|host| host.link.poll_timeout());
                let next = timers.min().expect("two of them");
                let now = self.hosts[0].now.max(next);
                assert!(next != Time::NEVER || self.gone, "nothing would ever happen");
                self.hosts.iter_mut().for_each(|host| host.now = now);
            }
        }
        panic!("not settled: {:?}", self.hosts.each_ref().map(|host| host.link.stats()));
    }

    fn check(&mut self) {
        for at in 0..2 {
            let stats = self.hosts[at].link.stats();
            assert_eq!((stats.violations, stats.chunks_stale), (0, 0), "{stats:?}");
            if self.hosts[at].down.is_some() {
                assert!(self.gone, "nobody said goodbye");
                self.hosts[at].finish();
            } else {
                self.hosts[at].check_idle();
                let opening = self.hosts[at].channels.values().filter(|c| c.opening).count();
                assert_eq!(opening, 0, "each opening is answered");
            }
            for (send, token) in self.hosts[at].sends.iter().zip(0..) {
                self.check_send(at, send, token);
            }
            let sent = self.hosts[at].sends.len() as u64;
            let other = &self.hosts[1 - at];
            assert!(other.delivered.iter().all(|&(_, _, token)| token < sent));
        }
    }

    fn check_send(&self, at: usize, send: &Send, token: u64) {
        let delivered = self.hosts[1 - at].delivered.iter();
        let count = delivered.filter(|&&(_, _, tag)| tag == token).count();
        let outcome = send.outcome.expect("each message has an outcome");
        let reader_closed = self.closed[1 - at] || self.gone;
        match outcome {
            Outcome::Delivered if reader_closed => assert!(count <= 1),
            Outcome::Delivered => assert_eq!(count, 1, "message {token} of end {at}"),
            Outcome::Abandoned => assert_eq!(count, 0, "message {token} of end {at}"),
            Outcome::Unknown => assert!(count <= 1 && reader_closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::seeds;

    const OPEN: [u8; 1] = [0];
    const ROUND: [u8; 1] = [15];
    /// The client sends 1,000 bytes; the server answers with 7,000.
    const ASK: [u8; 6] = [1, 0, 0xe7, 3, 0, 0];
    const ANSWER: [u8; 6] = [0x81, 0, 0x57, 0x1b, 0, 0];
    /// The client's turn; the server's.
    const TURNS: [u8; 4] = [8, 0, 0x88, 0];

    #[test]
    fn the_seeds_are_as_made() {
        let opened = [&[0], &OPEN[..], &ROUND, &ROUND, &ROUND].concat();
        let after = |parts: &[&[u8]]| [&opened[..], &parts.concat()[..]].concat();
        // To the server: the first frame is lost, copied, swapped with the last one.
        let [lost, copied, swapped] = [[0x8e, 0], [0xae, 0], [0xce, 0]];
        let grow = [0x12, 0, 9, 0xd0, 7];
        let supplies = [[0x22, 0, 0xe8, 3, 125], [0x22, 0, 0, 0, 60], [0x22, 0, 0xe0, 1, 65]];
        let grown = [&grow[..], &ROUND, &supplies[0], &ROUND, &supplies[1], &supplies[2], &ROUND];
        let grown = grown.concat();
        let made = [
            ("ask_and_answer", after(&[&ASK, &ROUND, &ANSWER, &ROUND, &ROUND])),
            ("first_frame_lost", after(&[&ASK, &TURNS, &lost, &ROUND, &[7, 20], &ROUND])),
            ("first_frame_copied", after(&[&ASK, &TURNS, &copied, &ROUND, &ROUND])),
            ("closed_both_ways", after(&[&ASK, &ROUND, &[4, 0, 0x84, 0], &ROUND, &ROUND])),
            ("goodbye", after(&[&ASK, &[0x7b], &ROUND, &ROUND])),
            // A message that grows: its end, its beginning, and what is between them.
            ("supplied_in_disorder", [&[0, 0x10, 15, 15, 15][..], &grown].concat()),
            // A message of one chunk is cancelled, and its ABANDON overtakes the chunk.
            (
                "chunk_after_its_abandon",
                after(&[&[1, 0, 3, 0, 0, 0], &[8, 0], &[3, 0], &[8, 0], &swapped, &ROUND]),
            ),
        ];
        seeds::check("link_pair", &made);
    }
}
