//! What a run came to: operations, changes of carrier, faults, retries, and the longest operation.

use std::fmt;
use towpath_base::Nanos;
use towpath_proto::{Carrier, LinkStats};
use towpath_sim::FaultCounters;

use super::dice::Befallen;

/// How often links went from one carrier to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rides {
    counts: [[u64; Carrier::ALL.len()]; Carrier::ALL.len()],
}

impl Rides {
    /// A link went there.
    pub fn note(&mut self, from: Carrier, to: Carrier) {
        self.counts[from as usize][to as usize] += 1;
    }

    /// How often links came to a carrier.
    #[must_use]
    pub fn to(&self, to: Carrier) -> u64 {
        self.counts.iter().map(|row| row[to as usize]).sum()
    }

    /// How often links went to a worse carrier.
    #[must_use]
    pub fn falls(&self) -> u64 {
        Carrier::ALL
            .iter()
            .map(|&from| self.counts[from as usize][from as usize + 1..].iter().sum::<u64>())
            .sum()
    }

    /// How often links went to a better one.
    #[must_use]
    pub fn returns(&self) -> u64 {
        Carrier::ALL
            .iter()
            .map(|&from| self.counts[from as usize][..from as usize].iter().sum::<u64>())
            .sum()
    }
}

impl std::ops::AddAssign for Rides {
    fn add_assign(&mut self, other: Self) {
        for (row, others) in self.counts.iter_mut().zip(other.counts) {
            row.iter_mut().zip(others).for_each(|(count, more)| *count += more);
        }
    }
}

impl fmt::Display for Rides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} down and {} up", self.falls(), self.returns())?;
        for from in Carrier::ALL {
            for to in Carrier::ALL {
                let count = self.counts[from as usize][to as usize];
                if count > 0 {
                    write!(f, ", {from} to {to} {count}")?;
                }
            }
        }
        Ok(())
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Operations that were answered, those that read all back included.
    pub operations: u64,
    /// How long the run took, on the clock of the devices.
    pub took: Nanos,
    /// The longest operation.
    pub longest: Nanos,
    /// How long one may take.
    pub deadline: Nanos,
    /// Changes of carrier at the clients' ends.
    pub clients: Rides,
    /// The same at the server's.
    pub server: Rides,
    /// What befell clients.
    pub befallen: Befallen,
    /// What faults did to packets.
    pub faults: FaultCounters,
    /// Packets that holes have swallowed.
    pub swallowed: u64,
    /// The counters of all links, both ends.
    pub links: LinkStats,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, took, longest, deadline, faults, links, .. } = self;
        writeln!(f, "{operations} operations in {took}, all in order, once, with the value due")?;
        writeln!(f, "longest operation {longest}, of {deadline} that it may take")?;
        writeln!(f, "carriers, clients: {}", self.clients)?;
        writeln!(f, "carriers, server:  {}", self.server)?;
        writeln!(f, "befell clients: {}", self.befallen)?;
        writeln!(
            f,
            "packets: {} taken, {} swallowed, {} dropped, {} doubled, {} reordered, {} corrupted, \
             {} late",
            faults.taken,
            self.swallowed,
            faults.dropped_random,
            faults.duplicated,
            faults.reordered,
            faults.corrupted,
            faults.late
        )?;
        write!(
            f,
            "chunks: {} sent, {} of them again; {} came twice and were known; {} timeouts, {} \
             probes, {} queue pairs failed and {} made anew",
            links.chunks_sent,
            links.chunks_retransmitted,
            links.chunks_duplicate,
            links.rtos,
            links.path_probes,
            links.paths_failed,
            links.paths_renewed
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Carrier::{Rc, Tcp, Uc};

    #[test]
    fn rides_are_counted_by_where_they_lead() {
        let mut rides = Rides::default();
        for (from, to) in [(Uc, Rc), (Rc, Tcp), (Tcp, Uc), (Uc, Tcp), (Tcp, Rc), (Rc, Uc)] {
            rides.note(from, to);
        }
        rides += rides;
        assert_eq!((rides.falls(), rides.returns()), (6, 6));
        assert_eq!([Uc, Rc, Tcp].map(|to| rides.to(to)), [4, 4, 4]);
    }
}
