//! Ways through the switches: equal-cost shortest paths by destination switch.

use super::ids::WireId;
use std::collections::{BTreeMap, VecDeque};

/// A cable between two switches, as the routes see it: switch, switch, the wire between.
#[derive(Clone, Copy)]
pub(super) struct Hop {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) wire: WireId,
}

/// For each pair of switches the wires that lead one nearer to the other.
#[derive(Default)]
pub(super) struct Routes {
    switches: usize,
    /// The number of the group of each pair.
    pairs: Vec<u32>,
    /// Where each group begins and ends in `wires`. From a leaf to all others it is one group.
    groups: Vec<(u32, u32)>,
    wires: Vec<WireId>,
}

impl Routes {
    /// The routes over `hops` among as many switches as `dests` has entries. It says which of them
    /// need to be reached: those with hosts.
    pub(super) fn new(dests: &[bool], hops: &[Hop]) -> Self {
        let switches = dests.len();
        let mut into: Vec<Vec<Hop>> = vec![Vec::new(); switches];
        let mut out: Vec<Vec<Hop>> = vec![Vec::new(); switches];
        for hop in hops {
            into[hop.to as usize].push(*hop);
            out[hop.from as usize].push(*hop);
        }
        let mut routes = Self { switches, ..Self::default() };
        let mut known = BTreeMap::new();
        for (dest, is_dest) in dests.iter().enumerate() {
            let hops_to = if *is_dest { distances(dest, &into) } else { vec![u32::MAX; switches] };
            for (from, hops) in out.iter().enumerate() {
                let nearer = |hop: &&Hop| hops_to[hop.to as usize] < hops_to[from];
                let group: Vec<WireId> = hops.iter().filter(nearer).map(|hop| hop.wire).collect();
                let group = known.entry(group).or_insert_with_key(|group| routes.add(group));
                routes.pairs.push(*group);
            }
        }
        routes
    }

    fn add(&mut self, group: &[WireId]) -> u32 {
        let start = self.wires.len() as u32;
        self.wires.extend_from_slice(group);
        self.groups.push((start, self.wires.len() as u32));
        self.groups.len() as u32 - 1
    }

    /// The wires of equal cost from one switch towards another; none where no way leads there.
    pub(super) fn towards(&self, from: u32, dest: u32) -> &[WireId] {
        let pair = dest as usize * self.switches + from as usize;
        let (start, end) = self.groups[self.pairs[pair] as usize];
        &self.wires[start as usize..end as usize]
    }
}

/// How many hops each switch is from `dest`.
fn distances(dest: usize, into: &[Vec<Hop>]) -> Vec<u32> {
    let mut hops_to = vec![u32::MAX; into.len()];
    hops_to[dest] = 0;
    let mut queue = VecDeque::from([dest]);
    while let Some(switch) = queue.pop_front() {
        for hop in &into[switch] {
            let from = hop.from as usize;
            if hops_to[from] == u32::MAX {
                hops_to[from] = hops_to[switch] + 1;
                queue.push_back(from);
            }
        }
    }
    hops_to
}
