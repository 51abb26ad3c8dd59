//! Ways through the switches: equal-cost shortest paths by destination switch.

use super::ids::WireId;
use std::collections::VecDeque;

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
    /// Where the wires of each pair begin in `wires`; one more at the end.
    starts: Vec<u32>,
    wires: Vec<WireId>,
}

impl Routes {
    /// The routes over `hops` among so many switches. Only switches in `dests`, in rising order,
    /// can be reached: those with hosts.
    pub(super) fn new(switches: usize, dests: &[bool], hops: &[Hop]) -> Self {
        let mut into: Vec<Vec<Hop>> = vec![Vec::new(); switches];
        let mut out: Vec<Vec<Hop>> = vec![Vec::new(); switches];
        for hop in hops {
            into[hop.to as usize].push(*hop);
            out[hop.from as usize].push(*hop);
        }
        let (mut starts, mut wires) = (Vec::with_capacity(switches * switches + 1), Vec::new());
        for (dest, is_dest) in dests.iter().enumerate() {
            let hops_to = if *is_dest { distances(dest, &into) } else { vec![u32::MAX; switches] };
            for (from, hops) in out.iter().enumerate() {
                starts.push(wires.len() as u32);
                let nearer = |hop: &&Hop| hops_to[hop.to as usize] < hops_to[from];
                wires.extend(hops.iter().filter(nearer).map(|hop| hop.wire));
            }
        }
        starts.push(wires.len() as u32);
        Self { switches, starts, wires }
    }

    /// The wires of equal cost from one switch towards another; none where no way leads there.
    pub(super) fn towards(&self, from: u32, dest: u32) -> &[WireId] {
        let pair = dest as usize * self.switches + from as usize;
        &self.wires[self.starts[pair] as usize..self.starts[pair + 1] as usize]
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
