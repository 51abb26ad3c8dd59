//! What a client does with the stripes that it reads: it asks for parts, checks them and decodes.

use super::setting::{CRC_PS_PER_KIB, Setting};
use super::systems::empty;
use crate::flow::{Ack, Cost, Group, Plan, Ps, Stream, run};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use towpath_fastpath::SLICE_BYTES;

/// Who is asked, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The data nodes, which are all there.
    Whole,
    /// As many nodes as are enough, of those that are there: the client knows which are lost.
    Known,
    /// All nodes at once. The first that are enough count.
    All,
    /// The data nodes; after so long as many parity nodes as have not answered.
    Late(Ps),
}

/// What is read, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) data: usize,
    pub(super) parity: usize,
    /// Data nodes that are lost: the first ones, which is the worst that can be.
    pub(super) lost: usize,
    pub(super) bytes: u64,
    /// Bytes of a node in a whole stripe.
    pub(super) unit: u64,
    /// Bytes of a node that are decoded at once, whole slices.
    pub(super) row: u64,
    /// Cores of the client.
    pub(super) cores: u64,
    /// What decoding takes, by bytes of all data nodes.
    pub(super) decode: Cost,
}

/// A stripe: bytes of each node, and its first slice and row, over all stripes.
#[derive(Clone, Copy, Debug)]
struct Stripe {
    unit: u64,
    slice: u64,
    row: u64,
}

/// A slice of a node, as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    at: Ps,
    slice: usize,
    node: usize,
    row: usize,
}

/// A client's core has this to do, for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    Decode(usize),
    Check(usize),
}

/// What has come of a row.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    slices: u64,
    unchecked: u64,
    has_parity: bool,
}

const SLICE: u64 = SLICE_BYTES as u64;

impl Reading {
    /// Units of the last stripe are as short as slices allow, as our client lays them out.
    fn stripes(&self) -> Vec<Stripe> {
        let data = self.data as u64;
        let (mut slice, mut row) = (0, 0);
        let starts = (0..self.bytes).step_by((self.unit * data) as usize);
        let stripes = starts.map(|at| {
            let unit = (self.bytes - at).div_ceil(data).next_multiple_of(SLICE).min(self.unit);
            let stripe = Stripe { unit, slice, row };
            (slice, row) = (slice + unit / SLICE, row + unit.div_ceil(self.row));
            stripe
        });
        stripes.collect()
    }

    /// Nodes that are asked, when, and whether they are there.
    fn nodes(&self, asked: Asked) -> Vec<(usize, Ps, bool)> {
        let (data, lost) = (self.data, self.lost);
        let all = |nodes: std::ops::Range<usize>, at| {
            nodes.map(move |node| (node, at, asked == Asked::Whole || node >= lost))
        };
        match asked {
            Asked::Whole => all(0..data, 0).collect(),
            Asked::Known => all(lost..data + lost, 0).collect(),
            Asked::All => all(0..data + self.parity, 0).collect(),
            Asked::Late(at) => all(0..data, 0).chain(all(data..data + lost, at)).collect(),
        }
    }

    /// A request to each node for each stripe. Gives also who answers: which stream, and of what.
    fn plan(&self, setting: &Setting, asked: Asked) -> (Plan, Vec<(usize, usize, Stripe)>) {
        let mut plan = empty(setting, self.data + self.parity);
        let mut answers = Vec::new();
        for stripe in self.stripes() {
            for (node, at, is_there) in self.nodes(asked) {
                let request = plan.streams.len();
                plan.streams.push(Stream {
                    from: 0,
                    to: node + 1,
                    bytes: 0,
                    first_header: setting.our_header(0),
                    service: setting.our_read(),
                    next: if is_there { vec![request + 1] } else { Vec::new() },
                    ack: Ack::Nobody,
                });
                plan.groups.push(Group { roots: vec![request], at, ..Group::default() });
                if !is_there {
                    continue;
                }
                answers.push((request + 1, node, stripe));
                plan.streams.push(Stream {
                    from: node + 1,
                    to: 0,
                    bytes: stripe.unit,
                    first_header: setting.answer_header(),
                    service: setting.client_gets(),
                    next: Vec::new(),
                    ack: Ack::Nobody,
                });
            }
        }
        (plan, answers)
    }

    /// When the client has all data, and a hash of what has happened; nothing where too few answer.
    pub(super) fn end(&self, setting: &Setting, asked: Asked) -> Option<(Ps, u64)> {
        let (plan, answers) = self.plan(setting, asked);
        let seen = run(&plan);
        let mut come = Vec::new();
        for (stream, node, stripe) in answers {
            let packets = plan.wire.packets(stripe.unit, setting.answer_header());
            let (mut bytes, mut slice) = (0, 0);
            for (packet, &at) in packets.into_iter().zip(seen.stored.get(stream)?) {
                bytes += packet;
                while (slice + 1) * SLICE <= bytes {
                    let row = (stripe.row + slice * SLICE / self.row) as usize;
                    come.push(Piece { at, slice: (stripe.slice + slice) as usize, node, row });
                    slice += 1;
                }
            }
        }
        come.sort_unstable();
        Some((self.client(&come)?, seen.trace_hash))
    }

    /// The rows, when all has come: of each slice as many nodes as are enough, the first ones.
    fn rows(&self, come: &[Piece]) -> Option<(Vec<Row>, Vec<Piece>)> {
        let stripes = self.stripes();
        let last = stripes.last()?;
        let mut missing = vec![self.data; (last.slice + last.unit / SLICE) as usize];
        let mut rows = vec![Row::default(); (last.row + last.unit.div_ceil(self.row)) as usize];
        let mut taken = Vec::new();
        for &piece in come {
            let missing = missing.get_mut(piece.slice)?;
            if *missing > 0 {
                *missing -= 1;
                let row = rows.get_mut(piece.row)?;
                row.slices += u64::from(*missing == 0);
                row.unchecked += 1;
                row.has_parity |= piece.node >= self.data;
                taken.push(piece);
            }
        }
        missing.iter().all(|missing| *missing == 0).then_some((rows, taken))
    }

    /// Its cores check each slice as it comes, and decode a row when all of it is checked.
    fn client(&self, come: &[Piece]) -> Option<Ps> {
        let (mut rows, taken) = self.rows(come)?;
        let jobs = taken.iter().map(|piece| Reverse((piece.at, Job::Check(piece.row))));
        let mut jobs: BinaryHeap<Reverse<(Ps, Job)>> = jobs.collect();
        let mut cores = vec![0; self.cores.max(1) as usize];
        let mut end = 0;
        while let Some(Reverse((at, job))) = jobs.pop() {
            let core = cores.iter_mut().min()?;
            let begin = at.max(*core);
            let (Job::Check(number) | Job::Decode(number)) = job;
            let row = rows.get_mut(number)?;
            let span = match job {
                Job::Check(_) => CRC_PS_PER_KIB * SLICE / 1_024,
                Job::Decode(_) => self.decode.of(row.slices * SLICE * self.data as u64),
            };
            *core = begin + span;
            end = end.max(*core);
            if let Job::Check(_) = job {
                row.unchecked -= 1;
                if row.unchecked == 0 && row.has_parity {
                    jobs.push(Reverse((*core, Job::Decode(number))));
                }
            }
        }
        Some(end)
    }
}

/// What decoding all lost shards of a stripe takes on one core, from two points that were measured
/// (docs/erasure-coding.md, section 8): gigabytes of data a second, times ten, with shards of 4 KiB
/// and of 64 KiB, all parity used. Fewer lost shards take no more.
pub(super) fn decode(data: u64, speeds: [u64; 2]) -> Cost {
    let [short, long] = speeds.map(|tenths| 10_000.0 / tenths.max(1) as f64);
    let data = data as f64;
    let (short, long) = (short * 4_096.0 * data, long * 65_536.0 * data);
    let per_kib = ((long - short) / (60.0 * data)).max(0.0);
    let fixed = (short - per_kib * 4.0 * data).max(0.0);
    Cost { fixed: fixed as Ps, per_kib: per_kib as Ps }
}
