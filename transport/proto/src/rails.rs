//! Which NICs a path joins, where an end of a link has several (docs/protocol.md section 9).

use crate::config::Side;

/// The two NICs that a path joins, by their places in what each end told at set-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rail {
    /// Ours.
    pub ours: u8,
    /// The peer's.
    pub theirs: u8,
}

/// How many NICs the two ends of a link have: what rails there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rails {
    ours: u8,
    theirs: u8,
}

impl Rails {
    /// One NIC at either end.
    pub const ONE: Self = Self { ours: 1, theirs: 1 };

    /// Between so many NICs of ours and so many of the peer's, one at least.
    #[must_use]
    pub fn new(ours: usize, theirs: usize) -> Self {
        let some = |nics: usize| u8::try_from(nics).unwrap_or(u8::MAX).max(1);
        Self { ours: some(ours), theirs: some(theirs) }
    }

    /// How many NICs the peer has.
    pub(crate) fn theirs(self) -> u8 {
        self.theirs
    }

    /// The rail of a path: both ends work it out alike. First each NIC is joined with its like,
    /// then with the next one, so that a few paths use all NICs, and some more all pairs.
    #[must_use]
    pub fn rail_of(self, side: Side, path: usize) -> Rail {
        let (ours, theirs) = (usize::from(self.ours), usize::from(self.theirs));
        let (client, server) = match side {
            Side::Client => (ours, theirs),
            Side::Server => (theirs, ours),
        };
        let round = path / client.max(server);
        let (of_client, of_server) = ((path % client) as u8, ((path + round) % server) as u8);
        match side {
            Side::Client => Rail { ours: of_client, theirs: of_server },
            Side::Server => Rail { ours: of_server, theirs: of_client },
        }
    }

    /// How many source ports each of our NICs has, where all together have so many.
    #[must_use]
    pub fn ports_of_nic(self, source_ports: u16) -> u16 {
        (source_ports / u16::from(self.ours)).max(1)
    }

    /// The source port that a path begins with, where all our NICs together have so many.
    #[must_use]
    pub fn first_port(self, side: Side, path: usize, source_ports: u16) -> u16 {
        let of_nic = self.ports_of_nic(source_ports);
        let nic = u16::from(self.rail_of(side, path).ours);
        nic * of_nic + path as u16 % of_nic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_the_same_rails() {
        for ours in 1..=4 {
            for theirs in 1..=4 {
                for path in 0..16 {
                    let near = Rails::new(ours, theirs).rail_of(Side::Client, path);
                    let far = Rails::new(theirs, ours).rail_of(Side::Server, path);
                    assert_eq!((near.ours, near.theirs), (far.theirs, far.ours), "path {path}");
                    assert!(usize::from(near.ours) < ours && usize::from(near.theirs) < theirs);
                }
            }
        }
    }

    #[test]
    fn four_paths_join_two_nics_with_two_in_all_ways() {
        let rails = Rails::new(2, 2);
        let pairs = (0..4).map(|path| rails.rail_of(Side::Client, path));
        let pairs: alloc::vec::Vec<_> = pairs.map(|rail| (rail.ours, rail.theirs)).collect();
        assert_eq!(pairs, [(0, 0), (1, 1), (0, 1), (1, 0)]);
    }

    #[test]
    fn each_nic_has_its_own_source_ports() {
        let two = Rails::new(2, 1);
        let ports =
            |rails: Rails, all| [0, 1, 2, 3].map(|i| rails.first_port(Side::Client, i, all));
        assert_eq!(ports(two, 32), [0, 17, 2, 19]);
        assert_eq!(ports(two, 2), [0, 1, 0, 1]);
        assert_eq!(ports(Rails::ONE, 3), [0, 1, 2, 0]);
        assert_eq!(ports(Rails::ONE, 0), [0; 4]);
    }
}
